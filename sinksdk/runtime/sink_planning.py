"""What a sink's next generation reads: where to begin, what is there, whether it is worth a generation."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from sinksdk.config import ConnectorConfig
from sinksdk.control.consumer_group import OffsetGroup
from sinksdk.errors import ConfigException
from sinksdk.records import OffsetRange, TopicPartition
from sinksdk.runtime.failures import PartitionFailures
from sinksdk.runtime.partition_lag import PartitionLag
from sinksdk.runtime.planner import Decision, GenerationPlanner
from sinksdk.runtime.reporter import SinkReporter
from sinksdk.runtime.session import DriverSession
from sinksdk.runtime.source_monitor import Read, SourceMonitor
from sinksdk.store.generations import Claim
from sinksdk.store.records import ConnectorRecord, GenerationPlan, PlannedRange

Reset = Literal["earliest", "latest", "none"]


class SinkPlanning:
    """Plans a sink's generations, and waits until there is something to plan.

    Args:
        group: offsets kept outside, to begin from.
    """

    def __init__(
        self,
        session: DriverSession,
        config: ConnectorConfig,
        monitor: SourceMonitor,
        *,
        lag: PartitionLag,
        planner: GenerationPlanner,
        failures: PartitionFailures,
        reporter: SinkReporter,
        group: OffsetGroup | None,
    ) -> None:
        self._session = session
        self._config = config
        self._monitor = monitor
        self._lag = lag
        self._planner = planner
        self._failures = failures
        self._reporter = reporter
        self._group = group

    def next_plan(self, claim: Claim, record: ConnectorRecord) -> GenerationPlan | None:
        """Wait until something is worth a generation, and write its plan; None when nothing is left to do.

        Raises:
            ConfigException: where to begin cannot be said.
            MissingSourceTopicException: a topic is certainly missing.
        """
        session = self._session
        claim = self._begin(claim, record)
        offsets = {partition: entry.offset for partition, entry in claim.committed.items()}
        self._monitor.compare_with(Read(offsets, claim.topic_ids))
        self._reporter.claimed(offsets, claim.visible())
        decision = self._await_work(claim)
        if decision is None:
            return None
        plan = session.generations.plan(
            claim,
            self._planner.tasks(decision, session.task_configs(), claim.previous),
            record.version,
            record.config,
            # Those of commits too: they may be older than the remembering of ids.
            topic_ids=self._ids(topics_read(decision.ranges) | {p.topic for p in claim.committed}),
            is_read=self._monitor.covers,
        )
        # From here on it matters whether a topic is still the one that was planned.
        self._monitor.compare_with(Read(offsets, plan.topic_ids))
        return plan

    def flush(self) -> None:
        """Everything that is there now is due, until it is read."""
        self._planner.flush()

    def ended(self, seconds: float) -> None:
        """The generation has lasted so long."""
        self._planner.ended(seconds)

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
            decision = self._planner.decide(ready, now, flush=self._monitor.end_offsets.is_fixed)
            if decision.ranges:
                return decision
            is_known = not self._monitor.topics.is_in_doubt and not self._monitor.unavailable
            if self._monitor.end_offsets.is_fixed and is_known and len(ready) == len(backlogs):
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


def topics_read(ranges: Iterable[PlannedRange]) -> set[str]:
    """Those that something is read of; an empty range only publishes or discards what was read before."""
    return {planned.topic for planned in ranges if planned.end > planned.start}


def final_offsets(group: OffsetGroup, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
    """What a group has committed of these partitions, if nobody can commit more to it.

    Raises:
        ConfigException: somebody still can.
        RetriableException: nobody answers.
    """
    offsets = group.offsets(partitions)
    if group.is_in_use(offsets):
        raise ConfigException(
            f"'offset.source' is 'group', but {group} is in use: does the connector still run in Kafka "
            f"Connect? Records would be read twice: stop it first; nothing was read"
        )
    return offsets


def first_positions(
    available: Mapping[TopicPartition, OffsetRange],
    reset: Reset,
    group: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, int]:
    """Offsets to begin at; a partition that is not named begins at its first record.

    Args:
        available: what the source holds of partitions without a commit.
        reset: where to begin where ``group`` has nothing.
        group: offsets another consumer has committed.

    Raises:
        ConfigException: a group's offset is beyond what the source holds, or ``reset`` is
            ``none`` and a partition has no offset.
    """
    positions = {p: offset for p, offset in (group or {}).items() if p in available}
    for partition, offset in positions.items():
        end = available[partition].end
        if offset > end:
            raise ConfigException(
                f"{partition}: the consumer group is at offset {offset}, but the source ends at {end}: the "
                f"topic was deleted and created again; reset the group's offset, or take 'offset.source' out"
            )
    unknown = sorted(available.keys() - positions.keys())
    if unknown and reset == "none":
        raise ConfigException(
            f"{', '.join(map(str, unknown))}: nothing is committed, and auto.offset.reset is 'none': set it "
            f"to 'earliest' or 'latest', or give the connector the offsets of a consumer group with "
            f"offset.source=group"
        )
    if reset == "latest":
        positions |= {partition: available[partition].end for partition in unknown}
    return positions
