"""Transforms of fields: InsertField, ReplaceField, MaskField, ValueToKey, HoistField."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Final, Self

import numpy as np
import pyarrow as pa
from pydantic import AfterValidator, Field, model_validator

from sinksdk.errors import DataException
from sinksdk.records import NO_TIMESTAMP, SinkRecords
from sinksdk.settings.model import NameList
from sinksdk.transforms.base import BuiltIn, FieldKeys, Keys, OfOnePart, field_of, rebuilt
from sinksdk.transforms.numbers import parsed_decimal, to_type, to_whole
from sinksdk.transforms.parts import content_of, fields_of, integers_of, with_content
from sinksdk.transforms.temporal import TIMESTAMP
from sinksdk.values.decimals import decimal_column, is_decimal, packed_type, unpacked, unscaled
from sinksdk.values.rows import rows_to_take, valid_flags, valid_rows


def _not_empty(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        raise ValueError("must have at least one entry")
    return names


Names = Annotated[NameList, AfterValidator(_not_empty)]


# -- InsertField -------------------------------------------------------------------------------------


class InsertFieldKeys(FieldKeys):
    topic: str | None = Field(default=None, alias="topic.field", description="Field for the topic.")
    partition: str | None = Field(
        default=None, alias="partition.field", description="Field for the partition."
    )
    offset: str | None = Field(default=None, alias="offset.field", description="Field for the offset.")
    timestamp: str | None = Field(
        default=None, alias="timestamp.field", description="Field for the timestamp."
    )
    static: str | None = Field(default=None, alias="static.field", description="Field for `static.value`.")
    static_value: str | None = Field(
        default=None, alias="static.value", description="The text that `static.field` gets."
    )

    @model_validator(mode="after")
    def _has_something(self) -> Self:
        if not any((self.topic, self.partition, self.offset, self.timestamp, self.static)):
            raise ValueError(
                "No field insertion configured: set 'topic.field', 'partition.field', 'offset.field', "
                "'timestamp.field' or 'static.field'"
            )
        if self.static and self.static_value is None:
            raise ValueError("No value specified for static field: set 'static.value'")
        return self


class InsertField(BuiltIn):
    """Adds topic, partition, offset, timestamp or a fixed text as fields; null stays null."""

    keys_class: ClassVar[type[Keys]] = InsertFieldKeys
    purpose: ClassVar[str] = "field insertion"

    def apply(self, records: SinkRecords) -> SinkRecords:
        content = content_of(records, self.part)
        if isinstance(content, pa.Array):
            if content.null_count == len(content):
                return records
            self.expect_struct(content, may_be_null=True)
            inserted = [(name, self._column(values, kind)) for name, values, kind in self._inserted(records)]
            return with_content(records, self.part, rebuilt([*fields_of(content), *inserted], content))
        made = [None if value is None else dict(self.expect_dict(value)) for value in content]
        for name, values, kind in self._inserted(records):
            for value, item in zip(made, values, strict=True):
                # As in Connect, only values with a schema get a null timestamp.
                if value is not None and not (item is None and kind is TIMESTAMP):
                    value[name] = item
        return with_content(records, self.part, made)

    def _inserted(self, records: SinkRecords) -> list[tuple[str, list[Any], pa.DataType]]:
        keys, rows = self.keys, len(records)
        topic, partition = records.partition
        fields: list[tuple[str | None, list[Any], pa.DataType]] = [
            (keys.topic, [topic] * rows, pa.string()),
            (keys.partition, [partition] * rows, pa.int32()),
            (keys.offset, integers_of(records, "offset"), pa.int64()),
            (keys.timestamp, _timestamps(records) if keys.timestamp else [], TIMESTAMP),
            (keys.static, [keys.static_value] * rows, pa.string()),
        ]
        # In Connect a trailing "!" or "?" states whether the field may be null.
        return [(n[:-1] if n[-1] in "!?" else n, values, kind) for n, values, kind in fields if n]

    def _column(self, values: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(values, pa.int64()).cast(kind) if kind is TIMESTAMP else pa.array(values, kind)


def _timestamps(records: SinkRecords) -> list[int | None]:
    return [None if time == NO_TIMESTAMP else time for time in integers_of(records, "timestamp")]


# -- ReplaceField ------------------------------------------------------------------------------------


def _pairs(value: Any) -> Any:  # parses ``a:b, c:d``
    if isinstance(value, Mapping):
        return value
    pairs = {}
    for item in filter(None, (part.strip() for part in str(value).split(","))):
        if item.count(":") != 1 or item.startswith(":") or item.endswith(":"):
            raise ValueError(f"Invalid rename mapping: {item}")
        old, new = item.split(":")
        pairs[old] = new
    return pairs


class ReplaceFieldKeys(FieldKeys):
    exclude: NameList = Field(default=(), description="Fields to drop; precedes `include`.")
    include: NameList = Field(default=(), description="If set, all other fields are dropped.")
    renames: dict[str, str] = Field(default={}, description="New names of fields, as `old:new,old:new`.")

    @model_validator(mode="before")
    @classmethod
    def _split(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {**values, "renames": _pairs(values["renames"])} if "renames" in values else values


class ReplaceField(OfOnePart):
    """Drops and renames fields."""

    keys_class: ClassVar[type[Keys]] = ReplaceFieldKeys
    purpose: ClassVar[str] = "field replacement"

    def plain(self, value: Any) -> Any:
        if value is None:
            return None
        fields = self.expect_dict(value)
        return {self._renamed(name): item for name, item in fields.items() if self._stays(name)}

    def typed(self, column: pa.Array) -> pa.Array:
        if column.null_count == len(column):
            return column
        fields = fields_of(self.expect_struct(column, may_be_null=True))
        return rebuilt([(self._renamed(name), item) for name, item in fields if self._stays(name)], column)

    def _stays(self, name: str) -> bool:
        keys = self.keys
        return name not in keys.exclude and (not keys.include or name in keys.include)

    def _renamed(self, name: str) -> str:
        renamed: str = self.keys.renames.get(name, name)
        return renamed


# -- MaskField ---------------------------------------------------------------------------------------


class MaskFieldKeys(FieldKeys):
    fields: Names = Field(description="Fields to mask.")
    replacement: str | None = Field(
        default=None,
        min_length=1,
        description="The new value of texts and numbers; by default an empty text or 0.",
    )


# The first type that matches counts: a bool is an int, too.
_NOTHING: Final[tuple[tuple[type, Any], ...]] = (
    (bool, False),
    (int, 0),
    (float, 0.0),
    (Decimal, Decimal(0)),
    (str, ""),
    (dt.datetime, dt.datetime.fromtimestamp(0, dt.UTC)),
    (dt.date, dt.date(1970, 1, 1)),
    (dt.time, dt.time()),
    (list, []),
    (dict, {}),
)


class MaskField(OfOnePart):
    """Replaces fields' values by an empty value, or by a replacement; null stays null."""

    keys_class: ClassVar[type[Keys]] = MaskFieldKeys
    purpose: ClassVar[str] = "mask fields"

    def plain(self, value: Any) -> Any:
        fields = self.expect_dict(value)  # a missing field is added as null, as in Connect
        return {**fields, **{name: self._masked(fields.get(name)) for name in self.keys.fields}}

    def typed(self, column: pa.Array) -> pa.Array:
        fields = fields_of(self.expect_struct(column))
        masked = [(n, self._masked_column(item) if n in self.keys.fields else item) for n, item in fields]
        return rebuilt(masked, column)

    def _masked(self, value: Any) -> Any:
        if value is None:
            return None
        replacement = self.keys.replacement
        if replacement is None:
            for kind, nothing in _NOTHING:
                if isinstance(value, kind):
                    return type(nothing)(nothing) if isinstance(nothing, (list, dict)) else nothing
            raise DataException(f"a value of type {type(value).__name__} cannot be masked")
        return self._replacement(type(value))

    def _replacement(self, kind: type) -> Any:
        replacement: str = self.keys.replacement
        if kind is str:
            return replacement
        if kind not in (int, float, Decimal):
            raise DataException(f"a value of type {kind.__name__} cannot be masked with a replacement")
        number = parsed_decimal(replacement)
        if number is None:
            raise DataException("the replacement is not a number, but the field's value is")
        return to_whole(number, 64) if kind is int else kind(number)

    def _masked_column(self, column: pa.Array) -> pa.Array:
        rows = valid_rows(column)
        if not len(rows):
            return column
        if pa.types.is_struct(column.type):
            raise DataException("a structure cannot be masked")
        masked = to_type(self._masked(column[int(rows[0])].as_py()), column.type)
        if is_decimal(column.type):
            one = decimal_column([unscaled(masked, column.type.scale)], column.type)
        else:
            one = unpacked(pa.array([masked], packed_type(column.type)), column.type)
        return one.take(rows_to_take(valid_flags(column).astype(np.int64) - 1))


