"""Topics of a connector's own, created where they are missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # public, but not listed

from sinksdk.config import ConnectorConfig
from sinksdk.errors import ConfigException, RetriableException
from sinksdk.settings.job import DEAD_LETTER_TOPIC
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.topics.kafka.client import BOOTSTRAP, KafkaClient
from sinksdk.topics.kafka.cluster import REFUSED
from sinksdk.topics.kafka.producers import PRODUCER

_TIMEOUT: Final = 15.0  # seconds
_PASSING: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - librdkafka's names for its own errors
        KafkaError._RESOLVE,  # noqa: SLF001 - a name server may be away, too
        KafkaError._TIMED_OUT,  # noqa: SLF001 - the same
        KafkaError._TRANSPORT,  # noqa: SLF001 - the same
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.REQUEST_TIMED_OUT,
    }
)
"""No broker answers, or not now."""


@dataclass(frozen=True, slots=True)
class OwnTopic:
    """A topic that a connector cannot do without.

    Args:
        what: it is, for messages.
        name_key: the configuration key of its name.
        replicas: -1 for the cluster's own default.
        replicas_key: the configuration key of their number.
    """

    what: str
    name: str
    name_key: str
    partitions: int
    replicas: int
    replicas_key: str
    config: Mapping[str, str]

    def ensure(self, properties: Mapping[str, Any]) -> bool:
        """Create it unless it exists; returns whether it was created.

        Args:
            properties: librdkafka's.

        Raises:
            ConfigException: the cluster refuses; the message says what to do.
            RetriableException: it does not answer.
        """
        refusals: list[str] = []

        def note(error: KafkaError) -> None:
            """A broker that refuses the login lets requests time out, and reports the reason on the side."""
            if error.code() in REFUSED:
                refusals.append(error.str())

        quiet = {"log_level": 2, "error_cb": note, **properties}
        try:
            admin = AdminClient(quiet)
            found = admin.list_topics(timeout=_TIMEOUT)
            if self.name in found.topics:
                return False
            new = NewTopic(self.name, self.partitions, self.replicas, config=dict(self.config))
            admin.create_topics([new], operation_timeout=_TIMEOUT)[self.name].result(2 * _TIMEOUT)
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if reason.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            if reason.code() == KafkaError.INVALID_REPLICATION_FACTOR:
                raise ConfigException(self._too_many_replicas(len(found.brokers))) from error
            admin.poll(0)
            if refusals or reason.code() not in _PASSING:
                raise ConfigException(self._refused(quiet, (refusals or [reason.str()])[0])) from error
            raise RetriableException(self._refused(quiet, reason.str())) from error
        except TimeoutError as error:
            why = f"no answer within {2 * _TIMEOUT:g} seconds"
            raise RetriableException(self._refused(quiet, why)) from error
        return True

    def _too_many_replicas(self, brokers: int) -> str:
        return (
            f"{self.what} cannot be created with {self.replicas} replicas: the cluster has {brokers} "
            f"{'broker' if brokers == 1 else 'brokers'}; set '{self.replicas_key}' to {brokers} at most"
        )

    def _refused(self, properties: Mapping[str, Any], why: str) -> str:
        return (
            f"{self.what} ('{self.name_key}') cannot be looked up or created at {properties[BOOTSTRAP]}: "
            f"{why}; check that the cluster answers there, and that the connector's user may describe and "
            f"create topics, or create the topic yourself"
        )


ADMIN: Final = "admin.override."
"""What keys of the clients that create topics begin with."""

_COMPACTED: Final = {"cleanup.policy": "compact"}
# Dead letters keep their timestamps: with the cluster's retention old ones would be deleted at once.
_KEPT: Final = {"cleanup.policy": "delete", "retention.ms": "-1"}


def ensure_dead_letter_topic(config: ConnectorConfig, kafka: KafkaClient) -> bool:
    """The dead letter topic, of one partition as in Connect, kept for ever. As :meth:`OwnTopic.ensure`."""
    topic = OwnTopic(
        f"the dead letter topic '{config.dead_letter_topic}'",
        config.dead_letter_topic,
        name_key=DEAD_LETTER_TOPIC,
        partitions=1,
        replicas=config.dead_letter_replication_factor,
        replicas_key="errors.deadletterqueue.topic.replication.factor",
        config=_KEPT,
    )
    return topic.ensure(kafka.librdkafka(config.overrides(PRODUCER), consumes=False))


def ensure_offsets_topic(config: SourceConnectorConfig, kafka: KafkaClient) -> bool:
    """The topic of a connector's source offsets, compacted. As :meth:`OwnTopic.ensure`."""
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
