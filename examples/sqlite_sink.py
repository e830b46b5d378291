"""Writes records as rows of an SQLite table, in place of rows of their offsets: a retry changes nothing."""

import sqlite3
from pathlib import Path

from pydantic import Field

from sinksdk import ConnectorConfig, SinkConnector, SinkRecords, SinkTask

TABLE = """
CREATE TABLE IF NOT EXISTS records (topic TEXT, partition INTEGER, offset INTEGER, value BLOB)
"""
DELETE = "DELETE FROM records WHERE topic = ? AND partition = ? AND offset >= ? AND offset < ?"
INDEX = "CREATE INDEX IF NOT EXISTS coordinates ON records (topic, partition, offset)"


class SqliteConfig(ConnectorConfig):
    database: Path = Field(description="The file; it is made where it is not there.")


class SqliteTask(SinkTask):
    def start(self, config: SqliteConfig) -> None:
        self.connection = sqlite3.connect(config.database)
        self.connection.execute(TABLE)
        self.connection.execute(INDEX)

    def put(self, records: SinkRecords) -> None:
        """Whole offsets, of which a transform may have made several records each."""
        replaced = (*records.partition, records.first_offset, records.next_offset)
        rows = [(record.topic, record.partition, record.offset, record.value) for record in records]
        with self.connection:  # one transaction: all of a batch, or nothing
            self.connection.execute(DELETE, replaced)
            self.connection.executemany("INSERT INTO records VALUES (?, ?, ?, ?)", rows)

    def stop(self) -> None:
        self.connection.close()


class SqliteSink(SinkConnector):
    config_class, task_class = SqliteConfig, SqliteTask
