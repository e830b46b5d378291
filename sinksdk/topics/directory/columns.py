"""Which columns a topic directory's file may have, and of which types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import pyarrow as pa
from pyarrow import types

from sinksdk.errors import ConnectException
from sinksdk.records import TopicPartition


class _Column(NamedTuple):
    is_required: bool
    fits: Callable[[pa.DataType], bool]
    expected: str


def _is_offset(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) and not types.is_uint64(kind))  # half of those are beyond a long


def _is_bytes(kind: pa.DataType) -> bool:
    return _is_text(kind) or any(
        fits(kind) for fits in (types.is_binary, types.is_large_binary, types.is_binary_view)
    )


def _is_text(kind: pa.DataType) -> bool:
    return any(fits(kind) for fits in (types.is_string, types.is_large_string, types.is_string_view))


def _is_timestamp(kind: pa.DataType) -> bool:
    return bool(types.is_timestamp(kind) or types.is_int64(kind))


def _is_headers(kind: pa.DataType) -> bool:
    if not (types.is_list(kind) or types.is_large_list(kind)) or not types.is_struct(kind.value_type):
        return False
    fields = {field.name: _plain(field.type) for field in kind.value_type}
    if fields.keys() != {"key", "value"}:
        return False
    return _is_text(fields["key"]) and _is_bytes(fields["value"]) and not _is_text(fields["value"])


_COLUMNS: Final[Mapping[str, _Column]] = {
    "offset": _Column(is_required=True, fits=_is_offset, expected="an integer that fits a long (int64)"),
    "key": _Column(is_required=True, fits=_is_bytes, expected="binary (or string, taken as UTF-8)"),
    "value": _Column(is_required=True, fits=_is_bytes, expected="binary (or string, taken as UTF-8)"),
    "timestamp": _Column(
        is_required=False, fits=_is_timestamp, expected="a timestamp (or int64: milliseconds since the epoch)"
    ),
    "timestampType": _Column(is_required=False, fits=types.is_integer, expected="an integer"),
    "headers": _Column(
        is_required=False, fits=_is_headers, expected="list<struct<key: string, value: binary>>"
    ),
}


def check_columns(schema: pa.Schema, path: str, partition: TopicPartition) -> frozenset[str]:
    """The columns there are to read; one without a type, whose rows are all null, counts as absent.

    Raises:
        ConnectException: a required column is missing, or one has a type it cannot have.
    """
    present = set()
    for name, column in _COLUMNS.items():
        at = schema.get_field_index(name)
        if at < 0 and column.is_required:
            raise ConnectException(
                f"{partition}: {path} has no column {name!r} (it has {', '.join(schema.names) or 'none'}); "
                f"write it with one of type {column.expected}"
            )
        if at < 0:
            continue
        kind = _plain(schema.field(at).type)
        if types.is_null(kind) and name != "offset":
            continue
        if not column.fits(kind):
            raise ConnectException(
                f"{partition}: column {name!r} of {path} is of type {kind}, but must be {column.expected}; "
                f"write the file again with that type"
            )
        present.add(name)
    return frozenset(present)


def _plain(kind: pa.DataType) -> pa.DataType:
    plain: pa.DataType = kind.value_type if types.is_dictionary(kind) else kind
    return plain
