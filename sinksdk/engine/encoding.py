"""Keys and values as bytes again, for tasks that know only bytes, after transforms have changed them."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from sinksdk.records import SinkRecords
from sinksdk.transforms import moments
from sinksdk.transforms.parts import PARTS, Part, content_of, with_content


def as_bytes(made: SinkRecords, converted: SinkRecords) -> SinkRecords:
    """Records whose keys and values are columns of bytes.

    What the transforms have left as the converters gave it has the bytes it was read with. Text becomes
    UTF-8, bytes stay, anything else becomes JSON as Connect's JsonConverter writes it without schemas.

    Args:
        made: what the transforms have made.
        converted: what they were given, over the same columns as they were read.
    """
    for part in PARTS:
        content = content_of(made, part)
        if not isinstance(content, pa.Array) and _objects(made, part) is None:
            continue  # bytes as they were read
        values = content.to_pylist() if isinstance(content, pa.Array) else content
        known = _bytes_read(converted, part)
        encoded = [
            known.get((offset, id(value))) or _encoded(value)
            for offset, value in zip(made.offsets.tolist(), values, strict=True)
        ]
        made = with_content(made, part, pa.array(encoded, pa.binary()))
    return made


def _objects(records: SinkRecords, part: Part) -> Sequence[Any] | None:
    return records.keys if part == "key" else records.values


def _bytes_read(converted: SinkRecords, part: Part) -> Mapping[tuple[int, int], bytes]:
    """Bytes by the object that a converter has made of them, which lives as long as its batch."""
    objects = _objects(converted, part)
    index = converted.arrow.schema.get_field_index(part)
    if objects is None or index < 0:
        return {}
    read = converted.arrow.column(index).to_pylist()
    offsets = converted.offsets.tolist()
    return {(offset, id(value)): data for offset, value, data in zip(offsets, objects, read, strict=True)}


def _encoded(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_as_json).encode()


def _as_json(value: object) -> object:
    """What JSON has no type for: bytes in base64, moments as numbers, all else as text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.date | dt.time):
        return moments.to_number(value)
    return str(value)
