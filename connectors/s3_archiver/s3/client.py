"""The S3 requests that the archiver makes, as a protocol.

Every method raises ``S3TransientError`` if the request may succeed later (after ``NoResponse`` it may have
taken effect), and ``S3Error`` if S3 refuses it for good.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import BinaryIO, NamedTuple, Protocol


class Checksum(StrEnum):
    FULL = "full"  # CRC32 of the whole object

    COMPOSITE = "composite"  # CRC32 of each part; S3 keeps a checksum of these

    NONE = "none"  # only the MD5 of each part


class Abilities(NamedTuple):
    checksum: Checksum = Checksum.FULL  # the best that the endpoint accepts
    has_conditions: bool = True  # CompleteMultipartUpload honours If-None-Match


class Location(NamedTuple):
    bucket: str
    key: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


class Part(NamedTuple):
    etag: str
    crc32: str  # base64 of four bytes, big-endian


class ObjectInfo(NamedTuple):
    size: int
    metadata: Mapping[str, str]
    crc32: str | None  # CRC32 of the whole object, in the form of Part; None if the endpoint stores none
    etag: str = ""


class ObjectSummary(NamedTuple):
    key: str
    size: int


class PendingUpload(NamedTuple):
    key: str
    upload_id: str
    initiated: float = math.inf  # seconds since the epoch, by the endpoint's clock; infinite if unknown


class S3(Protocol):
    @property
    def endpoint(self) -> str:
        """The address; empty for AWS's own."""

    def head_bucket(self, bucket: str) -> float:
        """Return the endpoint's time in epoch seconds, or minus infinity if it is unknown."""

    def create_upload(
        self, location: Location, metadata: Mapping[str, str], checksum: Checksum = Checksum.FULL
    ) -> str: ...

    def upload_part(
        self,
        location: Location,
        upload_id: str,
        number: int,
        body: bytes | bytearray,
        crc32: str,
        *,
        checksum: Checksum = Checksum.FULL,
    ) -> Part:
        """Send or replace part ``number``, counted from 1."""

    def complete_upload(
        self,
        location: Location,
        upload_id: str,
        parts: Sequence[Part],
        *,
        size: int,
        crc32: str,
        if_absent: bool = True,
        checksum: Checksum = Checksum.FULL,
    ) -> None:
        """Make the object visible, after S3 has checked its size and checksum.

        Fails with ``PreconditionFailed`` if ``if_absent`` and the object exists, with ``NotImplemented`` at
        endpoints without conditions, and with ``NoSuchUpload`` if the upload was aborted, expired or
        completed before.
        """

    def abort_upload(self, location: Location, upload_id: str) -> None:
        """Free the parts of an upload. Fails with ``NoSuchUpload``."""

    def head(self, location: Location) -> ObjectInfo | None: ...

    def put_if_absent(self, location: Location, body: bytes) -> bool:
        """Return False if the object exists: after a lost response, perhaps this process's own."""

    def put_if_match(self, location: Location, body: bytes, etag: str) -> bool:
        """Return False if the object has another ETag or does not exist."""

    def put(self, location: Location, body: bytes) -> None:
        """Overwrite a small object, at endpoints without conditional writes."""

    def read(self, location: Location) -> BinaryIO:
        """Return a stream that the caller closes. Fails with ``NoSuchKey``."""

    def list(self, bucket: str, prefix: str, after: str = "") -> Iterator[ObjectSummary]:
        """Yield objects in the order of their keys, beginning behind the key ``after``."""

    def list_uploads(self, bucket: str, prefix: str) -> Iterator[PendingUpload]: ...

    def part_sizes(self, location: Location, upload_id: str) -> Sequence[int] | None:
        """Return the bytes of each part; None if there is no such upload."""

    def delete(self, location: Location) -> None:
        """Delete an object without any condition: no other process may need it."""

    def tag(self, location: Location, tags: Mapping[str, str]) -> None: ...
