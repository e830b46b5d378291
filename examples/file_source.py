"""Follows a directory of text files (JSON lines, CSV, logs). Each line becomes a record, byte for byte.

Files are identified by their content, not by their names: the source partition is a content, identified by
its first lines; the offset is a position in it, verified by a digest of the bytes before it. So a file may be
renamed, copied and truncated, compressed or moved: lines that were read are not read again, and the rest is
read from the file that holds it now. The key of a record identifies its content: Kafka keeps the lines of a
file in one partition, and so in their order. A file whose whole content is the beginning of another's counts
as an older copy of it.
"""

import contextlib
import gzip
import hashlib
import logging
import os
import stat
import threading
import time
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from sinksdk import ConfigException, ConnectException
from sinksdk.source import (
    ExactlyOnceSupport,
    SourceConnector,
    SourceConnectorConfig,
    SourceOffset,
    SourceRecord,
    SourceTask,
)

log = logging.getLogger(__name__)

HEAD = 1_024  # maximum bytes of the first lines, which identify a content
TAIL = 64  # bytes before an offset, which verify that a file holds the content
CHUNK = 256 * 1_024  # bytes per read
UNFINISHED = (EOFError, zlib.error, gzip.BadGzipFile)  # raised for a file that is still being written
MARKS = 1_000  # remembered places per content, which identify older copies


class FileConfig(SourceConnectorConfig):
    directory: Path = Field(description="Directory whose files are followed, without its subdirectories.")
    file_pattern: str = Field(
        default="*",
        alias="file.pattern",
        description="Names of the files: `*.jsonl*` matches current and rotated files; `.gz` files are "
        "unpacked.",
    )
    topic: str = Field(description="Topic to write to.")
    skip_lines: int = Field(
        default=0,
        ge=0,
        alias="skip.lines",
        description="Lines to skip at the beginning of each file: 1 for the header of a CSV file.",
    )
    batch_records: int = Field(
        default=1_000, ge=1, alias="batch.records", description="Records of a transaction, at most."
    )
    max_line_bytes: int = Field(
        default=1_000_000,
        ge=1,
        alias="max.line.bytes",
        description="A longer line fails the task; the default is about the maximum of Kafka's default.",
    )
    poll_interval_ms: int = Field(
        default=500,
        ge=1,
        alias="poll.interval.ms",
        description="Milliseconds between two listings of the directory.",
    )
    file_idle_ms: int = Field(
        default=60_000,
        ge=0,
        alias="file.idle.ms",
        description="Milliseconds after which a file that did not grow is closed, and its last line is "
        "complete without a line end. A longer pause in the middle of a line cuts the line in two.",
    )
    task_number: int = Field(default=0, ge=0, alias="task.number", description="Set by the connector.")
    task_count: int = Field(default=1, ge=1, alias="task.count", description="Set by the connector.")


class Version(NamedTuple):
    """The state of a file; while it stays the same, so does the content."""

    device: int
    inode: int
    size: int
    changed: int

    @classmethod
    def of(cls, status: os.stat_result) -> "Version":
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class PlainFile:
    """An open file, which may be renamed, truncated or deleted meanwhile."""

    is_final = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stream = path.open("rb", buffering=0)

    def read(self, at: int, size: int) -> bytes:
        """Read in one call, so that a check of the bytes holds for all of them."""
        return os.pread(self.stream.fileno(), size, at)

    def status(self) -> os.stat_result:
        return os.fstat(self.stream.fileno())

    def close(self) -> None:
        self.stream.close()


class PackedFile(PlainFile):
    """A gzip file: complete, and read forward. Positions count unpacked bytes."""

    is_final = True

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.rewind()

    def rewind(self) -> None:
        self.stream.seek(0)
        self.unpacked = gzip.GzipFile(fileobj=self.stream)
        self.begin, self.window = 0, b""

    def read(self, at: int, size: int) -> bytes:
        if at < self.begin:
            self.rewind()
        while self.begin + len(self.window) < at + size:
            more = self.unpacked.read(CHUNK)
            if not more:
                break
            gone = min(len(self.window), max(at - self.begin, 0))
            self.window, self.begin = self.window[gone:] + more, self.begin + gone
        return self.window[at - self.begin :][:size]


def opened(path: Path) -> PlainFile | None:
    """Open a file; None if it has vanished."""
    try:
        return PackedFile(path) if path.suffix == ".gz" else PlainFile(path)
    except FileNotFoundError:
        return None


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


class Place(NamedTuple):
    """A position in a content, with a digest of the bytes before it."""

    byte: int
    tail: str

    def is_in(self, file: PlainFile) -> bool:
        back = min(TAIL, self.byte)
        before = file.read(self.byte - back, back)
        return len(before) == back and digest(before) == self.tail


START = Place(0, digest(b""))


