"""Transforms of headers and of schema names, and those that drop records."""

from __future__ import annotations

import base64
import json
import logging
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, StringConstraints, model_validator

from sinksdk.errors import DataException
from sinksdk.records import Header, SinkRecords
from sinksdk.transforms import temporal
from sinksdk.transforms.base import BuiltIn, FieldKeys, Keys, field_of, rebuilt
from sinksdk.transforms.fields import Names
from sinksdk.transforms.numbers import to_text
from sinksdk.transforms.parts import (
    content_of,
    fields_of,
    headers_of,
    objects_of,
    with_content,
    with_headers,
)

log = logging.getLogger(__name__)

Name = Annotated[str, StringConstraints(min_length=1)]


class InsertHeaderKeys(Keys):
    header: Name = Field(description="The header's name.")
    literal: str = Field(
        alias="value.literal", description="The header's value, as UTF-8 without surrounding blanks."
    )


class InsertHeader(BuiltIn):
    """Adds a header, even if one of that name exists."""

    keys_class: ClassVar[type[Keys]] = InsertHeaderKeys

    def apply(self, records: SinkRecords) -> SinkRecords:
        literal = self.keys.literal.strip()
        value = None if literal == "null" else literal.encode()
        header = Header(self.keys.header, value)
        return with_headers(records, [[*row, header] for row in headers_of(records)])


class DropHeadersKeys(Keys):
    headers: Names = Field(description="Headers to drop.")


class DropHeaders(BuiltIn):
    """Drops headers by name."""

    keys_class: ClassVar[type[Keys]] = DropHeadersKeys

    def apply(self, records: SinkRecords) -> SinkRecords:
        names = self.keys.headers
        return with_headers(records, [[h for h in row if h.key not in names] for row in headers_of(records)])


class HeaderFromKeys(FieldKeys):
    fields: Names = Field(description="Fields of the key or value.")
    headers: Names = Field(description="The headers' names, in the order of `fields`.")
    operation: Literal["move", "copy"] = Field(description="`move` removes the fields, `copy` keeps them.")

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        if len(self.fields) != len(self.headers):
            raise ValueError("'fields' config must have the same number of elements as 'headers' config.")
        return self


class HeaderFrom(BuiltIn):
    """Moves or copies fields into headers, as text."""

    keys_class: ClassVar[type[Keys]] = HeaderFromKeys
    purpose: ClassVar[str] = "header move or copy"

    def apply(self, records: SinkRecords) -> SinkRecords:
        content, names = content_of(records, self.part), self.keys.fields
        if isinstance(content, pa.Array):
            self.expect_struct(content)
            values = [_objects(field_of(content, name)) for name in names]
            rest = [(name, item) for name, item in fields_of(content) if name not in names]
            moved: Any = rebuilt(rest, content)
        else:
            rows = [self.expect_dict(value) for value in content]
            values = [[row.get(name) for row in rows] for name in names]
            moved = [{name: row[name] for name in row if name not in names} for row in rows]
        headers = headers_of(records)
        for name, column in zip(self.keys.headers, values, strict=True):
            for row, value in zip(headers, column, strict=True):
                row.append(Header(name, _as_header(value)))
        changed = with_headers(records, headers)
        return with_content(changed, self.part, moved) if self.keys.operation == "move" else changed


def _objects(column: pa.Array) -> list[Any]:
    values = objects_of(column)
    if pa.types.is_float32(column.type):
        return [None if value is None else np.float32(value) for value in values]
    return values


def _as_header(value: Any) -> bytes | None:
    # The formats are those of Connect's SimpleHeaderConverter.
    if value is None:
        return None
    if isinstance(value, bytes):
        return base64.b64encode(value)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool | list | dict):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str).encode()
    if isinstance(value, float | np.float32):
        return to_text(value).encode()
    return (temporal.to_text(value) if temporal.is_temporal_value(value) else str(value)).encode()


class SetSchemaMetadataKeys(FieldKeys):
    name: str | None = Field(default=None, alias="schema.name", description="No effect.")
    version: int | None = Field(default=None, alias="schema.version", description="No effect.")

    @model_validator(mode="after")
    def _has_something(self) -> Self:
        if self.name is None and self.version is None:
            raise ValueError("Neither schema name nor version configured")
        return self


class SetSchemaMetadata(BuiltIn):
    """Has no effect: values have types here, but no named schemas."""

    keys_class: ClassVar[type[Keys]] = SetSchemaMetadataKeys

    def apply(self, records: SinkRecords) -> SinkRecords:
        return records


class Filter(BuiltIn):
    """Drops every record; meant for use with a predicate."""

    def apply(self, records: SinkRecords) -> SinkRecords:
        return records[:0]


class TombstoneHandlerKeys(Keys):
    behavior: Literal["ignore", "warn", "fail"] = Field(
        default="warn",
        description="`ignore` drops tombstones, `warn` also logs them, `fail` makes them bad records.",
    )


class TombstoneHandler(BuiltIn):
    """Confluent's: drops records whose value is null."""

    keys_class: ClassVar[type[Keys]] = TombstoneHandlerKeys

    def apply(self, records: SinkRecords) -> SinkRecords:
        present = ~are_tombstones(records)
        if present.all():
            return records
        if self.keys.behavior == "fail":
            raise DataException("the record is a tombstone, and 'behavior' of TombstoneHandler is fail")
        dropped = records.offsets[~present]
        say = log.warning if self.keys.behavior == "warn" else log.debug
        say("%s: %d tombstones dropped, from offset %d on", records.partition, len(dropped), dropped[0])
        return records.take(np.flatnonzero(present))


def are_tombstones(records: SinkRecords) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    values = content_of(records, "value")
    nulls = values.is_null().to_pylist() if isinstance(values, pa.Array) else [v is None for v in values]
    return np.array(nulls, np.bool_)
