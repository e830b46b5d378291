"""Encodes defaults of schemas, which are JSON, as Avro data."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
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
    made = _SCALARS[kind](kind, value)
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
            _text("string", name) + datum_of(item, schema["values"], named) for name, item in value.items()
        ]
    elif schema["type"] == "array" and isinstance(value, list):
        items = [datum_of(item, schema["items"], named) for item in value]
    else:
        raise ValueError(schema["type"])
    if not items:
        return number_datum(0)
    return number_datum(len(items)) + b"".join(items) + number_datum(0)


def _null(kind: str, value: Any) -> bytes:
    if value is not None:
        raise ValueError(kind)
    return b""


def _boolean(kind: str, value: Any) -> bytes:
    if not isinstance(value, bool):
        raise ValueError(kind)  # noqa: TRY004 - one class for all misfits
    return bytes([value])


def _integer(kind: str, value: Any) -> bytes:
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value >> _BITS[kind] <= 0:
        raise ValueError(kind)
    return number_datum(value)


def _real(kind: str, value: Any) -> bytes:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(kind)  # noqa: TRY004 - one class for all misfits
    try:
        return struct.pack("<f" if kind == "float" else "<d", value)
    except (OverflowError, struct.error) as error:
        raise ValueError(kind) from error


def _text(kind: str, value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueError(kind)  # noqa: TRY004 - one class for all misfits
    return lengthy_datum(value.encode())


def _octets(kind: str, value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueError(kind)  # noqa: TRY004 - one class for all misfits
    data = value.encode("latin-1")  # a character for each byte; a UnicodeEncodeError is a ValueError
    return data if kind == "fixed" else lengthy_datum(data)


_SCALARS: Final[Mapping[str, Callable[[str, Any], bytes]]] = {
    "null": _null,
    "boolean": _boolean,
    **dict.fromkeys(("int", "long"), _integer),
    **dict.fromkeys(("float", "double"), _real),
    "string": _text,
    **dict.fromkeys(("bytes", "fixed"), _octets),
}
