"""Write keys and headers to files next to the values' file, each with the same rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sinksdk import DataException, TopicPartition
from sinksdk.connectors.s3_archiver.archive.header import FileHeader
from sinksdk.connectors.s3_archiver.formats.base import Encoded, FileContent, Format, Kinds, Rows
from sinksdk.connectors.s3_archiver.formats.columns import (
    Flags,
    Longs,
    as_column,
    as_mask,
    flag_column,
    list_borders,
    long_column,
    null_scalar,
)
from sinksdk.connectors.s3_archiver.formats.datums import NO_ROWS
from sinksdk.connectors.s3_archiver.formats.values import NO_VALUE, bad_record
from sinksdk.values.json_text import is_json

HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.string())]))

_NO_KEY: Final = (
    "it has no key (null), but 'store.kafka.keys' needs one: correct the producer, or remove "
    "'store.kafka.keys'"
)
_NO_TEXT: Final = (
    "the value of its header {name!r} is not UTF-8 text, and a file of headers holds only text: correct the "
    "producer, remove the header with the transform DropHeaders, remove 'store.kafka.headers', or archive "
    "whole records, which hold any bytes, with 'archive.content' record and AvroFormat or ParquetFormat"
)
_NO_NAME: Final = (
    "it has a header without a key: correct the producer, remove 'store.kafka.headers', or archive whole "
    "records with 'archive.content' record and AvroFormat or ParquetFormat"
)
_OF_KEYS: Final[Mapping[str, str]] = {
    NO_VALUE: _NO_KEY,
    "its value": "its key",
    "'value.converter": "'key.converter",
    "'format.class'": "'keys.format.class'",
    "HoistField$Value": "HoistField$Key",
}

Bad = dict[int, DataException | None]


class View(NamedTuple):
    """The part of records that a file holds."""

    # The name in file names: "keys" or "headers"; empty for values and for whole records.
    name: str
    format: Format[Any]
    # Returns the view's batch, and the rows that cannot be in it.
    of: Callable[[TopicPartition, pa.RecordBatch], tuple[pa.RecordBatch, Bad]] = lambda _, batch: (batch, {})


class RowsOfViews(NamedTuple):
    of: Sequence[Rows]

    def __len__(self) -> int:
        return len(self.of[0])

    def slice(self, start: int, stop: int) -> Self:
        return type(self)([rows.slice(start, stop) for rows in self.of])


def rows_of(rows: Rows, number: int) -> Rows:
    """Return the rows of one view; all rows if the format has no views."""
    found = rows.of[number] if isinstance(rows, RowsOfViews) else rows
    return found.rows if isinstance(found, RowsWithValues) else found


class RowsWithValues(NamedTuple):
    """Rows of which some have no value, and are not in the values' file."""

    rows: Rows
    # The number of rows with a value before each row, and at the end the number of all.
    before: Longs

    def __len__(self) -> int:
        return len(self.before) - 1

    def slice(self, start: int, stop: int) -> Self:
        rows = self.rows.slice(
            int(self.before[start] - self.before[0]), int(self.before[stop] - self.before[0])
        )
        return type(self)(rows, self.before[start : stop + 1])


class KindsOfViews(tuple[object, ...]):
    __slots__ = ()


class FormatOfViews:
    """Write several views of the same records, the values first."""

    def __init__(self, views: Sequence[View], tombstones: str | None = None) -> None:
        self.views = tuple(views)
        # Folder of keys and headers of records without a value; None: the values' format handles these
        # records.
        self.tombstones = tombstones

    @property
    def extension(self) -> str:
        return self.views[0].format.extension

    @property
    def columns(self) -> tuple[str, ...] | None:
        if self.views[0].format.columns is None:
            return None
        return "offset", "value", *(_COLUMNS[view.name] for view in self.views[1:])

    def learn(self, batch: pa.RecordBatch) -> None:
        for view in self.views:
            own = view.of(_NOWHERE, batch)[0]
            if not view.name and self.tombstones is not None:
                own = own.filter(has_value(own))
            view.format.learn(own)

    def kinds(self, partition: TopicPartition, batch: pa.RecordBatch) -> Kinds | None:
        bad: Bad = {}
        kinds: list[KindsOfViews] = [KindsOfViews()]
        codes = np.zeros(batch.num_rows, np.int32)
        for view in self.views:
            own, bad_of_view = view.of(partition, batch)
            found = self._kinds(view, partition, own)
            _add(bad, bad_of_view, view)
            if found is not None:
                _add(bad, found.bad, view)
                codes = codes * np.int32(len(found.kinds)) + found.codes
            of_view = [None] if found is None else found.kinds
            kinds = [KindsOfViews((*before, kind)) for before in kinds for kind in of_view]
        return Kinds(list(kinds), codes, bad)

    def encode(self, partition: TopicPartition, batch: pa.RecordBatch) -> Encoded[RowsOfViews]:
        # After a bad row in one view, the views' rows do not match: the caller encodes the good rows
        # again.
        rows, bad = [], Bad()
        for view in self.views:
            own, bad_of_view = view.of(partition, batch)
            result = self._encoded(view, partition, own)
            _add(bad, bad_of_view, view)
            _add(bad, result.bad, view)
            rows.append(result.rows)
        return Encoded(RowsOfViews(rows), bad)

    def _kinds(self, view: View, partition: TopicPartition, own: pa.RecordBatch) -> Kinds | None:
        has_values = self._has_values(view, own)
        if has_values is None:
            return view.format.kinds(partition, own)
        rows = np.flatnonzero(has_values)
        found = view.format.kinds(partition, own.take(long_column(rows))) if len(rows) else None
        if found is None:
            return None
        # A record without a value may have any kind, because nothing is written for it.
        codes = np.zeros(len(has_values), np.int32)
        codes[rows] = found.codes
        return Kinds(
            found.kinds or [None], codes, {int(rows[row]): error for row, error in found.bad.items()}
        )

    def _encoded(self, view: View, partition: TopicPartition, own: pa.RecordBatch) -> Encoded[Any]:
        has_values = self._has_values(view, own)
        if has_values is None:
            return view.format.encode(partition, own)
        rows = np.flatnonzero(has_values)
        before = np.concatenate(([0], np.cumsum(has_values)))
        if not len(rows):
            return Encoded(RowsWithValues(NO_ROWS, before), {})
        result = view.format.encode(partition, own.take(long_column(rows)))
        bad = {int(rows[row]): error for row, error in result.bad.items()}
        return Encoded(RowsWithValues(result.rows, before), bad)

    def _has_values(self, view: View, own: pa.RecordBatch) -> Flags | None:
        """Return which rows have a value; None if the view takes all rows."""
        has_values = None if view.name or self.tombstones is None else as_mask(has_value(own))
        return None if has_values is None or has_values.all() else has_values

    def begin(self, header: FileHeader, key: str, kind: object) -> FileContent[Any]:
        raise NotImplementedError


