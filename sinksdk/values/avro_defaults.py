"""Encodes defaults of schemas, which are JSON, as Avro data."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Final

_SEVEN_BITS: Final = 0x80
_BITS: Final = {"int": 31, "long": 63}


def number_datum(number: int) -> bytes:
    # An int or long; lengths and branches are encoded alike.
    bits = number << 1 if number >= 0 else ~(number << 1)
    made = bytearray()
    while bits >= _SEVEN_BITS:
        made.append(bits & 0x7F | _SEVEN_BITS)
        bits >>= 7
    made.append(bits)
    return bytes(made)


def lengthy_datum(octets: bytes) -> bytes:
    """Encode bytes, or a string's UTF-8."""
    return number_datum(len(octets)) + octets


def datum_of(value: Any, schema: Any, named: Mapping[str, Any]) -> bytes:
    if isinstance(schema, str):
        schema = named.get(schema, {"type": schema})
    if isinstance(schema, list):
        return _of_union(value, schema, named)
    kind = schema["type"]
    if kind == "record":
        return b"".join(datum_of(_field(value, each), each["type"], named) for each in schema["fields"])
    if kind in ("array", "map"):
        return _of_items(value, schema, named)
    if kind == "enum":
        return number_datum(schema["symbols"].index(value))
    made = _of_scalar(kind, value)
    if kind == "fixed" and len(made) != schema["size"]:
        raise ValueError(kind)
    return made


def _of_union(value: Any, branches: list[Any], named: Mapping[str, Any]) -> bytes:
    for number, branch in enumerate(branches):
        try:
            return number_datum(number) + datum_of(value, branch, named)
        except ValueError:
            continue
    raise ValueError(branches)


def _field(value: Any, field: Mapping[str, Any]) -> Any:
    if not isinstance(value, dict) or field["name"] not in value:
        raise ValueError(field["name"])
    return value[field["name"]]


def _of_items(value: Any, schema: Mapping[str, Any], named: Mapping[str, Any]) -> bytes:
    if schema["type"] == "map" and isinstance(value, dict):
        items = [
            _of_scalar("string", name) + datum_of(item, schema["values"], named)
            for name, item in value.items()
        ]
    elif schema["type"] == "array" and isinstance(value, list):
        items = [datum_of(item, schema["items"], named) for item in value]
    else:
        raise ValueError(schema["type"])
    if not items:
        return number_datum(0)
    return number_datum(len(items)) + b"".join(items) + number_datum(0)


_TYPES: Final[Mapping[str, type | UnionType]] = {
    "null": NoneType,
    "boolean": bool,
    **dict.fromkeys(("int", "long"), int),
    **dict.fromkeys(("float", "double"), int | float),
    **dict.fromkeys(("string", "bytes", "fixed"), str),
}


def _of_scalar(kind: str, value: Any) -> bytes:
    is_of_type = isinstance(value, _TYPES[kind])
    if not is_of_type or isinstance(value, bool) != (kind == "boolean"):
        raise ValueError(kind)
    if value is None:
        return b""
    if isinstance(value, bool):
        return bytes([value])
    if isinstance(value, str):
        # Bytes have a character for each byte; a UnicodeEncodeError is a ValueError.
        data = value.encode("utf-8" if kind == "string" else "latin-1")
        return data if kind == "fixed" else lengthy_datum(data)
    if kind in _BITS:
        if not -1 <= value >> _BITS[kind] <= 0:
            raise ValueError(kind)
        return number_datum(value)
    try:
        return struct.pack("<f" if kind == "float" else "<d", value)
    except (OverflowError, struct.error) as error:
        raise ValueError(kind) from error
