"""Messages in librdkafka's own memory, and the functions that read them."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sinksdk.topics.kafka.rdkafka import (
    CONSUME,
    DESTROY,
    HEADER,
    HEADERS,
    TIMESTAMP,
    Functions,
    Message,
    PartitionQueue,
)

NO_HEADERS = -156
_libc = ctypes.CDLL(None)
_libc.malloc.restype, _libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
_libc.free.restype, _libc.free.argtypes = None, (ctypes.c_void_p,)


@dataclass(frozen=True)
class Fake:
    """One message. With an error, the value is its text. Key and value may be declared longer than they are."""

    offset: int
    key: bytes | None = None
    value: bytes | None = None
    timestamp: int = -1
    kind: int = 0
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    error: int = 0
    headers_error: int = 0
    says: int | None = None


class FakeLibrary:
    """Functions over fake messages, each in memory of exactly its size, which is freed when it is destroyed.

    Args:
        messages: in order; None ends the call that reaches it without a further message.
    """

    def __init__(self, messages: Sequence[Fake | None]) -> None:
        self.waiting = list(messages)
        self.waits: list[int] = []
        self.destroyed: Counter[int] = Counter()
        self.given: dict[int, Fake] = {}
        self.alive: dict[int, list[int]] = {}
        self.closed = 0
        self._callbacks: list[Any] = [
            CONSUME(self._consume),
            DESTROY(self._destroy),
            TIMESTAMP(self._timestamp),
            HEADERS(self._headers),
            HEADER(self._header),
        ]
        addresses = (ctypes.cast(one, ctypes.c_void_p).value or 0 for one in self._callbacks)
        self.queue = PartitionQueue(4711, Functions(*addresses), self._close)

    def _close(self, address: int) -> None:
        self.closed += 1

    def _copied(self, content: bytes | None, blocks: list[int]) -> int | None:
        if content is None:
            return None
        block: int = _libc.malloc(len(content))
        ctypes.memmove(block, content, len(content))
        blocks.append(block)
        return block

    def _consume(self, queue: int, timeout_ms: int, messages: int, count: int) -> int:
        assert queue == 4711
        self.waits.append(timeout_ms)
        given = 0
        while given < count and self.waiting:
            fake = self.waiting.pop(0)
            if fake is None:
                break
            blocks: list[int] = []
            address: int = _libc.malloc(ctypes.sizeof(Message))
            message = Message.from_address(address)
            message.err, message.offset, message.topic, message.partition = fake.error, fake.offset, None, 0
            message.payload, message.key = self._copied(fake.value, blocks), self._copied(fake.key, blocks)
            message.len = len(fake.value or b"") if fake.says is None else fake.says
            message.key_len = len(fake.key or b"") if fake.says is None else fake.says
            for name, value in fake.headers:
                self._copied(name + b"\0", blocks)
                blocks.append(self._copied(value, []) or 0)
            self.given[address], self.alive[address] = fake, [*blocks, address]
            ctypes.c_void_p.from_address(messages + given * 8).value = address
            given += 1
        return given

    def _destroy(self, address: int) -> None:
        fake = self.given.pop(address)  # KeyError: destroyed twice
        self.destroyed[fake.offset] += 1
        for block in self.alive.pop(address):
            _libc.free(block)

    def _timestamp(self, address: int, kind: Any) -> int:
        kind[0] = self.given[address].kind
        return self.given[address].timestamp

    def _headers(self, address: int, headers: Any) -> int:
        fake = self.given[address]
        headers[0] = address
        if fake.headers:
            return 0
        return fake.headers_error or NO_HEADERS

    def _header(self, address: int, index: int, name: Any, value: Any, size: Any) -> int:
        headers = self.given[address].headers
        if index >= len(headers):
            return self.given[address].headers_error or NO_HEADERS
        blocks = self.alive[address][-1 - 2 * len(headers) :]
        ctypes.c_void_p.from_address(ctypes.addressof(name.contents)).value = blocks[2 * index]
        value[0] = blocks[2 * index + 1] or None
        size[0] = len(headers[index][1] or b"")
        return 0
