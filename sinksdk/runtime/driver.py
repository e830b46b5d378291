"""The driver of one sink: runs its generations until it is stopped."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from sinksdk.config import ConnectorConfig
from sinksdk.connector import SinkConnector
from sinksdk.context import ClosingReason
from sinksdk.control.consumer_group import ConsumerGroupSync, OffsetGroup
from sinksdk.control.progress import Listener
from sinksdk.runtime.backoff import Backoff
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.failures import PartitionFailures
from sinksdk.runtime.outcomes import (
    Launcher,
    closing_durations,
    next_offsets,
    outcomes_so_far,
    partition_outcomes,
    without_vanished_failures,
)
from sinksdk.runtime.partition_lag import PartitionLag, TrailingGaps
from sinksdk.runtime.planner import GenerationPlanner, Planner
from sinksdk.runtime.reporter import SinkReporter
from sinksdk.runtime.session import DriverSession
from sinksdk.runtime.sink_planning import SinkPlanning, topics_read
from sinksdk.runtime.source_monitor import SourceMonitor
from sinksdk.runtime.supervisor import Rows, Supervisor
from sinksdk.store.generations import Claim
from sinksdk.store.records import ConnectorRecord, GenerationPlan
from sinksdk.support.logs import logging_about
from sinksdk.topics import Source

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False, repr=False)
class ConnectorDriver:
    environment: Environment
    _: KW_ONLY
    source: Source
    connector: SinkConnector
    config: ConnectorConfig
    raw: Mapping[str, Any]
    launcher: Launcher
    listener: Listener = field(default_factory=Listener)
    # The group to start from, which also gets a copy of the commits.
    group: OffsetGroup | None = None

    def close(self) -> None:
        self.environment.signal.request(ClosingReason.SHUTDOWN)

    def rebalance(self) -> None:
        self.environment.signal.request(ClosingReason.REBALANCE, final=False)

    def run(self, *, until_caught_up: bool = False) -> ClosingReason | None:
        """Run until stopped or caught up; return the operator's reason to stop, if any."""
        # Code of the author's is called before anything is registered, because it may raise.
        planner = Planner(
            self.connector.batch_policy(self.config),
            self.config.generation_max_records,
            skip_lost=self.config.on_data_loss == "skip",
        )
        sync = ConsumerGroupSync()
        if self.group is not None and self.config.offset_mirror:
            sync = self.environment.threads.syncs(self.group, self.config.name)
        try:
            session = DriverSession(self.environment, self.connector, self.config, self.raw)
            sink = SinkSession(session, self, planner, sync, is_fixed=until_caught_up)
            return session.run(sink.drive, sink.meanwhile)
        finally:
            sync.close()


