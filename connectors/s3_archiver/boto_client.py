"""S3 through boto3: one client per process and configuration, parts checksummed by us.

How a part travels decides the speed. boto3 by default either hashes every body with SHA-256 (plain
http) or wraps it into signed chunks (TLS). Here the part's CRC32, computed while it was filled, goes
as a header and the payload is left unsigned: TLS keeps the body from being altered on its way, and
S3 checks the CRC32. Over plain http the body is left unsigned only to this very machine; on a
network, the signature is all that protects it (and AWS refuses unsigned payloads over http).
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

from botocore import exceptions as boto

from sinksdk.connectors.s3_archiver import credentials
from sinksdk.connectors.s3_archiver.access import Keys, Role
from sinksdk.connectors.s3_archiver.client import Location, ObjectInfo, ObjectSummary, Part, PendingUpload
from sinksdk.connectors.s3_archiver.credentials import ASSUME_ROLE
from sinksdk.connectors.s3_archiver.errors import (
    NO_ANSWER,
    NO_SUCH_KEY,
    NO_SUCH_UPLOAD,
    PASSING,
    PRECONDITION_FAILED,
    ROLE_REFUSED,
    Request,
    S3Error,
    S3Trouble,
    failure_of,
)

if TYPE_CHECKING:
    from botocore.response import StreamingBody
    from mypy_boto3_s3 import S3Client

    from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig

T = TypeVar("T")

_CONNECT_TIMEOUT: Final = 5  # seconds
# A part answers within seconds, and a long CompleteMultipartUpload sends spaces to keep the connection
# alive: more silence than this is a lost connection, and a closing task has no minute to find it out.
_READ_TIMEOUT: Final = 30  # seconds
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_READ_SIZE: Final = 256 * 1024
_NO_ANSWER = (
    boto.ConnectionError,
    boto.HTTPClientError,
    boto.IncompleteReadError,
    boto.CredentialRetrievalError,
    boto.MetadataRetrievalError,
)


class _ClientKey(NamedTuple):
    """What makes one boto3 client differ from another."""

    process: int  # a forked process must not share its parent's connections
    endpoint: str
    region: str
    is_path_style: bool
    is_accelerated: bool
    attempts: int
    keys: Keys
    role: Role | None
    proxy: str


def connect(config: S3ArchiverConfig, endpoint: str | None = None) -> BotoS3:
    """A client for a configuration, from this process's cache.

    Args:
        config: region, credentials, retries, encryption.
        endpoint: address instead of the configured ``store.url``; empty for AWS's own.
    """
    address = config.store_url if endpoint is None else endpoint
    client = _client(
        _ClientKey(
            process=os.getpid(),
            endpoint=address,
            region=config.s3_region,
            is_path_style=config.s3_path_style_access,
            is_accelerated=config.s3_wan_mode,
            attempts=config.s3_part_retries + 1,
            keys=config.keys_of_access(),
            role=config.role(),
            proxy=config.proxy(),
        )
    )
    return BotoS3(client, address, config.creation_options())


@lru_cache(maxsize=16)  # a session and a client cost about half a second
def _client(key: _ClientKey) -> S3Client:
    import boto3  # noqa: PLC0415 - 0.2 s that only a process which talks to S3 should pay
    from botocore.config import Config  # noqa: PLC0415 - as above

    s3: dict[str, Any] = {"addressing_style": "path" if key.is_path_style else "virtual"}
    if leaves_payload_unsigned(key.endpoint, key.proxy):
        s3["payload_signing_enabled"] = False
    if key.is_accelerated:
        s3["use_accelerate_endpoint"] = True
    session = boto3.session.Session(
        botocore_session=credentials.session(key.keys, key.role, key.proxy), region_name=key.region
    )
    return session.client(
        "s3",
        endpoint_url=key.endpoint or None,
        config=Config(
            s3=cast("Any", s3),
            proxies={"http": key.proxy, "https": key.proxy} if key.proxy else None,
            retries={"mode": "standard", "total_max_attempts": key.attempts},
            connect_timeout=_CONNECT_TIMEOUT,
            read_timeout=_READ_TIMEOUT,
            tcp_keepalive=True,
        ),
    )


def leaves_payload_unsigned(endpoint: str, proxy: str = "") -> bool:
    """Whether bodies go unsigned to this address: over TLS, and to this machine itself."""
    address = urlsplit(endpoint)
    return address.scheme != "http" or (address.hostname in _LOOPBACK and not proxy)


class BotoS3:
    """Requests to one endpoint; see :class:`~sinksdk.connectors.s3_archiver.client.S3` for the methods.

    Args:
        client: boto3's client.
        endpoint: its address, empty for AWS's own.
        options: arguments of CreateMultipartUpload: encryption, ACL, storage class.
    """

    def __init__(self, client: S3Client, endpoint: str, options: Mapping[str, str] | None = None) -> None:
        self._client = client
        self._endpoint = endpoint
        self._options: Mapping[str, Any] = options or {}

    @property
    def endpoint(self) -> str:
        """Address of the endpoint; empty for AWS's own."""
        return self._endpoint

    def head_bucket(self, bucket: str) -> None:
        """See :meth:`S3.head_bucket`."""
        self._ask("HeadBucket", Location(bucket, ""), lambda: self._client.head_bucket(Bucket=bucket))

    def create_upload(self, location: Location, metadata: Mapping[str, str]) -> str:
        """See :meth:`S3.create_upload`."""
        answer = self._ask(
            "CreateMultipartUpload",
            location,
            lambda: self._client.create_multipart_upload(
                Bucket=location.bucket,
                Key=location.key,
                Metadata=metadata,
                ContentType="application/avro",
                ChecksumAlgorithm="CRC32",
                ChecksumType="FULL_OBJECT",
                **self._options,
            ),
        )
        return answer["UploadId"]

    def upload_part(
        self, location: Location, upload_id: str, number: int, body: bytes | bytearray, crc32: str
    ) -> Part:
        """See :meth:`S3.upload_part`."""
        answer = self._ask(
            "UploadPart",
            location,
            lambda: self._client.upload_part(
                Bucket=location.bucket,
                Key=location.key,
                UploadId=upload_id,
                PartNumber=number,
                Body=cast("bytes", body),  # bytearrays go as they are; the stubs do not say so
                ChecksumCRC32=crc32,
            ),
        )
        return Part(answer["ETag"], crc32)

    def complete_upload(
        self,
        location: Location,
        upload_id: str,
        parts: Sequence[Part],
        *,
        size: int,
        crc32: str,
        if_absent: bool = True,
    ) -> None:
        """See :meth:`S3.complete_upload`."""
        listed = [
            {"PartNumber": number, "ETag": part.etag, "ChecksumCRC32": part.crc32}
            for number, part in enumerate(parts, 1)
        ]
        condition = {"IfNoneMatch": "*"} if if_absent else {}
        self._ask(
            "CompleteMultipartUpload",
            location,
            lambda: self._client.complete_multipart_upload(
                Bucket=location.bucket,
                Key=location.key,
                UploadId=upload_id,
                MultipartUpload=cast("Any", {"Parts": listed}),
                MpuObjectSize=size,
                ChecksumCRC32=crc32,
                ChecksumType="FULL_OBJECT",
                **cast("Any", condition),
            ),
        )

    def abort_upload(self, location: Location, upload_id: str) -> None:
        """See :meth:`S3.abort_upload`."""
        self._ask(
            "AbortMultipartUpload",
            location,
            lambda: self._client.abort_multipart_upload(
                Bucket=location.bucket, Key=location.key, UploadId=upload_id
            ),
        )

    def head(self, location: Location) -> ObjectInfo | None:
        """See :meth:`S3.head`."""
        try:
            answer = self._ask(
                "HeadObject",
                location,
                lambda: self._client.head_object(
                    Bucket=location.bucket, Key=location.key, ChecksumMode="ENABLED"
                ),
            )
        except S3Error as failure:
            if failure.code in ("404", NO_SUCH_KEY, "NotFound"):
                return None
            raise
        checksum = answer.get("ChecksumCRC32", "")
        # "…-3" is a checksum of checksums: of a store that does not know the FULL_OBJECT kind.
        is_whole = bool(checksum) and "-" not in checksum and answer.get("ChecksumType") != "COMPOSITE"
        return ObjectInfo(answer["ContentLength"], answer["Metadata"], checksum if is_whole else None)

    def put_if_absent(self, location: Location, body: bytes) -> bool:
        """See :meth:`S3.put_if_absent`."""
        try:
            self._put(location, body, {"IfNoneMatch": "*"})
        except S3Error as failure:
            if failure.code == PRECONDITION_FAILED:
                return False
            raise
        return True

    def put(self, location: Location, body: bytes) -> None:
        """See :meth:`S3.put`."""
        self._put(location, body, {})

    def _put(self, location: Location, body: bytes, condition: Mapping[str, Any]) -> None:
        self._ask(
            "PutObject",
            location,
            lambda: self._client.put_object(
                Bucket=location.bucket,
                Key=location.key,
                Body=body,
                ContentType="application/json",
                **condition,
            ),
        )

    def read(self, location: Location) -> BinaryIO:
        """See :meth:`S3.read`."""
        answer = self._ask(
            "GetObject",
            location,
            lambda: self._client.get_object(Bucket=location.bucket, Key=location.key),
        )
        body = _Body(answer["Body"], lambda request: self._ask("GetObject", location, request))
        return io.BufferedReader(body, _READ_SIZE)

    def list(self, bucket: str, prefix: str) -> Iterator[ObjectSummary]:
        """See :meth:`S3.list`."""
        pages = iter(self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix))
        while page := self._ask("ListObjectsV2", Location(bucket, prefix), lambda: next(pages, None)):
            for item in page.get("Contents", ()):
                yield ObjectSummary(item["Key"], item["Size"])

    def list_uploads(self, bucket: str, prefix: str) -> Iterator[PendingUpload]:
        """See :meth:`S3.list_uploads`."""
        paginator = self._client.get_paginator("list_multipart_uploads")
        pages = iter(paginator.paginate(Bucket=bucket, Prefix=prefix))
        while page := self._ask("ListMultipartUploads", Location(bucket, prefix), lambda: next(pages, None)):
            for item in page.get("Uploads", ()):
                yield PendingUpload(item["Key"], item["UploadId"])

    def uploaded_bytes(self, location: Location, upload_id: str) -> int:
        """See :meth:`S3.uploaded_bytes`."""
        paginator = self._client.get_paginator("list_parts")
        pages = paginator.paginate(Bucket=location.bucket, Key=location.key, UploadId=upload_id)
        try:
            return self._ask(
                "ListParts",
                location,
                lambda: sum(part["Size"] for page in pages for part in page.get("Parts", ())),
            )
        except S3Error as failure:
            if failure.code == NO_SUCH_UPLOAD:
                return 0
            raise

    def delete(self, location: Location) -> None:
        """See :meth:`S3.delete`."""
        self._ask(
            "DeleteObject",
            location,
            lambda: self._client.delete_object(Bucket=location.bucket, Key=location.key),
        )

    def tag(self, location: Location, tags: Mapping[str, str]) -> None:
        """See :meth:`S3.tag`."""
        pairs = [{"Key": key, "Value": value} for key, value in tags.items()]
        self._ask(
            "PutObjectTagging",
            location,
            lambda: self._client.put_object_tagging(
                Bucket=location.bucket, Key=location.key, Tagging=cast("Any", {"TagSet": pairs})
            ),
        )

    def _ask(self, operation: str, location: Location, request: Callable[[], T]) -> T:
        """Make a request; its failure as one of our exceptions."""
        try:
            return request()
        except boto.ClientError as failure:
            code, detail, status = _answer(failure)
            if failure.operation_name == ASSUME_ROLE and code not in PASSING:
                code = ROLE_REFUSED + code  # it is not S3 that denies
            raise self._error(operation, location, code, detail, status) from failure
        except _NO_ANSWER as failure:
            raise self._error(operation, location, NO_ANSWER, str(failure), None) from failure
        except boto.BotoCoreError as failure:  # no credentials, an impossible region or bucket name
            raise self._error(operation, location, type(failure).__name__, str(failure), None) from failure

    def _error(
        self, operation: str, location: Location, code: str, detail: str, status: int | None
    ) -> S3Error | S3Trouble:
        endpoint = self._endpoint or self._client.meta.endpoint_url
        request = Request(operation, location.bucket, location.key, endpoint)
        return failure_of(request, code, detail, status)


def _answer(failure: boto.ClientError) -> tuple[str, str, int | None]:
    """Code, words and status of an error answer."""
    described = failure.response.get("Error", {})
    status = failure.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return str(described.get("Code", status)), str(described.get("Message", "")), status


class _Body(io.RawIOBase):
    """A download as a raw stream, so that it can be buffered; failures come as our exceptions."""

    def __init__(self, body: StreamingBody, ask: Callable[[Callable[[], bytes]], bytes]) -> None:
        super().__init__()
        self._body = body
        self._ask = ask

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._ask(lambda: self._body.read(len(buffer)))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._body.close()
        super().close()
