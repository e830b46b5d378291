from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from sinksdk import SinkRecord, TopicPartition
from tests.helpers.warm_jvm import warm_jvm
from tests.integration.archive_site import descendants, ended, wait_until
from tests.integration.run_site import RunSite
from tests.store.postgres_server import PostgresServer

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.slow]

PARTITIONS, RECORDS = 4, 6_000
TABLES = """
CREATE TABLE accounts (id TEXT PRIMARY KEY, partition INTEGER NOT NULL, balance BIGINT NOT NULL);
CREATE TABLE history (number BIGSERIAL, partition INTEGER, balance BIGINT);
"""
NOTE = """
CREATE OR REPLACE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO history (partition, balance) VALUES (new.partition, new.balance);
    PERFORM pg_sleep({pause});
    RETURN new;
END $$;
"""
TRIGGER = "CREATE TRIGGER noted AFTER INSERT OR UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION note()"


def record(partition: TopicPartition, offset: int) -> SinkRecord:
    # A record has one of fifty keys, and its offset as the balance; every tenth record is a tombstone.
    key = f"account-{partition.partition}-{offset * 7 % 50}".encode()
    value = json.dumps({"partition": partition.partition, "balance": offset}).encode()
    return SinkRecord(*partition, offset, key, None if offset % 10 == 9 else value)


class Site(RunSite):
    def __init__(self, folder: Path, server: PostgresServer) -> None:
        super().__init__(folder)
        schema = f"accounts_{uuid.uuid4().hex}"
        url = server.url(schema)  # the server creates the schema
        self.connection: psycopg.Connection = server.connect(schema)
        self.connection.execute(TABLES)
        self.slow_down(0.001)  # slow enough that processes are killed before everything is written
        self.connection.execute(TRIGGER)
        self.write("accounts", PARTITIONS, RECORDS, record)
        keys = {"connector.class": "examples.upsert_sink:UpsertSink", "topics": "accounts", "tasks.max": 2}
        keys |= {"key.converter": "string", "value.converter": "json", "max.poll.records": 50}
        keys |= {"database.url": url.replace("postgresql://", "postgresql+psycopg://")}
        keys |= {"table": "accounts", "key.columns": "id", "value.columns": "partition, balance"}
        self.configure({**keys, "poll.interval.ms": 100, "offset.flush.interval.ms": 1_000})

    def slow_down(self, pause: float) -> None:
        self.connection.execute(NOTE.format(pause=pause))

    def written(self) -> int:
        if self.connection.execute("SELECT to_regclass('sinksdk_watermarks')").fetchone() == (None,):
            return 0
        query = "SELECT coalesce(sum(next_offset), 0) FROM sinksdk_watermarks"
        return int((self.connection.execute(query).fetchone() or (0,))[0])

    def close(self) -> None:
        super().close()
        self.connection.close()


@pytest.fixture
def site(tmp_path: Path, postgres: PostgresServer) -> Iterator[Site]:
    made = Site(tmp_path, postgres)
    yield made
    made.close()


def test_the_table_is_the_topic_whatever_is_killed(site: Site) -> None:
    total = PARTITIONS * RECORDS
    driver = site.start()
    wait_until(lambda: site.written() > 2_000, driver, "some was written")
    workers = [pid for pid, command in descendants(driver.pid) if "pyspark.worker" in command]
    os.kill(max(workers), signal.SIGKILL)
    before = site.written()
    wait_until(lambda: site.written() > before + 3_000, driver, "another attempt wrote more")
    driver.kill()
    ended(driver)
    assert site.written() < total

    site.slow_down(0)
    code, output = ended(site.start(warm_jvm().environment()))

    assert code == 0, output
    assert site.written() == total
    for number in range(PARTITIONS):
        query = "SELECT balance FROM history WHERE partition = %s ORDER BY number"
        applied = [balance for (balance,) in site.connection.execute(query, (number,))]
        assert applied == [offset for offset in range(RECORDS) if offset % 10 != 9]
    expected = {}
    for number in range(PARTITIONS):
        for offset in range(RECORDS):
            item = record(TopicPartition("accounts", number), offset)
            expected[item.key.decode()] = None if item.value is None else offset
    rows = dict(site.connection.execute("SELECT id, balance FROM accounts").fetchall())
    assert rows == {key: balance for key, balance in expected.items() if balance is not None}
    assert 0 < len(rows) < len(expected)
