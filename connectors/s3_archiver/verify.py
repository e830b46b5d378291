"""Checking an archive against its commits: reads every file to its end, trusts no name.

Gaps in a topic's offsets are legitimate (compaction, transactions), so a missing file cannot be told
from offsets alone. Each file says what its group follows and each commit says what it covers (see
:mod:`sinksdk.connectors.s3_archiver.layout`): that proves the archive complete.
"""

from __future__ import annotations

import itertools
import zlib
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Final, cast

import fastavro
import numpy as np
import numpy.typing as npt

from sinksdk import ConnectException, OffsetAndMetadata, OffsetRange, TopicPartition
from sinksdk.connectors.s3_archiver import crc
from sinksdk.connectors.s3_archiver.client import S3, Location, ObjectInfo
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.layout import Archived, FileHeader, FileName
from sinksdk.connectors.s3_archiver.ranges import RowRanges, Skip

Longs = npt.NDArray[np.int64]

_GZIP: Final = 16 + zlib.MAX_WBITS
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
        records: how many; None for a format that they cannot be counted in.
        firsts: offsets at which runs of its records begin; in between there are gaps, or records of others.
            None: its records do not have offsets, being values.
        lasts: offsets at which these runs end.
        name: what its key says, where files may lie beside it.
    """

    key: str
    size: int
    header: FileHeader
    records: int | None
    firsts: Longs | None = None
    lasts: Longs | None = None

    name: FileName | None = None

    @property
    def view(self) -> str:
        """``keys`` or ``headers`` of records whose values are in a file beside it; empty for those."""
        return self.name.view if self.name else ""

    @property
    def first(self) -> int:
        """Offset of its first record."""
        return self.header.start

    @property
    def last(self) -> int:
        """Offset of its last record; of values, the last one that is known."""
        return self.header.start if self.lasts is None else int(self.lasts[-1])


@dataclass(frozen=True, slots=True)
class Group:
    """The visible files that were committed together.

    Args:
        before: what the partition's archive consisted of without them, as each of them says.
        files: by their places in the group.
    """

    before: Archived
    files: Sequence[ArchivedFile]

    @property
    def key(self) -> str:
        """Of its first file, for messages."""
        return self.files[0].key

    @property
    def start(self) -> int:
        """Offset of its first record."""
        return min(file.first for file in self.files)

    @property
    def end(self) -> int:
        """Offset after its last record."""
        return max(file.last for file in self.files) + 1

    @property
    def records(self) -> int:
        """Number of its records that can be counted."""
        return sum(file.records or 0 for file in self.files if not file.view)

    @property
    def archived(self) -> Archived:
        """What the partition's archive consists of with it."""
        return self.before.with_group(len(self.files), self.records, self.end)

    def is_followed_by(self, before: Archived) -> bool:
        """Whether a group follows it that says this of what was before.

        One whose commit was withdrawn is no end: only those of its files count that were visible by then.
        """
        whole = self.archived
        if any(file.records is None and not file.view for file in self.files):
            whole = replace(whole, records=before.records)
        if (
            any(file.firsts is None for file in self.files)
            and before.end is not None
            and whole.end is not None
        ):
            whole = replace(whole, end=max(whole.end, before.end))
        return before in (whole, replace(whole, end=self.before.end))


