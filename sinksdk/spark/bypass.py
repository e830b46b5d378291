"""Passes columns that a query does not read around Spark, in a file that both Python workers of a task open.

A filter on the offset takes 1.10 instead of 2.26 CPU seconds per million records of 200 B: 1.05 instead of
2.15 times what Spark and the archiver need separately (1 KB: 0.96 and 1.41; ``benchmarks.transforms``).
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sinksdk.errors import ConnectException
from sinksdk.records import RECORD_COLUMNS, SinkRecords
from sinksdk.spark.packed_rows import packed, unpacked

# Limit of the bytes in the file, which are those of batches that were written and not yet taken.
_SIZE: Final = 256 * 1024 * 1024
_FIRST: Final = 4096  # position of the first batch in the file
_UNIT: Final = 64  # bytes; each position in the file is a multiple
_MOST: Final = 255  # batches in the file: one byte counts the batches taken
_MOST_AT_ONCE: Final = 16 * 1024 * 1024  # bytes of a returned batch; Spark's batches have the same limit
_OPEN_FILES: Final = Path("/proc/self/fd")
# Partition number of an empty copy, which only makes Spark end a batch earlier; the receiver drops it.
_COPY: Final = np.iinfo(np.int32).min


@dataclass(frozen=True, slots=True)
class Columns:
    """A query's use of columns: no expression reads ``unread``, the result has ``passed`` unchanged."""

    unread: frozenset[str] = frozenset()
    passed: frozenset[str] = frozenset()
    # Packed bytes per row if Spark limits batches by rows; None if it limits them by bytes.
    most: int | None = None

    @property
    def bypassing(self) -> tuple[str, ...]:
        # A row's partition number is replaced by the position of its batch, so no expression may read the
        # number.
        needed = {"partition", "offset"} <= self.passed and "partition" in self.unread
        return tuple(name for name in RECORD_COLUMNS if name in self.passed & self.unread) if needed else ()

    @property
    def carrier(self) -> str | None:
        """The column with the bypassing columns packed in it, in rows whose batch is not in the file."""
        return next((name for name in ("value", "key") if name in self.bypassing), None)

    @property
    def packed(self) -> tuple[str, ...]:
        return tuple(name for name in ("topic", *self.bypassing) if name in self.unread and name != "offset")

    @property
    def in_rows(self) -> tuple[str, ...]:
        every = ("topic", "partition", *RECORD_COLUMNS)
        if not self.bypassing:
            return every
        by_themselves = {"partition", "offset", self.carrier} if self.carrier else self.passed
        return tuple(name for name in every if name in by_themselves or name not in self.unread)

    @property
    def needed(self) -> tuple[str, ...]:
        return tuple(name for name in RECORD_COLUMNS if name in {*self.in_rows, *self.bypassing})

    def pack(self, columns: Sequence[pa.Array]) -> pa.BinaryArray:
        return packed(pa.RecordBatch.from_arrays(list(columns), names=list(self.packed)))

    def counted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        # Spark limits the rows of a batch, but not its bytes. So a row of many bytes gets copies without
        # content, and a batch with large rows reaches the limit with fewer of them. Copies stay next to their
        # row, because all columns that Spark's operators read are the same in the row and its copies.
        if self.most is None or self.carrier is None:
            return rows
        sizes = np.asarray(pc.fill_null(pc.binary_length(rows.column(self.carrier)), 0))
        times = np.maximum(sizes - 1, 0) // self.most + 1
        if (times == 1).all():
            return rows
        places = np.repeat(np.arange(rows.num_rows), times)
        is_copy = np.append(False, places[1:] == places[:-1])
        copied = {
            name: rows.column(name).take(pa.array(places))
            for name in rows.schema.names
            if name != self.carrier
        }
        copied["partition"] = pc.if_else(pa.array(is_copy), pa.scalar(_COPY, pa.int32()), copied["partition"])
        copied[self.carrier] = rows.column(self.carrier).take(pa.array(places, mask=is_copy))
        return pa.RecordBatch.from_pydict({name: copied[name] for name in rows.schema.names})


