"""A consumer of librdkafka whose partitions are read each from its own queue.

Its functions are taken from the library that confluent-kafka brings and has loaded; nothing is linked or
bundled. librdkafka never calls Python: its messages and errors wait in queues, and it logs nothing.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import KafkaError, cimpl

from sinksdk.errors import ConfigException, ConnectException, RetriableException
from sinksdk.offsets import TopicPartition

HELD: Final = 128
"""How many messages at most are taken out of a queue at once."""

_DEFAULTS: Final = {"log_level": "2"}  # what librdkafka logs of a broker that is away, the errors say as well
_OWN: Final = {
    "group.id": "sinksdk-reader",
    "enable.auto.commit": "false",
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",
    "allow.auto.create.topics": "false",
}
_CONSUMER: Final = 1  # kind of client
_FETCH, _ERROR = 0x2, 0x8  # kinds of events
_STAYS_SILENT: Final = 0x8  # when destroyed: it is in no group that it had to leave
_TEXT: Final = 512  # bytes for an error's text
_PASSING: Final = frozenset(
    getattr(KafkaError, name)
    for name in (
        *("_TRANSPORT", "_RESOLVE", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_WAIT_COORD"),
        *("_MSG_TIMED_OUT", "_RETRY", "_WAIT_CACHE", "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION"),
        *("REQUEST_TIMED_OUT", "BROKER_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE", "NETWORK_EXCEPTION"),
        *("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"),
        *("KAFKA_STORAGE_ERROR", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "OFFSET_NOT_AVAILABLE"),
        *("UNKNOWN", "UNKNOWN_TOPIC_ID", "INCONSISTENT_TOPIC_ID"),  # Java's client continues, too
        *("THROTTLING_QUOTA_EXCEEDED", "FETCH_SESSION_ID_NOT_FOUND", "INVALID_FETCH_SESSION_EPOCH"),
    )
)


class Message(ctypes.Structure):
    """``rd_kafka_message_t``. With an error, the payload is its text."""

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


class Held(ctypes.Structure):
    """Messages taken out of a queue and not read yet: from ``first`` to before ``last``."""

    _fields_ = (
        ("first", ctypes.c_int32),
        ("last", ctypes.c_int32),
        ("messages", ctypes.c_void_p * HELD),
    )


class Functions(NamedTuple):
    """Addresses of the functions that the loop over messages needs, in its order.

    ``rd_kafka_`` ``consume_batch_queue``, ``message_destroy``, ``message_timestamp``, ``message_headers`` and
    ``header_get_all``.
    """

    consume: int
    destroy: int
    timestamp: int
    headers: int
    header: int


CONSUME: Final = ctypes.CFUNCTYPE(
    ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
)
DESTROY: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
TIMESTAMP: Final = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))
HEADERS: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
HEADER: Final = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_char_p),
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
)


class _Partition(ctypes.Structure):
    """The beginning of ``rd_kafka_topic_partition_t``."""

    _fields_ = (("topic", ctypes.c_char_p), ("partition", ctypes.c_int32), ("offset", ctypes.c_int64))


_POINTER, _INT, _TEXT_OF = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
_SIGNATURES: Final[Mapping[str, tuple[Any, tuple[Any, ...]]]] = {
    "conf_new": (_POINTER, ()),
    "conf_set": (_INT, (_POINTER, _TEXT_OF, _TEXT_OF, _TEXT_OF, ctypes.c_size_t)),
    "conf_set_events": (None, (_POINTER, _INT)),
    "conf_destroy": (None, (_POINTER,)),
    "new": (_POINTER, (_INT, _POINTER, _TEXT_OF, ctypes.c_size_t)),
    "destroy_flags": (None, (_POINTER, _INT)),
    "poll_set_consumer": (_INT, (_POINTER,)),
    "fatal_error": (_INT, (_POINTER, _TEXT_OF, ctypes.c_size_t)),
    "queue_get_consumer": (_POINTER, (_POINTER,)),
    "queue_get_partition": (_POINTER, (_POINTER, _TEXT_OF, ctypes.c_int32)),
    "queue_forward": (None, (_POINTER, _POINTER)),
    "queue_poll": (_POINTER, (_POINTER, _INT)),
    "queue_destroy": (None, (_POINTER,)),
    "topic_partition_list_new": (_POINTER, (_INT,)),
    "topic_partition_list_add": (ctypes.POINTER(_Partition), (_POINTER, _TEXT_OF, ctypes.c_int32)),
    "topic_partition_list_destroy": (None, (_POINTER,)),
    "incremental_assign": (_POINTER, (_POINTER, _POINTER)),
    "incremental_unassign": (_POINTER, (_POINTER, _POINTER)),
    "position": (_INT, (_POINTER, _POINTER)),
    "error_string": (_TEXT_OF, (_POINTER,)),
    "error_is_retriable": (_INT, (_POINTER,)),
    "error_destroy": (None, (_POINTER,)),
    "event_type": (_INT, (_POINTER,)),
    "event_error": (_INT, (_POINTER,)),
    "event_error_string": (_TEXT_OF, (_POINTER,)),
    "event_error_is_fatal": (_INT, (_POINTER,)),
    "event_destroy": (None, (_POINTER,)),
}


@cache
def library() -> ctypes.CDLL:
    """The library that confluent-kafka has loaded, found by way of its extension module."""
    found = ctypes.CDLL(cimpl.__file__)
    for name, (result, arguments) in _SIGNATURES.items():
        function = found[f"rd_kafka_{name}"]
        function.restype, function.argtypes = result, arguments
        setattr(found, f"rd_kafka_{name}", function)
    return found


@cache
def functions() -> Functions:
    """Those of :func:`library`."""
    names = (
        "consume_batch_queue",
        "message_destroy",
        "message_timestamp",
        "message_headers",
        "header_get_all",
    )
    found = (ctypes.cast(library()[f"rd_kafka_{name}"], ctypes.c_void_p).value for name in names)
    return Functions(*(address or 0 for address in found))


def has_feature(name: str) -> bool:
    """Whether librdkafka was built with a feature of ``builtin.features``, as ``sasl_gssapi``."""
    found, reason = library(), ctypes.create_string_buffer(_TEXT)
    settings = found.rd_kafka_conf_new()
    try:
        return not found.rd_kafka_conf_set(settings, b"builtin.features", name.encode(), reason, _TEXT)
    finally:
        found.rd_kafka_conf_destroy(settings)


def as_error(code: int, text: bytes | None = None, *, is_fatal: bool = False) -> KafkaError:
    """An error of the library's. It is retriable if librdkafka retries by itself, and so may succeed later.

    Args:
        text: if there is none, librdkafka describes the code.
        is_fatal: the client does nothing any more; make another.
    """
    is_retriable = code in _PASSING and not is_fatal
    # confluent-kafka takes no text with a zero in it.
    reason = _decoded(text).replace("\0", "\ufffd") or None
    return KafkaError(code, reason, fatal=is_fatal, retriable=is_retriable)


class PartitionQueue:
    """What was fetched of one partition. Any thread may use it, one at a time.

    Args:
        address: of librdkafka's queue, which is owned from now on.
        destroy: gives the queue back.
    """

    def __init__(self, address: int, functions: Functions, destroy: Callable[[int], object]) -> None:
        self.functions = functions
        self._address = address
        self._destroy = destroy
        self._held = Held()
        self._lock = threading.Lock()
        self._is_closed = False
        self._process = os.getpid()

    @property
    def address(self) -> int:
        """Raises RuntimeError: it is closed, or belongs to the process this one was forked from."""
        _check(self._process, self._is_closed, "a partition's queue")
        return self._address

    @contextmanager
    def use(self) -> Iterator[int]:
        """Keep the queue open; yields the address of its :class:`Held`. Raises as :attr:`address`."""
        _check(self._process, self._is_closed, "a partition's queue")
        with self._lock:
            _check(self._process, self._is_closed, "a partition's queue")
            yield ctypes.addressof(self._held)

    def close(self) -> None:
        """Give back the messages and the queue. Waits until it is not in use."""
        if self._process != os.getpid():
            return
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._drain()
            self._destroy(self._address)

    def _drain(self) -> None:
        """Destroy all messages: those left in librdkafka's queue would stay in memory."""
        consume, destroy = CONSUME(self.functions.consume), DESTROY(self.functions.destroy)
        held = self._held
        while True:
            for index in range(held.first, held.last):
                destroy(held.messages[index])
            held.first = 0
            held.last = max(consume(self._address, 0, ctypes.addressof(held) + Held.messages.offset, HELD), 0)
            if not held.last:
                return


