"""Exactly once under a crash at any point, shown on the real protocol, engine and archiver."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from property_tests.cluster import PROCESS_ENDS, Cluster, Crash, Task
from property_tests.exercised import EXERCISED
from sinksdk import ClosingReason, SinkRecord

CASES = 1_000 if os.environ.get("CI") else 200
KINDS = ("crash before", "crash after", "lost before", "lost after", "503")
REASONS = (ClosingReason.REBALANCE, ClosingReason.SHUTDOWN, ClosingReason.PAUSE)
happened = EXERCISED["the exactly-once machine"]


class ExactlyOnce(RuleBasedStateMachine):
    """Deliveries, commits, closes, crashes, restarts and faults, in any order."""

    @initialize(partitions=st.integers(1, 3), max_tasks=st.integers(1, 3))
    def start(self, partitions: int, max_tasks: int) -> None:
        self.cluster = Cluster(partitions, max_tasks)

    # -- the world -------------------------------------------------------------------------------

    @rule(data=st.data(), count=st.integers(1, 15), gap=st.sampled_from([0, 0, 0, 1, 5]))
    def produce(self, data: st.DataObject, count: int, gap: int) -> None:
        partition = data.draw(st.sampled_from(sorted(self.cluster.source)))
        first = self.cluster.ends[partition] + gap
        self.cluster.source[partition] += [
            SinkRecord(*partition, offset=offset, value=b"%030d" % offset)
            for offset in range(first, first + count)
        ]
        self.cluster.ends[partition] = first + count + (gap // 2)

    @rule(kind=st.sampled_from(KINDS), after=st.integers(0, 30))
    @precondition(lambda self: any(self.cluster.source.values()))
    def arm_store(self, kind: str, after: int) -> None:
        self.cluster.faults.arm("store", after, kind)

    @rule(kind=st.sampled_from(KINDS), after=st.integers(0, 8))
    @precondition(lambda self: any(self.cluster.source.values()))
    def arm_s3(self, kind: str, after: int) -> None:
        self.cluster.faults.arm("s3", after, kind)

    # -- the driver ------------------------------------------------------------------------------

    @rule(flush=st.booleans())
    @precondition(lambda self: self.cluster.plan is None)
    def begin(self, flush: bool) -> None:
        self.as_driver(lambda: self.cluster.begin(flush=flush))

    @rule(reason=st.sampled_from(REASONS))
    @precondition(lambda self: self.cluster.plan is not None)
    def close_all(self, reason: ClosingReason) -> None:
        happened["closing asked"] += 1
        if self.as_driver(lambda: self.cluster.ask_to_close(reason)):
            for number in list(self.cluster.tasks):
                self.as_task(number, lambda task: task.is_done or task.close(reason))

    @rule()
    @precondition(lambda self: self.running() and all(task.is_done for task in self.running()))
    def end_generation(self) -> None:
        happened["generation ended"] += 1
        self.cluster.end_generation()

    @rule(really=st.integers(0, 3))
    @precondition(lambda self: self.cluster.plan is not None)
    def kill_driver(self, really: int) -> None:
        if really == 0:
            happened["driver killed"] += 1
            self.cluster.start_driver()

    # -- tasks -----------------------------------------------------------------------------------

    @rule(count=st.integers(1, 8), times=st.integers(1, 12))
    @precondition(lambda self: any(self.cluster.source.values()))
    def work(self, count: int, times: int) -> None:
        """What happens when nothing special happens: a plan is made, tasks start and read."""
        if self.cluster.plan is None and not self.as_driver(lambda: self.cluster.begin(flush=times % 2 == 0)):
            return
        for number in range(len(self.cluster.plan.tasks) if self.cluster.plan else 0):
            if number not in self.cluster.tasks:
                happened["first attempt"] += 1
                self.guarded(number, lambda number=number: self.cluster.start_task(number))
            for _ in range(times):
                self.as_task(number, lambda task: task.is_done or task.step(count))

    @rule(data=st.data())
    @precondition(lambda self: self.cluster.plan is not None)
    def start_task(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.cluster.plan.tasks) - 1))
        if number in self.cluster.tasks and self.cluster.tasks[number].is_done:
            return  # Spark runs no task again that has ended well
        happened["second attempt" if number in self.cluster.tasks else "first attempt"] += 1
        self.guarded(number, lambda: self.cluster.start_task(number))

    @rule(data=st.data(), count=st.integers(1, 8), times=st.integers(1, 6))
    @precondition(lambda self: self.unfinished())
    def step(self, data: st.DataObject, count: int, times: int) -> None:
        number = data.draw(st.sampled_from(self.unfinished()))
        for _ in range(times):
            self.as_task(number, lambda task: task.is_done or task.step(count))

    @rule(data=st.data())
    @precondition(lambda self: self.unfinished())
    def commit(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(self.unfinished()))
        self.as_task(number, lambda task: task.commit())

    @rule(data=st.data())
    @precondition(lambda self: self.unfinished())
    def kill_task(self, data: st.DataObject) -> None:
        happened["task killed"] += 1
        del self.cluster.tasks[data.draw(st.sampled_from(self.unfinished()))]

    @rule(data=st.data(), count=st.integers(1, 8), what=st.sampled_from(["step", "commit", "close"]))
    @precondition(lambda self: self.cluster.zombies)
    def zombie(self, data: st.DataObject, count: int, what: str) -> None:
        task = data.draw(st.sampled_from(self.cluster.zombies))
        happened[f"zombie {what}"] += 1
        try:
            if what == "step":
                task.step(count)
            elif what == "commit":
                task.commit()
            else:
                task.close(ClosingReason.SHUTDOWN)
        except PROCESS_ENDS as end:
            self.note_end(end)
            if not isinstance(end, Crash):
                task.worker.lose()
            self.cluster.zombies.remove(task)
        else:
            if task.is_done:
                self.cluster.zombies.remove(task)
        self.cluster.check()

    # -- helpers ---------------------------------------------------------------------------------

    def running(self) -> list[Task]:
        return list(self.cluster.tasks.values())

    def unfinished(self) -> list[int]:
        return [number for number, task in self.cluster.tasks.items() if not task.is_done]

    def as_driver(self, step: Callable[[], object]) -> bool:
        try:
            step()
        except PROCESS_ENDS as end:
            self.note_end(end)
            happened["driver ended"] += 1
            self.cluster.start_driver()
            return False
        finally:
            self.cluster.check()
        return True

    def as_task(self, number: int, step: Callable[[Task], object]) -> None:
        task = self.cluster.tasks.get(number)
        if task is not None:
            self.guarded(number, lambda: step(task))

    def guarded(self, number: int, step: Callable[[], object]) -> None:
        """Whatever ends a task's process ends it alone; Spark may start another attempt."""
        try:
            step()
        except PROCESS_ENDS as end:
            self.note_end(end)
            task = self.cluster.tasks.pop(number, None)
            if task is not None and not isinstance(end, Crash):
                task.worker.lose()
        self.cluster.check()

    def note_end(self, end: BaseException) -> None:
        happened[type(end).__name__] += 1

    def teardown(self) -> None:
        if not hasattr(self, "cluster"):
            return
        zombies, self.cluster.zombies = self.cluster.zombies, []
        self.cluster.recover()
        for task in zombies:  # they wake up when everything is over
            try:
                task.step(5)
                task.close(ClosingReason.SHUTDOWN)
            except PROCESS_ENDS:
                happened["zombie woke up late"] += 1
        self.cluster.check_complete()
        happened["cases"] += 1
        happened["records archived"] += sum(map(len, self.cluster.source.values()))
        happened.update(self.cluster.faults.happened)


@pytest.mark.slow
def test_readers_see_each_record_once_whatever_crashes_wherever() -> None:
    """What can be read is within what is committed, each offset once; in the end it is everything."""
    logging.disable(logging.CRITICAL)
    try:
        run_state_machine_as_test(
            ExactlyOnce,
            settings=settings(
                max_examples=CASES,
                stateful_step_count=40,
                deadline=None,
                derandomize=bool(os.environ.get("CI")),
                suppress_health_check=list(HealthCheck),
                phases=[Phase.generate, Phase.shrink],
            ),
        )
    finally:
        logging.disable(logging.NOTSET)

    expected = {f"{where}: {kind}" for where in ("s3", "store") for kind in KINDS}
    assert not [what for what in expected if happened[what] < CASES // 50], "a fault hardly ever occurred"
    assert happened["cases"] >= CASES
