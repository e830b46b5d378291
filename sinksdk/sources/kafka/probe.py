"""Whether a range of offsets holds any record: compaction and transaction markers leave some that do not."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final

from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as KafkaPartition

from sinksdk.records import OffsetRange, TopicPartition
from sinksdk.sources.kafka.cluster import bystander

_READING: Final[Mapping[str, Any]] = {
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "fetch.message.max.bytes": 1024,  # one record, or the first of a batch
}
_PATIENCE: Final = 5.0  # seconds; who gets no answer takes it that there are records


def first_offset(properties: Mapping[str, str], partition: TopicPartition, offsets: OffsetRange) -> int:
    """Offset of the first record in a range, its end when it holds none, its start when nobody answers."""
    with closing(bystander(properties, "sinksdk-probe", _READING)) as consumer:
        consumer.assign([KafkaPartition(partition.topic, partition.partition, offsets.start)])
        deadline = time.monotonic() + _PATIENCE
        while (left := deadline - time.monotonic()) > 0:
            message = consumer.poll(left)
            if message is None:
                break
            error = message.error()
            if error is None:
                return min(int(message.offset() or 0), offsets.end)
            if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name for it
                return offsets.end
            if not error.retriable():
                break
    return offsets.start
