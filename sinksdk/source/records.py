"""What a source task reads: records for topics, each with the place in the source that it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sinksdk.offsets import TopicPartition
from sinksdk.records import Header

Scalar: TypeAlias = str | int | float | bool | None
"""A value in a source partition or offset: what JSON has, less lists and objects."""

SourcePartition: TypeAlias = Mapping[str, Scalar]
"""Identifies one part of the source: ``{"file": "/var/log/a"}``."""

SourceOffset: TypeAlias = Mapping[str, Scalar]
"""A place in one part of the source, from which it can be read on: ``{"byte": 1024, "line": 17}``."""


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """One record for a topic, and where in the source it ends.

    Args:
        source_partition: which part of the source it was read from.
        source_offset: where to read on there once this record is in its topic.
        topic: which topic it is for.
        value: value bytes, None for a tombstone.
        key: key bytes, None where there is none.
        partition: the topic's partition; None leaves it to the writer: in Kafka by the key's hash, in a
            topic directory 0.
        timestamp: milliseconds since the epoch, None for the time at which it is written.
        headers: in this order, duplicates kept.
    """

    source_partition: SourcePartition
    source_offset: SourceOffset
    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a record is now.

    Args:
        topic: its topic.
        partition: its partition.
        offset: its offset there.
    """

    topic: str
    partition: int
    offset: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Where the record was written to."""
        return TopicPartition(self.topic, self.partition)
