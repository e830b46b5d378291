"""Transforms of headers, of schemas' names, and of what is delivered at all."""

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
from sinksdk.transforms import moments
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
    """The header."""

    header: Name = Field(description="Its name.")
    literal: str = Field(alias="value.literal", description="Its value, as UTF-8 without blanks around it.")


class InsertHeader(BuiltIn):
    """Adds a header, also if there is one of that name."""

    keys_class: ClassVar[type[Keys]] = InsertHeaderKeys

    def apply(self, records: SinkRecords) -> SinkRecords:
        """The records with one more header."""
        literal = self.keys.literal.strip()
        value = None if literal == "null" else literal.encode()
        header = Header(self.keys.header, value)
        return with_headers(records, [[*row, header] for row in headers_of(records)])


class DropHeadersKeys(Keys):
    """Which."""

    headers: Names = Field(description="Headers that are dropped.")


class DropHeaders(BuiltIn):
    """Drops headers by name."""

    keys_class: ClassVar[type[Keys]] = DropHeadersKeys

    def apply(self, records: SinkRecords) -> SinkRecords:
        """The records without these headers."""
        names = self.keys.headers
        return with_headers(records, [[h for h in row if h.key not in names] for row in headers_of(records)])


class HeaderFromKeys(FieldKeys):
    """Which fields become which headers."""

    fields: Names = Field(description="Fields of the key or value.")
    headers: Names = Field(description="Headers for them, in the same order.")
    operation: Literal["move", "copy"] = Field(description="Whether the fields go or stay.")

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        if len(self.fields) != len(self.headers):
            message = "'fields' config must have the same number of elements as 'headers' config."
            raise ValueError(message)
        return self


class HeaderFrom(BuiltIn):
    """Moves or copies fields into headers, as text."""

    keys_class: ClassVar[type[Keys]] = HeaderFromKeys
    purpose: ClassVar[str] = "header move or copy"

    def apply(self, records: SinkRecords) -> SinkRecords:
        """The records with more headers."""
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
    """As Connect's SimpleHeaderConverter writes it."""
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
    return (moments.to_text(value) if moments.is_one(value) else str(value)).encode()


class SetSchemaMetadataKeys(FieldKeys):
    """A schema's name and version."""

    name: str | None = Field(default=None, alias="schema.name", description="No effect.")
    version: int | None = Field(default=None, alias="schema.version", description="No effect.")

    @model_validator(mode="after")
    def _has_something(self) -> Self:
        if self.name is None and self.version is None:
            message = "Neither schema name nor version configured"
            raise ValueError(message)
        return self


class SetSchemaMetadata(BuiltIn):
    """Has no effect: there are types here, and no schemas with names."""

    keys_class: ClassVar[type[Keys]] = SetSchemaMetadataKeys

    def apply(self, records: SinkRecords) -> SinkRecords:
        """The records as they are."""
        return records


class Filter(BuiltIn):
    """Drops every record: it is used with a predicate."""

    def apply(self, records: SinkRecords) -> SinkRecords:
        """No record."""
        return records[:0]


class TombstoneHandlerKeys(Keys):
    """What becomes of tombstones."""

    behavior: Literal["ignore", "warn", "fail"] = Field(
        default="warn",
        description="`ignore` and `warn` drop them, `warn` logs it; `fail` makes them bad records.",
    )


class TombstoneHandler(BuiltIn):
    """Confluent's: drops records whose value is null."""

    keys_class: ClassVar[type[Keys]] = TombstoneHandlerKeys

    def apply(self, records: SinkRecords) -> SinkRecords:
        """The records that have a value."""
        present = ~are_tombstones(records)
        if present.all():
            return records
        if self.keys.behavior == "fail":
            message = "the record is a tombstone, and the behavior of TombstoneHandler is fail"
            raise DataException(message)
        dropped = records.offsets[~present]
        say = log.warning if self.keys.behavior == "warn" else log.debug
        say("%s: %d tombstones dropped, from offset %d on", records.partition, len(dropped), dropped[0])
        return records.take(np.flatnonzero(present))


def are_tombstones(records: SinkRecords) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """For each record whether its value is null."""
    values = content_of(records, "value")
    nulls = values.is_null().to_pylist() if isinstance(values, pa.Array) else [v is None for v in values]
    return np.array(nulls, np.bool_)
