"""``sinksdk run`` with dead letters on a real broker: from Kafka, and from a topic directory."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from sinksdk import TopicPartition, committed_offsets
from sinksdk.sources import write_records
from tests.kafka.spark_jars import spark_jars
from tests.kafka.topics import Read, consume, create_topic, unused_name

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RECORDS = 2_000
PREFIX = "errors.deadletterqueue."


def value(offset: int) -> bytes:
    """Every tenth is no JSON, every 25th is refused by the task."""
    return (
        b"no JSON" if offset % 10 == 3 else b'{"refuse":  %s}' % (b"true" if offset % 25 == 0 else b"false")
    )


def is_bad(offset: int) -> bool:
    return offset % 10 == 3 or offset % 25 == 0


class Site:
    """A working directory, and what runs in it."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder = folder
        self.bootstrap = bootstrap
        self.topic = unused_name("numbers")
        self.letters = unused_name("bad")
        self.out = folder / "out"
        self.out.mkdir()
        shutil.copy(Path(__file__).with_name("refusing_sink.py"), folder)

    def produce(self) -> None:
        """The records, in a topic of two partitions."""
        create_topic(self.bootstrap, self.topic, 2, {"retention.ms": "-1"})  # the timestamps are of 2020
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for partition in range(2):
            for offset in range(RECORDS):
                producer.produce(
                    self.topic,
                    value(offset),
                    b"k%d" % offset,
                    partition,
                    timestamp=1_600_000_000_000 + offset,
                    headers=[("h", b"%d" % offset), ("h", None)],
                )
        assert producer.flush(60) == 0

    def write(self) -> None:
        """The records, in a topic directory."""
        rows = pa.table(
            {
                "offset": range(RECORDS),
                "key": [b"k%d" % offset for offset in range(RECORDS)],
                "value": [value(offset) for offset in range(RECORDS)],
            }
        )
        write_records(self.folder / "topics", TopicPartition(self.topic, 0), rows)

    def run(self, source: Sequence[str], **config: str) -> tuple[int, str]:
        """Run until caught up: exit code and what was said."""
        keys = {
            "connector.class": "refusing_sink:RefusingSink",
            "topics": self.topic,
            "tasks.max": "2",
            "out.folder": str(self.out),
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "errors.tolerance": "all",
            f"{PREFIX}topic.name": self.letters,
            f"{PREFIX}topic.replication.factor": "1",
            f"{PREFIX}context.headers.enable": "true",
            "restart.max.attempts": "0",
            **config,
        }
        (self.folder / "sink.json").write_text(json.dumps({"name": "sink", "config": keys}))
        command = [sys.executable, "-m", "sinksdk.cli", "run", "sink.json", "--until-caught-up", *source]
        done = subprocess.run(
            [*command, "--master", "local[2]"],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        return done.returncode, done.stdout + done.stderr

    def delivered(self, partition: int) -> list[int]:
        return [int(line) for line in (self.out / f"{self.topic}-{partition}.txt").read_text().splitlines()]

    def committed(self) -> dict[int, int]:
        offsets = committed_offsets(f"sqlite:///{self.folder / 'sinksdk.sqlite'}", "sink")
        return {partition.partition: entry.offset for partition, entry in offsets.items()}


@pytest.fixture
def site(tmp_path: Path, bootstrap: str) -> Site:
    return Site(tmp_path, bootstrap)


def context(letter: Read) -> dict[str, bytes | None]:
    prefix = "__connect.errors."
    return {name.removeprefix(prefix): content for name, content in letter.headers if name.startswith(prefix)}


def test_bad_records_of_a_topic_go_to_the_dead_letters(site: Site) -> None:
    """Kafka to Kafka: each record is delivered or a dead letter, once, byte for byte with headers and timestamp."""
    site.produce()
    code, said = site.run(["--bootstrap-servers", site.bootstrap, "--kafka-jars", spark_jars()])
    assert code == 0, said
    assert site.committed() == {0: RECORDS, 1: RECORDS}
    letters = consume(site.bootstrap, site.letters)
    for partition in range(2):
        assert site.delivered(partition) == [offset for offset in range(RECORDS) if not is_bad(offset)]
        own = [letter for letter in letters if context(letter)["partition"] == b"%d" % partition]
        offsets = sorted(int(context(letter)["offset"] or b"") for letter in own)
        assert offsets == [offset for offset in range(RECORDS) if is_bad(offset)]
    for letter in letters:
        offset = int(context(letter)["offset"] or b"")
        assert (letter.key, letter.value) == (b"k%d" % offset, value(offset))
        assert letter.timestamp == 1_600_000_000_000 + offset
        assert list(letter.headers[:2]) == [("h", b"%d" % offset), ("h", None)]
        stage = b"VALUE_CONVERTER" if offset % 10 == 3 else b"TASK_PUT"
        assert context(letter)["stage"] == stage
        assert context(letter)["topic"] == site.topic.encode()


def test_bad_records_of_a_topic_directory_go_to_a_cluster_that_is_named(site: Site) -> None:
    """A topic directory has no cluster: producer.override.bootstrap.servers names the one of the dead letters."""
    site.write()
    directory = ["--source-directory", "topics"]
    code, said = site.run(directory)
    assert code == 2, said
    assert "name one with 'producer.override.bootstrap.servers'" in said
    assert not (site.folder / "sinksdk.sqlite").exists()
    code, said = site.run(directory, **{"producer.override.bootstrap.servers": site.bootstrap})
    assert code == 0, said
    assert site.committed() == {0: RECORDS}
    letters = consume(site.bootstrap, site.letters)
    assert sorted(letter.value or b"" for letter in letters) == sorted(
        value(offset) for offset in range(RECORDS) if is_bad(offset)
    )


def test_a_dead_letter_that_kafka_refuses_holds_its_partition(site: Site) -> None:
    """A dead letter that cannot be written fails its partition: it is not committed past, and nothing is dropped."""
    site.write()
    create_topic(site.bootstrap, site.letters, config={"max.message.bytes": "10"})
    override = {"producer.override.bootstrap.servers": site.bootstrap}
    code, said = site.run(["--source-directory", "topics"], **override)
    assert code == 1, said
    assert "raise max.message.bytes of the topic" in said
    assert site.committed().get(0, 0) == 0
