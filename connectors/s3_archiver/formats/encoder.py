"""Write whole records, ``archive.content=record``, to Avro files."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sinksdk import DataException, TopicPartition
from sinksdk.connectors.s3_archiver.archive.header import FileHeader
from sinksdk.connectors.s3_archiver.formats.base import Encoded, OneKind
from sinksdk.connectors.s3_archiver.formats.codecs import codec
from sinksdk.connectors.s3_archiver.formats.columns import (
    Column,
    Longs,
    as_mask,
    filled,
    long_column,
    null_where,
)
from sinksdk.connectors.s3_archiver.formats.container import BLOCK_BYTES, ContainerWriter
from sinksdk.connectors.s3_archiver.formats.datums import (
    BYTES,
    NO_ROWS,
    DatumBuilder,
    EncodedRows,
    borders_of,
    present_in,
    varint,
)
from sinksdk.connectors.s3_archiver.formats.schema import RECORD_SCHEMA, sync_marker

log = logging.getLogger(__name__)
_TICKS_PER_MILLISECOND: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}
_MILLISECONDS_PER_SECOND: Final = 1_000
_INTEGERS: Final = {pa.int32().id: 4, pa.int64().id: 8}
_BYTES: Final = {pa.binary().id: 4, pa.string().id: 4, BYTES.id: 8, pa.large_string().id: 8}
_LISTS: Final = {pa.list_(pa.null()).id: 4, pa.large_list(pa.null()).id: 8}
# Bytes of each integer, or of each offset of a variable-size type.
_WIDTHS: Final = {**_INTEGERS, **_BYTES, **_LISTS}


class Columns(NamedTuple):
    """A batch's columns, in the few types that loops support; None: null in all rows."""

    rows: int
    offset: Column | None
    timestamp: Column | None  # milliseconds since the epoch
    timestamp_type: Column | None
    key: Column | None
    value: Column | None
    headers: Column | None


# Takes the encoded fields before the offset, which are the same in all rows. Returns the number of the first
# row with a header without a key, if there is one.
Loop: TypeAlias = Callable[[bytes, Columns], EncodedRows | int]


class RecordEncoder:
    """Encode batches of one topic partition to the bytes that fastavro writes."""

    def __init__(self, partition: TopicPartition, loop: Loop | None = None) -> None:
        topic = partition.topic.encode()
        self._partition = partition
        self._coordinates = varint(len(topic)) + topic + varint(partition.partition)
        self._loop = loop or LOOP

    def encode(self, batch: pa.RecordBatch) -> EncodedRows:
        """Encode a batch. Raises DataException for a header without a key."""
        if not batch.num_rows:
            return NO_ROWS
        # A missing column is null in all rows. A timestamp of -1, Kafka's "none", stays -1; a null
        # timestampType becomes 0, null headers an empty list.
        columns = Columns(
            batch.num_rows,
            _column(batch, "offset", _integers),
            _column(batch, "timestamp", milliseconds),
            _column(batch, "timestampType", _integers),
            _column(batch, "key", _bytes),
            _column(batch, "value", _bytes),
            _column(batch, "headers", _lists),
        )
        encoded = self._loop(self._coordinates, columns)
        if isinstance(encoded, int):
            raise _without_key(self._partition, batch.column("offset")[encoded])
        return encoded


def without_bad_headers(
    partition: TopicPartition, batch: pa.RecordBatch
) -> tuple[pa.RecordBatch, dict[int, DataException]]:
    """Return the records whose headers have keys, and the errors of the others by row."""
    index = batch.schema.get_field_index("headers")
    if index < 0 or not pa.types.is_struct(batch.column(index).type.value_type):
        return batch, {}
    headers = batch.column(index)
    items = headers.flatten()
    keys = items.flatten()[_header_fields(items)[0]]
    if not keys.null_count:
        return batch, {}
    parents = headers.value_parent_indices()
    rows = np.unique(np.from_dlpack(parents)[as_mask(keys.is_null())])
    offsets = batch.column("offset")
    bad = {row: _without_key(partition, offsets[row]) for row in rows.tolist()}
    return batch.take(long_column(np.delete(np.arange(batch.num_rows), rows))), bad


def _without_key(partition: TopicPartition, offset: object) -> DataException:
    return DataException(
        f"{partition}: the record at offset {offset} has a header without a key, which cannot be archived: "
        f"correct the producer, or leave the column 'headers' out"
    )


def _column(batch: pa.RecordBatch, name: str, known: Callable[[Column], Column | None]) -> Column | None:
    """Return a column in a type that loops support; None if it is null in all rows."""
    index = batch.schema.get_field_index(name)
    if index < 0:
        return None
    column = batch.column(index)
    return None if column.null_count == batch.num_rows else known(column)


def _integers(column: Column) -> Column:
    return column if column.type.id in _INTEGERS else column.cast(pa.int64())


def _bytes(column: Column) -> Column:
    return column if column.type.id in _BYTES else column.cast(BYTES)


def _lists(column: Column) -> Column | None:
    if not pa.types.is_struct(column.type.value_type) and not len(column.flatten()):
        return None  # empty lists whose items were created without a type
    if column.type.id in _LISTS:
        return column
    borders = long_column(borders_of(_longs(pc.list_value_length(column))))
    return pa.LargeListArray.from_arrays(borders, column.flatten())


