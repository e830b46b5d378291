"""A Kafka consumer that returns Arrow record batches and is in no group."""

from __future__ import annotations

import logging
import math
import os
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Self

from confluent_kafka import KafkaError, KafkaException, Producer

from sinksdk.errors import ConfigException, ConnectException, RetriableException
from sinksdk.offsets import TopicPartition
from sinksdk.records import RECORD_COLUMNS
from sinksdk.topics.kafka.messages import Client, Fill, Filled, PropertiesError, Refusal
from sinksdk.topics.kafka.plain_client import PlainClient

log = logging.getLogger(__name__)

OpenClient = Callable[[Mapping[str, str]], Client]

# A record of 100 bytes from a mock cluster in the same process takes the compiled client (_messages.c) 0.2 us
# of processor time, and the plain one, on confluent-kafka's public consumer, 3.1 us.
compiled_client: OpenClient | None
try:
    from sinksdk.topics.kafka.compiled_client import CompiledClient
except ImportError:
    compiled_client = None
    log.info(
        "this installation of sinksdk has no compiled modules, so reading from Kafka takes 15 times the "
        "processor time. Install a wheel that has them, or install a C compiler and Python's headers and "
        "reinstall sinksdk"
    )
else:
    compiled_client = CompiledClient

_DEFAULTS: Final = {"log_level": "2"}  # librdkafka also reports an unreachable broker as an error
_FIXED: Final = {
    "group.id": "sinksdk-reader",
    "enable.auto.commit": "false",
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",
    "allow.auto.create.topics": "false",
}
_LIMIT: Final = 2**31 - 1  # Arrow counts a column's bytes, and a batch's headers, in 32 bits
_LONGEST: Final = 2**31 - 1  # milliseconds


def has_feature(name: str) -> bool:
    try:
        Producer({"builtin.features": name})
    except KafkaException:
        return False
    return True


class Consumer:
    """A thread-safe consumer. Once it is closed, or after a fork, every method raises RuntimeError."""

    def __init__(self, properties: Mapping[str, str], open_client: OpenClient | None = None) -> None:
        self._lock = threading.RLock()
        self._process = os.getpid()
        try:
            self._client = (open_client or compiled_client or PlainClient)(
                {**_DEFAULTS, **properties, **_FIXED}
            )
        except PropertiesError as error:
            named = f"the property {error.name}" if error.name else "these properties"
            raise ConfigException(f"the Kafka client does not accept {named}: {error.reason}") from None
        self._release = weakref.finalize(self, _close, self._client, self._process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # librdkafka applies queued.max.messages.kbytes and queued.min.messages to each partition.
    def add(self, offsets: Mapping[TopicPartition, int]) -> None:
        with self._use() as client:
            _check(client.add(offsets), offsets)

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        with self._use() as client:
            _check(client.remove(frozenset(partitions)), partitions)

    def fill(
        self,
        partition: TopicPartition,
        *,
        timeout: float,
        end: int,
        max_rows: int,
        max_bytes: int,
        columns: Collection[str] = RECORD_COLUMNS,
    ) -> Filled:
        """Wait for the first record of an added partition, then return those that have arrived.

        A record that has more bytes than Arrow can count, or unreadable headers, is an event and is skipped.
        After a MemoryError records are lost: add the partition again.

        Args:
            timeout: seconds to wait for the first record.
        """
        if max_rows < 1 or max_bytes < 1:
            raise ValueError(f"max_rows and max_bytes must be at least 1, but are {max_rows} and {max_bytes}")
        if unknown := set(columns) - RECORD_COLUMNS.keys():
            raise ValueError(f"records have no column {', '.join(sorted(unknown))}")
        wait = min(math.ceil(max(timeout, 0) * 1000), _LONGEST)
        with self._use() as client:
            return client.fill(partition, Fill(wait, end, max_rows, max_bytes, columns, _LIMIT))

    def position(self, partition: TopicPartition) -> int:
        """Return the offset after the last consumed record or transaction marker; negative without one."""
        with self._use() as client:
            return client.position(partition)

    def errors(self) -> list[KafkaError]:
        with self._use() as client:
            return client.errors()

    def close(self) -> None:
        # A forked child must not close the client, so it only forgets it.
        if self._process != os.getpid():
            self._release()
            return
        with self._lock:
            self._release()

    @contextmanager
    def _use(self) -> Iterator[Client]:
        # A thread of a forked child's parent may hold the lock for ever.
        if self._process != os.getpid():
            raise RuntimeError("a Kafka consumer cannot be used after a fork: create one in the child")
        with self._lock:
            if not self._release.alive:
                raise RuntimeError("the Kafka consumer is closed")
            yield self._client


# Destroying a client of a forked child's parent would wait for threads that the child does not have.
_FORGOTTEN: Final[list[Any]] = []


def _close(client: Client, process: int) -> None:
    if process == os.getpid():
        client.close()
    else:
        _FORGOTTEN.append(client)


def _check(refusal: Refusal | None, partitions: Collection[TopicPartition]) -> None:
    if refusal is not None:
        kind = RetriableException if refusal.is_retriable else ConnectException
        raise kind(f"the Kafka client cannot read {', '.join(map(str, partitions))}: {refusal.text}")
