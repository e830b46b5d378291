"""A DataFrame's rows as records: columns key, value, headers and timestamp, or each whole row as JSON."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sinksdk.errors import ConfigException
from sinksdk.records import HEADERS_TYPE, RECORD_COLUMNS, SinkRecords, TopicPartition

_FROM_KAFKA: Final = frozenset({"topic", "partition", "offset", "timestampType"})
"""Further columns of Spark's Kafka source, which need not be dropped: records get others here."""
_OWN: Final = ("key", "value", "headers", "timestamp")

Encode = Callable[[Any], str]


def check_columns(schema: pa.Schema) -> None:
    """Check that a DataFrame of these columns can be written.

    Raises:
        ConfigException: each column that cannot, with its type and what to do.
    """
    problems = list[str]()
    if "value" not in schema.names:
        for field in schema:
            if (kind := _without_json(field.type)) is not None:
                problems.append(
                    f"column '{field.name}' cannot be written as JSON, it holds {kind}: drop it or cast it"
                )
        raise_all(problems)
        return
    for name in ("key", "value"):
        if name in schema.names and not _is_bytes(schema.field(name).type):
            problems.append(
                f"column '{name}' is {schema.field(name).type}, and must be a string or binary: cast it, use "
                f"to_json('{name}')"
                + (", or rename it, so that each whole row becomes JSON" * (name == "value"))
            )
    if "headers" in schema.names and not _is_headers(schema.field("headers").type):
        problems.append(
            f"column 'headers' is {schema.field('headers').type}, and must be an array of structs of key "
            f"(string) and value (binary), as Spark's Kafka source has it"
        )
    if "timestamp" in schema.names and not _is_timestamp(schema.field("timestamp").type):
        problems.append(
            f"column 'timestamp' is {schema.field('timestamp').type}, and must be a timestamp with time "
            f"zone, or milliseconds since the epoch as bigint"
        )
    if left := [name for name in schema.names if name not in (*_OWN, *_FROM_KAFKA)]:
        problems.append(
            f"columns {', '.join(left)} would be left out beside 'value': drop them, or rename 'value', so "
            f"that each whole row becomes JSON"
        )
    raise_all(problems)


def raise_all(problems: list[str]) -> None:
    """Raise ConfigException if there are any."""
    if problems:
        raise ConfigException(problems)


def as_records(
    batches: Iterable[pa.RecordBatch], partition: TopicPartition, start: int
) -> Iterator[SinkRecords]:
    """Rows as records of a partition, with offsets from ``start`` on, in the order in which they come."""
    for batch in batches:
        if batch.num_rows:
            yield SinkRecords(partition, _columns(batch, start))
            start += batch.num_rows


def _columns(batch: pa.RecordBatch, start: int) -> pa.RecordBatch:
    rows = batch.num_rows
    found = {name: batch.column(name) for name in batch.schema.names}
    if "value" not in found:
        found = {"value": row_as_json(batch)}
    timestamp = _timestamp(found.get("timestamp"), rows)
    kinds = pc.if_else(pc.is_valid(timestamp), pa.scalar(0, pa.int32()), pa.scalar(-1, pa.int32()))
    columns = {
        "offset": pa.array(range(start, start + rows), pa.int64()),
        "timestamp": timestamp,
        "timestampType": kinds,
        **{name: _cast(found.get(name), rows, pa.binary()) for name in ("key", "value")},
        "headers": _cast(found.get("headers"), rows, HEADERS_TYPE),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in RECORD_COLUMNS], names=list(RECORD_COLUMNS))


def _cast(column: pa.Array | None, rows: int, kind: pa.DataType) -> pa.Array:
    return pa.nulls(rows, kind) if column is None else column.cast(kind)


def _timestamp(column: pa.Array | None, rows: int) -> pa.Array:
    kind = RECORD_COLUMNS["timestamp"]
    if column is None:
        return pa.nulls(rows, kind)
    # Microseconds are cut off: Kafka has none.
    return (
        column.cast(pa.int64()).cast(kind)
        if pa.types.is_integer(column.type)
        else column.cast(kind, safe=False)
    )


