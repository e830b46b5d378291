"""Reading an archived file back: block by block, in bounded memory, every byte of it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, cast

import fastavro

from sinksdk import ConnectException
from sinksdk.connectors.s3_archiver import crc
from sinksdk.connectors.s3_archiver.chain import Archived, FileHeader
from sinksdk.connectors.s3_archiver.client import S3, Location
from sinksdk.connectors.s3_archiver.layout import FileName

_COORDINATES: Final[dict[str, Any]] = {
    "type": "record",
    "name": "sinksdk.Record",
    "fields": [
        {"name": "topic", "type": "string"},
        {"name": "partition", "type": "int"},
        {"name": "offset", "type": "long"},
    ],
}
"""What is decoded; the other fields are walked over, which finds damage just as well."""


class Unreadable(Exception):
    """A file is damaged, or not what its name says; the message says how."""


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """What is in one archived file.

    Args:
        key: its key.
        size: its bytes.
        header: what it says of itself.
        records: how many records it holds.
        first: offset of the first of them.
        last: offset of the last.
        gaps: how many offsets between them it does not hold.
    """

    key: str
    size: int
    header: FileHeader
    records: int
    first: int
    last: int

    @property
    def gaps(self) -> int:
        """Offsets between the first and the last that it does not hold."""
        return self.last - self.first + 1 - self.records

    @property
    def archived(self) -> Archived:
        """What the partition's archive consists of with it."""
        return self.header.before.with_file(self.records, self.last + 1)


def inspect(s3: S3, location: Location, name: FileName) -> ArchivedFile:
    """Read a file to its end.

    Args:
        s3: the endpoint.
        location: where it is.
        name: what its key says.

    Raises:
        Unreadable: damaged, or not what its name says.
        S3Trouble: no answer.
        S3Error: refused.
    """
    with s3.read(location) as content:
        counted = _Counted(content)
        try:
            blocks = fastavro.block_reader(cast("BinaryIO", counted), _COORDINATES)
            header = FileHeader.of(blocks.metadata)
            order = _Order(name)
            for block in blocks:
                order.follow(cast("Iterable[dict[str, Any]]", block))
        except ConnectException:
            raise
        except Exception as error:
            raise Unreadable(f"{location} cannot be read: {str(error) or type(error).__name__}") from error
        counted.drain()
    _check_whole(s3, location, counted)
    if (header.partition, header.start) != name or order.first != name.start:
        raise Unreadable(
            f"{location} is not what its name says: its header says {header.partition} from offset "
            f"{header.start}, its records begin at {order.first}"
        )
    return ArchivedFile(location.key, counted.size, header, order.records, order.first, order.last)


def _check_whole(s3: S3, location: Location, counted: _Counted) -> None:
    """What was read is what S3 checked when the object was made."""
    info = s3.head(location)
    if info is None:
        raise Unreadable(f"{location} was removed while it was being read")
    if info.size != counted.size:
        raise Unreadable(f"{location} has {info.size} bytes, of which {counted.size} were received")
    if info.crc32 is not None and info.crc32 != crc.encode(counted.crc32):
        raise Unreadable(f"{location} is damaged: CRC32 {crc.encode(counted.crc32)}, S3 has {info.crc32}")


class _Order:
    """Follows a file's records: all of one partition, offsets ascending."""

    def __init__(self, name: FileName) -> None:
        self._name = name
        self.first = -1
        self.last = -1
        self.records = 0

    def follow(self, rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            offset = row["offset"]
            if (row["topic"], row["partition"]) != self._name.partition:
                message = f"it holds a record of {row['topic']}-{row['partition']} (offset {offset})"
                raise ValueError(message)
            if offset <= self.last:
                what = "twice" if offset == self.last else f"after {self.last}"
                message = f"it holds offset {offset} {what}"
                raise ValueError(message)
            if not self.records:
                self.first = offset
            self.last = offset
            self.records += 1


class _Counted:
    """A stream that counts and checksums what is read from it."""

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
