"""Configurations of source connectors: Connect's dotted names, validated into typed, frozen models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

from pydantic import BaseModel, Field

from sinksdk.compatibility import Rules, Verdict
from sinksdk.settings.connect_options import CONNECT_OPTIONS
from sinksdk.settings.job import NameSettings, PaceSettings, RetrySettings
from sinksdk.settings.model import ConfigModel

_same, _ignored = Verdict.same, Verdict.ignored
_OF_SINKS: Final = _ignored("it applies only to sink connectors")
_EACH_NAMES_ITS_TOPIC: Final = _ignored("each record of a source names its topic")
_BYTES: Final = Verdict.unsupported(
    "a source's tasks give keys and values as bytes; remove it, and encode them in the task"
).when({"bytes": _same(), "ByteArrayConverter": _same()})
_ONE_CLUSTER: Final = Verdict.unsupported(
    "records and source offsets are on one cluster, in the same transactions; remove it, and name "
    "the cluster where the connector is run"
)

TRANSACTION_TIMEOUT: Final = "producer.override.transaction.timeout.ms"
"""Milliseconds after which Kafka aborts an open transaction."""

SOURCE_OPTIONS: Final[Mapping[str, Verdict]] = MappingProxyType(
    {
        "topics": _EACH_NAMES_ITS_TOPIC,
        "topics.regex": _EACH_NAMES_ITS_TOPIC,
        "key.converter": _BYTES,
        "value.converter": _BYTES,
        "key.converter.*": _ignored("keys are bytes"),
        "value.converter.*": _ignored("values are bytes"),
        "transforms": Verdict.unsupported(
            "a source's tasks create the records: remove it, and transform them there"
        ),
        "transforms.*": _ignored("it applies only with 'transforms', which sources do not support"),
        "transforms.*.type": _ignored("it applies only with 'transforms', which sources do not support"),
        "predicates": _ignored("it applies only with 'transforms', which sources do not support"),
        "predicates.*": _ignored("it applies only with 'transforms', which sources do not support"),
        "header.converter": _ignored("headers are bytes"),
        "header.converter.*": _ignored("headers are bytes"),
        "errors.tolerance": _ignored("a record that cannot be written ends its task"),
        "errors.log.*": _ignored("nothing is converted, so there are no bad records to log"),
        "errors.deadletterqueue.*": _OF_SINKS,
        "errors.retry.timeout": Verdict.differs(
            "it limits how long a commit without a known outcome is retried; poll is retried without limit"
        ),
        "exactly.once.support": _same(),
        "exactly.once.source.support": _ignored("sources always write in transactions"),
        "transaction.boundary": _same(),
        "transaction.boundary.interval.ms": _same(
            "a transaction that is due does not wait until the task's poll returns"
        ),
        "offsets.storage.topic": _same(),
        "offset.storage.replication.factor": _same("a worker's key in Connect, each connector's own here"),
        "offset.storage.partitions": _same("a worker's key in Connect, each connector's own here"),
        "offset.storage.topic": _ignored("'offsets.storage.topic' names the connector's own"),
        "group.id": _same("a worker's key in Connect, each connector's own here"),
        "topic.creation.*": _ignored("topics are not created; a topic directory needs none"),
        "producer.override.*": _same(),
        "producer.override.bootstrap.servers": _ONE_CLUSTER,
        "consumer.override.bootstrap.servers": _ONE_CLUSTER,
        "admin.override.bootstrap.servers": _ONE_CLUSTER,
        "producer.override.transactional.id": _ignored("it is made of 'group.id', name and task"),
        "producer.override.acks": _ignored("transactions always wait for all replicas in sync"),
        "producer.override.enable.idempotence": _ignored("transactions are always idempotent"),
        "consumer.override.*": _same("for the client that reads the offsets"),
        "consumer.override.isolation.level": _ignored("only committed offsets are read"),
        "consumer.override.auto.offset.reset": _ignored("offsets are read from their topic's start"),
        "admin.override.*": _same("for the client that creates the topic of the offsets"),
        "offset.flush.timeout.ms": _ignored("'errors.retry.timeout' limits a commit"),
    }
)
"""Keys of Kafka Connect that mean something else to a source than to a sink."""


class TransactionSettings(BaseModel):
    """Connect's settings of transactions and of the topic of source offsets."""

    exactly_once_support: Literal["requested", "required"] = Field(
        default="requested",
        alias="exactly.once.support",
        description="`required`: refuse to start unless the connector says that its source can be read "
        "exactly once. Its records go through transactions either way.",
    )
    transaction_boundary: Literal["poll", "interval", "connector"] = Field(
        default="poll",
        alias="transaction.boundary",
        description="Where transactions end: after each `poll`, after an `interval`, or where the "
        "`connector` says.",
    )
    transaction_boundary_interval_ms: int | None = Field(
        default=None,
        ge=1,
        alias="transaction.boundary.interval.ms",
        description="Milliseconds between commits with `transaction.boundary=interval`; by default those of "
        "`offset.flush.interval.ms`.",
    )
    group_id: str = Field(
        default="sinksdk",
        min_length=1,
        alias="group.id",
        description="Prefix of the transactional ids, `<group.id>-<name>-<task>`. Connectors of the same "
        "name that write to one Kafka cluster from different stores need different prefixes. Tasks with "
        "another prefix are not fenced: change it only while the connector is stopped.",
    )
    offsets_storage_topic: str = Field(
        default="sinksdk-offsets",
        min_length=1,
        alias="offsets.storage.topic",
        description="With Kafka: the compacted topic in which source offsets are kept, in Connect's format. "
        "It is created if it is missing.",
    )
    offset_storage_partitions: int = Field(
        default=25,
        ge=1,
        alias="offset.storage.partitions",
        description="Partitions of that topic, if sinksdk creates it.",
    )
    offset_storage_replication_factor: int = Field(
        default=-1,
        ge=-1,
        alias="offset.storage.replication.factor",
        description="Replicas of that topic, if sinksdk creates it; -1 for the cluster's default.",
    )


class SourceConnectorConfig(TransactionSettings, PaceSettings, RetrySettings, NameSettings, ConfigModel):
    """Configuration of every source. Connectors subclass it and add their own fields, as sinks do."""

    @property
    def transaction_interval_ms(self) -> int:
        """Milliseconds between commits with ``transaction.boundary=interval``."""
        return self.transaction_boundary_interval_ms or self.offset_flush_interval_ms

    def problems(self) -> list[str]:
        """Problems between fields; a subclass adds its own to what ``super()`` finds. No I/O."""
        found = [*super().problems(), *self.name_problems()]
        if self.offset_storage_replication_factor == 0:
            found.append("'offset.storage.replication.factor' must be 1 or more, or -1")
        allowed = str((self._written or {}).get(TRANSACTION_TIMEOUT, ""))
        is_interval = self.transaction_boundary == "interval"
        if is_interval and allowed.isdecimal() and int(allowed) <= self.transaction_interval_ms:
            found.append(
                f"'{TRANSACTION_TIMEOUT}' is {allowed}, so Kafka would abort transactions that stay "
                f"open for {self.transaction_interval_ms} ms: remove the former, raise it, or lower "
                f"'transaction.boundary.interval.ms'"
            )
        return found

    @classmethod
    def _rules(cls) -> tuple[Rules, ...]:
        return cls.compatibility, SOURCE_OPTIONS, CONNECT_OPTIONS

    @classmethod
    def _common(cls) -> Sequence[type[BaseModel]]:
        return NameSettings, TransactionSettings, PaceSettings, RetrySettings
