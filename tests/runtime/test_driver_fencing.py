from __future__ import annotations

from collections.abc import Callable

import pytest

from sinksdk import FencedException
from sinksdk.control.status import StatusKeeper
from sinksdk.engine.clock import SystemWallClock
from sinksdk.model.plan import RangePlan
from sinksdk.store import newest_plan, table
from sinksdk.store.base import Lost, Store, Stored
from sinksdk.store.generations import Generations, Tenure
from sinksdk.store.keys import task_count_key
from sinksdk.store.records import ClaimedBy, TaskCountRecord, TaskPlan
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sinks import P0, InProcess, Task
from tests.runtime.test_worker_connector import RAW, Scene, soon


class CutOff(MemoryStore):
    def __init__(self, there: MemoryStore) -> None:
        super().__init__(patience=0.05, pause=0.001)
        self._lock, self._records = there._lock, there._records
        self.is_cut_off = False

    def _read(self, key: str) -> Stored | None:
        self._expect_connected()
        return super()._read(key)

    def _write(self, key: str, stored: Stored, if_version: str | None) -> bool:
        self._expect_connected()
        return super()._write(key, stored, if_version)

    def snapshot(self, prefix: str) -> Store:
        self._expect_connected()
        return super().snapshot(prefix)

    def _expect_connected(self) -> None:
        if self.is_cut_off:
            message = "the network is unreachable"
            raise Lost(message)


class Outage(Scene):
    def __init__(self) -> None:
        super().__init__()
        self.elsewhere = MemoryStore()
        self.elsewhere._lock, self.elsewhere._records = self.store._lock, self.store._records
        self.store = self.connection = CutOff(self.elsewhere)
        self.launcher = InProcess(self.store, Task)
        self.herder.create("c", RAW)

    def replace(self) -> Generations:
        other = Generations(self.elsewhere, "c", "elsewhere:7#1")
        claim = other.claim()
        StatusKeeper(self.elsewhere, "c", "elsewhere:7#1", SystemWallClock()).become("RUNNING")
        ranges = (RangePlan.of(P0, 10, end=20),)
        other.plan(claim, [TaskPlan(ranges=ranges)], 1)
        return other

    def attempts_end(self) -> None:
        soon(lambda: self.outside.calls[-1].startswith("stop"), "the session did not end")


@pytest.mark.parametrize("brings_config", [False, True], ids=["server", "run"])
def test_a_driver_replaced_while_its_store_was_unavailable_is_fenced(*, brings_config: bool) -> None:
    scene = Outage()
    with scene.running(brings_config=brings_config, stays=not brings_config, backoff=0.01) as thread:
        soon(lambda: scene.committed() == 10, "nothing was read")
        scene.connection.is_cut_off = True
        scene.attempts_end()
        other = scene.replace()
        scene.connection.is_cut_off = False
        soon(lambda: not thread.is_alive(), "it goes on")
        assert isinstance(scene.error, FencedException)
        assert other.is_newest()
        _, plan = newest_plan(scene.elsewhere, "c")
        assert plan is not None
        assert plan.closing is None


def test_a_driver_that_was_not_replaced_continues_after_an_outage_of_the_store() -> None:
    scene = Outage()
    with scene.running(backoff=0.01):
        soon(lambda: scene.committed() == 10, "nothing was read")
        scene.connection.is_cut_off = True
        scene.attempts_end()
        scene.source.ends[P0] = 20
        scene.connection.is_cut_off = False
        soon(lambda: scene.committed() == 20, "it did not go on")
    assert scene.error is None


def test_offsets_altered_while_the_store_was_unavailable_replace_no_driver() -> None:
    scene = Outage()
    with scene.running(backoff=0.01):
        soon(lambda: scene.committed() == 10, "nothing was read")
        scene.connection.is_cut_off = True
        scene.attempts_end()
        claims = Generations(scene.elsewhere, "c")
        claims.alter(claims.claim(), {P0: 4}, 1, RAW)
        scene.connection.is_cut_off = False
        soon(lambda: len(scene.launcher.plans) > 1, "it did not go on")
    assert scene.error is None
    assert [task.ranges[0].start for plan in scene.launcher.plans for task in plan.tasks][-1] == 4


CLAIMS: dict[str, tuple[TaskCountRecord | None, str, bool]] = {
    "none": (None, "other", False),
    "its own": (TaskCountRecord(claimed=3), "other", False),
    "another driver's": (
        TaskCountRecord(claimed=4, claimed_by=ClaimedBy(generation=4, driver="x")),
        "",
        True,
    ),
    "its own, response lost": (
        TaskCountRecord(claimed=4, claimed_by=ClaimedBy(generation=4, driver="mine")),
        "other",
        False,
    ),
    "an older version's": (TaskCountRecord(claimed=4), "other", True),
    "an older version's after its own": (
        TaskCountRecord(claimed=4, claimed_by=ClaimedBy(generation=3, driver="mine")),
        "other",
        True,
    ),
    "an operator's": (TaskCountRecord(claimed=4), "mine", False),
    "an operator's, without a status": (TaskCountRecord(claimed=4), "", False),
}


@pytest.mark.parametrize(("count", "status", "expected"), CLAIMS.values(), ids=CLAIMS)
def test_a_tenure_is_over_once_another_driver_claims(
    count: TaskCountRecord | None, status: str, *, expected: bool
) -> None:
    tenure = Tenure()
    tenure.claimed, tenure.drivers = 3, {"mine"}
    read: Callable[[], str] = lambda: status  # noqa: E731 - shorter
    assert tenure.is_over(count, read) is expected
    assert not Tenure().is_over(count, read)


def test_a_claim_names_its_driver_until_the_next_claim() -> None:
    store = MemoryStore()
    driver = Generations(store, "c", "d")
    driver.plan(driver.claim(), (), 1)
    row = table.read(store, task_count_key("c"), TaskCountRecord)
    assert row is not None
    assert (row.value.claimed, row.value.driver) == (1, "d")
    Generations(store, "c").claim()
    row = table.read(store, task_count_key("c"), TaskCountRecord)
    assert row is not None
    assert (row.value.claimed, row.value.driver) == (2, None)
