"""The files of one topic partition: open, sealed, sent, and ready to commit.

A batch is accepted completely or not at all. After a transient error its bytes stay in memory, and the next
put first repeats the failed request: no batch is written twice, and memory grows by one batch at most.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np
import pyarrow as pa

from sinksdk import (
    DataException,
    OffsetAndMetadata,
    RetriableException,
    SinkRecord,
    SinkRecords,
    Token,
    TopicPartition,
)
from sinksdk.connectors.s3_archiver.archive.header import Archived
from sinksdk.connectors.s3_archiver.archive.ranges import Flags, Skip, numbers_of
from sinksdk.connectors.s3_archiver.files.file import FileFactory, FileKey, Written
from sinksdk.connectors.s3_archiver.files.group import FileGroup, SortedRows, cuts
from sinksdk.connectors.s3_archiver.formats.base import Rows
from sinksdk.connectors.s3_archiver.formats.columns import Codes, Longs, as_mask, flag_column, long_column
from sinksdk.connectors.s3_archiver.formats.views import has_value
from sinksdk.connectors.s3_archiver.partitioners.folders import Split
from sinksdk.connectors.s3_archiver.s3.upload import Upload

log = logging.getLogger(__name__)

# Creates uploads at S3 and stores their tokens, all in one write.
Begin = Callable[[TopicPartition, Sequence[Upload]], None]

# Receives a record that cannot be archived; raises if that is not tolerated.
Report = Callable[[SinkRecord, DataException], object]

_SECONDS_HELD: Final = 60


def _intolerable(_: SinkRecord, error: DataException) -> None:
    raise error


class PartitionWriter:
    def __init__(
        self,
        partition: TopicPartition,
        factory: FileFactory,
        begin: Begin,
        committed: OffsetAndMetadata | None,
        clock: Callable[[], float],
        *,
        report: Report = _intolerable,
        reports_nulls: bool = False,
    ) -> None:
        self._partition = partition
        self._reports_nulls = reports_nulls
        self._factory = factory
        self._begin = begin
        self._clock = clock
        self._report = report
        self._next_offset = committed.offset if committed else 0
        archived = Archived.of(committed).continued_in(factory.where)
        self._skip = Skip.of_text(archived.skip).beyond(self._next_offset)
        self._published = archived.with_skip(self._skip.to_text())
        self._coalescer = factory.coalescer()
        self._held_since = 0.0  # time at which the coalescer's first row was put
        self._unwritten: deque[pa.RecordBatch] = deque()  # accepted batches that are in no file yet
        # Batches whose columns are not those that were read, and whose rows are in no file yet.
        self._converted: deque[SinkRecords] = deque()
        self._due = math.inf  # time at which the schedule ends the open files
        self._open: FileGroup | None = None
        self._sealed: list[FileGroup] = []  # groups that are complete but not completely sent
        self._finished: list[FileGroup] = []  # groups that are sent but not published
        self._transient_error: RetriableException | None = None
        self._is_broken = False
        self.has_refused_batch = False  # an earlier request still fails, so the last batch was refused
        self._files_held = 0

    @property
    def has_failed_request(self) -> bool:
        return self._transient_error is not None

    def put(self, records: SinkRecords) -> None:
        with self._breaking():
            self._check_parts_in_flight()
            self._retry()
            self._seal_if_due()
            unseen = self._unseen(records.arrow)
            self._factory.format.learn(unseen)
            self._factory.folders.learn(unseen)
            taken = self._factory.with_nulls(unseen)
            if records.read is not None:
                self._converted.append(records)
            elif taken is not unseen:
                self._converted.append(SinkRecords(self._partition, taken, read=unseen))
            self._take(taken)

    def prepare(self, *, is_closing: bool) -> list[Upload]:
        """Create the uploads of complete files, while closing of all files."""
        if self._is_broken:
            return []
        with self._breaking():
            self._check_parts_in_flight()
            if is_closing:
                self._seal()
            else:
                self._seal_if_due()
                self._write_held()
            uploads = self._unprepared()
            self._factory.together([upload.create for upload in uploads])
            return uploads  # the caller stores their tokens before send()

    def send(self) -> None:
        if self._is_broken:
            return
        with self._breaking():
            unprepared = self._unprepared()
            if unprepared:
                self._begin(self._partition, unprepared)
            while self._sealed:
                uploads = self._sealed[0].uploads
                for upload in uploads:
                    upload.send()
                self._factory.together([upload.finish for upload in uploads])
                self._finished.append(self._sealed.pop(0))

    def committable(self, accepted: OffsetAndMetadata) -> OffsetAndMetadata | None:
        """Return the commit of the finished groups, or of all accepted records if no other file is open."""
        ready = [group for group in self._finished if group.end <= accepted.offset]
        is_all = not (self._is_open or self._sealed or self._is_broken or len(ready) < len(self._finished))
        if not ready and not is_all:
            return None
        archived = ready[-1].archived if ready else self._published
        offset = accepted.offset if is_all else ready[-1].end
        if self._skip:
            archived = archived.with_skip(self._skip.beyond(offset).to_text())
        return OffsetAndMetadata(
            offset,
            archived.to_text(),
            tuple(itertools.chain.from_iterable(group.tokens() for group in ready)),
        )

    def published(self, tokens: Iterable[Token]) -> None:
        ids = {token.id for token in tokens}
        waiting = []
        for group in self._finished:
            if group.uploads[0].token.id in ids:  # a group is committed and published only as a whole
                self._published = group.archived
            else:
                waiting.append(group)
        self._finished = waiting

    def wait(self) -> None:
        for upload in self._unfinished():
            upload.wait()

    def abandon(self) -> None:
        for upload in self._unfinished():
            upload.abandon()

    # -- memory ----------------------------------------------------------------------------------

    @property
    def held(self) -> int:
        waiting: int = sum(batch.nbytes for batch in self._unwritten)
        as_read = sum(map(_bytes_only_as_read, self._converted))
        return self._files_held + self._coalescer.nbytes + waiting + as_read

    @property
    def sendable(self) -> int:
        """Bytes of the largest part that S3 would take before it is full."""
        if self._open is None or self._is_broken or self._transient_error is not None:
            return 0
        return max((upload.sendable for upload in self._open.uploads), default=0)

    def send_largest(self) -> None:
        group = self._open
        if group is None or self._transient_error is not None:
            return
        with self._breaking(), self._deferring_transient():
            upload = max(group.uploads, key=lambda upload: upload.sendable)
            self._prepare_open(group, [upload])
            upload.send_early()
        self._measure()

    def release(self) -> None:
        if self._is_broken or self._transient_error is not None:
            return
        with self._breaking(), self._deferring_transient():
            self._seal()
            self.send()
        self._measure()

    def _measure(self) -> None:
        groups = [*self._sealed, self._open] if self._open else self._sealed
        self._files_held = sum(group.held for group in groups)

    @contextmanager
    def _breaking(self) -> Iterator[None]:
        # Any error that is not transient leaves a batch half accepted or a file half written: from then on
        # only finished files are committed.
        try:
            yield
        except RetriableException:
            raise
        except BaseException:
            self._is_broken = True
            raise

    # -- accepting records ------------------------------------------------------------------------

    @property
    def _is_open(self) -> bool:
        return self._open is not None or self._coalescer.rows > 0 or bool(self._unwritten)

    def _unseen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        offsets = batch.column("offset")
        if not batch.num_rows or offsets[0].as_py() >= self._next_offset:
            return batch
        seen = int(np.searchsorted(np.from_dlpack(offsets), self._next_offset))
        return batch.slice(seen)

    def _take(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        now = self._clock()
        if self._coalescer.rows and now // _SECONDS_HELD != self._held_since // _SECONDS_HELD:
            self._write_held()  # folders depend on the wall clock: records of one minute share a folder
        if not self._coalescer.rows:
            if not self._is_open:
                self._due = self._factory.due_at(now)
            self._held_since = now
        self._next_offset = batch.column("offset")[-1].as_py() + 1
        self._unwritten.extend(self._coalescer.add(batch))
        if self._unwritten:
            with self._deferring_transient():
                self._write_all()
            self._measure()

    def _write_held(self) -> None:
        self._unwritten.extend(self._coalescer.flush())
        self._write_all()

    def _write_all(self) -> None:
        # A batch that cannot be encoded while the registry is unavailable waits, like unsent bytes.
        while self._unwritten:
            self._write(self._unwritten[0])
            written = self._unwritten.popleft().column("offset")[-1].as_py()
            while self._converted and self._converted[0].next_offset <= written + 1:
                self._converted.popleft()

    def _write(self, batch: pa.RecordBatch) -> None:
        numbers = numbers_of(_offsets(batch))
        if self._skip:
            is_new: Flags = ~np.logical_and.reduce(self._not_to_write(batch, numbers))
            batch, numbers = batch.filter(flag_column(is_new)), numbers[is_new]
        while batch.num_rows:
            rows, bad = self._by_file(batch, numbers)
            if not bad:
                borders = cuts(rows, self._open, self._factory.limits)
                order = rows.order(borders)
                in_order = batch if order is None else self._encoded_columns(batch).take(long_column(order))
                encoded, bad = self._factory.format.encode(self._partition, in_order)
                if not bad:
                    self._distribute(rows, encoded, order, borders)
                    return
                if order is not None:
                    bad = {int(order[place]): error for place, error in bad.items()}
            batch, numbers = self._without(batch, numbers, bad)

    def _by_file(
        self, batch: pa.RecordBatch, numbers: Longs
    ) -> tuple[SortedRows, Mapping[int, DataException | None]]:
        split = self._factory.folders.split(self._partition, batch, self._held_since)
        if self._factory.tombstones is not None:
            split = _with_tombstones(split, _is_tombstone(batch), self._factory.tombstones)
        kinds = self._factory.format.kinds(self._partition, batch)
        codes, bad = split.codes, dict[int, DataException | None](split.bad)
        keys = [FileKey(path) for path in split.paths]
        if kinds is not None:
            keys = [FileKey(path, kind) for path in split.paths for kind in kinds.kinds]
            codes, bad = codes * np.int32(len(kinds.kinds)) + kinds.codes, {**bad, **kinds.bad}
        without_folder = [row for row in split.bad if kinds is None or row not in kinds.bad]
        if without_folder:  # the format decides first, because it may leave out records without a value
            some = batch.take(long_column(without_folder))
            by_format = self._factory.format.encode(self._partition, some).bad
            bad.update((without_folder[place], error) for place, error in by_format.items())
        if len(self._factory.views) > 1 and (self._skip or self._factory.tombstones is not None):
            keys, codes = _by_views(keys, codes, self._not_to_write(batch, numbers))
        offsets = _offsets(batch)
        return SortedRows(keys, codes if len(keys) > 1 else None, offsets, numbers, split.timestamps), bad

    def _not_to_write(self, batch: pa.RecordBatch, numbers: Longs) -> Flags:
        """Return for each view which rows are visible already, or have no value to write."""
        views = [view.name for view in self._factory.views]
        unwritten = self._skip.holds(views, _offsets(batch), numbers)
        if self._factory.tombstones is not None:
            unwritten[0] |= _is_tombstone(batch)
        return unwritten

    def _without(
        self, batch: pa.RecordBatch, numbers: Longs, bad: Mapping[int, DataException | None]
    ) -> tuple[pa.RecordBatch, Longs]:
        for row, why in sorted(bad.items()):
            error = why or self._left_out(batch.column("offset")[row])
            if error is not None:
                self._report(self._as_read(batch, row, int(numbers[row])), error)
        if len(bad) == batch.num_rows:
            return batch.slice(0, 0), numbers[:0]
        good = np.delete(np.arange(batch.num_rows), list(bad))
        return batch.take(long_column(good)), numbers[good]

    def _left_out(self, offset: pa.Scalar) -> DataException | None:
        if not self._reports_nulls:
            return None
        error = DataException(
            f"{self._partition}: the record at offset {offset} has no value, and 'behavior.on.null.values' "
            f"ignore leaves it out; set 'report.null.values.to.dlq' to false to leave such records out "
            f"without a report"
        )
        error.is_expected = True
        return error

    def _as_read(self, batch: pa.RecordBatch, row: int, number: int) -> SinkRecord:
        offset = batch.column("offset")[row].as_py()
        for records in self._converted:
            if offset < records.next_offset and records.read is not None:
                batch, row = records.read, int(np.searchsorted(records.offsets, offset)) + number
                break
        record = SinkRecord(*self._partition, offset=offset, read_from=(batch, row))
        # A typed key or value is not turned into an object, because Python cannot represent every timestamp.
        kinds = {field.type for field in batch.schema if field.name in ("key", "value")}
        return record.as_read() if kinds <= {pa.binary()} else record

    def _encoded_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        # Only the columns that the format needs are sorted, because sorting takes the most time.
        wanted = self._factory.format.columns
        if wanted is None:
            return batch
        return batch.select([name for name in wanted if name in batch.schema.names])

    def _distribute(
        self, rows: SortedRows, encoded: Rows, order: Longs | None, borders: Sequence[int]
    ) -> None:
        start = 0
        for stop in [*borders, len(rows)]:
            if stop > start:
                group = self._group(int(rows.offsets[start]))
                for file, its_rows, last in group.take(rows, encoded, order, start, stop):
                    self._append(file.append(its_rows, last))
            if stop < len(rows):
                self._end_group()
                self._send_due()
            start = stop
        if self._open is not None:
            if self._is_full(self._open):
                self._end_group()
                self._send_due()
            else:
                self._coalescer.min_rows = self._factory.rows_at_once(len(self._open.files))

    def _group(self, start: int) -> FileGroup:
        if self._open is None:
            last = next(iter(self._sealed[-1:] or self._finished[-1:]), None)
            before = last.archived if last else self._published
            self._due = self._factory.due_at(self._held_since)
            self._open = FileGroup(self._partition, self._factory, before, start)
        return self._open

    def _is_full(self, group: FileGroup) -> bool:
        limits = self._factory.limits
        return (
            (limits.records is not None and group.records >= limits.records)
            or (limits.bytes is not None and any(upload.size >= limits.bytes for upload in group.uploads))
            or group.runs.count >= limits.runs
            or any(upload.is_at_limit for upload in group.uploads)
        )

    def _seal_if_due(self) -> None:
        if self._is_open and self._due <= self._clock():
            self._seal()

    def _seal(self) -> None:
        self._write_held()
        self._end_group()

    def _end_group(self) -> None:
        group = self._open
        if group is not None:
            for file in group.files:
                self._append(file.end_content())
            if self._skip:
                group.skip = self._skip.beyond(group.end).to_text()
            self._open = None
            self._sealed.append(group)

    def _unprepared(self) -> list[Upload]:
        return [upload for group in self._sealed for upload in group.uploads if not upload.is_prepared]

    def _unfinished(self) -> Iterator[Upload]:
        for group in [*self._sealed, self._open] if self._open else self._sealed:
            yield from group.uploads

    def _append(self, pieces: Written) -> None:
        for upload, piece in pieces:
            upload.write(piece)
            if upload.has_full_part:
                self._send_due()

    # -- requests --------------------------------------------------------------------------------

    def _send_due(self) -> None:
        if self._transient_error is not None:
            return
        with self._deferring_transient():
            self._push()

    def _check_parts_in_flight(self) -> None:
        for upload in self._unfinished():
            if upload.is_sending:
                with self._deferring_transient():
                    upload.check()

    @contextmanager
    def _deferring_transient(self) -> Iterator[None]:
        try:
            yield
        except RetriableException as error:
            log.info("%s: %s; the data stays in memory until the request succeeds", self._partition, error)
            self._transient_error = error

    def _retry(self) -> None:
        if self._transient_error is not None:
            self.has_refused_batch = True
            self._write_all()
            self._push()
            self._transient_error = None
        self.has_refused_batch = False

    def _push(self) -> None:
        if self._is_worth_sending():
            self.send()
        if self._open is not None:
            due = [each for each in self._open.uploads if each.has_full_part or each.has_failed_part]
            self._prepare_open(self._open, due)
            for upload in due:
                upload.send()

    def _prepare_open(self, group: FileGroup, due: Sequence[Upload]) -> None:
        if all(upload.is_prepared for upload in due):
            return
        # Each preparation is a write to the store, so files that lack half a part are prepared along with it.
        soon = self._factory.part_size // 2
        uploads = [each for each in group.uploads if not each.is_prepared]
        self._begin(self._partition, [each for each in uploads if each in due or each.size >= soon])

    def _is_worth_sending(self) -> bool:
        # Small files wait for each other or for the commit, so that one write to the store prepares several.
        uploads = [upload for group in self._sealed for upload in group.uploads]
        return any(upload.is_prepared or upload.has_full_part for upload in uploads) or (
            sum(upload.size for upload in uploads) >= self._factory.part_size // 4
        )


def _offsets(batch: pa.RecordBatch) -> Longs:
    return np.from_dlpack(batch.column("offset")).view(np.int64)


def _is_tombstone(batch: pa.RecordBatch) -> Flags:
    return ~as_mask(has_value(batch))


def _with_tombstones(split: Split, is_tombstone: Flags, path: str) -> Split:
    """Put records without a value into the folder of tombstones, whose fields are not read."""
    if not is_tombstone.any():
        return split
    codes, timestamps = split.codes.copy(), split.timestamps
    codes[is_tombstone] = len(split.paths)
    if timestamps is not None:
        rows = np.arange(len(codes))
        # Tombstones get the timestamp of the record before them, so that they end no group.
        before = np.maximum.accumulate(np.where(is_tombstone, -1, rows))
        if (before >= 0).any():
            timestamps = timestamps[np.where(before < 0, np.argmin(is_tombstone), before)]
    bad = {row: error for row, error in split.bad.items() if not is_tombstone[row]}
    return Split([*split.paths, path], codes, timestamps, bad)


def _by_views(keys: Sequence[FileKey], codes: Codes, unwritten: Flags) -> tuple[list[FileKey], Codes]:
    """Put rows of which not all views are written into files of their own."""
    which, of_rows = np.unique(unwritten, axis=1, return_inverse=True)
    written = [tuple(np.flatnonzero(~column).tolist()) for column in which.T]
    files = [
        key if len(views) == len(unwritten) else key._replace(views=views)
        for key in keys
        for views in written
    ]
    return files, codes * np.int32(len(written)) + of_rows.reshape(-1).astype(np.int32)


def _bytes_only_as_read(records: SinkRecords) -> int:
    if records.read is None:
        return 0
    held = {buffer.address for column in records.arrow.columns for buffer in column.buffers() if buffer}
    columns = [column for column in records.read.columns if _data_of(column) not in held]
    return sum(column.nbytes for column in columns)


def _data_of(column: pa.Array) -> int:
    buffers = [buffer for buffer in column.buffers() if buffer]
    return buffers[-1].address if buffers else 0
