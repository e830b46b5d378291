"""Arrow columns as Python objects, as iterating over records returns them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from sinksdk.errors import DataException
from sinksdk.values.decimals import items_of
from sinksdk.values.json_text import is_json, json_objects
from sinksdk.values.kinds import PER_SECOND, is_list

_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a column's zone is added
_FIRST_DAY: Final = _EPOCH.toordinal()
_MICROSECONDS: Final = 1_000_000


def plain(column: pa.Array) -> list[Any]:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return json_objects(column) if is_json(kind) else _objects(column)
    if pa.types.is_dictionary(kind):
        return plain(column.dictionary_decode())
    for test, convert in _NESTED:
        if test(kind):
            return [
                value if is_there else None
                for value, is_there in zip(convert(column), column.is_valid().to_pylist(), strict=True)
            ]
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        try:
            # Python has no years beyond 1 to 9999, and would cut nanoseconds to microseconds.
            return _times(column)
        except (OverflowError, ValueError):
            raise DataException(
                f"a value of type {kind} is outside the years 1 to 9999, and Python cannot represent it"
            ) from None
    if (pa.types.is_integer(kind) or pa.types.is_floating(kind)) and not column.null_count:
        numbers: list[Any] = column.to_numpy().tolist()
        return numbers
    return _objects(column)


def _objects(column: pa.Array) -> list[Any]:
    objects: list[Any] = column.to_pylist()
    return objects


def _structs(column: pa.Array) -> list[dict[str, Any]]:
    names = [field.name for field in column.type]
    if not names:
        return [{} for _ in range(len(column))]
    rows = zip(*(plain(field) for field in column.flatten()), strict=True)
    return [dict(zip(names, row, strict=True)) for row in rows]


def _lists(column: pa.Array) -> list[list[Any]]:
    items, ends, end = plain(items_of(column)), [], 0
    for length in column.value_lengths().fill_null(0).to_pylist():
        ends.append((end, end + length))
        end += length
    return [items[begin:end] for begin, end in ends]


def _maps(column: pa.Array) -> list[Any]:
    pairs = _lists(column.cast(pa.list_(pa.struct([column.type.key_field, column.type.item_field]))))
    key, item = column.type.key_field.name, column.type.item_field.name
    if pa.types.is_nested(column.type.key_type):  # such keys cannot be keys of a dict
        return [[(pair[key], pair[item]) for pair in row] for row in pairs]
    return [{pair[key]: pair[item] for pair in row} for row in pairs]


_NESTED: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], list[Any]]], ...]] = (
    (pa.types.is_struct, _structs),
    (is_list, _lists),
    (pa.types.is_map, _maps),
)


def _times(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_date(kind):
        days = column.cast(pa.date32()).cast(pa.int32()).to_pylist()
        return [None if day is None else dt.date.fromordinal(_FIRST_DAY + day) for day in days]
    per_second = PER_SECOND[kind.unit]
    whole = column.cast(pa.int32() if pa.types.is_time32(kind) else pa.int64())
    numbers = [_microseconds(number, per_second) for number in whole.to_pylist()]
    if pa.types.is_duration(kind):
        return [None if n is None else dt.timedelta(microseconds=n) for n in numbers]
    if pa.types.is_time(kind):
        if any(n is not None and not 0 <= n < 86_400 * _MICROSECONDS for n in numbers):
            raise ValueError
        return [None if n is None else (_EPOCH + dt.timedelta(microseconds=n)).time() for n in numbers]
    epoch = _EPOCH if kind.tz is None else _EPOCH.replace(tzinfo=dt.UTC)
    return [None if n is None else epoch + dt.timedelta(microseconds=n) for n in numbers]


def _microseconds(number: int | None, per_second: int) -> int | None:
    return None if number is None else number * _MICROSECONDS // per_second
