"""Check an archive against its commits: read every file completely, whatever its name states."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from sinksdk import OffsetAndMetadata, OffsetRange, TopicPartition
from sinksdk.connectors.s3_archiver.archive.header import Archived
from sinksdk.connectors.s3_archiver.archive.layout import FileName, Layout
from sinksdk.connectors.s3_archiver.archive.ranges import RowRanges, Skip
from sinksdk.connectors.s3_archiver.partitioners.settings import LayoutSettings
from sinksdk.connectors.s3_archiver.s3.client import S3, Location
from sinksdk.connectors.s3_archiver.verify.inspection import ArchivedFile, Configured, Unreadable, inspect


@dataclass(frozen=True, slots=True)
class Group:
    before: Archived
    files: Sequence[ArchivedFile]

    @property
    def key(self) -> str:
        return self.files[0].key

    @property
    def start(self) -> int:
        return min(file.first for file in self.files)

    @property
    def end(self) -> int:
        return max(file.last for file in self.files) + 1

    @property
    def records(self) -> int:
        return sum(file.records or 0 for file in self.files if not file.view)

    @property
    def is_counted(self) -> bool:
        return all(file.records is not None for file in self.files if not file.view)

    @property
    def at_most(self) -> int | None:
        most = [
            file.at_most if file.records is None else file.records for file in self.files if not file.view
        ]
        return sum(count for count in most if count is not None) if None not in most else None

    @property
    def archived(self) -> Archived:
        return self.before.with_group(len(self.files), self.records, self.end)

    def is_followed_by(self, before: Archived) -> bool:
        """Return whether the next group may name this group's end as the archive before it."""
        # If a commit was withdrawn, only the files count that were visible at that time.
        whole = self.archived
        if not self.is_counted:
            whole = replace(whole, records=before.records)
        if (
            not all(file.has_offsets for file in self.files)
            and before.end is not None
            and whole.end is not None
        ):
            whole = replace(whole, end=max(whole.end, before.end))
        return before in (whole, replace(whole, end=self.before.end))


Commits = Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(slots=True)
class PartitionReport:
    partition: TopicPartition
    committed: int | None = None
    files: int = 0
    records: int = 0
    size: int = 0
    first: int | None = None
    last: int | None = None
    # Number of offsets that no file holds; they may be gaps of the topic. None: unknown, because a transform
    # may have returned several values of an offset.
    gaps: int | None = 0
    # Number of offsets that more than one file holds.
    overlaps: int = 0
    # Offsets before the connector's start offset, which an operator or the first start has set.
    left_out: list[OffsetRange] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    file_runs: list[FileRun] = field(default_factory=list)


class FileRun(NamedTuple):
    files: int
    first: str
    last: str
    where: str
    content: str


class Place(NamedTuple):
    """Place of files of the archive, at present or at an earlier time."""

    bucket: str
    layout: Layout

    @property
    def text(self) -> str:
        return self.layout.to_text(self.bucket)


class Found(NamedTuple):
    name: FileName
    place: Place

    @property
    def location(self) -> Location:
        return Location(self.place.bucket, self.place.layout.file(self.name))


@dataclass(frozen=True, slots=True)
class Listing:
    files: Mapping[TopicPartition, Sequence[Found]]
    # Keys that are not names of this archive's files.
    others: Sequence[str]


@dataclass(slots=True)
class Report:
    partitions: list[PartitionReport] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    places: Sequence[Place] = ()

    @property
    def problems(self) -> list[str]:
        return [problem for partition in self.partitions for problem in partition.problems]


