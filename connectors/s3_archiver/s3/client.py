"""The part of S3 that the archiver needs, as a protocol: boto3 implements it, and memory in tests.

Every method raises ``S3Trouble`` (a RetriableException) when the
request may succeed later; after ``NoAnswer`` it may also have taken effect. It raises
``S3Error`` when S3 refused it for good.
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
    """No additional checksum: parts travel with their MD5, which S3 has always verified."""


class Abilities(NamedTuple):
    """What an endpoint can do with multipart uploads.

    Args:
        checksum: the best checksum that it takes.
        has_conditions: whether it honours ``If-None-Match`` of CompleteMultipartUpload.
    """

    checksum: Checksum = Checksum.FULL
    has_conditions: bool = True


class Location(NamedTuple):
    """Where an object is, or will be."""

    bucket: str
    key: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


class Part(NamedTuple):
    """One part of a multipart upload, as S3 has it."""

    etag: str
    crc32: str
    """Base64 of the CRC32, big endian, as S3 writes it."""


class ObjectInfo(NamedTuple):
    """What S3 says of an object without sending it."""

    size: int
    metadata: Mapping[str, str]
    crc32: str | None
    """CRC32 of the whole object, in S3's writing; None where the store keeps none."""
    etag: str = ""


class ObjectSummary(NamedTuple):
    """One object in a listing."""

    key: str
    size: int


class PendingUpload(NamedTuple):
    """A multipart upload that is neither completed nor aborted."""

    key: str
    upload_id: str
    initiated: float = math.inf
    """Seconds since the epoch, by the endpoint's clock; infinite if the endpoint does not say."""


class S3(Protocol):
    """Requests to one endpoint."""

    @property
    def endpoint(self) -> str:
        """Address of the endpoint, for tokens and messages; empty for AWS's own."""

    def head_bucket(self, bucket: str) -> float:
        """Check that the bucket exists and may be used.

        Returns:
            The endpoint's time before anything that is requested later, in seconds since the epoch; minus
            infinity if it does not say.
        """

    def create_upload(
        self, location: Location, metadata: Mapping[str, str], checksum: Checksum = Checksum.FULL
    ) -> str:
        """Begin a multipart upload with a checksum of this kind; returns its id."""

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
        """Make the object visible; S3 checks size and CRC32 of the whole, or what ``checksum`` says.

        With ``if_absent`` only where no object is (``If-None-Match: *``): then it fails with
        ``PreconditionFailed``, or ``NotImplemented`` by stores that know no conditions. Fails with
        ``NoSuchUpload`` when the upload was aborted, expired, or completed some time ago.
        """

    def abort_upload(self, location: Location, upload_id: str) -> None:
        """Give an upload up and free its parts. Fails with ``NoSuchUpload``."""

    def head(self, location: Location) -> ObjectInfo | None:
        """The object, None if there is none."""

    def put_if_absent(self, location: Location, body: bytes) -> bool:
        """Create a small object; False when one is there (after a lost answer: perhaps our own)."""

    def put_if_match(self, location: Location, body: bytes, etag: str) -> bool:
        """Replace a small object that still has this ETag; False when it has another one or is gone."""

    def put(self, location: Location, body: bytes) -> None:
        """Write a small object over an existing one: for stores without conditional writes."""

    def read(self, location: Location) -> BinaryIO:
        """An object's content as a stream to be closed. Fails with ``NoSuchKey``."""

    def list(self, bucket: str, prefix: str, after: str = "") -> Iterator[ObjectSummary]:
        """Objects whose key begins with a prefix and comes after another key, by key."""

    def list_uploads(self, bucket: str, prefix: str) -> Iterator[PendingUpload]:
        """Uploads under way whose key begins with a prefix."""

    def part_sizes(self, location: Location, upload_id: str) -> Sequence[int] | None:
        """Return the bytes of each part of an upload under way; None if there is no such upload."""

    def delete(self, location: Location) -> None:
        """Remove an object that nobody else ever needs, for there is no condition; gone is as good."""

    def tag(self, location: Location, tags: Mapping[str, str]) -> None:
        """Replace an object's tags."""
