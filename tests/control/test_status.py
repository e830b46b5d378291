"""A driver's records of its connector: a small heartbeat, and separate status records."""

from __future__ import annotations

from collections import Counter

import pytest

from sinksdk import TopicPartition
from sinksdk.control.status import StatusKeeper, fewer_sightings, read_status
from sinksdk.model.plan import PlannerState, Seen, Tail
from sinksdk.store import table
from sinksdk.store.base import Stored
from sinksdk.store.keys import remembered_key, status_key
from sinksdk.store.reports import ConnectorStatus, TaskStatus
from sinksdk.testing import ManualClock
from tests.helpers.memory_store import MemoryStore


class Measured(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.writes: Counter[str] = Counter()
        self.sizes: Counter[str] = Counter()

    def _write(self, key: str, stored: Stored, if_version: str | None) -> bool:
        self.writes[key] += 1
        self.sizes[key] += len(stored.body)
        return super()._write(key, stored, if_version)


class Site:
    def __init__(self) -> None:
        self.store = Measured()
        self.clock = ManualClock()
        self.keeper = self.driver()

    def driver(self) -> StatusKeeper:
        return StatusKeeper(self.store, "c", "here:1#1", self.clock)

    def live(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance(1)
            now = self.clock.time()
            self.keeper.update(
                p.model_copy(update={"seen": (*p.seen[-63:], Seen(end=int(now), at=now)), "end": int(now)})
                for p in list(self.keeper._partitions.values())
            )
            self.keeper.save_if_due()


@pytest.fixture
def site() -> Site:
    return Site()


def status(number: int, sightings: int = 1, **rest: object) -> PlannerState:
    seen = tuple(Seen(end=10**10 + at, at=1.7e9 + at) for at in range(sightings))
    return PlannerState(topic="orders", partition=number, seen=seen, end=10**10, **rest)


@pytest.mark.extended
@pytest.mark.slow
def test_size_of_a_heartbeat_does_not_depend_on_partition_states(site: Site) -> None:
    site.keeper.update(status(n, 64, error="x" * 200, trace="y" * 4_000) for n in range(10_000))
    site.keeper.become("RUNNING")
    assert site.store.sizes[status_key("c")] < 20_000
    assert site.store.sizes[remembered_key("c")] < 6_000_000


@pytest.mark.extended
@pytest.mark.slow
def test_large_partition_states_are_written_rarely(site: Site) -> None:
    site.keeper.update(status(n) for n in range(2_000))
    site.keeper.save()
    site.store.writes.clear()
    site.store.sizes.clear()
    site.live(120)
    assert site.store.writes[status_key("c")] == 40
    assert 1 <= site.store.writes[remembered_key("c")] <= 3
    assert site.store.sizes[remembered_key("c")] < 120 * 12_000


def test_unchanged_partition_states_are_not_written(site: Site) -> None:
    # An idle driver writes only heartbeats.
    site.keeper.update([status(1)])
    site.keeper.save()
    for _ in range(60):
        site.clock.advance(1)
        site.keeper.update([status(1)])
        site.keeper.save_if_due()
    assert site.store.writes == {status_key("c"): 21, remembered_key("c"): 1}


def test_the_next_driver_reads_partition_and_task_states(site: Site) -> None:
    remembered = status(1, tail=Tail(committed=3, end=9, records=5), failures=2, error="no", trace="trace")
    site.keeper.update([remembered])
    site.keeper.update_task(TaskStatus(task=1, failures=1))
    site.keeper.save()
    other = site.driver()
    assert other.of(TopicPartition("orders", 1)) == remembered
    assert other.of_task(1).failures == 1
    assert read_status(site.store, "c").partitions == (remembered,)


def test_partition_states_written_last_by_an_older_version_are_used(site: Site) -> None:
    site.keeper.update([status(1)])
    site.keeper.save()
    older = ConnectorStatus(state="RUNNING", partitions=(status(1, failures=3),))
    table.write(site.store, status_key("c"), older, site.store.version(status_key("c")))
    assert read_status(site.store, "c").partitions == older.partitions
    newer = site.driver()
    assert newer.of(TopicPartition("orders", 1)) == older.partitions[0]
    newer.save()
    assert read_status(site.store, "c").partitions == older.partitions, "it is remembered from now on"


def test_merged_sightings_are_due_earlier_never_later() -> None:
    # Each end must be covered by an entry that is at least as old.
    full = status(1, 64)
    few = fewer_sightings(full, 4)
    assert len(few.seen) <= 4
    for seen in full.seen:
        at = next(one.at for one in few.seen if one.end >= seen.end)
        assert at <= seen.at
    assert fewer_sightings(few, 4) == few
