"""End offsets of a connector's source and times of its commits, kept in the store in every state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Final

from sinksdk.engine.clock import WallClock
from sinksdk.errors import ConnectException
from sinksdk.offsets import TopicPartition
from sinksdk.store import Store, table
from sinksdk.store.keys import ends_key
from sinksdk.store.reports import ConnectorEnds
from sinksdk.support.threads import Background, in_a_thread

log = logging.getLogger(__name__)

QUERY_INTERVAL: Final = 2.0  # seconds between two queries of the source while nothing is planned

# End offsets count as unknown if the last query that succeeded began so many seconds longer ago than the
# interval between queries.
LATE: Final = 10.0

_WRITE_INTERVAL: Final = 1.0  # seconds between two writes to a store with fast requests

Ends = Mapping[TopicPartition, int]  # the offset after each partition's last record


class EndsKeeper:
    """Keeps end offsets and commit times in memory and, when they change, in the store."""

    def __init__(self, store: Store, connector: str, clock: WallClock) -> None:
        self._row = table.OwnRow(store, ends_key(connector), ConnectorEnds)
        self._connector = connector
        self._clock = clock
        self._interval = max(_WRITE_INTERVAL, store.closing_poll / 2)
        self._next = clock.now()
        self._ends: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] | None = None
        self._committed_at: dict[TopicPartition, float] = {}
        self._unknown_since: float | None = None
        self._is_news = False

    def catch_up(self) -> None:
        try:
            before = self._row.read() or ConnectorEnds()
        except ConnectException as error:
            log.info("connector %s: cannot read its end offsets from the store: %s", self._connector, error)
            return
        self._ends = before.ends_by_partition() | self._ends
        self._committed_at = before.committed_at_by_partition() | self._committed_at
        self._unknown_since = before.unknown_since

    def update(self, ends: Ends) -> None:
        if self._unknown_since is not None:
            self._unknown_since = None
            self._is_news = True
        if any(self._ends.get(partition) != end for partition, end in ends.items()):
            self._ends |= ends
            self._is_news = True

    def mark_unknown(self, seconds: float) -> None:
        """Mark the end offsets as unknown: the source has not responded for this long."""
        if self._unknown_since is None:
            self._unknown_since = self._clock.time() - seconds
            self._is_news = True

    def committed(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        known = {partition: offset for partition, offset in offsets.items() if offset is not None}
        if self._committed is None:
            self._committed = known
            return
        now = self._clock.time()
        for partition, offset in known.items():
            if self._committed.get(partition) != offset:
                self._committed[partition] = offset
                self._committed_at[partition] = now
                self._is_news = True

    def save_if_due(self) -> None:
        if self._clock.now() >= self._next:
            self.save()

    def save(self) -> None:
        if not self._is_news:
            return
        self._next = self._clock.now() + self._interval
        try:
            self._row.write(ConnectorEnds.of(self._ends, self._committed_at, self._unknown_since))
        except ConnectException as error:
            log.info("connector %s: cannot write its end offsets to the store: %s", self._connector, error)
        else:
            self._is_news = False


class EndsWatch:
    """Queries the source, in the background, while no driver runs the connector."""

    def __init__(
        self,
        read_ends: Callable[[], Ends],
        keeper: EndsKeeper,
        clock: WallClock,
        background: Background = in_a_thread,
    ) -> None:
        self._read_ends = read_ends
        self._keeper = keeper
        self._clock = clock
        self._background = background
        self._next = self._began = self._seen_at = clock.now()
        self._running: Future[Ends] | None = None

    def query_if_due(self) -> None:
        """Take the last query's result, and begin another query when due; never block."""
        if self._running is not None and self._running.done():
            running, self._running = self._running, None
            self._next = self._clock.now() + QUERY_INTERVAL
            error = running.exception()
            if error is None:
                self._seen_at = self._began
                self._keeper.update(running.result())
            else:
                self._keeper.mark_unknown(self._clock.now() - self._seen_at)
                log.info("the end offsets of the source are unknown, retrying: %s", error)
        elif self._clock.now() - self._seen_at > QUERY_INTERVAL + LATE:
            self._keeper.mark_unknown(self._clock.now() - self._seen_at)
        if self._running is None and self._clock.now() >= self._next:
            query: Future[Ends] = Future()
            self._running, self._began = query, self._clock.now()
            self._background(lambda: _run(query, self._read_ends))
        self._keeper.save_if_due()


def _run(query: Future[Ends], read_ends: Callable[[], Ends]) -> None:
    try:
        query.set_result(read_ends())
    except Exception as error:  # noqa: BLE001 - raised by result()
        query.set_exception(error)
