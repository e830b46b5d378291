"""The topic that source offsets are kept in, in the format of Kafka Connect."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sinksdk.source.config import SourceConnectorConfig
from sinksdk.source.positions import SourcePosition, as_json
from sinksdk.source.records import SourcePartition
from sinksdk.topics.kafka.client import KafkaClient
from sinksdk.topics.kafka.own_topics import OwnTopic

ADMIN: Final = "admin.override."
"""What keys of the clients that create topics begin with."""

_COMPACTED: Final = {"cleanup.policy": "compact"}


class OffsetRecord(NamedTuple):
    """A record of the topic: the key ``["<connector>",{<partition>}]``, the value ``{<offset>}``."""

    key: bytes
    value: bytes | None

    @classmethod
    def of(cls, connector: str, position: SourcePosition) -> OffsetRecord:
        """How far a source partition was read."""
        return cls(_key(connector, position.partition), as_json(position.offset).encode())

    @classmethod
    def forgetting(cls, connector: str, partition: SourcePartition) -> OffsetRecord:
        """A tombstone: as if nothing of the source partition had been read."""
        return cls(_key(connector, partition), None)


def _key(connector: str, partition: SourcePartition) -> bytes:
    """Equal partitions make equal keys: compaction goes by their bytes."""
    name = json.dumps(connector, ensure_ascii=False)
    return f"[{name},{as_json(partition)}]".encode()


def parsed_key(key: bytes | None) -> tuple[str, Mapping[str, Any]] | None:
    """Connector and source partition of a record, whoever wrote it; None for a key of another form."""
    try:
        connector, partition = json.loads(key or b"")
    except (ValueError, TypeError):
        return None
    return (connector, partition) if isinstance(connector, str) and isinstance(partition, dict) else None


def parsed_offset(value: bytes | None) -> Mapping[str, Any] | None:
    """The source offset in a record; None for one that takes an earlier one back.

    Raises:
        ValueError: it is none.
    """
    offset = json.loads(value) if value is not None else None
    if offset is not None and not isinstance(offset, dict):
        raise ValueError(value)
    return offset


def ensure_offsets_topic(config: SourceConnectorConfig, kafka: KafkaClient) -> bool:
    """Create the topic of a connector's offsets unless it is there, compacted.

    Returns:
        Whether it was created.

    Raises:
        ConfigException: the cluster refuses; it says what to do.
        RetriableException: it does not answer.
    """
    topic = OwnTopic(
        f"the topic of source offsets '{config.offsets_storage_topic}'",
        config.offsets_storage_topic,
        name_key="offsets.storage.topic",
        partitions=config.offset_storage_partitions,
        replicas=config.offset_storage_replication_factor,
        replicas_key="offset.storage.replication.factor",
        config=_COMPACTED,
    )
    return topic.ensure(kafka.librdkafka(config.overrides(ADMIN), consumes=False))
