"""Predicates on Arrow types, and the check of times that Python cannot represent."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sinksdk.errors import DataException
from sinksdk.values.decimals import items_of

_SHORT: Final = 32  # bits
_DAYS: Final = (-719_162, 2_932_896)  # days from 1970-01-01 to 0001-01-01 and 9999-12-31
PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


@functools.lru_cache(maxsize=1024)
def has_times(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(has_times(kind.field(number).type) for number in range(kind.num_fields))
    return bool(pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind))


def check_times(column: pa.Array) -> None:
    if _has_impossible_times(column):
        raise DataException("a timestamp is outside the years 1 to 9999, or a time of day outside a day")


def _has_impossible_times(column: pa.Array) -> bool:
    kind = column.type
    if not has_times(kind):
        return False
    if pa.types.is_nested(kind):
        return any(map(_has_impossible_times, _children(column)))
    numbers = column.cast(pa.int32() if kind.bit_width == _SHORT else pa.int64())
    ends = pc.min_max(numbers)
    least, most = ends["min"].as_py(), ends["max"].as_py()
    if least is None:
        return False
    first, end = _bounds(kind)
    return bool(least < first or most >= end)


def _children(column: pa.Array) -> Iterable[pa.Array]:
    if pa.types.is_struct(column.type):
        return list(column.flatten())
    if pa.types.is_map(column.type):
        return (column.keys, column.items)
    return (items_of(column),)


def _bounds(kind: pa.DataType) -> tuple[int, int]:
    if pa.types.is_date32(kind):
        return _DAYS[0], _DAYS[1] + 1
    per_day = 86_400 * PER_SECOND["ms" if pa.types.is_date64(kind) else kind.unit]
    return (0, per_day) if pa.types.is_time(kind) else (_DAYS[0] * per_day, (_DAYS[1] + 1) * per_day)
