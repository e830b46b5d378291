"""Records that a source task reads for topics, each with the offset in the source that follows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sinksdk.offsets import TopicPartition
from sinksdk.records import Header

Scalar: TypeAlias = str | int | float | bool | None
"""A value in a source partition or offset: any JSON value but lists and objects."""

SourcePartition: TypeAlias = Mapping[str, Scalar]
"""Identifies one part of the source: ``{"file": "/var/log/a"}``."""

SourceOffset: TypeAlias = Mapping[str, Scalar]
"""The place from which a part of the source can be read on: ``{"byte": 1024, "line": 17}``."""


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """One record for a topic, and where in the source it ends.

    Args:
        source_partition: the part of the source that it was read from.
        source_offset: where to resume reading there once this record is committed.
        topic: the topic to write it to.
        value: value bytes, None for a tombstone.
        key: key bytes, None for a record without a key.
        partition: the topic's partition; None leaves the choice to the writer: in Kafka by the key's hash, in
            a topic directory 0.
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
    """Topic, partition and offset of a record that was written."""

    topic: str
    partition: int
    offset: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition of the record."""
        return TopicPartition(self.topic, self.partition)
