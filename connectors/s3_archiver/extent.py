"""Where an archive ends, by its files: asked before offsets go back, and when commits are older than files.

Commits and files can come apart: an operator moves offsets back, a store is restored from an older copy or
lost, files are lost. Reading on from a commit below the files would archive records a second time, under
other names wherever files end at other offsets than before. So this is found out before anything is written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from sinksdk import ConnectException, OffsetAndMetadata, TopicPartition
from sinksdk.connectors.s3_archiver.client import S3, Location
from sinksdk.connectors.s3_archiver.inspection import Configured, Unreadable, inspect
from sinksdk.connectors.s3_archiver.layout import Archived, FileHeader, FileName
from sinksdk.connectors.s3_archiver.ranges import Skip

if TYPE_CHECKING:
    from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig

_PAGE: Final = 1_000
_MOST_LISTED: Final = 200_000
"""Keys that a start lists, in 200 requests; more would hold it up for a minute."""

_NAMED: Final = 3

Commits = Callable[[], Mapping[TopicPartition, OffsetAndMetadata]]
"""Reads what is committed, afresh."""

Names = Mapping[TopicPartition, Sequence[FileName]]


class End(NamedTuple):
    """Where the files of a topic partition end.

    Args:
        offset: after their last record; None if they do not say: values have no offsets.
        at_least: the end that is certain all the same.
        keys: of the files that were committed last.
    """

    offset: int | None
    at_least: int
    keys: Sequence[str]


def files_of(
    s3: S3,
    config: S3ArchiverConfig,
    topics: Iterable[str],
    begin: Mapping[TopicPartition, int] | None = None,
    most: int | None = None,
) -> Names:
    """List the files of topics, by partition and start offset.

    Args:
        begin: of each partition, the start offset of the first file that matters.
        most: keys to list; those that follow are left out.
    """
    found: dict[TopicPartition, list[FileName]] = defaultdict(list)
    left = most
    for topic in topics:
        for name in _listed(s3, config, topic, begin or {}, left):
            if left is not None:
                left -= 1
            if name is not None and name.start >= (begin or {}).get(name.partition, 0):
                found[name.partition].append(name)
    return {partition: sorted(names, key=lambda name: name.start) for partition, names in found.items()}


def _listed(
    s3: S3, config: S3ArchiverConfig, topic: str, begin: Mapping[TopicPartition, int], most: int | None
) -> Iterator[FileName | None]:
    """Yield what each key of a topic says; goes past pages of files that begin too early."""
    layout, prefix, after, count = config.layout(), config.layout().folder(topic), "", 0
    while True:
        further = ""
        for listed, found in enumerate(s3.list(config.s3_bucket_name, prefix, after), 1):
            name = layout.parse(found.key)
            yield name
            count += 1
            if most is not None and count >= most:
                return
            wanted = 0 if name is None else begin.get(name.partition, 0)
            # In a folder, a partition's names are in the order of offsets, if these have no more digits.
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


def end_of(s3: S3, config: S3ArchiverConfig, names: Sequence[FileName]) -> End | None:
    """Return where the files of one partition end; None if there are none. Reads those committed last.

    Raises:
        S3Trouble: no answer.
        S3Error: refused.
    """
    group = _last_group(s3, config, names)
    if not group:
        return None
    layout, ends, at_least = config.layout(), list[int | None](), 0
    main = [name for name in group if not name.view] or group
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
        except Unreadable:  # damaged, or another writer's
            ends.append(None)
    known = [end for end in ends if end is not None]
    return End(
        max(known) if len(known) == len(ends) else None, at_least, [layout.file(name) for name in group]
    )


def _last_group(s3: S3, config: S3ArchiverConfig, names: Sequence[FileName]) -> list[FileName]:
    """The files that were committed last, as their objects' metadata say."""
    group: list[FileName] = []
    first: FileHeader | None = None
    for name in sorted(names, key=lambda name: name.start, reverse=True):
        location = Location(config.s3_bucket_name, config.layout().file(name))
        found = s3.head(location)
        try:
            header = FileHeader.of_object(found.metadata) if found else None
        except ValueError:
            header = None  # another writer's: it stands alone
        if first is None:
            first = header
        elif header is None or first is None or header.before != first.before:
            break
        group.append(name)
    return group


