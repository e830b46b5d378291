"""Watches over one running generation: progress, closing, and the end one way or another."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from sinksdk.context import ClosingReason
from sinksdk.engine import PartitionOutcome
from sinksdk.engine.outcome import Failure
from sinksdk.errors import ConnectException, FencedException
from sinksdk.logs import Outage
from sinksdk.measures import TaskMeasures
from sinksdk.runtime.clock import WallClock
from sinksdk.runtime.generation import Generations
from sinksdk.runtime.totals import task_progress
from sinksdk.runtime.trail import closing_trail
from sinksdk.store import Store, StoreRefused, StoreUnavailable
from sinksdk.store.records import (
    Closing,
    GenerationPlan,
    PartitionProgress,
    PlannedRange,
    TaskProgress,
)

log = logging.getLogger(__name__)

_LOOK = 0.1  # seconds between looks whether the job has ended
_ASK = 1.0  # seconds between looks into a near store: progress, newer drivers
_GRACE = 2.0  # seconds beyond the tasks' own time-out until their job is cancelled
_CANCELLED = 30.0  # seconds a cancelled job may take to end


class Result(Protocol):
    """What one task reported."""

    @property
    def task(self) -> int:
        """Its number."""
        ...

    @property
    def outcomes(self) -> Sequence[PartitionOutcome]:
        """What became of its partitions."""
        ...

    @property
    def measures(self) -> TaskMeasures:
        """What it has measured."""
        ...


class RunningGeneration(Protocol):
    """A generation's job."""

    def wait(self, timeout: float) -> bool:
        """Wait at most so many seconds; whether it has ended."""
        ...

    def results(self) -> Sequence[Result]:
        """What its tasks reported. Raises ConnectException when the job itself failed."""
        ...

    def cancel(self) -> None:
        """End it at once; nothing is cleaned up."""
        ...