def inspect(s3: S3, location: Location, name: FileName, *, may_repeat: bool = False) -> ArchivedFile:
    """Read a file of whole records to its end.

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
    if (header.partition, header.start) != (name.partition, name.start) or order.first != name.start:
        raise Unreadable(
            f"{location} is not what its name says: its header says {header.partition} from offset "
            f"{header.start}, its records begin at {order.first}"
        )
    return ArchivedFile(
        location.key,
        counted.size,
        header,
        order.records,
        np.array(order.firsts, np.int64),
        np.array(order.lasts, np.int64),
    )


def inspect_values(s3: S3, location: Location, name: FileName) -> ArchivedFile:
    """Read a file of values to its end: they do not say where they come from, so they are counted.

    Raises:
        Unreadable: damaged, or not what its name says.
        S3Trouble: no answer.
        S3Error: refused.
    """
    with s3.read(location) as content:
        counted = _Counted(content)
        try:
            header, records = _count_values(counted, name.extension)
        except ConnectException:
            raise
        except Exception as error:
            raise Unreadable(f"{location} cannot be read: {str(error) or type(error).__name__}") from error
        counted.drain()
    info = _check_whole(s3, location, counted)
    try:
        header = header or FileHeader.of_object(info.metadata)
    except ValueError as error:
        raise Unreadable(f"{location}: {error}") from error
    if (header.partition, header.start) != (name.partition, name.start):
        raise Unreadable(
            f"{location} is not what its name says: its header says {header.partition} from offset "
            f"{header.start}"
        )
    return ArchivedFile(location.key, counted.size, header, records, name=name)


def _count_values(stream: _Counted, extension: str) -> tuple[FileHeader | None, int | None]:
    """A file's header, of a format that has one, and its number of values, if the format tells them apart."""
    if extension == ".avro":
        blocks = fastavro.block_reader(cast("BinaryIO", stream))
        return FileHeader.of(blocks.metadata), sum(block.num_records for block in blocks)
    if extension not in (".json", ".json.gz"):
        return None, None
    inflate = zlib.decompressobj(_GZIP) if extension.endswith(".gz") else None
    lines = 0
    while data := stream.read(1024 * 1024):
        lines += (inflate.decompress(data) if inflate else data).count(b"\n")
    if inflate and not inflate.eof:
        message = "it ends before its compressed data do"
        raise ValueError(message)
    return None, lines


def _check_whole(s3: S3, location: Location, counted: _Counted) -> ObjectInfo:
    """Compare the bytes read with the checksum that S3 verified at the upload."""
    info = s3.head(location)
    if info is None:
        raise Unreadable(f"{location} was removed while it was being read")
    if info.size != counted.size:
        raise Unreadable(f"{location} has {info.size} bytes, of which {counted.size} were received")
    if info.crc32 is not None and info.crc32 != crc.encode(counted.crc32):
        raise Unreadable(f"{location} is damaged: CRC32 {crc.encode(counted.crc32)}, S3 has {info.crc32}")
    return info


class _Order:
    """Follows a file's records: all of one partition, offsets ascending."""

    def __init__(self, name: FileName, *, may_repeat: bool) -> None:
        self._name = name
        self._may_repeat = may_repeat
        self.firsts = array("q")
        self.lasts = array("q")
        self.records = 0

    @property
    def first(self) -> int:
        return self.firsts[0] if self.firsts else -1

    def follow(self, rows: Iterable[dict[str, Any]]) -> None:
        last = self.lasts[-1] if self.lasts else -1
        for row in rows:
            offset = row["offset"]
            if (row["topic"], row["partition"]) != self._name.partition:
                raise ValueError(f"it holds a record of {row['topic']}-{row['partition']} (offset {offset})")
            if offset < last or (offset == last and not self._may_repeat):
                what = "twice" if offset == last else f"after {last}"
                raise ValueError(f"it holds offset {offset} {what}")
            if self.firsts and offset <= last + 1:
                self.lasts[-1] = offset
            else:
                self.firsts.append(offset)
                self.lasts.append(offset)
            last = offset
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
    """What is there, by name: each partition's files, and keys that are no files."""

    names: Mapping[TopicPartition, Sequence[FileName]]
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
    for partition in sorted({*listing.names, *before}):
        found = PartitionReport(partition)
        groups = _grouped(_read(config, s3, found, listing.names.get(partition, ())))
        _check_chain(found, groups)
        _check_offsets(found, groups, may_share=config.is_transformed)
        _check_commit(found, groups, before.get(partition), after.get(partition))
        report.partitions.append(found)
    report.notes += _pending_uploads(config, s3, topics, after)
    return report


