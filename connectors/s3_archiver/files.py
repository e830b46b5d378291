"""One Avro file of one topic partition, from its first record to the token of its upload."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import pyarrow as pa

from sinksdk import Token, TopicPartition
from sinksdk.connectors.s3_archiver.client import S3, Location
from sinksdk.connectors.s3_archiver.codecs import BytesLike
from sinksdk.connectors.s3_archiver.formats import FileContent, Rows, format_of
from sinksdk.connectors.s3_archiver.layout import Archived, FileHeader
from sinksdk.connectors.s3_archiver.part import Beside, PartPool, in_a_thread
from sinksdk.connectors.s3_archiver.upload import Upload

if TYPE_CHECKING:
    from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig


MIN_ROWS: Final = 10_000
"""Rows of a batch that is worth encoding by itself, which costs 0.3 ms whatever the rows where the compiled
loop is missing, and a tenth of that where it is there."""

MAX_BYTES: Final = 16 * 1024 * 1024
"""Bytes that are held, and that a batch handed out has, at most."""


class BatchCoalescer:
    """Turns batches of one topic partition, of any size, into ones of a size that is good to encode.

    Rows stay in order and none is changed. A batch that is big enough is passed on uncopied.

    Args:
        min_rows: rows that are collected before they are passed on.
        max_bytes: bytes of memory that what is collected holds at most; a larger batch is cut in half,
            without a copy, until its parts are not larger (or one row).
    """

    def __init__(self, min_rows: int = MIN_ROWS, max_bytes: int = MAX_BYTES) -> None:
        self._min_rows = min_rows
        self._max_bytes = max_bytes
        self._held: list[pa.RecordBatch] = []
        self._held_rows = 0
        self._held_bytes = 0

    @property
    def rows(self) -> int:
        """Number of rows collected and not passed on yet."""
        return self._held_rows

    def add(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Take a batch, and return those that are ready now: none, one or several."""
        if not batch.num_rows:
            return []
        size = batch.get_total_buffer_size()  # what it keeps in memory; a slice, all it is a slice of
        if batch.num_rows >= self._min_rows or size >= self._max_bytes:
            return [*self.flush(), *self._cut(batch)]
        ready = [] if self._goes_with_held(batch, size) else self.flush()
        self._held.append(batch)
        self._held_rows += batch.num_rows
        self._held_bytes += size
        return [*ready, *self.flush()] if self._held_rows >= self._min_rows else ready

    def flush(self) -> list[pa.RecordBatch]:
        """Return the collected records as one batch, or nothing."""
        held, self._held, self._held_rows, self._held_bytes = self._held, [], 0, 0
        return [_concatenated(held)] if held else []

    def _goes_with_held(self, batch: pa.RecordBatch, size: int) -> bool:
        if not self._held:
            return True
        return self._held_bytes + size <= self._max_bytes and batch.schema == self._held[0].schema

    def _cut(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        if batch.num_rows <= 1 or batch.nbytes <= self._max_bytes:
            return [batch]
        middle = batch.num_rows // 2
        return [*self._cut(batch.slice(0, middle)), *self._cut(batch.slice(middle))]


def _concatenated(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole


_CHECKS_PER_FILE: Final = 16
_LEAST_CHECKED: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Grain:
    """How much is collected before it is passed on: speed against nothing but memory.

    Args:
        rows: small batches are collected up to so many rows before they are encoded.
        block_bytes: bytes of a block before compression; None for the format's own.
    """

    rows: int = MIN_ROWS
    block_bytes: int | None = None


class ArchiveFile:
    """A file that records are added to, then sealed, then sent.

    :meth:`take` and :meth:`seal` return the pieces to write; consume them at once and to their end.

    Args:
        start: offset of its first record.
        before: what the partition's archive consists of without it.
        due: when the schedule ends it, in seconds since the epoch.
    """

    def __init__(
        self,
        *,
        start: int,
        before: Archived,
        due: float,
        upload: Upload,
        content: FileContent[Any],
        encode: Callable[[pa.RecordBatch], Rows],
        coalescer: BatchCoalescer,
    ) -> None:
        self.start = start
        self.end = start
        self.due = due
        self.records = 0
        self.upload = upload
        self._before = before
        self._content = content
        self._encode = encode
        self._coalescer = coalescer
        for piece in content.header():
            upload.write(piece)

    @property
    def archived(self) -> Archived:
        """What the partition's archive consists of with it."""
        return self._before.with_file(self.records, self.end)

    @property
    def token(self) -> Token:
        """Its upload's token, which describes the file."""
        token = self.upload.token
        before = [self._before.files, self._before.records, self._before.end]
        data = {"start": self.start, "end": self.end, "records": self.records, "before": before}
        return Token(token.id, {**token.data, **data})

    def take(self, batch: pa.RecordBatch) -> Iterator[BytesLike]:
        """Add records (at least one); the pieces are what is worth writing by now."""
        self.records += batch.num_rows
        self.end = batch.column("offset")[-1].as_py() + 1
        return self._encoded(self._coalescer.add(batch))

    def seal(self) -> Iterator[BytesLike]:
        """The last pieces. Nothing may be added any more."""
        yield from self._encoded(self._coalescer.flush())
        yield from self._content.finish()

    def _encoded(self, batches: Iterable[pa.RecordBatch]) -> Iterator[BytesLike]:
        for batch in batches:
            yield from self._content.append(self._encode(batch))


class FileFactory:
    """Begins files as the configuration wants them.

    Args:
        generation: number of the generation that writes.
        beside: sends parts while others are filled.
    """

    def __init__(
        self,
        config: S3ArchiverConfig,
        s3: S3,
        generation: int,
        grain: Grain | None = None,
        beside: Beside = in_a_thread,
    ) -> None:
        self._grain = grain or Grain()
        self._format = format_of(config, block_bytes=self._grain.block_bytes)
        self._config = config
        self._s3 = s3
        self._generation = generation
        self._layout = config.layout()
        self._policy = config.policy()
        self._pool = PartPool(config.s3_part_size, beside)

    @property
    def part_size(self) -> int:
        """Bytes of a full part."""
        return self._config.s3_part_size

    def begin(self, partition: TopicPartition, start: int, before: Archived, now: float) -> ArchiveFile:
        """A new file, in memory only.

        Args:
            start: offset of its first record.
            before: what the partition's archive consists of so far.
            now: seconds since the epoch.
        """
        config = self._config
        location = Location(config.s3_bucket_name, self._layout.file(partition, start))
        header = FileHeader(partition, start, config.name, self._generation, before)
        return ArchiveFile(
            start=start,
            before=before,
            due=self._policy.due_at(now),
            upload=Upload(self._s3, location, self._pool, uuid.uuid4().hex, self._object_metadata()),
            content=self._format.begin(header, location.key, None),
            encode=lambda batch: self._format.encode(partition, batch).rows,
            coalescer=BatchCoalescer(self._grain.rows, self.encoded_at_once),
        )

    def is_full(self, file: ArchiveFile) -> bool:
        """Whether count, size or S3's limit of parts ends the file."""
        limit = self._config.flush_bytes
        return (
            file.records >= self._config.flush_size
            or (limit != -1 and file.upload.size >= limit)
            or file.upload.is_at_limit
        )

    def room(self, file: ArchiveFile, batch: pa.RecordBatch) -> int:
        """Number of a batch's records to add before the next check of :meth:`is_full`; at least one."""
        room = self._config.flush_size - file.records
        if self._config.flush_bytes != -1 and batch.nbytes:
            room = min(room, batch.num_rows * self.encoded_at_once // batch.nbytes)
        return max(room, 1)

    @property
    def encoded_at_once(self) -> int:
        """Bytes of records that are encoded together: few enough to keep to ``flush.bytes``."""
        if self._config.flush_bytes == -1:
            return MAX_BYTES
        return min(max(self._config.flush_bytes // _CHECKS_PER_FILE, _LEAST_CHECKED), MAX_BYTES)

    def _object_metadata(self) -> dict[str, str]:
        """S3 metadata: ASCII only, fixed when the upload begins."""
        return {"sinksdk-connector": quote(self._config.name), "sinksdk-generation": str(self._generation)}
