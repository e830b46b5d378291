"""Records of a topic directory's files as Arrow batches, in the order of their offsets."""

from __future__ import annotations

import time
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sinksdk.engine.worker import Unread
from sinksdk.errors import ConnectException, RetriableException
from sinksdk.records import HEADERS_TYPE, RECORD_COLUMNS, OffsetRange, SinkRecords, TopicPartition
from sinksdk.topics.base import BATCH_BYTES, BATCH_ROWS
from sinksdk.topics.directory.footers import DataFile, row_groups

_PROBED: Final = 64  # rows that are read of a large file to see how large its rows are
_PATIENCE: Final = 0.1  # seconds without a batch until None is given
_BUFFER: Final = 1024 * 1024  # bytes of a column that are read at once
_OPTIONAL: Final = frozenset({"timestampType", "headers"})


@dataclass(frozen=True, slots=True)
class TopicDirectoryReader:
    """Reads ranges in a task (:class:`~sinksdk.topics.base.Reader`).

    Args:
        files: those that hold something of each partition's range, by ascending offsets, as they were when
            the ranges were planned.
    """

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
    """Headers and ``timestampType`` only where some file has them."""
    there = frozenset[str]().union(*(file.columns for file in files))
    return [
        name
        for name in RECORD_COLUMNS
        if name == "offset" or (name in wanted and (name in there or name not in _OPTIONAL))
    ]


def _rows(
    partition: TopicPartition, file: DataFile, offsets: OffsetRange, columns: Sequence[str]
) -> Iterator[pa.RecordBatch | None]:
    """What a file holds of a range; None for rows outside it."""
    try:
        with _opened(file.path) as opened:
            groups = row_groups(opened.metadata, offsets)
            there = [name for name in columns if name in file.columns]
            for batch in opened.iter_batches(
                _rows_at_once(opened, file, groups, there),
                row_groups=groups,
                columns=there,
                use_threads=False,
            ):
                found = _within(batch, offsets) if batch.num_rows else batch
                yield _as_declared(found, columns) if found.num_rows else None
            yield None
    except FileNotFoundError as error:
        message = f"{partition}: {file.path} was there when the range was planned, and is gone"
        raise RetriableException(message) from error
    except (pa.ArrowException, OSError) as error:
        raise ConnectException(f"{partition}: {file.path} cannot be read: {error}") from error


def _opened(path: str) -> pq.ParquetFile:
    """A file that is read piece by piece: to fetch ahead would hold whole row groups, and is no faster."""
    return pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False, coerce_int96_timestamp_unit="us")


def _rows_at_once(
    opened: pq.ParquetFile, file: DataFile, groups: Sequence[int], columns: Sequence[str]
) -> int:
    """Rows of a batch: the footer has only their encoded size, so a few rows are read as a sample."""
    rows = max(opened.metadata.num_rows, 1)
    size = file.size / rows
    if rows > _PROBED and groups:
        first = next(opened.iter_batches(_PROBED, row_groups=groups[:1], columns=columns, use_threads=False))
        size = max(size, first.nbytes / max(first.num_rows, 1))
    return max(min(BATCH_ROWS, int(BATCH_BYTES / max(size, 1))), 1)


def _within(batch: pa.RecordBatch, offsets: OffsetRange) -> pa.RecordBatch:
    column = batch.column("offset")
    least, most = pc.min_max(column).values()
    if least.as_py() >= offsets.start and most.as_py() < offsets.end:
        return batch
    inside = pc.and_(pc.greater_equal(column, offsets.start), pc.less(column, offsets.end))
    return batch.filter(inside)


def _as_declared(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """The columns in their types; those the file does not have are null."""
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
    """Instants in whole milliseconds, rounded down; a number is one already."""
    kind = RECORD_COLUMNS["timestamp"]
    if pa.types.is_integer(array.type):
        return array.cast(pa.int64()).view(kind)
    instants = array.cast(pa.timestamp(array.type.unit, tz="UTC"))  # one without a zone is taken as UTC
    if array.type.unit in {"us", "ns"}:
        instants = pc.floor_temporal(instants, unit="millisecond")
    return instants.cast(kind)


def _headers(array: pa.Array) -> pa.Array:
    fields = array.type.value_type
    if [field.name for field in fields] != ["key", "value"]:
        array = array.cast(pa.list_(fields))  # large lists, too
        flat = array.values
        entries = pa.StructArray.from_arrays(
            [flat.field("key"), flat.field("value")], names=["key", "value"], mask=flat.is_null()
        )
        array = pa.ListArray.from_arrays(array.offsets, entries, mask=array.is_null())
    return array.cast(HEADERS_TYPE)


def _in_batches(batches: Iterator[pa.RecordBatch | None]) -> Iterator[pa.RecordBatch | None]:
    """Batches of many small files together, larger ones in pieces; None whenever nothing came for a while."""
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
    """A batch in parts that are small enough, if single rows are."""
    count = min(-(-batch.nbytes // BATCH_BYTES), batch.num_rows)
    length = -(-batch.num_rows // max(count, 1))
    return (batch.slice(start, length) for start in range(0, batch.num_rows, max(length, 1)))


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
