"""Whether a partition's log has lost records that were read (KIP-320)."""

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
from sinksdk.topics.kafka.cluster import asking, bystander

_PROPERTIES: Final[Mapping[str, Any]] = {
    "enable.partition.eof": True,
    "auto.offset.reset": "error",  # otherwise librdkafka goes to the truncated end without a word
    "fetch.message.max.bytes": 1024,  # one record, or the first of a batch: its arrival says that all is well
    "queued.min.messages": 1,
}
_LONGEST: Final = 15.0  # seconds
_POLL: Final = 0.5  # seconds
# librdkafka has no other way to hand out the end offset of an epoch than the text of its error.
_TRUNCATED: Final = re.compile(r"broker end offset is (-?\d+)")


def truncated_logs(
    properties: Mapping[str, str],
    positions: Mapping[TopicPartition, Position],
    clock: Callable[[], float] = time.monotonic,
) -> dict[TopicPartition, int | None]:
    """Partitions whose log no longer has all that was read: as of :meth:`Source.truncated`.

    librdkafka compares a position with the log (OffsetsForLeaderEpoch) when a consumer seeks to it with its
    epoch, though not when it is assigned there.

    Args:
        clock: seconds on a clock that never jumps.
    """
    found: dict[TopicPartition, int | None] = {}
    waiting = {p: at for p, at in positions.items() if at.offset > 0}  # librdkafka checks no other
    deadline = clock() + _LONGEST
    with closing(bystander(properties, "sinksdk-epochs", _PROPERTIES)) as consumer:
        consumer.assign([KafkaPartition(*p, at.offset) for p, at in waiting.items()])
        for partition, at in waiting.items():
            _seek(consumer, partition, at, properties["bootstrap.servers"])
        while waiting:
            if clock() >= deadline:
                raise RetriableException(
                    f"the Kafka cluster at {properties['bootstrap.servers']} has not told within "
                    f"{_LONGEST:g} s whether it still has what was read of {', '.join(map(str, waiting))}"
                )
            message = consumer.poll(_POLL)
            if message is None or message.topic() is None or message.partition() is None:
                continue
            partition = TopicPartition(str(message.topic()), int(message.partition() or 0))
            if partition not in waiting or ((error := message.error()) is not None and error.retriable()):
                continue
            with asking(properties["bootstrap.servers"], f"the leader epochs of {partition}"):
                is_truncated, end = _answer(message)
            if is_truncated:
                found[partition] = end
            del waiting[partition]
            with suppress(KafkaException):  # then a few of its records are fetched without use
                consumer.pause([KafkaPartition(*partition)])
    return found


def _seek(consumer: Consumer, partition: TopicPartition, at: Position, bootstrap: str) -> None:
    with asking(bootstrap, f"the leader epochs of {partition}"):
        consumer.seek(KafkaPartition(*partition, at.offset, leader_epoch=at.epoch))


def _answer(message: Message) -> tuple[bool, int | None]:
    """Whether the log was truncated, and where. Raises KafkaException if that is not known."""
    error = message.error()
    if error is None or error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name for it
        return False, None
    said = _TRUNCATED.search(error.str())
    if said is None:
        raise KafkaException(error)
    end = int(said[1])
    return True, None if end < 0 else end
