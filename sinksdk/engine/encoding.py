"""Keys and values as bytes again, for tasks that know only bytes, after transforms have changed them."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from sinksdk.records import SinkRecords
from sinksdk.transforms import moments
from sinksdk.transforms.parts import PARTS, Part, content_of, objects_of, with_content


class BytesRead:
    """The bytes of keys and values, to be found again for those that transforms have left as they are.

    Args:
        records: as converters give them, over the columns as they were read.
        by_content: a value is found by its JSON. An author's transform may change objects where they are;
            Kafka's own never do, so theirs are found by identity.
    """

    def __init__(self, records: SinkRecords, *, by_content: bool) -> None:
        self._mark: Callable[[Any], object] = _encoded if by_content else id
        self._records = records  # an object's id is its own as long as it lives
        self._known = {part: self._bytes(part) for part in PARTS}

    def _bytes(self, part: Part) -> Mapping[tuple[int, object], bytes]:
        objects, read = _objects(self._records, part), self._records.arrow
        index = read.schema.get_field_index(part)
        if objects is None or index < 0:
            return {}
        offsets = self._records.offsets.tolist()
        return {
            (offset, self._mark(value)): data
            for offset, value, data in zip(offsets, objects, read.column(index).to_pylist(), strict=True)
        }

    def of(self, part: Part, offset: int, value: Any) -> bytes | None:
        """The bytes of one key or value, if it is as it was converted."""
        return self._known[part].get((offset, self._mark(value)))


def as_bytes(made: SinkRecords, read: BytesRead) -> SinkRecords:
    """Records whose keys and values are columns of bytes.

    What the transforms have left as the converters gave it has the bytes it was read with. Text becomes
    UTF-8, bytes stay, anything else becomes JSON as Connect's JsonConverter writes it without schemas.

    Args:
        made: what the transforms have made.
        read: taken before they were applied.
    """
    for part in PARTS:
        content = content_of(made, part)
        if not isinstance(content, pa.Array) and _objects(made, part) is None:
            continue  # bytes as they were read
        encoded = [
            read.of(part, offset, value) or _encoded(value)
            for offset, value in zip(made.offsets.tolist(), objects_of(content), strict=True)
        ]
        made = with_content(made, part, pa.array(encoded, pa.binary()))
    return made


def _objects(records: SinkRecords, part: Part) -> Sequence[Any] | None:
    return records.keys if part == "key" else records.values


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
