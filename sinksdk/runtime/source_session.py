"""A source's generations, one after the other: from its driver's claim until the connector is to end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from sinksdk.context import ClosingReason
from sinksdk.engine.outcome import End, Failure, SourceTaskOutcome
from sinksdk.engine.writer import Target
from sinksdk.errors import ConnectException, RetriableException
from sinksdk.runtime.backoff import Backoff
from sinksdk.runtime.failures import TaskFailures
from sinksdk.runtime.reporter import SourceReporter
from sinksdk.runtime.session import DriverSession
from sinksdk.runtime.source_supervisor import (
    Progress,
    RunningSourceGeneration,
    SourceSupervisor,
    source_progress,
)
from sinksdk.runtime.zombie_fencing import ZombieFencing, countdown
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.store.generations import Claim
from sinksdk.store.records import ConnectorRecord, GenerationPlan, TaskPlan
from sinksdk.support.logs import logging_about

log = logging.getLogger(__name__)


class SourceLauncher(Protocol):
    """Starts a generation's job."""

    def launch(self, plan: GenerationPlan) -> RunningSourceGeneration:
        """Start it; it runs on its own."""
        ...


class SourceSession:
    """What a driver of a source does between its claim and the connector's end.

    Args:
        session: the driver's hold on the connector.
        config: the connector's.
        launcher: starts generations.
        target: where its records go.
        failures: knows which tasks failed, and when they start again.
        reporter: shows how the connector is doing.
        backoff: seconds between two attempts at fencing.
    """

    def __init__(
        self,
        session: DriverSession,
        config: SourceConnectorConfig,
        launcher: SourceLauncher,
        *,
        target: Target,
        failures: TaskFailures,
        reporter: SourceReporter,
        backoff: Backoff,
    ) -> None:
        self._session = session
        self._requests = session.requests
        self._config = config
        self._launcher = launcher
        self._failures = failures
        self._reporter = reporter
        self._fencing = ZombieFencing(session, config, target, backoff, self._wait)

    def drive(self, claim: Claim, record: ConnectorRecord) -> ClosingReason | None:
        """Generation after generation, the first of which is claimed.

        Returns:
            Why an operator wants the connector stopped; None when he does not.
        """
        session = self._session
        self._reporter.catch_up()
        while True:
            configs = session.task_configs()
            if not self._fencing.fence(claim, record, configs):
                return self._requests.closing()
            plan = session.generations.plan(
                claim,
                [TaskPlan(ranges=(), config=config) for config in configs],
                record.version,
                record.config,
                transactional_tasks=len(configs),
            )
            with logging_about(generation=plan.generation):
                self._run(plan)
            session.yield_to_successor()
            if (problem := self._failures.given_up()) is not None:
                raise problem
            if not self._wait(self._failures.waiting):
                return self._requests.closing()
            claim = session.generations.claim()

    def _run(self, plan: GenerationPlan) -> None:
        session = self._session
        self._failures.generation_begins()
        self._reporter.planned(plan)
        supervisor = SourceSupervisor(
            session.store,
            self._config.name,
            session.generations,
            session.signal,
            graceful=self._config.graceful_timeout_ms / 1000,
            look=lambda rows: self._must_close(source_progress(rows)),
            on_closing=lambda reason: self._reporter.closing(plan.generation, reason),
            clock=session.clock,
        )
        try:
            running = self._launcher.launch(plan)
        except RetriableException as error:
            log.info("connector %s: %s; planned again", self._config.name, error)
            session.signal.wait(self._config.poll_interval_ms / 1000)
            return
        outcomes = supervisor.outcomes(running, plan)
        self._reporter.measured(plan.generation, supervisor.measures, outcomes)
        session.signal.answered()
        for task, outcome in enumerate(outcomes):
            self._record(task, outcome)
        self._reporter.ended(plan.generation, outcomes)
        self._wait(countdown(session.clock, self._failures.away(supervisor.away)))

    def _must_close(self, progress: Progress) -> ClosingReason | None:
        """Why the running generation is to close."""
        for task, row in progress.items():
            if row.failure is not None:
                failure = Failure(ConnectException.__name__, row.failure, row.trace or "")
                self._failures.failed(task, failure, made_progress=row.records > 0)
        if progress:
            self._failures.away(None)
        self._reporter.progress(progress)
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

    def _record(self, task: int, outcome: SourceTaskOutcome) -> None:
        failure = outcome.failure
        if outcome.end in (End.FAILED, End.FENCED) and failure is not None:
            self._failures.failed(task, failure, made_progress=outcome.records > 0)
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
        session = self._session
        while not session.is_unwanted():
            self._follow_orders()
            if (seconds := left()) <= 0:
                return True
            session.expect_newest(is_recent_enough=True)
            if session.signal.wait(min(seconds, self._requests.interval)):
                session.signal.answered()  # nothing runs: there is nothing to rebalance
        return False

    def _follow_orders(self) -> None:
        """What was ordered while nothing runs; all tasks start next in any case."""
        self._requests.consume("rebalance")
        self._requests.consume("flush")
        if self._requests.consume("restart_failed"):
            self._failures.reset()
