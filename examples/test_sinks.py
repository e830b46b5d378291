"""What a connector's own tests look like: the kit looks for schedules that the sink does not survive."""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hypothesis import settings

from examples import exactly_once_folder_sink, folder_sink, queue_sink, sqlite_sink
from sinksdk.testing import Capabilities, FaultPlan, Guarantee, SinkOptions, check_sink

FEW = settings(max_examples=40, stateful_step_count=15, derandomize=True, database=None, deadline=None)
"""Files and databases are slower than memory."""


def new_folder(faults: object) -> Path:
    return Path(mkdtemp())


def lines_in(folder: Path) -> Iterator[tuple[str, int, int]]:
    for path in sorted(folder.glob("*.jsonl")):
        topic, partition = path.name.partition("+")[0].rsplit("-", 1)
        for line in path.read_text().splitlines():
            yield topic, int(partition), json.loads(line)["offset"]


def folder_config(folder: Path) -> folder_sink.FolderConfig:
    keys = {"folder": str(folder), "flush.size": "3", "value.converter": "json"}
    return folder_sink.FolderConfig.parse({"name": "test", "topics": "records", **keys})


FOLDER: SinkOptions = {"destination": new_folder, "config": folder_config, "clean_up": shutil.rmtree}


def test_the_folder_sink_loses_nothing() -> None:
    """A record may be in two files, never in none."""
    check_sink(lambda folder: folder_sink.FolderTask(), read_back=lines_in, settings=FEW, **FOLDER)


def test_the_other_folder_sink_is_exactly_once() -> None:
    """Each record is in one file, which is not seen before it is committed; hidden files are cleaned up."""
    check_sink(
        lambda folder: exactly_once_folder_sink.FolderTask(),
        read_back=lines_in,
        capabilities=Capabilities(Guarantee.EXACTLY_ONCE, ordered=True),
        leftovers=lambda folder: [path.name for path in folder.glob(".*") if path.stat().st_size],
        settings=FEW,
        **FOLDER,
    )


def rows_in(folder: Path) -> list[tuple[str, int, int]]:
    with closing(sqlite3.connect(folder / "records.sqlite")) as connection:
        connection.execute(sqlite_sink.TABLE)
        return connection.execute("SELECT topic, partition, offset FROM records").fetchall()


def test_the_sqlite_sink_is_effectively_once() -> None:
    """Each record is one row, written as soon as it is put, whoever puts it how often."""
    check_sink(
        lambda folder: sqlite_sink.SqliteTask(),
        read_back=rows_in,
        destination=new_folder,
        config=lambda folder: sqlite_sink.SqliteConfig.parse(
            {"name": "test", "topics": "records", "database": str(folder / "records.sqlite")}
        ),
        capabilities=Capabilities(Guarantee.EFFECTIVELY_ONCE, buffers=False),
        clean_up=shutil.rmtree,
        settings=FEW,
    )


class Sqs:
    """The one call that the queue's task makes; it may fail, or its answer be lost, like a real one."""

    def __init__(self, faults: FaultPlan) -> None:
        self.faults = faults
        self.messages: list[dict[str, Any]] = []

    def send_message_batch(self, **request: Any) -> dict[str, Any]:
        if len({entry["Id"] for entry in request["Entries"]}) < len(request["Entries"]):
            message = "BatchEntryIdsNotDistinct"
            raise ValueError(message)
        sent = [json.loads(entry["MessageBody"]) for entry in request["Entries"]]
        self.faults.run("destination", lambda: self.messages.extend(sent))
        return {}

    def close(self) -> None:
        pass


class QueueTask(queue_sink.QueueTask):
    def __init__(self, sqs: Sqs) -> None:
        self.given = sqs

    def start(self, config: queue_sink.QueueConfig) -> None:
        self.config, self.sqs = config, self.given


def test_the_queue_sink_loses_nothing() -> None:
    """A record may be sent twice, never not at all; what was put is durable, and every commit takes it."""
    keys = {"queue.prefix": "q", "queue.url": "u", "value.converter": "json"}
    check_sink(
        QueueTask,
        read_back=lambda sqs: [(sent["topic"], sent["partition"], sent["offset"]) for sent in sqs.messages],
        destination=Sqs,
        config=queue_sink.QueueConfig.parse({"name": "test", "topics": "records", **keys}),
        capabilities=Capabilities(Guarantee.AT_LEAST_ONCE, buffers=False),
        settings=FEW,
    )
