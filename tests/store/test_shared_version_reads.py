"""Versions that many threads poll are read together."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest
import sqlalchemy as sa

from sinksdk.errors import ConnectException
from sinksdk.store import open_store
from sinksdk.store.sql import AGE, Glances
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


def test_keys_are_read_together() -> None:
    read, clock = Read(), ManualClock()
    glances = Glances(read, clock.now)
    for key in ("a", "b", "c"):
        glances.version(key)
    del read.requests[:]
    for _ in range(10):
        clock.advance(AGE)
        assert [glances.version(key) for key in ("a", "b", "c")] == ["a1", "b1", None]
    assert read.requests == [{"a", "b", "c"}] * 10


def test_a_version_is_no_older_than_it_may_be() -> None:
    # A new key is read at once.
    read, clock = Read(), ManualClock()
    glances = Glances(read, clock.now)
    glances.version("a")
    read.versions |= {"a": "a2", "b": "b2"}
    assert glances.version("b") == "b2"
    read.versions |= {"a": "a3"}
    clock.advance(AGE)
    assert glances.version("a") == "a3"


def test_keys_that_nobody_asks_for_are_forgotten() -> None:
    read, clock = Read(), ManualClock()
    glances = Glances(read, clock.now)
    glances.version("a")
    for _ in range(100):
        clock.advance(1.0)
        glances.version("b")
    assert read.requests[-1] == {"b"}


def test_a_read_that_takes_long_holds_nobody_up() -> None:
    # Each thread waits only for its own request during an outage.
    read, clock = Read(), ManualClock()
    glances = Glances(read, clock.now)
    found = []

    def another_thread() -> None:
        read.meanwhile = lambda: None
        found.append(glances.version("b"))

    read.meanwhile = another_thread
    glances.version("a")
    assert found == ["b1"]


def test_a_read_that_fails_is_made_again() -> None:
    read, clock = Read(), ManualClock()
    glances = Glances(read, clock.now)

    def fail() -> None:
        read.meanwhile = lambda: None
        message = "no answer"
        raise ConnectException(message)

    read.meanwhile = fail
    with pytest.raises(ConnectException, match="no answer"):
        glances.version("a")
    assert glances.version("a") == "a1"


def test_a_stores_looks_are_few_requests(tmp_path: Path) -> None:
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
