from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from sinksdk import ConfigException, ConnectException, ConnectorConfig, Header, SinkRecord, TopicPartition
from sinksdk.launch.topics import KafkaTopics, TopicDirectory, find_dead_letters
from sinksdk.records import SinkRecords
from sinksdk.topics import Subscription, TopicDirectorySource, write_records, write_transaction
from sinksdk.topics.directory.dead_letters import DirectoryDeadLetters
from sinksdk.topics.directory.log import Disk
from sinksdk.worker.outside import open_dead_letters

PLACE = TopicPartition("bad", 0)
ROWS = pa.table({"offset": [0, 1], "key": [b"a", b"b"], "value": [b"1", b"2"]})
RECORD = SinkRecord(
    "flights", 3, 17, key=b"k", value=b"v", timestamp=5, headers=(Header("a", b"1"), Header("a", None))
)


def plain(root: Path) -> None:
    # Spark writes a directory like this.
    write_records(root, TopicPartition("flights", 0), ROWS)


def transactional(root: Path) -> None:
    write_transaction(root, {TopicPartition("flights", 0): ROWS})


def new(root: Path) -> None:
    pass


KINDS = pytest.mark.parametrize("make", [plain, transactional, new])


def letters_in(root: Path) -> list[SinkRecord]:
    source = TopicDirectorySource(root)
    available = source.partitions(Subscription(("bad",), None))
    if PLACE not in available:
        return []
    columns = ("key", "value", "timestamp", "headers")
    batches = source.reader(available).read(available, columns, {})
    return [record for batch in batches if isinstance(batch, SinkRecords) for record in batch]


def settings(**more: str) -> ConnectorConfig:
    keys = {
        "name": "c",
        "connector.class": "x",
        "topics": "flights",
        "errors.deadletterqueue.topic.name": "bad",
    }
    return ConnectorConfig.parse({**keys, **more})


# -- what is written -----------------------------------------------------------------------------------


@KINDS
def test_dead_letter_in_a_directory_equals_the_record(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path)
    with DirectoryDeadLetters(tmp_path, "bad", now=lambda: 7.0) as letters:
        letters.send(RECORD).result(10)
        letters.send(SinkRecord("flights", 0, 1, value=None)).result(10)
    first, second = letters_in(tmp_path)
    assert (first.key, first.value, first.timestamp, first.headers) == (b"k", b"v", 5, RECORD.headers)
    assert (second.key, second.value, second.timestamp, second.headers) == (None, None, 7_000, ())
    assert [letter.offset for letter in (first, second)] == [0, 1]


@KINDS
def test_dead_letters_leave_other_topics_visible(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path)
    with DirectoryDeadLetters(tmp_path, "bad") as letters:
        letters.send(RECORD).result(10)
    available = TopicDirectorySource(tmp_path).partitions(Subscription((), ".*"))
    expected = {"bad"} if make is new else {"bad", "flights"}
    assert {partition.topic for partition in available} == expected
    assert (tmp_path / "_transactions").is_dir() is (make is not plain)


@KINDS
def test_waiting_dead_letters_are_written_as_one_file(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path)
    with DirectoryDeadLetters(tmp_path, "bad") as letters:
        sent = [letters.send(SinkRecord("flights", 0, n, value=b"%d" % n)) for n in range(1_000)]
        for one in sent:
            one.result(10)
    assert [letter.value for letter in letters_in(tmp_path)] == [b"%d" % n for n in range(1_000)]
    assert len(list(tmp_path.rglob("topic=bad/*/*.parquet"))) < 50


