"""Checking an archive against its commits: reads every file to its end, trusts no name.

Gaps in a topic's offsets are legitimate (compaction, transactions), so a missing file cannot be told
from offsets alone. Each file says what its group follows and each commit says what it covers (see
:mod:`sinksdk.connectors.s3_archiver.layout`): that proves the archive complete.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import zlib
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, Any, BinaryIO, Final, NamedTuple, cast

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from sinksdk import ConnectException, OffsetAndMetadata, OffsetRange, TopicPartition
from sinksdk.connectors.s3_archiver import crc
from sinksdk.connectors.s3_archiver.client import S3, Location, ObjectInfo
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.layout import Archived, FileHeader, FileName
from sinksdk.connectors.s3_archiver.ranges import RowRanges, Skip

Longs = npt.NDArray[np.int64]

_GZIP: Final = 16 + zlib.MAX_WBITS
_AT_A_TIME: Final = 1024 * 1024  # bytes
_KEPT_IN_MEMORY: Final = 16 * 1024 * 1024  # bytes of a Parquet file; larger ones go to a temporary file
_COORDINATES: Final[dict[str, Any]] = {
    "type": "record",
    "name": "sinksdk.Record",
    "fields": [
        {"name": "topic", "type": "string"},
        {"name": "partition", "type": "int"},
        {"name": "offset", "type": "long"},
    ],
}
"""The decoded fields of Avro; the others are skipped over, which finds damage as well."""


class Unreadable(Exception):
    """A file is damaged, or not what its name says; the message says how."""


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """The content of one archived file.

    Args:
        size: its bytes.
        records: how many; None where they cannot be told apart, being bytes.
        firsts: offsets at which runs of its records begin; in between there are gaps, or records of others.
            None: its records do not have offsets, being values.
        lasts: offsets at which these runs end.
        name: what its key says, where files may lie beside it.
        at_most: how many there may be of bytes, which may hold their separator; None without one.
    """

    key: str
    size: int
    header: FileHeader
    records: int | None
    firsts: Longs | None = None
    lasts: Longs | None = None

    name: FileName | None = None
    at_most: int | None = None

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
    def is_counted(self) -> bool:
        """Whether all its records can be counted."""
        return all(file.records is not None for file in self.files if not file.view)

    @property
    def at_most(self) -> int | None:
        """How many records it may have; None where nothing says so."""
        most = [
            file.at_most if file.records is None else file.records for file in self.files if not file.view
        ]
        return sum(count for count in most if count is not None) if None not in most else None

    @property
    def archived(self) -> Archived:
        """What the partition's archive consists of with it."""
        return self.before.with_group(len(self.files), self.records, self.end)

    def is_followed_by(self, before: Archived) -> bool:
        """Whether a group follows it that says this of what was before.

        One whose commit was withdrawn is no end: only those of its files count that were visible by then.
        """
        whole = self.archived
        if not self.is_counted:
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
    with s3.read(location) as content, kept_parquet() as kept:
        counted = _Counted(content)
        try:
            said, blocks = _rows(counted, name.extension, kept)
            header = FileHeader.of(said)
            order = _Order(name, may_repeat=may_repeat)
            for block in blocks:
                order.follow(block)
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


def _rows(
    stream: _Counted, extension: str, kept: IO[bytes]
) -> tuple[Mapping[str, str], Iterable[Iterable[dict[str, Any]]]]:
    """What a file of whole records says of itself, and its rows, block by block."""
    if extension == ".avro":
        blocks = fastavro.block_reader(cast("BinaryIO", stream), _COORDINATES)
        return blocks.metadata, cast("Iterable[Iterable[dict[str, Any]]]", blocks)
    file = open_parquet(stream, kept)
    said = {name.decode(): text.decode() for name, text in (file.metadata.metadata or {}).items()}
    coordinates = [each["name"] for each in _COORDINATES["fields"]]
    return said, (batch.select(coordinates).to_pylist() for batch in file.iter_batches())


def kept_parquet() -> IO[bytes]:
    """An empty file for :func:`open_parquet`, in memory as long as it is small."""
    return tempfile.SpooledTemporaryFile(_KEPT_IN_MEMORY)


def open_parquet(stream: _Counted | BinaryIO, kept: IO[bytes]) -> pq.ParquetFile:
    """A Parquet file, which is read from its end: the whole stream is kept in another file first."""
    shutil.copyfileobj(cast("BinaryIO", stream), kept, _AT_A_TIME)
    kept.seek(0)
    return pq.ParquetFile(kept)