class Content:
    """The content of one file, or of several that begin alike; read once, from any of them."""

    def __init__(self, first: str, number: int, place: Place, skip_lines: int) -> None:
        self.partition = {"first": first, "number": number}
        self.key = f"{first}-{number}".encode()
        self.place = place
        self.marks = deque([place], maxlen=MARKS)
        self.to_skip = 0 if place.byte else skip_lines
        self.file: PlainFile | None = None
        self.path: Path | None = None
        self.is_read = False
        self.is_over = False

    def is_in(self, file: PlainFile) -> bool:
        """Whether a file holds what was read of this content, or a beginning of it."""
        if self.place.is_in(file):
            return True
        if file.read(self.place.byte, 1) or not self.place.byte:
            return False
        size = file.status().st_size
        known = [mark for mark in self.marks if START.byte < mark.byte <= size]
        if known and not file.is_final:
            return known[-1].is_in(file)
        return self.begins_with(file)

    def begins_with(self, file: PlainFile) -> bool:
        """Whether the whole file is a beginning of the file that held this content last."""
        if self.path is None or self.path == file.path or (whole := opened(self.path)) is None:
            return False
        with contextlib.closing(whole):
            at = 0
            while data := file.read(at, CHUNK):
                if whole.read(at, len(data)) != data:
                    return False
                at += len(data)
        return True

    def is_older_than(self, file: PlainFile) -> bool:
        """Whether a file holds more than was read."""
        return self.place.is_in(file) and bool(file.read(self.place.byte, 1))

    def follow(self, file: PlainFile) -> None:
        self.close()
        self.file, self.is_read, self.is_over = file, False, False

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
        self.file = None

    def lines(self, most: int, config: FileConfig) -> Iterator[tuple[bytes, Place]]:
        """Yield complete lines from the current place on, each with the place after it.

        Raises:
            LookupError: the file holds another content by now.
        """
        file = self.file
        if file is None:
            return
        back, data = self.look(file, config)
        is_at_end = len(data) - back < CHUNK
        ends_anyway = is_at_end and has_ended(file, config)
        at = back
        if back and data[back - 1 : back] != b"\n" and data[back : back + 1] == b"\n":
            at += 1  # the line end of a line that counted as complete without it
        begin = self.place.byte - back
        for _ in range(most + self.to_skip):
            end = data.find(b"\n", at)
            behind = end + 1
            if end < 0:
                if not ends_anyway or at == len(data):
                    break
                end = behind = len(data)
            line, at = data[at:end], behind
            if len(line) > config.max_line_bytes:
                raise self.too_long(config)
            self.place = Place(begin + behind, digest(data[max(0, behind - TAIL) : behind]))
            if self.to_skip:
                self.to_skip -= 1
            else:
                yield line, self.place
        self.marks.append(self.place)
        self.is_read = is_at_end and data.find(b"\n", at) < 0
        self.is_over = ends_anyway and at == len(data)

    def look(self, file: PlainFile, config: FileConfig) -> tuple[int, bytes]:
        """Return the number of bytes before the place, and these and the following bytes: a whole line, or
        all."""
        back, size = min(TAIL, self.place.byte), CHUNK
        while True:
            data = file.read(self.place.byte - back, back + size)
            if len(data) < back or digest(data[:back]) != self.place.tail:
                message = f"{file.path} no longer holds the lines that were read"
                raise LookupError(message)
            if len(data) < back + size or b"\n" in data[back + 1 :]:
                return back, data
            if size > config.max_line_bytes:
                raise self.too_long(config)
            size *= 2

    def too_long(self, config: FileConfig) -> ConnectException:
        path = self.file.path if self.file else config.directory
        return ConnectException(
            f"{path} has a line of more than {config.max_line_bytes:,} bytes at byte {self.place.byte:,}; "
            f"raise 'max.line.bytes' if the topic takes such records, or remove the line from the file"
        )


def has_ended(file: PlainFile, config: FileConfig) -> bool:
    """Whether no more bytes are expected."""
    status = file.status()
    return file.is_final or not status.st_nlink or is_idle(status, config)


def is_idle(status: os.stat_result, config: FileConfig) -> bool:
    return time.time() - status.st_mtime >= config.file_idle_ms / 1_000


