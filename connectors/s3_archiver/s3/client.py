"""The part of S3 that the archiver uses, as a protocol; boto3 implements it, and tests in memory.

Every method raises ``S3Trouble`` (a RetriableException) if the request may succeed later; after ``NoAnswer``
it may also have taken effect. It raises ``S3Error`` if S3 refuses it for good.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import BinaryIO, NamedTuple, Protocol


class Checksum(StrEnum):
    """The checksum that S3 verifies of a multipart upload, besides the parts' own."""

    FULL = "full"
    """The CRC32 of the whole object."""

    COMPOSITE = "composite"
    """The CRC32 of each part; S3 keeps a checksum of these checksums."""

    NONE = "none"
    """No additional checksum: S3 verifies the MD5 of each part."""


class Abilities(NamedTuple):
    """The features of an endpoint for multipart uploads.

    Args:
        checksum: the best checksum that it accepts.
        has_conditions: whether it honours ``If-None-Match`` of CompleteMultipartUpload.
    """

    checksum: Checksum = Checksum.FULL
    has_conditions: bool = True


class Location(NamedTuple):
    bucket: str
    key: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


class Part(NamedTuple):
    etag: str
    crc32: str
    """Base64 of the CRC32, big endian, as in S3."""


class ObjectInfo(NamedTuple):
    size: int
    metadata: Mapping[str, str]
    crc32: str | None
    """CRC32 of the whole object, in S3's notation; None if the endpoint keeps none."""
    etag: str = ""


class ObjectSummary(NamedTuple):
    key: str
    size: int


class PendingUpload(NamedTuple):
    """A multipart upload that is neither completed nor aborted."""

    key: str
    upload_id: str
    initiated: float = math.inf
    """Seconds since the epoch, by the endpoint's clock; infinite if the endpoint does not report it."""


class S3(Protocol):
    """Requests to one endpoint."""

    @property
    def endpoint(self) -> str:
        """Address of the endpoint, for tokens and messages; empty for AWS's own."""

    def head_bucket(self, bucket: str) -> float:
        """Check that the bucket exists and is accessible.

        Returns:
            The endpoint's time, in seconds since the epoch; minus infinity if it does not report it.
        """

    def create_upload(
        self, location: Location, metadata: Mapping[str, str], checksum: Checksum = Checksum.FULL
    ) -> str:
        """Begin a multipart upload with a checksum of this kind; return its id."""

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
        """Send one part (numbers from 1); sending a number again replaces it."""

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
        """Make the object visible; S3 checks size and CRC32 of the whole, or as ``checksum`` says.

        With ``if_absent`` it fails with ``PreconditionFailed`` if the object exists, or with
        ``NotImplemented`` at endpoints without conditions. Fails with ``NoSuchUpload`` if the upload was
        aborted, expired, or completed some time ago.
        """

    def abort_upload(self, location: Location, upload_id: str) -> None:
        """Abort an upload and free its parts. Fails with ``NoSuchUpload``."""

    def head(self, location: Location) -> ObjectInfo | None:
        """Return the object; None if it does not exist."""

    def put_if_absent(self, location: Location, body: bytes) -> bool:
        """Create a small object; False if it exists (after a lost response perhaps our own)."""

    def put_if_match(self, location: Location, body: bytes, etag: str) -> bool:
        """Replace a small object that still has this ETag; False if it has another one or is gone."""

    def put(self, location: Location, body: bytes) -> None:
        """Overwrite a small object: for endpoints without conditional writes."""

    def read(self, location: Location) -> BinaryIO:
        """Return an object's content as a stream to be closed. Fails with ``NoSuchKey``."""

    def list(self, bucket: str, prefix: str, after: str = "") -> Iterator[ObjectSummary]:
        """Yield objects whose key begins with a prefix and sorts after another key, in order."""

    def list_uploads(self, bucket: str, prefix: str) -> Iterator[PendingUpload]:
        """Yield uploads under way whose key begins with a prefix."""

    def part_sizes(self, location: Location, upload_id: str) -> Sequence[int] | None:
        """Return the bytes of each part of an upload under way; None if there is no such upload."""

    def delete(self, location: Location) -> None:
        """Delete an object, if it exists. There is no condition: no other process may need it."""

    def tag(self, location: Location, tags: Mapping[str, str]) -> None:
        """Replace an object's tags."""
