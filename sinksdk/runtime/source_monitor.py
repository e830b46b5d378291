"""What a driver sees of its source: topics and partitions, how far they reach, and what is missing.

It is asked at once for whoever plans, and in the background while a generation runs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Literal, Self

from sinksdk.config import ConnectorConfig
from sinksdk.control.consumer_group import OffsetGroup
from sinksdk.control.ends import LOOK_INTERVAL
from sinksdk.engine.clock import Clock
from sinksdk.errors import ConfigException, ConnectException
from sinksdk.records import OffsetRange, TopicPartition
from sinksdk.runtime.topics import Read, TopicWatch
from sinksdk.support.threads import Background, in_a_thread
from sinksdk.topics import Source, Subscription
from sinksdk.topics.base import Snapshot, take_snapshot

log = logging.getLogger(__name__)

Reset = Literal["earliest", "latest", "none"]


class EndOffsets:
    """Up to which offsets a driver reads.

    Args:
        is_fixed: whether that stays where the source ended at the first look: the driver ends when it has
            caught up.
    """

    def __init__(self, *, is_fixed: bool) -> None:
        self._is_fixed = is_fixed
        self._first: dict[TopicPartition, OffsetRange] | None = None
        self._awaited: frozenset[TopicPartition] = frozenset()

    @property
    def is_known(self) -> bool:
        """Whether there was a look that left no topic in doubt."""
        return self._first is not None

    def limit(
        self,
        available: dict[TopicPartition, OffsetRange],
        unavailable: frozenset[TopicPartition],
        *,
        is_in_doubt: bool,
    ) -> dict[TopicPartition, OffsetRange]:
        """What may be read of what is available; nothing while the first look has left a topic in doubt.

        Args:
            available: what the source holds.
            unavailable: partitions that could not be asked for.
            is_in_doubt: whether a topic is missing that may still turn out to be there.
        """
        if self._first is None:
            # A connector that is started again and again, and fails each time, must not leave a file of
            # the other topics' first records behind each time.
            if is_in_doubt:
                return {}
            self._first, self._awaited = available, unavailable
        if not self._is_fixed:
            return available
        # What could not be asked at first is read up to where it ends once it can be.
        answering = self._awaited & (available.keys() - self._first.keys())
        self._first |= {p: available[p] for p in answering}
        return {
            p: OffsetRange(now.start, max(now.start, self._first[p].end))
            for p, now in available.items()
            if p in self._first
        }


class SourceMonitor:
    """One driver's view of its source. All methods are the driver thread's.

    Args:
        source: is asked by one thread at a time.
        subscription: for what.
        topics: knows which topics are missing; told of each snapshot.
        clock: time.
        interval: seconds between two refreshes in the background.
        background: runs a refresh while the driver goes on.
        is_fixed: as of :class:`EndOffsets`.
    """

    # More than ten attributes: what is known, and what a refresh in the background needs, change together.
    def __init__(
        self,
        source: Source,
        subscription: Subscription,
        topics: TopicWatch,
        *,
        clock: Clock,
        interval: float,
        background: Background,
        is_fixed: bool = False,
    ) -> None:
        self.topics = topics
        """Knows what is missing as of the last snapshot."""
        self.end_offsets = EndOffsets(is_fixed=is_fixed)
        """Up to which offsets the driver reads."""
        self._source = source
        self._subscription = subscription
        self._clock = clock
        self._interval = interval
        self._background = background
        self._read = Read()
        self._snapshot = Snapshot(0.0, {})
        self._next = 0.0
        self._asking = threading.Lock()
        self._refresh: Future[Snapshot] | None = None

    @classmethod
    def of(
        cls,
        config: ConnectorConfig,
        source: Source,
        clock: Clock,
        background: Background = in_a_thread,
        *,
        is_fixed: bool = False,
    ) -> Self:
        """As a connector's configuration says."""
        subscription = Subscription(config.topics, config.topics_regex)
        topics = TopicWatch(
            config.name,
            subscription,
            grace=config.missing_topic_grace_ms / 1000,
            waits=config.missing_topic_policy == "wait",
        )
        interval = max(LOOK_INTERVAL, config.poll_interval_ms / 1000)
        return cls(
            source,
            subscription,
            topics,
            clock=clock,
            interval=interval,
            background=background,
            is_fixed=is_fixed,
        )

    @property
    def ids(self) -> Mapping[str, str]:
        """Ids of the topics that were there in the last snapshot."""
        return self._snapshot.ids

    @property
    def unavailable(self) -> frozenset[TopicPartition]:
        """Partitions that had no leader in the last snapshot."""
        return self._snapshot.unavailable

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """Where the partitions ended that were there in the last snapshot."""
        return {partition: offsets.end for partition, offsets in self._snapshot.partitions.items()}

    def covers(self, topic: str) -> bool:
        """Whether a topic of that name is subscribed to, be it there or not."""
        return self._subscription.covers(topic)

    def compare_with(self, read: Read) -> None:
        """From now on, snapshots are compared with this. A refresh that began before is forgotten."""
        self._read = read
        self._refresh = None

    def refresh(self) -> dict[TopicPartition, OffsetRange]:
        """Ask the source now.

        Returns:
            What the source holds: the partitions of all topics that are not missing.

        Raises:
            RetriableException, ConnectException: as the source; a missing topic raises nothing.
        """
        with self._asking:
            snapshot = take_snapshot(self._source, self._subscription, self._clock.now())
        self._see(snapshot)
        return {p: offsets for p, offsets in snapshot.partitions.items() if p.topic not in self.topics.gone}

    def readable(self, available: dict[TopicPartition, OffsetRange]) -> dict[TopicPartition, OffsetRange]:
        """What may be read of what the last refresh has found."""
        is_in_doubt = self.topics.is_in_doubt
        return self.end_offsets.limit(available, self.unavailable, is_in_doubt=is_in_doubt)

    def gone_of(self, topics: set[str]) -> set[str]:
        """Ask now which of these topics are missing, certainly or not. None if the source cannot tell."""
        try:
            self.refresh()
        except ConnectException as error:
            log.info("%s; nothing is known of the topics", error)
            return set()
        return topics & self.topics.gone

    def overtaken(self, positions: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """Partitions that began, in the last snapshot, only behind what was to be read of them next.

        Args:
            positions: the offset to be read next of each partition.
        """
        return {
            partition
            for partition, position in positions.items()
            if (there := self._snapshot.partitions.get(partition)) is not None and there.start > position
        }

    def refresh_in_background(self) -> None:
        """Look in the background when it is time, and take in what the last such look has found.

        Never blocks. A source that does not answer, or cannot be read, is looked at again: whoever plans
        next meets the same, and must do something about it.
        """
        if self._refresh is None:
            if self._clock.now() >= min(self._next, self.topics.recheck_at):
                self._start()
        elif self._refresh.done():
            refresh, self._refresh = self._refresh, None
            self._next = self._clock.now() + self._interval
            error = refresh.exception()
            if error is None:
                self._see(refresh.result())
            else:
                log.info("looking at the source failed, it is looked at again: %s", error)

    def _see(self, snapshot: Snapshot) -> None:
        before, self._snapshot = self._snapshot, snapshot
        self._log_unavailable(before.unavailable, snapshot.unavailable)
        self._next = self._clock.now() + self._interval
        self.topics.see(snapshot, self._read)

    def _log_unavailable(self, before: frozenset[TopicPartition], now: frozenset[TopicPartition]) -> None:
        for partition in sorted(now - before):
            log.warning(
                "connector %s: %s has no leader: it is left out until it has one, the others are read",
                self.topics.connector,
                partition,
            )
        for partition in sorted(before - now):
            log.warning("connector %s: %s has a leader again", self.topics.connector, partition)

    def _start(self) -> None:
        refresh: Future[Snapshot] = Future()
        at = self._clock.now()

        def run() -> None:
            with self._asking:
                if self._refresh is not refresh:
                    return  # forgotten before it began
                try:
                    refresh.set_result(take_snapshot(self._source, self._subscription, at))
                except Exception as error:  # noqa: BLE001 - whoever takes the result deals with it
                    refresh.set_exception(error)

        self._refresh = refresh
        self._background(run)


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
