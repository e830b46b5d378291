"""S3 in memory: conditions, multipart uploads, injected faults.

It is deterministic (ids count up), takes microseconds per request, and shows objects, uploads with their
parts, and a log of all requests.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple, TypeVar

from sinksdk.connectors.s3_archiver.s3.client import (
    Checksum,
    Location,
    ObjectInfo,
    ObjectSummary,
    Part,
    PendingUpload,
)
from sinksdk.connectors.s3_archiver.s3.errors import (
    NO_SUCH_BUCKET,
    NO_SUCH_UPLOAD,
    NOT_IMPLEMENTED,
    Request,
    error_of,
)
from sinksdk.support.s3 import NO_RESPONSE, NO_SUCH_KEY, PRECONDITION_FAILED

T = TypeVar("T")
MIN_PART = 5 * 1024 * 1024


class LoggedRequest(NamedTuple):
    operation: str
    bucket: str
    key: str
    upload_id: str | None = None
    part: int | None = None


@dataclass(frozen=True)
class Fault:
    """Raises ``error`` before or after the request takes effect."""

    error: BaseException
    after_effect: bool = False


@dataclass
class FakeObject:
    data: bytes
    metadata: Mapping[str, str]
    crc32: str | None
    tags: dict[str, str] = field(default_factory=dict)


@dataclass
class FakeUpload:
    location: Location
    metadata: Mapping[str, str]
    checksum: Checksum = Checksum.FULL
    initiated: float = 0.0
    parts: dict[int, bytes] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(map(len, self.parts.values()))


def slow_down() -> BaseException:
    return error_of(Request("any", "bucket", "key", "memory"), "SlowDown", "reduce your request rate", 503)


def no_response() -> BaseException:
    return error_of(Request("any", "bucket", "key", "memory"), NO_RESPONSE, "connection reset")


def denied() -> BaseException:
    return error_of(Request("any", "bucket", "key", "memory"), "AccessDenied", "no", 403)


class FakeS3:
    """One endpoint.

    Args:
        buckets: buckets that exist.
        plan: returns the fault of each request; None injects none.
        min_part: least bytes of a part that is not the last.
        knows_conditions: False answers ``NotImplemented`` to If-None- Match, as some stores do.
        forgets_completed: True answers ``NoSuchUpload`` to a repeated Complete, as AWS does after a
            while; False answers success, as AWS does at first.
        endpoint: its address.
        ignores_conditions: True overwrites despite a condition, as some stores do.
        best_checksum: the best checksum of multipart uploads that it supports.
    """

    def __init__(
        self,
        *buckets: str,
        plan: Callable[[LoggedRequest], Fault | None] | None = None,
        min_part: int = 1,
        knows_conditions: bool = True,
        forgets_completed: bool = False,
        endpoint: str = "memory:",
        ignores_conditions: bool = False,
        best_checksum: Checksum = Checksum.FULL,
    ) -> None:
        self.buckets = set(buckets or ("bucket",))
        self.plan = plan
        self.min_part = min_part
        self.knows_conditions = knows_conditions
        self.forgets_completed = forgets_completed
        self._endpoint = endpoint
        self.ignores_conditions = ignores_conditions
        self.best_checksum = best_checksum
        self.objects: dict[Location, FakeObject] = {}
        self.uploads: dict[str, FakeUpload] = {}
        self.completed: dict[str, Location] = {}
        self.log: list[LoggedRequest] = []
        self._faults: list[tuple[str, Fault]] = []
        self._count = 0

    # -- for tests -------------------------------------------------------------------------------

    @property
    def endpoint(self) -> str:
        return self._endpoint

    def fail_next(
        self, operation: str, error: BaseException, *, after_effect: bool = False, times: int = 1
    ) -> None:
        self._faults += [(operation, Fault(error, after_effect))] * times

    def operations(self) -> list[str]:
        return [request.operation for request in self.log]

    def visible(self) -> list[str]:
        return sorted(location.key for location in self.objects)

    def data(self, key: str, bucket: str = "bucket") -> bytes:
        return self.objects[Location(bucket, key)].data

    def uploads_with_data(self) -> list[FakeUpload]:
        # Uploads with data cost money.
        return [upload for upload in self.uploads.values() if upload.size]

    # -- requests --------------------------------------------------------------------------------

    def time(self) -> float:
        return 0.0

    def head_bucket(self, bucket: str) -> float:
        return self._do(LoggedRequest("HeadBucket", bucket, ""), self.time)

    def create_upload(
        self, location: Location, metadata: Mapping[str, str], checksum: Checksum = Checksum.FULL
    ) -> str:
        request = LoggedRequest("CreateMultipartUpload", *location)

        def effect() -> str:
            if self.best_checksum is Checksum.NONE and checksum is not Checksum.NONE:
                raise self._refuse(request, NOT_IMPLEMENTED, 501)
            self._count += 1
            upload_id = f"upload-{self._count:06d}"
            self.uploads[upload_id] = FakeUpload(location, dict(metadata), checksum, self.time())
            return upload_id

        return self._do(request, effect)

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
        request = LoggedRequest("UploadPart", *location, upload_id, number)

        def effect() -> Part:
            upload = self._upload(request)
            if checksum is not upload.checksum:
                raise self._refuse(request, "InvalidRequest", 400)
            data = bytes(body)
            if crc32 != _crc32(data):
                raise self._refuse(request, "BadDigest", 400)
            upload.parts[number] = data
            return Part(_etag(data), crc32)

        return self._do(request, effect)

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
        request = LoggedRequest("CompleteMultipartUpload", *location, upload_id)

        def effect() -> None:
            if if_absent and not self.knows_conditions:
                raise self._refuse(request, NOT_IMPLEMENTED, 501)
            if upload_id in self.completed and not self.forgets_completed:
                return
            upload = self._upload(request)
            if checksum is not upload.checksum or (
                checksum is Checksum.FULL and self.best_checksum is not Checksum.FULL
            ):
                raise self._refuse(request, "BadRequest", 400)
            if if_absent and location in self.objects and not self.ignores_conditions:
                raise self._refuse(request, PRECONDITION_FAILED, 412)
            data = self._assemble(request, upload, parts)
            if len(data) != size or _crc32(data) != crc32:
                raise self._refuse(request, "InvalidRequest", 400)
            kept = crc32 if checksum is Checksum.FULL else None
            self.objects[location] = FakeObject(data, upload.metadata, kept)
            self.completed[upload_id] = location
            del self.uploads[upload_id]

        self._do(request, effect)

    def abort_upload(self, location: Location, upload_id: str) -> None:
        request = LoggedRequest("AbortMultipartUpload", *location, upload_id)

        def effect() -> None:
            self._upload(request)
            del self.uploads[upload_id]

        self._do(request, effect)

    def head(self, location: Location) -> ObjectInfo | None:
        def effect() -> ObjectInfo | None:
            found = self.objects.get(location)
            if found is None:
                return None
            return ObjectInfo(len(found.data), found.metadata, found.crc32, _etag(found.data))

        return self._do(LoggedRequest("HeadObject", *location), effect)

    def put_if_absent(self, location: Location, body: bytes) -> bool:
        request = LoggedRequest("PutObject", *location)

        def effect() -> bool:
            if not self.knows_conditions:
                raise self._refuse(request, NOT_IMPLEMENTED, 501)
            if location in self.objects and not self.ignores_conditions:
                return False
            self.objects[location] = FakeObject(bytes(body), {}, _crc32(body))
            return True

        return self._do(request, effect)

    def put_if_match(self, location: Location, body: bytes, etag: str) -> bool:
        request = LoggedRequest("PutObject", *location)

        def effect() -> bool:
            if not self.knows_conditions:
                raise self._refuse(request, NOT_IMPLEMENTED, 501)
            found = self.objects.get(location)
            if not self.ignores_conditions and (found is None or _etag(found.data) != etag):
                return False
            self.objects[location] = FakeObject(bytes(body), {}, _crc32(body))
            return True

        return self._do(request, effect)

    def put(self, location: Location, body: bytes) -> None:
        def effect() -> None:
            self.objects[location] = FakeObject(bytes(body), {}, _crc32(body))

        self._do(LoggedRequest("PutObject", *location), effect)

    def read(self, location: Location) -> BinaryIO:
        request = LoggedRequest("GetObject", *location)

        def effect() -> BinaryIO:
            if location not in self.objects:
                raise self._refuse(request, NO_SUCH_KEY, 404)
            return io.BytesIO(self.objects[location].data)

        return self._do(request, effect)

    def list(self, bucket: str, prefix: str, after: str = "") -> Iterator[ObjectSummary]:
        def effect() -> list[ObjectSummary]:
            return [
                ObjectSummary(location.key, len(found.data))
                for location, found in sorted(self.objects.items())
                if location.bucket == bucket and location.key.startswith(prefix) and location.key > after
            ]

        yield from self._do(LoggedRequest("ListObjectsV2", bucket, prefix), effect)

    def list_uploads(self, bucket: str, prefix: str) -> Iterator[PendingUpload]:
        def effect() -> list[PendingUpload]:
            return [
                PendingUpload(upload.location.key, upload_id, upload.initiated)
                for upload_id, upload in self.uploads.items()
                if upload.location.bucket == bucket and upload.location.key.startswith(prefix)
            ]

        yield from self._do(LoggedRequest("ListMultipartUploads", bucket, prefix), effect)

    def part_sizes(self, location: Location, upload_id: str) -> Sequence[int] | None:
        def effect() -> Sequence[int] | None:
            upload = self.uploads.get(upload_id)
            return None if upload is None else [len(data) for _, data in sorted(upload.parts.items())]

        return self._do(LoggedRequest("ListParts", *location, upload_id), effect)

    def delete(self, location: Location) -> None:
        self._do(LoggedRequest("DeleteObject", *location), lambda: self.objects.pop(location, None))

    def tag(self, location: Location, tags: Mapping[str, str]) -> None:
        request = LoggedRequest("PutObjectTagging", *location)

        def effect() -> None:
            if location not in self.objects:
                raise self._refuse(request, NO_SUCH_KEY, 404)
            self.objects[location].tags.update(tags)

        self._do(request, effect)

    # -- inside ----------------------------------------------------------------------------------

    def _do(self, request: LoggedRequest, effect: Callable[[], T]) -> T:
        self.log.append(request)
        fault = self._fault(request)
        if fault and not fault.after_effect:
            raise fault.error
        if request.bucket not in self.buckets:
            raise self._refuse(request, NO_SUCH_BUCKET, 404)
        result = effect()
        if fault:
            raise fault.error
        return result

    def _fault(self, request: LoggedRequest) -> Fault | None:
        for index, (operation, fault) in enumerate(self._faults):
            if operation == request.operation:
                del self._faults[index]
                return fault
        return self.plan(request) if self.plan else None

    def _refuse(self, request: LoggedRequest, code: str, status: int) -> BaseException:
        return error_of(
            Request(request.operation, request.bucket, request.key, self._endpoint), code, "", status
        )

    def _upload(self, request: LoggedRequest) -> FakeUpload:
        upload = self.uploads.get(request.upload_id or "")
        if upload is None or upload.location != (request.bucket, request.key):
            raise self._refuse(request, NO_SUCH_UPLOAD, 404)
        return upload

    def _assemble(self, request: LoggedRequest, upload: FakeUpload, parts: Sequence[Part]) -> bytes:
        chosen = [upload.parts.get(number) for number in range(1, len(parts) + 1)]
        if not parts or any(
            data is None or _etag(data) != part.etag for data, part in zip(chosen, parts, strict=True)
        ):
            raise self._refuse(request, "InvalidPart", 400)
        if any(data is not None and len(data) < self.min_part for data in chosen[:-1]):
            raise self._refuse(request, "EntityTooSmall", 400)
        return b"".join(data for data in chosen if data is not None)


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def _crc32(data: bytes) -> str:
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()