def _list(config: S3ArchiverConfig, s3: S3, topics: Iterable[str]) -> _Listing:
    layout = config.layout()
    names: dict[TopicPartition, list[FileName]] = defaultdict(list)
    others = []
    for topic in topics:
        for item in s3.list(config.s3_bucket_name, layout.folder(topic)):
            name = layout.parse(item.key)
            if name is None:
                others.append(item.key)
            else:
                names[name.partition].append(name)
    return _Listing(names, others)


def _read(
    config: S3ArchiverConfig, s3: S3, found: PartitionReport, names: Iterable[FileName]
) -> list[ArchivedFile]:
    """Read a partition's files, and count."""
    layout, files = config.layout(), []
    for name in sorted(names, key=lambda name: (name.start, name.number, name.path)):
        location = Location(config.s3_bucket_name, layout.file(name))
        try:
            if name.extension == ".avro" and not config.holds_values:
                file = inspect(s3, location, name, may_repeat=config.is_transformed)
            else:
                file = inspect_values(s3, location, name)
        except Unreadable as error:
            found.problems.append(str(error))
            continue
        files.append(file)
        found.files += 1
        found.records += 0 if file.view else file.records or 0
        found.size += file.size
        found.first = file.first if found.first is None else min(found.first, file.first)
        found.last = file.last if found.last is None else max(found.last, file.last)
    return files


def _grouped(files: Iterable[ArchivedFile]) -> list[Group]:
    """Files by group, groups in the order in which they were committed."""
    by_before: dict[Archived, list[ArchivedFile]] = defaultdict(list)
    for file in files:
        by_before[file.header.before].append(file)
    groups = [
        Group(before, sorted(found, key=lambda file: file.header.index))
        for before, found in by_before.items()
    ]
    return sorted(groups, key=lambda group: (group.before.end or 0, group.before.files, group.start))


def _check_chain(found: PartitionReport, groups: Sequence[Group]) -> None:
    """Each group must follow the one before it, and hold each of its files once."""
    if groups and groups[0].before.files:
        before = groups[0].before
        found.problems.append(
            f"{found.partition}: the first {before.files} files, of {before.records} records up to offset "
            f"{before.end}, are missing; {groups[0].key} follows them"
        )
    elif groups and groups[0].before.end is not None:
        found.left_out.append(OffsetRange(0, groups[0].before.end))
    for group in groups:
        for one, other in itertools.pairwise(group.files):
            if one.header.index == other.header.index:
                found.problems.append(
                    f"{found.partition}: {one.key} and {other.key} both say that they are file "
                    f"{one.header.index} of the same commit"
                )
    for group in groups:
        _check_views(found, group)
    for previous, group in itertools.pairwise(groups):
        _check_link(found, previous, group)


def _check_views(found: PartitionReport, group: Group) -> None:
    """What is beside a file has as many rows: a group's files of one start are of the same records."""
    by_name: dict[tuple[int, str, int], ArchivedFile] = {}
    for file in group.files:
        if file.name is None or file.records is None:
            continue
        other = by_name.setdefault(file.name[1:4], file)
        if other.records != file.records:
            found.problems.append(
                f"{found.partition}: {other.key} has {other.records} rows and {file.key} {file.records}, "
                f"though they are of the same records"
            )


def _check_link(found: PartitionReport, previous: Group, group: Group) -> None:
    says, is_now = group.before, previous.archived
    if previous.is_followed_by(says):
        return
    if not says.files:
        found.left_out.append(OffsetRange(is_now.end or 0, says.end or 0))
        found.notes.append(
            f"{found.partition}: {group.key} begins a new chain at offset {says.end}, after an archive that "
            f"ended at {is_now.end}: the offsets were altered by hand"
        )
        return
    found.problems.append(
        f"{found.partition}: {group.key} follows {says.files} files of {says.records} records up to "
        f"offset {says.end}, but {_called(previous)} before it is number {is_now.files}, of "
        f"{is_now.records} records up to offset {is_now.end}: files in between are missing or unreadable, "
        f"or not what was committed"
    )


def _called(group: Group) -> str:
    if len(group.files) == 1:
        return group.key
    return f"the last of {len(group.files)} files of one commit, {group.key} first,"


