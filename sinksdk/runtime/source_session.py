"""A source's generations, from its driver's claim until the connector ends."""

from __future__ import annotations

from collections.abc import Callable

from sinksdk.context import ClosingReason
from sinksdk.runtime.outcomes import SourceLauncher, source_outcomes, source_progress
from sinksdk.runtime.reporter import SourceReporter
from sinksdk.runtime.session import DriverSession
from sinksdk.runtime.supervisor import Rows, Supervisor
from sinksdk.runtime.task_failures import TaskFailures
from sinksdk.runtime.zombie_fencing import ZombieFencing, countdown
from sinksdk.store.generations import Claim
from sinksdk.store.records import ConnectorRecord, GenerationPlan, TaskPlan
from sinksdk.support.logs import logging_about


class SourceSession:
    """Runs a source's generations between the driver's claim and the connector's end."""

    def __init__(
        self,
        session: DriverSession,
        launcher: SourceLauncher,
        *,
        fencing: ZombieFencing,
        failures: TaskFailures,
        reporter: SourceReporter,
    ) -> None:
        self._session = session
        self._requests = session.requests
        self._launcher = launcher
        self._failures = failures
        self._reporter = reporter
        self._fencing = fencing

    def drive(self, claim: Claim, record: ConnectorRecord) -> ClosingReason | None:
        """Run generations; the first one is claimed already.

        Returns:
            Why the operator stops the connector; None if he does not.
        """
        session = self._session
        self._reporter.catch_up()
        while True:
            configs = session.task_configs()
            if not self._fencing.fence(claim, record, configs, self._wait):
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
        supervisor = Supervisor(
            session, self._look, lambda reason: self._reporter.closing(plan.generation, reason)
        )
        ended = supervisor.run(self._launcher, plan)
        if ended is None:
            return
        outcomes = source_outcomes(ended, plan)
        self._reporter.measured(plan.generation, ended.measures, outcomes)
        session.signal.answered()
        self._failures.record(outcomes)
        self._reporter.ended(plan.generation, outcomes)
        self._wait(countdown(session.clock, self._failures.away(ended.away)))

    def _look(self, rows: Rows) -> ClosingReason | None:
        """The reason to close the running generation, if any."""
        progress = source_progress(rows)
        self._failures.report(progress)
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

    def _wait(self, left: Callable[[], float]) -> bool:
        """Wait as long as seconds are left; False if the driver must end meanwhile."""
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
        """Mark requests as carried out while no generation runs: all tasks start next in any case."""
        self._requests.consume("rebalance")
        self._requests.consume("flush")
        if self._requests.consume("restart_failed"):
            self._failures.reset()
