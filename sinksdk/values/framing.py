"""The framing of a schema registry: a zero byte and four bytes of a schema's id before each datum."""

from __future__ import annotations

import functools
import sys
import threading
import uuid
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

# Confluent Platform 8 can put the id, or a GUID, into a header (HeaderSchemaIdSerializer). In this process, a
# number above all ids stands for each GUID.
HEADERS: Final = {"key": "__key_schema_id", "value": "__value_schema_id"}

_FIRST: Final = 2**31  # numbers of GUIDs begin here, because ids are 32-bit integers of Java
_MOST: Final = 100_000  # GUIDs that are remembered, so that invalid ones do not fill the memory
_ID_BYTES, _GUID_BYTES = 5, 17  # bytes in a header
_NONE: Final = b"\xff"  # a byte with which no framing begins

_lock: Final = threading.Lock()
_guids: Final[list[uuid.UUID]] = []
_numbers: Final[dict[uuid.UUID, int]] = {}


def guid_of(number: int) -> uuid.UUID | None:
    place = number - _FIRST
    return _guids[place] if 0 <= place < len(_guids) else None


def name_of(number: int) -> str:
    return str(guid_of(number) or number)


def framed_by_headers(values: pa.Array, headers: pa.Array, name: str) -> pa.Array:
    if not pa.types.is_list(headers.type) or not pa.types.is_struct(headers.type.value_type):
        return values
    # The last header of the name counts, as in Confluent's DualSchemaIdDeserializer.
    items = headers.flatten()
    names = items.field("key")
    found = pc.equal(names, _text(name, names.type))
    if not pc.any(found, min_count=0).as_py():
        return values
    rows = pc.list_parent_indices(headers).filter(found).to_pylist()
    encoded = items.field("value").filter(found).dictionary_encode()
    known = [_framing(each) for each in encoded.dictionary.to_pylist()]
    frames: list[bytes] = [b""] * len(values)
    for row, code in zip(rows, encoded.indices.to_pylist(), strict=True):
        frames[row] = _NONE if code is None else known[code]
    before = pa.array(frames, values.type)
    return pc.binary_join_element_wise(before, values, pa.scalar(b"", values.type))


@functools.lru_cache(maxsize=16)
def _text(text: str, kind: pa.DataType) -> pa.Scalar:
    # Arrow's conversion of a Python object would import pandas.
    data = text.encode()
    offsets = b"\0\0\0\0" + len(data).to_bytes(4, sys.byteorder)
    column = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return column.cast(kind)[0]


def _framing(header: Any) -> bytes:
    if len(header) >= _ID_BYTES and header[0] == 0:
        return bytes(header[:_ID_BYTES])
    if len(header) >= _GUID_BYTES and header[0] == 1:
        number = _number_of(uuid.UUID(bytes=bytes(header[1:_GUID_BYTES])))
        return _NONE if number is None else b"\0" + number.to_bytes(4)
    return _NONE


def _number_of(guid: uuid.UUID) -> int | None:
    with _lock:
        if guid not in _numbers:
            if len(_guids) >= _MOST:
                return None
            _guids.append(guid)
            _numbers[guid] = _FIRST + len(_guids) - 1
        return _numbers[guid]
