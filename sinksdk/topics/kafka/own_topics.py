"""Topics of a connector's own, created where they are missing."""

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

ADMIN: Final = "admin.override."
"""What keys of the clients that create topics begin with."""

_COMPACTED: Final = {"cleanup.policy": "compact"}
# Dead letters keep their timestamps: with the cluster's retention old ones would be deleted at once.
_KEPT: Final = {"cleanup.policy": "delete", "retention.ms": "-1"}


def ensure_offsets_topic(config: SourceConnectorConfig, kafka: KafkaClient) -> bool:
    """Create the topic of a connector's source offsets, compacted, unless it exists.

    Returns:
        Whether it was created.

    Raises:
        ConfigException: the cluster refuses; the message says what to do.
        RetriableException: it does not answer.
    """
    name, replicas = config.offsets_storage_topic, config.offset_storage_replication_factor
    return _ensure(
        NewTopic(name, config.offset_storage_partitions, replicas, config=_COMPACTED),
        kafka.librdkafka(config.overrides(ADMIN), consumes=False),
        what=f"the topic of source offsets '{name}'",
        name_key="offsets.storage.topic",
        replicas_key="offset.storage.replication.factor",
    )


def ensure_dead_letter_topic(config: ConnectorConfig, kafka: KafkaClient) -> bool:
    """The same for the dead letter topic: one partition, as in Connect, kept for ever."""
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
        """A broker that refuses the login lets requests time out, and reports the reason on the side."""
        if error.code() in REFUSED:
            refusals.append(error.str())

    def failed(why: str) -> str:
        return (
            f"{what} ('{name_key}') cannot be looked up or created at {properties[BOOTSTRAP]}: "
            f"{why}; check that the cluster answers there, and that the connector's user may describe and "
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
                f"set '{replicas_key}' to {brokers} at most"
            ) from error
        admin.poll(0)
        if refusals or reason.code() not in _PASSING:
            raise ConfigException(failed((refusals or [reason.str()])[0])) from error
        raise RetriableException(failed(reason.str())) from error
    except TimeoutError as error:
        raise RetriableException(failed(f"no answer within {2 * _TIMEOUT:g} seconds")) from error
    return True
