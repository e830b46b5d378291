"""Transforms of nested structures: ExtractField, Flatten."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final, Self

import pyarrow as pa
from pydantic import Field, field_validator, model_validator

from sinksdk.errors import DataException
from sinksdk.transforms.base import FieldKeys, Keys, OfOnePart, rebuilt
from sinksdk.transforms.parts import fields_of

_QUOTE: Final = "`"


def path_of(text: str) -> list[str]:
    """Return the names in a dotted path; names in backticks may contain dots (KIP-821)."""
    names, place = [], 0
    while place < len(text):
        if text[place] == _QUOTE:
            # A backtick ends a name only before a dot or at the end; a backslash before it prevents that.
            name, place = _quoted(text, place)
        else:
            end = text.find(".", place)
            end = len(text) if end < 0 else end
            name, place = text[place:end], end + 1
        names.append(name)
    return [*names, ""] if text.endswith(".") else names


def _quoted(text: str, start: int) -> tuple[str, int]:
    name, place = "", start + 1
    while True:
        end = text.find(_QUOTE, place)
        is_last = end == len(text) - 1
        if end < 0 or (is_last and text[end - 1] == "\\"):
            raise ValueError(
                f"Incomplete backtick pair in path: [{text}], consider adding a backslash before backtick at "
                f"position {start} to escape it"
            )
        if is_last:
            return name + text[place:end], end + 1
        if text[end + 1] != ".":
            name, place = name + text[place : end + 1], end + 1
        elif text[end - 1] == "\\":
            name, place = name + text[place : end - 1] + _QUOTE, end + 1
        else:
            return name + text[place:end], end + 2


class ExtractFieldKeys(FieldKeys):
    field: str = Field(description="The field that becomes the value.")
    syntax: str = Field(
        default="V1",
        alias="field.syntax.version",
        description="`V2`: dots separate names of nested structures; names in backticks may contain dots.",
    )

    @field_validator("syntax")
    @classmethod
    def _known(cls, syntax: str) -> str:
        if syntax.upper() not in ("V1", "V2"):
            raise ValueError("String must be one of (case insensitive): V1, V2")
        return syntax.upper()

    @model_validator(mode="after")
    def _parsed(self) -> Self:
        if self.syntax == "V2":
            path_of(self.field)
        return self


class ExtractField(OfOnePart):
    """Replaces the whole value by one of its fields; null stays null."""

    keys_class: ClassVar[type[Keys]] = ExtractFieldKeys
    purpose: ClassVar[str] = "field extraction"

    def plain(self, value: Any) -> Any:
        for name in self._path():
            if value is None:
                return None
            value = self.expect_dict(value).get(name)  # unlike in typed values, a missing field becomes null
        return value

    def typed(self, column: pa.Array) -> pa.Array:
        for name in self._path():
            found = dict(fields_of(self.expect_struct(column, may_be_null=True))).get(name)
            if found is None:
                raise DataException(f"Unknown field: {self.keys.field}")
            column = found
        return column

    def _path(self) -> list[str]:
        return path_of(self.keys.field) if self.keys.syntax == "V2" else [self.keys.field]


class FlattenKeys(Keys):
    delimiter: str = Field(default=".", description="Text between the joined names.")


class Flatten(OfOnePart):
    """Flattens nested structures; names are joined with the delimiter. Null and lists stay as they are."""

    keys_class: ClassVar[type[Keys]] = FlattenKeys
    purpose: ClassVar[str] = "flattening"

    def plain(self, value: Any) -> Any:
        return None if value is None else dict(self._flat(self.expect_dict(value), ""))

    def _flat(self, fields: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for name, item in fields.items():
            path = self._joined(prefix, name)
            if isinstance(item, dict):
                yield from self._flat(item, path)
            else:
                yield path, item

    def typed(self, column: pa.Array) -> pa.Array:
        if column.null_count == len(column):
            return column
        self.expect_struct(column, may_be_null=True)
        return rebuilt(list(self._flat_columns(column, "")), column)

    def _flat_columns(self, column: pa.Array, prefix: str) -> Iterator[tuple[str, pa.Array]]:
        for name, item in fields_of(column):
            path = self._joined(prefix, name)
            if pa.types.is_struct(item.type):
                yield from self._flat_columns(item, path)
            elif pa.types.is_map(item.type):
                raise DataException(f"a map cannot be flattened (field {path})")
            else:
                yield path, item

    def _joined(self, prefix: str, name: str) -> str:
        return f"{prefix}{self.keys.delimiter}{name}" if prefix else name
