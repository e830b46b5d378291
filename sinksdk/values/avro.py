"""Avro schemas: as Arrow types of their data, and as shapes of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sinksdk.errors import ConfigException, DataException
from sinksdk.values.avro_schema import CONNECT_DECIMAL, is_valid_decimal
from sinksdk.values.decimals import MOST_DIGITS, decimal_type, levels, packed_type, unpacked
from sinksdk.values.kinds import check_times
from sinksdk.values.shapes import NO_DEFAULT, Shape, list_of, map_of, struct_of

_UTC: Final = "UTC"
_SCALARS: Final[Mapping[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_TIMES: Final[Mapping[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    **{
        ("long", f"{prefix}timestamp-{name}"): pa.timestamp(unit, tz=zone)
        for prefix, zone in (("", _UTC), ("local-", None))
        for name, unit in (("millis", "ms"), ("micros", "us"), ("nanos", "ns"))
    },
}
_NAMED: Final = ("record", "error", "enum", "fixed")
_MOST_TYPES: Final = 10_000
_MOST_DEPTH: Final = 100


class AvroType(NamedTuple):
    kind: pa.DataType
    # With this schema fastavro reads whole numbers instead of times, which is faster and covers all years,
    # and bytes instead of decimals, which it would round. Unions are records of one field, named as in
    # Connect.
    schema: Any


def avro_type(schema: Any) -> AvroType | None:
    """Return the column type of a resolved schema; None if Arrow has none, as for a recursive schema."""
    try:
        kind, plain = _Reading().type_of(schema)
    except _NoArrowType:
        return None
    return AvroType(kind, plain)


def avro_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    try:
        column = unpacked(pa.array(values, packed_type(kind)), kind)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise DataException(f"the value does not fit type {kind} ({type(error).__name__})") from None
    check_times(column)
    return column


def avro_builds(kind: pa.DataType) -> list[Callable[[Sequence[Any]], pa.Array]]:
    return [partial(avro_column, kind=wide) for wide in levels(kind)]


def avro_json_schema(schema: Any) -> Any:
    # Unions of several types become records with a field per branch; fastavro would round decimals.
    try:
        return _JsonReading().type_of(schema)[1]
    except _NoArrowType:  # the schema has too many levels, or types
        return schema


class _NoArrowType(Exception):
    pass


class _Reading:
    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._open: list[str] = []
        self._count = 0
        self._depth = 0

    def _name(self) -> str:
        self._count += 1
        if self._count > _MOST_TYPES:  # types that use each other twice per level grow exponentially
            raise _NoArrowType
        return f"t{self._count}"

    def type_of(self, schema: Any) -> tuple[pa.DataType, Any]:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise _NoArrowType
        found = self._type_of(schema)
        self._depth -= 1
        return found

    def _type_of(self, schema: Any) -> tuple[pa.DataType, Any]:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            return (_SCALARS[schema], schema) if schema in _SCALARS else self.type_of(self._find(schema))
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.type_of(kind)
        if kind in _NAMED:
            self._named[schema["name"]] = schema
        return self._nested(kind, schema) or self._scalar(kind, schema)

    def _nested(self, kind: str, schema: Any) -> tuple[pa.DataType, Any] | None:
        if kind in ("record", "error"):
            return self._record(schema)
        if kind == "array":
            item, plain = self.type_of(schema["items"])
            return pa.list_(item), {"type": "array", "items": plain}
        if kind == "map":
            item, plain = self.type_of(schema["values"])
            return pa.map_(pa.string(), item), {"type": "map", "values": plain}
        return None

    def _find(self, name: str) -> Any:
        if name in self._open or name not in self._named:
            raise _NoArrowType
        return self._named[name]

    def _record(self, schema: Any) -> tuple[pa.DataType, Any]:
        name = schema["name"]
        if name in self._open:
            raise _NoArrowType
        self._open.append(name)
        fields, plain = [], []
        for field in schema["fields"]:
            kind, read = self.type_of(field["type"])
            fields.append((field["name"], kind))
            plain.append({"name": field["name"], "type": read})
        self._open.pop()
        return pa.struct(fields), {"type": "record", "name": self._name(), "fields": plain}

    def _union(self, branches: list[Any]) -> tuple[pa.DataType, Any]:
        real = [branch for branch in branches if _kind(branch) != "null"]
        if len(real) <= 1:
            kind: pa.DataType = pa.null()
            plain = []
            for branch in branches:
                found, read = self.type_of(branch)
                plain.append(read)
                kind = kind if _kind(branch) == "null" else found
            return kind, plain
        fields, plain = [], []
        for branch in branches:
            found, read = self.type_of(branch)
            if _kind(branch) == "null":
                plain.append("null")
                continue
            name = self._branch_name(branch)
            fields.append((name, found))
            field = {"name": name, "type": read}
            plain.append({"type": "record", "name": self._name(), "fields": [field]})
        if len({name for name, _ in fields}) < len(fields):
            raise _NoArrowType  # Connect cannot distinguish records of one name in two namespaces
        return pa.struct(fields), plain

    def _branch_name(self, branch: Any) -> str:
        # Connect's AvroData names a branch after its named type, without namespace, or after its type.
        kind = _kind(branch)
        name = branch if isinstance(branch, str) else branch["name"] if kind in _NAMED else kind
        return str(name).rpartition(".")[2]

    def _scalar(self, kind: str, schema: Mapping[str, Any]) -> tuple[pa.DataType, Any]:
        logical = schema.get("logicalType")
        plain: Any = kind
        if kind == "fixed":
            plain = {"type": kind, "name": self._name(), "size": schema["size"]}
        if kind in ("bytes", "fixed") and logical in ("decimal", CONNECT_DECIMAL):
            return decimal_type(schema["scale"], schema["precision"]), plain
        if kind == "fixed":
            return pa.binary(schema["size"]), plain
        if kind == "enum":
            return pa.string(), {"type": "enum", "name": self._name(), "symbols": schema["symbols"]}
        if kind not in _SCALARS:
            return self.type_of(self._find(kind))
        return _TIMES.get((kind, str(logical)), _SCALARS[kind]), kind


def _kind(schema: Any) -> str:
    if isinstance(schema, str):
        return schema
    if isinstance(schema, list):
        return "union"
    kind = schema["type"]
    return kind if isinstance(kind, str) else _kind(kind)


class _JsonReading(_Reading):  # reads schemas that may contain themselves
    def __init__(self) -> None:
        super().__init__()
        self._written: dict[str, str] = {}

    def _type_of(self, schema: Any) -> tuple[pa.DataType, Any]:
        name = schema if isinstance(schema, str) else None
        if name in self._written:
            return pa.null(), self._written[name]
        if name is not None and name not in _SCALARS and name not in self._named:
            raise _NoArrowType
        return super()._type_of(schema)

    def _record(self, schema: Any) -> tuple[pa.DataType, Any]:
        name = self._written[schema["name"]] = self._name()
        fields = [
            {"name": field["name"], "type": self.type_of(field["type"])[1]} for field in schema["fields"]
        ]
        return pa.null(), {"type": "record", "name": name, "fields": fields}

    def _union(self, branches: list[Any]) -> tuple[pa.DataType, Any]:
        real = [branch for branch in branches if _kind(branch) != "null"]
        if len(real) <= 1:
            return pa.null(), [self.type_of(branch)[1] for branch in branches]
        names = [self._branch_name(branch) for branch in real]
        plain: list[Any] = []
        for branch in branches:
            if _kind(branch) == "null":
                plain.append("null")
                continue
            own, read = self._branch_name(branch), self.type_of(branch)[1]
            fields = [
                {"name": name, "type": read if name == own else "null"} for name in dict.fromkeys(names)
            ]
            plain.append({"type": "record", "name": self._name(), "fields": fields})
        return pa.null(), plain

    def _scalar(self, kind: str, schema: Mapping[str, Any]) -> tuple[pa.DataType, Any]:
        without = {name: part for name, part in schema.items() if name != "logicalType"}
        return super()._scalar(kind, without)


# -- shapes of JSON ----------------------------------------------------------------------------------------


def parse_avro_shape(text: str) -> Shape:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigException(f"it begins like an Avro schema in JSON, but is not JSON: {error}") from error
    try:
        return _Shapes().of(schema, "")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, pa.ArrowException) as error:
        raise ConfigException(f"it is not an Avro schema ({type(error).__name__}: {error})") from error
    except _NoArrowType:
        raise ConfigException(
            "Arrow has no type for it: it contains itself, or a decimal of more than 76 digits"
        ) from None


class _Shapes:
    def __init__(self) -> None:
        self._named: dict[str, Shape] = {}
        self._open: list[str] = []

    def of(self, schema: Any, namespace: str, default: Any = NO_DEFAULT) -> Shape:
        default = NO_DEFAULT if default is None else default
        if isinstance(schema, list):
            return self._union(schema, namespace, default)
        if isinstance(schema, str):
            if schema in _SCALARS:
                return Shape(_SCALARS[schema], is_optional=schema == "null", default=default)
            full = _full_name(schema, namespace)
            if full in self._open:
                raise _NoArrowType
            if full not in self._named:
                raise ConfigException(f"'{schema}' is neither an Avro type nor defined before")
            return replace(self._named[full], is_optional=False, default=default)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.of(kind, namespace, default)
        shape = self._named_type(schema, namespace) if kind in _NAMED else self._unnamed(schema, namespace)
        return replace(shape, is_optional=shape.kind == pa.null(), default=default)

    def _named_type(self, schema: Any, namespace: str) -> Shape:
        full = _full_name(schema["name"], schema.get("namespace", namespace))
        inner = full.rpartition(".")[0]
        if schema["type"] == "enum":
            shape = Shape(pa.string(), symbols=tuple(schema["symbols"]))
        elif schema["type"] == "fixed":
            shape = Shape(_logical(schema) or pa.binary(schema["size"]))
        else:
            self._open.append(full)
            shape = struct_of(
                {
                    field["name"]: self.of(field["type"], inner, field.get("default"))
                    for field in schema["fields"]
                }
            )
            self._open.pop()
        self._named[full] = shape
        return shape

    def _unnamed(self, schema: Any, namespace: str) -> Shape:
        kind = schema["type"]
        if kind == "array":
            return list_of(self.of(schema["items"], namespace))
        if kind == "map":
            return map_of(self.of(schema["values"], namespace))
        if kind not in _SCALARS:
            return self.of(kind, namespace)
        return Shape(_logical(schema) or _SCALARS[kind], times_may_be_numbers=True)

    def _union(self, branches: list[Any], namespace: str, default: Any) -> Shape:
        real = [branch for branch in branches if branch != "null"]
        if len(real) != 1:
            kinds = ", ".join(_kind(branch) for branch in real) or "null"
            raise ConfigException(
                f"JSON cannot distinguish the types of the union ({kinds}): keep one, besides null"
            )
        shape = self.of(real[0], namespace)
        return replace(shape, is_optional="null" in branches or shape.is_optional, default=default)


def _decimal_of(schema: Mapping[str, Any]) -> pa.DataType | None:
    precision: Any = schema.get("precision")
    scale: Any = schema.get("scale", 0)
    if not is_valid_decimal(precision, scale):
        return None
    if precision > MOST_DIGITS:
        raise _NoArrowType
    return decimal_type(scale, precision)


def _logical(schema: Mapping[str, Any]) -> pa.DataType | None:
    if schema.get("logicalType") == "decimal" and schema["type"] in ("bytes", "fixed"):
        return _decimal_of(schema)
    return _TIMES.get((schema["type"], str(schema.get("logicalType"))))


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
