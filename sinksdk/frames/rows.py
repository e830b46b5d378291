"""Converts a DataFrame's rows to records: key, value, headers and timestamp, or the whole row as value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sinksdk.errors import ConfigException, DataException
from sinksdk.offsets import TopicPartition
from sinksdk.records import HEADERS_TYPE, RECORD_COLUMNS, SinkRecords
from sinksdk.transforms.parts import Part
from sinksdk.values.text import is_bytes, is_text, without_json

# Columns of Spark's Kafka source that are ignored: records get new ones here.
_FROM_KAFKA: Final = frozenset({"topic", "partition", "offset", "timestampType"})
_OWN: Final = ("key", "value", "headers", "timestamp")


def check_columns(schema: pa.Schema, json_of: Mapping[Part, str]) -> None:
    """Raise ConfigException for columns that cannot be written.

    ``json_of`` contains the parts (key, value) that become bytes, with the reason; others stay typed.
    """
    problems = list[str]()
    has_row_values = "value" not in schema.names
    for field in schema:
        part: Any = "value" if has_row_values else field.name
        if part in json_of and (kind := without_json(field.type)) is not None:
            problems.append(
                f"column '{field.name}' cannot be written as JSON, because it holds {kind}, and "
                f"{json_of[part]}: drop or cast the column"
            )
    if has_row_values:
        raise_all(problems)
        return
    if "headers" in schema.names and not _is_headers(schema.field("headers").type):
        problems.append(
            f"column 'headers' is {schema.field('headers').type}, but must be an array of structs of key "
            f"(string) and value (binary), as in Spark's Kafka source"
        )
    if "timestamp" in schema.names and not _is_timestamp(schema.field("timestamp").type):
        problems.append(
            f"column 'timestamp' is {schema.field('timestamp').type}, but must be a timestamp with time "
            f"zone, or milliseconds since the epoch as bigint"
        )
    if left := [name for name in schema.names if name not in (*_OWN, *_FROM_KAFKA)]:
        problems.append(
            f"columns {', '.join(left)} are not written when there is a column 'value': drop them, or rename "
            f"'value', so that each whole row becomes JSON"
        )
    raise_all(problems)


def raise_all(problems: list[str]) -> None:
    if problems:
        raise ConfigException(problems)


def as_records(
    batches: Iterable[pa.RecordBatch], partition: TopicPartition, start: int
) -> Iterator[SinkRecords]:
    row = 0
    for batch in batches:
        if batch.num_rows:
            _expect_header_keys(batch, partition, start, row)
            yield SinkRecords(partition, _columns(batch, start))
            start += batch.num_rows
            row += batch.num_rows


def _expect_header_keys(batch: pa.RecordBatch, partition: TopicPartition, start: int, row: int) -> None:
    # Kafka has no headers without keys, so ``errors.tolerance`` does not apply to them.
    if "value" not in batch.schema.names or "headers" not in batch.schema.names:
        return
    headers = batch.column("headers")
    is_null = pc.is_null(pc.struct_field(headers.flatten(), "key"))
    place = pc.index(is_null, True).as_py()
    if place >= 0:
        at = headers.value_parent_indices()[place].as_py()
        raise DataException(
            f"column 'headers' of row {row + at} of Spark partition {partition.partition} ({partition}, "
            f"offset {start + at}) has a header without a key, which Kafka does not allow; the row is not "
            f"written: add a key, or remove the header with filter(headers, header -> header.key IS NOT NULL)"
        )


def _columns(batch: pa.RecordBatch, start: int) -> pa.RecordBatch:
    rows = batch.num_rows
    found = {name: batch.column(name) for name in batch.schema.names}
    if "value" not in found:
        row = (
            pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
            if found
            else pa.array([{}] * rows)
        )
        found = {"value": row}
    timestamp = _timestamp(found.get("timestamp"), rows)
    kinds = pc.if_else(pc.is_valid(timestamp), pa.scalar(0, pa.int32()), pa.scalar(-1, pa.int32()))
    columns = {
        "offset": pa.array(range(start, start + rows), pa.int64()),
        "timestamp": timestamp,
        "timestampType": kinds,
        **{name: _part(found.get(name), rows) for name in ("key", "value")},
        "headers": _headers(found.get("headers"), rows),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in RECORD_COLUMNS], names=list(RECORD_COLUMNS))


def _headers(column: pa.Array | None, rows: int) -> pa.Array:
    if column is None:
        return pa.nulls(rows, HEADERS_TYPE)
    if column.values.field("key").null_count:  # Arrow's cast also checks rows outside of a slice
        column = column.take(pa.array(range(rows)))
    return column.cast(HEADERS_TYPE)


def _part(column: pa.Array | None, rows: int) -> pa.Array:
    if column is None:
        return pa.nulls(rows, pa.binary())
    return column.cast(pa.binary()) if is_text(column.type) or is_bytes(column.type) else column


def _timestamp(column: pa.Array | None, rows: int) -> pa.Array:
    kind = RECORD_COLUMNS["timestamp"]
    if column is None:
        return pa.nulls(rows, kind)
    # Truncated to milliseconds, as Kafka has them.
    return (
        column.cast(pa.int64()).cast(kind)
        if pa.types.is_integer(column.type)
        else column.cast(kind, safe=False)
    )


def _is_headers(kind: pa.DataType) -> bool:
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    fields = [kind.value_type.field(n) for n in range(kind.value_type.num_fields)]
    return [field.name for field in fields] == ["key", "value"] and all(
        is_bytes(f.type) or is_text(f.type) for f in fields
    )


def _is_timestamp(kind: pa.DataType) -> bool:
    return pa.types.is_int64(kind) or (pa.types.is_timestamp(kind) and kind.tz is not None)
