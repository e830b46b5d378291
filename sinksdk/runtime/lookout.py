"""Looks at the source: at once for whoever plans, and in the background while a generation runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Self

from sinksdk.config import ConnectorConfig
from sinksdk.engine.clock import Clock
from sinksdk.errors import ConnectException, MissingSourceTopicException
from sinksdk.records import OffsetRange, TopicPartition
from sinksdk.runtime.background import Background, in_a_thread
from sinksdk.runtime.topics import Read, Sight, TopicWatch
from sinksdk.sources import Source, Subscription

log = logging.getLogger(__name__)

_GLANCE = 5  # poll intervals between two glances


def take_sight(source: Source, subscription: Subscription, at: float) -> Sight:
    """Ask a source for everything that is there; topics that are not are left out and named.

    Args:
        source: who is asked.
        subscription: for what.
        at: the moment.

    Raises:
        RetriableException: something is not readable yet.
        ConnectException: what is there cannot be read.
    """
    absent: dict[str, str] = {}
    left: Subscription | None = subscription
    while left is not None:
        try:
            partitions = source.partitions(left)
        except MissingSourceTopicException as error:
            if not any(map(left.covers, error.topics)):
                raise  # about something nobody has asked for: it would be asked the same for ever
            absent.update(dict.fromkeys(error.topics, str(error)))
            left = subscription.without(absent)
            continue
        return Sight(at, partitions, source.topic_ids(sorted({p.topic for p in partitions})), absent)
    return Sight(at, {}, {}, absent)


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
        self._source = source
        self._subscription = subscription
        self._clock = clock
        self._interval = interval
        self._background = background
        self._read = Read()
        self._ids: Mapping[str, str] = {}
        self._next = 0.0
        self._asking = threading.Lock()
        self._glance: Future[Sight] | None = None

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
        interval = _GLANCE * config.poll_interval_ms / 1000
        return cls(source, subscription, watch, clock=clock, interval=interval, background=background)

    @property
    def ids(self) -> Mapping[str, str]:
        """Ids of the topics that were there in the last look."""
        return self._ids

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
            sight = take_sight(self._source, self._subscription, self._clock.now())
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

    def _see(self, sight: Sight) -> None:
        self._ids = sight.ids
        self._next = self._clock.now() + self._interval
        self.watch.see(sight, self._read)

    def _start(self) -> None:
        glance: Future[Sight] = Future()
        at = self._clock.now()

        def run() -> None:
            with self._asking:
                if self._glance is not glance:
                    return  # forgotten before it began
                try:
                    glance.set_result(take_sight(self._source, self._subscription, at))
                except Exception as error:  # noqa: BLE001 - whoever takes the result deals with it
                    glance.set_exception(error)

        self._glance = glance
        self._background(run)
