"""Looks at the source: at once for whoever plans, and in the background while a generation runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Literal, Self, TypeVar

from sinksdk.config import ConnectorConfig
from sinksdk.control.consumer_group import OffsetGroup
from sinksdk.control.ends import LOOK_INTERVAL
from sinksdk.control.requests import ClosingSignal
from sinksdk.control.status import StatusKeeper
from sinksdk.engine.clock import Clock, WallClock
from sinksdk.errors import ConfigException, ConnectException, RetriableException
from sinksdk.records import OffsetRange, TopicPartition
from sinksdk.runtime.backoff import Waits
from sinksdk.runtime.topics import Read, TopicWatch
from sinksdk.sources import Source, Subscription
from sinksdk.sources.snapshot import Snapshot, take_snapshot
from sinksdk.threads import Background, in_a_thread

log = logging.getLogger(__name__)


class SourceMonitor:
    """One driver's eyes on its source. All methods are the driver thread's.

    Args:
        source: what is looked at; it is asked by one thread at a time.
        subscription: for what.
        watch: told of each look.
        clock: time.
        interval: seconds between two glances.
        background: runs a glance while the driver goes on.
    """

    def __init__(
        self,
        source: Source,
        subscription: Subscription,
        watch: TopicWatch,
        *,
        clock: Clock,
        interval: float,
        background: Background,
    ) -> None:
        self.watch = watch
        """Knows what is missing as of the last look."""
        self.unavailable: frozenset[TopicPartition] = frozenset()
        """Partitions that had no leader in the last look."""
        self._connector = watch.connector
        self._source = source
        self._subscription = subscription
        self._clock = clock
        self._interval = interval
        self._background = background
        self._read = Read()
        self._ids: Mapping[str, str] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._partitions: Mapping[TopicPartition, OffsetRange] = {}
        self._next = 0.0
        self._asking = threading.Lock()
        self._glance: Future[Snapshot] | None = None

    @classmethod
    def of(
        cls, config: ConnectorConfig, source: Source, clock: Clock, background: Background = in_a_thread
    ) -> Self:
        """As a connector's configuration says."""
        subscription = Subscription(config.topics, config.topics_regex)
        watch = TopicWatch(
            config.name,
            subscription,
            grace=config.missing_topic_grace_ms / 1000,
            waits=config.missing_topic_policy == "wait",
        )
        interval = max(LOOK_INTERVAL, config.poll_interval_ms / 1000)
        return cls(source, subscription, watch, clock=clock, interval=interval, background=background)

    @property
    def ids(self) -> Mapping[str, str]:
        """Ids of the topics that were there in the last look."""
        return self._ids

    @property
    def ends(self) -> Mapping[TopicPartition, int]:
        """Where the partitions ended that were there in the last look."""
        return self._ends

    def covers(self, topic: str) -> bool:
        """Whether a topic of that name is subscribed to, be it there or not."""
        return self._subscription.covers(topic)

    def compare_with(self, read: Read) -> None:
        """From now on, looks are compared with this. A glance that began before is forgotten."""
        self._read = read
        self._glance = None

    def look(self) -> dict[TopicPartition, OffsetRange]:
        """Look now.

        Returns:
            What may be read: the partitions of all topics that are not missing.

        Raises:
            RetriableException, ConnectException: as the source; a missing topic raises nothing.
        """
        with self._asking:
            sight = take_snapshot(self._source, self._subscription, self._clock.now())
        self._see(sight)
        return {p: offsets for p, offsets in sight.partitions.items() if p.topic not in self.watch.gone}

    def gone_of(self, topics: set[str]) -> set[str]:
        """Look now: which of these topics are missing, certainly or not. None if the source cannot tell."""
        try:
            self.look()
        except ConnectException as error:
            log.info("%s; nothing is known of the topics", error)
            return set()
        return topics & self.watch.gone

    def overtaken(self, positions: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """Partitions that began, in the last look, only behind what was to be read of them next.

        Args:
            positions: the offset to be read next of each partition.
        """
        return {
            partition
            for partition, position in positions.items()
            if (there := self._partitions.get(partition)) is not None and there.start > position
        }

    def glance(self) -> None:
        """Look in the background when it is time, and take in what the last such look has found.

        Never blocks. A source that does not answer, or cannot be read, is looked at again: whoever plans
        next meets the same, and must do something about it.
        """
        if self._glance is None:
            if self._clock.now() >= min(self._next, self.watch.recheck_at):
                self._start()
        elif self._glance.done():
            glance, self._glance = self._glance, None
            self._next = self._clock.now() + self._interval
            error = glance.exception()
            if error is None:
                self._see(glance.result())
            else:
                log.info("looking at the source failed, it is looked at again: %s", error)

    def _see(self, sight: Snapshot) -> None:
        self._ids, self._partitions = sight.ids, sight.partitions
        self._ends = {partition: offsets.end for partition, offsets in sight.partitions.items()}
        if sight.unavailable != self.unavailable:
            self._tell_of_unavailable(sight.unavailable)
        self._next = self._clock.now() + self._interval
        self.watch.see(sight, self._read)

    def _tell_of_unavailable(self, now: frozenset[TopicPartition]) -> None:
        before, self.unavailable = self.unavailable, now
        for partition in sorted(now - before):
            log.warning(
                "connector %s: %s has no leader: it is left out until it has one, the others are read",
                self._connector,
                partition,
            )
        for partition in sorted(before - now):
            log.warning("connector %s: %s has a leader again", self._connector, partition)

    def _start(self) -> None:
        glance: Future[Snapshot] = Future()
        at = self._clock.now()

        def run() -> None:
            with self._asking:
                if self._glance is not glance:
                    return  # forgotten before it began
                try:
                    glance.set_result(take_snapshot(self._source, self._subscription, at))
                except Exception as error:  # noqa: BLE001 - whoever takes the result deals with it
                    glance.set_exception(error)

        self._glance = glance
        self._background(run)


Reset = Literal["earliest", "latest", "none"]


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


Answer = TypeVar("Answer")

_SILENCE = 5.0  # seconds after which a source that cannot be read is no passing matter
_LONGEST = 15.0  # seconds between two attempts at a source that is away; Kafka's client waits as long itself
_HEARD = 0.5  # seconds between two looks whether anybody needs the answer any more


class Horizon:
    """What one driver may read.

    Args:
        config: the connector's.
        lookout: looks at the source.
        status: told of missing topics, and kept alive while the source cannot be read.
        signal: ends the waiting for such a source.
        clock: time.
        is_fixed: whether it stays where it was at the first look: the driver ends when it is caught up.
        is_unwanted: whether the connector shall end; asked every now and then while the source is away.
    """

    def __init__(
        self,
        config: ConnectorConfig,
        lookout: SourceMonitor,
        status: StatusKeeper,
        signal: ClosingSignal,
        clock: WallClock,
        *,
        is_fixed: bool,
        is_unwanted: Callable[[], bool],
    ) -> None:
        self._is_unwanted = is_unwanted
        self._waits = Waits(
            f"connector {config.name}",
            clock,
            first=config.poll_interval_ms / 1000,
            longest=_LONGEST,
            after=_SILENCE,
        )
        self._lookout = lookout
        self._status = status
        self._signal = signal
        self._clock = clock
        self._is_fixed = is_fixed
        self._first: dict[TopicPartition, OffsetRange] | None = None
        self._is_told = False
        self._awaited: frozenset[TopicPartition] = frozenset()

    @property
    def is_known(self) -> bool:
        """Whether there was a look that left no topic in doubt."""
        return self._first is not None

    def look(self) -> dict[TopicPartition, OffsetRange]:
        """What may be read. A source that is being written to just now is asked again.

        Returns:
            Nothing while the first look has left a topic in doubt, and when the end was asked for meanwhile.

        Raises:
            MissingSourceTopicException: a topic is certainly missing.
            ConnectException: what is there cannot be read.
        """
        available = self.patiently(self._lookout.look)
        if available is None:
            return {}
        self._status.miss(self._lookout.watch.certain)
        self._status.leave_out(self._lookout.unavailable)
        alarm = self._lookout.watch.alarm()
        if alarm is not None:
            raise alarm
        if self._first is None:
            # A connector that is started again and again, and fails each time, shall not leave a file of
            # the other topics' first records behind each time.
            if self._lookout.watch.is_in_doubt:
                return {}
            self._first = available
            self._awaited = self._lookout.unavailable
        if self._is_fixed:
            # What could not be asked at first is read up to where it ends once it can be.
            answering = self._awaited & (available.keys() - self._first.keys())
            self._first |= {p: available[p] for p in answering}
            return {
                p: OffsetRange(now.start, max(now.start, self._first[p].end))
                for p, now in available.items()
                if p in self._first
            }
        return available

    def patiently(self, ask: Callable[[], Answer]) -> Answer | None:
        """What a question is answered with, asked again for as long as the answer is to try later.

        Args:
            ask: the question.

        Returns:
            None when the end, or a rebalance, was asked for meanwhile.
        """
        begun = self._clock.now()
        while True:
            try:
                answer = ask()
            except RetriableException as error:
                delay, waiting = self._waits.failed(error, since=begun)
                self._is_told = True
                self._status.wait_for(waiting)
                if not self.wait(delay):
                    return None
            else:
                self._waits.over()
                if self._is_told:  # else it may wait for something else
                    self._is_told = False
                    self._status.wait_for(None)
                return answer

    def wait(self, delay: float) -> bool:
        """Wait so many seconds, heard of meanwhile; False when the end, or a rebalance, was asked for."""
        give_up = self._clock.now() + delay
        while (left := give_up - self._clock.now()) > 0:
            if self._is_unwanted() or self._signal.wait(min(left, _HEARD)):
                return False
        return True
