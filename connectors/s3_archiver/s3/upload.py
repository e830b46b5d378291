"""A multipart upload of one object, fed part by part.

:meth:`Upload.write` only buffers and never fails; :meth:`Upload.send` makes the requests, and its caller
repeats it after an error: no byte is dropped before S3 has it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from sinksdk import Token
from sinksdk.connectors.s3_archiver.s3 import crc
from sinksdk.connectors.s3_archiver.s3.client import S3, Abilities, Checksum, Location, Part
from sinksdk.connectors.s3_archiver.s3.part import PartBuffer, PartPool, PartRequest

MAX_PARTS: Final = 10_000  # the most parts of an upload in S3

LEAST_PART: Final = 5 * 1024 * 1024  # bytes; S3's limit for all parts but the last

NONCE: Final = "sinksdk-nonce"  # metadata of an object: the upload that created it


Chunk = bytes | bytearray | memoryview


class Upload:
    """Begin with :meth:`create`, store the token, set :attr:`is_prepared`, then :meth:`send`."""

    def __init__(
        self,
        s3: S3,
        location: Location,
        pool: PartPool,
        nonce: str,
        metadata: Mapping[str, str],
        *,
        abilities: Abilities = Abilities(),  # noqa: B008 - immutable
    ) -> None:
        self._s3 = s3
        self._abilities = abilities
        self.location = location
        self._pool = pool
        self._buffer = pool.take()
        self._request: PartRequest | None = None  # one request at a time, so that parts finish in their order
        self._metadata = {**metadata, NONCE: nonce}
        self._backlog: deque[memoryview] = deque()
        self._parts: list[Part] = []
        self._crc32 = 0
        self._id: str | None = None
        self.is_prepared = False  # True once the token is stored: only then may the upload hold data
        self.size = 0
        self.is_finished = False

    @property
    def has_full_part(self) -> bool:
        return bool(self._backlog)

    @property
    def is_sending(self) -> bool:
        """Whether a part is being sent, or has failed."""
        return self._request is not None

    @property
    def has_failed_part(self) -> bool:
        return self._request is not None and self._request.is_due

    @property
    def held(self) -> int:
        """Bytes of memory, without a part that is being sent."""
        return self._buffer.held + sum(map(len, self._backlog))

    @property
    def sendable(self) -> int:
        filled = self._buffer.filled
        return filled if filled >= min(LEAST_PART, self._pool.capacity) else 0

    @property
    def is_at_limit(self) -> bool:
        # The margin of ten parts is for the batch that reaches the limit: the file ends after it.
        return max(len(self._parts), self.size // self._pool.capacity) >= MAX_PARTS - 100

    @property
    def token(self) -> Token:
        """The token that aborts the upload; once it is finished, also completes it."""
        if self._id is None:
            raise ValueError(f"the upload to {self.location} is not created yet")
        data: dict[str, Any] = {
            "endpoint": self._s3.endpoint,
            "bucket": self.location.bucket,
            "key": self.location.key,
            "nonce": self._metadata[NONCE],
        }
        if self._abilities.checksum is not Checksum.FULL:
            data["checksum"] = self._abilities.checksum.value
        if not self._abilities.has_conditions:
            data["unconditional"] = True
        if self.is_finished:
            data |= {
                "size": self.size,
                "crc32": crc.encode(self._crc32),
                "parts": [[part.etag, part.crc32] for part in self._parts],
            }
        return Token(self._id, data)

    def create(self) -> None:
        if self._id is None:
            self._id = self._s3.create_upload(self.location, self._metadata, self._abilities.checksum)

    def write(self, data: Chunk) -> None:
        piece = memoryview(data).cast("B")
        self.size += len(piece)
        if not self._backlog:
            piece = self._buffer.fill(piece)
        if len(piece):
            # Copied, because the caller may use its buffer again.
            self._backlog.append(memoryview(bytes(piece)))

    def send(self) -> None:
        if self.has_failed_part:
            self._collect()
        while self._backlog:
            if self._buffer.is_full:
                self._send_part(is_last=False)
            rest = self._buffer.fill(self._backlog[0])
            if len(rest):
                self._backlog[0] = rest
            else:
                self._backlog.popleft()

    def send_early(self) -> None:
        """Send the buffered bytes as a part to free their memory, if they are enough for a part of S3's."""
        self.send()
        if self.sendable:
            self._send_part(is_last=False)

    def check(self) -> None:
        if self._request is not None:
            self._request.check()

    def finish(self) -> None:
        if self.is_finished:
            return
        self.send()
        # An upload must have at least one part, so an object without bytes has an empty part.
        if self._buffer.filled or not (self._parts or self.is_sending):
            self._send_part(is_last=True)
        self._collect()
        self.is_finished = True

    def wait(self) -> None:
        if self._request is not None:
            self._request.wait()

    def abandon(self) -> None:
        if self._request is not None:
            self._request.is_abandoned = True

    def _send_part(self, *, is_last: bool) -> None:
        # A part may be sent concurrently, by the pool's threads; the thread that collects a last part sends
        # it.
        if self._id is None or not self.is_prepared:
            raise ValueError(
                f"the upload to {self.location} is not prepared: its token is not stored, so no successor "
                f"could find its data"
            )
        self._collect()
        buffer, self._buffer = self._buffer, PartBuffer(0) if is_last else self._pool.take()
        self._request = PartRequest(buffer, partial(self._put, self._id, len(self._parts) + 1))
        if not is_last and (not self._pool.begin(self._request) or self._request.is_finished):
            self._collect()

    def _put(self, upload_id: str, number: int, buffer: PartBuffer) -> Part:
        crc32, checksum = crc.encode(buffer.crc32), self._abilities.checksum
        return self._s3.upload_part(self.location, upload_id, number, buffer.body(), crc32, checksum=checksum)

    def _collect(self) -> None:
        request = self._request
        if request is not None:
            self._parts.append(request.result())
            self._crc32 = crc.combine(self._crc32, request.crc32, request.size)
            self._request = None
            self._pool.end(request)
