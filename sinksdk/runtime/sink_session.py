"""A sink's generations, one after the other: from its driver's claim until the connector is to end."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from sinksdk.config import ConnectorConfig
from sinksdk.context import ClosingReason
from sinksdk.control.consumer_group import OffsetGroup
from sinksdk.engine import PartitionOutcome
from sinksdk.errors import ConnectException, RetriableException
from sinksdk.records import OffsetRange, TopicPartition
from sinksdk.runtime.failures import PartitionFailures, excused
from sinksdk.runtime.partition_lag import PartitionLag
from sinksdk.runtime.planner import Decision, GenerationPlanner
from sinksdk.runtime.reporter import SinkReporter
from sinksdk.runtime.session import DriverSession
from sinksdk.runtime.sink_supervisor import RunningGeneration, SinkSupervisor
from sinksdk.runtime.source_monitor import SourceMonitor, final_offsets, first_positions
from sinksdk.runtime.topics import Read
from sinksdk.store.generations import Claim
from sinksdk.store.records import ConnectorRecord, GenerationPlan, PlannedRange
from sinksdk.store.reports import PartitionProgress
from sinksdk.support.logs import logging_about

log = logging.getLogger(__name__)


class Launcher(Protocol):
    """Starts a generation's job."""

    def launch(self, plan: GenerationPlan) -> RunningGeneration:
        """Start it; it runs on its own."""
        ...


