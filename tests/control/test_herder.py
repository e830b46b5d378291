"""An operator's requests to a connector, as records in the store."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sinksdk import ConnectException, FencedException, OffsetAndMetadata, Token, TopicPartition
from sinksdk.control.deletion import Deletion
from sinksdk.control.herder import Herder
from sinksdk.control.offsets import ConnectorRunsException
from sinksdk.control.registry import (
    ConnectorDeletedException,
    ConnectorExistsException,
    ConnectorNotFoundException,
)
from sinksdk.model.plan import RangePlan
from sinksdk.store import read_commits, table, take_over
from sinksdk.store.generations import Claim, Generations
from sinksdk.store.keys import history_key, task_count_key
from sinksdk.store.ledger import TaskLedger
from sinksdk.store.records import TaskPlan
from sinksdk.store.reports import ConnectorHistory
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sinks import RAW

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def running_task(store: MemoryStore, name: str) -> TaskLedger:
    generations = Generations(store, name)
    ranges = tuple(RangePlan(topic="t", partition=p, start=0, end=100) for p in (0, 1))
    plan = generations.plan(generations.claim(), [TaskPlan(ranges=ranges)], 1)
    taken = take_over(store, name, plan.generation, 0)
    assert taken is not None
    return taken.ledger


def test_connectors_are_listed_by_name(herder: Herder) -> None:
    for name in ("orders", "a/b", "ünï", "a"):
        herder.create(name, {"topics": "t"})

    assert herder.connectors() == ["a", "a/b", "orders", "ünï"]


def test_a_name_is_created_once(herder: Herder) -> None:
    # Connect responds with 409.
    herder.create("c", {"topics": "t"})

    with pytest.raises(ConnectorExistsException, match="'c' already exists"):
        herder.create("c", {"topics": "other"})
    assert herder.connector("c").config == {"topics": "t"}


def test_a_connector_may_be_created_stopped(herder: Herder) -> None:
    # See KIP-980.
    assert herder.create("c", {}, "STOPPED").target_state == "STOPPED"


@pytest.mark.parametrize(
    "action", ["connector", "pause", "resume", "stop", "restart", "rebalance", "flush", "offsets"]
)
def test_requests_to_a_missing_connector_are_refused(herder: Herder, action: str) -> None:
    # As in Connect, pausing a paused connector changes nothing.
    with pytest.raises(ConnectorNotFoundException, match="no connector 'c'"):
        getattr(herder, action)("c")


def test_only_a_changed_configuration_has_a_new_version(herder: Herder) -> None:
    first = herder.configure("c", {"topics": "t", "tasks.max": 1, "flag": True})
    same = herder.configure("c", {"tasks.max": "1", "topics": "t", "flag": "true"})
    other = herder.configure("c", {"tasks.max": "2", "topics": "t", "flag": "true"})

    assert (first.version, same.version, other.version) == (1, 1, 2)
    assert first.incarnation == other.incarnation


def test_configuring_keeps_the_target_state(herder: Herder) -> None:
    # As in Connect: a paused connector stays paused.
    herder.create("c", {"topics": "t"})
    herder.pause("c")

    assert herder.configure("c", {"topics": "other"}).target_state == "PAUSED"
    assert [herder.stop("c").target_state, herder.resume("c").target_state] == ["STOPPED", "RUNNING"]


def test_restart_rebalance_and_flush_requests_are_counted(herder: Herder) -> None:
    # A driver compares the counter with its own: each request is applied once, and none is lost.
    herder.create("c", {"topics": "t"})
    herder.restart("c")
    herder.restart("c", only_failed=True)
    herder.rebalance("c")
    herder.rebalance("c")
    orders = herder.flush("c").orders

    assert (orders.restart, orders.restart_failed, orders.rebalance, orders.flush) == (1, 1, 2, 1)


def test_offsets_are_altered_only_while_stopped(herder: Herder) -> None:
    # KIP-875: Connect responds with 400.
    herder.create("c", RAW)
    for state in (herder.resume, herder.pause):
        state("c")
        with pytest.raises(ConnectorRunsException, match="'sinksdk stop c'"):
            herder.alter_offsets("c", {T0: 5})


def test_altered_offsets_are_committed(herder: Herder, store: MemoryStore) -> None:
    herder.create("c", RAW)
    running_task(store, "c").commit({T0: OffsetAndMetadata(10), T1: OffsetAndMetadata(20)})
    herder.stop("c")

    assert herder.alter_offsets("c", {T0: 5}) == {T0: 5, T1: 20}
    assert herder.alter_offsets("c", {T1: None}) == {T0: 5}
    assert Generations(store, "c").claim().committed.keys() == {T0}
    herder.reset_offsets("c")
    assert herder.offsets("c") == {}


def test_altering_offsets_fences_a_zombie(herder: Herder, store: MemoryStore) -> None:
    # A task that still runs unnoticed must not overwrite the operator's offsets.
    herder.create("c", RAW)
    zombie = running_task(store, "c")
    zombie.commit({T0: OffsetAndMetadata(10)})
    herder.stop("c")
    herder.alter_offsets("c", {T0: 3})

    with pytest.raises(FencedException):
        zombie.commit({T0: OffsetAndMetadata(20)})
    assert herder.offsets("c") == {T0: 3}


@pytest.mark.parametrize(
    ("state", "error"), [("deleted", ConnectorNotFoundException), ("resumed", ConnectorRunsException)]
)
def test_offsets_are_not_altered_if_the_connector_is_deleted_or_resumed_meanwhile(
    herder: Herder, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, state: str, error: type[Exception]
) -> None:
    # A new connector of this name would start at the altered offsets.
    claim = Generations.claim

    def late(generations: Generations) -> Claim:
        monkeypatch.setattr(Generations, "claim", claim)
        if state == "deleted":
            Herder(store).delete("c")
            Deletion(store, "c", Herder(store).connector("c")).remove()
        else:
            herder.resume("c")
        return claim(generations)

    herder.create("c", RAW, "STOPPED")
    monkeypatch.setattr(Generations, "claim", late)
    with pytest.raises(error):
        herder.alter_offsets("c", {T0: 5})
    herder.configure("c", RAW)
    assert herder.offsets("c") == {}


def test_an_unpublished_commit_is_not_altered(herder: Herder, store: MemoryStore) -> None:
    # Without their tokens, committed records would be lost: the connector must publish them before it is
    # deleted.
    herder.create("c", RAW)
    task = running_task(store, "c")
    task.prepare({T0: [Token("upload")]})
    task.commit({T0: OffsetAndMetadata(10, publish=[Token("upload")])})
    herder.stop("c")

    with pytest.raises(ConnectException, match="the commits of t-0 are not published yet; resume"):
        herder.alter_offsets("c", {T0: 0})
    assert herder.alter_offsets("c", {T1: 7}) == {T0: 10, T1: 7}


def test_a_deleted_connector_leaves_only_its_task_count(herder: Herder, store: MemoryStore) -> None:
    # After the deletion (KIP-883) the tasks stay fenced (KIP-618), and the name can be used again.
    before = herder.create("c", {"topics": "t"})
    zombie = running_task(store, "c")
    zombie.commit({T0: OffsetAndMetadata(10)})
    table.write(store, history_key("c"), ConnectorHistory(), None)
    Herder(store).delete("c")
    Deletion(store, "c", Herder(store).connector("c")).remove()

    assert store.list("connectors/c/") == [task_count_key("c")]
    with pytest.raises(FencedException):
        zombie.commit({T0: OffsetAndMetadata(20)})
    again = herder.create("c", {"topics": "t"})
    assert again.incarnation != before.incarnation
    assert read_commits(store, "c").committed == {}
    assert running_task(store, "c").committed(T0) is None


def test_requests_to_a_connector_being_deleted_are_refused(herder: Herder, store: MemoryStore) -> None:
    herder.create("c", {"topics": "t"})
    Herder(store).delete("c")

    for action in (herder.pause, herder.resume, herder.restart, lambda name: herder.create(name, {})):
        with pytest.raises(ConnectorDeletedException, match="'c' is being deleted"):
            action("c")


def test_deletion_resumes_after_a_crash(herder: Herder, store: MemoryStore) -> None:
    # The deletion crashes after each removal in turn; the next attempt completes it.

    class Crashing(MemoryStore):
        def __init__(self, after: int) -> None:
            super().__init__()
            self.left = after

        def _remove(self, key: str, if_version: str) -> bool:
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1
            return super()._remove(key, if_version)

    crashes = 0
    for after in range(10):
        crashing = Crashing(after)
        Herder(crashing).create("c", {"topics": "t"})
        running_task(crashing, "c").commit({T0: OffsetAndMetadata(10)})
        Herder(crashing).delete("c")
        try:
            Deletion(crashing, "c", Herder(crashing).connector("c")).remove()
        except KeyboardInterrupt:
            crashes += 1
            assert Herder(crashing).connectors() == ["c"], "the name is free though something is left"
            crashing.left = 100
            Deletion(crashing, "c", Herder(crashing).connector("c")).remove()
        assert crashing.list("connectors/") == [task_count_key("c")]
    assert 2 <= crashes < 10


def test_concurrent_configuration_changes_are_both_applied(herder: Herder, store: MemoryStore) -> None:
    # After a conflict, the function that derives the new configuration is called again.
    herder.create("c", {"topics": "t"})
    seen: list[Mapping[str, str] | None] = []

    def with_flag(before: Mapping[str, str] | None) -> dict[str, str]:
        seen.append(before)
        if len(seen) == 1:
            herder.configure("c", {"topics": "t", "other": "1"})
        return {**(before or {}), "flag": "1"}

    herder.configure("c", with_flag)
    assert herder.connector("c").config == {"topics": "t", "other": "1", "flag": "1"}
    assert seen == [{"topics": "t"}, {"topics": "t", "other": "1"}]
