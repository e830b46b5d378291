"""A driver's configuration becomes the connector's, unless a newer driver has brought its own."""

from __future__ import annotations

import pytest

from sinksdk import FencedException
from sinksdk.control import registry
from sinksdk.control.herder import Herder
from tests.helpers.memory_store import MemoryStore

OLD, NEW = {"topics": "old"}, {"topics": "new"}


def test_the_newest_claim_sets_the_configuration(store: MemoryStore) -> None:
    first = registry.deploy(store, "c", OLD, 1)
    Herder(store).pause("c")
    same = registry.deploy(store, "c", OLD, 2)
    other = registry.deploy(store, "c", NEW, 3)

    assert [record.claimed for record in (first, same, other)] == [1, 2, 3]
    assert [record.version for record in (first, same, other)] == [1, 1, 2]
    assert same.target_state == "RUNNING"
    assert first.incarnation == other.incarnation


def test_a_driver_with_an_older_claim_does_not_change_the_configuration(store: MemoryStore) -> None:
    newest = registry.deploy(store, "c", NEW, 8)

    with pytest.raises(FencedException, match="a newer driver has taken over"):
        registry.deploy(store, "c", OLD, 7)
    assert registry.find(store, "c") == newest


def test_a_driver_with_an_older_claim_is_fenced_by_a_concurrent_deploy(store: MemoryStore) -> None:
    # If a newer driver writes between the older driver's read and write, the older driver reads again.
    class Late(MemoryStore):
        is_late = False

        def _write(self, key: str, stored: object, if_version: str | None) -> bool:
            if self.is_late:
                self.is_late = False
                registry.deploy(self, "c", NEW, 8)
            return super()._write(key, stored, if_version)  # type: ignore[arg-type] # as it came

    late = Late()
    registry.register(late, "c", OLD)
    late.is_late = True

    with pytest.raises(FencedException):
        registry.deploy(late, "c", OLD, 7)
    assert registry.find(late, "c").config == NEW
