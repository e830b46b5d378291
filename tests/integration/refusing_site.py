"""A working directory in which :class:`RefusingSink` reads a topic and writes dead letters to a broker."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Producer

from sinksdk import TopicPartition, committed_offsets
from sinksdk.topics import write_records
from tests.helpers.warm_jvm import warm_jvm
from tests.kafka.topics import Read, create_topic, unused_name

RECORDS = 2_000
PREFIX = "errors.deadletterqueue."


class Site:
    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder = folder
        self.bootstrap = bootstrap
        self.topic = unused_name("numbers")
        self.letters = unused_name("bad")
        self.out = folder / "out"
        self.out.mkdir()
        shutil.copy(Path(__file__).with_name("refusing_sink.py"), folder)

    def produce(self, value: Callable[[int], bytes]) -> None:
        create_topic(self.bootstrap, self.topic, 2)
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

    def write(self, value: Callable[[int], bytes]) -> None:
        rows = pa.table(
            {
                "offset": range(RECORDS),
                "key": [b"k%d" % offset for offset in range(RECORDS)],
                "value": [value(offset) for offset in range(RECORDS)],
            }
        )
        write_records(self.folder / "topics", TopicPartition(self.topic, 0), rows)

    def run(self, source: Sequence[str], **config: str) -> tuple[int, str]:
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
        command = [sys.executable, "-m", "sinksdk", "run", "sink.json", "--until-caught-up", *source]
        done = subprocess.run(
            [*command, "--master", "local[2]"],
            cwd=self.folder,
            env=warm_jvm().environment(),
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


def context(letter: Read) -> dict[str, bytes | None]:
    prefix = "__connect.errors."
    return {name.removeprefix(prefix): content for name, content in letter.headers if name.startswith(prefix)}
