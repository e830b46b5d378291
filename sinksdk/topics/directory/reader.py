"""Reads the footers of a topic directory's data files, and their rows by ascending offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

from sinksdk.engine.task_run import Unread
from sinksdk.errors import ConnectException, RetriableException
from sinksdk.offsets import OffsetRange, TopicPartition
from sinksdk.records import HEADERS_TYPE, RECORD_COLUMNS, SinkRecords
from sinksdk.topics.base import BATCH_BYTES, BATCH_ROWS
from sinksdk.topics.directory.layout import FileStat, Unfinished
from sinksdk.values.rows import rows_to_take

_SAMPLE: Final = 64  # rows of a large file that are read to measure their size
_PATIENCE: Final = 0.1  # seconds without a batch after which None is yielded
_BUFFER: Final = 1024 * 1024  # bytes of a column per read
_OPTIONAL: Final = frozenset({"timestampType", "headers"})


_TEXT: Final = frozenset({pa.string(), pa.large_string(), pa.string_view()})
_BYTES: Final = frozenset({pa.binary(), pa.large_binary(), pa.binary_view()})


def _is_offset(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) and not types.is_uint64(kind))  # a long does not hold every uint64


def _is_bytes(kind: pa.DataType) -> bool:
    return kind in _TEXT or kind in _BYTES


def _is_timestamp(kind: pa.DataType) -> bool:
    return bool(types.is_timestamp(kind) or types.is_int64(kind))


def _is_headers(kind: pa.DataType) -> bool:
    if not (types.is_list(kind) or types.is_large_list(kind)) or not types.is_struct(kind.value_type):
        return False
    fields = {field.name: _plain(field.type) for field in kind.value_type}
    if fields.keys() != {"key", "value"}:
        return False
    return fields["key"] in _TEXT and fields["value"] in _BYTES


_COLUMNS: Final[Mapping[str, tuple[Callable[[pa.DataType], bool], str]]] = {
    "offset": (_is_offset, "an integer that fits a long (int64)"),
    "key": (_is_bytes, "binary (or string, taken as UTF-8)"),
    "value": (_is_bytes, "binary (or string, taken as UTF-8)"),
    "timestamp": (_is_timestamp, "a timestamp (or int64: milliseconds since the epoch)"),
    "timestampType": (types.is_integer, "an integer"),
    "headers": (_is_headers, "list<struct<key: string, value: binary>>"),
}
_REQUIRED: Final = frozenset({"offset", "key", "value"})


def _checked_columns(schema: pa.Schema, path: str, partition: TopicPartition) -> frozenset[str]:
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
    path: str  # an absolute path
    first: int  # lowest offset
    last: int  # highest offset
    size: int  # bytes of the file's records, uncompressed
    columns: frozenset[str]


class Footers:
    def __init__(self, unfinished: Unfinished) -> None:
        self._unfinished = unfinished
        self._known: dict[FileStat, DataFile | None] = {}

    def read(self, stat: FileStat, partition: TopicPartition) -> DataFile | None:
        """Describe a file; None if it has no records or was removed."""
        if stat not in self._known:
            self._known[stat] = self._open(stat, partition)
        return self._known[stat]

    def keep(self, stats: Iterable[FileStat]) -> None:
        self._known = {stat: self._known[stat] for stat in stats if stat in self._known}

    def _open(self, stat: FileStat, partition: TopicPartition) -> DataFile | None:
        try:
            with pq.ParquetFile(stat.path) as file:
                self._unfinished.forget(stat.path)
                return _examine(file, stat.path, partition)
        except FileNotFoundError:
            return None
        except (pa.ArrowException, OSError) as error:
            raise self._unfinished.judge(
                stat, f"{partition}: {stat.path} is not a readable Parquet file ({error})"
            ) from error


def _examine(file: pq.ParquetFile, path: str, partition: TopicPartition) -> DataFile | None:
    metadata = file.metadata
    columns = _checked_columns(metadata.schema.to_arrow_schema(), path, partition)
    spans = list(_spans(file, path, partition))
    if not spans:
        return None
    for (_, last), (following, _) in pairwise(spans):
        if following <= last:
            raise ConnectException(
                f"{partition}: offsets go backwards within {path}: {following} comes after {last}; "
                f"write its rows in the order of their offsets, each once"
            )
    first = spans[0][0]
    if first < 0:
        raise ConnectException(f"{partition}: {path} has the negative offset {first}; offsets begin at 0")
    size = sum(metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups))
    return DataFile(path, first, spans[-1][1], size, columns)


def _row_groups(metadata: pq.FileMetaData, offsets: OffsetRange) -> list[int]:
    groups = []
    for at in range(metadata.num_row_groups):
        known = _statistics(metadata, at)
        if metadata.row_group(at).num_rows and (
            known is None or (known[1] < offsets.end and known[2] >= offsets.start)
        ):
            groups.append(at)
    return groups


def _spans(file: pq.ParquetFile, path: str, partition: TopicPartition) -> Iterator[tuple[int, int]]:
    for at in range(file.metadata.num_row_groups):
        rows = file.metadata.row_group(at).num_rows
        if rows == 0:
            continue
        nulls, first, last = _statistics(file.metadata, at) or _counted(file, at)
        if nulls:
            raise ConnectException(
                f"{partition}: {path} has {nulls} rows whose column 'offset' is null; give every record an "
                f"offset"
            )
        if last - first + 1 < rows:
            raise ConnectException(
                f"{partition}: {path} has {rows} rows with offsets {first} to {last}, so some are "
                f"duplicates; write each record once"
            )
        yield first, last


def _statistics(metadata: pq.FileMetaData, row_group: int) -> tuple[int, Any, Any] | None:
    leaves = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
    statistics = metadata.row_group(row_group).column(leaves.index("offset")).statistics
    if statistics is None or not statistics.has_min_max or statistics.null_count is None:
        return None
    return statistics.null_count, statistics.min, statistics.max


def _counted(file: pq.ParquetFile, row_group: int) -> tuple[int, Any, Any]:
    offsets = file.read_row_group(row_group, columns=["offset"]).column(0)
    extent = pc.min_max(offsets)
    return offsets.null_count, extent["min"].as_py() or 0, extent["max"].as_py() or 0


@dataclass(frozen=True, slots=True)
class TopicDirectoryReader:
    files: Mapping[TopicPartition, Sequence[DataFile]] = field(default_factory=dict)

    def of(self, partitions: Collection[TopicPartition]) -> TopicDirectoryReader:
        return TopicDirectoryReader({partition: self.files.get(partition, ()) for partition in partitions})

    def read(
        self,
        ranges: Mapping[TopicPartition, OffsetRange],
        columns: Collection[str],
        overrides: Mapping[str, str],  # noqa: ARG002 - there is no client
    ) -> Generator[SinkRecords | Unread | None]:
        for partition, offsets in ranges.items():
            if offsets.start >= offsets.end:
                continue
            try:
                for batch in self._read(partition, offsets, columns):
                    yield None if batch is None else SinkRecords(partition, batch)
            except ConnectException as error:
                yield Unread(partition, error)

    def _read(
        self, partition: TopicPartition, offsets: OffsetRange, columns: Collection[str]
    ) -> Iterator[pa.RecordBatch | None]:
        files = self.files.get(partition, ())
        wanted = _columns(files, columns)
        return _in_batches(chain.from_iterable(_rows(partition, file, offsets, wanted) for file in files))


def _columns(files: Sequence[DataFile], wanted: Collection[str]) -> list[str]:
    existing = frozenset[str]().union(*(file.columns for file in files))
    return [
        name
        for name in RECORD_COLUMNS
        if name == "offset" or (name in wanted and (name in existing or name not in _OPTIONAL))
    ]


def _rows(
    partition: TopicPartition, file: DataFile, offsets: OffsetRange, columns: Sequence[str]
) -> Iterator[pa.RecordBatch | None]:
    try:
        with _opened(file.path) as opened:
            groups = _row_groups(opened.metadata, offsets)
            present = [name for name in columns if name in file.columns]
            for batch in opened.iter_batches(
                _rows_at_once(opened, file, groups, present),
                row_groups=groups,
                columns=present,
                use_threads=False,
            ):
                found = _within(batch, offsets) if batch.num_rows else batch
                yield _as_declared(found, columns) if found.num_rows else None
            yield None
    except FileNotFoundError as error:
        raise RetriableException(
            f"{partition}: {file.path} was removed after the range was planned"
        ) from error
    except (pa.ArrowException, OSError) as error:
        raise ConnectException(f"{partition}: {file.path} cannot be read: {error}") from error


def _opened(path: str) -> pq.ParquetFile:
    # The file is read piece by piece, because pre-buffering would hold whole row groups and is no faster.
    return pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False, coerce_int96_timestamp_unit="us")


def _rows_at_once(
    opened: pq.ParquetFile, file: DataFile, groups: Sequence[int], columns: Sequence[str]
) -> int:
    # The footer has only the encoded size of the rows, so a sample of rows is read.
    rows = max(opened.metadata.num_rows, 1)
    size = file.size / rows
    if rows > _SAMPLE and groups:
        first = next(opened.iter_batches(_SAMPLE, row_groups=groups[:1], columns=columns, use_threads=False))
        size = max(size, first.nbytes / max(first.num_rows, 1))
    return max(min(BATCH_ROWS, int(BATCH_BYTES / max(size, 1))), 1)


def _within(batch: pa.RecordBatch, offsets: OffsetRange) -> pa.RecordBatch:
    column = batch.column("offset")
    least, most = pc.min_max(column).values()
    if least.as_py() >= offsets.start and most.as_py() < offsets.end:
        return batch
    found = np.from_dlpack(column)
    return batch.take(rows_to_take(np.flatnonzero((found >= offsets.start) & (found < offsets.end))))


def _as_declared(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    arrays = [
        _declared(name, batch.column(name))
        if name in batch.schema.names
        else pa.nulls(batch.num_rows, RECORD_COLUMNS[name])
        for name in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _declared(name: str, array: pa.Array) -> pa.Array:
    kind = RECORD_COLUMNS[name]
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.type.equals(kind):
        return array
    if name == "timestamp":
        return _milliseconds(array)
    if name == "headers":
        return _headers(array)
    return array.cast(kind)


def _milliseconds(array: pa.Array) -> pa.Array:
    """Convert to whole milliseconds, rounded down; integers are milliseconds already."""
    kind = RECORD_COLUMNS["timestamp"]
    if pa.types.is_integer(array.type):
        return array.cast(pa.int64()).view(kind)
    # A timestamp without a zone is taken as UTC.
    instants = array.cast(pa.timestamp(array.type.unit, tz="UTC"))
    if array.type.unit in {"us", "ns"}:
        instants = pc.floor_temporal(instants, unit="millisecond")
    return instants.cast(kind)


def _headers(array: pa.Array) -> pa.Array:
    fields = array.type.value_type
    if [field.name for field in fields] != ["key", "value"]:
        array = array.cast(pa.list_(fields))  # casts large lists too
        flat = array.values
        entries = pa.StructArray.from_arrays(
            [flat.field("key"), flat.field("value")], names=["key", "value"], mask=flat.is_null()
        )
        array = pa.ListArray.from_arrays(array.offsets, entries, mask=array.is_null())
    return array.cast(HEADERS_TYPE)


def _in_batches(batches: Iterator[pa.RecordBatch | None]) -> Iterator[pa.RecordBatch | None]:
    """Join batches of small files and split large ones; yield None after a while without a batch."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    last = time.monotonic()
    for batch in batches:
        if batch is not None:
            for piece in _pieces(batch):
                if held and (rows + piece.num_rows > BATCH_ROWS or size + piece.nbytes > BATCH_BYTES):
                    yield _joined(held)
                    held, rows, size, last = [], 0, 0, time.monotonic()
                held.append(piece)
                rows, size = rows + piece.num_rows, size + piece.nbytes
        if time.monotonic() - last >= _PATIENCE:
            yield None
            last = time.monotonic()
    if held:
        yield _joined(held)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    count = min(-(-batch.nbytes // BATCH_BYTES), batch.num_rows)
    length = -(-batch.num_rows // max(count, 1))
    return (batch.slice(start, length) for start in range(0, batch.num_rows, max(length, 1)))


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
