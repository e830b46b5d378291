"""Messages of librdkafka as Arrow record batches.

The loop over messages is compiled (``_messages.c``) where a wheel brings it or a compiler was there; else
:func:`plain_loop` does the same, slower. Both return the same bytes, of which batches are made here.

Header keys are Kafka's strings, and so should be UTF-8: each part that is not becomes U+FFFD, as with
Python's ``replace``. librdkafka cuts a key at a zero byte.
"""

from __future__ import annotations

import ctypes
import logging
import math
import struct
from array import array
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
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
    PartitionQueue,
    error_name,
    error_text,
    is_retriable,
)

log = logging.getLogger(__name__)
END_OF_PARTITION: Final[int] = KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka's name for it
_NO_HEADERS: Final[int] = KafkaError._NOENT  # noqa: SLF001 - the same
_BAD_MESSAGE: Final[int] = KafkaError._BAD_MSG  # noqa: SLF001 - the same
_LIMIT: Final = 2**31 - 1  # bytes in a column, and headers in a batch: Arrow counts them in 32 bits
_LAYOUT: Final = struct.Struct("@iPiPNPNqP")  # of Message
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


class Buffers(NamedTuple):
    """Arrow's buffers, flat in the order a loop returns them; None for a column that is not wanted.

    ``valid`` are bits, ``ends`` are where values end, after a zero. ``name`` and ``item`` are the keys and
    values of headers; ``list_ends`` assigns them to rows.
    """

    offset: Any = None
    timestamp: Any = None
    kind: Any = None
    key_valid: Any = None
    key_ends: Any = None
    key: Any = None
    value_valid: Any = None
    value_ends: Any = None
    value: Any = None
    list_valid: Any = None
    list_ends: Any = None
    name_ends: Any = None
    name: Any = None
    item_valid: Any = None
    item_ends: Any = None
    item: Any = None


class Nulls(NamedTuple):
    """Number of nulls in each wanted column."""

    key: int
    value: int
    list: int
    item: int


Raw: TypeAlias = tuple[
    int, int, int | None, bool, tuple[int, int, bytes | None] | None, tuple[int, ...], tuple[Any, ...]
]
"""Number of rows and of headers, the next offset, whether the range is complete, an event (code, offset,
text), :class:`Nulls` and :class:`Buffers`."""

Loop: TypeAlias = Callable[[Order], Raw]


@dataclass(frozen=True, slots=True)
class Event:
    """The end of the partition, or an error.

    Args:
        code: librdkafka's, below 0, or Kafka's own.
        name: librdkafka's name for it: ``_PARTITION_EOF``.
        offset: below 0 if it has none.
    """

    code: int
    name: str
    text: str
    offset: int

    @property
    def is_end_of_partition(self) -> bool:
        return self.code == END_OF_PARTITION

    @property
    def is_retriable(self) -> bool:
        """Whether librdkafka retries by itself, and so may succeed later."""
        return is_retriable(self.code)


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
        rows, items, following, is_end, event, nulls, buffers = (loop or LOOP)(order)
    batch = _batch(rows, items, Nulls(*nulls), Buffers(*map(_buffer, buffers))) if rows else None
    return Filled(batch, following, is_end, None if event is None else _event(*event))


def _event(code: int, offset: int, text: bytes | None) -> Event:
    return Event(code, error_name(code), (text or b"").decode("utf-8", "replace") or error_text(code), offset)


def _buffer(content: bytes | pa.Buffer | None) -> pa.Buffer | None:
    return content if content is None or isinstance(content, pa.Buffer) else pa.py_buffer(content)


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


# -- the loop in Python ------------------------------------------------------------------------------


class _Bytes:
    def __init__(self) -> None:
        self.ends = array("i", [0])
        self.parts: list[bytes] = []
        self.marks: list[bool] = []

    def add(self, value: bytes | None) -> None:
        self.marks.append(value is not None)
        self.parts.append(value or b"")
        self.ends.append(self.ends[-1] + len(value or b""))

    def buffers(self) -> tuple[bytes, bytes, bytes]:
        return _packed(self.marks), self.ends.tobytes(), b"".join(self.parts)


class _Message(NamedTuple):
    """A :class:`~sinksdk.topics.kafka.rdkafka.Message` and its address."""

    address: int
    error: int
    topic: int
    partition: int
    payload: int
    length: int
    key: int
    key_len: int
    offset: int
    private: int


class _Sums(NamedTuple):
    """Bytes of the messages taken, and their number of headers."""

    key: int
    value: int
    name: int
    item: int
    items: int

    def plus(self, message: _Message, headers: Sequence[tuple[bytes, bytes | None]]) -> _Sums:
        key, value, name, item, items = self
        if message.key:
            key += message.key_len
        if message.payload:
            value += message.length
        for header, content in headers:
            name += len(header)
            item += len(content or b"")
        return _Sums(key, value, name, item, items + len(headers))


