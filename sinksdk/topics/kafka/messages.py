"""Messages of librdkafka as Arrow record batches.

The loop over messages is compiled (``_messages.c``) where a wheel brings it or a compiler was there; else
:func:`plain_loop` does the same, slower. Both return the same batches.

Header keys are Kafka's strings, and so should be UTF-8: each part that is not becomes U+FFFD, as with
Python's ``replace``. librdkafka cuts a key at a zero byte.
"""

from __future__ import annotations

import ctypes
import logging
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from operator import add
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
from confluent_kafka import KafkaError

from sinksdk.records import HEADERS_TYPE, NO_TIMESTAMP, RECORD_COLUMNS
from sinksdk.topics.kafka.rdkafka import (
    CONSUME,
    DESTROY,
    HEADER,
    HEADERS,
    HELD,
    TIMESTAMP,
    Functions,
    Held,
    Message,
    PartitionQueue,
    as_error,
)

log = logging.getLogger(__name__)
END_OF_PARTITION: Final[int] = KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka's name for it
_NO_HEADERS: Final[int] = KafkaError._NOENT  # noqa: SLF001 - the same
_BAD_MESSAGE: Final[int] = KafkaError._BAD_MSG  # noqa: SLF001 - the same
_LIMIT: Final = 2**31 - 1  # bytes in a column, and headers in a batch: Arrow counts them in 32 bits
_LONGEST: Final = 2**31 - 1  # milliseconds
_BITS: Final = {"timestamp": 1, "timestampType": 2, "key": 4, "value": 8, "headers": 16}


class Order(NamedTuple):
    """The arguments of a loop over messages; those without a word here are as of :func:`fill`.

    Args:
        held: address of the queue's :class:`~sinksdk.topics.kafka.rdkafka.Held`.
        columns: bits of those that are wanted.
        limit: bytes that a column may have, and headers a batch.
        allocate: makes a buffer of so many bytes.
    """

    functions: Functions
    queue: int
    held: int
    timeout_ms: int
    end: int
    max_rows: int
    max_bytes: int
    columns: int
    limit: int
    allocate: Callable[[int], Any]


class Event(NamedTuple):
    """The end of the partition, or an error; ``offset`` is below 0 if it has none."""

    error: KafkaError
    offset: int

    @property
    def is_end_of_partition(self) -> bool:
        return self.error.code() == END_OF_PARTITION


@dataclass(frozen=True, slots=True)
class Filled:
    """What one call has read of a partition.

    Args:
        batch: columns as in :data:`sinksdk.records.RECORD_COLUMNS`; None without rows.
        next: where to read on: the offset after the last row; ``end`` once no row before it can be missing;
            or the end of the partition. None: nothing came.
        is_end: the range is complete.
        event: what came after the rows; reported once.
    """

    batch: pa.RecordBatch | None
    next: int | None
    is_end: bool
    event: Event | None


Loop: TypeAlias = Callable[[Order], Filled]


def fill(
    queue: PartitionQueue,
    *,
    timeout: float,
    end: int,
    max_rows: int,
    max_bytes: int,
    columns: Collection[str] = RECORD_COLUMNS,
    loop: Loop | None = None,
) -> Filled:
    """Read records of one partition: wait for the first, then take what is there.

    It stops at any limit, at the end of the range, and at an event. A message at or after ``end`` stays
    with the queue: a later call with a higher ``end`` begins with it. Other threads run meanwhile.

    Args:
        timeout: seconds to wait for the first message.
        end: the offset after the last one that is wanted.
        max_bytes: of keys, values and wanted headers; the row that reaches it is the last one.
        columns: those to copy; ``offset`` always is.
        loop: by default the fastest there is.

    Returns:
        The rows and what is known of the range. Rows end before a column has more bytes than Arrow can count;
        a message that alone has more, or whose headers cannot be read, is an event, and gone from the queue.

    Raises:
        ValueError: a limit below 1, or a column that records do not have.
        RuntimeError: the queue is closed, or was made before this process was forked.
        MemoryError: messages that were taken are lost; add the partition again.
    """
    if max_rows < 1 or max_bytes < 1:
        raise ValueError(f"a batch holds at least a row and a byte: {max_rows} rows, {max_bytes} bytes")
    if unknown := set(columns) - RECORD_COLUMNS.keys():
        raise ValueError(f"records have no column {', '.join(sorted(unknown))}")
    bits = sum(bit for name, bit in _BITS.items() if name in columns)
    wait = min(math.ceil(max(timeout, 0) * 1000), _LONGEST)
    with queue.use() as held:
        order = Order(
            functions=queue.functions,
            queue=queue.address,
            held=held,
            timeout_ms=wait,
            end=end,
            max_rows=max_rows,
            max_bytes=max_bytes,
            columns=bits,
            limit=_LIMIT,
            allocate=pa.allocate_buffer,
        )
        return (loop or LOOP)(order)


