"""Compare an archive with its source, record for record, a batch at a time."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sinksdk import ConfigException, TopicPartition
from sinksdk.connectors.s3_archiver.formats.columns import Flags
from sinksdk.connectors.s3_archiver.s3.client import S3
from sinksdk.connectors.s3_archiver.verify.check import Found, PartitionReport, Report, list_files
from sinksdk.connectors.s3_archiver.verify.inspection import kept_parquet, open_parquet
from sinksdk.connectors.s3_archiver.verify.reading import RECORDS, AvroFile, decoded, normalized
from sinksdk.records import RECORD_COLUMNS

_MOST_NAMED: Final = 5
_ROWS: Final = 8192


class Original(Protocol):
    """The source of an archive; ``str()`` is its name in messages."""

    def batches(self, partition: TopicPartition, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the records below an offset, in order, as batches of ``RECORDS`` with at least one row."""

    def removal_cause(self, partition: TopicPartition, offset: int) -> str:
        """Return why a record may have been removed from the source; empty if nothing explains it."""


def compare(s3: S3, original: Original, report: Report) -> None:
    """Add to a report how the archive differs from its source."""
    for found in report.partitions:
        if found.problems:
            continue
        if any(not run.content.startswith("whole records") for run in found.file_runs):
            found.notes.append(
                f"{found.partition}: not compared with {original}: some of its files hold values without "
                f"offsets"
            )
            continue
        files = list_files(s3, report.places, [found.partition.topic]).files.get(found.partition, ())
        # Every record below the commit must be archived unchanged. Records that the source has removed
        # since, and those before the connector's start offset, are counted, but are no difference.
        comparison = _Comparison(original, found)
        source = _Rows(original.batches(found.partition, found.committed or 0))
        archived = _Rows(_archived(s3, files))
        while source.is_more or archived.is_more:
            reach = min(rows.last for rows in (source, archived) if rows.is_more)
            comparison.rows(source.until(reach), archived.until(reach))
        comparison.close()


class _Rows:
    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._batch = next(batches, None)

    @property
    def is_more(self) -> bool:
        return self._batch is not None

    @property
    def last(self) -> int:
        assert self._batch is not None  # noqa: S101 - callers check is_more
        last: int = self._batch.column("offset")[-1].as_py()
        return last

    def until(self, offset: int) -> pa.RecordBatch:
        """Take the rows up to an offset, at most :attr:`last`."""
        batch = self._batch
        if batch is None:
            return _NOTHING
        count = int(np.searchsorted(batch.column("offset").to_numpy(), offset, side="right"))
        rest = batch.slice(count)
        self._batch = rest if len(rest) else next(self._batches, None)
        found: pa.RecordBatch = batch.slice(0, count)
        return found


_NOTHING: Final = pa.RecordBatch.from_pylist([], schema=RECORDS)


class _Comparison:
    def __init__(self, original: Original, found: PartitionReport) -> None:
        self._original = original
        self._found = found
        self._same = 0
        self._differing = 0
        self._before = 0
        self._gone: Counter[str] = Counter()

    def rows(self, source: pa.RecordBatch, archived: pa.RecordBatch) -> None:
        archived_offsets, source_offsets = (
            archived.column("offset").to_numpy(),
            source.column("offset").to_numpy(),
        )
        if len(archived_offsets) == len(source_offsets) and (archived_offsets == source_offsets).all():
            self._both(source, archived)
            return
        both, rows_of_source, rows_of_archive = np.intersect1d(
            source_offsets, archived_offsets, return_indices=True
        )
        self._both(source.take(pa.array(rows_of_source)), archived.take(pa.array(rows_of_archive)))
        findings = [
            *((offset, self._only_in_source) for offset in np.setdiff1d(source_offsets, both).tolist()),
            *((offset, self._only_in_archive) for offset in np.setdiff1d(archived_offsets, both).tolist()),
        ]
        for offset, note in sorted(findings, key=lambda finding: finding[0]):
            note(offset)

    def _both(self, source: pa.RecordBatch, archived: pa.RecordBatch) -> None:
        differing = {name: ~_are_equal(source.column(name), archived.column(name)) for name in _COMPARED}
        rows: list[int] = np.flatnonzero(np.logical_or.reduce(list(differing.values()))).tolist()
        self._same += len(source) - len(rows)
        for row in rows:
            fields = ", ".join(name for name, are_other in differing.items() if are_other[row])
            offset = source.column("offset")[row].as_py()
            self._differs(f"offset {offset} has a different {fields} in the archive")

    def _only_in_source(self, offset: int) -> None:
        if any(left_out.start <= offset < left_out.end for left_out in self._found.left_out):
            self._before += 1
        else:
            self._differs(f"offset {offset} is in {self._original} but not in the archive")

    def _only_in_archive(self, offset: int) -> None:
        if why := self._original.removal_cause(self._found.partition, offset):
            self._gone[why] += 1
        else:
            self._differs(f"offset {offset} is in the archive but not in {self._original}")

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
                f"connector started at a later offset"
            )
        if not self._differing:
            notes.append(f"{partition}: {self._same:,} records are the same as in {self._original}")

    def _differs(self, how: str) -> None:
        self._differing += 1
        if self._differing <= _MOST_NAMED:
            self._found.problems.append(f"{self._found.partition}: {how}")


