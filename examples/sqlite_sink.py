"""Writes records as rows of an SQLite table, with their coordinates as its key: a retry changes nothing."""

import sqlite3
from pathlib import Path

from pydantic import Field

from sinksdk import ConnectorConfig, SinkConnector, SinkRecords, SinkTask

TABLE = """
CREATE TABLE IF NOT EXISTS records (
    topic TEXT, partition INTEGER, offset INTEGER, value BLOB, PRIMARY KEY (topic, partition, offset)
)
"""


class SqliteConfig(ConnectorConfig):
    database: Path = Field(description="The file; it is made where it is not there.")


class SqliteTask(SinkTask):
    def start(self, config: SqliteConfig) -> None:
        self.connection = sqlite3.connect(config.database)
        self.connection.execute(TABLE)

    def put(self, records: SinkRecords) -> None:
        rows = [(record.topic, record.partition, record.offset, record.value) for record in records]
        with self.connection:  # one transaction: all of a batch, or nothing
            self.connection.executemany("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)", rows)

    def stop(self) -> None:
        self.connection.close()


class SqliteSink(SinkConnector):
    config_class, task_class = SqliteConfig, SqliteTask
