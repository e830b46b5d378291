"""Parquet footers: a file's columns, and its offsets and their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

from sinksdk.errors import ConnectException
from sinksdk.records import OffsetRange, TopicPartition
from sinksdk.topics.directory.layout import FileStat, Unfinished


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


_COLUMNS: Final[Mapping[str, tuple[Callable[[pa.DataType], bool], str]]] = {
    "offset": (_is_offset, "an integer that fits a long (int64)"),
    "key": (_is_bytes, "binary (or string, taken as UTF-8)"),
    "value": (_is_bytes, "binary (or string, taken as UTF-8)"),
    "timestamp": (_is_timestamp, "a timestamp (or int64: milliseconds since the epoch)"),
    "timestampType": (types.is_integer, "an integer"),
    "headers": (_is_headers, "list<struct<key: string, value: binary>>"),
}
_REQUIRED: Final = frozenset({"offset", "key", "value"})


def check_columns(schema: pa.Schema, path: str, partition: TopicPartition) -> frozenset[str]:
    """The columns there are to read; one of the null type counts as absent.

    Raises:
        ConnectException: a required column is missing, or one has a wrong type.
    """
    present = set()
    for name, (fits, expected) in _COLUMNS.items():
        at = schema.get_field_index(name)
        if at < 0:
            if name not in _REQUIRED:
                continue
            raise ConnectException(
                f"{partition}: {path} has no column {name!r} (it has {', '.join(schema.names) or 'none'}); "
                f"write it with one of type {expected}"
            )
        kind = _plain(schema.field(at).type)
        if types.is_null(kind) and name != "offset":
            continue
        if not fits(kind):
            raise ConnectException(
                f"{partition}: column {name!r} of {path} is of type {kind}, but must be {expected}; "
                f"write the file again with that type"
            )
        present.add(name)
    return frozenset(present)


def _plain(kind: pa.DataType) -> pa.DataType:
    plain: pa.DataType = kind.value_type if types.is_dictionary(kind) else kind
    return plain


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file with records.

    Args:
        path: absolute.
        first: its lowest offset.
        last: its highest offset.
        size: bytes of its records, uncompressed.
    """

    path: str
    first: int
    last: int
    size: int
    columns: frozenset[str]


class Footers:
    """Reads footers, each once for as long as its file stays the same."""

    def __init__(self, unfinished: Unfinished) -> None:
        self._unfinished = unfinished
        self._known: dict[FileStat, DataFile | None] = {}

    def read(self, stat: FileStat, partition: TopicPartition) -> DataFile | None:
        """What the file holds; None when it holds no records or is gone by now.

        Raises:
            RetriableException: the file has no footer yet.
            ConnectException: it is no Parquet file, has a column of a wrong type, or offsets that are null,
                negative, repeated or not ascending.
        """
        if stat not in self._known:
            self._known[stat] = self._open(stat, partition)
        return self._known[stat]

    def keep(self, stats: Iterable[FileStat]) -> None:
        """Forget all other files."""
        self._known = {stat: self._known[stat] for stat in stats if stat in self._known}

    def _open(self, stat: FileStat, partition: TopicPartition) -> DataFile | None:
        try:
            with pq.ParquetFile(stat.path) as file:
                self._unfinished.forget(stat.path)
                return _examine(file, stat.path, partition)
        except FileNotFoundError:
            return None
        except (pa.ArrowException, OSError) as error:
            problem = f"{partition}: {stat.path} is no readable Parquet file ({error})"
            raise self._unfinished.judge(stat, problem) from error


def _examine(file: pq.ParquetFile, path: str, partition: TopicPartition) -> DataFile | None:
    metadata = file.metadata
    columns = check_columns(metadata.schema.to_arrow_schema(), path, partition)
    spans = list(_spans(file, path, partition))
    if not spans:
        return None
    for earlier, later in pairwise(spans):
        if later.first <= earlier.last:
            raise ConnectException(
                f"{partition}: offsets go backwards within {path}: {later.first} comes after {earlier.last}; "
                f"write its rows in the order of their offsets, each once"
            )
    if spans[0].first < 0:
        raise ConnectException(
            f"{partition}: {path} has the negative offset {spans[0].first}; offsets begin at 0"
        )
    size = sum(metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups))
    return DataFile(path, spans[0].first, spans[-1].last, size, columns)


def row_groups(metadata: pq.FileMetaData, offsets: OffsetRange) -> list[int]:
    """The row groups of a file that may hold records of a range."""
    return [at for at in range(metadata.num_row_groups) if _may_hold(metadata, at, offsets)]


def _may_hold(metadata: pq.FileMetaData, row_group: int, offsets: OffsetRange) -> bool:
    if metadata.row_group(row_group).num_rows == 0:
        return False
    known = _statistics(metadata, row_group)
    return known is None or (known[1] < offsets.end and known[2] >= offsets.start)


class _Span(NamedTuple):
    first: int
    last: int


def _spans(file: pq.ParquetFile, path: str, partition: TopicPartition) -> Iterator[_Span]:
    """First and last offset of each row group that has rows, in the order they are in the file."""
    for at in range(file.metadata.num_row_groups):
        rows = file.metadata.row_group(at).num_rows
        if rows == 0:
            continue
        nulls, first, last = _statistics(file.metadata, at) or _counted(file, at)
        if nulls:
            raise ConnectException(
                f"{partition}: {path} has {nulls} rows whose column 'offset' is null; give every record one"
            )
        if last - first + 1 < rows:
            raise ConnectException(
                f"{partition}: {path} has {rows} rows with offsets {first} to {last}, so some are there "
                f"twice; write each record once"
            )
        yield _Span(first, last)


def _statistics(metadata: pq.FileMetaData, row_group: int) -> tuple[int, Any, Any] | None:
    """Null offsets, lowest and highest offset of a row group, if they are in the footer."""
    leaves = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
    statistics = metadata.row_group(row_group).column(leaves.index("offset")).statistics
    if statistics is None or not statistics.has_min_max or statistics.null_count is None:
        return None
    return statistics.null_count, statistics.min, statistics.max


def _counted(file: pq.ParquetFile, row_group: int) -> tuple[int, Any, Any]:
    """The same from its rows."""
    offsets = file.read_row_group(row_group, columns=["offset"]).column(0)
    extent = pc.min_max(offsets)
    return offsets.null_count, extent["min"].as_py() or 0, extent["max"].as_py() or 0
