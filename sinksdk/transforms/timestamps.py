"""TimestampConverter: between texts, numbers and moments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator

from sinksdk.errors import DataException
from sinksdk.transforms import moments
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
    """What is converted, and into what."""

    field: str = Field(default="", description="The field; if not set, the whole value.")
    target: Literal["string", "unix", "Date", "Time", "Timestamp"] = Field(
        alias="target.type", description="`unix` is a number."
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
            message = "TimestampConverter requires format option to be specified when using string timestamps"
            raise ValueError(message)
        DateFormat.of(self.format)
        return self


class TimestampConverter(OfOnePart):
    """Converts a field, or the whole value; nulls stay."""

    keys_class: ClassVar[type[Keys]] = TimestampConverterKeys
    purpose: ClassVar[str] = "converting timestamp formats"

    def __init__(self, keys: Any, part: Any = "value") -> None:
        super().__init__(keys, part)
        self._format = DateFormat.of(keys.format) if keys.format.strip() else None

    @property
    def needs_fields(self) -> bool:
        """Unless it is for the whole value."""
        return bool(self.keys.field)

    def plain(self, value: Any) -> Any:
        """Of an object. A field that is missing is added as null, as in Connect."""
        name = self.keys.field
        if value is None or not name:
            return self._converted(value)
        fields = self.expect_dict(value)
        return {**fields, name: self._converted(fields.get(name))}

    def typed(self, column: pa.Array) -> pa.Array:
        """Of a column of any type, or of structures."""
        name = self.keys.field
        if not name:
            return self._column(column)
        fields = fields_of(self.expect_struct(column, may_be_null=True))
        if column.null_count == len(column):
            return column  # also where the field is none that can be converted
        return rebuilt([(n, self._column(item) if n == name else item) for n, item in fields], column)

    def _column(self, column: pa.Array) -> pa.Array:
        kind = column.type
        if not (moments.is_moment(kind) or pa.types.is_string(kind) or pa.types.is_int64(kind)):
            raise DataException(f"type {kind} does not correspond to a known timestamp type format")
        values = moments.from_column(column) if moments.is_moment(kind) else column.to_pylist()
        return pa.array([self._converted(value) for value in values], self._type())

    def _type(self) -> pa.DataType:
        target = self.keys.target
        if target in moments.TYPES:
            return moments.TYPES[target]
        return pa.string() if target == "string" else pa.int64()

    def _converted(self, value: Any) -> Any:
        if value is None:
            return None
        millis, target = self._millis(value), self.keys.target
        if target == "string" and self._format is not None:
            return self._format.format(millis)
        if target == "unix":
            return _scaled(millis, _PER_SECOND[self.keys.precision], 1000)
        return moments.of_millis(millis, target)

    def _millis(self, value: Any) -> int:
        if moments.is_one(value):
            return moments.to_millis(value)
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
    """A number in another unit; what is less than one of it is cut off, as Java's TimeUnit does."""
    scaled = abs(number) * factor // divisor
    return scaled if number >= 0 else -scaled
