"""The files of a topic partition, the batches and schemas that go into them, and their factory."""

from __future__ import annotations

import json
import logging
import math
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from sinksdk import TopicPartition
from sinksdk.connectors.s3_archiver.archive.header import Archived, FileHeader
from sinksdk.connectors.s3_archiver.archive.layout import FileName, Layout
from sinksdk.connectors.s3_archiver.files.settings import FileSettings, Limits
from sinksdk.connectors.s3_archiver.formats.avro_value import AvroValues
from sinksdk.connectors.s3_archiver.formats.base import FileContent, Format, Rows
from sinksdk.connectors.s3_archiver.formats.build import format_of
from sinksdk.connectors.s3_archiver.formats.codecs import BytesLike
from sinksdk.connectors.s3_archiver.formats.lines import RawBytes
from sinksdk.connectors.s3_archiver.formats.views import FormatOfViews, KindsOfViews, View, rows_of
from sinksdk.connectors.s3_archiver.partitioners.folders import Folders, folders_of
from sinksdk.connectors.s3_archiver.s3.client import S3, Location
from sinksdk.connectors.s3_archiver.s3.errors import NOT_IMPLEMENTED, S3Error
from sinksdk.connectors.s3_archiver.s3.part import PartPool
from sinksdk.connectors.s3_archiver.s3.requests import Beside, Together, in_a_thread, read_if_there, together
from sinksdk.connectors.s3_archiver.s3.upload import Upload

# Each batch costs 0.3 ms to encode without the compiled loop, and 0.03 ms with it.
MIN_ROWS: Final = 10_000

# Joining, sorting and encoding take several times as much memory: twice these bytes cost 60 MB more and saved
# no time.
MAX_BYTES: Final = 8 * 1024 * 1024