class Receiver:
    def __init__(self, link: Path, columns: Columns) -> None:
        self._columns = columns
        self._place = 0
        self._batch: pa.RecordBatch | None = None
        self._file = -1  # -1: there is no file
        # The file has no name, so that it ends with this process; the reading worker opens it by a link. If
        # it cannot be created, all columns come through Spark.
        if not _OPEN_FILES.is_dir():
            return
        with suppress(OSError):
            with tempfile.TemporaryFile(dir=link.parent, buffering=0) as file:
                file.write(bytes(1))  # the number of batches taken
                self._file = os.dup(file.fileno())
            link.symlink_to(_OPEN_FILES.parent.with_name(str(os.getpid())) / f"fd/{self._file}")

    def close(self) -> None:
        self._batch = None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def received(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows_given in rows:
            batch, partitions = rows_given, rows_given.column("partition")
            if not batch.num_rows:
                continue
            if partitions.null_count or batch.column("offset").null_count:
                yield batch  # a later check refuses the batch
                continue
            numbers = np.from_dlpack(partitions)
            if (counted := numbers == _COPY).any():
                batch, numbers = batch.filter(pa.array(~counted)), numbers[~counted]
                if not batch.num_rows:
                    continue
            borders = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), batch.num_rows]
            for begin, end in itertools.pairwise(borders):
                piece, place = batch.slice(begin, end - begin), -int(numbers[begin]) * _UNIT
                if place <= 0:
                    yield self._unpacked(piece)
                else:
                    yield from self._whole(piece, self._at(place))

    def _unpacked(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        if self._columns.carrier is not None:
            columns |= unpacked(rows.column(self._columns.carrier).cast(pa.binary()), self._columns.packed)
        return pa.RecordBatch.from_pydict(columns)

    def _at(self, place: int) -> pa.RecordBatch:
        if self._batch is None or place != self._place:
            # The file is not mapped into memory, because shared pages would count as this worker's memory.
            size = int.from_bytes(os.pread(self._file, _UNIT, place)[:8], "little")
            with pa.ipc.open_stream(os.pread(self._file, size, place + _UNIT)) as stream:
                self._place, self._batch = place, stream.read_next_batch()
            # Rows stay in order, so the receiver has taken all earlier batches.
            number = int(self._batch.schema.metadata[b"number"])
            os.pwrite(self._file, bytes([number % (_MOST + 1)]), 0)
        return self._batch

    def _whole(self, rows: pa.RecordBatch, kept: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        metadata = kept.schema.metadata
        topic, partition = metadata[b"topic"].decode(), int(metadata[b"partition"])
        offsets = np.from_dlpack(kept.column("offset"))
        step = max(_MOST_AT_ONCE // (kept.nbytes // kept.num_rows + 1), 1)
        for begin in range(0, rows.num_rows, step):
            piece = rows.slice(begin, step)
            wanted = np.from_dlpack(piece.column("offset"))
            places = np.minimum(np.searchsorted(offsets, wanted), len(offsets) - 1)
            if (offsets[places] != wanted).any():
                raise ConnectException(
                    f"{topic}-{partition}: the transform returns rows with changed offsets, near offset "
                    f"{wanted[0]}: keep topic, partition and offset unchanged"
                )
            count, first = piece.num_rows, int(places[0])
            # A slice copies nothing, but keeps the whole batch in memory as long as a sink keeps the slice.
            is_slice = 2 * count >= kept.num_rows and (np.diff(places) == 1).all()
            taken = kept.slice(first, count) if is_slice else kept.take(pa.array(places))
            columns = {name: piece.column(name) for name in piece.schema.names}
            columns |= {name: pa.nulls(count, RECORD_COLUMNS[name]) for name in self._columns.bypassing}
            columns |= {name: taken.column(name) for name in taken.schema.names}
            columns["topic"] = pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array([topic]))
            columns["partition"] = pa.repeat(pa.scalar(partition, pa.int32()), count)
            yield pa.RecordBatch.from_pydict(columns)


class Sender:
    def __init__(self, file: FileIO, columns: Columns) -> None:
        self._file = file
        self._columns = columns
        self._next = 0
        # Start and end of batches that may not have been taken.
        self._batches: deque[tuple[int, int]] = deque()

    @classmethod
    def to(cls, link: Path, columns: Columns) -> Self | None:
        with suppress(OSError):
            return cls(FileIO(link, "r+"), columns)
        return None  # the sinking worker creates the file when it starts

    def close(self) -> None:
        self._file.close()

    def send(self, records: SinkRecords) -> int | None:
        """Write a batch; return the number for its rows' partition column, or None if the file is full."""
        names = [name for name in records.arrow.schema.names if name in {"offset", *self._columns.bypassing}]
        topic, partition = records.partition
        metadata = {"topic": topic, "partition": str(partition), "number": str(self._next)}
        batch = records.arrow.select(names).replace_schema_metadata(metadata)
        # The bytes of the length, the batch as a stream, and the end of the stream.
        most = _UNIT + batch.schema.serialize().size + pa.ipc.get_record_batch_size(batch) + _UNIT
        most += -most % _UNIT
        place = self._room(most)
        if place is None:
            return None
        self._file.seek(place + _UNIT)
        try:
            file = pa.PythonFile(_Whole(self._file), "w")
            with file, pa.ipc.new_stream(file, batch.schema) as stream:
                stream.write_batch(batch)
            size = self._file.tell() - place - _UNIT
            os.pwrite(self._file.fileno(), size.to_bytes(8, "little"), place)
        except OSError:  # the disk is full
            return None
        self._batches.append((place, place + most))
        self._next += 1
        return -(place // _UNIT)

    def _room(self, size: int) -> int | None:
        first = self._next - len(self._batches)
        taken = (os.pread(self._file.fileno(), 1, 0)[0] - first) % (_MOST + 1)
        if taken <= len(self._batches):
            for _ in range(taken):
                self._batches.popleft()
        if len(self._batches) >= _MOST:
            return None
        # The first gap that is large enough is used, so that pages are reused. If there is none, rows go
        # through Spark: waiting might never end, because Spark passes rows on by the thousand, and a query
        # may drop most of them.
        place = _FIRST
        for begin, end in sorted(self._batches):
            if place + size <= begin:
                break
            place = end
        return place if place + size <= _SIZE else None


class _Whole:
    """Writes all data; a raw file may write less at once."""

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self.closed = False

    def write(self, data: bytes) -> int:
        left = memoryview(data)
        while left:
            left = left[self._file.write(left) :]
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True
