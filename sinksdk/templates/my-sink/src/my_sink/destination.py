"""The destination: files that are hidden until they are committed, then renamed.

Replace them by your destination: begin something that no reader sees, write to it,
make it durable, publish it, discard it. Publish and discard may run in another
process, much later, and more than once; all they have is the token.
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
    """A file that readers do not see yet."""

    token: Token
    stream: BinaryIO
    records: int = 0
    end: int = 0
    """Bytes of accepted records. A put that failed may have left more behind them."""

    @classmethod
    def begin(cls, folder: Path, partition: TopicPartition, offset: int) -> Self:
        """Create the file empty: a crash before its token is stored leaves no data."""
        name = f"{partition}+{offset:020d}"
        hidden = folder.absolute() / f".{name}-{uuid.uuid4().hex}"
        visible = folder.absolute() / f"{name}.jsonl"
        token = Token(str(hidden), {"visible": str(visible)})
        return cls(token, hidden.open("xb"))

    def write(self, records: SinkRecords) -> int:
        """Append to the accepted records, and return the new end of the file.

        After a RetriableException the same records are written again.
        """
        self.cut()
        self.stream.writelines(line(record).encode() for record in records)
        return self.stream.tell()

    def cut(self) -> None:
        """Remove the rest of a put that failed."""
        self.stream.seek(self.end)
        self.stream.truncate()

    def finish(self) -> None:
        """Make the file durable: the commit comes next."""
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
        if not visible.exists():  # otherwise the file is already published
            message = f"{hidden} was committed and is missing; restore it from a backup"
            raise ConnectException(message) from error
    sync(visible.parent)


def discard(token: Token) -> None:
    Path(token.id).unlink(missing_ok=True)


def line(record: SinkRecord) -> str:
    """Format a record, whose key and value are already converted."""
    content = {"offset": record.offset, "key": record.key, "value": record.value}
    return json.dumps(content, default=text) + "\n"


def text(value: object) -> str:
    """Decode keys and values without a converter: they are bytes."""
    if isinstance(value, bytes):
        return value.decode()
    message = f"{type(value).__name__} cannot be written as JSON"
    raise TypeError(message)


def sync(folder: Path) -> None:
    """Make the names in the folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
