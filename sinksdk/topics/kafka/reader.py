"""Records of Kafka partitions as Arrow batches, read in a task."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Final

from sinksdk.engine.task_run import Unread
from sinksdk.errors import ConnectException, OffsetOutOfRangeException, RetriableException
from sinksdk.offsets import OffsetRange, TopicPartition
from sinksdk.records import SinkRecords
from sinksdk.support.threads import start_thread
from sinksdk.topics.base import BATCH_BYTES, BATCH_ROWS
from sinksdk.topics.kafka.client import KafkaClient
from sinksdk.topics.kafka.consumer import Consumer
from sinksdk.topics.kafka.messages import Event

_PATIENCE: Final = 0.05  # seconds without a record until None is given
_AHEAD: Final = 4  # partitions that are fetched at a time, the one that is read included
_KEPT: Final = 2  # idle consumers; each has a connection and a thread for each broker
# Seconds without a record until a range is left to the next generation, with a new client. Half of what
# Java's clients wait (default.api.timeout.ms): a connector has a minute to catch up after a broker's wake.
_SILENCE: Final = 30.0
_SILENT_AGAIN: Final = 10.0  # the same, once another range has had all of it: a broker leads many partitions
_REFUSED: Final = 10.0  # the same, once the client as a whole was refused something: others may let it in
PROPERTIES: Final[Mapping[str, str]] = {
    "isolation.level": "read_committed",
    "check.crcs": "true",  # as Java's clients do
    "socket.timeout.ms": "15000",  # a dead connection costs no range then, which has twice as long
    # Of each partition that is fetched ahead: with the others, what a task's worker holds of records.
    "queued.max.messages.kbytes": "4096",
    "queued.min.messages": "50000",
    # Before it is uncompressed, and on top of what is queued by then.
    "fetch.message.max.bytes": "1048576",
    # A fetch at the log's end is answered after so long, and what is asked meanwhile waits behind it. While
    # only partitions that were read to their end ahead are asked for, that is 2 % of a core, broker included.
    "fetch.wait.max.ms": "10",
    # Delay before the next fetch of a partition with a full queue; a queue lasts longer.
    "fetch.queue.backoff.ms": "5",
    # Delay before the next fetch of a partition after an error.
    "fetch.error.backoff.ms": "100",
}
"""Of the reader's consumers, in librdkafka's words; a connector's configuration may override them."""
_LOST: Final = frozenset({"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"})
_ALL_DOWN: Final = "_ALL_BROKERS_DOWN"
_OF_GROUPS: Final = frozenset({"GROUP_AUTHORIZATION_FAILED", "INVALID_GROUP_ID"})
"""Errors that a reader ignores: librdkafka looks up a group's coordinator even without a group."""


@dataclass(frozen=True, slots=True)
class KafkaReader:
    """Reads ranges of one cluster's partitions, by default up to the last stable offset.

    A :class:`~sinksdk.topics.base.Reader`. Its consumer is kept for the next generation of this process.
    """

    client: KafkaClient

    def of(self, partitions: Collection[TopicPartition]) -> KafkaReader:  # noqa: ARG002 - whichever they are
        return self

    def read(
        self,
        ranges: Mapping[TopicPartition, OffsetRange],
        columns: Collection[str],
        overrides: Mapping[str, str],
    ) -> Generator[SinkRecords | Unread | None]:
        """Raises ConfigException: librdkafka does not accept the properties."""
        properties = {**PROPERTIES, **self.client.librdkafka(overrides)}
        with ExitStack() as stack:
            lent = stack.enter_context(_CONSUMERS.lend(properties))
            reading = Reading(lent.consumer, self.client.bootstrap_servers, ranges, columns)
            for item in stack.enter_context(closing(reading.items())):
                # It may be the client itself that gets no further, as with a topic that was created again.
                lent.is_sound = lent.is_sound and not isinstance(item, Unread)
                yield item


@dataclass(slots=True)
class _Silence:
    """Seconds since a record or the end of a transaction arrived, and the client's last error since."""

    seconds: float = 0.0
    longest: float = _SILENCE
    complaint: str = ""
    refusal: str = ""

    def end(self) -> None:
        self.seconds, self.refusal = 0.0, ""


