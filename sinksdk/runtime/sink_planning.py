"""Plans a sink's next generation: first offsets, available records, and whether they are due."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from sinksdk.config import ConnectorConfig
from sinksdk.control.consumer_group import OffsetGroup
from sinksdk.errors import ConfigException
from sinksdk.model.plan import RangePlan
from sinksdk.offsets import OffsetRange, TopicPartition
from sinksdk.runtime.failures import PartitionFailures
from sinksdk.runtime.partition_lag import PartitionLag, TrailingGaps
from sinksdk.runtime.planner import Decision, GenerationPlanner
from sinksdk.runtime.reporter import SinkReporter
from sinksdk.runtime.session import DriverSession
from sinksdk.runtime.source_monitor import Read, SourceMonitor
from sinksdk.store.generations import Claim
from sinksdk.store.records import ConnectorRecord, GenerationPlan, TaskPlan

Reset = Literal["earliest", "latest", "none"]


@dataclass(slots=True, eq=False, repr=False)
class SinkPlanning:
    session: DriverSession
    config: ConnectorConfig
    monitor: SourceMonitor
    _: KW_ONLY
    lag: PartitionLag
    gaps: TrailingGaps
    planner: GenerationPlanner
    failures: PartitionFailures
    reporter: SinkReporter
    group: OffsetGroup | None

    def next_plan(self, claim: Claim, record: ConnectorRecord) -> GenerationPlan | None:
        session = self.session
        claim = self._begin(claim, record)
        offsets = {partition: entry.offset for partition, entry in claim.committed.items()}
        self.monitor.compare_with(Read(offsets, claim.topic_ids))
        self.reporter.claimed(offsets, claim.visible())
        decision = self._await_work(claim)
        if decision is None:
            return None
        plan = session.generations.plan(
            claim,
            self._with_logs(self.planner.tasks(decision, session.task_configs(), claim.previous)),
            record.version,
            record.config,
            # Topics of commits are included, because an older version may have stored their commits without
            # ids.
            topic_ids=self._ids(topics_read(decision.ranges) | {p.topic for p in claim.committed}),
            is_read=self.monitor.topics.is_read,
        )
        # Later queries must find the same topics that were planned.
        self.monitor.compare_with(Read(offsets, plan.topic_ids))
        return plan

    def _with_logs(self, tasks: Sequence[TaskPlan]) -> list[TaskPlan]:
        # The plan gets the epochs that were compared with the commits, because the log may have been
        # truncated since then.
        held, epochs = self.monitor.snapshot.partitions, self.monitor.refreshed.epochs
        return [
            task.model_copy(
                update={
                    "ranges": tuple(
                        planned.model_copy(
                            update={
                                "log": held.get(planned.topic_partition),
                                "leader_epoch": epochs.get(planned.topic_partition),
                            }
                        )
                        for planned in task.ranges
                    )
                }
            )
            for task in tasks
        ]

    def _begin(self, claim: Claim, record: ConnectorRecord) -> Claim:
        undecided, reset = claim.undecided, self.config.auto_offset_reset
        # A reset ignores the consumer group, because the group contains the copy of this connector's commits.
        group = undecided is not None and undecided.first and self.config.offset_source == "group"
        if undecided is None or (reset == "earliest" and not group):
            return claim
        found = self._first_read()
        if found is None:
            return claim  # the driver must end: the next driver decides
        available = {p: at for p, at in found.items() if p not in claim.committed and undecided.covers(p)}
        offsets = self._offsets_of_group(available.keys()) if group else {}
        if offsets is None:
            return claim
        positions = first_positions(available, reset, offsets)
        ids = self._ids({partition.topic for partition in positions})
        generations = self.session.generations
        epochs = self.monitor.refreshed.epochs
        return generations.settle(
            claim, positions, record.version, record.config, topic_ids=ids, epochs=epochs
        )

    def _first_read(self) -> dict[TopicPartition, OffsetRange] | None:
        """Return the ranges available before the first read, once no topic is in doubt."""
        while not self.session.is_ended():
            available = self._read_source()
            if self.monitor.is_known and not self.monitor.snapshot.unavailable:
                return available
            self._wait(self.session.clock.time(), math.inf)
            self.session.signal.clear()
        return None

    def _offsets_of_group(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int] | None:
        group = self.group
        if group is None:
            return {}
        while not self.session.is_ended():
            offsets = self.session.patiently(lambda: final_offsets(group, partitions))
            if offsets is not None:
                return offsets
            self.session.signal.clear()
        return None

    def _await_work(self, claim: Claim) -> Decision | None:
        session, clock = self.session, self.session.clock
        while True:
            if session.signal.reason is not None:
                session.signal.clear()  # no generation runs, so there is nothing to rebalance
            if session.is_ended():
                return None
            # A request to rebalance has no further effect, because the next generation is assigned in any
            # case.
            session.carry_out_orders(self.failures.reset, self.planner.flush)
            available = self._read_source()
            if session.signal.reason is not None:
                continue  # the request may have interrupted the query
            session.subscribe({partition.topic for partition in available})
            lost = session.patiently(lambda: self.monitor.lost_tails(claim.committed))
            if lost is None:
                continue  # the driver must end, or close
            backlogs = self.lag.of(claim, available, lost)
            self._report_ends()
            now = clock.time()
            ready = [b for b in backlogs if not self.failures.backoff.is_waiting(b.partition)]
            decision = self.planner.decide(ready, now, flush=self.monitor.is_fixed)
            if decision.ranges:
                return decision
            is_known = not self.monitor.topics.is_in_doubt and not self.monitor.snapshot.unavailable
            if self.monitor.is_fixed and is_known and len(ready) == len(backlogs):
                if any(claim.stale.values()) and self.failures.may_discard_before_the_end():
                    continue
                session.expect_newest()  # an operator may have altered the offsets
                return None
            if gaps := self.gaps.among(ready):
                return Decision(tuple(gaps), math.inf, {b.partition: b for b in ready})
            self.reporter.idle()
            self._wait(now, decision.due_at)

    def _read_source(self) -> dict[TopicPartition, OffsetRange]:
        available = self.session.patiently(lambda: self.monitor.refresh(self._report_ends))
        if available is None:
            return {}
        self.session.status.miss(self.monitor.topics.certain)
        self.session.status.leave_out(self.monitor.snapshot.unavailable)
        if (alarm := self.monitor.topics.alarm()) is not None:
            raise alarm
        return self.monitor.readable(available)

    def _report_ends(self) -> None:
        self.reporter.source_ends(self.monitor.ends, self.monitor.unseen_for)

    def _wait(self, now: float, due_at: float) -> None:
        session = self.session
        recheck = self.monitor.topics.recheck_at - session.clock.now()
        delays = self.failures.backoff.delays()
        left = min(self.config.poll_interval_ms / 1000, due_at - now, recheck, *delays)
        while True:
            step = max(min(left, session.requests.interval), 0.0)
            is_asked = session.signal.wait(step)
            left -= step
            if is_asked or left <= 0:
                break
            session.status.save_if_due()
            session.requests.refresh()
            if session.requests.has_changed():
                break
        session.expect_newest(is_recent_enough=True)

    def _ids(self, topics: set[str]) -> dict[str, str]:
        return {topic: known for topic, known in self.monitor.snapshot.ids.items() if topic in topics}


def topics_read(ranges: Iterable[RangePlan]) -> set[str]:
    """Return the topics with records to read; empty ranges only publish or discard earlier tokens."""
    return {planned.topic for planned in ranges if planned.end > planned.start}


def final_offsets(group: OffsetGroup, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
    offsets = group.offsets(partitions)
    if group.is_in_use(offsets):
        raise ConfigException(
            f"'offset.source' is 'group', but {group} is in use, perhaps by the connector in Kafka Connect: "
            f"stop that first, or records would be read twice; nothing was read"
        )
    return offsets


def first_positions(
    available: Mapping[TopicPartition, OffsetRange],
    reset: Reset,
    group: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, int]:
    """Return the start offsets; a partition without one starts at its first record."""
    positions = {p: offset for p, offset in (group or {}).items() if p in available}
    for partition, offset in positions.items():
        end = available[partition].end
        if offset > end:
            raise ConfigException(
                f"{partition}: the consumer group is at offset {offset}, but the end offset of the source is "
                f"{end}: the topic was deleted and created again; reset the group's offset, or remove "
                f"'offset.source'"
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
