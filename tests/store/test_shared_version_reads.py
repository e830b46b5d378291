"""Versions that many threads poll are read together."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest
import sqlalchemy as sa

from sinksdk.errors import ConnectException
from sinksdk.store import open_store
from sinksdk.store.sql import AGE, SharedVersions
from sinksdk.testing.faults import ManualClock


class Read:
    def __init__(self) -> None:
        self.versions = {"a": "a1", "b": "b1"}
        self.requests: list[set[str]] = []
        self.meanwhile = lambda: None

    def __call__(self, keys: Collection[str]) -> dict[str, str]:
        self.requests.append(set(keys))
        self.meanwhile()
        return {key: version for key, version in self.versions.items() if key in keys}


def test_versions_of_several_keys_are_read_in_one_request() -> None:
    read, clock = Read(), ManualClock()
    shared = SharedVersions(read, clock.now)
    for key in ("a", "b", "c"):
        shared.version(key)
    del read.requests[:]
    for _ in range(10):
        clock.advance(AGE)
        assert [shared.version(key) for key in ("a", "b", "c")] == ["a1", "b1", None]
    assert read.requests == [{"a", "b", "c"}] * 10


def test_a_shared_version_is_not_older_than_its_maximum_age() -> None:
    # A new key is read at once.
    read, clock = Read(), ManualClock()
    shared = SharedVersions(read, clock.now)
    shared.version("a")
    read.versions |= {"a": "a2", "b": "b2"}
    assert shared.version("b") == "b2"
    read.versions |= {"a": "a3"}
    clock.advance(AGE)
    assert shared.version("a") == "a3"


def test_keys_without_recent_requests_are_forgotten() -> None:
    read, clock = Read(), ManualClock()
    shared = SharedVersions(read, clock.now)
    shared.version("a")
    for _ in range(100):
        clock.advance(1.0)
        shared.version("b")
    assert read.requests[-1] == {"b"}


def test_a_slow_read_does_not_block_other_threads() -> None:
    # Each thread waits only for its own request during an outage.
    read, clock = Read(), ManualClock()
    shared = SharedVersions(read, clock.now)
    found = []

    def another_thread() -> None:
        read.meanwhile = lambda: None
        found.append(shared.version("b"))

    read.meanwhile = another_thread
    shared.version("a")
    assert found == ["b1"]


def test_a_failed_read_is_repeated() -> None:
    read, clock = Read(), ManualClock()
    shared = SharedVersions(read, clock.now)

    def fail() -> None:
        read.meanwhile = lambda: None
        message = "no answer"
        raise ConnectException(message)

    read.meanwhile = fail
    with pytest.raises(ConnectException, match="no answer"):
        shared.version("a")
    assert shared.version("a") == "a1"


def test_recent_versions_take_few_requests(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/state.db", create=True)
    versions = {f"k{at}": store.put(f"k{at}", {"x": at}, None) for at in range(50)}
    for key in versions:
        store.recent_version(key)
    statements: list[str] = []

    def count(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", count)
    try:
        for _ in range(2):
            assert {key: store.recent_version(key) for key in versions} == versions
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", count)
    assert len(statements) <= 4