def verify(config: LayoutSettings, s3: S3, commits: Callable[[], Commits]) -> Report:
    # Commits are read before and after the listing, so that the check finds no problem in a connector that is
    # running.
    before = commits()
    topics = sorted({*config.topics, *(partition.topic for partition in before)})
    places = _places(config, before)
    listing = list_files(s3, places, topics)
    after = commits()
    unread = [f"{key} is not a file of this archive and was not read" for key in listing.others]
    report = Report(notes=unread, places=places)
    uncounted = False
    for partition in sorted({*listing.files, *before}):
        found = PartitionReport(partition)
        commits_of = before.get(partition), after.get(partition)
        files = listing.files.get(partition, ())
        window = _Window(
            found, config.is_transformed, min((c.offset for c in commits_of if c is not None), default=0)
        )
        groups = _grouped(_read(config, s3, found, files, window))
        window.close()
        _check_chain(found, groups)
        found.gaps = window.gaps
        if not all(file.has_offsets for group in groups for file in group.files):
            tombstones = (
                config.tombstone_encoded_partition if config.behavior_on_null_values == "write" else None
            )
            _count_offsets(found, groups, commits_of, tombstones, may_share=config.is_transformed)
        _check_commit(found, groups, *commits_of)
        uncounted = uncounted or any(not group.is_counted for group in groups)
        report.partitions.append(found)
    if uncounted:
        report.notes.append(
            "values in files of bytes cannot be counted: the number of records is that of the commits"
        )
    report.notes += _file_run_notes(report)
    report.notes += _pending_uploads(s3, places, topics, after)
    return report


def _places(config: LayoutSettings, commits: Commits) -> list[Place]:
    # Commits say where files were written before topics.dir or the bucket changed.
    texts = [config.layout().to_text(config.s3_bucket_name)]
    for commit in commits.values():
        said = Archived.of(commit)
        texts += [where for where in (said.where, *(where for _, where in said.earlier)) if where]
    return [Place(*Layout.of_text(text)) for text in dict.fromkeys(texts)]


def list_files(s3: S3, places: Sequence[Place], topics: Iterable[str]) -> Listing:
    files: dict[TopicPartition, dict[Location, Found]] = defaultdict(dict)
    others: dict[Location, None] = {}
    for topic in topics:
        for place in places:
            for item in s3.list(place.bucket, place.layout.folder(topic)):
                location = Location(place.bucket, item.key)
                name = place.layout.parse(item.key)
                if name is None:
                    others[location] = None
                else:
                    # Layouts may share a prefix: a file counts once, in the first layout that parses it.
                    files[name.partition].setdefault(location, Found(name, place))
    known = {location for found in files.values() for location in found}
    return Listing(
        {partition: list(found.values()) for partition, found in files.items()},
        [location.key for location in others if location not in known],
    )


def _file_run_notes(report: Report) -> list[str]:
    file_runs = [(found.partition, each) for found in report.partitions for each in found.file_runs]
    kinds = {(each.where, each.content) for _, each in file_runs}
    if len(kinds) == 1:
        ((where, content),) = kinds
        files = sum(each.files for _, each in file_runs)
        return [f"{files:,} files were checked as {content} in {where}"]
    return [
        f"{partition}: {each.files:,} files, {each.first} to {each.last}, were checked as {each.content} in "
        f"{each.where}"
        for partition, each in file_runs
    ]


def _read(
    config: LayoutSettings,
    s3: S3,
    found: PartitionReport,
    files: Iterable[Found],
    window: _Window,
) -> Iterator[ArchivedFile]:
    configured = Configured(config.is_transformed, config.bytes_separator.encode())
    for each in sorted(files, key=lambda one: (one.name.start, one.name.number, one.name.path)):
        try:
            file = inspect(s3, each.location, each.name, configured)
        except Unreadable as error:
            found.problems.append(str(error))
            continue
        found.files += 1
        found.records += 0 if file.view else file.records or 0
        found.size += file.size
        found.first = file.first if found.first is None else min(found.first, file.first)
        found.last = file.last if found.last is None else max(found.last, file.last)
        _add_to_file_run(found, file, each.place.text)
        yield window.add(file)


def _add_to_file_run(found: PartitionReport, file: ArchivedFile, where: str) -> None:
    last = found.file_runs[-1] if found.file_runs else None
    if last is not None and (last.where, last.content) == (where, file.content):
        found.file_runs[-1] = last._replace(files=last.files + 1, last=file.key)
    else:
        found.file_runs.append(FileRun(1, file.key, file.key, where, file.content))


