"""Arrow types: several that are to be one column, and moments that Python has."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_WHOLE: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_REAL: Final = (pa.float32(), pa.float64())
_EXACT: Final = {pa.float32(): (pa.int8(), pa.int16()), pa.float64(): _WHOLE[:3]}
"""Whole numbers that each of them holds exactly."""


def unified(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type that holds the values of both without a loss, or None.

    Structures have the fields of both, by name. Numbers become wider ones; all else must be equal.
    """
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return _unified_structs(one, other)
    return _unified_items(one, other) or _wider(one, other)


def _unified_items(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if pa.types.is_list(one) and pa.types.is_list(other):
        item = unified(one.value_type, other.value_type)
        return None if item is None else pa.list_(item)
    if pa.types.is_map(one) and pa.types.is_map(other):
        key, item = unified(one.key_type, other.key_type), unified(one.item_type, other.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    return None


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if pa.types.is_decimal(one) and pa.types.is_decimal(other) and one.scale == other.scale:
        return max(one, other, key=lambda kind: kind.precision)
    for numbers in (_WHOLE, _REAL):
        if one in numbers and other in numbers:
            return max(one, other, key=numbers.index)
    for real, whole in ((one, other), (other, one)):
        if real in _REAL and whole in _WHOLE:
            return next((kind for kind in _REAL[_REAL.index(real) :] if whole in _EXACT[kind]), None)
    return None


def _unified_structs(one: pa.StructType, other: pa.StructType) -> pa.DataType | None:
    found: dict[str, pa.DataType | None] = {field.name: field.type for field in one}
    for field in other:
        mine = found.get(field.name)
        found[field.name] = field.type if mine is None else unified(mine, field.type)
        if found[field.name] is None:
            return None
    return pa.struct(list(found.items()))


def conform(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column as one of a type that :func:`unified` has given for it. No copy where it has it already."""
    if column.type == kind:
        return column
    if pa.types.is_struct(kind) and pa.types.is_struct(column.type):
        found = dict(zip([field.name for field in column.type], column.flatten(), strict=True))
        fields = [
            conform(found[field.name], field.type)
            if field.name in found
            else pa.nulls(len(column), field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=column.is_null())
    if pa.types.is_list(kind) and pa.types.is_list(column.type):
        values = conform(column.values, kind.value_type)
        return pa.Array.from_buffers(
            kind, len(column), [*column.buffers()[:2]], column.null_count, column.offset, [values]
        )
    return column.cast(kind)


# -- moments -----------------------------------------------------------------------------------------------

_SHORT: Final = 32  # bits
_DAYS: Final = (-719_162, 2_932_896)  # of 0001-01-01 and 9999-12-31 since 1970-01-01
_PER_DAY: Final = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


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
    return (column.flatten(),)


def _bounds(kind: pa.DataType) -> tuple[int, int]:
    if pa.types.is_date32(kind):
        return _DAYS[0], _DAYS[1] + 1
    per_day = _PER_DAY["ms" if pa.types.is_date64(kind) else kind.unit]
    return (0, per_day) if pa.types.is_time(kind) else (_DAYS[0] * per_day, (_DAYS[1] + 1) * per_day)
