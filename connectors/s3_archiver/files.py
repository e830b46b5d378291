"""One Avro file of one topic partition, from its first record to the token of its upload."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import pyarrow as pa

from sinksdk import Token, TopicPartition
from sinksdk.connectors.s3_archiver.chain import Archived, FileHeader
from sinksdk.connectors.s3_archiver.client import S3, Location
from sinksdk.connectors.s3_archiver.coalesce import MAX_BYTES, MIN_ROWS, BatchCoalescer
from sinksdk.connectors.s3_archiver.codecs import BytesLike, codec
from sinksdk.connectors.s3_archiver.container import BLOCK_BYTES, ContainerWriter
from sinksdk.connectors.s3_archiver.encoder import RecordEncoder
from sinksdk.connectors.s3_archiver.part import Beside, PartPool, in_a_thread
from sinksdk.connectors.s3_archiver.schema import RECORD_SCHEMA, sync_marker
from sinksdk.connectors.s3_archiver.upload import Upload

if TYPE_CHECKING:
    from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig

_CHECKS_PER_FILE: Final = 16
_LEAST_CHECKED: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Grain:
    """How much is collected before it is passed on: speed against nothing but memory.

    Args:
        rows: small batches are collected up to so many rows before they are encoded.
        block_bytes: bytes of a block before compression.
    """

    rows: int = MIN_ROWS
    block_bytes: int = BLOCK_BYTES


class ArchiveFile:
    """A file that records are added to, then sealed, then sent.

    :meth:`take` and :meth:`seal` return the pieces to write; consume them at once and to their end.

    Args:
        start: offset of its first record.
        before: what the partition's archive consists of without it.
        due: when the schedule ends it, in seconds since the epoch.
        upload: where its bytes go.
        container: makes them.
        encoder: encodes its records.
        coalescer: collects small batches until they are worth encoding.
    """

    def __init__(
        self,
        *,
        start: int,
        before: Archived,
        due: float,
        upload: Upload,
        container: ContainerWriter,
        encoder: RecordEncoder,
        coalescer: BatchCoalescer,
    ) -> None:
        self.start = start
        self.end = start
        self.due = due
        self.records = 0
        self.upload = upload
        self._before = before
        self._container = container
        self._encoder = encoder
        self._coalescer = coalescer
        upload.write(container.header())

    @property
    def archived(self) -> Archived:
        """What the partition's archive consists of with it."""
        return self._before.with_file(self.records, self.end)

    @property
    def token(self) -> Token:
        """Its upload's token, which says what is in the file."""
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
        yield from self._container.finish()

    def _encoded(self, batches: Iterable[pa.RecordBatch]) -> Iterator[BytesLike]:
        for batch in batches:
            yield from self._container.append(self._encoder.encode(batch))


class FileFactory:
    """Begins files as the configuration wants them.

    Args:
        config: the connector's.
        s3: where files go.
        generation: number of the generation that writes.
        grain: how much is collected at a time.
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
            partition: whose records it will hold.
            start: offset of the first of them.
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
            container=ContainerWriter(
                RECORD_SCHEMA,
                codec(config.avro_codec, config.avro_codec_level),
                header.to_metadata(),
                sync_marker(location.key),
                self._grain.block_bytes,
            ),
            encoder=RecordEncoder(partition),
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
        """How many of a batch's records to add before :meth:`is_full` is asked again; at least one."""
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
        return {
            "sinksdk-connector": quote(self._config.name),
            "sinksdk-generation": str(self._generation),
        }
