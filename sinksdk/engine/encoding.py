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

from sinksdk.config import ConnectorConfig
from sinksdk.records import SinkRecords
from sinksdk.transforms import moments
from sinksdk.transforms.parts import PARTS, Part, content_of, with_content
from sinksdk.values.text import SPARK_JSON, JsonStyle, to_bytes


class BytesRead:
    """The bytes of keys and values, to be found again for those that transforms have left as they are.

    Args:
        converted: what transforms are given, over what was read.
        by_content: an object is found by its JSON. An author's transform may change objects where they are;
            Kafka's own never do, so theirs are found by identity.
    """

    def __init__(self, converted: SinkRecords, *, by_content: bool) -> None:
        self._mark: Callable[[Any], object] = _encoded if by_content else id
        self._converted = converted  # an object's id is its own as long as it lives
        self._known = {part: self._by_object(part) for part in PARTS}

    def _by_object(self, part: Part) -> Mapping[tuple[int, object], bytes]:
        objects, read = _objects(self._converted, part), self._column_read(part)
        if objects is None or read is None:
            return {}
        given = zip(self._converted.offsets.tolist(), objects, read.to_pylist(), strict=True)
        return {(offset, self._mark(value)): data for offset, value, data in given}

    def _column_read(self, part: Part) -> pa.Array | None:
        """What was read, as bytes; None where nothing has converted it."""
        converted = self._converted
        batch = converted.arrow if converted.read is None else converted.read
        index = batch.schema.get_field_index(part)
        if index < 0 or (converted.read is None and _objects(converted, part) is None):
            return None
        return to_bytes(batch.column(index), SPARK_JSON)

    def of_objects(self, made: SinkRecords, part: Part) -> pa.Array:
        """The bytes of keys, or values, that are objects."""
        encoded = [
            self._known[part].get((offset, self._mark(value))) or _encoded(value)
            for offset, value in zip(made.offsets.tolist(), content_of(made, part), strict=True)
        ]
        return pa.array(encoded, pa.binary())

    def of_column(self, made: SinkRecords, part: Part, style: JsonStyle) -> pa.Array:
        """The bytes of keys, or values, that are a column."""
        column = made.arrow.column(part)
        encoded, read = to_bytes(column, style), self._column_read(part)
        if read is None:
            return encoded
        # Both are ascending; of records of one offset the first one counts.
        rows = np.searchsorted(self._converted.offsets, made.offsets)
        before = self._converted.arrow.column(part)
        if len(made) == len(before) and column.equals(before):
            return read
        if column.type != before.type:
            return encoded
        are_same = pc.equal(to_bytes(before, style).take(pa.array(rows)), encoded)
        return pc.if_else(are_same.fill_null(False), read.take(pa.array(rows)), encoded)


def as_bytes(made: SinkRecords, read: BytesRead, style: Callable[[Part], JsonStyle]) -> SinkRecords:
    """Records whose keys and values are columns of bytes.

    What the transforms have left as the converters gave it has the bytes it was read with. Text becomes
    UTF-8, bytes stay, anything else becomes JSON.

    Args:
        made: what the transforms have made.
        read: taken before they were applied.
        style: how typed keys, or values, are written.
    """
    for part in PARTS:
        if _objects(made, part) is not None:
            made = with_content(made, part, read.of_objects(made, part))
        elif made.arrow.schema.get_field_index(part) >= 0 and made.arrow.column(part).type != pa.binary():
            made = with_content(made, part, read.of_column(made, part, style(part)))
    return made


def becoming_bytes(config: ConnectorConfig, *, takes_bytes: bool) -> Mapping[Part, str]:
    """Keys and values that must have a form in bytes where Spark has typed them, each with the reason.

    Args:
        takes_bytes: whether the task does. What a chain makes of a value is not known before it runs.
    """
    found: dict[Part, str] = {}
    for part in PARTS:
        if config.dead_letter_topic:
            found[part] = "dead letters hold bytes"
        if takes_bytes and not config.transforms:
            found[part] = "the sink takes bytes"
        if config.converter_spec(is_key=part == "key").kind != "bytes":
            found[part] = f"'{part}.converter' reads bytes"
    return found


def _objects(records: SinkRecords, part: Part) -> Sequence[Any] | None:
    return records.keys if part == "key" else records.values


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
