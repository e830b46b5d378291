"""Writes single files and transactions to topic directories, also for source tasks."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sinksdk.engine.options import TaskName
from sinksdk.engine.writer import CommittedOffsets, transactional_id
from sinksdk.errors import ConnectException, FencedException, RetriableException
from sinksdk.offsets import TopicPartition, is_topic_name
from sinksdk.records import SinkRecord, SinkRecords
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.source.positions import SourcePosition, partition_key
from sinksdk.source.records import RecordMetadata, SourceOffset, SourcePartition, SourceRecord
from sinksdk.topics.directory.layout import local_root, partition_folder
from sinksdk.topics.directory.log import (
    Disk,
    Entry,
    Extent,
    LogState,
    Position,
    TransactionLog,
    WriterEpoch,
)

Records: TypeAlias = "pa.Table | pa.RecordBatch | SinkRecords"
_ARRAY_BYTES: Final = 2**30  # an Arrow array of bytes holds at most 2 GiB
_WRITABLE: Final = "allow this process to write there"
_HARD_LINKS: Final = "writers need a file system with hard links; use another one"
_NO_FOLDER: Final = "a file is where a folder should be; give the path of a directory, or move the file away"
_REMEDIES: Final[Mapping[int, str]] = {
    errno.EACCES: _WRITABLE,
    errno.EPERM: f"{_WRITABLE}; {_HARD_LINKS}",  # link() raises this on file systems without hard links
    errno.EROFS: _WRITABLE,
    errno.ENOTSUP: _HARD_LINKS,
    errno.ENAMETOOLONG: "give the topic a shorter name, or the directory a shorter path",
    errno.ENOTDIR: _NO_FOLDER,
    errno.EISDIR: "a folder is where a file should be; move it away",
}  # errors that a retry does not resolve


def write_records(path: str | os.PathLike[str], partition: TopicPartition, records: Records) -> Path:
    """Write records as one file that appears complete; their offsets must be above all earlier ones.

    The file is named after its offsets: a writer that crashed may repeat its last call.
    """
    if isinstance(records, SinkRecords):
        records = records.arrow
    table = pa.Table.from_batches([records]) if isinstance(records, pa.RecordBatch) else records
    first, last = _extent(partition, table)
    folder = local_root(path) / partition_folder(partition)
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / f"{first:020d}-{last:020d}.parquet"
    temporary = folder / f"_{uuid.uuid4().hex}.tmp"
    try:
        pq.write_table(table, temporary)
        temporary.replace(final)
    finally:
        temporary.unlink(missing_ok=True)
    return final


def write_transaction(
    path: str | os.PathLike[str], records: Mapping[TopicPartition, Records]
) -> Mapping[TopicPartition, Path]:
    """Write records of several partitions so that readers see all of them at once or none."""
    root = local_root(path)
    log = TransactionLog(root)
    # From now on readers see only files that a transaction names, and none of `write_records`.
    log.create()  # created before the files, which would be visible at once without a log
    files = {partition: write_records(root, partition, rows) for partition, rows in records.items()}
    extents = []
    for partition, file in files.items():
        first, last = map(int, file.stem.split("-"))
        extents.append(
            Extent(topic=partition.topic, partition=partition.partition, start=first, end=last + 1)
        )
    names = tuple(file.relative_to(root).as_posix() for file in files.values())
    entry = Entry(files=names, extents=tuple(extents))
    log.refresh()
    while not log.append(entry):
        log.refresh()
    return files


def _extent(partition: TopicPartition, table: pa.Table) -> tuple[int, int]:
    if not table.num_rows or "offset" not in table.column_names or table.column("offset").null_count:
        raise ValueError(
            f"{partition}: there must be at least one record to write, and each must have an offset"
        )
    offsets = table.column("offset").to_numpy()
    if offsets[0] < 0 or (np.diff(offsets) <= 0).any():
        raise ValueError(f"{partition}: offsets must ascend without duplicates, and must not be negative")
    return int(offsets[0]), int(offsets[-1])


@contextmanager
def on_disk(where: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"the topic directory {where} cannot be written: {error}"
        remedy = _REMEDIES.get(error.errno or 0)
        if remedy is not None:
            raise ConnectException(f"{message}; {remedy}") from error
        raise RetriableException(message) from error


class _Attempt(NamedTuple):
    number: int
    starts: Mapping[TopicPartition, int]  # end offsets of the partitions when the files were written
    files: Mapping[TopicPartition, Path]
    is_written: bool


class TopicDirectoryWriter:
    def __init__(
        self,
        path: str | os.PathLike[str],
        transactional_id: str,
        connector: str,
        *,
        now: Callable[[], float] = time.time,
        disk: Disk | None = None,
    ) -> None:
        self._root = local_root(path)
        self._log = TransactionLog(self._root, disk)
        self._disk = self._log.disk
        self._id = transactional_id
        # A file name cannot contain every character of an id.
        self._tag = hashlib.sha256(self._id.encode()).hexdigest()[:16]
        self._connector = connector
        self._now = now
        self._epoch = 0
        self._attempts = 0
        self._attempt: _Attempt | None = None
        # Records stay in memory until the commit, when their offsets are known. Of several writers to one
        # partition, the slower one writes its files again.
        self._sent: list[SourceRecord] = []

    def init(self) -> None:
        with on_disk(self._root):
            self._log.create()
            while True:
                before = self._log.refresh().writers.get(self._id, WriterEpoch(id=self._id, epoch=0))
                self._epoch = before.epoch + 1
                if self._log.append(Entry(writer=WriterEpoch(id=self._id, epoch=self._epoch))):
                    break
            self._sweep(before)

    def begin(self) -> None:
        self._sent = []

    def send(self, record: SourceRecord) -> None:
        if not is_topic_name(record.topic):
            raise ConnectException(
                f"{self._root}: {record.topic!r} is not a topic name that Kafka allows, and no sink would "
                f"read it: use letters, digits, '.', '_' and '-', at most 249"
            )
        stamp = int(self._now() * 1000) if record.timestamp is None else record.timestamp
        self._sent.append(replace(record, timestamp=stamp))

    def commit(
        self, positions: Sequence[SourcePosition], forget: Sequence[SourcePartition] = ()
    ) -> Sequence[RecordMetadata]:
        parts: dict[TopicPartition, list[SourceRecord]] = defaultdict(list)
        for record in self._sent:
            parts[_partition_of(record)].append(record)
        with on_disk(self._root):
            while not self._is_committed(state := self._owned()):
                # The log is not read again before the append: if another writer has added an entry, the
                # append fails.
                attempt = self._write_attempt(parts, state)
                if self._log.append(self._entry(attempt, parts, positions, forget)):
                    break
        following = dict(self._attempt.starts) if self._attempt else {}
        written = []
        for partition in map(_partition_of, self._sent):
            written.append(RecordMetadata(*partition, following[partition]))
            following[partition] += 1
        self._attempt, self._sent = None, []
        return written

    def abort(self) -> None:
        with on_disk(self._root):
            if not self._is_committed(self._owned()):
                self._remove_attempt()
        self._sent = []

    def close(self) -> None:
        self._sent = []

    def _owned(self) -> LogState:
        state = self._log.refresh()
        owner = state.writers[self._id]
        # A fenced writer leaves its files: only the new owner knows whether they were committed.
        if owner.epoch != self._epoch:
            raise FencedException(
                f"transactional id {self._id} in the topic directory {self._root}: epoch {self._epoch} was "
                f"fenced by epoch {owner.epoch}; a newer attempt at the task writes there now"
            )
        return state

    def _is_committed(self, state: LogState) -> bool:
        """Whether the last attempt is in the log although its append failed."""
        return self._attempt is not None and state.writers[self._id].attempt == self._attempt.number

    def _write_attempt(self, parts: Mapping[TopicPartition, list[SourceRecord]], state: LogState) -> _Attempt:
        starts = {partition: state.ends.get(partition, 0) for partition in parts}
        if self._attempt is not None and self._attempt.is_written and self._attempt.starts == starts:
            return self._attempt
        self._remove_attempt()
        self._attempts += 1
        files = {}
        for partition, first in starts.items():
            # The name is unique to this writer, so that a slower writer's file never replaces a faster one's.
            last = first + len(parts[partition]) - 1
            name = f"{first:020d}-{last:020d}-{self._tag}-{self._epoch}-{self._attempts}.parquet"
            files[partition] = self._root / partition_folder(partition) / name
        self._attempt = _Attempt(self._attempts, starts, files, is_written=False)
        for partition, path in files.items():
            self._disk.make_folder(path.parent)
            table = table_of(partition, starts[partition], parts[partition])
            self._disk.write(path, partial(pq.write_table, table))
        self._attempt = self._attempt._replace(is_written=True)
        return self._attempt

    def _remove_attempt(self) -> None:
        attempt, self._attempt = self._attempt, None
        for path in attempt.files.values() if attempt else ():
            self._disk.remove(path)

    def _entry(
        self,
        attempt: _Attempt,
        parts: Mapping[TopicPartition, list[SourceRecord]],
        positions: Sequence[SourcePosition],
        forget: Sequence[SourcePartition],
    ) -> Entry:
        return Entry(
            files=tuple(path.relative_to(self._root).as_posix() for path in attempt.files.values()),
            extents=tuple(
                Extent(topic=p.topic, partition=p.partition, start=start, end=start + len(parts[p]))
                for p, start in attempt.starts.items()
            ),
            writer=WriterEpoch(id=self._id, epoch=self._epoch, attempt=attempt.number),
            positions=tuple(
                Position(connector=self._connector, partition=dict(p.partition), offset=dict(p.offset))
                for p in positions
            )
            + tuple(
                Position(connector=self._connector, partition=dict(partition), offset=None)
                for partition in forget
            ),
        )

    def _sweep(self, before: WriterEpoch) -> None:
        ours = re.compile(rf".*-{self._tag}-{before.epoch}-(\d+)\.parquet")
        for topic in self._disk.names(self._root):
            if not topic.startswith("topic="):
                continue
            for partition in self._disk.names(self._root / topic):
                folder = self._root / topic / partition
                for name in self._disk.names(folder):
                    if (match := ours.fullmatch(name)) and int(match[1]) > before.attempt:
                        self._disk.remove(folder / name)


class TopicDirectoryOffsets(CommittedOffsets):
    def __init__(self, path: str | os.PathLike[str], connector: str) -> None:
        self._log = TransactionLog(local_root(path))
        self._connector = connector

    def offsets(self, partitions: Sequence[SourcePartition]) -> Sequence[SourceOffset | None]:
        keys = [partition_key(partition) for partition in partitions]
        with on_disk(self._log.root):
            known = self._log.refresh().positions.get(self._connector, {})
        return [dict(known[key].offset) if key in known else None for key in keys]

    def positions(self) -> Sequence[SourcePosition]:
        with on_disk(self._log.root):
            return list(self._log.refresh().positions.get(self._connector, {}).values())


@dataclass(frozen=True, slots=True)
class TopicDirectoryTarget:
    path: str

    def writer(self, config: SourceConnectorConfig, name: TaskName) -> TopicDirectoryWriter:
        return TopicDirectoryWriter(self.path, transactional_id(config.group_id, name), name.connector)

    def offsets(self, config: SourceConnectorConfig) -> TopicDirectoryOffsets:
        return TopicDirectoryOffsets(self.path, config.name)


def _partition_of(record: SourceRecord) -> TopicPartition:
    return TopicPartition(record.topic, record.partition or 0)


def table_of(partition: TopicPartition, first: int, records: Sequence[SourceRecord | SinkRecord]) -> pa.Table:
    rows = [
        SinkRecord(*partition, offset, r.key, r.value, r.timestamp, headers=r.headers)
        for offset, r in enumerate(records, first)
    ]
    return pa.Table.from_batches([SinkRecords.of(partition, part).arrow for part in _parts(rows)])


def _parts(rows: Sequence[SinkRecord]) -> Iterator[Sequence[SinkRecord]]:
    # Keys and values of each part fit into one Arrow array.
    begin = size = 0
    for at, row in enumerate(rows):
        more = len(row.key or b"") + len(row.value or b"")
        if at > begin and size + more > _ARRAY_BYTES:
            yield rows[begin:at]
            begin, size = at, 0
        size += more
    yield rows[begin:]