def above(s3: S3, config: S3ArchiverConfig, topics: Collection[str], commits: Commits) -> list[str]:
    """Return the problems of partitions with files that no commit covers; empty if all is well.

    Whatever is visible was committed before: so commits are read after the files are listed.
    """
    before = {partition: commit.offset for partition, commit in commits().items()}
    names = files_of(s3, config, topics, before, _MOST_LISTED)
    if not names:
        return []
    now, problems = commits(), []
    for partition, files in sorted(names.items()):
        commit = now.get(partition)
        end = 0 if commit is None else commit.offset
        ahead = Skip.of_text(Archived.of(commit).skip).end or 0  # of a commit that was withdrawn
        wrong = [name for name in files if name.start >= max(end, ahead)]
        if wrong:
            committed = "nothing is committed" if commit is None else f"offset {end} is committed"
            problems.append(f"of {partition} {committed}, and {_described(config, wrong)}")
    return problems


def problems_of(s3: S3, config: S3ArchiverConfig, offsets: Mapping[TopicPartition, int | None]) -> list[str]:
    """Return why partitions cannot be read from these offsets (None: from the first record).

    Raises:
        S3Trouble: no answer.
        S3Error: refused.
    """
    names = files_of(s3, config, sorted({partition.topic for partition in offsets}))
    problems = []
    for partition, wanted in sorted(offsets.items()):
        files, offset = names.get(partition, ()), wanted or 0
        end = end_of(s3, config, files)
        if end is None or max(end.at_least, end.offset or 0) <= offset:
            continue
        reach = max(end.at_least, end.offset or 0)
        covering = [name for name in files if name.start >= offset] or _last_group(s3, config, files)
        problems.append(
            f"{partition}{'' if wanted is None else f'={wanted}'} would be archived twice from offset "
            f"{offset} on: {_described(config, covering)}, and the archive ends "
            f"{'at' if end.offset is not None else 'not before'} offset {reach}. Set an offset from there "
            f"on, or move these files out of {config.layout().folder(partition.topic)} first"
        )
    return problems


def recovered(
    s3: S3, config: S3ArchiverConfig, topics: Iterable[str], given: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the offset of each partition up to which the archive goes.

    Args:
        given: what an operator knows of partitions whose files do not say where they end.

    Raises:
        ConnectException: he has to say more; S3 refuses, or does not answer.
    """
    names, offsets, unknown = files_of(s3, config, topics), dict(given), []
    for partition, files in sorted(names.items()):
        if partition in given:
            continue
        end = end_of(s3, config, files)
        if end is not None and end.offset is not None:
            offsets[partition] = end.offset
        elif end is not None:
            start = min(name.start for name in files if config.layout().file(name) in end.keys)
            unknown.append(
                f"{partition}: {', '.join(end.keys[:_NAMED])} do not say where they end. If the topic has "
                f"no gaps, as compaction and transactions leave them: {partition}={end.at_least}. Otherwise "
                f"move what was committed last ({len(end.keys)} files) away, and give {partition}={start}"
            )
    if unknown:
        raise ConnectException("; ".join(unknown))
    return offsets


def _described(config: S3ArchiverConfig, names: Sequence[FileName]) -> str:
    """A few of the files, for a message."""
    layout = config.layout()
    keys = [layout.file(name) for name in names[:_NAMED]]
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    count = "1 file holds" if len(names) == 1 else f"{len(names):,} files hold"
    return f"{count} records from there on ({', '.join(keys)}{more})"
