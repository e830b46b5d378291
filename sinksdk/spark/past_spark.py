"""Columns that a query only hands on: they go past Spark, through a file that both workers of a task open.

The worker that sinks makes the file, without a name: it ends with the process, however that ends. The worker
that reads writes batches into it, and again where they have been taken. Spark gets rows of few columns, which
say where their batch is in place of their partition.

Rows of a batch for which there is no room carry all that goes past Spark, packed into one column. Neither
worker waits for the other: Spark hands rows on by the thousand, so a query that drops most of them would wait
for ever.
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

_SIZE: Final = 256 * 1024 * 1024
"""Of the file, in bytes: what has been read and not yet taken, at most."""
_FIRST: Final = 4096  # where the first batch begins
_UNIT: Final = 64  # bytes that a place counts
_MOST: Final = 255  # batches in the file: one byte says how many have been taken
_MOST_AT_ONCE: Final = 16 * 1024 * 1024  # bytes of what is given, as Spark's batches have
_OPEN_FILES: Final = Path("/proc/self/fd")
_COPY: Final = np.iinfo(np.int32).min
"""The partition's number of a row that only counts for Spark, and is dropped behind it."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What a query does with the columns of the records.

    Args:
        unread: no expression reads them.
        passed: those that are returned as they were read.
        most: bytes of what is packed into a row, where Spark counts rows; None: Spark sizes them.
    """

    unread: frozenset[str] = frozenset()
    passed: frozenset[str] = frozenset()
    most: int | None = None

    @property
    def beside(self) -> tuple[str, ...]:
        """Those in the file; none where a row cannot say where its batch is."""
        needed = {"partition", "offset"} <= self.passed and "partition" in self.unread
        return tuple(name for name in RECORD_COLUMNS if name in self.passed & self.unread) if needed else ()

    @property
    def carrier(self) -> str | None:
        """The one that has the others packed in it, in rows whose batch is not in the file."""
        return next((name for name in ("value", "key") if name in self.beside), None)

    @property
    def packed(self) -> tuple[str, ...]:
        """Those that the carrier has."""
        return tuple(name for name in ("topic", *self.beside) if name in self.unread and name != "offset")

    @property
    def through(self) -> tuple[str, ...]:
        """Those that Spark is given; it needs no others."""
        every = ("topic", "partition", *RECORD_COLUMNS)
        if not self.beside:
            return every
        by_themselves = {"partition", "offset", self.carrier} if self.carrier else self.passed
        return tuple(name for name in every if name in by_themselves or name not in self.unread)

    @property
    def needed(self) -> tuple[str, ...]:
        """Those of a record that are read at all."""
        return tuple(name for name in RECORD_COLUMNS if name in {*self.through, *self.beside})

    def pack(self, columns: Sequence[pa.Array]) -> pa.BinaryArray:
        """The columns that :attr:`packed` names, as the one that carries them."""
        return packed(pa.RecordBatch.from_arrays(list(columns), names=list(self.packed)))

    def counted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows, each packed one that is too large followed by copies of it that carry nothing.

        Spark keeps a row's copies where it keeps the row, since they are alike in all that is read. So its
        batches end by their number of rows, and none has more than :attr:`most` bytes for each.
        """
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
    """The worker that sinks.

    Where no file can be made, or be opened by others, all comes through Spark.

    Args:
        link: gets the name under which the other worker opens the file.
    """

    def __init__(self, link: Path, columns: Columns) -> None:
        self._columns = columns
        self._place = 0
        self._batch: pa.RecordBatch | None = None
        self._file = -1
        """Descriptor of the file; below zero if there is none."""
        if not _OPEN_FILES.is_dir():
            return
        with suppress(OSError):
            with tempfile.TemporaryFile(dir=link.parent, buffering=0) as file:
                file.write(bytes(1))  # none has been taken
                self._file = os.dup(file.fileno())
            link.symlink_to(_OPEN_FILES.parent.with_name(str(os.getpid())) / f"fd/{self._file}")

    def close(self) -> None:
        """Nothing is read any more: the file goes, when the other worker has closed it."""
        self._batch = None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def received(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows as Spark gives them, with all their columns.

        Raises:
            ConnectException: an offset is not in the batch that its row names.
        """
        for rows_given in rows:
            batch, partitions = rows_given, rows_given.column("partition")
            if not batch.num_rows:
                continue
            if partitions.null_count or batch.column("offset").null_count:
                yield batch  # they are refused later on
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
            # Not mapped into memory: pages that both workers share would count as this one's.
            size = int.from_bytes(os.pread(self._file, _UNIT, place)[:8], "little")
            with pa.ipc.open_stream(os.pread(self._file, size, place + _UNIT)) as stream:
                self._place, self._batch = place, stream.read_next_batch()
            # All before it have been taken: rows stay in their order.
            number = int(self._batch.schema.metadata[b"number"])
            os.pwrite(self._file, bytes([number % (_MOST + 1)]), 0)
        return self._batch

    def _whole(self, rows: pa.RecordBatch, kept: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        said = kept.schema.metadata
        topic, partition = said[b"topic"].decode(), int(said[b"partition"])
        offsets = np.from_dlpack(kept.column("offset"))
        step = max(_MOST_AT_ONCE // (kept.nbytes // kept.num_rows + 1), 1)
        for begin in range(0, rows.num_rows, step):
            piece = rows.slice(begin, step)
            wanted = np.from_dlpack(piece.column("offset"))
            places = np.minimum(np.searchsorted(offsets, wanted), len(offsets) - 1)
            if (offsets[places] != wanted).any():
                raise ConnectException(
                    f"{topic}-{partition}: the transform returns offsets that are not those of their rows "
                    f"(about {wanted[0]})"
                )
            count, first = piece.num_rows, int(places[0])
            # A slice copies nothing, and holds all of the batch for as long as a sink holds the slice.
            is_slice = 2 * count >= kept.num_rows and (np.diff(places) == 1).all()
            taken = kept.slice(first, count) if is_slice else kept.take(pa.array(places))
            columns = {name: piece.column(name) for name in piece.schema.names}
            columns |= {name: pa.nulls(count, RECORD_COLUMNS[name]) for name in self._columns.beside}
            columns |= {name: taken.column(name) for name in taken.schema.names}
            columns["topic"] = pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array([topic]))
            columns["partition"] = pa.repeat(pa.scalar(partition, pa.int32()), count)
            yield pa.RecordBatch.from_pydict(columns)


class Sender:
    """The worker that reads."""

    def __init__(self, file: FileIO, columns: Columns) -> None:
        self._file = file
        self._columns = columns
        self._next = 0
        self._there: deque[tuple[int, int]] = deque()
        """Begin and end of the batches that may not have been taken."""

    @classmethod
    def to(cls, link: Path, columns: Columns) -> Self | None:
        """None if there is no file that can be opened; it is made when the other worker begins."""
        with suppress(OSError):
            return cls(FileIO(link, "r+"), columns)
        return None

    def close(self) -> None:
        """The other worker still has the file."""
        self._file.close()

    def send(self, records: SinkRecords) -> int | None:
        """Write a batch; the partition's number of its rows, or None if there is no room."""
        names = [name for name in records.arrow.schema.names if name in {"offset", *self._columns.beside}]
        topic, partition = records.partition
        said = {"topic": topic, "partition": str(partition), "number": str(self._next)}
        batch = records.arrow.select(names).replace_schema_metadata(said)
        # Its size, the batch as a stream, and that one's end.
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
        self._there.append((place, place + most))
        self._next += 1
        return -(place // _UNIT)

    def _room(self, size: int) -> int | None:
        first = self._next - len(self._there)
        taken = (os.pread(self._file.fileno(), 1, 0)[0] - first) % (_MOST + 1)
        if taken <= len(self._there):
            for _ in range(taken):
                self._there.popleft()
        if len(self._there) >= _MOST:
            return None
        # As far in front as it fits: the file stays as small as it can, and its pages are used again.
        place = _FIRST
        for begin, end in sorted(self._there):
            if place + size <= begin:
                break
            place = end
        return place if place + size <= _SIZE else None


class _Whole:
    """Writes all of what it is given; a file may take less at once."""

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self.closed = False

    def write(self, data: bytes) -> int:
        left = memoryview(data)
        while left:
            left = left[self._file.write(left) :]
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """The file stays open."""
        self.closed = True