class SinkSession:
    """What a driver of a sink does between its claim and the connector's end.

    Args:
        session: the driver's hold on the connector.
        config: the connector's.
        launcher: starts generations.
        monitor: looks at the source.
        lag: knows what waits to be read.
        planner: says what is worth a generation.
        failures: knows what failed, and what waits.
        reporter: shows how the connector is doing.
        group: offsets kept outside, to begin from.
        until_caught_up: end when everything there is now is committed, tails included.
    """

    # More than eight parameters: one for each thing that a generation's life crosses.
    def __init__(
        self,
        session: DriverSession,
        config: ConnectorConfig,
        launcher: Launcher,
        *,
        monitor: SourceMonitor,
        lag: PartitionLag,
        planner: GenerationPlanner,
        failures: PartitionFailures,
        reporter: SinkReporter,
        group: OffsetGroup | None,
        until_caught_up: bool,
    ) -> None:
        self._session = session
        self._config = config
        self._launcher = launcher
        self._monitor = monitor
        self._lag = lag
        self._planner = planner
        self._failures = failures
        self._reporter = reporter
        self._group = group
        self._until_caught_up = until_caught_up

    def drive(self, claim: Claim, record: ConnectorRecord) -> ClosingReason | None:
        """Generation after generation, the first of which is claimed.

        Returns:
            Why an operator wants the connector stopped; None when he does not.
        """
        session = self._session
        self._reporter.catch_up()
        while True:
            claim = self._begin(claim, record)
            self._monitor.compare_with(Read(_offsets(claim), claim.topic_ids))
            self._reporter.claimed(claim)
            decision = self._await_work(claim)
            if decision is None:
                return session.requests.closing()
            plan = session.generations.plan(
                claim,
                self._planner.tasks(decision, session.task_configs(), claim.previous),
                record.version,
                record.config,
                # Those of commits too: they may be older than the remembering of ids.
                topic_ids=self._ids(_topics_read(decision.ranges) | {p.topic for p in claim.committed}),
                is_read=self._monitor.covers,
            )
            # From here on it matters whether a topic is still the one that was planned.
            self._monitor.compare_with(Read(_offsets(claim), plan.topic_ids))
            with logging_about(generation=plan.generation):
                self._run(plan)
            session.yield_to_successor()
            self._raise_if_it_is_over()
            if session.is_ended():
                return session.requests.closing()
            claim = session.generations.claim()
            self._failures.backoff.discarded(
                (planned.topic_partition for task in plan.tasks for planned in task.ranges),
                (partition for partition, tokens in claim.stale.items() if tokens),
            )

    def _raise_if_it_is_over(self) -> None:
        left_over = self._failures.left_over() if self._until_caught_up else None
        problem = self._failures.given_up() or left_over
        if problem is not None:
            raise problem

    # -- where to begin --------------------------------------------------------------------------

    def _begin(self, claim: Claim, record: ConnectorRecord) -> Claim:
        """Commit where partitions begin of which that is not decided, unless it is at their first record.

        That is every partition at a connector's very first start, and what was taken back by hand since.

        Raises:
            ConfigException: where that is cannot be said.
        """
        undecided, reset = claim.undecided, self._config.auto_offset_reset
        # After a reset the group has nothing to say: it holds what this connector has mirrored.
        group = undecided is not None and undecided.first and self._config.offset_source == "group"
        if undecided is None or (reset == "earliest" and not group):
            return claim
        found = self._first_look()
        if found is None:
            return claim  # the end was asked for: the next start decides
        available = {p: at for p, at in found.items() if p not in claim.committed and undecided.covers(p)}
        offsets = self._offsets_of_group(available.keys()) if group else {}
        if offsets is None:
            return claim
        positions = first_positions(available, reset, offsets)
        ids = self._ids({partition.topic for partition in positions})
        generations = self._session.generations
        return generations.settle(claim, positions, record.version, record.config, topic_ids=ids)

    def _first_look(self) -> dict[TopicPartition, OffsetRange] | None:
        """What there is before anything was read, once no topic is in doubt. None: the end was asked for."""
        while not self._session.is_ended():
            available = self._look()
            if self._monitor.end_offsets.is_known and not self._monitor.unavailable:
                return available
            self._wait(self._session.clock.time(), math.inf)
            self._session.signal.answered()  # nothing runs: there is nothing to rebalance
        return None

    def _offsets_of_group(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int] | None:
        """Where to begin; None: the end was asked for."""
        group = self._group
        if group is None:
            return {}
        while not self._session.is_ended():
            offsets = self._session.patiently(lambda: final_offsets(group, partitions))
            if offsets is not None:
                return offsets
            self._session.signal.answered()  # nothing runs: there is nothing to rebalance
        return None

    # -- deciding --------------------------------------------------------------------------------

    def _await_work(self, claim: Claim) -> Decision | None:
        """Wait until something is worth a generation; None when there is nothing more to do.

        Raises:
            MissingSourceTopicException: a topic is certainly missing.
        """
        session, clock = self._session, self._session.clock
        while True:
            if session.signal.reason is not None:
                session.signal.answered()  # nothing runs: there is nothing to rebalance
            if session.is_ended():
                return None
            self._follow_orders()
            available = self._look()
            if session.signal.reason is not None:
                continue  # that may have ended the look: nothing is known then of what is there
            backlogs = self._lag.of(claim, available)
            self._reporter.source_ends(self._monitor.ends)
            now = clock.time()
            ready = [b for b in backlogs if not self._failures.backoff.is_waiting(b.partition)]
            decision = self._planner.decide(ready, now, flush=self._until_caught_up)
            if decision.ranges:
                return decision
            is_known = not self._monitor.topics.is_in_doubt and not self._monitor.unavailable
            if self._until_caught_up and is_known and len(ready) == len(backlogs):
                if any(claim.stale.values()) and self._failures.may_discard_before_the_end():
                    continue
                return None
            if (gaps := self._lag.trailing_gaps(ready)) is not None:
                return gaps
            self._reporter.idle()
            self._wait(now, decision.due_at)

    def _look(self) -> dict[TopicPartition, OffsetRange]:
        """What may be read. A source that is being written to just now is asked again.

        Returns:
            Nothing while the first look has left a topic in doubt, and when the end was asked for meanwhile.

        Raises:
            MissingSourceTopicException: a topic is certainly missing.
            ConnectException: what is there cannot be read.
        """
        available = self._session.patiently(self._monitor.refresh)
        if available is None:
            return {}
        self._session.status.miss(self._monitor.topics.certain)
        self._session.status.leave_out(self._monitor.unavailable)
        if (alarm := self._monitor.topics.alarm()) is not None:
            raise alarm
        return self._monitor.readable(available)

    def _follow_orders(self) -> None:
        """What was ordered while nothing runs."""
        requests = self._session.requests
        requests.consume("rebalance")  # the next generation is assigned anew in any case
        if requests.consume("flush"):
            self._planner.flush()
        if requests.consume("restart_failed"):
            self._failures.reset()

    def _wait(self, now: float, due_at: float) -> None:
        """Until it is time to look at the source again, or an operator wants something."""
        session = self._session
        recheck = self._monitor.topics.recheck_at - session.clock.now()
        delays = self._failures.backoff.delays()
        left = min(self._config.poll_interval_ms / 1000, due_at - now, recheck, *delays)
        while True:
            step = max(min(left, session.requests.interval), 0.0)
            is_asked = session.signal.wait(step)
            left -= step
            if is_asked or left <= 0:
                break
            session.status.save_if_due()
            session.requests.look()
            if session.requests.has_changed():
                break
        session.expect_newest(is_recent_enough=True)

    def _ids(self, topics: set[str]) -> dict[str, str]:
        """Ids of topics, as they were in the last look."""
        return {topic: known for topic, known in self._monitor.ids.items() if topic in topics}

    # -- running ---------------------------------------------------------------------------------

    def _run(self, plan: GenerationPlan) -> None:
        session = self._session
        self._reporter.planned(plan)
        topics = _topics_read(planned for task in plan.tasks for planned in task.ranges)

        def on_progress(progress: Sequence[PartitionProgress]) -> None:
            if progress and supervisor.away is None:
                self._failures.away(None)
            self._reporter.progress(progress)

        supervisor = SinkSupervisor(
            session.store,
            self._config.name,
            session.generations,
            session.signal,
            graceful=self._config.graceful_timeout_ms / 1000,
            is_hopeless=self._failures.would_give_up,
            must_close=lambda: self._must_close(topics),
            on_progress=on_progress,
            on_closing=lambda reason: self._reporter.closing(plan.generation, reason),
            clock=session.clock,
        )
        try:
            running = self._launcher.launch(plan)
        except ConnectException as error:
            if not isinstance(error, RetriableException) and not self._monitor.gone_of(topics):
                raise
            log.info("connector %s: %s; planned again", self._config.name, error)
            session.signal.wait(self._config.poll_interval_ms / 1000)
            return
        began = session.clock.now()
        outcomes = supervisor.outcomes(running, plan)
        self._planner.ended(session.clock.now() - began)
        self._reporter.measured(plan.generation, supervisor.measures, outcomes)
        overtaken: set[TopicPartition] = set()
        if any(outcome.failure for outcome in outcomes):
            gone = self._monitor.gone_of(topics)
            overtaken = self._monitor.overtaken(_next_offsets(plan, outcomes))
            if gone or overtaken:
                outcomes = excused(outcomes, gone, overtaken)
        if session.signal.is_final:
            self._log_unclosed(outcomes)
        session.signal.answered()
        self._failures.record(plan, outcomes, overtaken)
        self._reporter.ended(plan.generation, outcomes)
        session.wait(self._failures.away(supervisor.away))

    def _must_close(self, topics: set[str]) -> ClosingReason | None:
        """Why the running generation is to close, other than for its own tasks' failures."""
        session = self._session
        self._monitor.refresh_in_background()
        self._reporter.source_ends(self._monitor.ends)
        session.status.leave_out(self._monitor.unavailable)
        if not self._until_caught_up:  # else it reads no further than what was there at its start
            self._reporter.tracker.ends(self._monitor.ends)
        session.requests.look()
        if (reason := session.requests.closing()) is not None:
            return reason
        if session.requests.consume("restart_failed"):
            self._failures.reset()
            return ClosingReason.REBALANCE  # what failed is opened by the next generation
        if session.requests.consume("rebalance"):
            return ClosingReason.REBALANCE
        if session.requests.consume("flush"):
            self._planner.flush()
            return ClosingReason.DUE
        return ClosingReason.FAILURE if self._monitor.topics.must_close(topics) else None

    def _log_unclosed(self, outcomes: Sequence[PartitionOutcome]) -> None:
        """A stop that could not flush everything loses nothing, but whoever asked for it wants to know."""
        unclosed = [str(outcome.partition) for outcome in outcomes if outcome.failure is not None]
        if unclosed:
            log.warning(
                "connector %s: stopping, what was read of %s since its last commit was not committed; it "
                "is read again at the next start",
                self._config.name,
                ", ".join(unclosed),
            )


def _offsets(claim: Claim) -> dict[TopicPartition, int]:
    return {partition: entry.offset for partition, entry in claim.committed.items()}


def _topics_read(ranges: Iterable[PlannedRange]) -> set[str]:
    """Those that something is read of; an empty range only settles what was read before."""
    return {planned.topic for planned in ranges if planned.end > planned.start}


def _next_offsets(plan: GenerationPlan, outcomes: Iterable[PartitionOutcome]) -> dict[TopicPartition, int]:
    """Where partitions that did not end well would be read next."""
    committed = {outcome.partition: outcome.committed for outcome in outcomes if outcome.failure}
    return {
        planned.topic_partition: max(planned.start, committed[planned.topic_partition] or 0)
        for task in plan.tasks
        for planned in task.ranges
        if planned.start < planned.end and planned.topic_partition in committed
    }
