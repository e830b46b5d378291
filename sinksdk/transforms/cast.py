"""Cast: converts fields, or whole values, to another type."""

from __future__ import annotations

import base64
import datetime as dt
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator

from sinksdk.errors import DataException
from sinksdk.settings.model import NameList
from sinksdk.transforms import temporal
from sinksdk.transforms.base import FieldKeys, Keys, OfOnePart, rebuilt
from sinksdk.transforms.numbers import Number, parsed_float, parsed_whole, to_single, to_text, to_whole
from sinksdk.transforms.parts import fields_of

_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_TYPES: Final[Mapping[str, pa.DataType]] = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
}
# An empty name stands for the whole value.
_WHOLE: Final = ""


class CastKeys(FieldKeys):
    spec: NameList = Field(
        description="`field:type,field:type`, or one type for the whole value. Types are int8, int16, int32, "
        "int64, float32, float64, boolean and string."
    )

    @field_validator("spec")
    @classmethod
    def _known(cls, spec: tuple[str, ...]) -> tuple[str, ...]:
        if not spec:
            raise ValueError("Must specify at least one field to cast.")
        types = casts_of(spec)
        for kind in types.values():
            if kind not in _TYPES:
                raise ValueError(f"Invalid type found in casting spec: {kind}; types are {', '.join(_TYPES)}")
        if _WHOLE in types and len(spec) > 1:
            raise ValueError("a spec that casts the entire value may only specify a single cast")
        return spec


def casts_of(spec: tuple[str, ...]) -> dict[str, str]:
    types = {}
    for item in spec:
        name, separator, kind = (part.strip() for part in item.partition(":"))
        if ":" in kind:
            raise ValueError(f"Invalid cast: {item}")
        types[name if separator else _WHOLE] = (kind if separator else name).lower()
    return types


class Cast(OfOnePart):
    """Casts fields, or the whole value, to another type; null stays null."""

    keys_class: ClassVar[type[Keys]] = CastKeys
    purpose: ClassVar[str] = "cast types"

    @property
    def needs_fields(self) -> bool:
        return _WHOLE not in casts_of(self.keys.spec)

    def plain(self, value: Any) -> Any:
        casts = casts_of(self.keys.spec)
        if value is None:
            return None
        if _WHOLE in casts:
            return _cast(value, casts[_WHOLE])
        fields = self.expect_dict(value)  # a missing field is added as null, as in Connect
        return {**fields, **{name: _cast(fields.get(name), kind) for name, kind in casts.items()}}

    def typed(self, column: pa.Array) -> pa.Array:
        if column.null_count == len(column):
            return column
        casts = casts_of(self.keys.spec)
        if _WHOLE in casts:
            return _cast_column(column, casts[_WHOLE])
        fields = fields_of(self.expect_struct(column, may_be_null=True))
        cast = [(name, _cast_column(item, casts[name]) if name in casts else item) for name, item in fields]
        return rebuilt(cast, column)


def _cast_column(column: pa.Array, target: str) -> pa.Array:
    if column.type == _TYPES[target]:
        return column
    if pa.types.is_nested(column.type) and column.null_count < len(column):
        raise DataException(f"type {column.type} cannot be cast")
    values = temporal.from_column(column) if temporal.is_temporal(column.type) else column.to_pylist()
    if target == "string" and pa.types.is_float32(column.type):
        values = [None if value is None else np.float32(value) for value in column.to_pylist()]
    return pa.array([_cast(value, target) for value in values], _TYPES[target])


def _cast(value: Any, target: str) -> Any:
    if value is None:
        return None
    if isinstance(value, list | dict | tuple | set):
        raise DataException(f"a value of type {type(value).__name__} cannot be cast")
    if target == "string":
        return _to_text(value)
    if isinstance(value, str):
        return _parsed(value, target)
    if temporal.is_temporal_value(value):
        value = temporal.to_number(value)
    if not isinstance(value, int | float | Decimal):
        raise DataException(f"a value of type {type(value).__name__} cannot be cast to {target}")
    return _NUMBERS[target](value)


def _to_boolean(number: Number) -> bool:
    return number if isinstance(number, bool) else to_whole(number, 64) != 0


def _to_bits(bits: int) -> Callable[[Number], int]:
    return lambda number: to_whole(number, bits)


_NUMBERS: Final[Mapping[str, Callable[[Number], Any]]] = {
    **{name: _to_bits(bits) for name, bits in _BITS.items()},
    "float32": to_single,
    "float64": float,
    "boolean": _to_boolean,
}


def _parsed(text: str, target: str) -> Any:
    if target == "boolean":
        return text.lower() == "true"
    if target in _BITS:
        number: Number | None = parsed_whole(text, _BITS[target])
    else:
        number = parsed_float(text)
        if number is not None and target == "float32":
            number = to_single(number)
    if number is None:
        raise DataException(f"a text is not a number of type {target}, or out of its range")
    return number


def _to_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float | np.float32):
        return to_text(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.date | dt.time):
        return temporal.to_text(value)
    if isinstance(value, str | int | Decimal | uuid.UUID):
        return str(value)
    raise DataException(f"a value of type {type(value).__name__} cannot be cast to string")
