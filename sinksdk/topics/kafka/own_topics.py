"""Creates the topics of source offsets and dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # public, but not listed

from sinksdk.config import ConnectorConfig
from sinksdk.errors import ConfigException, RetriableException
from sinksdk.settings.job import DEAD_LETTER_TOPIC
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.topics.kafka.client import BOOTSTRAP, PRODUCER, KafkaClient
from sinksdk.topics.kafka.cluster import REFUSED
from sinksdk.topics.kafka.renewal import SILENCE

_TIMEOUT: Final = 15.0  # seconds
_TRANSIENT: Final = SILENCE | frozenset(
    {
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.REQUEST_TIMED_OUT,
    }
)

ADMIN: Final = "admin.override."

_COMPACTED: Final = {"cleanup.policy": "compact"}
# Dead letters keep their timestamps: the cluster's retention would delete old ones at once.
_KEPT: Final = {"cleanup.policy": "delete", "retention.ms": "-1"}


def ensure_offsets_topic(config: SourceConnectorConfig, kafka: KafkaClient) -> bool:
    """Create the compacted topic of source offsets; False if it exists."""
    name, replicas = config.offsets_storage_topic, config.offset_storage_replication_factor
    return _ensure(
        NewTopic(name, config.offset_storage_partitions, replicas, config=_COMPACTED),
        kafka.librdkafka(config.overrides(ADMIN), consumes=False),
        what=f"the topic of source offsets '{name}'",
        name_key="offsets.storage.topic",
        replicas_key="offset.storage.replication.factor",
    )


def ensure_dead_letter_topic(config: ConnectorConfig, kafka: KafkaClient) -> bool:
    # As in Connect, the topic has one partition, whose records are kept without limit.
    return _ensure(
        NewTopic(config.dead_letter_topic, 1, config.dead_letter_replication_factor, config=_KEPT),
        kafka.librdkafka(config.overrides(PRODUCER), consumes=False),
        what=f"the dead letter topic '{config.dead_letter_topic}'",
        name_key=DEAD_LETTER_TOPIC,
        replicas_key="errors.deadletterqueue.topic.replication.factor",
    )


def _ensure(
    topic: NewTopic, properties: Mapping[str, Any], *, what: str, name_key: str, replicas_key: str
) -> bool:
    refusals: list[str] = []

    def note(error: KafkaError) -> None:
        # Requests to a broker that refuses the authentication time out; it reports the reason only here.
        if error.code() in REFUSED:
            refusals.append(error.str())

    def failed(why: str) -> str:
        return (
            f"{what} ('{name_key}') cannot be read or created at {properties[BOOTSTRAP]}: "
            f"{why}; check that the cluster responds there, and that the connector's user may describe and "
            f"create topics, or create the topic yourself"
        )

    try:
        own: dict[str, Any] = {"log_level": 2, "error_cb": note}
        admin = AdminClient({**own, **properties})
        found = admin.list_topics(timeout=_TIMEOUT)
        if topic.topic in found.topics:
            return False
        admin.create_topics([topic], operation_timeout=_TIMEOUT)[topic.topic].result(2 * _TIMEOUT)
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        if reason.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        if reason.code() == KafkaError.INVALID_REPLICATION_FACTOR:
            brokers = len(found.brokers)
            raise ConfigException(
                f"{what} cannot be created with {topic.replication_factor} replicas: the cluster has "
                f"{brokers} {'broker' if brokers == 1 else 'brokers'}; "
                f"set '{replicas_key}' to at most {brokers}"
            ) from error
        admin.poll(0)
        if refusals or reason.code() not in _TRANSIENT:
            raise ConfigException(failed((refusals or [reason.str()])[0])) from error
        raise RetriableException(failed(reason.str())) from error
    except TimeoutError as error:
        raise RetriableException(failed(f"no response within {2 * _TIMEOUT:g} s")) from error
    return True