class Consumer:
    """A consumer of librdkafka that is in no group. Any thread may use it.

    Each partition has its own queue, so that others are fetched ahead while one is read; librdkafka's
    ``queued.max.messages.kbytes`` and ``queued.min.messages`` count for each of them. A forked child cannot
    use its parent's: every method raises RuntimeError there, and after :meth:`close`.

    Args:
        properties: librdkafka's. A few are fixed: offsets are never committed nor chosen by the client, and
            it creates no topic.

    Raises:
        ConfigException: a property is unknown or has a bad value, or they do not go together.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._library = library()
        self._lock = threading.RLock()
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._process = os.getpid()
        self._handle: int = _made({**_DEFAULTS, **properties, **_OWN})
        self._library.rd_kafka_poll_set_consumer(self._handle)
        self._common: int = self._library.rd_kafka_queue_get_consumer(self._handle)
        self._release = weakref.finalize(
            self, _release, self._handle, self._common, self._queues, self._process
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Fetch these partitions too, each from its offset on.

        Raises:
            ConnectException: the client refuses, for example because one of them was added before.
            RetriableException: not now.
        """
        with self._in_use():
            before = set(self._queues)
            for partition in offsets:
                self.queue(partition)
            try:
                self._change(self._library.rd_kafka_incremental_assign, offsets)
            except ConnectException:
                for partition in offsets.keys() - before:
                    self._queues.pop(partition).close()
                raise

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        """Stop fetching these, drop what was fetched, and close their queues.

        Raises:
            ConnectException: one of them was not added.
            RetriableException: not now.
        """
        with self._in_use():
            self._change(self._library.rd_kafka_incremental_unassign, dict.fromkeys(partitions, 0))
            for partition in set(partitions):
                self._queues.pop(partition).close()

    def queue(self, partition: TopicPartition) -> PartitionQueue:
        """The partition's own queue, before it is added or after.

        librdkafka sends a partition's messages to the common queue when it begins to fetch, unless the
        partition's queue was told before to forward to none.
        """
        with self._in_use():
            if partition not in self._queues:
                address = self._library.rd_kafka_queue_get_partition(
                    self._handle, partition.topic.encode(), partition.partition
                )
                self._library.rd_kafka_queue_forward(address, None)
                self._queues[partition] = PartitionQueue(
                    address, functions(), self._library.rd_kafka_queue_destroy
                )
            return self._queues[partition]

    def position(self, partition: TopicPartition) -> int:
        """The offset after the last record or end of a transaction that was consumed; below 0: none was.

        Ends of transactions, aborted ones too, leave a partition's queue like its records, and are not handed
        out. Makes no request.
        """
        with self._in_use():
            rows = self._library.rd_kafka_topic_partition_list_new(1)
            try:
                row = self._library.rd_kafka_topic_partition_list_add(
                    rows, partition.topic.encode(), partition.partition
                )
                self._library.rd_kafka_position(self._handle, rows)
                return int(row.contents.offset)
            finally:
                self._library.rd_kafka_topic_partition_list_destroy(rows)

    def errors(self) -> list[KafkaError]:
        """Errors of the client as a whole since the last call, without waiting.

        Raises:
            RuntimeError: also where a partition's message came to the common queue.
        """
        found = []
        with self._in_use():
            while event := self._library.rd_kafka_queue_poll(self._common, 0):
                kind = self._library.rd_kafka_event_type(event)
                if kind == _ERROR:
                    found.append(self._error(event))
                self._library.rd_kafka_event_destroy(event)
                if kind == _FETCH:
                    message = "a message of Kafka did not come on its partition's own queue"
                    raise RuntimeError(message)
        return found

    def close(self) -> None:
        """Close the client and its partitions' queues; idempotent.

        A forked child only forgets them: threads and connections are its parent's.
        """
        if self._process != os.getpid():
            self._release.detach()
            return
        with self._lock:
            self._release()

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        _check(self._process, not self._release.alive, "the Kafka consumer")
        with self._lock:
            _check(self._process, not self._release.alive, "the Kafka consumer")
            yield

    def _change(
        self, change: Callable[[int, int], int | None], offsets: Mapping[TopicPartition, int]
    ) -> None:
        rows = self._library.rd_kafka_topic_partition_list_new(len(offsets))
        try:
            for (topic, partition), offset in offsets.items():
                row = self._library.rd_kafka_topic_partition_list_add(rows, topic.encode(), partition)
                row.contents.offset = offset
            error = change(self._handle, rows)
        finally:
            self._library.rd_kafka_topic_partition_list_destroy(rows)
        if error:
            text = _decoded(self._library.rd_kafka_error_string(error))
            kind = (
                RetriableException if self._library.rd_kafka_error_is_retriable(error) else ConnectException
            )
            self._library.rd_kafka_error_destroy(error)
            raise kind(f"the Kafka client does not take {', '.join(map(str, offsets))}: {text}")

    def _error(self, event: int) -> KafkaError:
        code = self._library.rd_kafka_event_error(event)
        text = self._library.rd_kafka_event_error_string(event)
        is_fatal = bool(self._library.rd_kafka_event_error_is_fatal(event))
        if is_fatal:
            reason = ctypes.create_string_buffer(_TEXT)
            code = self._library.rd_kafka_fatal_error(self._handle, reason, _TEXT) or code
            text = reason.value or text
        return as_error(code, text, is_fatal=is_fatal)


