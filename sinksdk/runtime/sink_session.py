"""A sink's generations, from its driver's claim until the connector ends."""

from __future__ import annotations

import logging

from sinksdk.context import ClosingReason
from sinksdk.runtime.failures import PartitionFailures
from sinksdk.runtime.outcomes import (
    Launcher,
    closing_trail,
    excused,
    next_offsets,
    partition_outcomes,
    partition_progress,
)
from sinksdk.runtime.reporter import SinkReporter
from sinksdk.runtime.session import DriverSession
from sinksdk.runtime.sink_planning import SinkPlanning, topics_read
from sinksdk.runtime.source_monitor import SourceMonitor
from sinksdk.runtime.supervisor import Rows, Supervisor
from sinksdk.store.generations import Claim
from sinksdk.store.records import ConnectorRecord, GenerationPlan
from sinksdk.support.logs import logging_about

log = logging.getLogger(__name__)


class SinkSession:
    """Runs a sink's generations between the driver's claim and the connector's end."""

    def __init__(
        self,
        session: DriverSession,
        launcher: Launcher,
        *,
        monitor: SourceMonitor,
        planning: SinkPlanning,
        failures: PartitionFailures,
        reporter: SinkReporter,
    ) -> None:
        self._session = session
        self._launcher = launcher
        self._monitor = monitor
        self._planning = planning
        self._failures = failures
        self._reporter = reporter
        self._is_fixed = monitor.end_offsets.is_fixed

    def drive(self, claim: Claim, record: ConnectorRecord) -> ClosingReason | None:
        """Run generations; the first one is claimed already.

        Returns:
            Why the operator stops the connector; None if he does not.
        """
        session = self._session
        self._reporter.catch_up()
        while (plan := self._planning.next_plan(claim, record)) is not None:
            with logging_about(generation=plan.generation):
                self._run(plan)
            session.yield_to_successor()
            self._raise_if_it_is_over()
            if session.is_ended():
                break
            claim = session.generations.claim()
            self._failures.backoff.discarded(
                (planned.topic_partition for task in plan.tasks for planned in task.ranges),
                (partition for partition, tokens in claim.stale.items() if tokens),
            )
        return session.requests.closing()

    def meanwhile(self) -> None:
        """Keep the view of the source up to date; never blocks."""
        self._monitor.refresh_in_background()
        self._reporter.source_ends(self._monitor.ends)

    def _raise_if_it_is_over(self) -> None:
        left_over = self._failures.left_over() if self._is_fixed else None
        problem = self._failures.given_up() or left_over
        if problem is not None:
            raise problem

    def _run(self, plan: GenerationPlan) -> None:
        session = self._session
        self._reporter.planned(plan)
        topics = topics_read(planned for task in plan.tasks for planned in task.ranges)
        supervisor = Supervisor(
            session,
            lambda rows: self._look(rows, topics),
            lambda reason: self._reporter.closing(plan.generation, reason),
        )
        ended = supervisor.run(self._launcher, plan, lambda: bool(self._monitor.gone_of(topics)))
        if ended is None:
            return
        self._report_progress(ended.rows, is_away=ended.away is not None)
        if ended.closing_seconds is not None:
            trail = closing_trail(ended.closing_seconds, ended.measures)
            log.info("generation %d: closing took %s", plan.generation, trail)
        outcomes = partition_outcomes(ended, plan)
        self._planning.ended(session.clock.now() - ended.began)
        self._reporter.measured(plan.generation, ended.measures, outcomes)
        has_failed = any(outcome.failure for outcome in outcomes)
        gone = self._monitor.gone_of(topics) if has_failed else set()
        overtaken = self._monitor.overtaken(next_offsets(plan, outcomes))
        if gone or overtaken:
            outcomes = excused(outcomes, gone, overtaken)
        if session.signal.is_final:
            self._log_unclosed([str(outcome.partition) for outcome in outcomes if outcome.failure])
        session.signal.answered()
        self._failures.record(plan, outcomes, overtaken)
        self._reporter.ended(plan.generation, outcomes)
        session.wait(self._failures.away(ended.away))

    def _look(self, rows: Rows, topics: set[str]) -> ClosingReason | None:
        """The reason to close the running generation, if any."""
        self._report_progress(rows)
        reason = self._must_close(topics)
        if reason is None and (
            any(row.hangs is not None for row in rows.values())
            or any(map(self._failures.would_give_up, partition_progress(rows)))
        ):
            reason = ClosingReason.FAILURE
        return reason

    def _report_progress(self, rows: Rows, *, is_away: bool = False) -> None:
        progress = partition_progress(rows)
        if progress and not is_away:
            self._failures.away(None)
        self._reporter.progress(progress)

    def _must_close(self, topics: set[str]) -> ClosingReason | None:
        """The reason to close the running generation, other than failures of its own tasks."""
        session = self._session
        self.meanwhile()
        session.status.leave_out(self._monitor.unavailable)
        if not self._is_fixed:  # otherwise it reads only up to the ends at its start
            self._reporter.tracker.ends(self._monitor.ends)
        session.requests.look()
        if (reason := session.requests.closing()) is not None:
            return reason
        if session.requests.consume("restart_failed"):
            self._failures.reset()
            return ClosingReason.REBALANCE  # the next generation opens failed partitions
        if session.requests.consume("rebalance"):
            return ClosingReason.REBALANCE
        if session.requests.consume("flush"):
            self._planning.flush()
            return ClosingReason.DUE
        return ClosingReason.FAILURE if self._monitor.topics.must_close(topics) else None

    def _log_unclosed(self, unclosed: list[str]) -> None:
        """Tell the operator if a stop could not flush everything; no record is lost."""
        if unclosed:
            log.warning(
                "connector %s: stopping, what was read of %s since its last commit was not committed; it "
                "is read again at the next start",
                self._session.name,
                ", ".join(unclosed),
            )