# -- the loop in Python ------------------------------------------------------------------------------


Headers: TypeAlias = Sequence[tuple[bytes, bytes | None]]


class _Calls:
    """The functions as callables, with the variables they write to."""

    def __init__(self, functions: Functions) -> None:
        self.consume = CONSUME(functions.consume)
        self.destroy = DESTROY(functions.destroy)
        self._timestamp = TIMESTAMP(functions.timestamp)
        self._headers = HEADERS(functions.headers)
        self._header = HEADER(functions.header)

        self._kind, self._found, self._name = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_char_p()
        self._value, self._size = ctypes.c_void_p(), ctypes.c_size_t()

    def timestamp_of(self, address: int) -> tuple[int, int]:
        """Milliseconds, and 0 for none, 1 create time, 2 log append time."""
        return self._timestamp(address, self._kind), self._kind.value

    def headers_of(self, address: int) -> tuple[Headers, int]:
        """Keys and values, and why they cannot be read, or 0."""
        found: list[tuple[bytes, bytes | None]] = []
        code: int = self._headers(address, self._found)
        while not code:
            code = self._header(self._found, len(found), self._name, self._value, self._size)
            if not code:
                found.append((self._name.value or b"", _content(self._value.value, self._size.value)))
        return found, 0 if code == _NO_HEADERS else code


def plain_loop(order: Order) -> Filled:  # noqa: C901 - step by step as the one in C
    """What ``_messages.c`` does, without a compiler."""
    call = _Calls(order.functions)
    held = Held.from_address(order.held)
    columns = ["offset", *(name for name, bit in _BITS.items() if order.columns & bit)]
    wants_time = "timestamp" in columns or "timestampType" in columns
    rows: list[Sequence[Any]] = []
    sums: Sequence[int] = (0, 0, 0, 0, 0)  # as of _weights
    size = 0  # bytes of keys, values and wanted headers
    following, is_end, event = None, False, None
    is_empty = False  # the queue had fewer messages than were asked for
    while len(rows) < order.max_rows and (not rows or size < order.max_bytes):
        if held.first == held.last:
            if is_empty:
                break
            count = _portion(len(rows), size, order.max_rows, order.max_bytes)
            wait = 0 if rows else order.timeout_ms
            given = call.consume(order.queue, wait, order.held + Held.messages.offset, count)
            held.first, held.last = 0, max(given, 0)
            if not held.last:
                break
            is_empty = given < count
        address: int = held.messages[held.first]
        message = Message.from_address(address)
        offset: int = message.offset
        if message.err:
            event = Event(as_error(message.err, _content(message.payload, message.len)), offset)
            if event.is_end_of_partition:
                following, is_end = offset, offset >= order.end
        elif offset >= order.end:
            following, is_end = order.end, True
            break
        else:
            headers, code = call.headers_of(address) if "headers" in columns else ((), 0)
            more = tuple(map(add, sums, _weights(message, headers)))
            if not code and max(more) <= order.limit:
                time = call.timestamp_of(address) if wants_time else (0, 0)
                rows.append(_row(message, time, headers, columns))
                sums, size = more, sum(more[:4])
                following, is_end = offset + 1, offset + 1 >= order.end
            elif code or not rows:
                event = Event(as_error(code or _BAD_MESSAGE), offset)
            else:
                break
        held.first += 1
        call.destroy(address)
        if event or is_end:
            break
    arrays = [
        pa.array(values, RECORD_COLUMNS[name])
        for name, values in zip(columns, zip(*rows, strict=True), strict=False)
    ]
    batch = pa.RecordBatch.from_arrays(arrays, names=columns) if rows else None
    return Filled(batch, following, is_end, event)


