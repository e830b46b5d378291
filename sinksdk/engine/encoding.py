"""Keys and values as bytes again, for tasks that know only bytes, after transforms have changed them."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sinksdk.records import SinkRecords
from sinksdk.transforms import moments
from sinksdk.transforms.parts import PARTS, Part, content_of, with_content
from sinksdk.values.text import SPARK_JSON, JsonStyle, to_bytes


def as_bytes(made: SinkRecords, converted: SinkRecords, style: Callable[[Part], JsonStyle]) -> SinkRecords:
    """Records whose keys and values are columns of bytes.

    What the transforms have left as the converters gave it has the bytes it was read with. Text becomes
    UTF-8, bytes stay, anything else becomes JSON.

    Args:
        made: what the transforms have made.
        converted: what they were given.
        style: how typed keys, or values, are written.
    """
    for part in PARTS:
        if _objects(made, part) is not None:
            made = with_content(made, part, _from_objects(made, converted, part))
        elif made.arrow.schema.get_field_index(part) >= 0 and made.arrow.column(part).type != pa.binary():
            made = with_content(made, part, _from_column(made, converted, part, style(part)))
    return made


def _from_column(made: SinkRecords, converted: SinkRecords, part: Part, style: JsonStyle) -> pa.Array:
    column = made.arrow.column(part)
    encoded = to_bytes(column, style)
    read = _column_read(converted, part)
    if read is None:
        return encoded
    # Both are ascending; of records of one offset the first one counts.
    rows = np.searchsorted(converted.offsets, made.offsets)
    before = converted.arrow.column(part)
    if len(made) == len(converted) and column.equals(before):
        return read
    if column.type != before.type:
        return encoded
    are_same = pc.equal(to_bytes(before, style).take(pa.array(rows)), encoded)
    return pc.if_else(are_same.fill_null(False), read.take(pa.array(rows)), encoded)


def _from_objects(made: SinkRecords, converted: SinkRecords, part: Part) -> pa.Array:
    known: Mapping[tuple[int, int], bytes] = {}
    objects, read = _objects(converted, part), _column_read(converted, part)
    if objects is not None and read is not None:  # an object lives as long as its batch
        given = zip(converted.offsets.tolist(), objects, read.to_pylist(), strict=True)
        known = {(offset, id(value)): data for offset, value, data in given}
    values = content_of(made, part)
    encoded = [
        known.get((offset, id(value))) or _encoded(value)
        for offset, value in zip(made.offsets.tolist(), values, strict=True)
    ]
    return pa.array(encoded, pa.binary())


def _objects(records: SinkRecords, part: Part) -> Sequence[Any] | None:
    return records.keys if part == "key" else records.values


def _column_read(converted: SinkRecords, part: Part) -> pa.Array | None:
    """What was read, as bytes; None where nothing has converted it."""
    batch = converted.arrow if converted.read is None else converted.read
    index = batch.schema.get_field_index(part)
    if index < 0 or (converted.read is None and _objects(converted, part) is None):
        return None
    return to_bytes(batch.column(index), SPARK_JSON)


def _encoded(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    try:
        return _dumped(value)
    except ValueError:  # not a number, or infinite
        return _dumped(_without_infinity(value))


def _dumped(value: Any) -> bytes:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_as_json)
    return text.encode()


def _without_infinity(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_infinity(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinity(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _as_json(value: object) -> object:
    """What JSON has no type for: bytes in base64, moments as numbers, all else as text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.date | dt.time):
        return moments.to_number(value)
    return str(value)
