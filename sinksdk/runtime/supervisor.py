"""Runs one generation of a sink or a source to its end, and watches for close requests and newer drivers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from sinksdk.context import ClosingReason
from sinksdk.control.history import task_progress
from sinksdk.engine.clock import Clock
from sinksdk.errors import ConfigException, ConnectException, FencedException, RetriableException
from sinksdk.model.measures import TaskMeasures
from sinksdk.model.outcome import Failure, TransformFailure
from sinksdk.offsets import TopicPartition
from sinksdk.runtime.session import DriverSession
from sinksdk.store import StoreRefused, StoreUnavailable
from sinksdk.store.records import Closing, GenerationPlan
from sinksdk.store.reports import TaskProgress
from sinksdk.support.logs import Outage

log = logging.getLogger(__name__)

_LOOK = 0.1  # seconds between checks whether the job has ended
_ASK = 1.0  # seconds between reads of a store with fast requests: progress, newer drivers
_GRACE = 2.0  # seconds beyond the tasks' own time-out until their job is cancelled
_CANCELLED = 30.0  # seconds a cancelled job may take to end

Rows = Mapping[int, TaskProgress]
"""Reports of a generation's tasks so far, by number; without those that have not begun."""


class TaskReport(Protocol):
    """A task's report at its end."""

    @property
    def task(self) -> int:
        """Its number."""

    @property
    def attempt(self) -> int:
        """Which attempt it was; 0 if it had not begun."""

    @property
    def measures(self) -> TaskMeasures:
        """Its measurements."""


Report = TypeVar("Report", bound=TaskReport)
Report_co = TypeVar("Report_co", bound=TaskReport, covariant=True)


