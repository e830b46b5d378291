"""Tests of the example sinks with the kit, which searches for schedules that a sink does not survive."""

import json
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import sqlalchemy
from hypothesis import settings

from examples import exactly_once_folder_sink, folder_sink, queue_sink, upsert_sink, webhook_sink
from examples.webhook_receiver import Endpoint, Mishap
from sinksdk import ConnectorIdentity, RetriableException, SinkRecord, SinkRecords, Token, TopicPartition
from sinksdk.testing import Capabilities, FaultPlan, Guarantee, SinkOptions, check_sink, replay

FEW = settings(max_examples=40, stateful_step_count=15, derandomize=True, database=None, deadline=None)
"""Fewer cases than the default: files and databases are slower than memory."""


class Folder:
    """A new folder for each case, and its injected faults."""

    def __init__(self, faults: FaultPlan) -> None:
        self.faults = faults
        self.path = Path(mkdtemp())

    def remove(self) -> None:
        shutil.rmtree(self.path)


def lines_in(folder: Folder) -> Iterator[tuple[str, int, int]]:
    for path in sorted(folder.path.glob("*.jsonl")):
        topic, partition = path.name.partition("+")[0].rsplit("-", 1)
        for line in path.read_text().splitlines():
            yield topic, int(partition), json.loads(line)["offset"]


def folder_config(folder: Folder) -> folder_sink.FolderConfig:
    keys = {"folder": str(folder.path), "flush.size": "3", "value.converter": "json"}
    return folder_sink.FolderConfig.parse({"name": "test", "topics": "records", **keys})


FOLDER: SinkOptions = {"destination": Folder, "config": folder_config, "clean_up": Folder.remove}


class FolderTask(folder_sink.FolderTask):
    """A task whose writes fail as planned."""

    def __init__(self, folder: Folder) -> None:
        self.faults = folder.faults

    def write(self, partition: TopicPartition, records: list[SinkRecord]) -> None:
        write = super().write
        self.faults.run("destination", lambda: write(partition, records))


class ExactlyOnceFolderTask(exactly_once_folder_sink.FolderTask):
    """A task whose writes, publishes and discards fail as planned."""

    def __init__(self, folder: Folder) -> None:
        self.faults = folder.faults

    def write(self, file: exactly_once_folder_sink.HiddenFile, records: SinkRecords) -> int:
        write = super().write
        return self.faults.run("destination", lambda: write(file, records))

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        publish = super().publish
        self.faults.run("destination", lambda: publish(partition, tokens))

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        discard = super().discard
        self.faults.run("destination", lambda: discard(partition, tokens))


def test_the_folder_sink_loses_nothing() -> None:
    check_sink(FolderTask, read_back=lines_in, settings=FEW, **FOLDER)


def test_the_exactly_once_folder_sink_is_exactly_once() -> None:
    check_sink(
        ExactlyOnceFolderTask,
        read_back=lines_in,
        capabilities=Capabilities(Guarantee.EXACTLY_ONCE, ordered=True),
        leftovers=lambda folder: [path.name for path in folder.path.glob(".*") if path.stat().st_size],
        settings=FEW,
        **FOLDER,
    )


TABLES = """
CREATE TABLE records (
    id TEXT PRIMARY KEY, topic TEXT NOT NULL, partition INTEGER NOT NULL, "offset" INTEGER NOT NULL
);
CREATE TABLE history (number INTEGER PRIMARY KEY, topic TEXT, partition INTEGER, "offset" INTEGER);
CREATE TRIGGER inserted AFTER INSERT ON records
BEGIN INSERT INTO history VALUES (NULL, new.topic, new.partition, new."offset"); END;
CREATE TRIGGER updated AFTER UPDATE ON records
BEGIN INSERT INTO history VALUES (NULL, new.topic, new.partition, new."offset"); END;
"""


class Database:
    """A database in which each statement and each COMMIT may fail, or lose its response."""

    def __init__(self, faults: FaultPlan, url: str) -> None:
        self.url = url
        self.engine = sqlalchemy.create_engine(url)
        upsert_sink.WATERMARKS.create(self.engine)
        self.faulty = sqlalchemy.create_engine(url)
        commit = self.faulty.dialect.do_commit
        self.faulty.dialect.do_commit = lambda opened: faults.run("destination", lambda: commit(opened))
        event = "before_cursor_execute"
        sqlalchemy.event.listen(self.faulty, event, lambda *_: faults.run("destination", lambda: None))

    def history(self) -> list[tuple[Any, ...]]:
        """Return every change that the triggers recorded, also of rows replaced since."""
        query = sqlalchemy.text('SELECT topic, partition, "offset" FROM history ORDER BY number')
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(query)]

    def table(self) -> dict[str, Any]:
        """Return the row of each key."""
        query = sqlalchemy.text('SELECT id, topic, partition, "offset" FROM records')
        with self.engine.connect() as connection:
            return {key: tuple(row) for key, *row in connection.execute(query)}

    def close(self) -> None:
        self.engine.dispose()
        self.faulty.dispose()
        if self.engine.dialect.name == "sqlite":
            shutil.rmtree(Path(self.engine.url.database or "").parent)


def new_database(faults: FaultPlan) -> Database:
    path = Path(mkdtemp()) / "records.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(TABLES)
    return Database(faults, f"sqlite:///{path}")


class UpsertTask(upsert_sink.UpsertTask):
    def __init__(self, database: Database) -> None:
        self.database = database

    def start(self, config: upsert_sink.UpsertConfig) -> None:
        super().start(config)
        self.engine = self.database.faulty


