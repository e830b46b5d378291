"""Implements the S3 protocol with boto3: one client per process and configuration."""

from __future__ import annotations

import base64
import hashlib
import io
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar
from urllib.parse import urlsplit

import botocore.session
from botocore import xform_name
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    CredentialResolver,
    Credentials,
    DeferredRefreshableCredentials,
)

from sinksdk.connectors.s3_archiver.s3.client import (
    Checksum,
    Location,
    ObjectInfo,
    ObjectSummary,
    Part,
    PendingUpload,
)
from sinksdk.connectors.s3_archiver.s3.errors import (
    NO_SUCH_UPLOAD,
    REFUSED_HEADERS,
    ROLE_REFUSED,
    Request,
    S3Error,
    error_of,
    is_transient,
)
from sinksdk.connectors.s3_archiver.s3.settings import Keys, Role, UploadSettings
from sinksdk.support.s3 import (
    CONDITION_FAILED,
    MISSING,
    NO_SUCH_KEY,
    PRECONDITION_FAILED,
    create_client,
    failure_of,
)

if TYPE_CHECKING:
    from botocore.response import StreamingBody
    from botocore.session import Session
    from mypy_boto3_s3 import S3Client

T = TypeVar("T")

_CONNECT_TIMEOUT: Final = 5  # seconds
# S3 responds to a part within seconds, and sends spaces during a long CompleteMultipartUpload: a longer
# silence is a lost connection, and a closing task cannot wait a minute to notice it.
_READ_TIMEOUT: Final = 30  # seconds
_MOST_CONNECTIONS: Final = 32  # connections that are kept open; connectors with equal settings share a client
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_READ_SIZE: Final = 256 * 1024
_STS_ATTEMPTS: Final = 3  # attempts of 5 s each; botocore would repeat the request for five minutes
_ASSUME_ROLE: Final = "AssumeRole"
_IF_ABSENT: Final = {"IfNoneMatch": "*"}
_CREATED_WITH: Final[Mapping[Checksum, Mapping[str, str]]] = {
    Checksum.FULL: {"ChecksumAlgorithm": "CRC32", "ChecksumType": "FULL_OBJECT"},
    Checksum.COMPOSITE: {"ChecksumAlgorithm": "CRC32"},
    Checksum.NONE: {},
}


_CREATING = threading.Lock()


def connect(config: UploadSettings, endpoint: str | None = None) -> BotoS3:
    address = config.store_url if endpoint is None else endpoint
    with _CREATING:  # without this lock, tasks that start together would each create a client
        client = _client(
            os.getpid(),
            address,
            region=config.s3_region,
            is_path_style=config.s3_path_style_access,
            is_accelerated=config.s3_wan_mode,
            attempts=config.s3_part_retries + 1,
            keys=config.keys_of_access(),
            role=config.role(),
            proxy=config.proxy(),
        )
    return BotoS3(client, address, config.creation_options())


@lru_cache(maxsize=16)  # a session and a client cost about half a second
def _client(
    _process: int,  # a forked process must not share its parent's connections
    endpoint: str,
    *,
    region: str,
    is_path_style: bool,
    is_accelerated: bool,
    attempts: int,
    keys: Keys,
    role: Role | None,
    proxy: str,
) -> S3Client:
    import boto3  # noqa: PLC0415 - takes 0.2 s, only in processes that use S3

    s3: dict[str, Any] = {}
    # boto3's defaults are slow: each body is hashed with SHA-256 (http) or wrapped into signed chunks (TLS).
    # S3 checks the CRC32 instead, which was computed while the part was filled.
    if leaves_payload_unsigned(endpoint, proxy):
        s3["payload_signing_enabled"] = False
    if is_accelerated:
        s3["use_accelerate_endpoint"] = True
    return create_client(
        boto3.session.Session(botocore_session=_session(keys, role, proxy), region_name=region),
        endpoint,
        is_path_style=is_path_style,
        s3=s3,
        proxies=_proxies(proxy),
        retries={"mode": "standard", "total_max_attempts": attempts},
        max_pool_connections=_MOST_CONNECTIONS,
        connect_timeout=_CONNECT_TIMEOUT,
        read_timeout=_READ_TIMEOUT,
    )


def leaves_payload_unsigned(endpoint: str, proxy: str = "") -> bool:
    # TLS protects the body in transit. Over http on a network only the signature does, and AWS refuses
    # unsigned payloads.
    address = urlsplit(endpoint)
    return address.scheme != "http" or (address.hostname in _LOOPBACK and not proxy)