class Reading:
    """Reads ranges one after the other, while the next few partitions are fetched.

    Args:
        consumer: one without partitions.
        cluster: its address, for messages.
        clock: seconds on a clock that never jumps.
    """

    def __init__(
        self,
        consumer: Consumer,
        cluster: str,
        ranges: Mapping[TopicPartition, OffsetRange],
        columns: Collection[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._consumer = consumer
        self._cluster = cluster
        self._columns = columns
        self._clock = clock
        self._ahead: deque[TopicPartition] = deque()
        self._ranges = {p: offsets for p, offsets in ranges.items() if offsets.start < offsets.end}
        self._waiting = iter(self._ranges)
        self._silence = _Silence()
        self._position = -1  # of the partition that is read, as the consumer has it

    def items(self) -> Generator[SinkRecords | Unread | None]:
        try:
            self._fetch_ahead()
            while self._ahead:
                partition = self._ahead[0]
                yield from self._read(partition, self._ranges[partition])
                self._consumer.remove([partition])
                self._ahead.popleft()
                self._fetch_ahead()
        except GeneratorExit:
            self._consumer.remove(self._ahead)
            raise

    def _fetch_ahead(self) -> None:
        more = list(islice(self._waiting, _AHEAD - len(self._ahead)))
        if more:
            self._consumer.add({partition: self._ranges[partition].start for partition in more})
            self._ahead += more

    def _read(self, partition: TopicPartition, offsets: OffsetRange) -> Iterator[SinkRecords | Unread | None]:
        """One range, to its end or as far as it goes."""
        at = offsets.start
        self._silence.seconds, self._position = 0.0, self._consumer.position(partition)
        while True:
            began = self._clock()
            filled = self._consumer.fill(
                partition,
                timeout=_PATIENCE,
                end=offsets.end,
                max_rows=BATCH_ROWS,
                max_bytes=BATCH_BYTES,
                columns=self._columns,
            )
            self._silence.seconds += self._clock() - began
            at = at if filled.next is None else filled.next
            if filled.batch is not None:
                self._silence.end()
                yield SinkRecords(partition, filled.batch)
            elif self._has_moved(partition):
                self._silence.end()
            if filled.is_end:
                return
            problem = self._problem(partition, offsets, at, filled.event)
            if problem is not None:
                yield Unread(partition, problem)
                return
            if filled.batch is None:
                yield None

    def _has_moved(self, partition: TopicPartition) -> bool:
        """Whether the end of a transaction came: of aborted records nothing else is seen."""
        before, self._position = self._position, self._consumer.position(partition)
        return self._position != before

    def _problem(
        self, partition: TopicPartition, offsets: OffsetRange, at: int, event: Event | None
    ) -> ConnectException | None:
        """Why a range cannot be read any further, if so."""
        where = f"{partition} at offset {at} of {offsets}"
        if event is not None and not event.is_end_of_partition:
            error = event.error
            if error.name() in _LOST:
                return OffsetOutOfRangeException(
                    f"{where}: the Kafka cluster at {self._cluster} has not got that offset any more: "
                    f"{error.str()}"
                )
            if not error.retriable():
                return ConnectException(f"{where} cannot be read: {error.str()} ({error.name()})")
            self._silence.complaint = f"{error.str()} ({error.name()})"
        silence = self._silence
        for error in self._consumer.errors():
            silence.complaint = f"{error.str()} ({error.name()})"
            if error.fatal():
                raise RetriableException(f"{where}: the Kafka client has ended: {silence.complaint}")
            if not (error.retriable() or error.name() in _OF_GROUPS):
                silence.refusal = silence.complaint
        if silence.refusal and silence.seconds >= _REFUSED:
            return ConnectException(
                f"{where}: the Kafka cluster at {self._cluster} cannot be read: {silence.refusal}; check the "
                f"client properties and the user's rights"
            )
        if silence.seconds < silence.longest:
            return None
        waited, silence.longest = silence.longest, _SILENT_AGAIN
        said = f"; the last that was heard: {silence.complaint}" if silence.complaint else ""
        return RetriableException(
            f"{where}: the Kafka cluster at {self._cluster} has sent nothing for {waited:g} s{said}"
        )


@dataclass(slots=True)
class _Lent:
    """A consumer in use.

    Args:
        is_sound: whether it may be used again.
    """

    consumer: Consumer
    is_sound: bool = True


class _Consumers:
    """A process's idle consumers: one each of the last few sets of properties."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[tuple[tuple[str, str], ...], Consumer] = {}

    @contextmanager
    def lend(self, properties: Mapping[str, str]) -> Iterator[_Lent]:
        """A consumer without partitions; it is kept if it is sound, unless the block raises."""
        key = tuple(sorted(properties.items()))
        with self._lock:
            consumer = self._idle.pop(key, None)
        if consumer is not None and any(error.name() == _ALL_DOWN for error in consumer.errors()):
            # While it was idle it lost every broker, maybe for good (confluentinc/librdkafka#5301).
            _close_aside(consumer)
            consumer = None
        consumer = consumer or Consumer(properties)
        lent = _Lent(consumer)
        try:
            yield lent
        except BaseException as error:
            is_asked_to_close = isinstance(error, GeneratorExit)
            lent.is_sound = lent.is_sound and is_asked_to_close
            raise
        finally:
            surplus = [] if lent.is_sound else [consumer]
            with self._lock:
                if lent.is_sound:
                    surplus += filter(None, [self._idle.pop(key, None)])
                    self._idle[key] = consumer
                while len(self._idle) > _KEPT:
                    surplus.append(self._idle.pop(next(iter(self._idle))))
            for each in surplus:
                _close_aside(each)


def _close_aside(consumer: Consumer) -> None:
    """Close a consumer in a thread: that may take as long as a look-up of a broker's name."""
    start_thread(consumer.close, "kafka-close")


_CONSUMERS: Final = _Consumers()
