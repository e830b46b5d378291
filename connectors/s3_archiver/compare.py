"""Comparing an archive with what it was made from, record for record."""

from __future__ import annotations

import datetime as dt
import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, cast

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from sinksdk import ConfigException, SinkRecords, TopicPartition
from sinksdk.connectors.s3_archiver.client import S3, Location
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.verify import PartitionReport, Report, kept_parquet, open_parquet
from sinksdk.records import NO_TIMESTAMP, RECORD_COLUMNS

_MOST_NAMED: Final = 5
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Record(NamedTuple):
    """What must be the same on both sides."""

    offset: int
    timestamp: int | None
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Original(Protocol):
    """What an archive was made from; ``str()`` is its name in messages."""

    def records(self, partition: TopicPartition, end: int) -> Iterator[Record]:
        """The records of a partition that a connector would have read below an offset, in order of offsets.

        Raises:
            ConnectException: they cannot be read.
        """

    def why_gone(self, partition: TopicPartition, offset: int) -> str:
        """Why a record that was once there need not be there any more; empty when nothing explains it."""


def compare(config: S3ArchiverConfig, s3: S3, original: Original, report: Report) -> None:
    """Add to a report what differs from the original.

    Every record of it below a partition's commit must be archived, as it is. Both sides are read in
    order and in bounded memory. What the original has removed since, and what the connector was told to
    begin behind, is counted, and no difference.

    Raises:
        ConnectException: the original cannot be read.
        S3Trouble: no answer.
        S3Error: refused.
    """
    for found in report.partitions:
        if not found.problems:  # else it is known to differ
            _compare_partition(config, s3, original, found)


def _compare_partition(config: S3ArchiverConfig, s3: S3, original: Original, found: PartitionReport) -> None:
    comparison = _Comparison(original, found)
    source = original.records(found.partition, found.committed or 0)
    for there, archived in _paired(source, _archived(config, s3, found.partition)):
        if archived is not None and there is not None:
            comparison.both(there, archived)
        elif there is not None:
            comparison.only_there(there)
        elif archived is not None:
            comparison.only_archived(archived)
    comparison.close()


def _paired(
    source: Iterator[Record], archived: Iterator[Record]
) -> Iterator[tuple[Record | None, Record | None]]:
    """Records of the same offset side by side, both sides being in order of offsets."""
    left, right = next(source, None), next(archived, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left.offset < right.offset):
            yield left, None
            left = next(source, None)
        elif left is None or right.offset < left.offset:
            yield None, right
            right = next(archived, None)
        else:
            yield left, right
            left, right = next(source, None), next(archived, None)


class _Comparison:
    """Counts equal records of a partition, and lists the first different ones."""

    def __init__(self, original: Original, found: PartitionReport) -> None:
        self._original = original
        self._found = found
        self._same = 0
        self._differing = 0
        self._before = 0
        self._gone: Counter[str] = Counter()

    def both(self, there: Record, archived: Record) -> None:
        fields = [name for name in there._fields if getattr(there, name) != getattr(archived, name)]
        if fields:
            self._differs(f"offset {there.offset} has another {', '.join(fields)} in the archive")
        else:
            self._same += 1

    def only_there(self, there: Record) -> None:
        if any(left_out.start <= there.offset < left_out.end for left_out in self._found.left_out):
            self._before += 1
        else:
            self._differs(f"offset {there.offset} is in {self._original} and not in the archive")

    def only_archived(self, archived: Record) -> None:
        if why := self._original.why_gone(self._found.partition, archived.offset):
            self._gone[why] += 1
        else:
            self._differs(f"offset {archived.offset} is in the archive and not in {self._original}")

    def close(self) -> None:
        partition, notes = self._found.partition, self._found.notes
        if self._differing > _MOST_NAMED:
            self._found.problems.append(f"{partition}: {self._differing - _MOST_NAMED} more records differ")
        notes += [
            f"{partition}: {count:,} archived records are no longer in {self._original}, {why}"
            for why, count in self._gone.items()
        ]
        if self._before:
            notes.append(
                f"{partition}: {self._before:,} records of {self._original} are not in the archive: the "
                f"connector began behind them"
            )
        if not self._differing:
            notes.append(f"{partition}: {self._same:,} records are the same as in {self._original}")

    def _differs(self, how: str) -> None:
        self._differing += 1
        if self._differing <= _MOST_NAMED:
            self._found.problems.append(f"{self._found.partition}: {how}")


