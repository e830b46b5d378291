"""The buffer that one part of an upload is collected in, used again for part after part."""

from __future__ import annotations

import zlib
from typing import Final

_FIRST_SIZE: Final = 64 * 1024


class PartBuffer:
    """Bytes of one part with their CRC32, computed while they are warm in the cache.

    Grows as it fills, so that many small files cost little, and keeps its memory when it is cleared:
    fresh pages for every part would cost a tenth of the upload's speed.

    Args:
        capacity: bytes of a full part.
    """

    __slots__ = ("_data", "capacity", "crc32", "filled")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.filled = 0
        self.crc32 = 0
        self._data = bytearray()

    @property
    def is_full(self) -> bool:
        """Whether nothing more fits."""
        return self.filled == self.capacity

    def fill(self, data: memoryview) -> memoryview:
        """Copy as much as fits; returns the rest."""
        count = min(len(data), self.capacity - self.filled)
        piece = data[:count]
        self._make_room(self.filled + count)
        with memoryview(self._data) as target:
            target[self.filled : self.filled + count] = piece
        self.crc32 = zlib.crc32(piece, self.crc32)
        self.filled += count
        return data[count:]

    def body(self) -> bytearray:
        """The bytes to send, not a copy: valid until the next :meth:`fill` or :meth:`clear`."""
        del self._data[self.filled :]
        return self._data

    def clear(self) -> None:
        """Begin the next part."""
        self.filled = 0
        self.crc32 = 0

    def _make_room(self, needed: int) -> None:
        have = len(self._data)
        if needed > have:
            size = min(max(needed, 2 * have, _FIRST_SIZE), self.capacity)
            self._data.extend(bytes(size - have))


class PartPool:
    """Part buffers that are free: a file takes one and gives it back, so that memory is used again.

    Args:
        capacity: bytes of a part.
        spares: most buffers kept while nobody needs them.
    """

    def __init__(self, capacity: int, spares: int = 1) -> None:
        self.capacity = capacity
        self._spares = spares
        self._free: list[PartBuffer] = []

    def take(self) -> PartBuffer:
        """An empty buffer."""
        return self._free.pop() if self._free else PartBuffer(self.capacity)

    def give(self, buffer: PartBuffer) -> None:
        """Take a buffer back."""
        if len(self._free) < self._spares:
            buffer.clear()
            self._free.append(buffer)