_COMPARED: Final = [name for name in RECORDS.names if name != "offset"]


def _are_equal(one: pa.Array, other: pa.Array) -> Flags:
    """Compare row by row; null equals null."""
    if one.equals(other):
        return np.ones(len(one), np.bool_)
    if not pa.types.is_list(one.type):
        equal = pc.fill_null(pc.equal(one, other), False)
        found: Flags = pc.or_(equal, pc.and_(one.is_null(), other.is_null())).to_numpy(zero_copy_only=False)
        return found
    return np.array([a == b for a, b in zip(one.to_pylist(), other.to_pylist(), strict=True)])


def _archived(s3: S3, files: Sequence[Found]) -> Iterator[pa.RecordBatch]:
    waiting = deque(sorted(files, key=lambda found: found.name.start))
    # Files of one commit interleave; no more than these are open.
    opened: list[_Rows] = []
    while waiting or opened:
        if not opened:
            opened = _begun(s3, waiting.popleft())
            continue
        reach = min(rows.last for rows in opened)
        if waiting and waiting[0].name.start <= reach:
            opened += _begun(s3, waiting.popleft())
            continue
        if len(opened) == 1:
            batch = opened[0].until(reach)
        else:
            pieces = pa.Table.from_batches([rows.until(reach) for rows in opened]).combine_chunks()
            (batch,) = pieces.take(pc.sort_indices(pieces.column("offset"))).combine_chunks().to_batches()
        yield batch
        opened = [rows for rows in opened if rows.is_more]


def _begun(s3: S3, found: Found) -> list[_Rows]:
    rows = _Rows(_records(s3, found))
    return [rows] if rows.is_more else []


def _records(s3: S3, found: Found) -> Iterator[pa.RecordBatch]:
    with s3.read(found.location) as content, kept_parquet() as kept:
        if found.name.extension == ".avro":
            for block in AvroFile(content).blocks():
                yield decoded(block, found.name.partition)
            return
        for batch in open_parquet(content, kept).iter_batches(_ROWS):
            yield normalized(batch, is_archived=True)


class TopicDirectory:
    """A topic directory; nothing is ever removed from it."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise ConfigException(f"'{root}' is not a directory")
        self._root = root

    def __str__(self) -> str:
        return f"the topic directory {self._root}"

    def batches(self, partition: TopicPartition, end: int) -> Iterator[pa.RecordBatch]:
        folder = self._root / f"topic={partition.topic}" / f"partition={partition.partition}"
        for path in sorted(folder.glob("*.parquet"), key=_first_offset):
            with pq.ParquetFile(path) as file:
                columns = [name for name in file.schema_arrow.names if name in RECORD_COLUMNS]
                for batch in file.iter_batches(_ROWS, columns=columns):
                    kept = normalized(_as_records(batch), is_archived=False)
                    kept = kept.filter(pc.less(kept.column("offset"), end))
                    if len(kept):
                        yield kept

    def removal_cause(self, partition: TopicPartition, offset: int) -> str:  # noqa: ARG002 - a signature of Original
        return ""


def _first_offset(path: Path) -> int:
    with pq.ParquetFile(path) as file:
        index = file.schema_arrow.names.index("offset")
        groups = [file.metadata.row_group(i).column(index) for i in range(file.num_row_groups)]
        offsets = [group.statistics.min for group in groups if group.statistics]
        return min(offsets, default=-1)


def _as_records(batch: pa.RecordBatch) -> pa.RecordBatch:
    arrays = [batch.column(name).cast(RECORD_COLUMNS[name], safe=False) for name in batch.schema.names]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
