"""The topic of dead letters, made where it is missing, before anything could have to go there."""

from __future__ import annotations

from typing import Final

from sinksdk.config import ConnectorConfig
from sinksdk.settings.error_handling import DEAD_LETTER_TOPIC
from sinksdk.topics.kafka.client import KafkaClient
from sinksdk.topics.kafka.own_topics import OwnTopic
from sinksdk.topics.kafka.producers import PRODUCER

# Dead letters keep their timestamps: with the cluster's retention old ones would be deleted at once.
_KEPT: Final = {"cleanup.policy": "delete", "retention.ms": "-1"}


def ensure_topic(config: ConnectorConfig, kafka: KafkaClient) -> bool:
    """Create the dead letter topic unless it is there: one partition, as Connect makes it, kept for ever.

    Returns:
        Whether it was created.

    Raises:
        ConfigException: the cluster refuses; it says what to do.
        RetriableException: it does not answer.
    """
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
