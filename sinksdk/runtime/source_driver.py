"""Drives one source connector: its tasks run until they are asked to close, or one of them has failed."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from sinksdk.context import ClosingReason
from sinksdk.control.connector_calls import CallExecutor, ThreadExecutor
from sinksdk.control.history import HistoryKeeper, of_task
from sinksdk.control.progress import Silent, SourceListener, SourceTaskView
from sinksdk.control.requests import ClosingSignal, PendingRequests
from sinksdk.control.totals import TotalsKeeper
from sinksdk.engine.clock import SystemWallClock, WallClock
from sinksdk.engine.fencing import fence, fencing_round
from sinksdk.engine.source_outcome import End, SourceTaskOutcome
from sinksdk.engine.writer import Target
from sinksdk.errors import ConfigException, ConnectException, RetriableException
from sinksdk.logs import logging_about
from sinksdk.runtime.backoff import Backoff, Waits, random_jitter
from sinksdk.runtime.failures import TaskFailure, TaskFailures
from sinksdk.runtime.session import DriverSession
from sinksdk.runtime.source_supervisor import (
    Progress,
    RunningSourceGeneration,
    SourceSupervisor,
    source_progress,
)
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.source.connector import SourceConnector
from sinksdk.store import Store
from sinksdk.store.generations import Claim
from sinksdk.store.records import ConnectorRecord, GenerationPlan, TaskPlan

log = logging.getLogger(__name__)


class SourceLauncher(Protocol):
    """Starts a generation's job."""

    def launch(self, plan: GenerationPlan) -> RunningSourceGeneration:
        """Start it; it runs on its own."""
        ...