def has_value(batch: pa.RecordBatch) -> Any:
    return _column(batch, "value").is_valid()


def keys_of(*, wrapped: bool) -> Callable[[TopicPartition, pa.RecordBatch], tuple[pa.RecordBatch, Bad]]:
    def keys(_: TopicPartition, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Bad]:
        column = _column(batch, "key")
        # Confluent's sink writes a key to Parquet as the only field of a structure.
        if wrapped and not is_json(column.type):  # JSON needs no schema
            column = pa.StructArray.from_arrays([column], ["key"], mask=column.is_null())
        return _as_values(batch, column), {}

    return keys


def headers_of(*, wrapped: bool) -> Callable[[TopicPartition, pa.RecordBatch], tuple[pa.RecordBatch, Bad]]:
    def headers(partition: TopicPartition, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Bad]:
        column, reasons = _header_texts(_column(batch, "headers"))
        if wrapped:
            # Confluent's sink wraps headers like this in Parquet and JSON.
            column = pa.StructArray.from_arrays([column], ["headers"])
        offsets = batch.column("offset")
        return _as_values(batch, column), {
            row: bad_record(partition, offsets[row], why) for row, why in reasons.items()
        }

    return headers


_COLUMNS: Final = {"keys": "key", "headers": "headers"}
_NOWHERE: Final = TopicPartition("", 0)


def _column(batch: pa.RecordBatch, name: str) -> Any:
    index = batch.schema.get_field_index(name)
    return pa.nulls(batch.num_rows) if index < 0 else batch.column(index)


def _as_values(batch: pa.RecordBatch, column: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([batch.column("offset"), column], ["offset", "value"])


def _add(bad: Bad, found: Mapping[int, DataException | None], view: View) -> None:
    for row, error in found.items():
        if row not in bad:
            bad[row] = _about_keys(error) if view.name == "keys" and error is not None else error


def _about_keys(error: DataException) -> DataException:
    message = str(error)
    for of_values, of_keys in _OF_KEYS.items():
        message = message.replace(of_values, of_keys)
    return DataException(message)


def _header_texts(column: Any) -> tuple[Any, dict[int, str]]:
    """Return headers with their values as text, and the problems of rows without such texts."""
    rows, reasons = len(column), dict[int, str]()
    if not pa.types.is_list(column.type) or not pa.types.is_struct(column.type.value_type):
        nothing = as_column(np.zeros(rows + 1, np.int32), pa.int32())
        return pa.ListArray.from_arrays(nothing, pa.nulls(0, HEADERS.value_type), type=HEADERS), reasons
    parts = column.flatten()
    names, values = parts.flatten()
    parents = np.from_dlpack(column.value_parent_indices())
    for row in np.unique(parents[as_mask(names.is_null())]).tolist():
        reasons[row] = _NO_NAME
    try:
        texts = values.cast(pa.string())
    except pa.ArrowInvalid:
        listed = values.to_pylist()
        are_bad = np.array([value is not None and not _is_text(value) for value in listed])
        for place in np.flatnonzero(are_bad).tolist():
            reasons.setdefault(int(parents[place]), _NO_TEXT.format(name=names[place].as_py()))
        texts = pc.if_else(flag_column(are_bad), null_scalar(values.type), values).cast(pa.string())
    result = pa.StructArray.from_arrays([names.cast(pa.string()), texts], fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(list_borders(column), result, type=HEADERS), reasons


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
