"""Find where an archive ends by its files: before offsets are altered, and at each start."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from sinksdk import ConnectException, OffsetAndMetadata, Token, TopicPartition
from sinksdk.connectors.s3_archiver.archive.header import Archived, FileHeader
from sinksdk.connectors.s3_archiver.archive.layout import FileName, folder_of
from sinksdk.connectors.s3_archiver.archive.ranges import Skip
from sinksdk.connectors.s3_archiver.partitioners.settings import LayoutSettings
from sinksdk.connectors.s3_archiver.s3.client import S3, Location
from sinksdk.connectors.s3_archiver.s3.publisher import is_replaced
from sinksdk.connectors.s3_archiver.verify.inspection import ArchivedFile, Configured, Unreadable, inspect

log = logging.getLogger(__name__)

_PAGE: Final = 1_000
# Keys of a topic that a start lists, in 200 requests; more would delay it by minutes.
_MOST_LISTED: Final = 200_000

_NAMED: Final = 3

Commits = Callable[[], Mapping[TopicPartition, OffsetAndMetadata]]

Names = Mapping[TopicPartition, Sequence[FileName]]


class End(NamedTuple):
    # None: unknown, because a file of values states no offsets
    offset: int | None
    at_least: int
    keys: Sequence[str]  # keys of the files that were committed last
    begin: int  # where the archive ended before their commit; everything below is visible
    # The highest possible end by the commits; None if these do not cover the files.
    at_most: int | None
    # Whether the commit counts exactly these files, so that it is published as a whole.
    is_committed: bool


def files_of(
    s3: S3,
    config: LayoutSettings,
    topics: Iterable[str],
    begin: Mapping[TopicPartition, int] | None = None,
    most: int | None = None,
) -> Names:
    """List files by partition and start offset, from ``begin`` on; read at most ``most`` keys per topic."""
    found: dict[TopicPartition, list[FileName]] = defaultdict(list)
    for topic in topics:
        for name in _listed(s3, config, topic, begin or {}, most):
            if name is not None and name.start >= (begin or {}).get(name.partition, 0):
                found[name.partition].append(name)
    return {partition: sorted(names, key=lambda name: name.start) for partition, names in found.items()}


def _listed(
    s3: S3, config: LayoutSettings, topic: str, begin: Mapping[TopicPartition, int], most: int | None
) -> Iterator[FileName | None]:
    layout, prefix, after, count = config.layout(), config.layout().folder(topic), "", 0
    while True:
        further = ""
        for listed, found in enumerate(s3.list(config.s3_bucket_name, prefix, after), 1):
            if count == most:
                log.warning(
                    "connector %s: topic %s has more than %s keys; those from %s on are not compared with "
                    "the commits, so a store restored from an older copy may go unnoticed. 'python -m "
                    "sinksdk.connectors.s3_archiver verify CONFIG' compares them all",
                    *(config.name, topic, f"{most:,}", found.key),
                )
                return
            name = layout.parse(found.key)
            yield name
            count += 1
            wanted = 0 if name is None else begin.get(name.partition, 0)
            # Names of a partition are in the order of offsets only within a folder, and only if the offsets
            # have no more digits.
            if (
                name is not None
                and listed >= _PAGE
                and name.start < wanted
                and len(str(wanted)) <= layout.offset_width
            ):
                wanted_key = layout.file(name._replace(start=wanted, number=0, view="", extension=""))
                further = max(wanted_key, found.key)
                break
        if not further:
            return
        after = further


def end_of(
    s3: S3, config: LayoutSettings, names: Sequence[FileName], commit: OffsetAndMetadata | None
) -> End | None:
    """Return where the files of one partition end. Reads the files committed last."""
    if not names:
        return None
    begin, together, group, before = _last_group(s3, config, names)
    layout, ends, at_least = config.layout(), list[int | None](), 0
    main = [name for name in together if not name.view] or together
    configured = Configured(config.is_transformed, config.bytes_separator.encode())
    for name in main:
        location = Location(config.s3_bucket_name, layout.file(name))
        at_least = max(at_least, name.start + 1)
        try:
            read = inspect(s3, location, name, configured)
            if read.has_offsets:
                ends.append(read.last + 1)
                at_least = max(at_least, read.last + 1)
            else:
                rows = 1 if config.is_transformed else max(read.records or 1, 1)
                ends.append(None)
                at_least = max(at_least, name.start + rows)
        except Unreadable:  # a damaged file, or one of another writer
            ends.append(None)
    known = [end for end in ends if end is not None]
    keys = [layout.file(name) for name in group]
    # A file of values states no offsets; if a commit counts exactly these files, it states where they end.
    exact, at_most = _end_by_commit(commit, group, before)
    is_committed = exact is not None
    if commit is not None and exact is not None and len(together) > len(group):
        at_most, exact = max(exact, commit.offset), None
    offset = max(known) if len(known) == len(ends) else exact
    return End(
        offset, at_least, keys, begin, at_most if offset is None else offset, is_committed=is_committed
    )


def _end_by_commit(
    commit: OffsetAndMetadata | None, group: Sequence[FileName], before: Archived | None
) -> tuple[int | None, int | None]:
    """Return where files end by a commit, and the offset that they cannot end above."""
    if commit is None or commit.tokens or before is None:
        return None, None
    archived, files = Archived.of(commit), before.files + len(group)
    ahead, start = Skip.of_text(archived.skip).end or 0, max(name.start for name in group)
    end = max(archived.end or 0, ahead)
    # After an operator's commit, files are counted from 0 again, so a later file may have the same number.
    if files == archived.files and start < end:
        return end, end
    # An operator's commit counts no files. It would have been refused below the end of a file.
    is_covered = start < commit.offset and (not archived.files or files <= archived.files)
    return None, max(commit.offset, ahead) if is_covered else None


class _Last(NamedTuple):
    # Where the archive ended before the commit of the file with the highest start offset; lower if a
    # partly withdrawn commit reaches beyond that.
    begin: int
    # Files of a partly withdrawn commit may begin, or end, above those committed after it.
    together: Sequence[FileName]
    group: Sequence[FileName]
    before: Archived | None  # None: the file is from another writer


def _last_group(s3: S3, config: LayoutSettings, names: Sequence[FileName]) -> _Last:
    layout = config.layout()

    def before(name: FileName) -> Archived | None:
        found = s3.head(Location(config.s3_bucket_name, layout.file(name)))
        try:
            return FileHeader.of_object(found.metadata).before if found else None
        except ValueError:  # a file of another writer
            return None

    newest = max(names, key=lambda name: name.start)
    furthest = before(newest)
    begin = (furthest and furthest.end) or 0
    if furthest is not None and furthest.withdrawn_to is not None:
        begin = min(begin, furthest.withdrawn_to)
    together = [name for name in names if name.start >= begin]
    if furthest is None:
        return _Last(begin, together, [newest], None)
    said = [furthest if name == newest else before(name) for name in together]
    last = max((each for each in said if each), key=lambda each: (each.end or 0, each.files))
    group = [name for name, each in zip(together, said, strict=True) if each == last]
    return _Last(begin, together, group, last)


def above(s3: S3, config: LayoutSettings, topics: Collection[str], commits: Commits) -> list[str]:
    """Return the problems of partitions with files that no commit covers."""
    # Commits and files disagree after an operator's rewind, or when the store was lost or restored from an
    # older copy. Reading on below the files would archive records again, under other names.
    before = {partition: _visible_below(commit) for partition, commit in commits().items()}
    names = files_of(s3, config, topics, before, _MOST_LISTED)
    if not names:
        return []
    # Files become visible after their commit, so commits are read after the listing.
    now, problems = commits(), []
    for partition, files in sorted(names.items()):
        commit = now.get(partition)
        if wrong := _uncommitted(s3, config, commit, files):
            committed = "nothing is committed" if commit is None else f"offset {commit.offset} is committed"
            if commit and commit.tokens:
                committed += f", not yet visible from {_visible_below(commit)} on"
            problems.append(f"{partition}: {committed}, but {_described(config, wrong)}")
    return problems


def _visible_below(commit: OffsetAndMetadata) -> int:
    """Return the offset below which everything is visible."""
    # If an upload has expired, the commit will be withdrawn to the start of its first unpublished upload.
    begins = [token.data.get("group", [token.data.get("start", commit.offset)])[0] for token in commit.tokens]
    return min(begins, default=commit.offset)


def _uncommitted(
    s3: S3, config: LayoutSettings, commit: OffsetAndMetadata | None, files: Iterable[FileName]
) -> list[FileName]:
    """Return the files beyond the visible offsets that a commit does not cover."""
    # A commit covers the files that it has yet to publish, and those visible at its withdrawal. Each row
    # is in one file, so the first row of a file identifies it.
    begin = _visible_below(commit) if commit else 0
    tokens = {token.data.get("key"): token for token in (commit.tokens if commit else ())}
    texts = (Archived.of(commit).skip, *(token.data.get("skip", "") for token in tokens.values()))
    skip, layout = Skip.union(map(Skip.of_text, texts)), config.layout()

    def is_known(name: FileName) -> bool:
        token = tokens.get(layout.file(name)) if tokens else None
        if token is not None:
            return not is_replaced(s3, token, config.name)
        return bool(skip.holds([name.view], np.array([name.start]), np.array([name.number])).any())

    return [name for name in files if name.start >= begin and not is_known(name)]


def problems_of(
    s3: S3,
    config: LayoutSettings,
    offsets: Mapping[TopicPartition, int | None],
    commits: Mapping[TopicPartition, OffsetAndMetadata],
    given: Mapping[TopicPartition, int],
) -> list[str]:
    """Return why partitions cannot be read from these offsets; None is the first record."""
    names = files_of(s3, config, sorted({partition.topic for partition in offsets}))
    problems = []
    for partition, wanted in sorted(offsets.items()):
        files, offset = names.get(partition, ()), wanted or 0
        end = end_of(s3, config, files, commits.get(partition))
        if end is None:
            continue
        at_most = end.at_most
        # Neither files nor commits state the end, but the operator has given this offset.
        if end.offset is None and given.get(partition) == offset:
            at_most = end.at_least
        if at_most is not None and max(end.at_least, at_most) <= offset:
            continue
        covering = [name for name in files if name.start >= offset] or _last_group(s3, config, files).group
        reach = max(end.at_least, end.offset or 0)
        if end.offset is not None or offset < end.at_least:
            problem, where = "would", "at" if end.offset is not None else "at or above"
            advice = "Set that offset or a higher one"
        else:
            problem, where = "may", "at or above"
            until = "" if at_most is None else f", which is at most {at_most}"
            advice = (
                f"Its files and the commits do not state the exact end{until}. If you know that it is at or "
                f"below this offset: 'sinksdk offsets recover CONFIG {partition}={offset}'. Otherwise set "
                f"another{'' if at_most is None else f', {at_most} or above'}"
            )
        problems.append(
            f"{partition}{'' if wanted is None else f'={wanted}'} {problem} be archived twice from offset "
            f"{offset} on: {_described(config, covering)}, and the archive ends {where} offset {reach}. "
            f"{advice}, or move these files out of {config.layout().folder(partition.topic)} first"
        )
    return problems


def recovered(
    s3: S3,
    config: LayoutSettings,
    topics: Iterable[str],
    given: Mapping[TopicPartition, int],
    *,
    commits: Mapping[TopicPartition, OffsetAndMetadata],
    replaced: Mapping[TopicPartition, Sequence[Token] | None],
) -> dict[TopicPartition, int]:
    """Return where archives end. Raises ConnectException if the operator has to state more ends."""
    names, unknown = files_of(s3, config, topics), []
    # Partitions whose commits may still be published are left out.
    waiting = {partition for partition, tokens in replaced.items() if tokens is None}
    offsets = {partition: offset for partition, offset in given.items() if partition not in waiting}
    for partition, files in sorted(names.items()):
        commit = commits.get(partition)
        if (
            partition in waiting
            or partition in given
            # Only the commit states which records of its files are visible.
            or (Archived.of(commit).skip and not _uncommitted(s3, config, commit, files))
        ):
            continue
        end = end_of(s3, config, files, commit)
        if end is None or end.is_committed:
            continue
        last = sum(name.start >= end.begin for name in files)
        move = f"move the files of the last commit ({last} files) away, and pass {partition}={end.begin}"
        if end.offset is None:
            unknown.append(
                f"{partition}: the end offset of {', '.join(end.keys[:_NAMED])} is unknown. If the topic has "
                f"no gaps (from compaction or transactions) and each commit has one file, pass "
                f"{partition}={end.at_least}. Otherwise {move}"
            )
        elif (commit and not commit.tokens and commit.offset == end.offset) or (
            missing := _missing(s3, config, files, end)
        ) is None:
            offsets[partition] = end.offset
        else:
            unknown.append(
                f"{partition}: the last commit, of {', '.join(end.keys[:_NAMED])} and perhaps other files, "
                f"may have been published only in part: records from offset {missing} on may be missing. If "
                f"the topic has no such records (because of compaction or transactions), pass "
                f"{partition}={end.offset}. Otherwise {move}"
            )
    if unknown:
        raise ConnectException("; ".join(unknown))
    return offsets


def _missing(s3: S3, config: LayoutSettings, files: Sequence[FileName], end: End) -> int | None:
    """Return the lowest offset that may be in an unpublished file; None if there is none."""
    # Files are published one after another, and do not state how many were committed together. Those of
    # earlier commits are all visible.
    layout, bucket = config.layout(), config.s3_bucket_name
    if all(name.path == folder_of(name.partition) for name in files if layout.file(name) in end.keys):
        return None  # whole records in the partition's own folder are in one file at a time
    configured = Configured(config.is_transformed)

    def read(name: FileName) -> ArchivedFile:
        return inspect(s3, Location(bucket, layout.file(name)), name, configured)

    return _first_gap(end.begin, [read(name) for name in files if name.start >= end.begin], configured)


def _first_gap(begin: int, files: Iterable[ArchivedFile], configured: Configured) -> int | None:
    runs: list[tuple[int, int]] = []
    for file in files:
        repeats = configured.may_repeat if file.header.may_repeat is None else file.header.may_repeat
        if repeats or file.firsts is None or file.lasts is None:
            return begin
        runs += zip(file.firsts.tolist(), file.lasts.tolist(), strict=True)
    reach = begin
    for first, last in sorted(runs):
        if first > reach:
            return reach
        reach = max(reach, last + 1)
    return None


def _described(config: LayoutSettings, names: Sequence[FileName]) -> str:
    layout = config.layout()
    keys = [layout.file(name) for name in names[:_NAMED]]
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    count = "1 file holds" if len(names) == 1 else f"{len(names):,} files hold"
    return f"{count} records from that offset on ({', '.join(keys)}{more})"