def _session(keys: Keys, role: Role | None, proxy: str) -> Session:
    session = botocore.session.get_session()
    if keys.key_id:
        session.set_credentials(keys.key_id, keys.secret)
    if role is None:
        return session
    assuming = botocore.session.get_session()
    assuming.register_component(
        "credential_provider", CredentialResolver([_AssumedRole(session, role, proxy)])
    )
    return assuming


class _AssumedRole(CredentialProvider):
    """Assumes the role when credentials are needed, and again before they expire."""

    METHOD = "assume-role"

    def __init__(self, source: Session, role: Role, proxy: str) -> None:
        super().__init__()
        self._source = source
        self._role = role
        self._proxy = proxy

    def load(self) -> Credentials | None:
        source, role = self._source, self._role
        own = source.get_credentials()
        if own is None:
            return None  # botocore then fails the request with NoCredentialsError
        config = Config(
            proxies=_proxies(self._proxy),
            retries={"mode": "standard", "total_max_attempts": _STS_ATTEMPTS},
            connect_timeout=_CONNECT_TIMEOUT,
            read_timeout=_CONNECT_TIMEOUT,
        )
        optional = {"RoleSessionName": role.session, "ExternalId": role.external_id}
        fetcher = AssumeRoleCredentialFetcher(
            client_creator=partial(source.create_client, region_name=role.region, config=config),
            source_credentials=own,
            role_arn=role.arn,
            extra_args={name: value for name, value in optional.items() if value},
        )
        return DeferredRefreshableCredentials(fetcher.fetch_credentials, self.METHOD)


def _proxies(url: str) -> dict[str, str] | None:
    return {"http": url, "https": url} if url else None


_CONTENT_TYPES: Final = {
    ".avro": "application/avro",
    ".gz": "application/gzip",
    ".json": "application/json",
    ".parquet": "application/vnd.apache.parquet",
}


