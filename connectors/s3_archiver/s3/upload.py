"""A multipart upload of one object in two phases: fed part by part, made visible after the commit.

Writing and sending are apart: :meth:`Upload.write` only takes bytes and never fails, :meth:`Upload.send`
does the requests and may be called again after it raised, for nothing is forgotten before S3 has it.
A full part travels while the next one is filled, one of an upload at a time: so parts end in their order.
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

MAX_PARTS: Final = 10_000
"""Most parts S3 allows in one upload."""

LEAST_PART: Final = 5 * 1024 * 1024
"""Fewest bytes of a part that is not the last."""

NONCE: Final = "sinksdk-nonce"
"""Object metadata that identifies the upload that made an object."""


Chunk = bytes | bytearray | memoryview


class Upload:
    """One object on its way to S3: nothing of it is visible before :func:`complete`.

    Begin with :meth:`create`, note the token durably, say :meth:`noted`, then :meth:`send`.

    Args:
        pool: has the buffers that parts are collected in, and sends them.
        nonce: a random text that no other upload has.
        metadata: object metadata besides the nonce, ASCII.
        abilities: what the endpoint can do with it.
    """

    # More than ten attributes: the object, the part that is filled, the one on its way, those that S3 has.

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
        self._request: PartRequest | None = None
        self._metadata = {**metadata, NONCE: nonce}
        self._backlog: deque[memoryview] = deque()
        self._parts: list[Part] = []
        self._crc32 = 0
        self._id: str | None = None
        self.is_noted = False
        """Whether a successor knows of it, so that it may hold data."""
        self.size = 0
        self.is_finished = False

    @property
    def has_full_part(self) -> bool:
        """Whether more than one part is here: time to :meth:`send`."""
        return bool(self._backlog)

    @property
    def is_sending(self) -> bool:
        """Whether a part is on its way, or has failed there."""
        return self._request is not None

    @property
    def has_failed_part(self) -> bool:
        """Whether a part has to be sent again: time to :meth:`send`, too."""
        return self._request is not None and self._request.is_due

    @property
    def held(self) -> int:
        """Bytes of memory that its data takes, without a part on its way."""
        return self._buffer.held + sum(map(len, self._backlog))

    @property
    def sendable(self) -> int:
        """Bytes that :meth:`send_early` would send now."""
        filled = self._buffer.filled
        return filled if filled >= min(LEAST_PART, self._pool.capacity) else 0

    @property
    def is_at_limit(self) -> bool:
        """Whether the object should end soon, because S3 allows no more parts."""
        return max(len(self._parts), self.size // self._pool.capacity) >= MAX_PARTS - 100

    @property
    def token(self) -> Token:
        """What it takes to abort it; once finished, also to complete it."""
        if self._id is None:
            raise ValueError(f"the upload to {self.location} was not created yet")
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
        """Begin at S3, without data. Does nothing the second time.

        Raises:
            S3Trouble: try again; a lost answer leaves an empty upload, which costs nothing.
            S3Error: refused.
        """
        if self._id is None:
            self._id = self._s3.create_upload(self.location, self._metadata, self._abilities.checksum)

    def noted(self) -> None:
        """The token is durable: from now on data may be sent."""
        self.is_noted = True

    def write(self, data: Chunk) -> None:
        """Take bytes into memory. Never fails; what is beyond the part's end waits for :meth:`send`."""
        piece = memoryview(data).cast("B")
        self.size += len(piece)
        if not self._backlog:
            piece = self._buffer.fill(piece)
        if len(piece):
            self._backlog.append(memoryview(bytes(piece)))  # the caller's buffer may be used again

    def send(self) -> None:
        """Send what fills parts. After an error: call again, nothing is lost and nothing goes twice.

        Raises:
            S3Trouble: try again later; the next call reports a part that failed on its way.
            S3Error: refused; the upload cannot be finished.
        """
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
        """Send what there is as a part, if it is enough for one, so that its memory is free.

        Raises:
            S3Trouble: try again later.
            S3Error: refused; the upload cannot be finished.
        """
        self.send()
        if self.sendable:
            self._send_part(is_last=False)

    def check(self) -> None:
        """Raise what a part failed with on its way, once; :meth:`send` sends it again.

        Raises:
            S3Trouble: try again.
            S3Error: refused; the upload cannot be finished.
        """
        if self._request is not None:
            self._request.check()

    def finish(self) -> None:
        """Send everything; it holds no data any more. Does nothing the second time.

        Raises:
            S3Trouble: try again later.
            S3Error: refused; the upload cannot be finished.
        """
        if self.is_finished:
            return
        self.send()
        # An upload has at least one part: of an object without bytes it is an empty one.
        if self._buffer.filled or not (self._parts or self.is_sending):
            self._send_part(is_last=True)
        self._collect()
        self.is_finished = True

    def wait(self) -> None:
        """Return when no part is on its way."""
        if self._request is not None:
            self._request.wait()

    def abandon(self) -> None:
        """It will not be completed. A part in flight keeps its buffer until it has ended."""
        if self._request is not None:
            self._request.is_abandoned = True

    def _send_part(self, *, is_last: bool) -> None:
        """Send the buffer beside, if it may be; the last one is sent by who collects it."""
        if self._id is None or not self.is_noted:
            raise ValueError(
                f"the upload to {self.location} was not noted yet: its data could never be found again"
            )
        self._collect()
        buffer, self._buffer = self._buffer, PartBuffer(0) if is_last else self._pool.take()
        self._request = PartRequest(buffer, partial(self._put, self._id, len(self._parts) + 1))
        if not is_last and (not self._pool.begin(self._request) or self._request.is_over):
            self._collect()

    def _put(self, upload_id: str, number: int, buffer: PartBuffer) -> Part:
        crc32, checksum = crc.encode(buffer.crc32), self._abilities.checksum
        return self._s3.upload_part(self.location, upload_id, number, buffer.body(), crc32, checksum=checksum)

    def _collect(self) -> None:
        """Wait for the part on its way, if there is one; it counts from now on."""
        request = self._request
        if request is not None:
            self._parts.append(request.answer())
            self._crc32 = crc.combine(self._crc32, request.crc32, request.size)
            self._request = None
            self._pool.end(request)

    # Some stores answer every abort with success: three of them are enough.