def inspect_values(s3: S3, location: Location, name: FileName, *, separator: bytes = b"\n") -> ArchivedFile:
    """Read a file of values to its end: they do not say where they come from, so they are counted.

    Args:
        separator: behind each value of a file of bytes; empty: there is none.

    Raises:
        Unreadable: damaged, or not what its name says.
        S3Trouble: no answer.
        S3Error: refused.
    """
    with s3.read(location) as content, kept_parquet() as kept:
        counted = _Counted(content)
        try:
            header, records, at_most = _count_values(counted, name.extension, kept, separator)
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
    return ArchivedFile(location.key, counted.size, header, records, name=name, at_most=at_most)


class _Values(NamedTuple):
    """A file's header, of a format that has one, and the number of its values, or the most they may be."""

    header: FileHeader | None = None
    records: int | None = None
    at_most: int | None = None


def _count_values(stream: _Counted, extension: str, kept: IO[bytes], separator: bytes) -> _Values:
    if extension == ".avro":
        blocks = fastavro.block_reader(cast("BinaryIO", stream))
        return _Values(FileHeader.of(blocks.metadata), sum(block.num_records for block in blocks))
    if extension.endswith(".parquet"):
        return _Values(records=sum(batch.num_rows for batch in open_parquet(stream, kept).iter_batches()))
    pieces = _inflated(stream) if extension.endswith(".gz") else _pieces(stream)
    if extension.startswith(".json"):
        return _Values(records=_occurrences(pieces, b"\n"))
    count = _occurrences(pieces, separator)
    return _Values(at_most=count if separator else None)


def _pieces(stream: _Counted) -> Iterator[bytes]:
    while data := stream.read(_AT_A_TIME):
        yield data


def _inflated(stream: _Counted) -> Iterator[bytes]:
    inflate = zlib.decompressobj(_GZIP)
    for data in _pieces(stream):
        yield inflate.decompress(data)
    if not inflate.eof:
        message = "it ends before its compressed data do"
        raise ValueError(message)


def _occurrences(pieces: Iterable[bytes], separator: bytes) -> int:
    """How often it occurs in all of them together; 0 times if it is empty."""
    count, rest = 0, b""
    for piece in pieces:
        if separator:
            *found, last = (rest + piece).split(separator)
            count += len(found)
            rest = last[max(len(last) - len(separator) + 1, 0) :]
    return count


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
        gaps: offsets in between that no file holds; the topic itself may not have them. None: they cannot be
            told, since a transform may have made several values of an offset.
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
    gaps: int | None = 0
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
    uncounted = False
    for partition in sorted({*listing.names, *before}):
        found = PartitionReport(partition)
        groups = _grouped(_read(config, s3, found, listing.names.get(partition, ())))
        _check_chain(found, groups)
        found.gaps = _check_offsets(found, groups, may_share=config.is_transformed)
        commits_of = before.get(partition), after.get(partition)
        if any(file.firsts is None for group in groups for file in group.files):
            tombstones = (
                config.tombstone_encoded_partition if config.behavior_on_null_values == "write" else None
            )
            _count_offsets(found, groups, commits_of, tombstones, may_share=config.is_transformed)
        _check_commit(found, groups, *commits_of)
        uncounted = uncounted or any(not group.is_counted for group in groups)
        report.partitions.append(found)
    if uncounted:
        report.notes.append(
            "files of bytes do not tell their values apart: there are as many records as the commits say"
        )
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
    separator = config.bytes_separator.encode()
    for name in sorted(names, key=lambda name: (name.start, name.number, name.path)):
        location = Location(config.s3_bucket_name, layout.file(name))
        try:
            if not config.holds_values and name.extension.endswith((".avro", ".parquet")):
                file = inspect(s3, location, name, may_repeat=config.is_transformed)
            else:
                file = inspect_values(s3, location, name, separator=separator)
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


def _count_offsets(
    found: PartitionReport,
    groups: Sequence[Group],
    commits: Iterable[OffsetAndMetadata | None],
    tombstones: str | None,
    *,
    may_share: bool,
) -> None:
    """Values do not say their offsets: gaps are the offsets that commits span, without the records."""
    last = groups[-1].archived.files
    ends = [commit for commit in filter(None, commits) if _is_end_of(last, Archived.of(commit))]
    begins = [place for place, group in enumerate(groups) if place == 0 or not group.before.files]
    gaps = []
    for begin, stop in itertools.pairwise([*begins, len(groups)]):
        commit = ends[-1] if ends and stop == len(groups) else None
        gaps.append(_gaps_of_values(found, groups[begin:stop], commit, tombstones, may_share=may_share))
    known = [count for count in gaps if count is not None]
    found.gaps = sum(known) if len(known) == len(gaps) else None


