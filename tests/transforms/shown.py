"""Records in the format of ``java/Answers.java``."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from sinksdk.records import SinkRecords
from sinksdk.transforms import temporal
from sinksdk.transforms.parts import PARTS, content_of, headers_of, objects_of

TYPES: Final[dict[str, pa.DataType]] = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
    **temporal.TYPES,
}
"""Arrow's types by the names that Connect's schemas give them."""


def type_shown(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return [[field.name, type_shown(field.type)] for field in kind]
    if pa.types.is_list(kind):
        return {"array": type_shown(kind.value_type)}
    if pa.types.is_map(kind):
        return {"map": [type_shown(kind.key_type), type_shown(kind.item_type)]}
    if pa.types.is_decimal(kind):
        return "Decimal"
    shorter = {found: name for name, found in TYPES.items() if name not in ("float", "double")}
    return shorter[kind]


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, Decimal):
        return {"$decimal": f"{value.normalize():f}"}
    if isinstance(value, dt.date | dt.time):
        return {"$date": temporal.to_millis(value)}
    return value


def rows_shown(records: SinkRecords) -> Iterator[dict[str, Any]]:
    """Return key, value and their types, and headers of each record, without those that it does not have."""
    contents = {part: content_of(records, part) for part in PARTS}
    for row, headers in enumerate(headers_of(records)):
        shown: dict[str, Any] = {}
        for part, content in contents.items():
            value = content[row]
            if isinstance(value, bytes):
                shown[f"{part}Type"] = "bytes"
            if isinstance(content, pa.Array):
                shown[f"{part}Type"] = type_shown(content.type)
                (value,) = objects_of(content[row : row + 1])
            shown[part] = plain(value)
        if headers:
            shown["headers"] = [
                [h.key, None if h.value is None else h.value.decode(errors="replace")] for h in headers
            ]
        yield shown
