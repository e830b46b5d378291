"""Typed columns as bytes: text in UTF-8, other types as JSON, column by column."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sinksdk.errors import ConfigException
from sinksdk.values.calendar import DAY
from sinksdk.values.decimals import bytes_of, is_decimal, is_wide, items_of, unscaled
from sinksdk.values.json_text import is_json
from sinksdk.values.kinds import is_list
from sinksdk.values.plain import plain


@dataclass(frozen=True, slots=True)
class JsonStyle:
    """Style of JSON without a schema: numbers or ISO 8601 texts, base64, and pairs or objects."""

    writes_nulls: bool
    times_as_numbers: bool
    packs_decimals: bool
    maps_by_pairs: bool
    dates_in_days: bool = True


CONNECT_JSON: Final = JsonStyle(
    writes_nulls=True, times_as_numbers=True, packs_decimals=True, maps_by_pairs=True
)
"""Connect's JsonConverter without schemas; for values that converters have typed."""
JACKSON_JSON: Final = JsonStyle(
    writes_nulls=True, times_as_numbers=True, packs_decimals=False, maps_by_pairs=False, dates_in_days=False
)
"""Confluent's JsonFormat for values that are not structures: Java objects written by Jackson."""
SPARK_JSON: Final = JsonStyle(
    writes_nulls=False, times_as_numbers=False, packs_decimals=False, maps_by_pairs=False
)
"""Spark's ``to_json``; for values that Spark has typed."""


class NoJsonException(ConfigException):
    def __init__(self, kind: pa.DataType) -> None:
        super().__init__(f"values of type {kind} cannot be written as JSON: cast them, or leave them out")
        self.kind = kind


_MUST_BE_ESCAPED: Final = r'["\\\x00-\x1f]'


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    tests = (
        *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
        *(pa.types.is_fixed_size_binary, pa.types.is_null),
    )
    return any(test(kind) for test in tests) and not isinstance(kind, pa.BaseExtensionType)


def to_bytes(column: pa.Array, style: JsonStyle) -> pa.Array:
    if is_bytes(column.type) or is_text(column.type):
        return column.cast(pa.binary())
    return to_json(column, style).cast(pa.binary())


def to_json(column: pa.Array, style: JsonStyle) -> pa.Array:
    kind = column.type
    if is_json(kind):
        return column.storage
    if pa.types.is_dictionary(kind):
        return to_json(column.dictionary_decode(), style)
    for test, write in _WRITERS:
        if test(kind):
            return write(column, style)
    raise NoJsonException(kind)


def json_texts(
    column: pa.Array,
    like: Literal["connect", "jackson", "spark"] = "connect",
    *,
    decimals: Literal["BASE64", "NUMERIC"] = "BASE64",
) -> pa.Array:
    """Return a typed column as JSON texts, for sinks that write JSON; null stays null.

    Args:
        like: write like Connect's JsonConverter without schemas, like Confluent's JsonFormat for values that
            are not structures, or like Spark's ``to_json``.
        decimals: ``decimal.format`` of Connect's JsonConverter; the others write numbers.

    Raises:
        ConfigException: a type cannot be written as JSON.
    """
    style = {"connect": CONNECT_JSON, "jackson": JACKSON_JSON, "spark": SPARK_JSON}[like]
    return to_json(column, replace(style, packs_decimals=style.packs_decimals and decimals == "BASE64"))


def without_json(kind: pa.DataType) -> str | None:
    try:
        to_json(pa.nulls(0, kind), SPARK_JSON)
    except NoJsonException as error:
        return str(error.kind)
    return None


def _struct(column: pa.Array, style: JsonStyle) -> pa.Array:
    names = [field.name for field in column.type]
    pieces: list[Any] = []
    for number, (name, field) in enumerate(zip(names, column.flatten(), strict=True)):
        before, text = f"{encode_basestring(name)}:", to_json(field, style)
        if style.writes_nulls:
            pieces += [f",{before}" if number else before, text.fill_null("null")]
        else:
            pieces.append(pc.binary_join_element_wise(f",{before}", text, "").fill_null(""))
    if not names:
        body: Any = pa.repeat("", len(column))
    elif style.writes_nulls:
        body = pc.binary_join_element_wise(*pieces, "")
    else:
        body = pc.utf8_replace_slice(pc.binary_join_element_wise(*pieces, ""), 0, 1, "")
    return _where_valid(column, pc.binary_join_element_wise("{", body, "}", ""))


