"""Avro schemas: as Arrow types of their data, and as shapes of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pyarrow as pa

from sinksdk.errors import ConfigException, DataException
from sinksdk.values.avro_schema import CONNECT_DECIMAL, NAMED, branch_name, is_valid_decimal, named_types
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
_MOST_TYPES: Final = 10_000
_MOST_DEPTH: Final = 100


def avro_type(resolved: Any) -> pa.DataType | None:
    """Return the column type of a resolved schema; None if Arrow has none, as for a recursive schema."""
    try:
        return _Types(resolved).of(resolved, 1)
    except _NoArrowType:
        return None


def avro_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    try:
        column = unpacked(pa.array(values, packed_type(kind)), kind)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise DataException(f"the value does not fit type {kind} ({type(error).__name__})") from None
    check_times(column)
    return column


def avro_builds(kind: pa.DataType) -> list[Callable[[Sequence[Any]], pa.Array]]:
    return [partial(avro_column, kind=wide) for wide in levels(kind)]


class _NoArrowType(Exception):
    pass


class _Types:
    def __init__(self, resolved: Any) -> None:
        self._named = named_types(resolved)
        self._open: list[str] = []
        self._count = 0

    def of(self, schema: Any, depth: int) -> pa.DataType:
        if depth > _MOST_DEPTH or self._count > _MOST_TYPES:
            raise _NoArrowType
        if isinstance(schema, list):
            return self._union(schema, depth)
        if isinstance(schema, str):
            return _SCALARS.get(schema) or self.of(self._named[schema], depth + 1)
        self._count += "name" in schema  # types that use each other twice per level grow exponentially
        if schema["type"] == "record":
            return self._record(schema, depth)
        if schema["type"] == "array":
            return pa.list_(self.of(schema["items"], depth + 1))
        if schema["type"] == "map":
            return pa.map_(pa.string(), self.of(schema["values"], depth + 1))
        return _scalar(schema)

    def _record(self, schema: Any, depth: int) -> pa.DataType:
        if schema["name"] in self._open:
            raise _NoArrowType
        self._open.append(schema["name"])
        fields = [(field["name"], self.of(field["type"], depth + 1)) for field in schema["fields"]]
        self._open.pop()
        return pa.struct(fields)

    def _union(self, branches: list[Any], depth: int) -> pa.DataType:
        fields = [
            (branch_name(branch), self.of(branch, depth + 1)) for branch in branches if branch != "null"
        ]
        if len(fields) <= 1:
            return fields[0][1] if fields else pa.null()
        self._count += len(fields)
        if len({name for name, _ in fields}) < len(fields):
            raise _NoArrowType  # Connect cannot distinguish records of one name in two namespaces
        return pa.struct(fields)


def _scalar(schema: Mapping[str, Any]) -> pa.DataType:
    kind, logical = schema["type"], schema.get("logicalType")
    if logical in ("decimal", CONNECT_DECIMAL):
        return decimal_type(schema["scale"], schema["precision"])
    if kind == "fixed":
        return pa.binary(schema["size"])
    return pa.string() if kind == "enum" else _TIMES.get((kind, str(logical)), _SCALARS.get(kind))


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
        shape = self._named_type(schema, namespace) if kind in NAMED else self._unnamed(schema, namespace)
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
            kinds = ", ".join(map(_kind, real)) or "null"
            raise ConfigException(
                f"JSON cannot distinguish the types of the union ({kinds}): keep one, besides null"
            )
        shape = self.of(real[0], namespace)
        return replace(shape, is_optional="null" in branches or shape.is_optional, default=default)


def _kind(schema: Any) -> str:
    if isinstance(schema, list):
        return "union"
    return schema if isinstance(schema, str) else _kind(schema["type"])


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
