"""Removed offsets: a partition without a commit starts as if nothing had ever been committed."""

from __future__ import annotations

from typing import Any

import pytest

from sinksdk import ConfigException, TopicPartition
from sinksdk.control.herder import Herder
from sinksdk.store import committed_offsets, table
from sinksdk.store.generations import Claim, Generations
from sinksdk.store.keys import plan_key
from sinksdk.store.records import GenerationPlan
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sinks import P0, P1, RAW, Source, driver
from tests.runtime.test_missing_topics import A, Topics
from tests.runtime.test_offset_group import Group


def run(store: MemoryStore, source: Any, group: Group | None = None, **settings: object) -> dict[str, int]:
    quick = {"missing.topic.grace.ms": 20, "offset.mirror": False}
    made, launcher, _ = driver(source, store=store, group=group, **{**quick, **settings})
    made.run(until_caught_up=True)
    read = [r for plan in launcher.plans for task in plan.tasks for r in task.ranges]
    return {str(r.topic_partition): r.start for r in reversed(read)}


def committed(store: MemoryStore) -> dict[TopicPartition, int]:
    return {p: at.offset for p, at in committed_offsets(store, "c").items()}


def reset(store: MemoryStore) -> None:
    Herder(store).stop("c")
    Herder(store).reset_offsets("c")


def test_auto_offset_reset_latest_applies_again_after_a_reset() -> None:
    # Regression: everything that the topic still had was read.
    store, source = MemoryStore(), Source({P0: 10})
    assert run(store, source, **{"auto.offset.reset": "latest"}) == {}
    reset(store)
    source.ends[P0] = 20

    assert run(store, source, **{"auto.offset.reset": "latest"}) == {}
    assert committed(store) == {P0: 20}


def test_auto_offset_reset_none_refuses_again_after_a_reset() -> None:
    # Regression: the connector began at the first record.
    store, source = MemoryStore(), Source({P0: 10, P1: 5})
    run(store, source)
    reset(store)

    with pytest.raises(
        ConfigException, match=r"t-0, t-1: nothing is committed, and auto.offset.reset is 'none'"
    ):
        run(store, source, **{"auto.offset.reset": "none"})
    assert committed(store) == {}


def test_auto_offset_reset_earliest_reads_all_records_again_after_a_reset() -> None:
    store, source = MemoryStore(), Source({P0: 10, P1: 0})
    run(store, source)
    reset(store)
    assert run(store, source) == {"t-0": 0}
    source.ends[P1] = 5

    assert run(store, source, **{"auto.offset.reset": "latest"}) == {"t-1": 0}


def test_removing_one_offset_restarts_only_its_partition() -> None:
    store, source = MemoryStore(), Source({P0: 10})
    run(store, source, **{"auto.offset.reset": "latest"})
    Herder(store).stop("c")
    Herder(store).alter_offsets("c", {P0: None})
    source.ends[P1] = 5

    assert run(store, source, **{"auto.offset.reset": "latest"}) == {"t-1": 0}
    assert committed(store) == {P0: 10, P1: 5}


def test_a_partition_removed_and_then_altered_starts_at_the_altered_offset() -> None:
    store, source = MemoryStore(), Source({P0: 10, P1: 10})
    run(store, source, **{"auto.offset.reset": "latest"})
    Herder(store).stop("c")
    Herder(store).alter_offsets("c", {P0: None, P1: None})
    Herder(store).alter_offsets("c", {P0: 4})

    assert run(store, source, **{"auto.offset.reset": "latest"}) == {"t-0": 4}
    assert committed(store) == {P0: 10, P1: 10}


def test_partitions_without_an_altered_offset_start_as_configured() -> None:
    # KIP-980. Regression: with auto.offset.reset=latest, these partitions were read from their first record.
    store, source = MemoryStore(), Source({P0: 10, P1: 10})
    Herder(store).create("c", RAW, "STOPPED")
    Herder(store).alter_offsets("c", {P0: 9})

    assert run(store, source, **{"auto.offset.reset": "latest"}) == {"t-0": 9}
    assert committed(store) == {P0: 10, P1: 10}