def _archived(config: S3ArchiverConfig, s3: S3, partition: TopicPartition) -> Iterator[Record]:
    """Records by offset. Files of one commit hold them in turns: no more are open than do."""
    layout, bucket = config.layout(), config.s3_bucket_name
    names = (layout.parse(item.key) for item in s3.list(bucket, layout.folder(partition.topic)))
    mine = sorted(
        (name for name in names if name and name.partition == partition), key=lambda name: name.start
    )
    files: list[tuple[int, int, Record, Iterator[Record]]] = []

    def next_of(place: int, rest: Iterator[Record]) -> None:
        record = next(rest, None)
        if record is not None:
            heapq.heappush(files, (record.offset, place, record, rest))

    for place, name in enumerate(mine):
        while files and files[0][0] < name.start:
            _, at, record, rest = heapq.heappop(files)
            yield record
            next_of(at, rest)
        next_of(place, _records(s3, Location(bucket, layout.file(name)), name.extension))
    while files:
        _, at, record, rest = heapq.heappop(files)
        yield record
        next_of(at, rest)


def _records(s3: S3, location: Location, extension: str) -> Iterator[Record]:
    with s3.read(location) as content, kept_parquet() as kept:
        if extension != ".avro":
            for batch in open_parquet(content, kept).iter_batches():
                at = batch.schema.get_field_index("timestamp")
                # Not as datetimes, which do not have all of Kafka's years.
                plain = batch.set_column(at, "timestamp", batch.column(at).cast(pa.int64()))
                yield from map(_from_row, plain.to_pylist())
            return
        # Not by blocks: fastavro goes back to a block's start, and what S3 sends cannot be rewound.
        yield from map(_from_row, cast("Iterable[Mapping[str, Any]]", fastavro.reader(content)))


def _from_row(row: Mapping[str, Any]) -> Record:
    return Record(
        row["offset"],
        _milliseconds(row["timestamp"]),
        row["timestamp_type"],
        row["key"],
        row["value"],
        tuple((header["key"], header["value"]) for header in row["headers"]),
    )


def _milliseconds(moment: dt.datetime | int | None) -> int | None:
    if moment is None:
        return None
    milliseconds = moment if isinstance(moment, int) else (moment - _EPOCH) // dt.timedelta(milliseconds=1)
    return None if milliseconds == NO_TIMESTAMP else milliseconds


class TopicDirectory:
    """A topic directory. Nothing in it is ever removed.

    Args:
        root: its folder.

    Raises:
        ConfigException: there is no such directory.
    """

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise ConfigException(f"'{root}' is no directory")
        self._root = root

    def __str__(self) -> str:
        return f"the topic directory {self._root}"

    def records(self, partition: TopicPartition, end: int) -> Iterator[Record]:
        folder = self._root / f"topic={partition.topic}" / f"partition={partition.partition}"
        for path in sorted(folder.glob("*.parquet"), key=_first_offset):
            yield from (record for record in _read(path, partition) if record.offset < end)

    def why_gone(self, partition: TopicPartition, offset: int) -> str:  # noqa: ARG002 - as for other originals
        """Nothing explains a record that is not there."""
        return ""


def _read(path: Path, partition: TopicPartition) -> Iterator[Record]:
    with pq.ParquetFile(path) as file:
        columns = [name for name in file.schema_arrow.names if name in RECORD_COLUMNS]
        for batch in file.iter_batches(columns=columns):
            for record in SinkRecords(partition, _as_records(batch)):
                headers = tuple((header.key, header.value) for header in record.headers)
                yield Record(
                    record.offset, record.timestamp, record.timestamp_type, record.key, record.value, headers
                )


def _first_offset(path: Path) -> int:
    with pq.ParquetFile(path) as file:
        index = file.schema_arrow.names.index("offset")
        groups = [file.metadata.row_group(i).column(index) for i in range(file.num_row_groups)]
        offsets = [group.statistics.min for group in groups if group.statistics]
        return min(offsets, default=-1)


def _as_records(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns in the types that tasks see."""
    arrays = [batch.column(name).cast(RECORD_COLUMNS[name], safe=False) for name in batch.schema.names]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