class _Rows:
    """The messages taken, copied column by column.

    Attributes are flat, and more than ten: this loop runs for every record where nothing is compiled, and
    each look-up more would show.
    """

    def __init__(self, call: _Calls, columns: int, limit: int) -> None:
        self._call, self._columns, self._limit = call, columns, limit
        self._sums = _Sums(0, 0, 0, 0, 0)
        self.size = 0  # bytes of keys, values and wanted headers
        self._wants_time = columns & (_BITS["timestamp"] | _BITS["timestampType"])
        self._wants_key, self._wants_value = columns & _BITS["key"], columns & _BITS["value"]
        self._wants_headers = columns & _BITS["headers"]
        self._offsets, self._timestamps, self._types = array("q"), array("q"), array("i")
        self._lists = array("i", [0])
        self._keys, self._values, self._names, self._items = _Bytes(), _Bytes(), _Bytes(), _Bytes()
        self._has_headers: list[bool] = []

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, message: _Message) -> tuple[bool, int]:
        """Whether a message was taken; if not, why its headers cannot be read, or 0: there is no room."""
        headers, code = self._call.headers_of(message.address) if self._wants_headers else ((), 0)
        if code:
            return False, code
        sums = self._sums.plus(message, headers)
        if max(sums) > self._limit:
            return False, 0
        self._sums = sums
        self.size = sums.key + sums.value + sums.name + sums.item
        self._offsets.append(message.offset)
        if self._wants_time:
            timestamp, kind = self._call.timestamp_of(message.address)
            self._timestamps.append(timestamp if kind else NO_TIMESTAMP)
            self._types.append(kind - 1)
        if self._wants_key:
            self._keys.add(_content(message.key, message.key_len))
        if self._wants_value:
            self._values.add(_content(message.payload, message.length))
        if self._wants_headers:
            for header, content in headers:
                self._names.add(header)
                self._items.add(content)
            self._has_headers.append(bool(headers))
            self._lists.append(sums.items)
        return True, 0

    def buffers(self) -> Buffers:
        _, name_ends, name = self._names.buffers()
        of = {
            0: (self._offsets.tobytes(),),
            _BITS["timestamp"]: (self._timestamps.tobytes(),),
            _BITS["timestampType"]: (self._types.tobytes(),),
            _BITS["key"]: self._keys.buffers(),
            _BITS["value"]: self._values.buffers(),
            _BITS["headers"]: (
                *(_packed(self._has_headers), self._lists.tobytes(), name_ends, name),
                *self._items.buffers(),
            ),
        }
        return Buffers(
            *(
                buffer if not bit or self._columns & bit else None
                for bit, group in of.items()
                for buffer in group
            )
        )

    def counts(self) -> tuple[int, int, Nulls]:
        """Number of rows, of headers, and of nulls."""
        marks = (self._keys.marks, self._values.marks, self._has_headers, self._items.marks)
        return len(self), self._sums.items, Nulls(*(each.count(False) for each in marks))


class _Calls:
    """The functions as callables."""

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

    def headers_of(self, address: int) -> tuple[Sequence[tuple[bytes, bytes | None]], int]:
        """Keys and values, and why they cannot be read, or 0."""
        found: list[tuple[bytes, bytes | None]] = []
        code: int = self._headers(address, self._found)
        while not code:
            code = self._header(self._found, len(found), self._name, self._value, self._size)
            if not code:
                found.append((self._name.value or b"", _content(self._value.value, self._size.value)))
        return found, 0 if code == _NO_HEADERS else code


def _content(address: int | None, length: int) -> bytes | None:
    return ctypes.string_at(address, length) if address else None


def _read(address: int) -> _Message:
    return _Message(address, *_LAYOUT.unpack(ctypes.string_at(address, _LAYOUT.size)))


def _packed(marks: list[bool]) -> bytes:
    """Bits as Arrow has them, the first one lowest."""
    text = "".join("1" if mark else "0" for mark in reversed(marks))
    return int(text or "0", 2).to_bytes((len(marks) + 7) // 8, "little")


def plain_loop(order: Order) -> Raw:  # noqa: C901 - step by step as the one in C
    """What ``_messages.c`` does, without a compiler."""
    call = _Calls(order.functions)
    held = Held.from_address(order.held)
    rows = _Rows(call, order.columns, order.limit)
    following, is_end, event = None, False, None
    is_empty = False  # the queue had fewer messages than were asked for
    while len(rows) < order.max_rows and (not rows or rows.size < order.max_bytes):
        if held.first == held.last:
            if is_empty:
                break
            count = _portion(len(rows), rows.size, order.max_rows, order.max_bytes)
            wait = 0 if rows else order.timeout_ms
            given = call.consume(order.queue, wait, order.held + Held.messages.offset, count)
            held.first, held.last = 0, max(given, 0)
            if not held.last:
                break
            is_empty = given < count
        address: int = held.messages[held.first]
        message = _read(address)
        if message.error:
            event = message.error, message.offset, _content(message.payload, message.length)
            if message.error == END_OF_PARTITION:
                following, is_end = message.offset, message.offset >= order.end
        elif message.offset >= order.end:
            following, is_end = order.end, True
            break
        else:
            is_taken, code = rows.add(message)
            if is_taken:
                following = message.offset + 1
                is_end = following >= order.end
            elif code or not rows:
                event = code or _BAD_MESSAGE, message.offset, None
            else:
                break
        held.first += 1
        call.destroy(address)
        if event or is_end:
            break
    count, items, nulls = rows.counts()
    return count, items, following, is_end, event, nulls, rows.buffers() if rows else Buffers()


def _portion(rows: int, size: int, max_rows: int, max_bytes: int) -> int:
    """How many messages to ask for: as many as may be taken, if they are as large as those before."""
    if not rows:
        return 1  # or the queue waits until it has them all
    each = size // rows
    return min(HELD, max_rows - rows, (max_bytes - size) // each + 1 if each else HELD)


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
    compiled_loop = _messages.fill

LOOP: Final[Loop] = compiled_loop or plain_loop
"""The better one of those that are there."""