def _grouped(files: Iterable[ArchivedFile]) -> list[Group]:
    by_before: dict[Archived, list[ArchivedFile]] = defaultdict(list)
    for file in files:
        by_before[file.header.before].append(file)
    groups = [
        Group(before, sorted(found, key=lambda file: file.header.index))
        for before, found in by_before.items()
    ]
    return sorted(groups, key=lambda group: (group.before.end or 0, group.before.files, group.start))


def _check_chain(found: PartitionReport, groups: Sequence[Group]) -> None:
    # Topics have gaps (compaction, transactions), so offsets do not show a missing file. Each file states
    # the archive before its group, and each commit the archive up to it: together they prove it complete.
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
                    f"{found.partition}: {one.key} and {other.key} are both marked as file "
                    f"{one.header.index} of the same commit"
                )
    for group in groups:
        _check_views(found, group)
    for previous, group in itertools.pairwise(groups):
        _check_link(found, previous, group)


def _check_views(found: PartitionReport, group: Group) -> None:
    """Check that files of the same records have the same number of rows."""
    by_name: dict[tuple[int, str, int], ArchivedFile] = {}
    for file in group.files:
        if file.name is None or file.records is None:
            continue
        other = by_name.setdefault(file.name[1:4], file)
        if other.records != file.records:
            found.problems.append(
                f"{found.partition}: {other.key} has {other.records} rows and {file.key} has {file.records}, "
                f"although they are of the same records"
            )


def _check_link(found: PartitionReport, previous: Group, group: Group) -> None:
    stated, actual = group.before, previous.archived
    if previous.is_followed_by(stated):
        return
    if not stated.files:
        found.left_out.append(OffsetRange(actual.end or 0, stated.end or 0))
        found.notes.append(
            f"{found.partition}: {group.key} begins a new chain of files at offset {stated.end}, and the "
            f"archive before it ends at offset {actual.end}: an operator altered the offsets"
        )
        return
    found.problems.append(
        f"{found.partition}: the header of {group.key} states {stated.files} files of {stated.records} "
        f"records up to offset {stated.end} before it, but there are {actual.files} files of "
        f"{actual.records} records up to offset {actual.end}, up to {_named(previous)}: files in between are "
        f"missing, unreadable, or not those that were committed"
    )


def _named(group: Group) -> str:
    if len(group.files) == 1:
        return group.key
    return f"the commit of {group.key} ({len(group.files)} files)"


def _count_offsets(
    found: PartitionReport,
    groups: Sequence[Group],
    commits: Iterable[OffsetAndMetadata | None],
    tombstones: str | None,
    *,
    may_share: bool,
) -> None:
    """Count the gaps of values: the offsets that commits span, minus the records."""
    last = groups[-1].archived.files
    ends = [
        commit
        for commit in commits
        if (said := Archived.of(commit)).files == last and said.end is not None and commit is not None
    ]
    begins = [place for place, group in enumerate(groups) if place == 0 or not group.before.files]
    gaps = []
    for begin, stop in itertools.pairwise([*begins, len(groups)]):
        commit = ends[-1] if ends and stop == len(groups) else None
        gaps.append(_gaps_of_values(found, groups[begin:stop], commit, tombstones, may_share=may_share))
    known = [count for count in gaps if count is not None]
    found.gaps = sum(known) if len(known) == len(gaps) else None