class FileTask(SourceTask):
    def __init__(self) -> None:
        self.contents: dict[str, list[Content]] = {}
        self.known: dict[Path, tuple[Version, Content | None, Place]] = {}
        self.broken: set[Path] = set()
        self.stopping = threading.Event()
        self.next_look = 0.0

    def start(self, config: FileConfig) -> None:
        self.config = config
        self.look()

    def poll(self) -> Sequence[SourceRecord]:
        if time.monotonic() >= self.next_look:
            self.look()
        records = self.read()
        if not records:
            self.stopping.wait(max(self.next_look - time.monotonic(), 0.001))
        return records

    def stop(self) -> None:
        self.stopping.set()

    def stopped(self) -> None:
        for content in self.all_contents():
            content.close()

    def all_contents(self) -> list[Content]:
        return [content for alike in self.contents.values() for content in alike]

    # -- reading -------------------------------------------------------------------------------------

    def read(self) -> list[SourceRecord]:
        """Read from each file in turn, so that a fast-growing file does not delay the others."""
        records: list[SourceRecord] = []
        followed = [content for content in self.all_contents() if content.file is not None]
        for number, content in enumerate(followed):
            share = -(-(self.config.batch_records - len(records)) // (len(followed) - number))
            try:
                for line, place in content.lines(share, self.config):
                    offset = {"byte": place.byte, "tail": place.tail}
                    records.append(
                        SourceRecord(content.partition, offset, self.config.topic, line, content.key)
                    )
            except (LookupError, *UNFINISHED):  # truncated: the unread lines are in a copy, if there is one
                content.close()
                self.known.clear()
        return records

    # -- which file holds what -----------------------------------------------------------------------

    def look(self) -> None:
        """List the directory and find out which content each file holds."""
        self.next_look = time.monotonic() + self.config.poll_interval_ms / 1_000
        self.let_go()
        paths = sorted(self.config.directory.glob(self.config.file_pattern))
        self.known = {path: self.known[path] for path in paths if path in self.known}
        new = [path for path in paths if self.is_new(path)]
        heads = {path: first for path in new if (first := self.first_of(path)) is not None}
        self.load(heads.values())
        # The longest first, so that a beginning of another file is recognised as its older copy.
        for path, first in sorted(heads.items(), key=lambda item: -size_of(item[0])):
            if int(first, 16) % self.config.task_count == self.config.task_number:
                self.settle(path, first)

    def let_go(self) -> None:
        """Close files that are read and do not grow; they are opened again when they do."""
        for content in self.all_contents():
            if content.file is not None and content.is_over:
                content.close()
                content.marks = deque([content.place], maxlen=MARKS)  # there may be many closed contents

    def is_new(self, path: Path) -> bool:
        """Whether a file, or the content it was found to hold, has changed since the last listing."""
        try:
            status = path.stat()
        except FileNotFoundError:
            return False
        version, content, place = self.known.get(path, (None, None, START))
        is_as_before = version == Version.of(status) and (content is None or content.place == place)
        return stat.S_ISREG(status.st_mode) and not is_as_before

    def first_of(self, path: Path) -> str | None:
        """Return the digest of a file's first lines, which identifies its content; None if they are
        incomplete."""
        file = opened(path)
        if file is not None:
            with contextlib.closing(file), self.if_whole(file):
                return self.first_in(file)
        return None

    @contextlib.contextmanager
    def if_whole(self, file: PlainFile) -> Iterator[None]:
        """Leave an incomplete gzip file to the next listing; warn once if it does not grow any more."""
        try:
            yield
        except UNFINISHED as error:
            if file.path not in self.broken and is_idle(file.status(), self.config):
                self.broken.add(file.path)
                log.warning(
                    "%s is not read: the gzip file is incomplete (%s); repair or rename it", file.path, error
                )

    def first_in(self, file: PlainFile) -> str | None:
        lines = self.config.skip_lines + 1
        head = file.read(0, HEAD)
        is_there = head.count(b"\n") >= lines or len(head) == HEAD
        if not head or not (is_there or file.is_final or is_idle(file.status(), self.config)):
            return None
        return digest(b"\n".join(head.split(b"\n", lines)[:lines]))

    def load(self, firsts: Iterable[str]) -> None:
        """Look up the committed offsets of all new contents in one request."""
        unknown = sorted(set(firsts) - set(self.contents))
        self.contents.update({first: [] for first in unknown})
        while unknown:
            partitions = [{"first": first, "number": len(self.contents[first])} for first in unknown]
            offsets = self.context.offset_storage_reader().offsets(partitions)
            for first, offset in zip(list(unknown), offsets, strict=True):
                if offset is None:
                    unknown.remove(first)
                else:
                    self.add(first, place_of(offset))

    def add(self, first: str, place: Place) -> Content:
        alike = self.contents[first]
        alike.append(Content(first, len(alike), place, self.config.skip_lines))
        return alike[-1]

    def settle(self, path: Path, first: str) -> None:
        """Assign a file to the content that it holds, and follow it if it holds more than was read."""
        file = opened(path)
        if file is None:
            return
        with contextlib.ExitStack() as stack:
            stack.callback(file.close)
            stack.enter_context(self.if_whole(file))
            if self.first_in(file) != first:
                return  # replaced meanwhile: the next listing finds it
            version = Version.of(file.status())
            held = [content for content in self.contents[first] if content.is_in(file)]
            content = max(held, key=lambda c: c.place.byte) if held else self.add(first, START)
            if content.place.is_in(file):
                content.path = path
            if (content.file is None or content.is_read) and content.is_older_than(file):
                content.follow(file)
                stack.pop_all()  # it stays open
            self.known[path] = version, content, content.place


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def place_of(offset: SourceOffset) -> Place:
    return Place(int(str(offset["byte"])), str(offset["tail"]))


class FileSource(SourceConnector):
    config_class, task_class = FileConfig, FileTask

    def start(self, config: FileConfig) -> None:
        if not config.directory.is_dir():
            raise ConfigException(f"'directory': {config.directory} does not exist; create it")

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{"task.number": str(n), "task.count": str(max_tasks)} for n in range(max_tasks)]

    def exactly_once_support(self, config: FileConfig) -> ExactlyOnceSupport:  # noqa: ARG002 - always
        return ExactlyOnceSupport.SUPPORTED