def _is_end_of(files: int, said: Archived) -> bool:
    return said.files == files and said.end is not None


def _gaps_of_values(
    found: PartitionReport,
    chain: Sequence[Group],
    commit: OffsetAndMetadata | None,
    tombstones: str | None,
    *,
    may_share: bool,
) -> int | None:
    """What follows a group says where it ended, and how many records there were then.

    Args:
        commit: of the last one; None: its end is not known, nor are gaps in it.
        tombstones: folder of the keys of records without a value; None where there is none.
        may_share: values may share an offset.

    Returns:
        The gaps; None if they cannot be told.
    """
    said = None if commit is None else Archived.of(commit)
    is_withdrawn = False
    for group, after in zip(chain, [*(group.before for group in chain[1:]), said], strict=True):
        _check_most(found, group, after)
        is_withdrawn = is_withdrawn or (after is not None and after.end == group.before.end)
    if said is not None and said.end is not None:
        found.last = said.end - 1
    else:
        *chain, unended = chain
        said = unended.before
    if not chain:
        return 0
    start, latest = min(group.start for group in chain), max(group.start for group in chain)
    if said.end is None or said.end <= latest:
        return None  # its last group's commit was withdrawn
    records = sum(group.records for group in chain)
    if not all(group.is_counted for group in chain):
        records = said.records - chain[0].before.records
        found.records += records
    records += sum(
        file.records or 0
        for group in chain
        for file in group.files
        if file.view == "keys" and file.name and file.name.path == tombstones
    )
    end = said.end
    if is_withdrawn:  # its visible files may reach further than what was written since
        if commit is None:
            return None
        end = max(end, commit.offset, Skip.of_text(said.skip).end or 0)
    if may_share:
        return None
    if records > end - start:
        found.problems.append(
            f"{found.partition}: there are {records} records of offsets {start} to {end - 1}, more than "
            f"there are offsets"
        )
    return max(said.end - start - records, 0)


def _check_most(found: PartitionReport, group: Group, after: Archived | None) -> None:
    """Bytes are no fewer than what was committed."""
    if group.is_counted or group.at_most is None or after is None or after.files != group.archived.files:
        return
    committed = after.records - group.before.records
    if group.at_most < committed:
        found.problems.append(
            f"{found.partition}: {_called(group)} holds {group.at_most} values at most, and {committed} were "
            f"committed"
        )


def _check_offsets(found: PartitionReport, groups: Sequence[Group], *, may_share: bool) -> int:
    """Each offset is in one file, unless a transform has made several records of it. Returns the gaps.

    Groups do not overlap, but for one whose commit was withdrawn when some of its files were visible: those
    that follow it hold the rest.
    """
    gaps = 0
    reach: int | None = None
    near: list[ArchivedFile] = []
    for group in groups:
        if reach is not None and group.start >= reach:
            gaps += _check_disjoint(found, near, may_share=may_share) + group.start - reach
            near = []
        near += [file for file in group.files if file.firsts is not None]
        reach = max(reach or 0, group.end)
    return gaps + _check_disjoint(found, near, may_share=may_share)


def _check_disjoint(found: PartitionReport, files: Sequence[ArchivedFile], *, may_share: bool) -> int:
    """Returns the gaps between records that lie near each other."""
    if not files:
        return 0
    runs = [_runs(file) for file in files]
    firsts, lasts = (np.concatenate(column) for column in ([r.first for r in runs], [r.last for r in runs]))
    whose = np.repeat(np.arange(len(files)), [each.runs for each in runs])
    order = np.lexsort((whose, firsts))
    firsts, lasts, whose = firsts[order], lasts[order], whose[order]
    reach = np.maximum.accumulate(lasts)
    gaps = int(np.maximum(firsts[1:] - reach[:-1] - 1, 0).sum())
    if may_share and len({file.header.before.end for file in files}) < len(files):
        return gaps
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
    return gaps


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
    is_last = bool(groups) and groups[-1].is_counted and committed.files == archived.files
    if is_last and committed.records != archived.records and not found.problems:
        found.problems.append(
            f"{found.partition}: {committed.records} records are committed up to offset {committed.end}, the "
            f"files that end with {_called(groups[-1])} have {archived.records}"
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
            sizes = s3.part_sizes(location, upload.upload_id)
            if sizes is None:  # completed or aborted since it was listed
                continue
            size = sum(sizes)
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