def upsert_config(database: Database) -> upsert_sink.UpsertConfig:
    keys = {"name": "test", "topics": "records", "key.converter": "string", "value.converter": "json"}
    keys |= {"database.url": database.url, "table": "records"}
    return upsert_sink.UpsertConfig.parse(
        {**keys, "key.columns": "id", "value.columns": "topic, partition, offset"}
    )


def keyed_record(partition: TopicPartition, offset: int) -> SinkRecord:
    """Return a record with one of two keys, which all partitions share."""
    value = {"topic": partition.topic, "partition": partition.partition, "offset": offset}
    return SinkRecord(*partition, offset, f"key {offset % 2}".encode(), json.dumps(value).encode())


def deleting_record(partition: TopicPartition, offset: int) -> SinkRecord:
    """Return a record with one of two keys, some shared by partitions; each third record deletes its row."""
    record = keyed_record(partition, offset)
    key = f"key {offset % 2}{f' of {partition}' if offset % 4 > 1 else ''}".encode()
    return replace(record, key=key, value=None if offset % 3 == 1 else record.value)


def row(record: SinkRecord) -> tuple[Any, Any]:
    """Return the key and the columns that a record leaves in the table."""
    columns = tuple(json.loads(record.value).values()) if record.value else None
    return record.key.decode(), columns


def alter(database: Database, partition: TopicPartition, offset: int | None) -> None:
    """Move the watermark, as the connector does when an operator alters an offset."""
    connector = upsert_sink.UpsertSink()
    connector.identity = ConnectorIdentity("store", "test", "")
    connector.alter_offsets(upsert_config(database), {partition: offset})


ONCE = Capabilities(Guarantee.EFFECTIVELY_ONCE, buffers=False, dead_letters=True)
UPSERT: SinkOptions = {
    "destination": new_database,
    "config": upsert_config,
    "capabilities": ONCE,
    "poison": b'{"topic": "records", "partition": 0}',  # without an offset, which is NOT NULL
    "alter": alter,
    "clean_up": Database.close,
}


def test_the_last_record_of_a_key_is_its_row() -> None:
    check_sink(UpsertTask, read_back=Database.table, record=deleting_record, row=row, settings=FEW, **UPSERT)


HISTORY: SinkOptions = {
    **UPSERT,
    "record": keyed_record,
    "capabilities": replace(ONCE, ordered=True),
}


def test_the_upsert_sink_applies_each_record_once() -> None:
    """Also while tasks of other partitions upsert the same keys."""
    check_sink(UpsertTask, read_back=Database.history, settings=FEW, **HISTORY)


def test_a_lost_response_to_a_commit_applies_nothing_twice() -> None:
    """The COMMIT takes effect, but its response is lost. The kit found this schedule."""
    lost = ("fault", "destination", 6, "lost response")
    schedule = [lost, ("deliver", 0, 1), ("deliver", 0, 1)]
    replay(schedule, UpsertTask, read_back=Database.history, **HISTORY)


class Sqs:
    """The one call that the queue's task makes; it may fail, or lose its response."""

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
    keys = {"queue.prefix": "q", "queue.url": "u", "value.converter": "json"}
    check_sink(
        QueueTask,
        read_back=lambda sqs: [(sent["topic"], sent["partition"], sent["offset"]) for sent in sqs.messages],
        destination=Sqs,
        config=queue_sink.QueueConfig.parse({"name": "test", "topics": "records", **keys}),
        capabilities=Capabilities(Guarantee.AT_LEAST_ONCE, buffers=False),
        settings=FEW,
    )


class Connection:
    """A double of http.client's connection, to an endpoint in memory whose requests fail as planned."""

    def __init__(self, faults: FaultPlan) -> None:
        self.faults = faults
        self.endpoint = Endpoint()

    def request(self, *request: Any) -> None:
        _, _, body, headers = request
        try:
            answer = self.faults.run("destination", lambda: self.endpoint.answer(headers, body.decode()))
        except RetriableException as error:  # busy, or a gateway lost the response
            answer = Mishap(HTTPStatus.SERVICE_UNAVAILABLE), str(error)
        (self.status, *_), self.reason = answer

    def getresponse(self) -> "Connection":
        return self

    def read(self) -> bytes:
        return b""

    def close(self) -> None:
        pass

    def accepted(self) -> list[tuple[Any, ...]]:
        """Return each accepted record once, by its id."""
        return [coordinates(event) for event in self.endpoint.events.values()]


def coordinates(event: Mapping[str, Any]) -> tuple[Any, ...]:
    return event["topic"], event["partition"], event["offset"]


class WebhookTask(webhook_sink.WebhookTask):
    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def start(self, config: webhook_sink.WebhookConfig) -> None:
        super().start(config)
        self.endpoint: Any = self.connection


def webhook_config(records: int) -> webhook_sink.WebhookConfig:
    keys = {"name": "test", "topics": "records", "key.converter": "string", "value.converter": "json"}
    keys |= {"endpoint.url": "http://localhost", "batch.max.records": str(records)}
    return webhook_sink.WebhookConfig.parse(keys)


WEBHOOK: SinkOptions = {
    "destination": Connection,
    "config": webhook_config(records=2),
    "capabilities": Capabilities(Guarantee.EFFECTIVELY_ONCE, ordered=True, buffers=False, dead_letters=True),
    "poison": b'{"celsius": "warm"}',
}


def test_the_webhook_sink_is_effectively_once_with_an_endpoint_that_recognises_ids() -> None:
    check_sink(WebhookTask, read_back=Connection.accepted, settings=FEW, **WEBHOOK)