def milliseconds(column: Column) -> Column:
    """Return timestamps as 64-bit integers; finer ones are rounded down, also those before 1970."""
    if not pa.types.is_timestamp(column.type):
        return _integers(column)
    ticks = column.view(pa.int64())
    if column.type.unit == "ms":
        return ticks
    values = filled(ticks)
    if column.type.unit == "s":
        values = values * _MILLISECONDS_PER_SECOND
    else:
        values = values // _TICKS_PER_MILLISECOND[column.type.unit]
    return null_where(values, column)


def _longs(column: Column) -> Longs:
    return filled(column if pa.types.is_int64(column.type) else column.cast(pa.int64()))


def _header_fields(items: Column) -> tuple[int, int]:
    return items.type.get_field_index("key"), items.type.get_field_index("value")


def plain_loop(coordinates: bytes, columns: Columns) -> EncodedRows | int:
    datums = DatumBuilder(columns.rows)
    datums.constant(coordinates)
    datums.long(_longs(_or_nulls(columns.offset, columns.rows)))
    timestamp = _or_nulls(columns.timestamp, columns.rows)
    datums.nullable_long(_longs(timestamp), present_in(timestamp))
    datums.long(_longs(_or_nulls(columns.timestamp_type, columns.rows)))
    datums.nullable_bytes(_or_nulls(columns.key, columns.rows).cast(BYTES))
    datums.nullable_bytes(_or_nulls(columns.value, columns.rows).cast(BYTES))
    without_key = _append_headers(datums, columns)
    return datums.build() if without_key is None else without_key


def _or_nulls(column: Column | None, rows: int) -> Column:
    return pa.nulls(rows) if column is None else column


def _append_headers(datums: DatumBuilder, columns: Columns) -> int | None:
    """Append the headers, or return the first row with a header without a key."""
    headers = columns.headers
    if headers is None:
        datums.array(np.zeros(columns.rows, np.int64), NO_ROWS)
        return None
    counts = _longs(pc.list_value_length(headers))
    items = headers.flatten()
    if not len(items):
        datums.array(counts, NO_ROWS)
        return None
    # flatten() of a struct, unlike field(), shows the children of a null struct as null
    children = items.flatten()
    key, value = _header_fields(items)
    if children[key].null_count:
        first = int(np.argmin(as_mask(children[key].is_valid())))
        return int(np.searchsorted(borders_of(counts), first, side="right")) - 1
    encoded = DatumBuilder(len(items))
    encoded.bytes(children[key].cast(BYTES))
    encoded.nullable_bytes(children[value].cast(BYTES))
    datums.array(counts, encoded.build())
    return None


def column_buffers(column: Column | None) -> tuple[Any, ...] | None:
    """Return a column as ``_datums.c`` takes it: rows, offset, width of a value, buffers."""
    if column is None:
        return None
    valid, values, data = [*column.buffers(), None, None][:3]
    width = _WIDTHS.get(column.type.id, 0)
    return len(column), column.offset, width, valid if column.null_count else None, values, data


def _with_compiled(encode: Callable[[tuple[Any, ...]], tuple[Any, Any] | int]) -> Loop:
    def loop(coordinates: bytes, columns: Columns) -> EncodedRows | int:
        rows, *flat, headers = columns
        items = keys = values = None
        if headers is not None:
            items = headers.values
            key, value = _header_fields(items)
            keys, values = _bytes(items.field(key)), _bytes(items.field(value))
        parts = tuple(column_buffers(column) for column in (*flat, headers, items, keys, values))
        encoded = encode((coordinates, rows, pa.allocate_buffer, parts))
        if isinstance(encoded, int):
            return encoded
        data, borders = encoded
        return EncodedRows(memoryview(data).toreadonly(), np.frombuffer(borders, np.int64, rows + 1))

    return loop


compiled_loop: Loop | None
try:
    from sinksdk.connectors.s3_archiver.formats import _datums
except ImportError:
    compiled_loop = None
    log.info(
        "encoding takes several times as much processor time as necessary: this installation of sinksdk "
        "lacks the compiled module. Install a wheel with it, or install a C compiler and Python's headers, "
        "and reinstall sinksdk"
    )
else:
    compiled_loop = _with_compiled(_datums.encode)

LOOP: Final[Loop] = compiled_loop or plain_loop


class RecordAvro(OneKind):
    extension = ".avro"
    columns = None

    def __init__(self, codec_name: str, level: int | None = None, block_bytes: int | None = None) -> None:
        self._codec = codec_name, level
        self._block_bytes = block_bytes or BLOCK_BYTES
        self._encoders: dict[TopicPartition, RecordEncoder] = {}

    def encode(self, partition: TopicPartition, batch: pa.RecordBatch) -> Encoded[EncodedRows]:
        encoder = self._encoders.get(partition)
        if encoder is None:
            encoder = self._encoders[partition] = RecordEncoder(partition)
        try:
            return Encoded(encoder.encode(batch), {})
        except DataException:
            good, bad = without_bad_headers(partition, batch)
            return Encoded(encoder.encode(good), bad)

    def begin(self, header: FileHeader, key: str, kind: object) -> ContainerWriter:  # noqa: ARG002 - a signature of Format
        return ContainerWriter(
            RECORD_SCHEMA, codec(*self._codec), header.to_metadata(), sync_marker(key), self._block_bytes
        )
