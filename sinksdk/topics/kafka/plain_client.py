"""A client on confluent-kafka's public consumer, for installations without the compiled module."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import add
from typing import Any, Final, TypeAlias

import confluent_kafka
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message

from sinksdk.offsets import TopicPartition
from sinksdk.records import NO_TIMESTAMP, RECORD_COLUMNS
from sinksdk.topics.kafka.messages import (
    BAD_MESSAGE,
    MOST_MESSAGES,
    Event,
    Fill,
    Filled,
    PropertiesError,
    Refusal,
    kafka_error,
)

_Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
_BAD_KEY: Final = (
    "the record has a header key that is not UTF-8, which confluent-kafka cannot read: install sinksdk "
    "from a wheel that has its compiled modules"
)


# One partition is fetched at a time, because the public consumer has one queue for all. It fails on a header
# key that is not UTF-8, and returns no headers if they are malformed.
class PlainClient:
    def __init__(
        self,
        properties: Mapping[str, str],
        open_consumer: Callable[[dict[str, Any]], Any] = confluent_kafka.Consumer,
    ) -> None:
        self._errors: list[KafkaError] = []
        self._offsets: dict[TopicPartition, int] = {}
        self._assigned: TopicPartition | None = None
        self._held: deque[Any] = deque()  # messages taken from librdkafka and not returned yet
        try:
            self._consumer = open_consumer({**properties, "error_cb": self._errors.append})
        except KafkaException as error:
            raise PropertiesError(None, error.args[0].str()) from None

    def add(self, offsets: Mapping[TopicPartition, int]) -> Refusal | None:
        if twice := offsets.keys() & self._offsets.keys():
            return Refusal(f"{min(twice)} is already added", is_retriable=False)
        self._offsets |= offsets
        return None

    def remove(self, partitions: Collection[TopicPartition]) -> Refusal | None:
        if unknown := set(partitions) - self._offsets.keys():
            return Refusal(f"{min(unknown)} is not added", is_retriable=False)
        if self._assigned in partitions:
            self._unassign()
        for partition in partitions:
            del self._offsets[partition]
        return None

    def fill(self, partition: TopicPartition, order: Fill) -> Filled:
        if self._assigned != partition:
            self._unassign()
            row = confluent_kafka.TopicPartition(*partition, self._offsets[partition])
            self._consumer.incremental_assign([row])
            self._assigned = partition
        return self._fill(partition, order)

    def position(self, partition: TopicPartition) -> int:
        (row,) = self._consumer.position([confluent_kafka.TopicPartition(*partition)])
        return int(row.offset)

    def errors(self) -> list[KafkaError]:
        self._held += self._consumer.consume(1, 0)  # this call also calls error_cb
        found = [kafka_error(each.code(), each.str(), is_fatal=each.fatal()) for each in self._errors]
        self._errors.clear()
        return found

    def close(self) -> None:
        self._consumer.close()

    def _unassign(self) -> None:
        if self._assigned is not None:
            self._consumer.incremental_unassign([confluent_kafka.TopicPartition(*self._assigned)])
            self._assigned = None
            self._held.clear()

    def _fill(self, partition: TopicPartition, order: Fill) -> Filled:  # noqa: C901, PLR0912 - step by step as in _messages.c
        columns = ["offset", *(name for name in RECORD_COLUMNS if name != "offset" and name in order.columns)]
        rows: list[Sequence[Any]] = []
        sums: Sequence[int] = (0, 0, 0, 0, 0)  # sums of the weights of the messages in ``rows``
        size = 0  # bytes of keys, values and wanted headers
        following, is_end, event = None, False, None
        is_empty = False  # librdkafka had fewer messages than were requested
        while not (event or is_end) and len(rows) < order.max_rows and (not rows or size < order.max_bytes):
            if not self._held:
                if is_empty:
                    break
                count = _portion(len(rows), size, order)
                self._held += self._consumer.consume(count, 0 if rows else order.timeout_ms / 1000)
                is_empty = len(self._held) < count
                if not self._held:
                    break
            message = self._held[0]
            offset: int = message.offset()
            error = message.error()
            if error is not None:
                event = Event(kafka_error(error.code(), error.str()), offset)
                if event.is_end_of_partition:
                    following, is_end = offset, offset >= order.end
            elif offset >= order.end:
                return Filled(_batch(columns, rows), order.end, is_end=True, event=None)
            else:
                try:
                    headers = (message.headers() or ()) if "headers" in columns else ()
                except (SystemError, UnicodeDecodeError):
                    event = Event(kafka_error(BAD_MESSAGE, _BAD_KEY), offset)
                else:
                    more = tuple(map(add, sums, _weights(message, headers)))
                    if max(more) <= order.limit:
                        rows.append(_row(message, headers, columns))
                        sums, size = more, sum(more[:4])
                        following, is_end = offset + 1, offset + 1 >= order.end
                    elif rows:
                        break
                    else:
                        event = Event(kafka_error(BAD_MESSAGE), offset)
            self._held.popleft()
            if error is None:
                self._offsets[partition] = offset + 1
        return Filled(_batch(columns, rows), following, is_end, event)


def _portion(rows: int, size: int, order: Fill) -> int:
    if not rows:
        return 1  # the request for more would wait until the time-out
    each = size // rows  # further messages are assumed to have the average size
    return min(
        MOST_MESSAGES,
        order.max_rows - rows,
        (order.max_bytes - size) // each + 1 if each else MOST_MESSAGES,
    )


def _weights(message: Message, headers: _Headers) -> Sequence[int]:
    key, value = len(message.key() or b""), len(message.value() or b"")
    if not headers:
        return key, value, 0, 0, 0
    names = sum([len(name.encode()) for name, _ in headers])
    items = sum([len(item or b"") for _, item in headers])
    return key, value, names, items, len(headers)


def _row(message: Message, headers: _Headers, columns: Collection[str]) -> Sequence[Any]:
    kind, time = message.timestamp()  # kind is 0 for none, 1 for create time, 2 for log append time
    values = {
        "offset": message.offset(),
        "timestamp": time if kind else NO_TIMESTAMP,
        "timestampType": kind - 1,
        "key": message.key(),
        "value": message.value(),
        "headers": headers or None,
    }
    return [values[name] for name in columns]


def _batch(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> pa.RecordBatch | None:
    if not rows:
        return None
    arrays = [
        pa.array(values, RECORD_COLUMNS[name])
        for name, values in zip(columns, zip(*rows, strict=True), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))