# -- ValueToKey, HoistField --------------------------------------------------------------------------


class ValueToKeyKeys(FieldKeys):
    fields: Names = Field(description="Fields of the value that become the key.")


class ValueToKey(BuiltIn):
    """Builds the key from fields of the value."""

    keys_class: ClassVar[type[Keys]] = ValueToKeyKeys
    purpose: ClassVar[str] = "copying fields from value to key"

    def apply(self, records: SinkRecords) -> SinkRecords:
        content, names = content_of(records, "value"), self.keys.fields
        if isinstance(content, pa.Array):
            self.expect_struct(content)
            key = rebuilt([(name, field_of(content, name)) for name in names], content)
            return with_content(records, "key", key)
        values = [self.expect_dict(value) for value in content]
        return with_content(records, "key", [{name: value.get(name) for name in names} for value in values])


class HoistFieldKeys(Keys):
    field: str = Field(description="The only field of the new value.")


class HoistField(OfOnePart):
    """Wraps the whole value, also null, in a field of a new one."""

    keys_class: ClassVar[type[Keys]] = HoistFieldKeys

    def plain(self, value: Any) -> Any:
        return {self.keys.field: value}

    def typed(self, column: pa.Array) -> pa.Array:
        return pa.StructArray.from_arrays([column], names=[self.keys.field])