@KINDS
def test_concurrent_dead_letter_writers_lose_and_repeat_no_offset(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    make(tmp_path)

    def write(writer: int) -> None:
        with DirectoryDeadLetters(tmp_path, "bad") as letters:
            for number in range(12):
                letters.send(SinkRecord("flights", writer, number, value=b"%d/%d" % (writer, number))).result(
                    30
                )

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = letters_in(tmp_path)
    assert Counter(letter.value for letter in found) == Counter(
        b"%d/%d" % (writer, number) for writer in range(4) for number in range(12)
    )
    assert [letter.offset for letter in found] == list(range(48))


_WRITER = """
import sys
from sinksdk import SinkRecord
from sinksdk.topics.directory.dead_letters import DirectoryDeadLetters

with DirectoryDeadLetters(sys.argv[1], "bad") as letters:
    for number in range(100_000):
        value = f"{sys.argv[2]}/{number}".encode()
        letters.send(SinkRecord("flights", 0, number, value=value)).result()
        print(value.decode(), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("make", [plain, transactional])
def test_killed_dead_letter_writers_lose_no_acknowledged_record(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    make(tmp_path)
    acknowledged: set[bytes] = set()
    for turn in range(2):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", _WRITER, str(tmp_path), f"{turn}-{writer}"], stdout=subprocess.PIPE
            )
            for writer in range(2)
        ]
        for writer in writers:
            assert writer.stdout is not None
            acknowledged |= {writer.stdout.readline().strip() for _ in range(5 + 3 * turn)}
        for writer in writers:
            os.kill(writer.pid, signal.SIGKILL)
            rest, _ = writer.communicate()
            acknowledged |= {line for line in rest.split(b"\n")[:-1] if line}
    with DirectoryDeadLetters(tmp_path, "bad") as letters:
        letters.send(SinkRecord("flights", 0, 0, value=b"last")).result(30)
    found = letters_in(tmp_path)
    assert acknowledged <= {letter.value for letter in found}
    assert [letter.offset for letter in found] == list(range(len(found)))
    assert found[-1].value == b"last"


# -- what goes wrong -----------------------------------------------------------------------------------


class Flaky(Disk):
    def __init__(self, times: int, *, after: bool) -> None:
        self.left = times
        self.after = after

    def link(self, existing: Path, name: Path) -> bool:
        if self.left and not self.after:
            self.left -= 1
            raise OSError(5, "Input/output error")
        found = super().link(existing, name)
        if self.left:
            self.left -= 1
            raise OSError(5, "Input/output error")
        return found


@KINDS
@pytest.mark.parametrize("after", [False, True])
def test_transient_error_of_a_dead_letter_is_retried(
    make: Callable[[Path], None], after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinksdk.topics.directory.dead_letters._PAUSE", 0.01)
    make(tmp_path)
    with DirectoryDeadLetters(tmp_path, "bad", disk=Flaky(2, after=after)) as letters:
        letters.send(RECORD).result(10)
    found = letters_in(tmp_path)
    assert {letter.value for letter in found} == {b"v"}
    assert len(found) <= (3 if after else 1)


def test_permanent_error_of_a_dead_letter_names_record_and_remedy(tmp_path: Path) -> None:
    transactional(tmp_path)
    (tmp_path / "topic=bad").touch()
    with DirectoryDeadLetters(tmp_path, "bad") as letters, pytest.raises(ConnectException) as raised:
        letters.send(RECORD).result(10)
    message = str(raised.value)
    assert "record of flights-3 at offset 17 could not be written to the dead letter topic 'bad'" in message
    assert "a file is where a folder should be" in message


def test_dead_letter_fails_after_its_retries(tmp_path: Path) -> None:
    began = time.monotonic()
    letters = DirectoryDeadLetters(tmp_path, "bad", patience=0.0, disk=Flaky(9, after=False))
    with letters, pytest.raises(ConnectException, match="Input/output error"):
        letters.send(RECORD).result(10)
    assert time.monotonic() - began < 5


# -- where they go -------------------------------------------------------------------------------------


def test_dead_letters_go_to_the_directory_of_the_source_by_default(tmp_path: Path) -> None:
    assert find_dead_letters(TopicDirectory(tmp_path), settings()) == str(tmp_path)


def test_dead_letter_directory_is_created_and_used(tmp_path: Path) -> None:
    config = settings(**{"errors.deadletterqueue.topic.directory": str(tmp_path / "bad")})
    for topics in (TopicDirectory(tmp_path / "source"), KafkaTopics("nowhere:9092")):
        assert find_dead_letters(topics, config) == str(tmp_path / "bad")
    assert (tmp_path / "bad").is_dir()
    with open_dead_letters(config, None) as letters:
        assert isinstance(letters, DirectoryDeadLetters)


def test_dead_letter_directory_that_cannot_be_written_is_refused_at_start(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.touch()
    with pytest.raises(
        ConfigException, match=r"the source's directory.* set another directory with 'errors\.deadlett"
    ):
        find_dead_letters(TopicDirectory(source), settings())
    nowhere = settings(**{"errors.deadletterqueue.topic.directory": str(tmp_path / "a" / "b")})
    with pytest.raises(
        ConfigException,
        match=r"dead letters cannot be written to .*b \('errors\.dead.* the folder .*a does not exist",
    ):
        find_dead_letters(TopicDirectory(tmp_path), nowhere)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"errors.deadletterqueue.topic.directory": "bad"}, "set it to the absolute path"),
        ({"errors.deadletterqueue.topic.directory": "s3://bucket/bad"}, "set it to the absolute path"),
        (
            {
                "errors.deadletterqueue.topic.directory": "/bad",
                "producer.override.bootstrap.servers": "b:9092",
            },
            "both name a destination of dead letters",
        ),
        (
            {"errors.deadletterqueue.topic.directory": "/bad", "errors.deadletterqueue.topic.name": ""},
            "is set without a topic: name one with 'errors.deadletterqueue.topic.name'",
        ),
    ],
)
def test_wrong_dead_letter_directory_is_a_config_exception(more: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigException, match=problem):
        settings(**more)
