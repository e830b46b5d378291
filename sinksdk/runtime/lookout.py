"""Looks at the source: at once for whoever plans, and in the background while a generation runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Self

from sinksdk.config import ConnectorConfig
from sinksdk.control.ends import LOOK_INTERVAL
from sinksdk.engine.clock import Clock
from sinksdk.errors import ConnectException
from sinksdk.records import OffsetRange, TopicPartition
from sinksdk.runtime.topics import Read, TopicWatch
from sinksdk.sources import Source, Subscription
from sinksdk.sources.snapshot import Snapshot, take_snapshot
from sinksdk.threads import Background, in_a_thread

log = logging.getLogger(__name__)


class Lookout:
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
