"""Detects partitions whose log has lost records that were read (KIP-320)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from sinksdk.errors import RetriableException
from sinksdk.offsets import TopicPartition
from sinksdk.topics.base import Position
from sinksdk.topics.kafka.cluster import bystander, translating

_PROPERTIES: Final[Mapping[str, Any]] = {
    "enable.partition.eof": True,
    "auto.offset.reset": "error",  # otherwise librdkafka silently continues at the truncated end
    # Bytes: one record, or the first of a batch, shows that nothing was truncated.
    "fetch.message.max.bytes": 1024,
    "queued.min.messages": 1,
}
_LONGEST: Final = 15.0  # seconds
_POLL: Final = 0.5  # seconds
# librdkafka reports the end offset of an epoch only in the text of its error.
_TRUNCATED: Final = re.compile(r"broker end offset is (-?\d+)")


def truncated_logs(
    properties: Mapping[str, str],
    positions: Mapping[TopicPartition, Position],
    clock: Callable[[], float] = time.monotonic,
) -> dict[TopicPartition, int | None]:
    found: dict[TopicPartition, int | None] = {}
    waiting = {p: at for p, at in positions.items() if at.offset > 0}  # librdkafka does not check offset 0
    deadline = clock() + _LONGEST
    with closing(bystander(properties, "sinksdk-epochs", _PROPERTIES)) as consumer:
        consumer.assign([KafkaPartition(*p, at.offset) for p, at in waiting.items()])
        for partition, at in waiting.items():
            # librdkafka compares a position with the log (OffsetsForLeaderEpoch) only in a seek with an
            # epoch.
            _seek(consumer, partition, at, properties["bootstrap.servers"])
        while waiting:
            if clock() >= deadline:
                raise RetriableException(
                    f"the Kafka cluster at {properties['bootstrap.servers']} did not confirm within "
                    f"{_LONGEST:g} s that the logs of {', '.join(map(str, waiting))} still contain the "
                    f"records that were read"
                )
            message = consumer.poll(_POLL)
            if message is None or message.topic() is None or message.partition() is None:
                continue
            partition = TopicPartition(str(message.topic()), int(message.partition() or 0))
            if partition not in waiting or ((error := message.error()) is not None and error.retriable()):
                continue
            with translating(properties["bootstrap.servers"], f"the leader epochs of {partition}"):
                is_truncated, end = _truncation(message)
            if is_truncated:
                found[partition] = end
            del waiting[partition]
            with suppress(KafkaException):  # if pausing fails, a few records are fetched without use
                consumer.pause([KafkaPartition(*partition)])
    return found


def _seek(consumer: Consumer, partition: TopicPartition, at: Position, bootstrap: str) -> None:
    with translating(bootstrap, f"the leader epochs of {partition}"):
        consumer.seek(KafkaPartition(*partition, at.offset, leader_epoch=at.epoch))


def _truncation(message: Message) -> tuple[bool, int | None]:
    """Return whether the log was truncated, and where; None if the log does not know the epoch."""
    error = message.error()
    if error is None or error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name for it
        return False, None
    match = _TRUNCATED.search(error.str())
    if match is None:
        raise KafkaException(error)
    end = int(match[1])
    return True, None if end < 0 else end
