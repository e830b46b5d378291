"""Convert between Arrow columns and numpy arrays without pandas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# Arrow's own conversions import pandas where it is installed: 40 MB and half a second per process.
Flags = npt.NDArray[np.bool_]
Octets = npt.NDArray[np.uint8]
Codes = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Column = Any  # a pyarrow.Array; its stubs cannot follow arrays of types known at run time only


def as_mask(booleans: pa.Array) -> Flags:
    return np.from_dlpack(booleans.cast(pa.uint8())).view(np.bool_)


def null_rows(column: pa.Array) -> tuple[Longs, Longs]:
    if not column.null_count:
        return np.empty(0, np.int64), np.arange(len(column))
    is_null = as_mask(column.is_null())
    return np.flatnonzero(is_null), np.flatnonzero(~is_null)


def as_column(numbers: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return numbers as a column of a type of the same size."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])


def long_column(numbers: npt.NDArray[np.integer[Any]] | Sequence[int]) -> pa.Array:
    return as_column(np.asarray(numbers, np.int64), pa.int64())


def flag_column(flags: Flags) -> pa.Array:
    return as_column(flags.view(np.uint8), pa.uint8()).cast(pa.bool_())


def text_column(offsets: Longs, data: npt.NDArray[np.uint8]) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


def texts_column(texts: Sequence[str]) -> pa.Array:
    encoded = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)])
    return text_column(offsets, np.frombuffer(b"".join(encoded), np.uint8))


def long_scalar(number: int, kind: pa.DataType) -> pa.Scalar:
    return long_column([number])[0].cast(kind)


def null_scalar(kind: pa.DataType) -> pa.Scalar:
    return pa.nulls(1, kind)[0]


def zero_for_null(column: pa.Array) -> pa.Array:
    return column.fill_null(long_scalar(0, column.type)) if column.null_count else column


def filled(column: pa.Array) -> Longs:
    """Return a column of 64-bit integers for numpy, with 0 for null."""
    return np.from_dlpack(zero_for_null(column)).view(np.int64)


def null_where(numbers: Longs, column: pa.Array) -> pa.Array:
    if not column.null_count:
        return long_column(numbers)
    return pc.if_else(column.is_null(), null_scalar(pa.int64()), long_column(numbers))


def list_borders(column: pa.Array) -> pa.Array:
    """Return the borders of lists in the flattened column; a null list is empty."""
    lengths = filled(column.value_lengths().cast(pa.int64()))
    return as_column(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), pa.int32())