def _gaps_of_values(
    found: PartitionReport,
    chain: Sequence[Group],
    commit: OffsetAndMetadata | None,
    tombstones: str | None,
    *,
    may_share: bool,
) -> int | None:
    """Return the gaps of consecutive groups; None if they are unknown."""
    said = None if commit is None else Archived.of(commit)
    is_withdrawn = False
    # Where a group ended, and how many records it has, is stated by the next group or by the commit.
    for group, after in zip(chain, [*(group.before for group in chain[1:]), said], strict=True):
        _check_at_most(found, group, after)
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
        return None  # the commit of the last group was withdrawn
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
    if is_withdrawn:  # visible files of a withdrawn commit may reach further than later files
        if commit is None:
            return None
        end = max(end, commit.offset, Skip.of_text(said.skip).end or 0)
    if may_share:  # values may share an offset
        return None
    if records > end - start:
        found.problems.append(
            f"{found.partition}: the files hold {records} records of offsets {start} to {end - 1}, more "
            f"records than offsets"
        )
    return max(said.end - start - records, 0)


def _check_at_most(found: PartitionReport, group: Group, after: Archived | None) -> None:
    """Check that a file of bytes holds at least as many values as were committed."""
    if group.is_counted or group.at_most is None or after is None or after.files != group.archived.files:
        return
    committed = after.records - group.before.records
    if group.at_most < committed:
        found.problems.append(
            f"{found.partition}: {_named(group)} holds at most {group.at_most} values, but {committed} were "
            f"committed"
        )


class _Window:
    """Check that each offset is in one file, unless a transform returned several records of it."""

    def __init__(self, found: PartitionReport, may_share: bool, committed: int) -> None:  # noqa: FBT001 - of one call
        self._found = found
        self._may_share = may_share
        self._committed = committed
        # Files come in the order of their first offsets. Runs of a file that end before the next file are
        # forgotten, so that memory does not grow with the archive.
        self._near: list[ArchivedFile] = []
        self._reach: int | None = None
        # By start offset of a group: the number of files before it. If the commit of such a group was
        # withdrawn, the largest number counts, which is that of the last group.
        self._files: dict[int | None, int] = {}
        self.gaps = 0

    def add(self, file: ArchivedFile) -> ArchivedFile:
        if file.has_offsets:
            if self._reach is not None and file.first >= self._reach:
                self.gaps += file.first - self._reach
                self._flush()
            self._near.append(file)
            before = file.header.before
            self._files[before.end] = max(self._files.get(before.end, 0), before.files)
            self._reach = max(self._reach or 0, file.last + 1)
        # The runs above the commit are kept, because they are compared with the commit.
        return replace(file, firsts=None, lasts=None) if file.last < self._committed else file

    def close(self) -> None:
        self._flush()

    def _flush(self) -> None:
        if self._near:
            self._check_disjoint(self._near)
        self._near = []

    def _check_disjoint(self, files: Sequence[ArchivedFile]) -> None:
        runs = [_runs(file) for file in files]
        firsts, lasts = (
            np.concatenate(column) for column in ([r.first for r in runs], [r.last for r in runs])
        )
        file_of_run = np.repeat(np.arange(len(files)), [each.runs for each in runs])
        order = np.lexsort((file_of_run, firsts))
        firsts, lasts, file_of_run = firsts[order], lasts[order], file_of_run[order]
        reach = np.maximum.accumulate(lasts)
        self.gaps += int(np.maximum(firsts[1:] - reach[:-1] - 1, 0).sum())
        may_share = self._may_share or any(file.header.may_repeat for file in files)
        twice = np.flatnonzero(firsts[1:] <= reach[:-1]) + 1
        holders = np.maximum.accumulate(np.where(lasts == reach, np.arange(len(lasts)), 0))
        pairs = file_of_run[holders[twice - 1]] * len(files) + file_of_run[twice]
        until = np.minimum(reach[twice - 1], lasts[twice])
        for pair in np.unique(pairs):
            one, other = (files[place] for place in divmod(int(pair), len(files)))
            if may_share and self._may_meet(one, other):
                continue
            of = np.flatnonzero(pairs == pair)
            self._found.overlaps += int((until[of] - firsts[twice[of]] + 1).sum())
            self._found.problems.append(
                f"{self._found.partition}: offsets {firsts[twice[of[0]]]} to {until[of].max()} are in "
                f"{one.key} and again in {other.key}"
            )

    def _may_meet(self, one: ArchivedFile, other: ArchivedFile) -> bool:
        """Return whether a transform may have returned records of one record to both files."""
        # Either both files are of one group; or a group's commit was withdrawn after some of its files had
        # become visible, and a later group holds the rest of its records.
        before = one.header.before, other.header.before
        return before[0].end == before[1].end or any(self._files[each.end] > each.files for each in before)


