"""Writes dead letters to a topic directory; they are durable before their task commits."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Self

import pyarrow.parquet as pq

from sinksdk.errors import ConfigException, ConnectException, RetriableException
from sinksdk.offsets import TopicPartition
from sinksdk.records import SinkRecord
from sinksdk.settings.job import DEAD_LETTER_DIRECTORY
from sinksdk.support.threads import start_thread
from sinksdk.topics.directory.layout import FileStat, Unfinished, is_hidden, local_root, partition_folder
from sinksdk.topics.directory.log import Disk, Entry, Extent, TransactionLog
from sinksdk.topics.directory.reader import Footers
from sinksdk.topics.directory.writer import on_disk, table_of

_NUMBERED: Final = re.compile(r"\d{20}\.parquet")  # names of files: the offset of their first record
_BUFFER: Final = 32 * 2**20  # bytes that may wait to be written
_PATIENCE: Final = 120.0  # seconds for which a write is retried, as by Kafka's producer
_PAUSE: Final = 1.0  # seconds between two attempts
_FLUSH: Final = 5.0  # seconds for dead letters that no commit waits for


class _Letter(NamedTuple):
    record: SinkRecord
    written: Future[None]


class DirectoryDeadLetters:
    def __init__(
        self,
        path: str | Path,
        topic: str,
        *,
        patience: float = _PATIENCE,
        now: Callable[[], float] = time.time,
        disk: Disk | None = None,
    ) -> None:
        self._root = local_root(path)
        self._partition = TopicPartition(topic, 0)
        self._folder = self._root / partition_folder(self._partition)
        self._log = TransactionLog(self._root, disk)
        self._disk = self._log.disk
        self._footers = Footers(Unfinished(0.0))
        self._patience = patience
        self._now = now
        self._waiting: deque[_Letter] = deque()
        self._size = 0
        self._changed = threading.Condition()
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(_FLUSH)

    def send(self, record: SinkRecord) -> Future[None]:
        if record.timestamp is None:
            record = replace(record, timestamp=int(self._now() * 1000))
        letter = _Letter(record, Future())
        letter.written.set_running_or_notify_cancel()  # a running future cannot be cancelled
        with self._changed:
            if self._thread is None:
                self._thread = start_thread(self._work, "dead-letters")
            self._changed.wait_for(lambda: self._size < _BUFFER)
            self._waiting.append(letter)
            self._size += _size(record)
            self._changed.notify_all()
        return letter.written

    # All records that wait are written as one file, so that files are few and tasks do not wait for each
    # record.
    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_stopped)
                letters = list(self._waiting)
                self._waiting.clear()
            if not letters:
                return
            try:
                self._write([letter.record for letter in letters])
            except Exception as error:  # noqa: BLE001 - the letters' futures raise it
                for letter in letters:
                    letter.written.set_exception(self._lost(letter.record, error))
            else:
                for letter in letters:
                    letter.written.set_result(None)
            with self._changed:
                self._size -= sum(_size(letter.record) for letter in letters)
                self._changed.notify_all()

    def _lost(self, record: SinkRecord, error: Exception) -> ConnectException:
        lost = ConnectException(
            f"the record of {record.topic_partition} at offset {record.offset} could not be written to the "
            f"dead letter topic '{self._partition.topic}': {error}"
        )
        lost.__cause__ = error
        return lost

    def _write(self, records: Sequence[SinkRecord]) -> None:
        # A retry may append records again.
        give_up = time.monotonic() + self._patience
        while True:
            try:
                with on_disk(self._root):
                    if self._log.can_create():
                        self._log.create()
                        self._append(records)
                    else:  # the directory has files that no transaction names
                        self._add_file(records)
            except RetriableException:
                if time.monotonic() + _PAUSE > give_up:
                    raise
                time.sleep(_PAUSE)
            else:
                return

    def _append(self, records: Sequence[SinkRecord]) -> None:
        while True:
            first = self._log.refresh().ends.get(self._partition, 0)
            end = first + len(records)
            path = self._folder / f"{first:020d}-{end - 1:020d}-{uuid.uuid4().hex}.parquet"
            self._write_file(path, records, first)
            extent = Extent(
                topic=self._partition.topic, partition=self._partition.partition, start=first, end=end
            )
            name = path.relative_to(self._root).as_posix()
            if self._log.append(Entry(files=(name,), extents=(extent,))):
                return
            self._disk.remove(path)  # another writer was faster

    def _add_file(self, records: Sequence[SinkRecord]) -> None:
        # Each file begins where the last one ends. If several writers write at once, one that has read an
        # older end finds its file name taken.
        while True:
            first = self._end()
            temporary = self._folder / f"_{uuid.uuid4().hex}.tmp"
            try:
                self._write_file(temporary, records, first)
                if self._disk.link(temporary, self._folder / f"{first:020d}.parquet"):
                    return
            finally:
                with suppress(OSError):
                    self._disk.remove(temporary)

    def _write_file(self, path: Path, records: Sequence[SinkRecord], first: int) -> None:
        self._disk.make_folder(path.parent)
        self._disk.write(path, partial(pq.write_table, table_of(self._partition, first, records)))

    def _end(self) -> int:
        names = [n for n in self._disk.names(self._folder) if n.endswith(".parquet") and not is_hidden(n)]
        last = max(filter(_NUMBERED.fullmatch, names), default=None)
        unknown = [name for name in names if name == last or not _NUMBERED.fullmatch(name)]
        found = [self._footers.read(FileStat.of(self._folder / name), self._partition) for name in unknown]
        return max((file.last + 1 for file in found if file), default=0)


def check_directory(path: str, *, is_sources: bool) -> None:
    root, disk = local_root(path), Disk()
    probe = root / f"_{uuid.uuid4().hex}.probe"
    try:
        if not root.parent.is_dir():
            raise ConfigException(f"the folder {root.parent} does not exist")
        with on_disk(root):
            disk.make_folder(root)
            try:
                disk.create(probe, b"")
            finally:
                disk.remove(probe)
    except RetriableException:
        raise
    except ConnectException as error:
        whose = "the source's directory, the default" if is_sources else f"'{DEAD_LETTER_DIRECTORY}'"
        remedy = f"; set another directory with '{DEAD_LETTER_DIRECTORY}'" if is_sources else ""
        raise ConfigException(
            f"dead letters cannot be written to {root} ({whose}): {error}{remedy}"
        ) from error


def _size(record: SinkRecord) -> int:
    headers = sum(len(header.key) + len(header.value or b"") for header in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + 100