def _map(column: pa.Array, style: JsonStyle) -> pa.Array:
    kind = column.type
    entries = column.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
    keys, items = items_of(entries).flatten()
    names, values = to_json(keys, style), to_json(items, style).fill_null("null")
    if style.maps_by_pairs and not is_text(kind.key_type):
        return _bracketed(entries, pc.binary_join_element_wise("[", names, ",", values, "]", ""), "[]")
    if not is_text(kind.key_type):  # a key of a JSON object is always text
        names = pa.array([n if n.startswith('"') else json.dumps(n) for n in names.to_pylist()], pa.string())
    return _bracketed(entries, pc.binary_join_element_wise(names, values, ":"), "{}")


def _bracketed(column: pa.Array, items: pa.Array, brackets: str) -> pa.Array:
    lengths = np.asarray(column.value_lengths().fill_null(0))
    ends = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    joined = pc.binary_join(pa.ListArray.from_arrays(ends, items.fill_null("null")), ",")
    return _where_valid(column, pc.binary_join_element_wise(brackets[0], joined, brackets[1], ""))


def _where_valid(column: pa.Array, texts: pa.Array) -> pa.Array:
    if isinstance(texts, pa.Scalar):
        texts = pa.repeat(texts, len(column))
    return pc.if_else(column.is_valid(), texts, None) if column.null_count else texts


def _text(column: pa.Array, _: JsonStyle) -> pa.Array:
    column = column.cast(pa.string())
    if pc.any(pc.match_substring_regex(column, _MUST_BE_ESCAPED)).as_py():
        return _each(column, encode_basestring)
    return pc.binary_join_element_wise('"', column, '"', "")


def _real(column: pa.Array, _: JsonStyle) -> pa.Array:
    if pa.types.is_float64(column.type):
        return _each(column, _number)
    return _each(column, lambda value: _number(value, str(np.float32(value))))


def _number(value: float, text: str | None = None) -> str:
    if np.isfinite(value):
        return repr(value) if text is None else text
    return '"NaN"' if np.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _decimal(column: pa.Array, style: JsonStyle) -> pa.Array:
    if style.packs_decimals:
        scale = column.type.scale
        return _each(column, lambda value: f'"{packed_decimal(value, scale)}"')
    return _each(column, str if is_wide(column.type) else lambda value: format(value, "f"))


def packed_decimal(value: Decimal, scale: int) -> str:
    return base64.b64encode(bytes_of(unscaled(value, scale))).decode()


def _date(column: pa.Array, style: JsonStyle) -> pa.Array:
    days = column.cast(pa.date32())
    if style.times_as_numbers:
        numbers = days.cast(pa.int32())
        if not style.dates_in_days:
            numbers = pc.multiply(numbers.cast(pa.int64()), DAY)
        return numbers.cast(pa.string())
    return _iso(days, days.cast(pa.int32()).cast(pa.int64()), "D")


def _time(column: pa.Array, style: JsonStyle) -> pa.Array:
    if style.times_as_numbers:
        return column.cast(pa.int32() if pa.types.is_time32(column.type) else pa.int64()).cast(pa.string())
    return _each(column, lambda value: f'"{value.isoformat()}"')


def _timestamp(column: pa.Array, style: JsonStyle) -> pa.Array:
    numbers = column.cast(pa.int64())
    if style.times_as_numbers:
        return numbers.cast(pa.string())
    return _iso(column, numbers, column.type.unit, "Z" if column.type.tz else "")


def _iso(column: pa.Array, numbers: pa.Array, unit: str, zone: str = "") -> pa.Array:
    # Formatted by numpy, which supports all years. Whole seconds get no fraction.
    times = np.datetime_as_string(np.asarray(numbers.fill_null(0)).astype(f"M8[{unit}]"))
    texts = pc.replace_substring_regex(pa.array(times.tolist(), pa.string()), r"\.0+$", "")
    return _where_valid(column, pc.binary_join_element_wise('"', texts, f'{zone}"', ""))


def _each(column: pa.Array, write: Callable[[Any], str]) -> pa.Array:
    values = plain(column)
    return pa.array([None if value is None else write(value) for value in values], pa.string())


_WRITERS: Final[
    tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array, JsonStyle], pa.Array]], ...]
] = (
    (pa.types.is_null, lambda column, _: pa.nulls(len(column), pa.string())),
    (pa.types.is_struct, _struct),
    (pa.types.is_map, _map),
    (is_list, lambda column, style: _bracketed(column, to_json(items_of(column), style), "[]")),
    (is_text, _text),
    (lambda kind: isinstance(kind, pa.UuidType), lambda column, _: _each(column, lambda value: f'"{value}"')),
    (is_bytes, lambda column, _: _each(column, lambda value: f'"{base64.b64encode(value).decode()}"')),
    (pa.types.is_boolean, lambda column, _: column.cast(pa.string())),
    (pa.types.is_integer, lambda column, _: column.cast(pa.string())),
    (pa.types.is_floating, _real),
    (is_decimal, _decimal),
    (pa.types.is_date, _date),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_time, _time),
)