class ClosingSignal:
    """Asks the driver, from any thread or signal handler, to close what runs."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._reason: ClosingReason | None = None
        self._is_final = False

    def ask(self, reason: ClosingReason, *, final: bool = True) -> None:
        """Close; with ``final`` the driver ends, otherwise the next generation follows."""
        self._reason = reason
        self._is_final = self._is_final or final
        self._asked.set()

    @property
    def reason(self) -> ClosingReason | None:
        """Why, once it was asked."""
        return self._reason if self._asked.is_set() else None

    @property
    def is_final(self) -> bool:
        """Whether the driver shall end."""
        return self._is_final

    def wait(self, timeout: float) -> bool:
        """Wait until it is asked, at most so many seconds."""
        return self._asked.wait(timeout)

    def answered(self) -> None:
        """The generation has closed; a rebalance is over, an end stays asked for."""
        if not self._is_final:
            self._asked.clear()


class Supervisor:
    """Runs one generation to its end.

    Args:
        store: where its tasks write their progress.
        connector: the connector's name.
        generations: the driver's hold on it.
        signal: asks to close.
        graceful: seconds the tasks have for closing.
        is_hopeless: whether a partition's failure ends the connector; then the others close.
        must_close: why the generation shall close, other than for its own tasks' failures: an operator
            wants it, a topic is gone. Asked every second or so; must not block.
        on_progress: told of all tasks' positions.
        on_closing: told that the tasks were asked to close.
        clock: time.
    """

    def __init__(
        self,
        store: Store,
        connector: str,
        generations: Generations,
        signal: ClosingSignal,
        *,
        graceful: float,
        is_hopeless: Callable[[PartitionProgress], bool],
        must_close: Callable[[], ClosingReason | None] = lambda: None,
        on_progress: Callable[[Sequence[PartitionProgress]], None],
        on_closing: Callable[[ClosingReason], None],
        clock: WallClock,
    ) -> None:
        self._store = store
        self._connector = connector
        self._generations = generations
        self._signal = signal
        self._graceful = graceful
        self._is_hopeless = is_hopeless
        self._must_close = must_close
        self._on_progress = on_progress
        self._on_closing = on_closing
        self._clock = clock
        self.measures: Mapping[int, TaskMeasures] = {}
        """What the tasks have measured, by their numbers, once the generation has ended."""
        self._is_followed = False
        self._hung: dict[int, Failure] = {}
        self._asked: float | None = None
        self._outage = Outage(log)
        self._ask = max(
            _ASK, store.closing_poll / 2
        )  # a store that is paid by the request is asked less often

    def run(self, running: RunningGeneration, plan: GenerationPlan) -> list[PartitionOutcome]:
        """Wait for the end.

        Returns:
            What became of every planned partition. Those of a task that reported nothing, because it
            was cancelled or the job failed, failed with that cause (cancelled: without one).

        Raises:
            FencedException: a newer driver exists; the job was cancelled.
        """
        try:
            is_cancelled = self._watch(running, plan)
        except BaseException:
            self._cancel(running)  # nobody watches it any more
            raise
        try:
            results, failure = running.results(), None
        except ConnectException as error:
            if not is_cancelled:
                log.warning("generation %d: %s", plan.generation, error, exc_info=True)
            results, failure = [], None if is_cancelled else Failure.of(error, shared=True)
        outcomes = [outcome for result in results for outcome in result.outcomes]
        tasks = self._tasks(plan)
        progress = _partitions(tasks.values())
        self._on_progress(progress)
        self.measures = {task: row.measures for task, row in tasks.items()}
        self.measures |= {result.task: result.measures for result in results if result.outcomes}
        if self._asked is not None:
            took = closing_trail(self._clock.now() - self._asked, self.measures)
            log.info("generation %d: closing took %s", plan.generation, took)
        known = {row.topic_partition: row for row in progress}
        reported = {outcome.partition for outcome in outcomes}
        return outcomes + [
            _unheard(planned, known.get(planned.topic_partition), self._hung.get(task, failure))
            for task, share in enumerate(plan.tasks)
            for planned in share.ranges
            if planned.topic_partition not in reported
        ]

    def _watch(self, running: RunningGeneration, plan: GenerationPlan) -> bool:
        """Whether the job had to be cancelled."""
        cancel_at: float | None = None
        next_ask = 0.0
        while not running.wait(_LOOK):
            now = self._clock.now()
            if now >= next_ask:
                next_ask = now + self._ask
                self._look_patiently(plan)
            if cancel_at is None and (self._signal.reason is not None or self._is_followed):
                self._asked = now
                self._ask_to_close(self._signal.reason or ClosingReason.REBALANCE)
                cancel_at = now + self._graceful + _GRACE
            if cancel_at is not None and now >= cancel_at:
                log.error(
                    "connector %s, generation %d did not close within %g s; its job is cancelled, what was "
                    "not committed is read again",
                    self._connector,
                    plan.generation,
                    self._graceful,
                )
                self._cancel(running)
                return True
        return False

    def _look_patiently(self, plan: GenerationPlan) -> None:
        """A store that gives no answer, or refuses, ends no generation: its tasks decide for themselves."""
        try:
            self._look(plan)
            self._outage.worked()
        except (StoreUnavailable, StoreRefused) as error:
            self._outage.failed("generation %d: %s; looking again", plan.generation, error)

    def _look(self, plan: GenerationPlan) -> None:
        if not self._generations.is_newest():
            raise FencedException(
                f"connector {self._connector}: a newer driver took over while generation "
                f"{plan.generation} ran"
            )
        if not self._is_followed and (successor := self._generations.successor()) is not None:
            log.warning(
                "connector %s: driver %s takes over; generation %d closes, then this driver ends",
                self._connector,
                successor,
                plan.generation,
            )
            self._is_followed = True
        progress = _partitions(self._tasks(plan).values())
        self._on_progress(progress)
        reason = self._must_close()
        if reason is None and (self._hung or any(map(self._is_hopeless, progress))):
            reason = ClosingReason.FAILURE
        if self._signal.reason is None and reason is not None:
            self._signal.ask(reason, final=False)  # the driver decides what comes after

    def _ask_to_close(self, reason: ClosingReason) -> None:
        self._generations.ask_to_close(
            Closing(reason=reason, timeout=self._graceful, asked=self._clock.time())
        )
        self._on_closing(reason)

    def _cancel(self, running: RunningGeneration) -> None:
        running.cancel()
        running.wait(_CANCELLED)

    def _tasks(self, plan: GenerationPlan) -> dict[int, TaskProgress]:
        """What the generation's tasks have reported so far."""
        rows = task_progress(self._store, self._connector, len(plan.tasks))
        found = {task: row for task, row in rows.items() if row.generation == plan.generation}
        for task, row in found.items():
            self._note_hang(task, row.hangs)
        return found

    def _note_hang(self, task: int, where: str | None) -> None:
        """A task whose author's code does not come back: no other task waits for it for ever."""
        if where is None or task in self._hung:
            return
        log.error("%s", where)
        self._hung[task] = Failure(ConnectException.__name__, where.splitlines()[0], where)


def _partitions(tasks: Iterable[TaskProgress]) -> list[PartitionProgress]:
    return [partition for task in tasks for partition in task.partitions]


def _unheard(
    planned: PlannedRange, known: PartitionProgress | None, failure: Failure | None
) -> PartitionOutcome:
    """Of a task that reported nothing; what it had committed and counted is known from its progress."""
    outcome = PartitionOutcome.unread(planned.topic_partition, planned.start, failure)
    return outcome if known is None else replace(outcome, committed=known.committed, counts=known.counts)