def _check_commit(
    found: PartitionReport,
    groups: Sequence[Group],
    before: OffsetAndMetadata | None,
    after: OffsetAndMetadata | None,
) -> None:
    """Check that nothing is visible above the commit, and everything below it."""
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
            f"offset {committed.end} are committed, but the existing files end at offset {archived.end}"
        )
    is_last = bool(groups) and groups[-1].is_counted and committed.files == archived.files
    if is_last and committed.records != archived.records and not found.problems:
        found.problems.append(
            f"{found.partition}: {committed.records} records are committed up to offset {committed.end}, but "
            f"the files up to {_named(groups[-1])} hold {archived.records}"
        )


def _check_above(
    found: PartitionReport, groups: Sequence[Group], committed: OffsetAndMetadata | None
) -> None:
    end, visible_end = committed.offset if committed else 0, max((group.end for group in groups), default=0)
    if visible_end <= end:
        return
    skip = Skip.of_text(Archived.of(committed).skip)
    files = [file for group in groups for file in group.files]
    if all(skip.covers(file.view, _runs(file).beyond(end)) for file in files):
        found.notes.append(
            f"{found.partition}: offsets up to {visible_end - 1} are visible, but {end} is committed: a "
            f"commit was withdrawn because some of its files had expired; the next start archives their "
            f"records again"
        )
        return
    found.problems.append(
        f"{found.partition}: offsets up to {visible_end - 1} are visible, but "
        f"{f'only those below {end} are' if committed else 'nothing is'} committed: did a connector with "
        f"another store write this archive?"
    )


def _runs(file: ArchivedFile) -> RowRanges:
    first, last = file.firsts, file.lasts
    if first is None or last is None:  # a file of values states only its first offset
        first = last = np.array([file.first])
    nothing = np.zeros(len(first), np.int64)
    return RowRanges(first, nothing, last, nothing)


def _pending(found: PartitionReport, committed: OffsetAndMetadata | None, keys: set[str]) -> int:
    waiting = [token for token in (committed.tokens if committed else ()) if token.data["key"] not in keys]
    for token in waiting:
        found.problems.append(
            f"{found.partition}: {token.data['key']}, offsets [{token.data['start']}, {token.data['end']}), "
            f"is committed but not visible yet: start the connector, which publishes it"
        )
    return len(waiting)


def _pending_uploads(s3: S3, places: Sequence[Place], topics: Iterable[str], commits: Commits) -> list[str]:
    committed = {token.id for offset in commits.values() for token in offset.tokens}
    folders = dict.fromkeys(
        (place.bucket, place.layout.folder(topic)) for topic in topics for place in places
    )
    uploads = dict.fromkeys(
        (Location(bucket, upload.key), upload.upload_id)
        for bucket, folder in folders
        for upload in s3.list_uploads(bucket, folder)
    )
    notes, empty = [], 0
    for location, upload_id in uploads:
        sizes = s3.part_sizes(location, upload_id)
        if sizes is None:  # the upload was completed or aborted after it was listed
            continue
        size = sum(sizes)
        if upload_id in committed:
            state = f"{size} bytes, committed; the connector will publish it"
        elif size:
            state = f"{size} bytes, of a running task, or to be discarded when the connector starts"
        else:
            empty += 1
            continue
        notes.append(f"upload {upload_id} of {location}: {state}")
    if empty:
        notes.append(
            "1 upload is empty; it costs nothing"
            if empty == 1
            else f"{empty} uploads are empty; they cost nothing"
        )
    return notes
