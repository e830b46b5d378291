"""Encode keys and values again, after transforms have changed them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sinksdk.config import ConnectorConfig
from sinksdk.engine.objects import json_of
from sinksdk.records import SinkRecords
from sinksdk.transforms.parts import PARTS, Content, Part, content_of, with_content
from sinksdk.values.json_text import is_json, json_column
from sinksdk.values.text import SPARK_JSON, JsonStyle, to_bytes


class BytesRead:
    """Unchanged keys and values keep the bytes that were read.

    Args:
        by_content: find an object by its JSON, since an author's transform may change objects in place.
        read_again: converts keys, or values, to JSON texts again; None: the original bytes are wanted.
    """

    def __init__(
        self,
        converted: SinkRecords,
        *,
        by_content: bool,
        read_again: Callable[[Part, str, pa.Array], Content] | None = None,
    ) -> None:
        self._mark: Callable[[Any], object] = _encoded if by_content else id
        self._read_again = read_again
        self._converted = converted  # keeps the objects alive, so that their ids stay unique
        self._known = {part: self._by_object(part) for part in PARTS}

    def _by_object(self, part: Part) -> Mapping[tuple[int, object], Any]:
        objects, read = _objects(self._converted, part), self._column_read(part)
        if objects is None or read is None:
            return {}
        found = read
        if self._read_again is not None:
            made = self._read_again(part, self._converted.partition.topic, read)
            if not (isinstance(made, pa.Array) and is_json(made.type)):
                return {}
            found = made.storage
        given = zip(self._converted.offsets.tolist(), objects, found.to_pylist(), strict=True)
        return {(offset, self._mark(value)): data for offset, value, data in given}

    def _column_read(self, part: Part) -> pa.Array | None:
        converted = self._converted
        batch = converted.arrow if converted.read is None else converted.read
        index = batch.schema.get_field_index(part)
        if index < 0 or (converted.read is None and _objects(converted, part) is None):
            return None  # no converter or transform has changed these bytes
        return to_bytes(batch.column(index), SPARK_JSON)

    def of_objects(self, made: SinkRecords, part: Part) -> pa.Array:
        encoded = [
            self._known[part].get((offset, self._mark(value))) or _encoded(value)
            for offset, value in zip(made.offsets.tolist(), content_of(made, part), strict=True)
        ]
        return pa.array(encoded, pa.binary())

    def text_of(self, part: Part, offset: int, value: Any) -> str | None:
        return self._known[part].get((offset, self._mark(value)))

    def of_column(self, made: SinkRecords, part: Part, style: JsonStyle) -> pa.Array:
        column = made.arrow.column(part)
        encoded, read = to_bytes(column, style), self._column_read(part)
        if read is None:
            return encoded
        # Both arrays of offsets ascend; of several records with one offset the first is compared.
        rows = np.searchsorted(self._converted.offsets, made.offsets)
        before = self._converted.arrow.column(part)
        if len(made) == len(before) and column.equals(before):
            return read
        if column.type != before.type:
            return encoded
        are_same = pc.equal(to_bytes(before, style).take(pa.array(rows)), encoded)
        return pc.if_else(are_same.fill_null(False), read.take(pa.array(rows)), encoded)


def as_bytes(made: SinkRecords, read: BytesRead, style: Callable[[Part], JsonStyle]) -> SinkRecords:
    """Encode text as UTF-8, anything else as JSON; bytes and unchanged values stay."""
    for part in PARTS:
        if _objects(made, part) is not None:
            made = with_content(made, part, read.of_objects(made, part))
        elif made.arrow.schema.get_field_index(part) >= 0 and made.arrow.column(part).type != pa.binary():
            made = with_content(made, part, read.of_column(made, part, style(part)))
    return made


def as_json(made: SinkRecords, read: BytesRead | None) -> SinkRecords:
    """Turn objects into JSON texts; an unchanged object keeps its original text."""
    for part in PARTS:
        objects = _objects(made, part)
        if objects is not None:
            made = with_content(made, part, _json_column(made.offsets.tolist(), objects, part, read))
    return made


def _json_column(
    offsets: Sequence[int], objects: Sequence[Any], part: Part, read: BytesRead | None
) -> pa.Array:
    if {type(value) for value in objects} - {type(None)} == {bytes}:
        return pa.array(objects, pa.binary())
    texts = [
        None if value is None else (read and read.text_of(part, offset, value)) or json_of(value)
        for offset, value in zip(offsets, objects, strict=True)
    ]
    return json_column(pa.array(texts, pa.string()))


def becoming_bytes(config: ConnectorConfig, *, takes_bytes: bool) -> Mapping[Part, str]:
    found: dict[Part, str] = {}
    for part in PARTS:
        if config.dead_letter_topic:
            found[part] = "dead letters hold bytes"
        if takes_bytes and not config.transforms:  # the output of a chain is unknown before it runs
            found[part] = "the sink takes bytes"
        if config.converter_spec(is_key=part == "key").kind != "bytes":
            found[part] = f"'{part}.converter' reads bytes"
    return found


def _objects(records: SinkRecords, part: Part) -> Sequence[Any] | None:
    return records.key_objects if part == "key" else records.value_objects


def _encoded(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else json_of(value).encode()
