"""The keys, values and headers of records that transforms change.

Only this module distinguishes Python objects from typed columns.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa

from sinksdk.records import HEADERS_TYPE, Header, SinkRecords
from sinksdk.values.rows import column_of

Part = Literal["key", "value"]
PARTS: Final[tuple[Part, Part]] = ("key", "value")
Content: TypeAlias = list[Any] | pa.Array
"""One object per record, or a typed column; null is a tombstone in both."""


def content_of(records: SinkRecords, part: Part) -> Content:
    objects = records.key_objects if part == "key" else records.value_objects
    if objects is not None:
        return list(objects)
    column = column_of(records.arrow, part)
    if column is None:
        return [None] * len(records)
    # A column of only nulls has no type.
    return column.to_pylist() if pa.types.is_null(column.type) else column


def objects_of(content: Content) -> list[Any]:
    if not isinstance(content, pa.Array):
        return content
    # Arrow returns a map as a list of pairs.
    values = content.to_pylist()
    return [_with_dicts(value, content.type) for value in values] if _has_maps(content.type) else values


def _has_maps(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    return pa.types.is_nested(kind) and any(
        _has_maps(kind.field(place).type) for place in range(kind.num_fields)
    )


def _with_dicts(value: Any, kind: pa.DataType) -> Any:
    if value is None or not _has_maps(kind):
        return value
    if pa.types.is_map(kind):
        return {name: _with_dicts(item, kind.item_type) for name, item in value}
    if pa.types.is_struct(kind):
        return {field.name: _with_dicts(value[field.name], field.type) for field in kind}
    return [_with_dicts(item, kind.value_type) for item in value]


def with_content(records: SinkRecords, part: Part, content: Content) -> SinkRecords:
    objects: Sequence[Any] | None = None
    if isinstance(content, pa.Array):
        records = _with_column(records, part, content)
    else:
        objects = content
    return replace(records, key_objects=objects) if part == "key" else replace(records, value_objects=objects)


def _with_column(records: SinkRecords, name: str, column: pa.Array) -> SinkRecords:
    arrow = records.arrow
    index = arrow.schema.get_field_index(name)
    changed = arrow.append_column(name, column) if index < 0 else arrow.set_column(index, name, column)
    return replace(records, arrow=changed, read=arrow if records.read is None else records.read)


def headers_of(records: SinkRecords) -> list[list[Header]]:
    column = column_of(records.arrow, "headers")
    rows = [None] * len(records) if column is None else column.to_pylist()
    return [[Header(item["key"], item["value"]) for item in row or ()] for row in rows]


def with_headers(records: SinkRecords, headers: Sequence[Sequence[Header]]) -> SinkRecords:
    rows = [[item._asdict() for item in row] or None for row in headers]
    return _with_column(records, "headers", pa.array(rows, HEADERS_TYPE))


def integers_of(records: SinkRecords, name: str) -> list[int | None]:
    column = column_of(records.arrow, name)
    if column is None:
        return [None] * len(records)
    numbers: list[int | None] = column.cast(pa.int64()).to_pylist()
    return numbers


def are_alike(pieces: Sequence[SinkRecords]) -> bool:
    """Whether the keys, and the values, of all pieces have one type; null is of any type."""
    for part in PARTS:
        contents = [content for piece in pieces if _has_values(content := content_of(piece, part))]
        if len({_type_of(content) for content in contents}) > 1:
            return False
    return True


def _has_values(content: Content) -> bool:
    if isinstance(content, pa.Array):
        return bool(content.null_count < len(content))
    return any(value is not None for value in content)


def _type_of(content: Content) -> pa.DataType | None:
    return content.type if isinstance(content, pa.Array) else None


def joined(pieces: Sequence[SinkRecords]) -> SinkRecords:
    filled = [piece for piece in pieces if len(piece)] or list(pieces[:1])
    if len(filled) == 1:
        return filled[0]
    for part in PARTS:
        contents = _of_one_type([content_of(piece, part) for piece in filled])
        filled = [with_content(piece, part, content) for piece, content in zip(filled, contents, strict=True)]
    keys, values = ([getattr(piece, name) for piece in filled] for name in ("key_objects", "value_objects"))
    is_read = any(piece.read is not None for piece in filled)
    return SinkRecords(
        filled[0].partition,
        _concatenated([piece.arrow for piece in filled]),
        None if keys[0] is None else list(itertools.chain.from_iterable(keys)),
        None if values[0] is None else list(itertools.chain.from_iterable(values)),
        _concatenated([piece.arrow if piece.read is None else piece.read for piece in filled])
        if is_read
        else None,
    )


def _of_one_type(contents: Sequence[Content]) -> Sequence[Content]:
    kind = next((_type_of(content) for content in contents if _has_values(content)), _type_of(contents[0]))
    if kind is None:
        return [objects_of(content) for content in contents]
    return [content if _type_of(content) == kind else pa.nulls(len(content), kind) for content in contents]


def fields_of(column: pa.Array) -> list[tuple[str, pa.Array]]:
    return list(zip([field.name for field in column.type], column.flatten(), strict=True))


def structure(columns: Sequence[pa.Array], names: Sequence[str], like: pa.Array) -> pa.Array:
    kind = pa.struct([pa.field(name, column.type) for name, column in zip(names, columns, strict=True)])
    nulls = like.is_null() if like.null_count else None
    if columns:
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=nulls)
    return pa.array([None if is_null else {} for is_null in like.is_null().to_pylist()], kind)


def _concatenated(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    kinds: dict[str, set[pa.DataType]] = {}
    for batch in batches:
        for field in batch.schema:
            kinds.setdefault(field.name, set()).add(field.type)
    # Columns of several types are keys or values that are also present as objects.
    odd = {name for name, types in kinds.items() if len(types) > 1}
    tables = [
        pa.Table.from_batches([batch.drop_columns([n for n in batch.schema.names if n in odd])])
        for batch in batches
    ]
    whole = pa.concat_tables(tables, promote_options="default").combine_chunks()
    return whole.to_batches()[0]
