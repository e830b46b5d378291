"""Checking an archive against its commits: reads everything back, trusts no name.

Gaps in a topic's offsets are legitimate (compaction, transactions), so a missing file cannot be told
from offsets alone. Each file says what it follows and each commit says what it covers (see
:mod:`sinksdk.connectors.s3_archiver.chain`): that proves the archive complete.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sinksdk import OffsetAndMetadata, OffsetRange, TopicPartition
from sinksdk.connectors.s3_archiver.chain import Archived
from sinksdk.connectors.s3_archiver.client import S3, Location
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.inspection import ArchivedFile, Unreadable, inspect
from sinksdk.connectors.s3_archiver.layout import FileName

Commits = Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(slots=True)
class PartitionReport:
    """What was found of one topic partition.

    Args:
        partition: which.
        committed: its commit, None if it has none.
        files: number of readable files.
        records: records in them.
        size: bytes of them.
        first: offset of the first record, None without records.
        last: offset of the last.
        gaps: offsets in between that no file holds; the topic itself may not have them.
        overlaps: offsets that more than one file holds.
        left_out: offsets that the connector was told to begin behind, by hand or at its first start.
        problems: what is wrong, as sentences.
        notes: what is worth knowing and not wrong.
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
    """What was found of the whole archive.

    Args:
        partitions: one report each, in order.
        notes: what concerns no single partition.
    """

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
        config: the connector's.
        s3: the endpoint.
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
            file = inspect(s3, location, FileName(found.partition, start))
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