class SinkSession:
    def __init__(
        self,
        session: DriverSession,
        driver: ConnectorDriver,
        planner: Planner,
        sync: ConsumerGroupSync,
        *,
        is_fixed: bool,
    ) -> None:
        config = driver.config
        background = session.environment.threads.background
        self._session = session
        self._launcher = driver.launcher
        self._monitor = SourceMonitor(config, driver.source, session.clock, background, is_fixed=is_fixed)
        backoff = Backoff.of_restarts(config, session.clock, session.environment.jitter)
        self._reporter = SinkReporter(
            session,
            driver.listener,
            sync,
            lambda partition: 0.0 if self._failures.given_up() else backoff.waiting(partition),
        )
        self._failures = PartitionFailures(config, session.status, backoff, session.clock)
        self._lag = PartitionLag(
            config,
            status=session.status,
            backoff=backoff,
            tracker=self._reporter.tracker,
            clock=session.clock,
            is_fixed=is_fixed,
        )
        self._planner = GenerationPlanner(planner, config.generation_max_ms / 1000)
        self._planning = SinkPlanning(
            session,
            config,
            self._monitor,
            lag=self._lag,
            gaps=TrailingGaps(driver.source, background),
            planner=self._planner,
            failures=self._failures,
            reporter=self._reporter,
            group=driver.group,
        )

    def drive(self, claim: Claim, record: ConnectorRecord) -> ClosingReason | None:
        session = self._session
        self._reporter.catch_up()
        while (
            self._is_needed(claim, record) and (plan := self._planning.next_plan(claim, record)) is not None
        ):
            with logging_about(generation=plan.generation):
                self._run(plan)
            session.yield_to_successor()
            self._raise_if_it_is_over()
            if session.is_ended():
                break
            claim = session.generations.claim()
            self._failures.backoff.tried_to_discard(
                (planned.topic_partition for task in plan.tasks for planned in task.ranges),
                {partition for partition, tokens in claim.stale.items() if tokens},
            )
        return session.requests.closing()

    def _is_needed(self, claim: Claim, record: ConnectorRecord) -> bool:
        # A connector that is being deleted runs only until no record above a commit is visible (decision
        # 0040).
        return not record.deleted or bool(claim.partly_visible())

    def meanwhile(self) -> None:
        self._monitor.refresh_in_background()
        self._reporter.source_ends(self._monitor.ends, self._monitor.unseen_for)

    def _raise_if_it_is_over(self) -> None:
        left_over = self._failures.left_over() if self._monitor.is_fixed else None
        problem = self._failures.given_up() or left_over
        if problem is not None:
            raise problem

    def _run(self, plan: GenerationPlan) -> None:
        session = self._session
        self._reporter.planned(plan)
        topics = topics_read(planned for task in plan.tasks for planned in task.ranges)
        supervisor = Supervisor(
            session,
            lambda rows: self._reason_to_close(rows, topics),
            lambda reason: self._reporter.closing(plan.generation, reason),
        )
        ended = supervisor.run(self._launcher, plan, lambda: bool(self._monitor.gone_of(topics)))
        if ended is None:
            return
        self._report_progress(ended.rows, is_away=ended.away is not None)
        if ended.closing_seconds is not None:
            durations = closing_durations(ended.closing_seconds, ended.measures)
            log.info("generation %d: closing took %s", plan.generation, durations)
        outcomes = partition_outcomes(ended, plan)
        self._planner.ended(session.clock.now() - ended.began)
        lost = self._lag.lost_before({outcome.partition: outcome.committed for outcome in outcomes})
        existing = None if self._monitor.unseen_for else self._monitor.ends
        self._reporter.measured(plan.generation, ended.measures, outcomes, lost, existing)
        has_failed = any(outcome.failure for outcome in outcomes)
        gone = self._monitor.gone_of(topics) if has_failed else set()
        overtaken = self._monitor.overtaken(next_offsets(plan, outcomes))
        if gone or overtaken:
            outcomes = without_vanished_failures(outcomes, gone, overtaken)
        if session.signal.is_final and (unclosed := [str(o.partition) for o in outcomes if o.failure]):
            log.warning(
                "connector %s stops, but could not commit all records of %s: the next start reads the "
                "uncommitted ones again",
                session.name,
                ", ".join(unclosed),
            )
        session.signal.clear()
        self._failures.record(plan, outcomes, overtaken)
        self._reporter.ended(plan.generation, outcomes)
        session.wait(self._failures.away(ended.away))

    def _reason_to_close(self, rows: Rows, topics: set[str]) -> ClosingReason | None:
        self._report_progress(rows)
        reason = self._must_close(topics)
        if reason is None and (
            any(row.hangs is not None for row in rows.values())
            or any(map(self._failures.would_give_up, outcomes_so_far(rows)))
        ):
            reason = ClosingReason.FAILURE
        return reason

    def _report_progress(self, rows: Rows, *, is_away: bool = False) -> None:
        progress = outcomes_so_far(rows)
        if progress and not is_away:
            self._failures.away(None)
        self._reporter.progress(progress)

    def _must_close(self, topics: set[str]) -> ClosingReason | None:
        session = self._session
        self.meanwhile()
        session.status.leave_out(self._monitor.snapshot.unavailable)
        if not self._monitor.is_fixed:  # a fixed monitor reads up to the end offsets at the start
            self._reporter.tracker.ends(self._monitor.ends)
        session.requests.refresh()
        reason = session.requests.closing() or session.carry_out_orders(
            self._failures.reset, self._planner.flush
        )
        if reason is None and self._monitor.topics.must_close(topics):
            reason = ClosingReason.FAILURE
        return reason
