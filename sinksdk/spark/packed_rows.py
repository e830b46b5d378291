"""Packs rows of several columns into one column of bytes, for :mod:`~sinksdk.spark.bypass`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sinksdk.records import HEADERS_TYPE, RECORD_COLUMNS

_HEADERS: Final = "headers"
_INT: Final = np.dtype("<i4")

Ints = npt.NDArray[np.int64]


def packed(batch: pa.RecordBatch) -> pa.BinaryArray:
    # A row has the number of its fields (negative if its headers are null), their lengths (-1 for null) and
    # their bytes: columns in their order, then key and value of each header.
    rows = batch.num_rows
    columns = [_as_bytes(batch.column(name)) for name in batch.schema.names if name != _HEADERS]
    counts, is_null = np.full(rows, len(columns)), np.zeros(rows, bool)
    if _HEADERS in batch.schema.names:
        headers = batch.column(_HEADERS)
        is_null = np.asarray(headers.is_null())
        counts += 2 * np.asarray(pc.fill_null(headers.value_lengths(), 0))
        entries = headers.flatten()
        columns += [_as_bytes(entries.field("key")), entries.field("value")]
    # The order of the fields: columns row by row, the headers of a row after its columns.
    ends = np.cumsum(counts)
    firsts, total = ends - counts, int(counts.sum())
    own = len(columns) - 2 * (_HEADERS in batch.schema.names)
    is_own = np.zeros(total, bool)
    for number in range(own):
        is_own[firsts + number] = True
    order = np.empty(total, np.int64)
    order[is_own] = (np.arange(own) * rows + np.arange(rows)[:, None]).ravel()
    headers_each = (total - own * rows) // 2
    order[~is_own] = own * rows + (np.arange(2) * headers_each + np.arange(headers_each)[:, None]).ravel()
    fields = pa.concat_arrays(columns).take(pa.array(order)) if columns else pa.array([], pa.binary())

    lengths = np.asarray(pc.fill_null(pc.binary_length(fields), -1))
    counts_and_lengths = np.insert(lengths, firsts, np.where(is_null, -counts, counts)).astype(_INT)
    return pc.binary_join_element_wise(
        _bytes(
            4 * np.append(firsts + np.arange(rows), len(counts_and_lengths)), pa.py_buffer(counts_and_lengths)
        ),
        _bytes(np.frombuffer(fields.buffers()[1], np.int32)[np.append(firsts, total)], fields.buffers()[2]),
        b"",
    )


def unpacked(rows: pa.BinaryArray, names: Sequence[str]) -> dict[str, pa.Array]:
    # An operator may have dropped or repeated rows since they were packed.
    begins = np.frombuffer(rows.buffers()[1], np.int32)[rows.offset :][: len(rows)].astype(np.int64)
    data = np.frombuffer(rows.buffers()[2], np.uint8)
    signed_counts = _ints(data, begins)
    counts = np.abs(signed_counts)
    firsts = np.cumsum(counts) - counts
    nth = np.arange(counts.sum()) - np.repeat(firsts, counts)
    lengths = _ints(data, np.repeat(begins, counts) + 4 + 4 * nth)
    # The count and the lengths are treated as a first field of each row, so that fields are contiguous.
    sizes = np.insert(np.maximum(lengths, 0), firsts, 4 + 4 * counts)
    ends = begins[:1].sum() + np.append(0, np.cumsum(sizes))
    fields = _bytes(ends, rows.buffers()[2])
    firsts_there = firsts + np.arange(len(rows)) + 1

    def taken(places: Ints, numbers: Ints) -> pa.Array:
        return fields.take(pa.array(places, mask=lengths[numbers] < 0))

    columns = {}
    own = [name for name in names if name != _HEADERS]
    for number, name in enumerate(own):
        column = taken(firsts_there + number, firsts + number)
        columns[name] = _of_bytes(column, RECORD_COLUMNS.get(name, pa.string()))
    if _HEADERS in names:
        numbers = np.flatnonzero(nth >= len(own))
        places = numbers + np.repeat(np.arange(len(rows)), counts)[numbers] + 1
        keys, values = taken(places[::2], numbers[::2]), taken(places[1::2], numbers[1::2])
        entries = pa.StructArray.from_arrays(
            [keys.cast(pa.string()), values], fields=list(HEADERS_TYPE.value_type)
        )
        offsets = np.append(0, np.cumsum((counts - len(own)) // 2)).astype(np.int32)
        is_null = pa.array(signed_counts < 0)
        columns[_HEADERS] = pa.ListArray.from_arrays(
            offsets, entries, type=HEADERS_TYPE, mask=is_null if len(rows) else None
        )
    return columns


def _as_bytes(column: pa.Array) -> pa.BinaryArray:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    return column.cast(pa.binary())


def _of_bytes(column: pa.BinaryArray, kind: pa.DataType) -> pa.Array:
    if kind == pa.binary():
        return column
    text = column.cast(pa.string())
    return text if kind == pa.string() else text.cast(pa.int64()).cast(kind)


def _bytes(offsets: Ints, data: pa.Buffer) -> pa.BinaryArray:
    borders = pa.py_buffer(offsets.astype(np.int32))
    return pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, [None, borders, data])


def _ints(data: npt.NDArray[np.uint8], places: Ints) -> Ints:
    numbers: Ints = data[places[:, None] + np.arange(_INT.itemsize)].view(_INT).astype(np.int64)
    return numbers.ravel()
