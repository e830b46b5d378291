"""Row numbers, between numpy and Arrow."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# Arrow's own conversions import pandas if it is installed, which takes 40 MB and half a second per process.
Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def column_of(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    index = batch.schema.get_field_index(name)
    return None if index < 0 else batch.column(index)


def valid_flags(column: pa.Array) -> Flags:
    validity = column.buffers()[0] if column.null_count else None
    if validity is None:
        return np.full(len(column), not pa.types.is_null(column.type))
    bits = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")
    return bits[column.offset : column.offset + len(column)].view(np.bool_)


def valid_rows(column: pa.Array) -> Longs:
    return np.flatnonzero(valid_flags(column)) if column.null_count else np.arange(len(column))


def rows_to_take(rows: Longs) -> pa.Array:
    """Return row numbers for Arrow's ``take``; negative ones become null, which takes null."""
    are_there = rows >= 0
    bits = None if are_there.all() else pa.py_buffer(np.packbits(are_there, bitorder="little"))
    return pa.Array.from_buffers(
        pa.int64(), len(rows), [bits, pa.py_buffer(np.ascontiguousarray(rows, np.int64))]
    )


def valid_only(column: pa.Array, are_valid: Flags) -> pa.Array:
    flags = np.concatenate([np.zeros(column.offset, np.bool_), are_valid])
    bits = pa.py_buffer(np.packbits(flags, bitorder="little"))
    nulls = len(column) - int(np.count_nonzero(are_valid))
    return pa.Array.from_buffers(
        column.type, len(column), [bits, *column.buffers()[1:]], nulls, column.offset
    )


def is_same(one: pa.Array, other: pa.Array, *, but_nulls: bool = False) -> bool:
    """Whether two columns share the same memory; with ``but_nulls``, nulls of flat columns may differ."""
    if (one.offset, len(one)) != (other.offset, len(other)):
        return False
    return _addresses(one)[but_nulls:] == _addresses(other)[but_nulls:]


def _addresses(column: pa.Array) -> list[int]:
    return [0 if buffer is None else buffer.address for buffer in column.buffers()]
