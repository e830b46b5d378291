"""TimestampConverter: between texts, numbers and timestamps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator

from sinksdk.errors import DataException
from sinksdk.transforms import temporal
from sinksdk.transforms.base import FieldKeys, Keys, OfOnePart, rebuilt
from sinksdk.transforms.date_format import DateFormat
from sinksdk.transforms.parts import fields_of

_PER_SECOND: Final[Mapping[str, int]] = {
    "seconds": 1,
    "milliseconds": 1000,
    "microseconds": 1_000_000,
    "nanoseconds": 1_000_000_000,
}


class TimestampConverterKeys(FieldKeys):
    field: str = Field(default="", description="The field to convert; if not set, the whole value.")
    target: Literal["string", "unix", "Date", "Time", "Timestamp"] = Field(
        alias="target.type", description="Type to convert to; `unix` is a number."
    )
    format: str = Field(
        default="",
        description="Pattern of Java's SimpleDateFormat for texts, in UTC; the letters are "
        "`y M d D H k K h m s S a E Z X`.",
    )
    precision: Literal["seconds", "milliseconds", "microseconds", "nanoseconds"] = Field(
        default="milliseconds", alias="unix.precision", description="Unit of numbers."
    )

    @model_validator(mode="after")
    def _has_format(self) -> Self:
        if self.target == "string" and not self.format.strip():
            raise ValueError(
                "TimestampConverter requires format option to be specified when using string timestamps"
            )
        DateFormat.of(self.format)
        return self


class TimestampConverter(OfOnePart):
    """Converts a field, or the whole value, between texts, numbers and timestamps; null stays null."""

    keys_class: ClassVar[type[Keys]] = TimestampConverterKeys
    purpose: ClassVar[str] = "converting timestamp formats"

    def __init__(self, keys: Any, part: Any = "value") -> None:
        super().__init__(keys, part)
        self._format = DateFormat.of(keys.format) if keys.format.strip() else None

    @property
    def needs_fields(self) -> bool:
        return bool(self.keys.field)

    def plain(self, value: Any) -> Any:
        name = self.keys.field
        if value is None or not name:
            return self._converted(value)
        fields = self.expect_dict(value)  # a missing field is added as null, as in Connect
        return {**fields, name: self._converted(fields.get(name))}

    def typed(self, column: pa.Array) -> pa.Array:
        name = self.keys.field
        if not name:
            return self._column(column)
        fields = fields_of(self.expect_struct(column, may_be_null=True))
        if column.null_count == len(column):
            return column  # returned as it is, even if the field's type could not be converted
        return rebuilt([(n, self._column(item) if n == name else item) for n, item in fields], column)

    def _column(self, column: pa.Array) -> pa.Array:
        kind = column.type
        if not (temporal.is_temporal(kind) or pa.types.is_string(kind) or pa.types.is_int64(kind)):
            raise DataException(f"type {kind} does not correspond to a known timestamp type format")
        values = temporal.from_column(column) if temporal.is_temporal(kind) else column.to_pylist()
        return pa.array([self._converted(value) for value in values], self._type())

    def _type(self) -> pa.DataType:
        target = self.keys.target
        if target in temporal.TYPES:
            return temporal.TYPES[target]
        return pa.string() if target == "string" else pa.int64()

    def _converted(self, value: Any) -> Any:
        if value is None:
            return None
        millis, target = self._millis(value), self.keys.target
        if target == "string" and self._format is not None:
            return self._format.format(millis)
        if target == "unix":
            return _scaled(millis, _PER_SECOND[self.keys.precision], 1000)
        return temporal.of_millis(millis, target)

    def _millis(self, value: Any) -> int:
        if temporal.is_temporal_value(value):
            return temporal.to_millis(value)
        if isinstance(value, str):
            millis = self._format.parse(value) if self._format else None
            if millis is None:
                raise DataException(
                    f"Could not parse timestamp: a text does not match the pattern '{self.keys.format}'"
                )
            return millis
        if isinstance(value, int) and not isinstance(value, bool):
            return _scaled(value, 1000, _PER_SECOND[self.keys.precision])
        raise DataException(f"TimestampConverter does not support {type(value).__name__} as timestamps")


def _scaled(number: int, factor: int, divisor: int) -> int:
    scaled = abs(number) * factor // divisor
    # Java's TimeUnit truncates towards zero.
    return scaled if number >= 0 else -scaled