def _content(address: int | None, length: int) -> bytes | None:
    return ctypes.string_at(address, length) if address else None


def _weights(message: Message, headers: Headers) -> Sequence[int]:
    """Bytes of the key, the value, and the headers' keys and values; number of headers."""
    key = message.key_len if message.key else 0
    value = message.len if message.payload else 0
    if not headers:
        return key, value, 0, 0, 0
    names = sum([len(name) for name, _ in headers])
    items = sum([len(item or b"") for _, item in headers])
    return key, value, names, items, len(headers)


def _row(
    message: Message, timestamp: tuple[int, int], headers: Headers, columns: Collection[str]
) -> Sequence[Any]:
    time, kind = timestamp
    found: list[Any] = [message.offset]
    for name in columns:
        if name == "timestamp":
            found.append(time if kind else NO_TIMESTAMP)
        elif name == "timestampType":
            found.append(kind - 1)
        elif name == "key":
            found.append(_content(message.key, message.key_len))
        elif name == "value":
            found.append(_content(message.payload, message.len))
        elif name == "headers":
            found.append([(key.decode("utf-8", "replace"), value) for key, value in headers] or None)
    return found


def _portion(rows: int, size: int, max_rows: int, max_bytes: int) -> int:
    """How many messages to ask for: as many as may be taken, if they are as large as those before."""
    if not rows:
        return 1  # or the queue waits until it has them all
    each = size // rows
    return min(HELD, max_rows - rows, (max_bytes - size) // each + 1 if each else HELD)


# -- the buffers of the loop in C ----------------------------------------------------------------------


class Nulls(NamedTuple):
    """Number of nulls in each wanted column."""

    key: int
    value: int
    list: int
    item: int


class Buffers(NamedTuple):
    """Arrow's buffers, flat in the order the loop returns them; None for a column that is not wanted.

    ``valid`` are bits, ``ends`` are where values end, after a zero. ``name`` and ``item`` are the keys and
    values of headers; ``list_ends`` assigns them to rows.
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


def _compiled_loop(order: Order) -> Filled:
    rows, items, following, is_end, event, nulls, buffers = _messages.fill(order)
    batch = _batch(rows, items, Nulls(*nulls), Buffers(*buffers)) if rows else None
    if event is not None:
        code, offset, text = event
        event = Event(as_error(code, text), offset)
    return Filled(batch, following, is_end, event)


def _batch(rows: int, items: int, nulls: Nulls, of: Buffers) -> pa.RecordBatch:
    """The buffers as Arrow columns; bits of a column without nulls are left out."""
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
    """Headers' keys, each in sound UTF-8."""
    found = pa.Array.from_buffers(pa.string(), items, [None, ends, names], 0)
    if names.to_pybytes().isascii():
        return found
    try:
        found.validate(full=True)
    except pa.ArrowInvalid:
        rows = pa.Array.from_buffers(pa.binary(), items, [None, ends, names], 0).to_pylist()
        return pa.array([row.decode("utf-8", "replace") for row in rows], pa.string())
    return found


compiled_loop: Loop | None
try:
    from sinksdk.topics.kafka import _messages
except ImportError:
    compiled_loop = None
    log.info(
        "reading from Kafka takes several times the processor time it could: this installation of sinksdk "
        "lacks its compiled part. Install a wheel that brings it, or a C compiler and Python's headers and "
        "then sinksdk anew"
    )
else:
    compiled_loop = _compiled_loop

LOOP: Final[Loop] = compiled_loop or plain_loop
"""The better one of those that are there."""
