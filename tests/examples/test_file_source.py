from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from examples.file_source import CHUNK, FileConfig, FileSource, FileTask
from sinksdk import ConfigException
from sinksdk.engine import SystemClock, TaskName
from sinksdk.engine.worker_source_task import WorkerSourceTask
from sinksdk.model.outcome import SourceTaskOutcome
from sinksdk.plugins.checks import check_file
from sinksdk.source import SourceRecord
from sinksdk.support.threads import SystemThreads
from sinksdk.topics import Subscription, TopicDirectorySource
from sinksdk.topics.memory import MemoryOffsets, MemoryTopics, MemoryWriter

NAME = TaskName("files", 0)
ROOT = Path(__file__).parents[2]


class Following:
    """Runs tasks that follow a directory, one after the other, into topics in memory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.topics = MemoryTopics()
        self.keys: dict[str, str] = {}

    def write(self, name: str, text: bytes | str) -> Path:
        path = self.directory / name
        with path.open("ab") as file:
            file.write(text.encode() if isinstance(text, str) else text)
        return path

    def run(self, meanwhile: Callable[[], object] = lambda: None) -> SourceTaskOutcome:
        task = Patient()
        worker = WorkerSourceTask(
            task,
            NAME,
            config_of(self.directory, self.keys),
            writer=MemoryWriter(self.topics, "g-files-0", NAME.connector),
            offsets=MemoryOffsets(self.topics, NAME.connector),
            clock=SystemClock(),
            threads=SystemThreads(str(NAME)),
        )
        task.at_rest = [meanwhile, worker.stop]
        return worker.run()

    @property
    def lines(self) -> list[str]:
        return sorted((record.value or b"").decode() for record in self.topics.records("lines"))


class Patient(FileTask):
    """Runs a callback after some empty polls."""

    at_rest: list[Callable[[], object]]
    empty = 0

    def poll(self) -> Sequence[SourceRecord]:
        records = super().poll()
        self.empty = 0 if records else self.empty + 1
        if self.empty > 3 and self.at_rest:
            self.empty = 0
            self.at_rest.pop(0)()
        return records


def config_of(directory: Path, keys: dict[str, str]) -> FileConfig:
    standard = {"name": "files", "topic": "lines", "directory": str(directory), "poll.interval.ms": "1"}
    return FileConfig.parse({**standard, **keys})


@pytest.fixture
def following(tmp_path: Path) -> Following:
    return Following(tmp_path)


def test_lines_become_records(following: Following) -> None:
    following.write("a", b"one\n\ntw\xf6\r\n")
    following.run()
    assert [record.value for record in following.topics.records("lines")] == [b"one", b"", b"tw\xf6\r"]


def test_growing_files_are_read_further(following: Following) -> None:
    following.write("a", "one\ntw")
    following.run(lambda: following.write("a", "o\nth"))
    assert following.lines == ["one", "two"]
    following.write("a", "ree\n")
    following.write("b", "four\n")
    following.run(lambda: following.write("c", "five\n"))
    assert following.lines == ["five", "four", "one", "three", "two"]


def test_records_have_the_key_of_their_content(following: Following) -> None:
    following.write("a", "one\ntwo\n")
    following.write("b", "one\nthree\n")
    following.run(lambda: following.write("a", "four\n").rename(following.directory / "c"))
    keys = {record.value: record.key for record in following.topics.records("lines")}
    assert len(keys) == 4
    assert keys[b"two"] == keys[b"four"] != keys[b"three"]
    assert all(keys.values())


@pytest.mark.parametrize("is_running", [True, False])
def test_renamed_files_are_the_same(following: Following, is_running: bool) -> None:
    def rotate() -> None:
        path = following.write("log", "three\n")
        path.rename(path.with_name("log.1"))
        following.write("log.1", "four\n")
        following.write("log", "five\n")

    following.write("log", "one\ntwo\n")
    if is_running:
        following.run(rotate)
    else:
        following.run()
        rotate()
        following.run()
    assert following.lines == ["five", "four", "one", "three", "two"]


@pytest.mark.parametrize("is_running", [True, False])
def test_a_copy_of_a_truncated_file_is_read_further(following: Following, is_running: bool) -> None:
    def rotate() -> None:
        path = following.write("log", "three\n")
        shutil.copy(path, path.with_name("log.1"))
        os.truncate(path, 0)
        following.write("log", "four\nand a longer one than all that was there\n")

    following.write("log", "one\ntwo\n")
    if is_running:
        following.run(rotate)
    else:
        following.run()
        rotate()
        following.run()
    assert following.lines == ["and a longer one than all that was there", "four", "one", "three", "two"]


def test_a_truncated_file_is_read_from_its_beginning(following: Following) -> None:
    def replace(text: str) -> None:
        os.truncate(following.directory / "log", 0)
        following.write("log", text)

    following.write("log", "one\ntwo\n")
    following.run(lambda: replace("a\n"))
    replace("b, and so much more than before\n")
    following.run()
    assert following.lines == ["a", "b, and so much more than before", "one", "two"]


def test_compressed_files_are_read_further(following: Following) -> None:
    path = following.write("log", "one\ntwo\nthree")
    following.run()
    packed = gzip.compress(path.read_bytes())
    path.unlink()
    following.write("log.1.gz", packed[:20])
    following.run(lambda: following.write("log.1.gz", packed[20:]))
    assert following.lines == ["one", "three", "two"]
    following.run()
    assert following.lines == ["one", "three", "two"]


@pytest.mark.parametrize("packed", [b"no gzip", gzip.compress(b"one\ntwo\n", mtime=0)[:-6]])
def test_damaged_compressed_files_are_reported(
    following: Following, caplog: pytest.LogCaptureFixture, packed: bytes
) -> None:
    path = following.write("log.gz", packed)
    following.write("log", "three\n")
    following.run()
    assert "is not read" not in caplog.text
    os.utime(path, (0, 0))
    following.run()
    assert [line.count(str(path)) for line in caplog.messages if "the gzip file is incomplete" in line] == [1]
    assert following.lines == ["three"]


def test_large_compressed_files(following: Following) -> None:
    lines = [f"{n:07d} {'x' * (n % 50)}" for n in range(20_000)]
    following.write("log.gz", gzip.compress("\n".join(lines).encode()))
    following.keys = {"batch.records": "7000"}
    following.run()
    assert following.lines == lines


def test_files_with_equal_beginnings_are_distinguished(following: Following) -> None:
    following.keys = {"skip.lines": "1", "batch.records": "1"}
    following.write("a.csv", "n,m\n1,1\n2,2\n")
    following.write("b.csv", "n,m\n1,1\n3,3\n")
    following.run()
    following.write("a.csv", "4,4\n")
    following.write("b.csv", "5,5\n")
    following.run()
    assert following.lines == ["1,1", "1,1", "2,2", "3,3", "4,4", "5,5"]


def test_a_copy_counts_as_the_same_file(following: Following) -> None:
    path = following.write("a", "one\ntwo\n")
    shutil.copy(path, path.with_name("b"))
    following.run(lambda: following.write("a", "three\n"))
    following.run()
    assert following.lines == ["one", "three", "two"]


def test_a_last_line_without_an_end(following: Following) -> None:
    following.keys = {"file.idle.ms": "0"}
    following.write("a", "one\ntwo")
    following.run()
    following.write("a", "\nthree\n")
    following.run()
    assert following.lines == ["one", "three", "two"]


def test_a_file_that_vanishes_is_read_to_its_end(following: Following) -> None:
    following.keys = {"batch.records": "1"}
    path = following.write("a", "one\ntwo\nthree\n")
    task = FileTask()
    task.context = WorkerContext(following.topics)  # type: ignore[assignment]  # all of a context that is used
    task.start(config_of(following.directory, following.keys))
    path.unlink()
    assert [task.poll()[0].value for _ in range(3)] == [b"one", b"two", b"three"]
    assert task.poll() == task.poll() == []
    assert [content.file for content in task.all_contents()] == [None]


class WorkerContext:
    def __init__(self, topics: MemoryTopics) -> None:
        self.topics = topics

    def offset_storage_reader(self) -> MemoryOffsets:
        return MemoryOffsets(self.topics, NAME.connector)


def test_long_lines(following: Following) -> None:
    following.keys = {"max.line.bytes": str(10 * CHUNK)}
    following.write("a", f"{'x' * (5 * CHUNK)}\nshort\n")
    following.run()
    assert [len(line) for line in following.lines] == [5, 5 * CHUNK]
    following.write("a", "y" * (20 * CHUNK))
    failure = following.run().failure
    assert failure is not None
    assert "has a line of more than 2,621,440 bytes" in failure.message
    assert "raise 'max.line.bytes'" in failure.message


def test_tasks_share_the_files(following: Following) -> None:
    for n in range(20):
        following.write(f"f{n}", f"{n}\n")
    counts = []
    for keys in FileSource().task_configs(3):
        following.keys = dict(keys)
        counts.append(following.run().records)
    assert sum(counts) == len(following.lines) == 20
    assert all(counts)


# -- a process that is killed --------------------------------------------------------------------------

PROCESS = """
import sys
from pathlib import Path
from examples.file_source import FileTask, FileConfig
from sinksdk.engine import SystemClock, TaskName
from sinksdk.engine.worker_source_task import WorkerSourceTask
from sinksdk.engine.writer import transactional_id
from sinksdk.support.threads import SystemThreads
from sinksdk.topics.directory.writer import TopicDirectoryOffsets, TopicDirectoryWriter

