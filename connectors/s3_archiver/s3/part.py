"""Buffers that collect the parts of uploads, and the requests that send them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from sinksdk.connectors.s3_archiver.s3.client import Part
from sinksdk.connectors.s3_archiver.s3.requests import Beside, in_a_thread

try:
    from isal.isal_zlib import crc32
except ImportError:  # there are wheels for x86-64 and ARM only; ten times the processor time
    from zlib import crc32

IN_FLIGHT: Final = 2
"""The most parts of a task that are sent while others are filled; each takes a part's memory. One keeps up
with what a core encodes; with two, a partition's part seldom waits for that of another one.
"""

_SPARES: Final = 2  # parts' worth of unused buffers that are kept: what one file takes that fills parts

_LEAST_SPARE: Final = 5 * 1024 * 1024  # S3's least part that others follow


class PartBuffer:
    """Bytes of one part and their CRC32, computed while the bytes are in the processor's cache.

    A new buffer keeps the pieces that it is given and joins them when they are sent: hundreds of buffers that
    grow in turns would fragment the heap by half as much again as they hold. A buffer that was large enough
    for a part keeps its memory for the next one: fresh pages would cost a tenth of the upload's speed.

    Args:
        capacity: bytes of a full part.
    """

    __slots__ = ("_data", "_pieces", "capacity", "crc32", "filled")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.filled = 0
        self.crc32 = 0
        self._data = bytearray()
        self._pieces: deque[bytes] = deque()  # all of it, if there was no memory to fill

    @property
    def size(self) -> int:
        """Bytes of memory that the buffer keeps when it is empty."""
        return len(self._data)

    @property
    def held(self) -> int:
        """Bytes of memory that its content takes. A reused buffer may be larger; there are few of those."""
        return min(len(self._data), 2 * self.filled) if self._data else self.filled

    @property
    def is_full(self) -> bool:
        return self.filled == self.capacity

    def fill(self, data: memoryview) -> memoryview:
        """Copy as much as fits; returns the rest."""
        count = min(len(data), self.capacity - self.filled)
        piece = data[:count]
        self.crc32 = crc32(piece, self.crc32)
        room = len(self._data) - self.filled
        if not self._data:
            self._pieces.append(bytes(piece))
        elif room:
            with memoryview(self._data) as target:
                target[self.filled : self.filled + min(room, count)] = piece[:room]
        if self._data and room < count:
            self._data += piece[room:]
        self.filled += count
        return data[count:]

    def body(self) -> bytearray:
        """Return the bytes to send, not copied: valid until the next :meth:`fill` or :meth:`clear`."""
        while self._pieces:
            self._data += self._pieces.popleft()  # one by one: they are not there twice
        if self.filled < len(self._data):
            del self._data[self.filled :]  # it grows again, which costs no more than a copy
        return self._data

    def clear(self) -> None:
        self._pieces.clear()
        self.filled = 0
        self.crc32 = 0


class PartRequest:
    """The request that sends a part, here or concurrently. It owns the buffer until :meth:`release`."""

    def __init__(self, buffer: PartBuffer, send: Callable[[PartBuffer], Part]) -> None:
        self._buffer: PartBuffer | None = buffer
        self.size = buffer.filled
        self.crc32 = buffer.crc32
        self._send = send
        self._join: Callable[[], None] | None = None
        self.is_over = False
        """Whether the concurrent request has ended, successfully or not."""
        self._error: BaseException | None = None
        self._part: Part | None = None
        self.is_abandoned = False
        """Whether the result is no longer needed."""

    @property
    def is_answered(self) -> bool:
        """Whether S3 has the part."""
        return self._part is not None

    @property
    def is_due(self) -> bool:
        """Whether the request has to be made (again): it failed, or was never begun."""
        return not self.is_answered and (self._join is None or self.is_over)

    @property
    def needs_buffer(self) -> bool:
        """Whether the request is in flight, or may have to be repeated."""
        return not (self.is_answered or (self.is_abandoned and self.is_due))

    def begin(self, beside: Beside) -> None:
        self._join = beside(self._make)

    def wait(self) -> None:
        """Return when the request has ended. The client's timeouts end it."""
        if self._join is not None:
            self._join()

    def check(self) -> None:
        """Raise the error of a concurrent request, once; then :meth:`answer` repeats the request."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None

    def answer(self) -> Part:
        """Return the part as S3 has it. Waits for the request; makes it if it is due.

        Raises:
            S3Trouble: call again; the request is repeated in the calling thread.
            S3Error: refused.
        """
        self.wait()
        self.check()
        if self._part is None:
            self._part = self._made()
        return self._part

    def release(self) -> PartBuffer | None:
        """Return the buffer, which the request no longer needs; None the second time."""
        buffer, self._buffer = self._buffer, None
        return buffer

    def _make(self) -> None:
        try:
            self._part = self._made()
        except BaseException as error:  # noqa: BLE001 - raised in the task's thread
            self._error = error
        self.is_over = True

    def _made(self) -> Part:
        if self._buffer is None:
            message = "cannot send the part again: its buffer was given back"
            raise ValueError(message)
        return self._send(self._buffer)


class PartPool:
    """The part buffers of a task, which files take and give back, so that memory is reused.

    A file that fills parts has two buffers while one of its parts is being sent. Last parts of several files
    are sent in threads of their own, and each gives its buffer back.

    Args:
        capacity: bytes of a part.
        beside: sends parts while others are filled.
        in_flight: the most parts sent so; further ones are sent in the thread that fills them.
    """

    def __init__(self, capacity: int, beside: Beside = in_a_thread, in_flight: int = IN_FLIGHT) -> None:
        self.capacity = capacity
        self._beside = beside
        self._limit = in_flight
        self._requests: list[PartRequest] = []
        self._free: list[PartBuffer] = []
        self._lock = threading.Lock()

    def take(self) -> PartBuffer:
        """Return an empty buffer."""
        return self._free.pop() if self._free else PartBuffer(self.capacity)

    def give(self, buffer: PartBuffer) -> None:
        taken = sum(spare.size for spare in self._free)
        if min(_LEAST_SPARE, self.capacity) <= buffer.size <= _SPARES * self.capacity - taken:
            buffer.clear()
            self._free.append(buffer)

    def begin(self, request: PartRequest) -> bool:
        """Make a request concurrently; return False if too many are in flight."""
        for over in [request for request in self._requests if not request.needs_buffer]:
            self.end(over)
        if len(self._requests) >= self._limit:
            return False
        request.begin(self._beside)
        self._requests.append(request)
        return True

    def end(self, request: PartRequest) -> None:
        """Take back the buffer of a finished request. Does nothing the second time."""
        with self._lock:
            if request in self._requests:
                self._requests.remove(request)
            buffer = request.release()
            if buffer is not None:
                self.give(buffer)
