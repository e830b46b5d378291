"""Checking an archive against its commits: reads every file to its end, trusts no name.

Gaps in a topic's offsets are legitimate (compaction, transactions), so a missing file cannot be told
from offsets alone. Each file says what it follows and each commit says what it covers (see
:mod:`sinksdk.connectors.s3_archiver.layout`): that proves the archive complete.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final, cast

import fastavro

from sinksdk import ConnectException, OffsetAndMetadata, OffsetRange, TopicPartition
from sinksdk.connectors.s3_archiver import crc
from sinksdk.connectors.s3_archiver.client import S3, Location
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.layout import Archived, FileHeader, FileName

_COORDINATES: Final[dict[str, Any]] = {
    "type": "record",
    "name": "sinksdk.Record",
    "fields": [
        {"name": "topic", "type": "string"},
        {"name": "partition", "type": "int"},
        {"name": "offset", "type": "long"},
    ],
}
"""The decoded fields; the others are skipped over, which finds damage as well."""


class Unreadable(Exception):
    """A file is damaged, or not what its name says; the message says how."""


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """The content of one archived file.

    Args:
        size: its bytes.
        first: offset of its first record.
        last: offset of its last record.
        offsets: how many different ones its records have.
    """

    key: str
    size: int
    header: FileHeader
    records: int
    first: int
    last: int
    offsets: int

    @property
    def gaps(self) -> int:
        """Offsets between the first and the last that it does not hold."""
        return self.last - self.first + 1 - self.offsets

    @property
    def archived(self) -> Archived:
        """What the partition's archive consists of with it."""
        return self.header.before.with_file(self.records, self.last + 1)


def inspect(s3: S3, location: Location, name: FileName, *, may_repeat: bool = False) -> ArchivedFile:
    """Read a file to its end.

    Args:
        may_repeat: records that follow each other may share an offset: a transform has multiplied them.

    Raises:
        Unreadable: damaged, or not what its name says.
        S3Trouble: no answer.
        S3Error: refused.
    """
    with s3.read(location) as content:
        counted = _Counted(content)
        try:
            blocks = fastavro.block_reader(cast("BinaryIO", counted), _COORDINATES)
            header = FileHeader.of(blocks.metadata)
            order = _Order(name, may_repeat=may_repeat)
            for block in blocks:
                order.follow(cast("Iterable[dict[str, Any]]", block))
        except ConnectException:
            raise
        except Exception as error:
            raise Unreadable(f"{location} cannot be read: {str(error) or type(error).__name__}") from error
        counted.drain()
    _check_whole(s3, location, counted)
    if (header.partition, header.start) != name or order.first != name.start:
        raise Unreadable(
            f"{location} is not what its name says: its header says {header.partition} from offset "
            f"{header.start}, its records begin at {order.first}"
        )
    return ArchivedFile(
        location.key, counted.size, header, order.records, order.first, order.last, order.offsets
    )


def _check_whole(s3: S3, location: Location, counted: _Counted) -> None:
    """Compare the bytes read with the checksum that S3 verified at the upload."""
    info = s3.head(location)
    if info is None:
        raise Unreadable(f"{location} was removed while it was being read")
    if info.size != counted.size:
        raise Unreadable(f"{location} has {info.size} bytes, of which {counted.size} were received")
    if info.crc32 is not None and info.crc32 != crc.encode(counted.crc32):
        raise Unreadable(f"{location} is damaged: CRC32 {crc.encode(counted.crc32)}, S3 has {info.crc32}")


