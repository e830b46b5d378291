"""Where the records go: files that are written hidden, and renamed once committed.

Put your destination in the place of these: begin something that no reader sees, write
to it, make it durable, publish it, discard it. Publish and discard may happen in
another process, years later, and more than once: all they know is the token.
"""

import json
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from sinksdk import ConnectException, SinkRecord, SinkRecords, Token, TopicPartition


@dataclass
class HiddenFile:
    """A file that readers do not look at yet."""

    token: Token
    stream: BinaryIO
    records: int = 0
    end: int = 0
    """Bytes of what was accepted: behind it is what a put has left that failed."""

    @classmethod
    def begin(cls, folder: Path, partition: TopicPartition, offset: int) -> Self:
        """Make it, empty: what a crash leaves behind right now holds nothing."""
        name = f"{partition}+{offset:020d}"
        hidden = folder.absolute() / f".{name}-{uuid.uuid4().hex}"
        visible = folder.absolute() / f"{name}.jsonl"
        token = Token(str(hidden), {"visible": str(visible)})
        return cls(token, hidden.open("xb"))

    def write(self, records: SinkRecords) -> int:
        """Write them behind what was accepted, and return the new end.

        When this fails with RetriableException, the same records come again.
        """
        self.cut()
        self.stream.writelines(line(record).encode() for record in records)
        return self.stream.tell()

    def cut(self) -> None:
        """Take back what was not accepted."""
        self.stream.seek(self.end)
        self.stream.truncate()

    def finish(self) -> None:
        """Make it durable: the commit comes next."""
        self.cut()
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.stream.close()
        sync(Path(self.token.id).parent)


def publish(token: Token) -> None:
    hidden, visible = Path(token.id), Path(token.data["visible"])
    try:
        hidden.rename(visible)
    except FileNotFoundError as error:
        if not visible.exists():  # else it was published before
            message = f"{hidden} was committed and is gone; restore it from a backup"
            raise ConnectException(message) from error
    sync(visible.parent)


def discard(token: Token) -> None:
    Path(token.id).unlink(missing_ok=True)


def line(record: SinkRecord) -> str:
    """What becomes of a record; its key and value are what the converters made."""
    content = {"offset": record.offset, "key": record.key, "value": record.value}
    return json.dumps(content, default=text) + "\n"


def text(value: object) -> str:
    """Keys and values are bytes where no converter is configured."""
    if isinstance(value, bytes):
        return value.decode()
    message = f"{type(value).__name__} has no form in JSON"
    raise TypeError(message)


def sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
