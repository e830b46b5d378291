"""Reads ranges of Kafka partitions as Arrow batches in a task."""

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

_PATIENCE: Final = 0.05  # seconds without a record until None is yielded
_AHEAD: Final = 4  # partitions fetched at a time, including the one that is read
_MOST_IDLE: Final = 2  # consumers; each has a connection and a thread for each broker
# Seconds without a record after which a range is left to the next generation. Half of what Java's clients
# wait (default.api.timeout.ms): a connector has a minute to catch up after a broker wakes.
_SILENCE: Final = 30.0
# Shorter once another range was given up, because one silent broker leads many partitions.
_SILENCE_AGAIN: Final = 10.0
# Shorter after a broker refused the client, because other brokers may accept it.
_SILENCE_REFUSED: Final = 10.0
PROPERTIES: Final[Mapping[str, str]] = {
    "isolation.level": "read_committed",
    "check.crcs": "true",  # Java's clients check CRCs by default
    "socket.timeout.ms": "15000",  # half of _SILENCE, so that a dead connection costs no range
    # Each partition that is fetched ahead has such a queue: this bounds the records in memory.
    "queued.max.messages.kbytes": "4096",
    "queued.min.messages": "50000",
    # Bytes of a compressed response, which come on top of the queued records.
    "fetch.message.max.bytes": "1048576",
    # A fetch at the log's end delays later requests to its broker by this time. While all fetched partitions
    # are at their end, these fetches take 2 % of a core, broker included.
    "fetch.wait.max.ms": "10",
    # Delay before the next fetch of a partition with a full queue; a queue lasts longer.
    "fetch.queue.backoff.ms": "5",
    # Delay before the next fetch of a partition after an error.
    "fetch.error.backoff.ms": "100",
}
_OUT_OF_RANGE: Final = frozenset({"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"})
_ALL_DOWN: Final = "_ALL_BROKERS_DOWN"
# Not refusals: librdkafka looks up a group's coordinator, although the reader is in no group.
_OF_GROUPS: Final = frozenset({"GROUP_AUTHORIZATION_FAILED", "INVALID_GROUP_ID"})


@dataclass(frozen=True, slots=True)
class KafkaReader:
    client: KafkaClient

    def of(self, partitions: Collection[TopicPartition]) -> KafkaReader:  # noqa: ARG002 - one reader serves all
        return self

    def read(
        self,
        ranges: Mapping[TopicPartition, OffsetRange],
        columns: Collection[str],
        overrides: Mapping[str, str],
    ) -> Generator[SinkRecords | Unread | None]:
        properties = {**PROPERTIES, **self.client.librdkafka(overrides)}
        with ExitStack() as stack:
            lent = stack.enter_context(_CONSUMERS.lend(properties))
            reading = Reading(lent.consumer, self.client.bootstrap_servers, ranges, columns)
            for item in stack.enter_context(closing(reading.items())):
                # The client itself may be stuck, as after a topic was created again.
                lent.is_sound = lent.is_sound and not isinstance(item, Unread)
                yield item


@dataclass(slots=True)
class _Silence:
    """Seconds since the last record or transaction marker, and errors of the client since then."""

    seconds: float = 0.0
    longest: float = _SILENCE
    last_error: str = ""
    refusal: str = ""

    def end(self) -> None:
        self.seconds, self.refusal = 0.0, ""


class Reading:
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
        self._position = -1  # the consumer's position in the partition that is read

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
        """Return whether a transaction has ended: for an aborted one, only the position changes."""
        before, self._position = self._position, self._consumer.position(partition)
        return self._position != before

    def _problem(
        self, partition: TopicPartition, offsets: OffsetRange, at: int, event: Event | None
    ) -> ConnectException | None:
        where = f"{partition} at offset {at} of {offsets}"
        if event is not None and not event.is_end_of_partition:
            error = event.error
            if error.name() in _OUT_OF_RANGE:
                return OffsetOutOfRangeException(
                    f"{where}: the Kafka cluster at {self._cluster} no longer has that offset: {error.str()}"
                )
            if not error.retriable():
                return ConnectException(f"{where} cannot be read: {error.str()} ({error.name()})")
            self._silence.last_error = f"{error.str()} ({error.name()})"
        silence = self._silence
        for error in self._consumer.errors():
            silence.last_error = f"{error.str()} ({error.name()})"
            if error.fatal():
                raise RetriableException(f"{where}: the Kafka client failed: {silence.last_error}")
            if not (error.retriable() or error.name() in _OF_GROUPS):
                silence.refusal = silence.last_error
        if silence.refusal and silence.seconds >= _SILENCE_REFUSED:
            return ConnectException(
                f"{where}: the Kafka cluster at {self._cluster} refuses the client: {silence.refusal}; check "
                f"the client properties and the user's rights"
            )
        if silence.seconds < silence.longest:
            return None
        waited, silence.longest = silence.longest, _SILENCE_AGAIN
        reason = f"; the last error was: {silence.last_error}" if silence.last_error else ""
        return RetriableException(
            f"{where}: the Kafka cluster at {self._cluster} has sent nothing for {waited:g} s{reason}"
        )


@dataclass(slots=True)
class _Lent:
    consumer: Consumer
    is_sound: bool = True


class _Consumers:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[tuple[tuple[str, str], ...], Consumer] = {}

    @contextmanager
    def lend(self, properties: Mapping[str, str]) -> Iterator[_Lent]:
        key = tuple(sorted(properties.items()))
        with self._lock:
            consumer = self._idle.pop(key, None)
        if consumer is not None and any(error.name() == _ALL_DOWN for error in consumer.errors()):
            # The idle client has lost every broker, possibly for good (confluentinc/librdkafka#5301).
            start_thread(consumer.close, "kafka-close")
            consumer = None
        consumer = consumer or Consumer(properties)
        lent = _Lent(consumer)
        try:
            yield lent
        except BaseException as error:
            is_close_request = isinstance(error, GeneratorExit)
            lent.is_sound = lent.is_sound and is_close_request
            raise
        finally:
            surplus = [] if lent.is_sound else [consumer]
            with self._lock:
                if lent.is_sound:
                    surplus += filter(None, [self._idle.pop(key, None)])
                    self._idle[key] = consumer
                while len(self._idle) > _MOST_IDLE:
                    surplus.append(self._idle.pop(next(iter(self._idle))))
            for each in surplus:
                start_thread(each.close, "kafka-close")  # closing may wait for the look-up of a broker's name


_CONSUMERS: Final = _Consumers()