class _Order:
    """Follows a file's records: all of one partition, offsets ascending."""

    def __init__(self, name: FileName, *, may_repeat: bool) -> None:
        self._name = name
        self._may_repeat = may_repeat
        self.offsets = 0
        self.first = -1
        self.last = -1
        self.records = 0

    def follow(self, rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            offset = row["offset"]
            if (row["topic"], row["partition"]) != self._name.partition:
                raise ValueError(f"it holds a record of {row['topic']}-{row['partition']} (offset {offset})")
            if offset < self.last or (offset == self.last and not self._may_repeat):
                what = "twice" if offset == self.last else f"after {self.last}"
                raise ValueError(f"it holds offset {offset} {what}")
            if not self.records:
                self.first = offset
            self.offsets += offset > self.last
            self.last = offset
            self.records += 1


class _Counted:
    """A stream that counts and checksums the bytes read from it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.size = 0
        self.crc32 = 0

    def read(self, count: int = -1) -> bytes:
        data = self._stream.read(count)
        self.size += len(data)
        self.crc32 = zlib.crc32(data, self.crc32)
        return data

    def tell(self) -> int:
        """Where the next block begins, which the Avro reader likes to know."""
        return self.size

    def drain(self) -> None:
        """Read what the Avro reader left."""
        while self.read(1024 * 1024):
            pass


Commits = Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(slots=True)
class PartitionReport:
    """Findings of one topic partition.

    Args:
        committed: the committed offset.
        files: number of readable files; the next four are of these.
        size: in bytes.
        first: offset of the first record.
        last: offset of the last.
        gaps: offsets in between that no file holds; the topic itself may not have them.
        overlaps: offsets that more than one file holds.
        left_out: offsets before the connector's start, as set by an operator or at its first start.
        problems: as sentences.
        notes: other findings, which are no problems.
    """

    partition: TopicPartition
    committed: int | None = None
    files: int = 0
    records: int = 0
    size: int = 0
    first: int | None = None
    last: int | None = None
    gaps: int = 0
    overlaps: int = 0
    left_out: list[OffsetRange] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """Findings of the whole archive; ``notes`` are those that concern no single partition."""

    partitions: list[PartitionReport] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """Everything that is wrong."""
        return [problem for partition in self.partitions for problem in partition.problems]


@dataclass(frozen=True, slots=True)
class _Listing:
    """What is there, by name: starts of each partition's files in order, and keys that are no files."""

    starts: Mapping[TopicPartition, Sequence[int]]
    others: Sequence[str]


def verify(config: S3ArchiverConfig, s3: S3, commits: Callable[[], Commits]) -> Report:
    """Read the archive back and check it.

    Args:
        commits: reads what is committed. Asked before and after the archive is listed, so that a
            running connector does not look wrong.

    Raises:
        S3Trouble: no answer.
        S3Error: refused.
    """
    before = commits()
    topics = sorted({*config.topics, *(partition.topic for partition in before)})
    listing = _list(config, s3, topics)
    after = commits()
    report = Report(notes=[f"{key} is no file of this archive and was not read" for key in listing.others])
    for partition in sorted({*listing.starts, *before}):
        found = PartitionReport(partition)
        files = _read(config, s3, found, listing.starts.get(partition, ()))
        _check_chain(found, files)
        _check_commit(found, files, before.get(partition), after.get(partition))
        report.partitions.append(found)
    report.notes += _pending_uploads(config, s3, topics, after)
    return report


def _list(config: S3ArchiverConfig, s3: S3, topics: Iterable[str]) -> _Listing:
    layout = config.layout()
    starts: dict[TopicPartition, list[int]] = defaultdict(list)
    others = []
    for topic in topics:
        for item in s3.list(config.s3_bucket_name, layout.folder(topic)):
            name = layout.parse(item.key)
            if name is None:
                others.append(item.key)
            else:
                starts[name.partition].append(name.start)
    return _Listing({partition: sorted(found) for partition, found in starts.items()}, others)


def _read(
    config: S3ArchiverConfig, s3: S3, found: PartitionReport, starts: Iterable[int]
) -> list[ArchivedFile]:
    """Read a partition's files in order, and count."""
    layout, files = config.layout(), []
    for start in starts:
        location = Location(config.s3_bucket_name, layout.file(found.partition, start))
        try:
            file = inspect(s3, location, FileName(found.partition, start), may_repeat=config.is_transformed)
        except Unreadable as error:
            found.problems.append(str(error))
            continue
        files.append(file)
        found.files += 1
        found.records += file.records
        found.size += file.size
        found.gaps += file.gaps
        found.first = file.first if found.first is None else found.first
        found.last = file.last if found.last is None else max(found.last, file.last)
    return files


def _check_chain(found: PartitionReport, files: Sequence[ArchivedFile]) -> None:
    """Each file must follow the one before it."""
    if files and files[0].header.before.files:
        before = files[0].header.before
        found.problems.append(
            f"{found.partition}: the first {before.files} files, of {before.records} records up to offset "
            f"{before.end}, are missing; {files[0].key} follows them"
        )
    elif files and files[0].header.before.end is not None:
        found.left_out.append(OffsetRange(0, files[0].header.before.end))
    for i, file in enumerate(files[1:]):
        previous = files[i]
        overlap = previous.last - file.first + 1
        if overlap > 0:
            found.overlaps += overlap
            found.problems.append(
                f"{found.partition}: offsets {file.first} to {previous.last} are in {previous.key} and "
                f"again in {file.key}"
            )
        found.gaps += max(-overlap, 0)
        _check_link(found, previous, file)


def _check_link(found: PartitionReport, previous: ArchivedFile, file: ArchivedFile) -> None:
    says, is_now = file.header.before, previous.archived
    if says == is_now:
        return
    if not says.files:
        found.left_out.append(OffsetRange(is_now.end or 0, says.end or 0))
        found.notes.append(
            f"{found.partition}: {file.key} begins a new chain at offset {says.end}, after an archive that "
            f"ended at {is_now.end}: the offsets were altered by hand"
        )
        return
    found.problems.append(
        f"{found.partition}: {file.key} follows {says.files} files of {says.records} records up to offset "
        f"{says.end}, but {previous.key} before it is number {is_now.files}, of {is_now.records} records up "
        f"to offset {is_now.end}: files in between are missing or unreadable, or not what was committed"
    )


def _check_commit(
    found: PartitionReport,
    files: Sequence[ArchivedFile],
    before: OffsetAndMetadata | None,
    after: OffsetAndMetadata | None,
) -> None:
    """Nothing may be visible above the commit, and everything below it must be."""
    found.committed = after.offset if after else None
    visible_end = files[-1].last + 1 if files else 0
    if visible_end > (after.offset if after else 0):
        found.problems.append(
            f"{found.partition}: offsets up to {visible_end - 1} are visible, but "
            f"{f'only those below {after.offset} are' if after else 'nothing is'} committed: was the "
            f"archive written by another store's connector?"
        )
    pending = _pending(found, after, {file.key for file in files})
    committed, archived = Archived.of(before), files[-1].archived if files else Archived()
    if not files and not committed.files and committed.end is not None:
        found.left_out.append(OffsetRange(0, committed.end))
    missing = committed.files - archived.files - pending
    if missing > 0:
        found.problems.append(
            f"{found.partition}: {missing} files are missing at the end: {committed.files} files up to "
            f"offset {committed.end} are committed, those there end at {archived.end}"
        )


def _pending(found: PartitionReport, committed: OffsetAndMetadata | None, keys: set[str]) -> int:
    """How many committed files are not visible yet."""
    waiting = [token for token in (committed.tokens if committed else ()) if token.data["key"] not in keys]
    for token in waiting:
        found.problems.append(
            f"{found.partition}: {token.data['key']}, offsets [{token.data['start']}, {token.data['end']}), "
            f"is committed but not visible yet: start the connector, which publishes it first of all"
        )
    return len(waiting)


def _pending_uploads(config: S3ArchiverConfig, s3: S3, topics: Iterable[str], commits: Commits) -> list[str]:
    """Uploads under way: a running task's, or a dead one's that the next generation discards."""
    layout = config.layout()
    committed = {token.id for offset in commits.values() for token in offset.tokens}
    notes, empty = [], 0
    for topic in topics:
        for upload in s3.list_uploads(config.s3_bucket_name, layout.folder(topic)):
            location = Location(config.s3_bucket_name, upload.key)
            size = s3.uploaded_bytes(location, upload.upload_id)
            if upload.upload_id in committed:
                what = f"{size} bytes, is committed and will be published"
            elif size:
                what = f"{size} bytes, is a running task's, or will be discarded when the connector starts"
            else:
                empty += 1
                continue
            notes.append(f"upload {upload.upload_id} of {location}: {what}")
    if empty:
        notes.append(
            "1 upload is empty; it costs nothing"
            if empty == 1
            else f"{empty} uploads are empty; they cost nothing"
        )
    return notes
