"""Connect's schemas in JSON, as its JsonConverter writes them into envelopes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from sinksdk.errors import DataException
from sinksdk.values.decimals import decimal_type
from sinksdk.values.shapes import NO_DEFAULT, Shape, list_of, map_of, struct_of

_LOGICAL: Final = "org.apache.kafka.connect.data."
_SCALARS: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_TIMES: Final[Mapping[tuple[str, str], pa.DataType]] = {
    (f"{_LOGICAL}Date", "int32"): pa.date32(),
    (f"{_LOGICAL}Time", "int32"): pa.time32("ms"),
    (f"{_LOGICAL}Timestamp", "int64"): pa.timestamp("ms", tz="UTC"),
}
_MOST_DEPTH: Final = 100


def connect_shape(schema: Any) -> Shape:
    try:
        return _shape(schema, _MOST_DEPTH)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, pa.ArrowException) as error:
        raise DataException(
            f"the envelope's schema is not valid in Connect ({type(error).__name__})"
        ) from None


def _shape(schema: Any, depth: int) -> Shape:
    if not depth:
        raise DataException(f"the envelope's schema is more than {_MOST_DEPTH} levels deep")
    kind = schema["type"]
    more: dict[str, Any] = {
        "is_optional": bool(schema.get("optional", False)),
        "default": NO_DEFAULT if schema.get("default") is None else schema["default"],
    }
    if kind == "struct":
        fields = schema.get("fields") or []
        if len({field["field"] for field in fields}) < len(fields):
            raise DataException("the envelope's schema has two fields with the same name")
        return struct_of({field["field"]: _shape(field, depth - 1) for field in fields}, **more)
    if kind == "array":
        return list_of(_shape(schema["items"], depth - 1), **more)
    if kind == "map":
        key = _shape(schema["keys"], depth - 1)
        # The JSON of other maps is an array of pairs.
        is_object = key.kind == pa.string() and not key.is_optional
        return map_of(_shape(schema["values"], depth - 1), None if is_object else key, **more)
    name = schema.get("name") or ""
    if name == f"{_LOGICAL}Decimal" and kind == "bytes":
        scale = int((schema.get("parameters") or {})["scale"])
        if not -(2**31) <= scale < 2**31:
            raise DataException("the envelope's schema has a decimal whose scale is not a 32-bit integer")
        return Shape(decimal_type(scale), packs_decimals=True, **more)
    if (name, kind) in _TIMES:
        return Shape(_TIMES[name, kind], times_may_be_numbers=True, **more)
    return Shape(_SCALARS[kind], **more)
