"""A store of version 62c36d0 is readable, row by row and as operators see it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sinksdk import TopicPartition, committed_offsets
from sinksdk.control.herder import Herder
from sinksdk.engine.clock import SystemWallClock
from sinksdk.model.base import Value
from sinksdk.store import Store, open_store, read_commits, table
from sinksdk.store.records import ConnectorRecord, GenerationPlan, StoreIdentity, TaskCountRecord, TaskRecord
from sinksdk.store.reports import ConnectorHistory, ConnectorStatus, ConnectorTotals, TaskProgress
from tests.helpers.older_store import CONNECTOR, in_s3, restore_store

COMMITTED = {0: 290, 1: 230, 2: 290, 3: 290, 4: 100}

KINDS: dict[str, type[Value]] = {
    "store": StoreIdentity,
    "config": ConnectorRecord,
    "tasks-count": TaskCountRecord,
    "status": ConnectorStatus,
    "tasks": TaskRecord,
    "progress": TaskProgress,
    "totals": ConnectorTotals,
    "history": ConnectorHistory,
    "generations": GenerationPlan,
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    restore_store(tmp_path / "store.sqlite")
    return tmp_path / "store.sqlite"


@pytest.fixture
def store(file: Path) -> Iterator[Store]:
    with closing(open_store(f"sqlite:///{file}")) as opened:
        yield opened


def kind(key: str) -> str:
    return key.removeprefix(f"connectors/{CONNECTOR}/").split("/")[0]


def holds(value: Any, older: Any) -> bool:
    if isinstance(older, dict):
        return isinstance(value, dict) and all(
            key in value and holds(value[key], kept) for key, kept in older.items()
        )
    if isinstance(older, list):
        return len(value) == len(older) and all(map(holds, value, older))
    return bool(value == older)


def test_every_value_is_read_and_written_without_loss(file: Path, store: Store) -> None:
    with closing(sqlite3.connect(file)) as database:
        rows = dict(database.execute("SELECT key, value FROM sinksdk_records"))
    assert {kind(key) for key in rows} == KINDS.keys()
    for key, body in rows.items():
        row = table.read(store, key, KINDS[kind(key)])
        assert row is not None
        older = json.loads(body)
        assert older.pop("nonce") == row.version
        assert older.pop("format") == row.value.format
        assert holds(row.value.as_json(), older), key


def test_commits_and_tokens_of_an_older_store_match_s3(file: Path, store: Store) -> None:
    # S3 still had all but one of these uploads; that one had been completed.
    merged = read_commits(store, CONNECTOR)
    unpublished = {p.partition: [t.id for t in e.publish] for p, e in merged.committed.items() if e.publish}
    stale = {p.partition: list(tokens) for p, tokens in merged.stale.items()}
    kept = in_s3()

    assert {
        p.partition: o.offset for p, o in committed_offsets(f"sqlite:///{file}", CONNECTOR).items()
    } == COMMITTED
    assert {number: len(ids) for number, ids in unpublished.items()} == {2: 2, 3: 2}
    assert {number: len(ids) for number, ids in stale.items()} == {0: 2, 1: 2}
    tokens = [*unpublished[2], *unpublished[3], *stale[0], *stale[1]]
    pending = {upload["id"] for upload in kept["uploads"]}
    (complete,) = set(tokens) - pending
    assert complete == unpublished[3][0]
    assert pending < set(tokens)
    with_data = [
        upload["key"]
        for upload in kept["uploads"]
        if upload["parts"] and upload["id"] in (*stale[0], *stale[1])
    ]
    assert [key.split("/")[-2] for key in with_data] == ["partition=0", "partition=1"]


class MuchLater(SystemWallClock):
    def time(self) -> float:
        return 2e9


def test_status_and_history_of_an_older_store_are_shown(store: Store) -> None:
    herder = Herder(store, MuchLater())
    info, history = herder.info(CONNECTOR), herder.history(CONNECTOR)

    assert herder.connectors() == [CONNECTOR]
    assert (info.generation, info.state, info.driver) == (10, "UNASSIGNED", "")
    assert {p.partition.partition: (p.committed, p.end) for p in info.partitions} == {
        number: (offset, 290) for number, offset in COMMITTED.items()
    }
    assert [p.partition.partition for p in info.partitions if p.error and "AccessDenied" in p.error] == [4]
    assert herder.offsets(CONNECTOR) == {
        TopicPartition("orders", number): offset for number, offset in COMMITTED.items()
    }
    # Two partitions were killed before they reported their last commits: 60 records each.
    assert sum(bucket.records for bucket in history.buckets) == sum(COMMITTED.values()) - 2 * 60
    assert [(failure.partition, failure.times) for failure in history.failures] == [(4, 6)]