def _made(properties: Mapping[str, str]) -> int:
    found, reason = library(), ctypes.create_string_buffer(_TEXT)
    settings = found.rd_kafka_conf_new()
    made: int | None = None
    try:
        for key, value in properties.items():
            if found.rd_kafka_conf_set(settings, key.encode(), str(value).encode(), reason, _TEXT):
                raise ConfigException(
                    f"the Kafka client does not accept the property {key}: {_decoded(reason.value)}"
                )
        found.rd_kafka_conf_set_events(settings, _ERROR)
        made = found.rd_kafka_new(_CONSUMER, settings, reason, _TEXT)
        if not made:
            raise ConfigException(f"the Kafka client properties are not accepted: {_decoded(reason.value)}")
        return made
    finally:
        if not made:  # or they are the client's
            found.rd_kafka_conf_destroy(settings)


def _release(handle: int, common: int, queues: dict[TopicPartition, PartitionQueue], process: int) -> None:
    """Queues are closed before their client, which would wait for their messages for ever."""
    if process != os.getpid():
        return
    for queue in queues.values():
        queue.close()
    found = library()
    found.rd_kafka_queue_destroy(common)
    found.rd_kafka_destroy_flags(handle, _STAYS_SILENT)


def _check(process: int, is_closed: bool, what: str) -> None:  # noqa: FBT001 - of this module only
    """Raise RuntimeError where using it could end the process."""
    if process != os.getpid():
        raise RuntimeError(f"{what} belongs to the process that made it: a child makes its own after a fork")
    if is_closed:
        raise RuntimeError(f"{what} is closed")


def _decoded(text: bytes | None) -> str:
    return (text or b"").decode("utf-8", "replace")
