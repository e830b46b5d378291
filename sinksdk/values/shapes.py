"""Shapes of JSON values, whatever language describes them, and parsed JSON as Arrow columns."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sinksdk.errors import DataException
from sinksdk.values.decimals import decimal_column, is_decimal, levels, number_of, unscaled
from sinksdk.values.kinds import PER_SECOND, check_times

NO_DEFAULT: Final = object()
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - timestamps are compared in UTC
_TICK: Final = dt.timedelta(microseconds=1)
_NOT_FINITE: Final = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}


@dataclass(frozen=True, slots=True)
class Shape:
    """A JSON value.

    Args:
        kind: its Arrow type; all fields may be null, as in files of Spark.
        key: keys of a map whose JSON is an array of pairs; None if it is an object.
        packs_decimals: whether a text is a decimal's unscaled number in base64, as in Connect.
    """

    kind: pa.DataType
    is_optional: bool = True
    default: Any = NO_DEFAULT
    fields: Mapping[str, Shape] = field(default_factory=dict)
    item: Shape | None = None
    key: Shape | None = None
    times_may_be_numbers: bool = False
    packs_decimals: bool = False
    symbols: Collection[str] = ()

    def has_decimals(self) -> bool:
        parts = [*self.fields.values(), *(part for part in (self.item, self.key) if part is not None)]
        return is_decimal(self.kind) or any(part.has_decimals() for part in parts)


def without_defaults(shape: Shape) -> Shape:
    inner = {name: without_defaults(field) for name, field in shape.fields.items()}
    item, key = (part and without_defaults(part) for part in (shape.item, shape.key))
    return replace(shape, default=NO_DEFAULT, fields=inner, item=item, key=key)


def wider_shapes(shape: Shape) -> Sequence[Shape]:
    # Decimals of Connect have no largest precision.
    return [_as_kind(shape, kind) for kind in levels(shape.kind)[1:]] if _packs_decimals(shape) else []


def _packs_decimals(shape: Shape) -> bool:
    parts = [*shape.fields.values(), *(part for part in (shape.item, shape.key) if part is not None)]
    return shape.packs_decimals or any(map(_packs_decimals, parts))


def _as_kind(shape: Shape, kind: pa.DataType) -> Shape:
    if shape.fields:
        fields = {name: _as_kind(field, kind.field(name).type) for name, field in shape.fields.items()}
        return replace(shape, kind=kind, fields=fields)
    if shape.item is None:
        return replace(shape, kind=kind)
    is_map = pa.types.is_map(kind)
    item = _as_kind(shape.item, kind.item_type if is_map else kind.value_type)
    return replace(shape, kind=kind, item=item, key=shape.key and _as_kind(shape.key, kind.key_type))


def struct_of(fields: Mapping[str, Shape], **more: Any) -> Shape:
    return Shape(pa.struct([(name, shape.kind) for name, shape in fields.items()]), fields=fields, **more)


def list_of(item: Shape, **more: Any) -> Shape:
    return Shape(pa.list_(item.kind), item=item, **more)


def map_of(item: Shape, key: Shape | None = None, **more: Any) -> Shape:
    return Shape(pa.map_(pa.string() if key is None else key.kind, item.kind), item=item, key=key, **more)


def to_column(values: Sequence[Any], shape: Shape) -> pa.Array:
    # The message does not quote a value, because it is logged.
    column = _column(values, shape, "")
    check_times(column)
    return column


def _column(values: Sequence[Any], shape: Shape, path: str) -> pa.Array:
    if shape.default is not NO_DEFAULT and None in values:
        values = [shape.default if value is None else value for value in values]
    if not shape.is_optional and None in values:
        raise DataException(f"{_named(path)} is required, but null or missing")
    kinds = set(map(type, values)) - {type(None)}
    try:
        return _read(values, kinds, shape, path)
    except DataException:
        raise
    except (ValueError, TypeError, OverflowError, InvalidOperation, pa.ArrowException):
        raise DataException(f"{_named(path)} does not fit type {shape.kind}") from None


def _named(path: str) -> str:
    return f"field '{path}'" if path else "the value"


def _read(values: Sequence[Any], kinds: set[type], shape: Shape, path: str) -> pa.Array:
    for test, read in _READERS:
        if test(shape.kind):
            return read(values, kinds, shape, path)
    raise DataException(f"{_named(path)}: JSON cannot represent type {shape.kind}")


def _expect(kinds: set[type], allowed: set[type]) -> None:
    if not kinds <= allowed:
        raise TypeError


def _structs(values: Sequence[Any], kinds: set[type], shape: Shape, path: str) -> pa.Array:
    _expect(kinds, {dict})
    nulls = [value is None for value in values]
    has_nulls = True in nulls
    given = [value for value in values if value is not None] if has_nulls else values
    columns = [
        _column([value.get(name) for value in given], inner, f"{path}.{name}" if path else name)
        for name, inner in shape.fields.items()
    ]
    if not columns:
        return pa.array([None if is_null else {} for is_null in nulls], shape.kind)
    if not has_nulls:
        return pa.StructArray.from_arrays(columns, fields=list(shape.kind))
    places = pa.array(np.cumsum(np.logical_not(nulls)) - 1, mask=np.array(nulls))
    return pa.StructArray.from_arrays(
        [column.take(places) for column in columns], fields=list(shape.kind), mask=pa.array(nulls)
    )


def _ends(values: Sequence[Any]) -> pa.Array:
    ends = [0, *itertools.accumulate(0 if value is None else len(value) for value in values)]
    # In Arrow a null begin makes the whole list null.
    begins = [None if value is None else end for value, end in zip(values, ends[:-1], strict=True)]
    return pa.array([*begins, ends[-1]], pa.int32())


def _lists(values: Sequence[Any], kinds: set[type], shape: Shape, path: str) -> pa.Array:
    _expect(kinds, {list})
    if shape.item is None:
        raise TypeError
    flat = list(itertools.chain.from_iterable(value for value in values if value is not None))
    return pa.ListArray.from_arrays(_ends(values), _column(flat, shape.item, f"{path}[]"), type=shape.kind)


def _maps(values: Sequence[Any], kinds: set[type], shape: Shape, path: str) -> pa.Array:
    if shape.item is None:
        raise TypeError
    given = [value for value in values if value is not None]
    if shape.key is None:
        _expect(kinds, {dict})
        pairs = [pair for value in given for pair in value.items()]
    else:
        _expect(kinds, {list})
        pairs = list(itertools.chain.from_iterable(given))
        _expect(set(map(type, pairs)), {list})
        if any(len(pair) != 2 for pair in pairs):  # noqa: PLR2004 - key and value
            raise TypeError
    key = Shape(pa.string(), is_optional=False) if shape.key is None else shape.key
    keys = _column([pair[0] for pair in pairs], key, f"{path}[key]")
    if keys.null_count:
        raise DataException(f"{_named(path)} has a key that is null")
    items = _column([pair[1] for pair in pairs], shape.item, f"{path}[value]")
    return pa.MapArray.from_arrays(_ends(values), keys, items)


def _texts(values: Sequence[Any], kinds: set[type], shape: Shape, path: str) -> pa.Array:
    _expect(kinds, {str})
    if shape.symbols and not set(values) - {None} <= set(shape.symbols):
        raise DataException(f"{_named(path)} is not a symbol of its enum")
    return pa.array(values, shape.kind)


def _booleans(values: Sequence[Any], kinds: set[type], shape: Shape, _: str) -> pa.Array:
    _expect(kinds, {bool})
    return pa.array(values, shape.kind)


def _integers(values: Sequence[Any], kinds: set[type], shape: Shape, _: str) -> pa.Array:
    if kinds <= {int}:
        return pa.array(values, shape.kind)
    _expect(kinds, {int, float, Decimal})
    if any(value is not None and value % 1 != 0 for value in values):  # Arrow would cut the fraction
        raise TypeError
    return pa.array([None if value is None else int(value) for value in values], shape.kind)


def _real(values: Sequence[Any], kinds: set[type], shape: Shape, _: str) -> pa.Array:
    _expect(kinds, {int, float, Decimal, str})
    if not kinds <= {float}:
        values = [
            None if value is None else _NOT_FINITE[value] if isinstance(value, str) else float(value)
            for value in _known(values, kinds)
        ]
    column = pa.array(values, shape.kind)
    if pa.types.is_float32(shape.kind):
        became = np.isinf(column.to_numpy(zero_copy_only=False))
        if (became & np.isfinite(np.array([np.inf if v is None else v for v in values]))).any():
            raise OverflowError
    return column


def _known(values: Sequence[Any], kinds: set[type]) -> Sequence[Any]:
    if str in kinds and any(isinstance(value, str) and value not in _NOT_FINITE for value in values):
        raise TypeError
    return values


def _decimals(values: Sequence[Any], kinds: set[type], shape: Shape, _: str) -> pa.Array:
    _expect(kinds, {int, Decimal, str, float})
    return decimal_column(
        [None if value is None else _unscaled(value, shape) for value in values], shape.kind
    )


def _unscaled(value: Any, shape: Shape) -> int:
    if isinstance(value, str) and shape.packs_decimals:
        return number_of(base64.b64decode(value, validate=True))
    return unscaled(Decimal(str(value)) if isinstance(value, float) else Decimal(value), shape.kind.scale)


def _bytes(values: Sequence[Any], kinds: set[type], shape: Shape, _: str) -> pa.Array:
    _expect(kinds, {str})
    try:
        data = [None if value is None else base64.b64decode(value, validate=True) for value in values]
    except binascii.Error:
        raise ValueError from None
    return pa.array(data, shape.kind)


def _times(values: Sequence[Any], kinds: set[type], shape: Shape, _: str) -> pa.Array:
    _expect(kinds, {int, str} if shape.times_may_be_numbers else {str})
    if str in kinds:
        read = _TIMES[next(test for test in _TIMES if test(shape.kind))]
        values = [read(value, shape.kind) if isinstance(value, str) else value for value in values]
    return pa.array(values, shape.kind)


def _days(text: str, _: pa.DataType) -> int:
    return (dt.date.fromisoformat(text) - _EPOCH.date()).days


def _clock(text: str, kind: pa.DataType) -> int:
    found = dt.time.fromisoformat(text)
    if found.tzinfo is not None:
        raise ValueError
    return _ticks(dt.datetime.combine(_EPOCH, found) - _EPOCH, kind.unit)


def _timestamp(text: str, kind: pa.DataType) -> int:
    found = dt.datetime.fromisoformat(text)
    if found.tzinfo is not None:
        if kind.tz is None:
            raise ValueError
        found = found.astimezone(dt.UTC).replace(tzinfo=None)
    return _ticks(found - _EPOCH, kind.unit)


def _ticks(since: dt.timedelta, unit: str) -> int:
    return since // _TICK * PER_SECOND[unit] // 1_000_000


_TIMES: Final[Mapping[Callable[[pa.DataType], bool], Callable[[str, pa.DataType], int]]] = {
    pa.types.is_date: _days,
    pa.types.is_time: _clock,
    pa.types.is_timestamp: _timestamp,
}

_Reader = Callable[[Sequence[Any], set[type], Shape, str], pa.Array]


def _is_time(kind: pa.DataType) -> bool:
    return any(test(kind) for test in _TIMES)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind))


_READERS: Final[tuple[tuple[Callable[[pa.DataType], bool], _Reader], ...]] = (
    (pa.types.is_string, _texts),
    (pa.types.is_struct, _structs),
    (pa.types.is_integer, _integers),
    (pa.types.is_floating, _real),
    (pa.types.is_boolean, _booleans),
    (pa.types.is_list, _lists),
    (pa.types.is_map, _maps),
    (is_decimal, _decimals),
    (_is_bytes, _bytes),
    (_is_time, _times),
)
