"""Runs one generation to its end, and watches for close requests and newer drivers."""

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
from sinksdk.worker.task_result import SourceTaskResult, TaskResult

log = logging.getLogger(__name__)

_JOB_POLL = 0.1  # seconds between checks whether the job has ended
_STORE_POLL = 1.0  # seconds between reads of a store with fast requests: progress, newer drivers
_GRACE = 2.0  # seconds beyond the tasks' own timeout until their job is cancelled
_CANCELLED = 30.0  # seconds for a cancelled job to end

# Reports of a generation's tasks so far, by number.
Rows = Mapping[int, TaskProgress]


Report = TypeVar("Report", bound=TaskResult | SourceTaskResult)
Report_co = TypeVar("Report_co", bound=TaskResult | SourceTaskResult, covariant=True)


class RunningTasks(Protocol[Report_co]):
    def wait(self, timeout: float) -> bool: ...

    def cancel(self) -> None: ...

    def results(self) -> Sequence[Report_co]: ...


class Launches(Protocol[Report_co]):
    def launch(self, plan: GenerationPlan) -> RunningTasks[Report_co]: ...


class NoTasks:
    """The job of a generation without tasks: it runs until a close is requested."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_closed = False

    def launch(self, _: GenerationPlan) -> Self:
        return self

    def close(self) -> None:
        self._is_closed = True

    def wait(self, timeout: float) -> bool:
        if not self._is_closed:
            self._clock.sleep(timeout)
        return self._is_closed

    def cancel(self) -> None:
        self._is_closed = True

    def results(self) -> Sequence[Any]:
        return ()


class Ended(NamedTuple, Generic[Report]):
    reports: Sequence[Report]
    rows: Rows
    measures: Mapping[int, TaskMeasures]
    failure: Failure | None
    # The unavailable system that failed the job: then no task has failed.
    away: RetriableException | None
    # The stacks of tasks whose author's code does not return.
    hung: Mapping[int, Failure]
    # Failures of a transform at a record, which have failed the job.
    broken: Mapping[TopicPartition, Failure]
    is_cancelled: bool
    began: float
    # Time from the close request until the end.
    closing_seconds: float | None


class Supervisor:
    """Runs one generation; calls ``reason_to_close`` about every second, which must not block."""

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
        self._outage = Outage(log, f"supervising the generation of connector {session.name}")
        # A store with paid requests is read less often.
        self._interval = max(_STORE_POLL, session.store.closing_poll / 2)

    def run(
        self,
        launcher: Launches[Report],
        plan: GenerationPlan,
        is_to_replan: Callable[[], bool] = lambda: False,
    ) -> Ended[Report] | None:
        """Launch the job, and wait for its end; None: it could not be launched, and must be planned again."""
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
            self._cancel(running)  # nothing supervises the job any more
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
                # The status has its trace, too.
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
        cancel_at: float | None = None
        next_check = next_closing = 0.0
        while not running.wait(_JOB_POLL):
            now = self._session.clock.now()
            if now >= next_check:
                next_check = now + self._interval
                self._patiently(plan, lambda: self._check_generation(plan))
            must_close = self._session.signal.reason is not None or self._is_followed
            if must_close and self._asked is None and now >= next_closing:
                next_closing = now + self._interval
                self._patiently(plan, self._begin_closing)
                if self._asked is not None or self._session.signal.is_final:
                    # When the process ends, it does not wait for the store. Any other closing waits, because
                    # the tasks go on working until they read the request.
                    cancel_at = cancel_at or now + self._session.graceful + _GRACE
            if cancel_at is not None and now >= cancel_at:
                log.error(
                    "connector %s, generation %d did not close within %g s; its job is cancelled, and "
                    "uncommitted records are read again",
                    self._session.name,
                    plan.generation,
                    self._session.graceful,
                )
                self._cancel(running)
                return True
        return False

    def _patiently(self, plan: GenerationPlan, request: Callable[[], None]) -> None:
        try:
            request()
            self._outage.worked()
        except (StoreUnavailable, StoreRefused) as error:
            # Errors of the store do not end a generation.
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
            self._session.signal.request(reason, final=False)  # the driver decides what follows

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
        rows = task_progress(self._session.store, self._session.name, len(plan.tasks))
        found = {task: row for task, row in rows.items() if row.generation == plan.generation}
        for task, row in found.items():
            if row.hangs is not None and task not in self._hung:
                log.error("%s", row.hangs)
                self._hung[task] = Failure(ConnectException.__name__, row.hangs.splitlines()[0], row.hangs)
        return found


def suspects(error: TransformFailure, plan: GenerationPlan, rows: Rows) -> dict[TopicPartition, int]:
    """Return partitions that may have the failing record and its first possible offset, likeliest first."""
    places: dict[TopicPartition, int] = {}
    for number, task in enumerate(plan.tasks):
        if error.task not in (None, number):
            continue
        row = rows.get(number)
        read = {part.partition: part.position for part in (row.partitions if row else ())}
        of_task: dict[TopicPartition, int] = {}
        for planned in task.ranges:
            position = read.get(planned.topic_partition, planned.start)
            # A task reads its ranges in turn: all ranges before the last one with an accepted record are
            # read. The task may already read the next one, because reports lack records that Spark has not
            # delivered yet.
            if position > planned.start:
                of_task.clear()
            if position < planned.end:
                of_task[planned.topic_partition] = position
        places |= of_task
    return places


def in_words(places: Mapping[TopicPartition, int]) -> str:
    return " of " + ", or of ".join(f"{partition} from offset {at} on" for partition, at in places.items())
