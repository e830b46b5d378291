"""Comparing an archive with the topic directory it was made from, record for record."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from connectors.s3_archiver.client import S3, Location
from connectors.s3_archiver.config import S3ArchiverConfig
from connectors.s3_archiver.verify import PartitionReport, Report
from sinksdk import ConfigException, SinkRecords, TopicPartition
from sinksdk.records import NO_TIMESTAMP, RECORD_COLUMNS

_MOST_NAMED: Final = 5
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class _Record(NamedTuple):
    """What must be the same on both sides."""

    offset: int
    timestamp: int | None
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def compare(config: S3ArchiverConfig, s3: S3, directory: Path, report: Report) -> None:
    """Add to a report what differs from a topic directory (``topic=T/partition=P/*.parquet``).

    Every record of the directory below a partition's commit must be archived, as it is. Both sides are
    read in order and in bounded memory.

    Raises:
        ConfigException: there is no such directory.
        S3Trouble: no answer.
        S3Error: refused.
    """
    if not directory.is_dir():
        message = f"'{directory}' is no directory"
        raise ConfigException(message)
    for found in report.partitions:
        if not found.problems:  # else it is known to differ
            _compare_partition(config, s3, directory, found)


def _compare_partition(config: S3ArchiverConfig, s3: S3, directory: Path, found: PartitionReport) -> None:
    archived = _archived(config, s3, found.partition)
    source = (r for r in _source(directory, found.partition) if r.offset < (found.committed or 0))
    differing = 0
    for problem in _differences(source, archived):
        differing += 1
        if differing <= _MOST_NAMED:
            found.problems.append(f"{found.partition}: {problem}")
    if differing > _MOST_NAMED:
        found.problems.append(f"{found.partition}: {differing - _MOST_NAMED} more records differ")
    elif not differing:
        found.notes.append(f"{found.partition}: every record is the same as in {directory}")


def _differences(source: Iterator[_Record], archived: Iterator[_Record]) -> Iterator[str]:
    """What differs, both sides being in order of offsets."""
    left, right = next(source, None), next(archived, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left.offset < right.offset):
            assert left is not None  # noqa: S101 - for the type checker: not both are None
            yield f"offset {left.offset} is in the topic directory and not in the archive"
            left = next(source, None)
        elif left is None or right.offset < left.offset:
            yield f"offset {right.offset} is in the archive and not in the topic directory"
            right = next(archived, None)
        else:
            fields = [name for name in left._fields if getattr(left, name) != getattr(right, name)]
            if fields:
                yield f"offset {left.offset} has another {', '.join(fields)} in the archive"
            left, right = next(source, None), next(archived, None)


def _archived(config: S3ArchiverConfig, s3: S3, partition: TopicPartition) -> Iterator[_Record]:
    layout, bucket = config.layout(), config.s3_bucket_name
    names = (layout.parse(item.key) for item in s3.list(bucket, layout.folder(partition.topic)))
    starts = sorted(name.start for name in names if name and name.partition == partition)
    for start in starts:
        with s3.read(Location(bucket, layout.file(partition, start))) as content:
            # Not by blocks: fastavro goes back to a block's start, and what S3 sends cannot be rewound.
            yield from map(_from_avro, cast("Iterable[Mapping[str, Any]]", fastavro.reader(content)))


def _from_avro(row: Mapping[str, Any]) -> _Record:
    return _Record(
        row["offset"],
        _milliseconds(row["timestamp"]),
        row["timestamp_type"],
        row["key"],
        row["value"],
        tuple((header["key"], header["value"]) for header in row["headers"]),
    )


def _milliseconds(moment: dt.datetime | None) -> int | None:
    if moment is None:
        return None
    milliseconds = (moment - _EPOCH) // dt.timedelta(milliseconds=1)
    return None if milliseconds == NO_TIMESTAMP else milliseconds


def _source(directory: Path, partition: TopicPartition) -> Iterator[_Record]:
    folder = directory / f"topic={partition.topic}" / f"partition={partition.partition}"
    for path in sorted(folder.glob("*.parquet"), key=_first_offset):
        with pq.ParquetFile(path) as file:
            columns = [name for name in file.schema_arrow.names if name in RECORD_COLUMNS]
            for batch in file.iter_batches(columns=columns):
                for record in SinkRecords(partition, _as_records(batch)):
                    headers = tuple((header.key, header.value) for header in record.headers)
                    yield _Record(
                        record.offset,
                        record.timestamp,
                        record.timestamp_type,
                        record.key,
                        record.value,
                        headers,
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
