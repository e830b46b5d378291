"""The files of one topic partition: which is open, which are sealed, sent, and may be committed.

A batch is taken whole or not at all. While it is taken, a request that fails passingly is only
remembered: the bytes wait in memory, and the *next* put makes the request again before it takes
anything. So what was accepted and what is in the files is always the same, a batch put again is
never written twice, and memory grows by one batch at most.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from sinksdk import OffsetAndMetadata, RetriableException, SinkRecords, Token, TopicPartition
from sinksdk.connectors.s3_archiver.codecs import BytesLike
from sinksdk.connectors.s3_archiver.files import ArchiveFile, FileFactory
from sinksdk.connectors.s3_archiver.layout import Archived
from sinksdk.connectors.s3_archiver.upload import Upload

log = logging.getLogger(__name__)

Begin = Callable[[TopicPartition, Sequence[Upload]], None]
"""Creates uploads at S3 and notes their tokens durably, all in one write."""


class PartitionWriter:
    """Writes one topic partition's records into files.

    Args:
        committed: the partition's last commit.
        clock: seconds since the epoch.
    """

    # Eleven attributes: the files in their three states, and what went wrong with a request.

    def __init__(
        self,
        partition: TopicPartition,
        factory: FileFactory,
        begin: Begin,
        committed: OffsetAndMetadata | None,
        clock: Callable[[], float],
    ) -> None:
        self._partition = partition
        self._factory = factory
        self._begin = begin
        self._clock = clock
        self._next_offset = committed.offset if committed else 0
        self._published = Archived.of(committed)
        self._open: ArchiveFile | None = None
        self._sealed: list[ArchiveFile] = []  # complete, but not all is sent
        self._finished: list[ArchiveFile] = []  # all sent, not published
        self._trouble: RetriableException | None = None
        self._is_broken = False
        self.has_refused = False
        """Whether the last batch was not taken, since a request still fails passingly."""

    @property
    def is_troubled(self) -> bool:
        """Whether the last request failed passingly, and was not made again since."""
        return self._trouble is not None

    def put(self, records: SinkRecords) -> None:
        """Take a batch.

        Raises:
            RetriableException: nothing of this batch was taken, since an earlier request still fails.
            ConnectException: S3 refused; the partition cannot continue.
        """
        with self._breaking():
            self._notice()
            self._retry()
            self._seal_if_due()
            self._take(self._unseen(records.arrow))

    def prepare(self, *, is_closing: bool) -> list[Upload]:
        """End the open file if it is due, or if this is closing, and create its upload.

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
            uploads = self._unnoted()
            for upload in uploads:
                upload.create()
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
                file = self._sealed[0]
                file.upload.finish()
                self._finished.append(self._sealed.pop(0))

    def committable(self, accepted: OffsetAndMetadata) -> OffsetAndMetadata | None:
        """Offsets that are safe to commit: finished files, and all accepted records if no file is open.

        Args:
            accepted: offset after the last record the engine counts as put.
        """
        ready = [file for file in self._finished if file.end <= accepted.offset]
        is_all = not (self._open or self._sealed or self._is_broken or len(ready) < len(self._finished))
        if not ready and not is_all:
            return None
        archived = ready[-1].archived if ready else self._published
        return OffsetAndMetadata(
            accepted.offset if is_all else ready[-1].end,
            archived.to_text(),
            tuple(file.token for file in ready),
        )

    def published(self, tokens: Iterable[Token]) -> None:
        """These files are visible: forget them."""
        ids = {token.id for token in tokens}
        waiting = []
        for file in self._finished:
            if file.upload.token.id in ids:
                self._published = file.archived
            else:
                waiting.append(file)
        self._finished = waiting

    def wait(self) -> None:
        """Return when none of its parts is on its way."""
        for file in self._unfinished():
            file.upload.wait()

    def abandon(self) -> None:
        """No ``put`` or send follows."""
        for file in self._unfinished():
            file.upload.abandon()

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

    def _unseen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that were not taken before."""
        offsets = batch.column("offset")
        if not batch.num_rows or offsets[0].as_py() >= self._next_offset:
            return batch
        seen = int(np.searchsorted(np.from_dlpack(offsets), self._next_offset))
        return batch.slice(seen)

    def _take(self, batch: pa.RecordBatch) -> None:
        while batch.num_rows:
            file = self._file(batch)
            # A commit cannot divide the records of one offset, so no file does.
            room = SinkRecords(self._partition, batch).whole_offsets(self._factory.room(file, batch))
            rows, batch = batch.slice(0, room), batch.slice(room)
            self._write(file, file.take(rows))
            self._next_offset = file.end
            if self._factory.is_full(file):
                self._seal()
                self._attempt()

    def _file(self, batch: pa.RecordBatch) -> ArchiveFile:
        """The open file, or one that begins with the batch."""
        if self._open is None:
            last = next(iter(self._sealed[-1:] or self._finished[-1:]), None)
            before = last.archived if last else self._published
            start = batch.column("offset")[0].as_py()
            self._open = self._factory.begin(self._partition, start, before, self._clock())
        return self._open

    def _seal_if_due(self) -> None:
        if self._open and self._open.due <= self._clock():
            self._seal()

    def _seal(self) -> None:
        """End the open file. What cannot be sent now waits in memory."""
        file = self._open
        if file is not None:
            self._write(file, file.seal())
            self._open = None
            self._sealed.append(file)

    def _unnoted(self) -> list[Upload]:
        return [file.upload for file in self._sealed if not file.upload.is_noted]

    def _unfinished(self) -> list[ArchiveFile]:
        return [*self._sealed, self._open] if self._open else self._sealed

    def _write(self, file: ArchiveFile, pieces: Iterable[BytesLike]) -> None:
        for piece in pieces:
            file.upload.write(piece)
            if file.upload.has_full_part:
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
        for file in self._unfinished():
            with self._remembering():
                file.upload.check()

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
            self._push()
            self._trouble = None
        self.has_refused = False

    def _push(self) -> None:
        if self._is_worth_sending():
            self.send()
        if self._open and (self._open.upload.has_full_part or self._open.upload.has_failed_part):
            if not self._open.upload.is_noted:
                self._begin(self._partition, [self._open.upload])
            self._open.upload.send()

    def _is_worth_sending(self) -> bool:
        """Small files wait for one another (or for the commit), so that one note serves several."""
        return any(file.upload.is_noted or file.upload.has_full_part for file in self._sealed) or (
            sum(file.upload.size for file in self._sealed) >= self._factory.part_size // 4
        )