def test_partitions_without_an_altered_offset_start_at_the_consumer_group() -> None:
    # The operator has corrected one partition of a connector that replaces a Connect connector.
    store, source = MemoryStore(), Source({P0: 10, P1: 10})
    Herder(store).create("c", RAW, "STOPPED")
    Herder(store).alter_offsets("c", {P0: 9})

    assert run(store, source, Group({P0: 3, P1: 7}), **{"offset.source": "group"}) == {"t-0": 9, "t-1": 7}


def test_after_a_reset_the_consumer_group_is_not_used() -> None:
    # The group holds the mirrored commits; Connect deletes them in a reset, as they are the group's.
    store, source = MemoryStore(), Source({P0: 10})
    assert run(store, source, Group({P0: 3}), **{"offset.source": "group"}) == {"t-0": 3}
    reset(store)

    assert run(store, source, Group({P0: 10}), **{"offset.source": "group"}) == {"t-0": 0}


def test_a_recreated_topic_is_read_after_a_reset() -> None:
    # Regression: the id of the deleted topic outlived its offsets, so that the new topic was always refused.
    store, source = MemoryStore(), Topics(t=10)
    run(store, source)
    source.delete("t")
    source.create("t", 5)
    reset(store)

    assert run(store, source) == {"t-0": 0}
    assert committed(store) == {P0: 5}


def test_a_recreated_topic_is_read_after_all_its_offsets_are_altered() -> None:
    store, source = MemoryStore(), Topics(t=10)
    run(store, source)
    source.delete("t")
    source.create("t", 5)
    Herder(store).stop("c")
    Herder(store).alter_offsets("c", {P0: 2})

    assert run(store, source) == {"t-0": 2}


def test_a_topic_keeps_its_id_while_a_commit_remains() -> None:
    store = MemoryStore()
    generations = Generations(store, "c")
    Herder(store).create("c", RAW, "STOPPED")
    claim = generations.claim()
    generations.settle(claim, {P0: 5, P1: 5, A: 5}, 1, {}, topic_ids={"t": "t#0", "a": "a#0"})
    Herder(store).alter_offsets("c", {P0: None, A: None})

    assert Generations(store, "c").claim().topic_ids == {"t": "t#0"}


def test_topics_regex_forgets_a_topic_whose_offsets_are_removed() -> None:
    # Regression: after a topic was deleted for good, the connector failed at each start.
    store, source = MemoryStore(), Topics(a1=10, a2=10)
    regex = {"topics": "", "topics.regex": "a.*"}
    run(store, source, **regex)
    source.delete("a2")
    Herder(store).stop("c")
    Herder(store).alter_offsets("c", {TopicPartition("a2", 0): None})
    source.ends["a1"] = 15

    assert run(store, source, **regex) == {"a1-0": 10}


def test_a_plan_of_an_older_version_has_no_undecided_partitions() -> None:
    store, source = MemoryStore(), Source({P0: 10, P1: 0})
    run(store, source)
    generation = Generations(store, "c").claim().before
    assert generation is not None
    row = table.read(store, plan_key("c", generation.generation), GenerationPlan)
    assert row is not None
    older = {key: value for key, value in row.value.as_json().items() if key != "undecided"}
    store.put(plan_key("c", generation.generation), older, row.version)
    source.ends[P1] = 5

    assert run(store, source, **{"auto.offset.reset": "latest"}) == {"t-1": 0}


def test_a_reset_removes_commits_made_up_to_its_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    # Regression: partitions were listed first, so that commits made since then stayed.
    store = MemoryStore()
    Herder(store).create("c", RAW, "STOPPED")
    claim = Generations.claim

    def late(self: Generations) -> Claim:
        monkeypatch.setattr(Generations, "claim", claim)
        before = Generations(store, "c")
        before.settle(before.claim(), {P1: 7}, 1, {})
        return claim(self)

    monkeypatch.setattr(Generations, "claim", late)
    Herder(store).reset_offsets("c")

    assert committed(store) == {}
