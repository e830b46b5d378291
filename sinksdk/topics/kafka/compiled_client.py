"""The client of ``_messages.c``: librdkafka's messages as Arrow record batches."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaError, cimpl

from sinksdk.offsets import TopicPartition
from sinksdk.records import HEADERS_TYPE, RECORD_COLUMNS
from sinksdk.topics.kafka import _messages
from sinksdk.topics.kafka.messages import Event, Fill, Filled, PropertiesError, Refusal, kafka_error

_BITS: Final = {"timestamp": 1, "timestampType": 2, "key": 4, "value": 8, "headers": 16}


@cache
def _functions() -> tuple[int, ...]:
    library = ctypes.CDLL(cimpl.__file__)  # confluent-kafka's wheel has loaded this librdkafka
    found = (ctypes.cast(library[name], ctypes.c_void_p).value for name in _messages.FUNCTIONS)
    return tuple(address or 0 for address in found)


# Bytes of header keys that are not UTF-8 become U+FFFD. librdkafka cuts a key at a zero byte.
class CompiledClient:
    # Each partition has its own queue, so that others are fetched ahead while one is read.
    def __init__(self, properties: Mapping[str, str], functions: tuple[int, ...] | None = None) -> None:
        own = {name: str(value) for name, value in properties.items()}
        try:
            self._consumer = _messages.Consumer(functions or _functions(), own)
        except ValueError as error:
            name, reason = error.args
            raise PropertiesError(name, _decoded(reason)) from None

    def add(self, offsets: Mapping[TopicPartition, int]) -> Refusal | None:
        return _refusal(self._consumer.add([(*partition, at) for partition, at in offsets.items()]))

    def remove(self, partitions: Collection[TopicPartition]) -> Refusal | None:
        return _refusal(self._consumer.remove([(*partition, 0) for partition in partitions]))

    def fill(self, partition: TopicPartition, order: Fill) -> Filled:
        bits = sum(bit for name, bit in _BITS.items() if name in order.columns)
        rows, items, following, is_end, event, nulls, buffers = self._consumer.fill(
            *partition, *order[:4], bits, order.limit, pa.allocate_buffer
        )
        batch = _batch(rows, items, Nulls(*nulls), Buffers(*buffers)) if rows else None
        if event is not None:
            code, offset, text = event
            event = Event(kafka_error(code, _decoded(text)), offset)
        return Filled(batch, following, is_end, event)

    def position(self, partition: TopicPartition) -> int:
        return self._consumer.position(*partition)

    def errors(self) -> list[KafkaError]:
        return [
            kafka_error(code, _decoded(text), is_fatal=is_fatal)
            for code, text, is_fatal in self._consumer.errors()
        ]

    def close(self) -> None:
        self._consumer.close()


def _refusal(found: tuple[bytes, bool] | None) -> Refusal | None:
    return found and Refusal(_decoded(found[0]), found[1])


def _decoded(text: bytes | None) -> str:
    return (text or b"").decode("utf-8", "replace")


class Nulls(NamedTuple):  # number of nulls in each column
    key: int
    value: int
    list: int
    item: int


class Buffers(NamedTuple):
    """Arrow's buffers, in the order in which the C loop returns them; None for an unwanted column.

    ``valid`` are bits. ``ends`` are where values end, with a zero in front. ``list_ends`` assigns headers to
    rows.
    """

    offset: Any
    timestamp: Any
    kind: Any
    key_valid: Any
    key_ends: Any
    key: Any
    value_valid: Any
    value_ends: Any
    value: Any
    list_valid: Any
    list_ends: Any
    name_ends: Any
    name: Any
    item_valid: Any
    item_ends: Any
    item: Any


def _batch(rows: int, items: int, nulls: Nulls, of: Buffers) -> pa.RecordBatch:
    found: dict[str, pa.Array] = {"offset": _array(pa.int64(), rows, 0, None, of.offset)}
    for column, missing, valid, *content in (
        ("timestamp", 0, None, of.timestamp),
        ("timestampType", 0, None, of.kind),
        ("key", nulls.key, of.key_valid, of.key_ends, of.key),
        ("value", nulls.value, of.value_valid, of.value_ends, of.value),
    ):
        if content[0] is not None:
            found[column] = _array(RECORD_COLUMNS[column], rows, missing, valid, *content)
    if of.list_ends is not None:
        children = [
            _names(items, of.name_ends, of.name),
            _array(pa.binary(), items, nulls.item, of.item_valid, of.item_ends, of.item),
        ]
        headers = pa.Array.from_buffers(HEADERS_TYPE.value_type, items, [None], 0, children=children)
        bits = of.list_valid if nulls.list else None
        found["headers"] = pa.Array.from_buffers(
            HEADERS_TYPE, rows, [bits, of.list_ends], nulls.list, children=[headers]
        )
    return pa.RecordBatch.from_arrays(list(found.values()), names=list(found))


def _array(kind: pa.DataType, rows: int, nulls: int, bits: Any, *content: Any) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [bits if nulls else None, *content], nulls)


def _names(items: int, ends: pa.Buffer, names: pa.Buffer) -> pa.Array:
    found = pa.Array.from_buffers(pa.string(), items, [None, ends, names], 0)
    if names.to_pybytes().isascii():
        return found
    try:
        found.validate(full=True)
    except pa.ArrowInvalid:
        rows = pa.Array.from_buffers(pa.binary(), items, [None, ends, names], 0).to_pylist()
        return pa.array([row.decode("utf-8", "replace") for row in rows], pa.string())
    return found