def _is_bytes(kind: pa.DataType) -> bool:
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string)
    return any(test(kind) for test in tests)


def _is_headers(kind: pa.DataType) -> bool:
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    fields = [kind.value_type.field(n) for n in range(kind.value_type.num_fields)]
    return [field.name for field in fields] == ["key", "value"] and all(_is_bytes(f.type) for f in fields)


def _is_timestamp(kind: pa.DataType) -> bool:
    return pa.types.is_int64(kind) or (pa.types.is_timestamp(kind) and kind.tz is not None)


# -- whole rows as JSON ----------------------------------------------------------------------------------


def row_as_json(batch: pa.RecordBatch) -> pa.Array:
    """Each row as a JSON object in UTF-8, as Spark's ``to_json`` writes it: without fields that are null.

    Times are in UTC, with as many digits of the second as they need; bytes are in base64.
    """
    kind = pa.struct(list(batch.schema))
    encode = _encoder(kind)
    rows = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema)).to_pylist()
    return pa.array([encode(row).encode() for row in rows], pa.binary())


def _encoder(kind: pa.DataType) -> Encode:
    """Writes the values of a type that are not null. Raises ConfigException: there is no JSON of it."""
    types = pa.types
    if types.is_struct(kind):
        return _struct_encoder(kind)
    if types.is_map(kind):
        key, item = _encoder(kind.key_type), _or_null(_encoder(kind.item_type))
        return lambda pairs: "{" + ",".join(f"{_as_key(key(k))}:{item(v)}" for k, v in pairs) + "}"
    if types.is_list(kind) or types.is_large_list(kind):
        item = _or_null(_encoder(kind.value_type))
        return lambda items: "[" + ",".join(map(item, items)) + "]"
    for test, encode in _SCALARS:
        if test(kind):
            return encode
    raise ConfigException(str(kind))


def _without_json(kind: pa.DataType) -> str | None:
    """The part of a type of which there is no JSON, or None."""
    try:
        _encoder(kind)
    except ConfigException as error:
        return str(error)
    return None


def _struct_encoder(kind: pa.DataType) -> Encode:
    fields = [kind.field(number) for number in range(kind.num_fields)]
    named = [(field.name, _text(field.name), _encoder(field.type)) for field in fields]

    def encode(row: dict[str, Any]) -> str:
        shown = (f"{text}:{encode(row[name])}" for name, text, encode in named if row[name] is not None)
        return "{" + ",".join(shown) + "}"

    return encode


def _or_null(encode: Encode) -> Encode:
    return lambda value: "null" if value is None else encode(value)


def _as_key(text: str) -> str:
    """A map's key, which JSON wants as a text."""
    return text if text.startswith('"') else json.dumps(text)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _time(value: dt.datetime) -> str:
    if value.tzinfo is None:
        return f'"{value.isoformat(timespec="auto")}"'
    return f'"{value.astimezone(dt.UTC).replace(tzinfo=None).isoformat()}Z"'


_SCALARS: Final[tuple[tuple[Callable[[pa.DataType], bool], Encode], ...]] = (
    (pa.types.is_boolean, lambda value: "true" if value else "false"),
    (pa.types.is_integer, str),
    (pa.types.is_floating, _number),
    (pa.types.is_decimal, lambda value: format(value, "f")),
    (pa.types.is_string, _text),
    (pa.types.is_large_string, _text),
    (pa.types.is_binary, lambda value: f'"{base64.b64encode(value).decode()}"'),
    (pa.types.is_large_binary, lambda value: f'"{base64.b64encode(value).decode()}"'),
    (pa.types.is_date, lambda value: f'"{value.isoformat()}"'),
    (pa.types.is_timestamp, _time),
    (pa.types.is_null, lambda _: "null"),
)
