"""Source offsets in a Kafka topic, in the format of Kafka Connect."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from sinksdk.config import CONSUMER_OVERRIDES
from sinksdk.engine.writer import CommittedOffsets
from sinksdk.errors import ConnectException, DataException, RetriableException
from sinksdk.offsets import OffsetRange, TopicPartition
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.source.positions import SourcePosition, as_json, partition_key
from sinksdk.source.records import SourceOffset, SourcePartition
from sinksdk.support.threads import in_a_thread
from sinksdk.topics.kafka.client import KafkaClient
from sinksdk.topics.kafka.cluster import Cluster, bystander, translating

log = logging.getLogger(__name__)

_PATIENCE: Final = 60.0  # seconds; other producers' open transactions usually time out after these
_POLL: Final = 0.5  # seconds
_READING: Final[Mapping[str, Any]] = {
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": 50,  # few records are left, so a longer wait would return no more
}


def offset_record(
    connector: str, partition: SourcePartition, offset: SourceOffset | None
) -> tuple[bytes, bytes | None]:
    """Return key and value of a record; None results in a tombstone."""
    name = json.dumps(connector, ensure_ascii=False)
    value = None if offset is None else as_json(offset).encode()
    return f"[{name},{as_json(partition)}]".encode(), value


def parsed_key(key: bytes | None) -> tuple[str, Mapping[str, Any]] | None:
    try:
        connector, partition = json.loads(key or b"")
    except (ValueError, TypeError):
        return None
    return (connector, partition) if isinstance(connector, str) and isinstance(partition, dict) else None


def parsed_offset(value: bytes | None) -> Mapping[str, Any] | None:
    offset = json.loads(value) if value is not None else None
    if offset is not None and not isinstance(offset, dict):
        raise ValueError(value)
    return offset


class KafkaOffsets(CommittedOffsets):
    """Reads a connector's source offsets, at first from the topic's start, later only new ones."""

    def __init__(
        self, properties: Mapping[str, str], connector: str, topic: str, *, patience: float = _PATIENCE
    ) -> None:
        self._properties = properties
        self._connector = connector
        self._topic = topic
        self._patience = patience
        self._known: dict[str, SourceOffset] = {}
        self._next: dict[int, int] = {}
        self._cluster: Cluster | None = None
        self._consumer: Consumer | None = None
        self._is_closed = False
        self._reading = threading.Lock()  # librdkafka's clients must not be closed while they are used

    @classmethod
    def of(cls, config: SourceConnectorConfig, kafka: KafkaClient) -> KafkaOffsets:
        properties = kafka.librdkafka(config.overrides(CONSUMER_OVERRIDES))
        return cls(properties, config.name, config.offsets_storage_topic)

    def offsets(self, partitions: Sequence[SourcePartition]) -> Sequence[SourceOffset | None]:
        keys = [partition_key(partition) for partition in partitions]
        known = self._read()
        return [dict(known[key]) if key in known else None for key in keys]

    def positions(self) -> Sequence[SourcePosition]:
        return [SourcePosition(json.loads(key), offset) for key, offset in sorted(self._read().items())]

    def _read(self) -> Mapping[str, SourceOffset]:
        with self._reading:
            if self._is_closed:
                raise ConnectException(
                    f"connector {self._connector}: the reader of its source offsets is closed"
                )
            self._read_on()
            return dict(self._known)

    def close(self) -> None:
        with self._reading:
            self._is_closed = True
            cluster, self._cluster = self._cluster, None
            consumer, self._consumer = self._consumer, None
            if cluster is not None:
                cluster.close()
            if consumer is not None:
                consumer.close()

    # The log's end counts, not the first open transaction, because later records may be this task's own
    # commits.
    def _read_on(self) -> None:
        unread = {
            number: extent
            for number, extent in self._extents().items()
            if self._next.get(number, extent.start) < extent.end
        }
        if not unread:
            return
        if self._consumer is None:
            self._consumer = bystander(self._properties, "sinksdk-offsets", _READING)
        self._consumer.assign(
            [KafkaPartition(self._topic, n, self._next.get(n, extent.start)) for n, extent in unread.items()]
        )
        try:
            self._read_to(self._consumer, {number: extent.end for number, extent in unread.items()})
            self._consumer.unassign()
        except BaseException:
            # The client may be stuck without responses: the next read uses a new one.
            stuck, self._consumer = self._consumer, None
            in_a_thread(stuck.close)
            raise

    def _extents(self) -> dict[int, OffsetRange]:
        if self._cluster is None:  # read_uncommitted, so that extents include open transactions
            self._cluster = Cluster({**self._properties, "isolation.level": "read_uncommitted"})
        partitions: list[TopicPartition] = self._cluster.partitions([self._topic]).get(self._topic, [])
        return {p.partition: extent for p, extent in self._cluster.extents(partitions).items()}

    def _read_to(self, consumer: Consumer, ends: dict[int, int]) -> None:
        deadline = time.monotonic() + self._patience
        while ends:
            if time.monotonic() >= deadline:
                raise RetriableException(
                    f"connector {self._connector}: the topic of source offsets {self._topic} (partitions "
                    f"{sorted(ends)}) could not be read to its end within {self._patience:g} s: a "
                    f"transaction in it is still open, or no broker responds"
                )
            message = consumer.poll(_POLL)
            if message is None:
                continue
            error, number, offset = message.error(), int(message.partition() or 0), int(message.offset() or 0)
            if error is None:
                self._take(message)
                self._next[number] = offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name for it
                self._next[number] = offset  # the position includes transaction markers
            elif not error.retriable():
                with translating(self._properties["bootstrap.servers"], f"topic {self._topic}"):
                    raise KafkaException(error)
            if number in ends and self._next.get(number, 0) >= ends[number]:
                del ends[number]

    def _take(self, message: Message) -> None:
        key, value = message.key(), message.value()
        parsed = parsed_key(key if isinstance(key, bytes) else None)
        if parsed is None:
            log.debug("topic %s, offset %s: not a source offset", self._topic, message.offset())
            return
        connector, partition = parsed
        if connector != self._connector:
            return
        try:
            name = partition_key(partition)
            offset = parsed_offset(value if isinstance(value, bytes) else None)
        except (DataException, ValueError):
            log.warning(
                "topic %s, partition %s, offset %s: ignored an invalid source offset of connector %s",
                self._topic,
                message.partition(),
                message.offset(),
                self._connector,
            )
            return
        if offset is None:
            self._known.pop(name, None)
        else:
            self._known[name] = offset