directory, topics = sys.argv[1:]
name = TaskName("files", 0)
keys = {"name": "files", "topic": "lines", "directory": directory, "poll.interval.ms": "5"}
WorkerSourceTask(
    FileTask(),
    name,
    FileConfig.parse({**keys, "batch.records": "50"}),
    writer=TopicDirectoryWriter(topics, transactional_id("g", name), name.connector),
    offsets=TopicDirectoryOffsets(topics, name.connector),
    clock=SystemClock(),
    threads=SystemThreads(str(name)),
).run()
"""
FILES, LINES = 12, 300


def write_and_rotate(directory: Path, written: list[str]) -> None:
    log = directory / "app.log"
    for number in range(FILES):
        with log.open("a") as file:
            for line in range(LINES):
                written.append(f"{number:02d}-{line:04d}")
                file.write(f"{written[-1]}\n")
                if not line % 20:
                    file.flush()
                    time.sleep(0.02)
        rotated = directory / f"app.log.{number}"
        if number % 3:
            log.rename(rotated)
        else:
            shutil.copy(log, directory / ".copy")
            (directory / ".copy").rename(rotated)
            os.truncate(log, 0)


def values_in(topics: Path) -> list[str]:
    if not (topics / "topic=lines").is_dir():
        return []
    source = TopicDirectorySource(topics)
    source.partitions(Subscription(("lines",)))
    tables = [
        pq.read_table(file.path, partitioning=None, columns=["value"])
        for seen in source._seen.values()
        for file in seen.files
    ]
    return [value.decode() for table in tables for value in table.column("value").to_pylist()]


@pytest.mark.extended
@pytest.mark.slow
def test_a_process_that_is_killed_again_and_again(tmp_path: Path) -> None:
    directory, topics = tmp_path / "logs", tmp_path / "topics"
    directory.mkdir()
    written: list[str] = []
    writer = threading.Thread(target=write_and_rotate, args=(directory, written))
    writer.start()
    kills = 0
    deadline = time.monotonic() + 300
    while True:
        process = subprocess.Popen([sys.executable, "-c", PROCESS, directory, topics], cwd=ROOT)
        time.sleep(0.9 * 1.1**kills)  # on a busy machine the first processes only start
        is_over = kills >= 3 and not writer.is_alive() and len(values_in(topics)) >= len(written)
        process.kill()
        process.wait()
        kills += 1
        if is_over or time.monotonic() > deadline:
            break
    writer.join()
    assert sorted(values_in(topics)) == sorted(written)
    assert len(written) == FILES * LINES
    assert kills > 3


def test_a_pause_in_the_last_line(following: Following) -> None:
    following.keys = {"file.idle.ms": "80", "poll.interval.ms": "40"}
    following.write("a", "one\ntwo")
    following.run(lambda: None)
    assert following.lines == ["one", "two"]


def test_the_configuration_would_start() -> None:
    checked = check_file(ROOT / "examples" / "file_source.json")
    assert (checked.problems, checked.warnings) == ([], [])


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigException, match=r"'directory': .*/nowhere does not exist"):
        FileSource().start(config_of(tmp_path / "nowhere", {}))
