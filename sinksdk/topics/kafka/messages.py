"""The results of both Kafka clients: batches, ends of partitions, errors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import pyarrow as pa
from confluent_kafka import KafkaError

from sinksdk.offsets import TopicPartition

END_OF_PARTITION: Final[int] = KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka's name for it
BAD_MESSAGE: Final[int] = KafkaError._BAD_MSG  # noqa: SLF001 - the same
MOST_MESSAGES: Final = 128  # messages taken from librdkafka's queue at a time

# librdkafka retries these by itself.
_TRANSIENT: Final = frozenset(
    getattr(KafkaError, name)
    for name in (
        *("_TRANSPORT", "_RESOLVE", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_WAIT_COORD"),
        *("_MSG_TIMED_OUT", "_RETRY", "_WAIT_CACHE", "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION"),
        *("REQUEST_TIMED_OUT", "BROKER_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE", "NETWORK_EXCEPTION"),
        *("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"),
        *("KAFKA_STORAGE_ERROR", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "OFFSET_NOT_AVAILABLE"),
        *("UNKNOWN", "UNKNOWN_TOPIC_ID", "INCONSISTENT_TOPIC_ID"),  # Java's client also continues after these
        *("THROTTLING_QUOTA_EXCEEDED", "FETCH_SESSION_ID_NOT_FOUND", "INVALID_FETCH_SESSION_EPOCH"),
    )
)


def kafka_error(code: int, text: str = "", *, is_fatal: bool = False) -> KafkaError:
    # confluent-kafka accepts no zero byte in a text.
    reason = text.replace("\0", "\ufffd") or None
    return KafkaError(code, reason, fatal=is_fatal, retriable=code in _TRANSIENT and not is_fatal)


class Event(NamedTuple):
    """The end of the partition, or an error; ``offset`` is negative if the error has none."""

    error: KafkaError
    offset: int

    @property
    def is_end_of_partition(self) -> bool:
        return self.error.code() == END_OF_PARTITION


@dataclass(frozen=True, slots=True)
class Filled:
    """The result of one :meth:`~sinksdk.topics.kafka.consumer.Consumer.fill`.

    Args:
        next: the offset to read next; the range's end once no record below it is left; None: nothing arrived.
    """

    batch: pa.RecordBatch | None
    next: int | None
    is_end: bool
    event: Event | None


class Fill(NamedTuple):
    timeout_ms: int
    end: int
    max_rows: int
    max_bytes: int
    columns: Collection[str]
    limit: int


class Client(Protocol):
    """A librdkafka client for one call at a time, and none after a fork."""

    def add(self, offsets: Mapping[TopicPartition, int]) -> Refusal | None: ...

    def remove(self, partitions: Collection[TopicPartition]) -> Refusal | None: ...

    def fill(self, partition: TopicPartition, order: Fill) -> Filled: ...

    def position(self, partition: TopicPartition) -> int: ...

    def errors(self) -> list[KafkaError]: ...

    def close(self) -> None: ...


class Refusal(NamedTuple):
    text: str
    is_retriable: bool


class PropertiesError(ValueError):
    """librdkafka refused the properties; ``name`` is the one it names, if any."""

    def __init__(self, name: str | None, reason: str) -> None:
        super().__init__(name, reason)
        self.name, self.reason = name, reason