def _check_offsets(found: PartitionReport, groups: Sequence[Group], *, may_share: bool) -> None:
    """Each offset is in one file, unless a transform has made several records of it.

    Groups do not overlap, but for one whose commit was withdrawn when some of its files were visible: those
    that follow it hold the rest.
    """
    reach: int | None = None
    near: list[ArchivedFile] = []
    for group in groups:
        if reach is not None and group.start >= reach:
            _check_disjoint(found, near, may_share=may_share)
            found.gaps += group.start - reach
            near = []
        near += [file for file in group.files if file.firsts is not None]
        reach = max(reach or 0, group.end)
    _check_disjoint(found, near, may_share=may_share)


def _check_disjoint(found: PartitionReport, files: Sequence[ArchivedFile], *, may_share: bool) -> None:
    if not files:
        return
    runs = [_runs(file) for file in files]
    firsts, lasts = (np.concatenate(column) for column in ([r.first for r in runs], [r.last for r in runs]))
    whose = np.repeat(np.arange(len(files)), [each.runs for each in runs])
    order = np.lexsort((whose, firsts))
    firsts, lasts, whose = firsts[order], lasts[order], whose[order]
    reach = np.maximum.accumulate(lasts)
    found.gaps += int(np.maximum(firsts[1:] - reach[:-1] - 1, 0).sum())
    if may_share and len({file.header.before.end for file in files}) < len(files):
        return
    shared: dict[tuple[int, int], list[int]] = {}
    for place in np.flatnonzero(firsts[1:] <= reach[:-1]) + 1:
        until = min(int(reach[place - 1]), int(lasts[place]))
        other = int(whose[np.argmax(lasts[:place])])
        found.overlaps += until - int(firsts[place]) + 1
        span = shared.setdefault((other, int(whose[place])), [int(firsts[place]), until])
        span[1] = max(span[1], until)
    for (one, other), (start, end) in shared.items():
        found.problems.append(
            f"{found.partition}: offsets {start} to {end} are in {files[one].key} and again in "
            f"{files[other].key}"
        )


def _check_commit(
    found: PartitionReport,
    groups: Sequence[Group],
    before: OffsetAndMetadata | None,
    after: OffsetAndMetadata | None,
) -> None:
    """Nothing may be visible above the commit, and everything below it must be."""
    found.committed = after.offset if after else None
    _check_above(found, groups, after)
    pending = _pending(found, after, {file.key for group in groups for file in group.files})
    committed, archived = Archived.of(before), groups[-1].archived if groups else Archived()
    if not groups and not committed.files and committed.end is not None:
        found.left_out.append(OffsetRange(0, committed.end))
    missing = committed.files - archived.files - pending
    if missing > 0:
        found.problems.append(
            f"{found.partition}: {missing} files are missing at the end: {committed.files} files up to "
            f"offset {committed.end} are committed, those there end at {archived.end}"
        )


def _check_above(
    found: PartitionReport, groups: Sequence[Group], committed: OffsetAndMetadata | None
) -> None:
    """What is visible above the commit is of a group whose commit was withdrawn, and the commit says so."""
    end, visible_end = committed.offset if committed else 0, max((group.end for group in groups), default=0)
    if visible_end <= end:
        return
    skip = Skip.of_text(Archived.of(committed).skip)
    files = [file for group in groups for file in group.files]
    if all(skip.covers(file.view, _runs(file).beyond(end)) for file in files):
        found.notes.append(
            f"{found.partition}: offsets up to {visible_end - 1} are visible, {end} is committed: a "
            f"commit was withdrawn since others of its files had expired; the next start archives those again"
        )
        return
    found.problems.append(
        f"{found.partition}: offsets up to {visible_end - 1} are visible, but "
        f"{f'only those below {end} are' if committed else 'nothing is'} committed: was the "
        f"archive written by another store's connector?"
    )


def _runs(file: ArchivedFile) -> RowRanges:
    first, last = file.firsts, file.lasts
    if first is None or last is None:
        first = last = np.array([file.first])
    nothing = np.zeros(len(first), np.int64)
    return RowRanges(first, nothing, last, nothing)


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
