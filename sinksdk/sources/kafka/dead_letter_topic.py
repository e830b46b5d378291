"""The topic of dead letters, made where it is missing, before anything could have to go there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # public, but not listed

from sinksdk.config import ConnectorConfig
from sinksdk.error_settings import DEAD_LETTER_TOPIC
from sinksdk.errors import ConfigException
from sinksdk.sources.kafka.client import BOOTSTRAP, KafkaClient
from sinksdk.sources.kafka.dead_letters import PRODUCER

_TIMEOUT: Final = 15.0  # seconds
# Dead letters keep their timestamps: with the cluster's retention old ones would be deleted at once.
_KEPT: Final = {"cleanup.policy": "delete", "retention.ms": "-1"}
_REPLICATION: Final = "errors.deadletterqueue.topic.replication.factor"


def ensure_topic(config: ConnectorConfig, kafka: KafkaClient) -> bool:
    """Create the dead letter topic unless it is there: one partition, as Connect makes it, kept for ever.

    Returns:
        Whether it was created.

    Raises:
        ConfigException: the cluster does not answer or refuses; it says what to do.
    """
    properties: dict[str, Any] = {"log_level": 2, **kafka.librdkafka(config.overrides(PRODUCER))}
    topic = config.dead_letter_topic
    try:
        admin = AdminClient(properties)
        found = admin.list_topics(timeout=_TIMEOUT)
        if topic in found.topics:
            return False
        replicas = config.dead_letter_replication_factor
        new = NewTopic(topic, num_partitions=1, replication_factor=replicas, config=dict(_KEPT))
        admin.create_topics([new], operation_timeout=_TIMEOUT)[topic].result(2 * _TIMEOUT)
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        if reason.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        if reason.code() == KafkaError.INVALID_REPLICATION_FACTOR:
            raise ConfigException(_too_many_replicas(config, len(found.brokers))) from error
        raise ConfigException(_refused(topic, properties, reason.str())) from error
    except TimeoutError as error:
        why = f"no answer within {2 * _TIMEOUT:g} seconds"
        raise ConfigException(_refused(topic, properties, why)) from error
    return True


def _too_many_replicas(config: ConnectorConfig, brokers: int) -> str:
    return (
        f"the dead letter topic '{config.dead_letter_topic}' cannot be created with "
        f"{config.dead_letter_replication_factor} replicas: the cluster has {brokers} "
        f"{'broker' if brokers == 1 else 'brokers'}; set '{_REPLICATION}' to {brokers} at most"
    )


def _refused(topic: str, properties: Mapping[str, Any], why: str) -> str:
    return (
        f"the dead letter topic '{topic}' ('{DEAD_LETTER_TOPIC}') cannot be looked up or created at "
        f"{properties[BOOTSTRAP]}: {why}; check that the cluster answers there, and that the "
        f"connector's user may describe and create topics, or create the topic yourself"
    )