class SourceDriver:
    """Runs one source connector from its start to its end.

    Args:
        store: what must survive.
        connector: the connector; its ``start`` and ``stop`` are called here.
        config: its validated configuration.
        raw: the same as it was written.
        target: where its records go.
        launcher: starts generations.
        listener: watches.
        clock: time.
        signal: asks it to close.
        executors: make what runs the connector's own code.
        jitter: what each back-off is multiplied by.
        requests: what an operator wants of it.
        record: where the configuration comes from, if it is the store's own; None: it becomes the store's
            once the driver has claimed a generation.
        waits: told once what the connector needed for its start is there.
    """

    def __init__(
        self,
        *,
        store: Store,
        connector: SourceConnector,
        config: SourceConnectorConfig,
        raw: Mapping[str, Any],
        target: Target,
        launcher: SourceLauncher,
        listener: SourceListener | None = None,
        clock: WallClock | None = None,
        signal: ClosingSignal | None = None,
        executors: Callable[[], CallExecutor] = ThreadExecutor,
        jitter: Callable[[], float] = random_jitter,
        requests: PendingRequests | None = None,
        record: ConnectorRecord | None = None,
        waits: Waits | None = None,
    ) -> None:
        self._store = store
        self._config = config
        self._target = target
        self._launcher = launcher
        self._listener = listener or Silent()
        self._clock = clock or SystemWallClock()
        self._signal = signal or ClosingSignal()
        self._jitter = jitter
        self._connector = connector
        self._raw = raw
        self._executors = executors
        self._record = record
        self._waits = waits
        self._requests = requests or PendingRequests(store, config.name, self._clock)
        self._history = HistoryKeeper(store, config.name, self._clock)
        self._totals = TotalsKeeper(store, config.name)

    def close(self, reason: ClosingReason = ClosingReason.SHUTDOWN) -> None:
        """End: what runs commits and stops first. From any thread or signal handler."""
        self._signal.ask(reason)

    def rebalance(self) -> None:
        """End the running generation early; the next one follows with new configurations of its tasks."""
        self._signal.ask(ClosingReason.REBALANCE, final=False)

    def run(self, *, until_caught_up: bool = False) -> ClosingReason | None:
        """Run until :meth:`close`.

        Returns:
            Why an operator wants the connector stopped; None when he does not.

        Raises:
            ConfigException: the connector refuses to start; or it shall end once it has caught up: a source
                never has, there may always be more to poll.
            FencedException: a newer driver has taken over.
            ConnectException: a task failed too often; the others have committed first. Or those before could
                not be fenced.
        """
        if until_caught_up:
            raise ConfigException(
                f"connector {self._config.name} is a source, and there may always be more to poll: run it "
                f"without --until-caught-up, and stop it when it has read what you want"
            )
        self._session = DriverSession(
            self._store,
            self._connector,
            self._config,
            self._raw,
            clock=self._clock,
            signal=self._signal,
            requests=self._requests,
            executors=self._executors,
            record=self._record,
            waits=self._waits,
        )
        self._generations = self._session.generations
        return self._session.run(self._drive)

    def _drive(self, claim: Claim, record: ConnectorRecord) -> ClosingReason | None:
        """Generation after generation, the first of which is claimed."""
        self._failures = TaskFailures(self._config, self._session.status, self._clock, self._jitter)
        self._totals.catch_up()
        while True:
            configs = self._session.task_configs()
            if not self._fence(claim, record, configs):
                return self._requests.closing()
            plan = self._generations.plan(
                claim,
                [TaskPlan(ranges=(), config=config) for config in configs],
                record.version,
                record.config,
                transactional_tasks=len(configs),
            )
            with logging_about(generation=plan.generation):
                self._run(plan)
            self._session.yield_to_successor()
            if (problem := self._failures.given_up()) is not None:
                raise problem
            if not self._wait(self._failures.waiting):
                return self._requests.closing()
            claim = self._generations.claim()

    # -- fencing ---------------------------------------------------------------------------------

    def _fence(self, claim: Claim, record: ConnectorRecord, configs: Sequence[Mapping[str, str]]) -> bool:
        """KIP-618's round: nobody who may still write does so any more. Until then nothing is planned.

        Returns:
            False when the end was asked for meanwhile.

        Raises:
            ConnectException: it cannot be done, and was tried often enough.
        """
        round_ = fencing_round(
            is_pending=_is_pending(claim, record, configs),
            recorded=claim.transactional_tasks,
            tasks=len(configs),
        )
        pacing = Backoff.of_restarts(self._config, self._clock, self._jitter)
        for attempt in itertools.count(1):
            problem = self._try_to_fence(round_.fence)
            if problem is None:
                break
            if attempt > self._config.restart_max_attempts and not isinstance(problem, RetriableException):
                raise problem
            delay = pacing.delay(attempt)
            log.warning(
                "connector %s: the tasks before could not be fenced, none is started; tried again in %.1f s: "
                "%s",
                self._config.name,
                delay,
                problem,
            )
            if not self._wait(_countdown(self._clock, delay)):
                return False
        return not self._session.is_unwanted()

    def _try_to_fence(self, tasks: range) -> ConnectException | None:
        """What kept us from it; None also when the end was asked for meanwhile."""
        for task in tasks:
            self._session.expect_newest()  # the tasks of a newer driver have the same transactional ids
            if self._session.is_unwanted():
                return None
            try:
                fence(self._target, self._config, task)
            except ConfigException:
                raise
            except ConnectException as error:
                return error
        return None

    # -- running ---------------------------------------------------------------------------------

    def _run(self, plan: GenerationPlan) -> None:
        self._listener.planned(plan)
        self._failures.generation_begins()
        self._history.generation_begins()
        supervisor = SourceSupervisor(
            self._store,
            self._config.name,
            self._generations,
            self._signal,
            graceful=self._config.graceful_timeout_ms / 1000,
            look=lambda rows: self._must_close(source_progress(rows)),
            on_closing=lambda reason: self._listener.closing(plan.generation, reason),
            clock=self._clock,
        )
        try:
            running = self._launcher.launch(plan)
        except RetriableException as error:
            log.info("connector %s: %s; planned again", self._config.name, error)
            self._signal.wait(self._config.poll_interval_ms / 1000)
            return
        outcomes = supervisor.outcomes(running, plan)
        self._totals.add(plan.generation, supervisor.measures, {})
        self._history.ended([of_task(task, outcome) for task, outcome in enumerate(outcomes)])
        self._signal.answered()
        for task, outcome in enumerate(outcomes):
            self._learn(task, outcome)
        self._listener.tasks_ended(
            plan.generation, [_ended(task, outcome) for task, outcome in enumerate(outcomes)]
        )
        self._wait(_countdown(self._clock, self._heed_tasks(supervisor.away)))

    def _heed_tasks(self, away: RetriableException | None) -> float:
        """Seconds to wait for what the tasks need and is away; None: they work."""
        return self._failures.away(away)

    def _must_close(self, progress: Progress) -> ClosingReason | None:
        """Why the running generation shall close."""
        for task, row in progress.items():
            if row.failure is not None:
                self._failures.failed(
                    task, TaskFailure(row.failure, row.trace or ""), made_progress=row.records > 0
                )
        if progress:
            self._heed_tasks(None)
        self._session.status.save_if_due()
        self._history.progress(of_task(task, row) for task, row in progress.items())
        self._listener.tasks(list(_running(progress)))
        self._requests.look()
        if (reason := self._requests.closing()) is not None:
            return reason
        if self._requests.consume("restart_failed") and self._failures.reset():
            return ClosingReason.REBALANCE
        if self._requests.consume("rebalance"):
            return ClosingReason.REBALANCE
        if self._requests.consume("flush"):
            return ClosingReason.DUE  # a transaction that waits for its interval is committed
        return ClosingReason.FAILURE if self._failures.is_due() else None

    def _learn(self, task: int, outcome: SourceTaskOutcome) -> None:
        failure = outcome.failure
        if outcome.end in (End.FAILED, End.FENCED) and failure is not None:
            self._failures.failed(
                task, TaskFailure(failure.message, failure.trace), made_progress=outcome.records > 0
            )
        if outcome.end is End.CANCELLED:
            log.warning(
                "connector %s: task %d did not stop in time (task.shutdown.graceful.timeout.ms is %d); what "
                "it had not committed is read again",
                self._config.name,
                task,
                self._config.graceful_timeout_ms,
            )

    def _wait(self, left: Callable[[], float]) -> bool:
        """Wait as long as seconds are left; False when the end was asked for meanwhile."""
        while not self._session.is_unwanted():
            self._take_orders()
            if (seconds := left()) <= 0:
                return True
            self._session.expect_newest(is_recent_enough=True)
            if self._signal.wait(min(seconds, self._requests.interval)):
                self._signal.answered()  # nothing runs: there is nothing to rebalance
        return False

    def _take_orders(self) -> None:
        """What was ordered while nothing runs; all tasks start next in any case."""
        self._requests.consume("rebalance")
        self._requests.consume("flush")
        if self._requests.consume("restart_failed"):
            self._failures.reset()


def _is_pending(claim: Claim, record: ConnectorRecord, configs: Sequence[Mapping[str, str]]) -> bool:
    """Whether tasks are about to start that are not the ones of the last record, each in its place.

    Those that are fence themselves, each its predecessor, which wrote what it is about to write.
    """
    before = claim.before
    if before is None or claim.transactional_tasks != len(before.tasks):
        return True
    return before.config != record.config or [task.config for task in before.tasks] != list(configs)


def _countdown(clock: WallClock, seconds: float) -> Callable[[], float]:
    """Tells how many seconds are left."""
    end = clock.now() + seconds
    return lambda: end - clock.now()


def _running(progress: Progress) -> Iterator[SourceTaskView]:
    for task, row in sorted(progress.items()):
        yield SourceTaskView(task, row.state, row.records, row.transactions, row.rate, row.failure)


def _ended(task: int, outcome: SourceTaskOutcome) -> SourceTaskView:
    failure = outcome.failure.message if outcome.failure else None
    return SourceTaskView(task, outcome.end, outcome.records, outcome.transactions, failure=failure)