class BatchCoalescer:
    def __init__(self, min_rows: int = MIN_ROWS, max_bytes: int = MAX_BYTES) -> None:
        self.min_rows = min_rows
        self._max_bytes = max_bytes
        self._held: list[pa.RecordBatch] = []
        self.rows = 0
        self.nbytes = 0

    def add(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        if not batch.num_rows:
            return []
        # Memory that the batch keeps alive: for a slice, that of the whole batch.
        size = batch.get_total_buffer_size()
        if batch.num_rows >= self.min_rows or size >= self._max_bytes:
            return [*self.flush(), *self._cut(batch)]
        fits = self.nbytes + size <= self._max_bytes and self._held and batch.schema == self._held[0].schema
        ready = [] if fits else self.flush()
        self._held.append(batch)
        self.rows += batch.num_rows
        self.nbytes += size
        return [*ready, *self.flush()] if self.rows >= self.min_rows else ready

    def flush(self) -> list[pa.RecordBatch]:
        held, self._held, self.rows, self.nbytes = self._held, [], 0, 0
        return [_concatenated(held)] if held else []

    def _cut(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        if batch.num_rows <= 1 or batch.nbytes <= self._max_bytes:
            return [batch]
        middle = whole_offsets(batch, batch.num_rows // 2)
        if middle == batch.num_rows:
            return [batch]
        return [*self._cut(batch.slice(0, middle)), *self._cut(batch.slice(middle))]


def whole_offsets(batch: pa.RecordBatch, rows: int) -> int:
    """Return ``rows`` (at least 1), or more to include all rows of the last one's offset."""
    offsets, least = np.from_dlpack(batch.column("offset")), max(rows, 1)
    # Offsets that do not ascend do not come from the engine: then the requested number counts.
    return max(int(np.searchsorted(offsets, offsets[least - 1], side="right")), least)


def _concatenated(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole


_READ_BY_FORMATS: Final = {"": "value", "keys": "key"}  # columns that formats may hold as bytes, by view


_CHECKS_PER_FILE: Final = 16
_LEAST_CHECKED: Final = 64 * 1024
_FILES_PER_GRAIN: Final = 40
_MOST_GRAINS: Final = 8


@dataclass(frozen=True, slots=True)
class Grain:
    rows: int = MIN_ROWS  # small batches are collected until they have so many rows
    block_bytes: int | None = None  # bytes of a block before compression; None: the format's default


class FileKey(NamedTuple):
    """Properties that all records of a file share."""

    path: str  # folder below that of the topic
    kind: object = None  # rows with different kinds, such as schemas, go to different files
    views: tuple[int, ...] | None = None  # views to write; None: all


class FileObject(NamedTuple):
    """Values, records, keys or headers of a file, as one object."""

    number: int  # number of the view
    view: str
    content: FileContent[Any]
    upload: Upload


# The caller writes each piece before it requests the next one.
Written = Iterator[tuple[Upload, BytesLike]]


class ArchiveFile:
    def __init__(self, start: int, index: int, objects: Sequence[FileObject]) -> None:
        self.start = start
        self.end = start
        self.index = index
        self.records = 0
        self.objects = objects
        for each in objects:
            for piece in each.content.header():
                each.upload.write(piece)

    @property
    def held(self) -> int:
        return sum(each.content.buffered + each.upload.held for each in self.objects)

    @property
    def holds_values(self) -> bool:
        # The first view holds values or records, the others keys or headers.
        return not self.objects[0].number

    def append(self, rows: Rows, last: int) -> Written:
        self.records += len(rows)
        self.end = last + 1
        for each in self.objects:
            for piece in each.content.append(rows_of(rows, each.number)):
                yield each.upload, piece

    def end_content(self) -> Written:
        for each in self.objects:
            for piece in each.content.finish():
                yield each.upload, piece


class FileFactory:
    def __init__(
        self,
        config: FileSettings,
        s3: S3,
        generation: int,
        grain: Grain | None = None,
        beside: Beside = in_a_thread,
        *,
        together: Together = together,
        folders: Folders | None = None,
        file_format: Format[Any] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._grain = grain or Grain()
        self._config = config
        self._s3 = s3
        self._generation = generation
        self._layout = config.layout()
        self._schedule = config.schedule()
        self._abilities = config.abilities()
        self._pool = PartPool(config.s3_part_size, beside)
        self.together = together
        self.folders = folders or folders_of(config)
        self.format = file_format or format_of(
            config,
            keep_schema=SchemaFiles(s3, config.s3_bucket_name, self._layout),
            block_bytes=self._grain.block_bytes,
        )
        self.views = self.format.views if isinstance(self.format, FormatOfViews) else (View("", self.format),)
        self.tombstones = self.format.tombstones if isinstance(self.format, FormatOfViews) else None
        self.limits = limits or config.limits()

    @property
    def part_size(self) -> int:
        return self._config.s3_part_size

    def due_at(self, now: float) -> float:
        # The times are in seconds since the epoch.
        return math.inf if self._schedule is None else self._schedule.due_at(now)

    def begin(
        self,
        partition: TopicPartition,
        key: FileKey,
        start: int,
        *,
        number: int,  # number of the first record among those of its offset
        before: Archived,  # the partition's archive without the file's group
        index: int,
        place: int,  # number of objects in the group so far
    ) -> ArchiveFile:
        objects: list[FileObject] = []
        for of_view, view in enumerate(self.views):
            if key.views is not None and of_view not in key.views:
                continue
            name = FileName(partition, start, key.path, number, view.format.extension, view.name)
            location = Location(self._config.s3_bucket_name, self._layout.file(name))
            header = FileHeader(
                *(partition, start, self._config.name, self._generation, before, place + len(objects)),
                may_repeat=self._config.is_transformed or None,
                separator=self._config.bytes_separator if isinstance(view.format, RawBytes) else None,
            )
            kind = key.kind[of_view] if isinstance(key.kind, KindsOfViews) else key.kind
            content = view.format.begin(header, location.key, kind)
            metadata, nonce = header.to_object_metadata(), uuid.uuid4().hex
            upload = Upload(self._s3, location, self._pool, nonce, metadata, abilities=self._abilities)
            objects.append(FileObject(of_view, view.name, content, upload))
        return ArchiveFile(start, index, objects)

    def with_nulls(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        # Formats that copy bytes do not decode them. Without this step, folders, tombstones and
        # ``behavior.on.null.values`` would treat the null of an Avro schema as a value.
        for view in self.views:
            if isinstance(view.format, AvroValues) and view.name in _READ_BY_FORMATS:
                batch = view.format.with_nulls(batch, _READ_BY_FORMATS[view.name])
        return batch

    @property
    def where(self) -> str:
        """The layout and bucket of files, as commits record them."""
        return self._layout.to_text(self._config.s3_bucket_name)

    def coalescer(self) -> BatchCoalescer:
        return BatchCoalescer(self._grain.rows, self.encoded_at_once)

    def rows_at_once(self, files: int) -> int:
        # With many open files, batches are larger, because each file takes time for every batch.
        return self._grain.rows * min(max(files // _FILES_PER_GRAIN, 1), _MOST_GRAINS)

    @property
    def encoded_at_once(self) -> int:
        # Few enough bytes that ``flush.bytes`` is exceeded only a little.
        if self.limits.bytes is None:
            return MAX_BYTES
        return min(max(self.limits.bytes // _CHECKS_PER_FILE, _LEAST_CHECKED), MAX_BYTES)


log = logging.getLogger(__name__)


class SchemaFiles:
    """Writes each schema once, to ``<topics.dir>/_sinksdk/schemas/<id>.avsc``."""

    def __init__(self, s3: S3, bucket: str, layout: Layout) -> None:
        self._s3 = s3
        self._bucket = bucket
        self._layout = layout

    def __call__(self, schema_id: str, definition: bytes) -> None:
        location = Location(self._bucket, self._layout.schema(schema_id))
        if self._is_written(location, definition):
            return
        found = read_if_there(self._s3, location)
        if found is None or _parsed(found) != _parsed(definition):
            # The existing file stays. The archive then has ids of two registries, and only files of values
            # contain their schemas.
            log.warning(
                "%s holds a different schema than the registry has under this id: 'topics.dir' is used with "
                "two registries. Files of values hold their own schema and stay readable; set another "
                "'topics.dir' to keep the schemas of each registry",
                location,
            )

    def _is_written(self, location: Location, definition: bytes) -> bool:
        try:
            return self._s3.put_if_absent(location, definition)
        except S3Error as error:
            if error.code != NOT_IMPLEMENTED:
                raise
        if read_if_there(self._s3, location) is not None:  # the store has no conditional writes
            return False
        self._s3.put(location, definition)
        return True


def _parsed(definition: bytes) -> object:
    try:
        found: object = json.loads(definition)
    except ValueError:
        return None
    return found
