"""Messages in librdkafka's own memory, and the functions that read them."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError

from sinksdk import TopicPartition
from sinksdk.topics.kafka import consumer as module
from sinksdk.topics.kafka.consumer import Consumer
from sinksdk.topics.kafka.messages import Client
from sinksdk.topics.kafka.plain_client import PlainClient

PARTITION: Final = TopicPartition("fake", 0)
NO_HEADERS: Final = -156
_libc = ctypes.CDLL(None)
_libc.malloc.restype, _libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
_libc.free.restype, _libc.free.argtypes = None, (ctypes.c_void_p,)


@dataclass(frozen=True)
class Fake:
    # The value of an error is its text. Key and value may be declared longer than they are.
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
    # Each message has memory of exactly its size, freed when it is destroyed, so that the compiled client
    # cannot read past it. A None in the list ends the call that reaches it.
    def __init__(self, messages: Sequence[Fake | None], open_client: Callable[..., Client]) -> None:
        self.waiting = list(messages)
        self.waits: list[int] = []
        self.destroyed: Counter[int] = Counter()
        self.given: dict[int, Fake] = {}
        self.alive: dict[int, list[int]] = {}
        self.closed = 0
        is_plain = open_client is PlainClient
        argument = (lambda _: _PlainConsumer(self)) if is_plain else self._addresses()
        self.consumer = Consumer({}, lambda properties: open_client(properties, argument))
        self.consumer.add({PARTITION: 0})

    def take(self, count: int, timeout_ms: int) -> list[Fake]:
        self.waits.append(timeout_ms)
        found: list[Fake] = []
        while len(found) < count and self.waiting and (fake := self.waiting.pop(0)) is not None:
            found.append(fake)
        return found

    def _addresses(self) -> tuple[int, ...]:
        from sinksdk.topics.kafka._messages import FUNCTIONS  # noqa: PLC0415 - not everywhere

        size, int64, pointer = ctypes.c_size_t, ctypes.c_int64, ctypes.c_void_p
        pointers = [ctypes.POINTER(each) for each in (ctypes.c_char_p, pointer, size)]
        block = ctypes.create_string_buffer(64)  # handles of topics, and the row number that the list returns
        handle = ctypes.CFUNCTYPE(pointer)(lambda: ctypes.addressof(block))
        nothing = ctypes.CFUNCTYPE(pointer)(lambda: None)
        functions = {
            **dict.fromkeys(("conf_new", "new", "queue_get_consumer", "queue_get_partition"), handle),
            **dict.fromkeys(("topic_partition_list_new", "topic_partition_list_add"), handle),
            "destroy_flags": ctypes.CFUNCTYPE(None, pointer, ctypes.c_int)(self._close),
            "consume_batch_queue": ctypes.CFUNCTYPE(ctypes.c_ssize_t, pointer, ctypes.c_int, pointer, size)(
                self._consume
            ),
            "message_destroy": ctypes.CFUNCTYPE(None, pointer)(self._destroy),
            "message_timestamp": ctypes.CFUNCTYPE(int64, pointer, ctypes.POINTER(ctypes.c_int))(
                self._timestamp
            ),
            "message_headers": ctypes.CFUNCTYPE(ctypes.c_int, pointer, ctypes.POINTER(pointer))(
                self._headers
            ),
            "header_get_all": ctypes.CFUNCTYPE(ctypes.c_int, pointer, size, *pointers)(self._header),
        }
        found = [functions.get(name.removeprefix("rd_kafka_"), nothing) for name in FUNCTIONS]
        self._kept: list[Any] = [block, *found]
        return tuple(ctypes.cast(one, pointer).value or 0 for one in found)

    def _close(self, client: int, flags: int) -> None:
        self.closed += 1

    def _copied(self, content: bytes | None, blocks: list[int]) -> int | None:
        if content is None:
            return None
        block: int = _libc.malloc(len(content))
        ctypes.memmove(block, content, len(content))
        blocks.append(block)
        return block

    def _consume(self, queue: int, timeout_ms: int, messages: int, count: int) -> int:
        found = self.take(count, timeout_ms)
        for number, fake in enumerate(found):
            blocks: list[int] = []
            address: int = _libc.malloc(ctypes.sizeof(_Message))
            message = _Message.from_address(address)
            message.err, message.offset, message.topic, message.partition = fake.error, fake.offset, None, 0
            message.payload, message.key = self._copied(fake.value, blocks), self._copied(fake.key, blocks)
            message.len = len(fake.value or b"") if fake.says is None else fake.says
            message.key_len = len(fake.key or b"") if fake.says is None else fake.says
            for name, value in fake.headers:
                self._copied(name + b"\0", blocks)
                blocks.append(self._copied(value, []) or 0)
            self.given[address], self.alive[address] = fake, [*blocks, address]
            ctypes.c_void_p.from_address(messages + number * 8).value = address
        return len(found)

    def _destroy(self, address: int) -> None:
        fake = self.given.pop(address)  # a message that is destroyed twice raises KeyError
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


class _Message(ctypes.Structure):
    _fields_ = (
        ("err", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


class _PlainConsumer:
    def __init__(self, library: FakeLibrary) -> None:
        self._library = library

    def incremental_assign(self, partitions: object) -> None: ...

    def consume(self, count: int, timeout: float) -> list[_PlainMessage]:
        return [_PlainMessage(fake) for fake in self._library.take(count, round(timeout * 1000))]

    def close(self) -> None:
        self._library.closed += 1


class _PlainMessage:
    def __init__(self, fake: Fake) -> None:
        self._fake = fake

    def offset(self) -> int:
        return self._fake.offset

    def key(self) -> bytes | None:
        return self._fake.key

    def value(self) -> bytes | None:
        return self._fake.value

    def timestamp(self) -> tuple[int, int]:
        return self._fake.kind, self._fake.timestamp

    def error(self) -> KafkaError | None:
        # confluent-kafka decodes the text of an error, and accepts none with a zero byte.
        if not self._fake.error:
            return None
        text = (self._fake.value or b"").decode("utf-8", "replace").replace("\0", "\ufffd")
        return KafkaError(self._fake.error, text or None)

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        # confluent-kafka raises SystemError for a key that is not UTF-8.
        if self._fake.headers_error:
            raise SystemError
        return [(key.decode(), value) for key, value in self._fake.headers] or None


CLIENTS: Final[Mapping[str, Callable[..., Client] | None]] = {
    "plain": PlainClient,
    "compiled": module.compiled_client,
}