class BotoS3:
    """Implements :class:`~sinksdk.connectors.s3_archiver.s3.client.S3`."""

    def __init__(self, client: S3Client, endpoint: str, options: Mapping[str, str] | None = None) -> None:
        self._client = client
        self.endpoint = endpoint
        self._options: Mapping[str, str] = options or {}
        self._has_checksums = True

    def head_bucket(self, bucket: str) -> float:
        response: Mapping[str, Any] = self._send(
            "HeadBucket", Location(bucket, ""), lambda: self._client.head_bucket(Bucket=bucket)
        )
        try:
            date = response["ResponseMetadata"]["HTTPHeaders"]["date"]
            return parsedate_to_datetime(date).timestamp()
        except (KeyError, ValueError):
            return -math.inf

    def create_upload(
        self, location: Location, metadata: Mapping[str, str], checksum: Checksum = Checksum.FULL
    ) -> str:
        response = self._request(
            "CreateMultipartUpload",
            location,
            Metadata=metadata,
            ContentType=_CONTENT_TYPES.get(
                location.key[location.key.rfind(".") :], "application/octet-stream"
            ),
            **_CREATED_WITH[checksum],
            **self._options,
        )
        upload_id: str = response["UploadId"]
        return upload_id

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
        if checksum is Checksum.NONE:
            md5 = hashlib.md5(body, usedforsecurity=False).digest()
            sums = {"ContentMD5": base64.b64encode(md5).decode()}
        else:
            sums = {"ChecksumCRC32": crc32}
        response = self._request(
            "UploadPart", location, UploadId=upload_id, PartNumber=number, Body=body, **sums
        )
        return Part(response["ETag"], crc32)

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
        has_sums = checksum is not Checksum.NONE
        listed = [
            {"PartNumber": number, "ETag": part.etag} | ({"ChecksumCRC32": part.crc32} if has_sums else {})
            for number, part in enumerate(parts, 1)
        ]
        whole: dict[str, Any] = {"MpuObjectSize": size} if has_sums else {}
        if checksum is Checksum.FULL:
            whole |= {"ChecksumCRC32": crc32, "ChecksumType": "FULL_OBJECT"}
        self._request(
            "CompleteMultipartUpload",
            location,
            UploadId=upload_id,
            MultipartUpload={"Parts": listed},
            **whole,
            **(_IF_ABSENT if if_absent else {}),
        )

    def abort_upload(self, location: Location, upload_id: str) -> None:
        self._request("AbortMultipartUpload", location, UploadId=upload_id)

    def head(self, location: Location) -> ObjectInfo | None:
        try:
            response = self._head(location)
        except S3Error as failure:
            if failure.code in MISSING:
                return None
            raise
        checksum = response.get("ChecksumCRC32", "")
        # A value "…-3" is a checksum of checksums, from a store that does not support FULL_OBJECT.
        is_whole = bool(checksum) and "-" not in checksum and response.get("ChecksumType") != "COMPOSITE"
        whole = checksum if is_whole else None
        return ObjectInfo(response["ContentLength"], response["Metadata"], whole, response.get("ETag", ""))

    def _head(self, location: Location) -> dict[str, Any]:
        if self._has_checksums:
            try:
                return self._request("HeadObject", location, ChecksumMode="ENABLED")
            except S3Error as failure:
                if failure.code not in REFUSED_HEADERS:
                    raise
                response = self._request("HeadObject", location)
                self._has_checksums = False
                return response
        return self._request("HeadObject", location)

    def put_if_absent(self, location: Location, body: bytes) -> bool:
        return self._put_if(location, body, IfNoneMatch="*")

    def put_if_match(self, location: Location, body: bytes, etag: str) -> bool:
        return self._put_if(location, body, IfMatch=etag)

    def _put_if(self, location: Location, body: bytes, **condition: str) -> bool:
        try:
            self._request("PutObject", location, Body=body, ContentType="application/json", **condition)
        except S3Error as failure:
            if failure.code == PRECONDITION_FAILED or (
                "IfMatch" in condition and failure.code == NO_SUCH_KEY
            ):
                return False
            raise
        return True

    def put(self, location: Location, body: bytes) -> None:
        self._request("PutObject", location, Body=body, ContentType="application/json")

    def read(self, location: Location) -> BinaryIO:
        response = self._request("GetObject", location)
        body = _Body(response["Body"], lambda request: self._send("GetObject", location, request))
        return io.BufferedReader(body, _READ_SIZE)

    def list(self, bucket: str, prefix: str, after: str = "") -> Iterator[ObjectSummary]:
        begin: Any = {"StartAfter": after} if after else {}
        paginator = self._client.get_paginator("list_objects_v2")
        pages = iter(paginator.paginate(Bucket=bucket, Prefix=prefix, **begin))
        while page := self._send("ListObjectsV2", Location(bucket, prefix), lambda: next(pages, None)):
            for item in page.get("Contents", ()):
                yield ObjectSummary(item["Key"], item["Size"])

    def list_uploads(self, bucket: str, prefix: str) -> Iterator[PendingUpload]:
        paginator = self._client.get_paginator("list_multipart_uploads")
        pages = iter(paginator.paginate(Bucket=bucket, Prefix=prefix))
        while page := self._send("ListMultipartUploads", Location(bucket, prefix), lambda: next(pages, None)):
            for item in page.get("Uploads", ()):
                initiated = item.get("Initiated")
                yield PendingUpload(
                    item["Key"], item["UploadId"], initiated.timestamp() if initiated else math.inf
                )

    def part_sizes(self, location: Location, upload_id: str) -> Sequence[int] | None:
        paginator = self._client.get_paginator("list_parts")
        pages = paginator.paginate(Bucket=location.bucket, Key=location.key, UploadId=upload_id)
        try:
            return self._send(
                "ListParts",
                location,
                lambda: [part["Size"] for page in pages for part in page.get("Parts", ())],
            )
        except S3Error as failure:
            if failure.code == NO_SUCH_UPLOAD:
                return None
            raise

    def delete(self, location: Location) -> None:
        self._request("DeleteObject", location)

    def tag(self, location: Location, tags: Mapping[str, str]) -> None:
        pairs = [{"Key": key, "Value": value} for key, value in tags.items()]
        self._request("PutObjectTagging", location, Tagging={"TagSet": pairs})

    def _request(self, operation: str, location: Location, **arguments: Any) -> dict[str, Any]:
        request: Callable[..., dict[str, Any]] = getattr(self._client, xform_name(operation))
        return self._send(
            operation, location, lambda: request(Bucket=location.bucket, Key=location.key, **arguments)
        )

    def _send(self, operation: str, location: Location, request: Callable[[], T]) -> T:
        try:
            return request()
        except Exception as error:
            failure = failure_of(error)
            if failure is None:
                raise
            code = PRECONDITION_FAILED if failure.code in CONDITION_FAILED else failure.code
            if failure.operation == _ASSUME_ROLE and not is_transient(code):
                code = ROLE_REFUSED + code  # the refusal comes from STS, not from S3
            where = Request(operation, *location, self.endpoint or self._client.meta.endpoint_url)
            raise error_of(where, code, failure.detail, failure.status) from error


class _Body(io.RawIOBase):
    def __init__(self, body: StreamingBody, send: Callable[[Callable[[], bytes]], bytes]) -> None:
        super().__init__()
        self._body = body
        self._send = send

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._send(lambda: self._body.read(len(buffer)))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._body.close()
        super().close()
