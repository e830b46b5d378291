"""Arrow types: which of them are lists, and whether their moments are those that Python has."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sinksdk.values.decimals import items_of

_SHORT: Final = 32  # bits
_DAYS: Final = (-719_162, 2_932_896)  # of 0001-01-01 and 9999-12-31 since 1970-01-01
_PER_DAY: Final = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def is_list(kind: pa.DataType) -> bool:
    """Whether values of a type are lists, of whatever layout; views of lists are not known."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


@functools.lru_cache(maxsize=1024)
def has_moments(kind: pa.DataType) -> bool:
    """Whether values of a type hold moments, dates or times of day."""
    if pa.types.is_nested(kind):
        return any(has_moments(kind.field(number).type) for number in range(kind.num_fields))
    return bool(pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind))


def holds_impossible_moments(column: pa.Array) -> bool:
    """Whether a moment is outside of the years 1 to 9999, or a time of day outside of a day."""
    kind = column.type
    if not has_moments(kind):
        return False
    if pa.types.is_nested(kind):
        return any(holds_impossible_moments(child) for child in _children(column))
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
    per_day = _PER_DAY["ms" if pa.types.is_date64(kind) else kind.unit]
    return (0, per_day) if pa.types.is_time(kind) else (_DAYS[0] * per_day, (_DAYS[1] + 1) * per_day)
