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
except ImportError:  # wheels exist only for x86-64 and ARM; zlib takes ten times the processor time
    from zlib import crc32

# Parts of a task that are sent while others are filled. One part in flight keeps up with what a core encodes;
# with two, a partition seldom waits for another partition's part.
IN_FLIGHT: Final = 2

_SPARES: Final = 2  # unused buffers to keep, in parts: a file that fills parts takes two

_LEAST_SPARE: Final = 5 * 1024 * 1024  # the smallest part that S3 accepts, unless it is the last


class PartBuffer:
    """Collects the bytes of one part, and their CRC32 while they are in the processor's cache."""

    __slots__ = ("_data", "_pieces", "capacity", "crc32", "filled")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.filled = 0
        self.crc32 = 0
        # The memory of an earlier part is reused, because pages that are new to the process would cost a
        # tenth of the upload's speed.
        self._data = bytearray()
        # Hundreds of buffers that grow in turns fragment the heap, which then takes half as much memory
        # again. So a new buffer keeps pieces, and joins them only when they are sent.
        self._pieces: deque[bytes] = deque()

    @property
    def size(self) -> int:
        """Bytes of memory that the buffer keeps when it is empty."""
        return len(self._data)

    @property
    def held(self) -> int:
        # A buffer that is used again may be larger, but there are few of those.
        return min(len(self._data), 2 * self.filled) if self._data else self.filled

    @property
    def is_full(self) -> bool:
        return self.filled == self.capacity

    def fill(self, data: memoryview) -> memoryview:
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
        """Return the bytes to send: valid until the next :meth:`fill` or :meth:`clear`."""
        while self._pieces:
            self._data += self._pieces.popleft()  # piece by piece, so that memory holds no piece twice
        if self.filled < len(self._data):
            del self._data[self.filled :]  # growing again takes no longer than a copy
        return self._data

    def clear(self) -> None:
        self._pieces.clear()
        self.filled = 0
        self.crc32 = 0


class PartRequest:
    """Sends a part, in this thread or concurrently; owns the buffer until :meth:`release`."""

    def __init__(self, buffer: PartBuffer, send: Callable[[PartBuffer], Part]) -> None:
        self._buffer: PartBuffer | None = buffer
        self.size = buffer.filled
        self.crc32 = buffer.crc32
        self._send = send
        self._join: Callable[[], None] | None = None
        self.is_finished = False  # the concurrent request has finished, with or without success
        self._error: BaseException | None = None
        self._part: Part | None = None
        self.is_abandoned = False  # no caller needs the result any more

    @property
    def is_due(self) -> bool:
        """Whether the request failed, or was never begun."""
        return self._part is None and (self._join is None or self.is_finished)

    @property
    def needs_buffer(self) -> bool:
        return self._part is None and not (self.is_abandoned and self.is_due)

    def begin(self, beside: Beside) -> None:
        self._join = beside(self._run)

    def wait(self) -> None:
        if self._join is not None:
            self._join()  # the client's time-outs end the wait

    def check(self) -> None:
        """Raise the error of a concurrent request once; :meth:`result` then repeats the request."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None

    def result(self) -> Part:
        """Return the part as S3 has it; repeat the request here if it is due."""
        self.wait()
        self.check()
        if self._part is None:
            self._part = self._send_now()
        return self._part

    def release(self) -> PartBuffer | None:
        buffer, self._buffer = self._buffer, None
        return buffer

    def _run(self) -> None:
        try:
            self._part = self._send_now()
        except BaseException as error:  # noqa: BLE001 - raised in the task's thread
            self._error = error
        self.is_finished = True

    def _send_now(self) -> Part:
        if self._buffer is None:
            raise ValueError("cannot send the part again: its buffer was released")
        return self._send(self._buffer)


class PartPool:
    def __init__(self, capacity: int, beside: Beside = in_a_thread, in_flight: int = IN_FLIGHT) -> None:
        self.capacity = capacity
        self._beside = beside
        self._limit = in_flight
        self._requests: list[PartRequest] = []
        self._free: list[PartBuffer] = []
        self._lock = threading.Lock()  # threads of their own send the last parts of several files

    def take(self) -> PartBuffer:
        return self._free.pop() if self._free else PartBuffer(self.capacity)

    def give(self, buffer: PartBuffer) -> None:
        taken = sum(spare.size for spare in self._free)
        if min(_LEAST_SPARE, self.capacity) <= buffer.size <= _SPARES * self.capacity - taken:
            buffer.clear()
            self._free.append(buffer)

    def begin(self, request: PartRequest) -> bool:
        """Return False if too many requests are in flight."""
        for finished in [request for request in self._requests if not request.needs_buffer]:
            self.end(finished)
        if len(self._requests) >= self._limit:
            return False
        request.begin(self._beside)
        self._requests.append(request)
        return True

    def end(self, request: PartRequest) -> None:
        with self._lock:
            if request in self._requests:
                self._requests.remove(request)
            buffer = request.release()
            if buffer is not None:
                self.give(buffer)