class RunningTasks(Protocol[Report_co]):
    """A generation's job."""

    def wait(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds; whether it has ended."""

    def cancel(self) -> None:
        """End it at once; nothing is cleaned up."""

    def results(self) -> Sequence[Report_co]:
        """Its tasks' reports. Raises ConnectException if the job itself failed."""


class Launches(Protocol[Report_co]):
    """Starts the jobs of a connector's generations."""

    def launch(self, plan: GenerationPlan) -> RunningTasks[Report_co]:
        """Start one; it runs on its own."""


class NoTasks:
    """The job of a generation without tasks: it runs until it is asked to close."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_closed = False

    def launch(self, _: GenerationPlan) -> Self:
        """See :class:`Launches`."""
        return self

    def close(self) -> None:
        """Its generation is asked to close."""
        self._is_closed = True

    def wait(self, timeout: float) -> bool:
        """See :class:`RunningTasks`."""
        if not self._is_closed:
            self._clock.sleep(timeout)
        return self._is_closed

    def cancel(self) -> None:
        """See :class:`RunningTasks`."""
        self._is_closed = True

    def results(self) -> Sequence[Any]:
        """See :class:`RunningTasks`: there are none."""
        return ()


class Ended(NamedTuple, Generic[Report]):
    """The result of an ended generation.

    Args:
        reports: of its tasks; empty if the job failed.
        failure: why the job failed, if it did and was not cancelled.
        away: the unavailable system that failed the job: then no task has failed.
        hung: the stack of each task whose author's code does not return.
        broken: by partition, the failure of a transform at one of its records, which has failed the job.
        began: when its job had been launched, on the clock.
        closing_seconds: from the request to close until the end; None if there was none.
    """

    reports: Sequence[Report]
    rows: Rows
    measures: Mapping[int, TaskMeasures]
    failure: Failure | None
    away: RetriableException | None
    hung: Mapping[int, Failure]
    broken: Mapping[TopicPartition, Failure]
    is_cancelled: bool
    began: float
    closing_seconds: float | None


class Supervisor:
    """Runs one generation to its end.

    Args:
        reason_to_close: returns the reason to close the generation, if any, from its tasks' reports. Called
            about every second; must not block.
        on_closing: called after the close request.
    """

    def __init__(
        self,
        session: DriverSession,
        reason_to_close: Callable[[Rows], ClosingReason | None],
        on_closing: Callable[[ClosingReason], None],
    ) -> None:
        self._session = session
        self._reason_to_close = reason_to_close
        self._on_closing = on_closing
        self._is_followed = False
        self._asked: float | None = None
        self._hung: dict[int, Failure] = {}
        self._outage = Outage(log, f"watching over the generation of connector {session.name}")
        # Less often on a store with paid requests.
        self._interval = max(_ASK, session.store.closing_poll / 2)

    def run(
        self,
        launcher: Launches[Report],
        plan: GenerationPlan,
        is_to_replan: Callable[[], bool] = lambda: False,
    ) -> Ended[Report] | None:
        """Launch the job, and wait for its end.

        Args:
            is_to_replan: whether a launch that has failed is no failure of the connector.

        Returns:
            None if the job could not be launched: it must be planned again.

        Raises:
            FencedException: a newer driver exists; the job was cancelled.
            ConfigException: the executors cannot run its tasks.
        """
        session = self._session
        try:
            running = launcher.launch(plan)
        except ConnectException as error:
            if not isinstance(error, RetriableException) and not is_to_replan():
                raise
            session.launch_failed(error)
            return None
        session.launched()
        began = session.clock.now()
        try:
            is_cancelled = self._watch(running, plan)
        except BaseException:
            self._cancel(running)  # it is no longer supervised
            raise
        reports: Sequence[Report] = ()
        failure: Failure | None = None
        broken: Mapping[TopicPartition, Failure] = {}
        away: RetriableException | None = None
        try:
            reports = running.results()
        except ConfigException:
            raise  # no retry can help
        except RetriableException as error:
            away = error
        except ConnectException as error:
            if not is_cancelled:
                if isinstance(error, TransformFailure) and (
                    places := suspects(error, plan, self._rows(plan))
                ):
                    error = error.at(in_words(places))
                    broken = {next(iter(places)): Failure.of(error, is_final=True)}
                # Its trace is Spark's and ours, and in the status, too.
                log.warning(
                    "generation %d: %s", plan.generation, error, exc_info=log.isEnabledFor(logging.DEBUG)
                )
                failure = Failure.of(error, shared=True)
        rows = self._rows(plan)
        measures = {task: row.measures for task, row in rows.items()}
        measures |= {report.task: report.measures for report in reports if report.attempt}
        took = None if self._asked is None else session.clock.now() - self._asked
        return Ended(reports, rows, measures, failure, away, self._hung, broken, is_cancelled, began, took)

    def _watch(self, running: RunningTasks[Report], plan: GenerationPlan) -> bool:
        """Wait for the end of the job; whether it had to be cancelled."""
        cancel_at: float | None = None
        next_ask = next_closing = 0.0
        while not running.wait(_LOOK):
            now = self._session.clock.now()
            if now >= next_ask:
                next_ask = now + self._interval
                self._patiently(plan, lambda: self._check_generation(plan))
            must_close = self._session.signal.reason is not None or self._is_followed
            if must_close and self._asked is None and now >= next_closing:
                next_closing = now + self._interval
                self._patiently(plan, self._begin_closing)
                if self._asked is not None or self._session.signal.is_final:
                    # The end of the process does not wait for the store. Any other closing does: the tasks
                    # have not seen the request, and their work is not lost.
                    cancel_at = cancel_at or now + self._session.graceful + _GRACE
            if cancel_at is not None and now >= cancel_at:
                log.error(
                    "connector %s, generation %d did not close within %g s; its job is cancelled, what was "
                    "not committed is read again",
                    self._session.name,
                    plan.generation,
                    self._session.graceful,
                )
                self._cancel(running)
                return True
        return False

    def _patiently(self, plan: GenerationPlan, ask: Callable[[], None]) -> None:
        """Ignore errors of the store: they do not end a generation."""
        try:
            ask()
            self._outage.worked()
        except (StoreUnavailable, StoreRefused) as error:
            self._outage.failed("generation %d: %s; retrying", plan.generation, error)

    def _check_generation(self, plan: GenerationPlan) -> None:
        if not self._session.generations.is_newest():
            raise FencedException(
                f"connector {self._session.name}: a newer driver took over while generation "
                f"{plan.generation} ran"
            )
        if not self._is_followed and (successor := self._session.generations.successor()) is not None:
            log.warning(
                "connector %s: driver %s takes over; generation %d closes, then this driver ends",
                self._session.name,
                successor,
                plan.generation,
            )
            self._is_followed = True
        reason = self._reason_to_close(self._rows(plan))
        if self._session.signal.reason is None and reason is not None:
            self._session.signal.ask(reason, final=False)  # the driver decides what comes after

    def _begin_closing(self) -> None:
        reason, now = self._session.signal.reason or ClosingReason.REBALANCE, self._session.clock.now()
        self._session.generations.close_running(
            Closing(reason=reason, timeout=self._session.graceful, asked=self._session.clock.time())
        )
        self._asked = now
        log.info("connector %s: its generation closes (%s)", self._session.name, reason)
        self._on_closing(reason)

    def _cancel(self, running: RunningTasks[Report]) -> None:
        running.cancel()
        running.wait(_CANCELLED)

    def _rows(self, plan: GenerationPlan) -> Rows:
        """The tasks' reports so far; logs the stack of a task that hangs."""
        rows = task_progress(self._session.store, self._session.name, len(plan.tasks))
        found = {task: row for task, row in rows.items() if row.generation == plan.generation}
        for task, row in found.items():
            if row.hangs is not None and task not in self._hung:
                log.error("%s", row.hangs)
                self._hung[task] = Failure(ConnectException.__name__, row.hangs.splitlines()[0], row.hangs)
        return found


def suspects(error: TransformFailure, plan: GenerationPlan, rows: Rows) -> dict[TopicPartition, int]:
    """Partitions that may have the record, each with the offset from which on it may be; the likeliest first.

    A task reads its ranges in turn: those before the last one with an accepted record are read. The next may
    have begun, since what is under way in Spark is in no report.
    """
    places: dict[TopicPartition, int] = {}
    for number, task in enumerate(plan.tasks):
        if error.task not in (None, number):
            continue
        row = rows.get(number)
        read = {part.partition: part.position for part in (row.partitions if row else ())}
        of_task: dict[TopicPartition, int] = {}
        for planned in task.ranges:
            position = read.get(planned.topic_partition, planned.start)
            if position > planned.start:
                of_task.clear()
            if position < planned.end:
                of_task[planned.topic_partition] = position
        places |= of_task
    return places


def in_words(places: Mapping[TopicPartition, int]) -> str:
    """Where the record is, in words that follow "a record"."""
    return " of " + ", or of ".join(f"{partition} from offset {at} on" for partition, at in places.items())
