"""The files of one topic partition: which are open, which are sealed, sent, and may be committed.

A batch is taken whole or not at all. While it is taken, a request that fails passingly is only
remembered: the bytes wait in memory, and the *next* put makes the request again before it takes
anything. So what was accepted and what is in the files is always the same, a batch put again is
never written twice, and memory grows by one batch at most.
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
from sinksdk.connectors.s3_archiver.files.group import Codes, FileGroup, Longs, SortedRows, cuts
from sinksdk.connectors.s3_archiver.formats.base import Rows
from sinksdk.connectors.s3_archiver.formats.columns import as_mask, flag_column, long_column
from sinksdk.connectors.s3_archiver.formats.views import has_value
from sinksdk.connectors.s3_archiver.partitioners.folders import Split
from sinksdk.connectors.s3_archiver.s3.upload import Upload

log = logging.getLogger(__name__)

Begin = Callable[[TopicPartition, Sequence[Upload]], None]
"""Creates uploads at S3 and notes their tokens durably, all in one write."""

Report = Callable[[SinkRecord, DataException], object]
"""Takes a record that cannot be archived; raises if that is not tolerated."""

_SECONDS_HELD: Final = 60


def _intolerable(_: SinkRecord, error: DataException) -> None:
    raise error


class PartitionWriter:
    """Writes one topic partition's records into groups of files.

    Args:
        committed: the partition's last commit.
        clock: seconds since the epoch.
        report: takes bad records.
        reports_nulls: whether records without a value that are left out are reported as well.
    """

    # Many attributes, in three rooms: what was taken, groups in three states, what went wrong with a request.

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
        archived = Archived.of(committed).going_on_in(factory.where)
        self._skip = Skip.of_text(archived.skip).beyond(self._next_offset)
        self._published = archived.with_skip(self._skip.to_text())
        self._coalescer = factory.coalescer()
        self._held_since = 0.0  # when the coalescer's first row was put
        self._unwritten: deque[pa.RecordBatch] = deque()  # taken, but in no file yet
        self._converted: deque[SinkRecords] = deque()  # in no file yet, and have other columns than were read
        self._due = math.inf  # when the schedule ends what is open
        self._open: FileGroup | None = None
        self._sealed: list[FileGroup] = []  # complete, but not all is sent
        self._finished: list[FileGroup] = []  # all sent, not published
        self._trouble: RetriableException | None = None
        self._is_broken = False
        self.has_refused = False
        """Whether the last batch was not taken, since a request still fails passingly."""
        self._files_held = 0

    @property
    def is_troubled(self) -> bool:
        """Whether the last request failed passingly, and was not made again since."""
        return self._trouble is not None

    def put(self, records: SinkRecords) -> None:
        """Take a batch.

        Raises:
            RetriableException: nothing of this batch was taken, since an earlier request still fails, or
                what it needs is not known yet.
            ConnectException: S3 refused, or a record is bad and that is not tolerated; the partition cannot
                continue.
        """
        with self._breaking():
            self._notice()
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
        """End the open group if it is due, or if this is closing, and create its uploads.

        Returns:
            Uploads to note before :meth:`send`.

        Raises:
            RetriableException: call again, nothing is lost.
        """
        if self._is_broken:
            return []
        with self._breaking():
            self._notice()
            if is_closing:
                self._seal()
            else:
                self._seal_if_due()
                self._write_held()
            uploads = self._unnoted()
            self._factory.together([upload.create for upload in uploads])
            return uploads

    def send(self) -> None:
        """Send everything that is sealed. After a RetriableException: call again, nothing is lost."""
        if self._is_broken:
            return
        with self._breaking():
            unnoted = self._unnoted()
            if unnoted:
                self._begin(self._partition, unnoted)
            while self._sealed:
                uploads = [each.upload for each in self._sealed[0].objects]
                for upload in uploads:
                    upload.send()
                self._factory.together([upload.finish for upload in uploads])
                self._finished.append(self._sealed.pop(0))

    def committable(self, accepted: OffsetAndMetadata) -> OffsetAndMetadata | None:
        """Offsets that are safe to commit: finished groups, and all accepted records if none is open.

        Args:
            accepted: offset after the last record the engine counts as put.
        """
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
        """These files are visible: forget them."""
        ids = {token.id for token in tokens}
        waiting = []
        for group in self._finished:
            if group.objects[0].upload.token.id in ids:  # a group is committed, and published, as a whole
                self._published = group.archived
            else:
                waiting.append(group)
        self._finished = waiting

    def wait(self) -> None:
        """Return when none of its parts is on its way."""
        for upload in self._unfinished():
            upload.wait()

    def abandon(self) -> None:
        """No ``put`` or send follows."""
        for upload in self._unfinished():
            upload.abandon()

    # -- memory ----------------------------------------------------------------------------------

    @property
    def held(self) -> int:
        """Bytes of memory that its data takes."""
        waiting: int = sum(batch.nbytes for batch in self._unwritten)
        as_read = sum(map(_bytes_beside, self._converted))
        return self._files_held + self._coalescer.nbytes + waiting + as_read

    @property
    def sendable(self) -> int:
        """Bytes of the largest part that could be sent before it is full; 0 if there is none."""
        if self._open is None or self._is_broken or self._trouble is not None:
            return 0
        return max((each.upload.sendable for each in self._open.objects), default=0)

    def send_largest(self) -> None:
        """Send the largest part that is not full yet, and remember it if that fails passingly."""
        group = self._open
        if group is None or self._trouble is not None:
            return
        with self._breaking(), self._remembering():
            upload = max((each.upload for each in group.objects), key=lambda upload: upload.sendable)
            self._begin_open(group, [upload])
            upload.send_early()
        self._measure()

    def release(self) -> None:
        """Seal the open group and send it, and remember it if that fails passingly."""
        if self._is_broken or self._trouble is not None:
            return
        with self._breaking(), self._remembering():
            self._seal()
            self.send()
        self._measure()

    def _measure(self) -> None:
        groups = [*self._sealed, self._open] if self._open else self._sealed
        self._files_held = sum(group.held for group in groups)

    @contextmanager
    def _breaking(self) -> Iterator[None]:
        """Any other error leaves a batch half taken or a file half made: only finished files count then."""
        try:
            yield
        except RetriableException:
            raise
        except BaseException:
            self._is_broken = True
            raise

    # -- taking records --------------------------------------------------------------------------

    @property
    def _is_open(self) -> bool:
        return self._open is not None or self._coalescer.rows > 0 or bool(self._unwritten)

    def _unseen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that were not taken before."""
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
            self._write_held()  # folders of the wall clock: what was put in one minute belongs to it
        if not self._coalescer.rows:
            if not self._is_open:
                self._due = self._factory.due_at(now)
            self._held_since = now
        self._next_offset = batch.column("offset")[-1].as_py() + 1
        self._unwritten.extend(self._coalescer.add(batch))
        if self._unwritten:
            with self._remembering():
                self._write_all()
            self._measure()

    def _write_held(self) -> None:
        self._unwritten.extend(self._coalescer.flush())
        self._write_all()

    def _write_all(self) -> None:
        """What cannot be encoded now (a registry does not answer) waits like what cannot be sent."""
        while self._unwritten:
            self._write(self._unwritten[0])
            written = self._unwritten.popleft().column("offset")[-1].as_py()
            while self._converted and self._converted[0].next_offset <= written + 1:
                self._converted.popleft()

    def _write(self, batch: pa.RecordBatch) -> None:
        """Encode a batch once, give each file its rows, and end what is full."""
        numbers = numbers_of(_offsets(batch))
        if self._skip:
            is_new: Flags = ~np.logical_and.reduce(self._not_to_write(batch, numbers))
            batch, numbers = batch.filter(flag_column(is_new)), numbers[is_new]
        while batch.num_rows:
            rows, bad = self._by_file(batch, numbers)
            if not bad:
                borders = cuts(rows, self._open, self._factory.limits)
                order = rows.order(borders)
                in_order = batch if order is None else self._looked_at(batch).take(long_column(order))
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
        """Which file each row goes to, and the rows that are bad."""
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
        if without_folder:  # what the format says of them counts more: without a value, it may leave them out
            some = batch.take(long_column(without_folder))
            by_format = self._factory.format.encode(self._partition, some).bad
            bad.update((without_folder[place], error) for place, error in by_format.items())
        if len(self._factory.views) > 1 and (self._skip or self._factory.tombstones is not None):
            keys, codes = _by_views(keys, codes, self._not_to_write(batch, numbers))
        offsets = _offsets(batch)
        return SortedRows(keys, codes if len(keys) > 1 else None, offsets, numbers, split.timestamps), bad

    def _not_to_write(self, batch: pa.RecordBatch, numbers: Longs) -> Flags:
        """Which rows are visible already, or have no value to write: a line for each view."""
        views = [view.name for view in self._factory.views]
        unwritten = self._skip.holds(views, _offsets(batch), numbers)
        if self._factory.tombstones is not None:
            unwritten[0] |= _is_tombstone(batch)
        return unwritten

    def _without(
        self, batch: pa.RecordBatch, numbers: Longs, bad: Mapping[int, DataException | None]
    ) -> tuple[pa.RecordBatch, Longs]:
        """The others, when bad rows are reported, and records without a value where that is configured."""
        for row, why in sorted(bad.items()):
            error = why or self._left_out(batch.column("offset")[row])
            if error is not None:
                self._report(self._as_read(batch, row, int(numbers[row])), error)
        if len(bad) == batch.num_rows:
            return batch.slice(0, 0), numbers[:0]
        good = np.delete(np.arange(batch.num_rows), list(bad))
        return batch.take(long_column(good)), numbers[good]

    def _left_out(self, offset: pa.Scalar) -> DataException | None:
        """The report of a record without a value that ``behavior.on.null.values=ignore`` leaves out."""
        if not self._reports_nulls:
            return None
        error = DataException(
            f"{self._partition}: the record at offset {offset} has no value, and 'behavior.on.null.values' "
            f"ignore leaves it out; 'report.null.values.to.dlq' false does so without a report"
        )
        error.is_expected = True
        return error

    def _as_read(self, batch: pa.RecordBatch, row: int, number: int) -> SinkRecord:
        """A record as it was read, which is what dead letters hold.

        Its key and value are not made objects where they are typed: not all moments have one in Python.
        """
        offset = batch.column("offset")[row].as_py()
        for records in self._converted:
            if offset < records.next_offset and records.read is not None:
                batch, row = records.read, int(np.searchsorted(records.offsets, offset)) + number
                break
        record = SinkRecord(*self._partition, offset=offset, read_from=(batch, row))
        kinds = {field.type for field in batch.schema if field.name in ("key", "value")}
        return record.as_read() if kinds <= {pa.binary()} else record

    def _looked_at(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that the format needs: to sort the others would cost most."""
        wanted = self._factory.format.columns
        if wanted is None:
            return batch
        return batch.select([name for name in wanted if name in batch.schema.names])

    def _distribute(
        self, rows: SortedRows, encoded: Rows, order: Longs | None, borders: Sequence[int]
    ) -> None:
        """Give each file its rows; a group ends before each border."""
        start = 0
        for stop in [*borders, len(rows)]:
            if stop > start:
                group = self._group(int(rows.offsets[start]))
                for file, its_rows, last in group.take(rows, encoded, order, start, stop):
                    self._append(file.append(its_rows, last))
            if stop < len(rows):
                self._end_group()
                self._attempt()
            start = stop
        if self._open is not None:
            if self._is_full(self._open):
                self._end_group()
                self._attempt()
            else:
                self._coalescer.min_rows = self._factory.rows_at_once(len(self._open.files))

    def _group(self, start: int) -> FileGroup:
        """The open group, or one that begins with this offset."""
        if self._open is None:
            last = next(iter(self._sealed[-1:] or self._finished[-1:]), None)
            before = last.archived if last else self._published
            self._due = self._factory.due_at(self._held_since)
            self._open = FileGroup(self._partition, self._factory, before, start)
        return self._open

    def _is_full(self, group: FileGroup) -> bool:
        """Whether count, size, runs or S3's limit of parts ends the group."""
        limits = self._factory.limits
        return (
            (limits.records is not None and group.records >= limits.records)
            or (limits.bytes is not None and any(each.upload.size >= limits.bytes for each in group.objects))
            or group.runs.count >= limits.runs
            or any(each.upload.is_at_limit for each in group.objects)
        )

    def _seal_if_due(self) -> None:
        if self._is_open and self._due <= self._clock():
            self._seal()

    def _seal(self) -> None:
        """End what was put so far. What cannot be sent now waits in memory."""
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

    def _unnoted(self) -> list[Upload]:
        return [each.upload for group in self._sealed for each in group.objects if not each.upload.is_noted]

    def _unfinished(self) -> Iterator[Upload]:
        for group in [*self._sealed, self._open] if self._open else self._sealed:
            for each in group.objects:
                yield each.upload

    def _append(self, pieces: Written) -> None:
        for upload, piece in pieces:
            upload.write(piece)
            if upload.has_full_part:
                self._attempt()

    # -- requests --------------------------------------------------------------------------------

    def _attempt(self) -> None:
        """Make the requests that are due, unless one failed already: then the next put makes them."""
        if self._trouble is not None:
            return
        with self._remembering():
            self._push()

    def _notice(self) -> None:
        """A part that failed on its way meanwhile is trouble like any other."""
        for upload in self._unfinished():
            if upload.is_sending:
                with self._remembering():
                    upload.check()

    @contextmanager
    def _remembering(self) -> Iterator[None]:
        try:
            yield
        except RetriableException as error:
            log.info("%s: %s; the data waits in memory", self._partition, error)
            self._trouble = error

    def _retry(self) -> None:
        if self._trouble is not None:
            self.has_refused = True
            self._write_all()
            self._push()
            self._trouble = None
        self.has_refused = False

    def _push(self) -> None:
        if self._is_worth_sending():
            self.send()
        if self._open is not None:
            uploads = [each.upload for each in self._open.objects]
            due = [upload for upload in uploads if upload.has_full_part or upload.has_failed_part]
            self._begin_open(self._open, due)
            for upload in due:
                upload.send()

    def _begin_open(self, group: FileGroup, due: Sequence[Upload]) -> None:
        """Note uploads of open files, with them those that are soon due: a note is a write to the store."""
        if all(upload.is_noted for upload in due):
            return
        soon = self._factory.part_size // 2
        uploads = [each.upload for each in group.objects]
        self._begin(
            self._partition,
            [upload for upload in uploads if not upload.is_noted and (upload in due or upload.size >= soon)],
        )

    def _is_worth_sending(self) -> bool:
        """Small files wait for one another (or for the commit), so that one note serves several."""
        uploads = [each.upload for group in self._sealed for each in group.objects]
        return any(upload.is_noted or upload.has_full_part for upload in uploads) or (
            sum(upload.size for upload in uploads) >= self._factory.part_size // 4
        )


def _offsets(batch: pa.RecordBatch) -> Longs:
    return np.from_dlpack(batch.column("offset")).view(np.int64)


def _is_tombstone(batch: pa.RecordBatch) -> Flags:
    return ~as_mask(has_value(batch))


def _with_tombstones(split: Split, is_tombstone: Flags, path: str) -> Split:
    """With the folder of records without a value, which are not looked into.

    They have the time of the record before them, so that they end nothing.
    """
    if not is_tombstone.any():
        return split
    codes, timestamps = split.codes.copy(), split.timestamps
    codes[is_tombstone] = len(split.paths)
    if timestamps is not None:
        rows = np.arange(len(codes))
        before = np.maximum.accumulate(np.where(is_tombstone, -1, rows))
        if (before >= 0).any():
            timestamps = timestamps[np.where(before < 0, np.argmin(is_tombstone), before)]
    bad = {row: error for row, error in split.bad.items() if not is_tombstone[row]}
    return Split([*split.paths, path], codes, timestamps, bad)


def _by_views(keys: Sequence[FileKey], codes: Codes, unwritten: Flags) -> tuple[list[FileKey], Codes]:
    """Files apart for rows of which not all views are to be written.

    Args:
        unwritten: a line for each view.
    """
    which, of_rows = np.unique(unwritten, axis=1, return_inverse=True)
    written = [tuple(np.flatnonzero(~column).tolist()) for column in which.T]
    files = [
        key if len(views) == len(unwritten) else key._replace(views=views)
        for key in keys
        for views in written
    ]
    return files, codes * np.int32(len(written)) + of_rows.reshape(-1).astype(np.int32)


def _bytes_beside(records: SinkRecords) -> int:
    """Bytes of what was read that the converted records do not hold anyway, as JSON texts do."""
    if records.read is None:
        return 0
    held = {buffer.address for column in records.arrow.columns for buffer in column.buffers() if buffer}
    columns = [column for column in records.read.columns if _data_of(column) not in held]
    return sum(column.nbytes for column in columns)


def _data_of(column: pa.Array) -> int:
    buffers = [buffer for buffer in column.buffers() if buffer]
    return buffers[-1].address if buffers else 0
