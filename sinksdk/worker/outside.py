"""External systems of a task: schema registry, dead letters, topic ids.

Loaded on use: confluent-kafka is an extra, and slow to import.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

from sinksdk.config import CONSUMER_OVERRIDES, ConnectorConfig
from sinksdk.config.converters import RegistryAddress
from sinksdk.engine.commits import DeadLetters, TopicIdCheck, always_valid
from sinksdk.engine.converters import SchemaOf
from sinksdk.errors import ConfigException

if TYPE_CHECKING:
    from sinksdk.topics.kafka.client import KafkaClient

log = logging.getLogger(__name__)


def schema_registry(address: RegistryAddress) -> SchemaOf:
    """A schema registry; makes no request yet.

    Raises:
        ConfigException: its client is not installed, or takes the address for none.
    """
    from sinksdk.topics.kafka.schema_registry import connect  # noqa: PLC0415 - see above

    return connect(address)


def prepare_dead_letters(
    config: ConnectorConfig, kafka: KafkaClient | None, directory: str = ""
) -> KafkaClient | str:
    """Find or create the dead letter topic that a connector's configuration has.

    Args:
        kafka: the records' cluster, if they come from one.
        directory: the records' topic directory, if they come from one.

    Returns:
        The cluster's client, or the path of the topic directory.

    Raises:
        ConfigException: the topic cannot be made, or the directory not written.
        RetriableException: the cluster does not answer.
    """
    own = config.dead_letter_directory
    if own or (directory and not config.has_dead_letter_cluster):
        from sinksdk.topics.directory.dead_letters import check_directory  # noqa: PLC0415 - few need it

        check_directory(own or directory, is_sources=not own)
        return own or directory
    try:
        from sinksdk.topics.kafka.dead_letters import dead_letter_client  # noqa: PLC0415 - the same
        from sinksdk.topics.kafka.own_topics import ensure_dead_letter_topic  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigException(
            f"dead letters need a further package ({error}): pip install 'sinksdk[kafka]'"
        ) from error
    client = dead_letter_client(config, kafka)
    ensure_dead_letter_topic(config, client)
    return client


def open_dead_letters(
    config: ConnectorConfig, place: KafkaClient | str | None
) -> AbstractContextManager[DeadLetters | None]:
    """The writer of a task's dead letters while the block runs; None without dead letters.

    Args:
        place: the cluster, or the path of a topic directory, that the driver has found; None: the one that
            the configuration names.

    Raises:
        ConfigException: there is no cluster, or its properties cannot be used here.
    """
    if not config.dead_letter_topic:
        return nullcontext()
    if isinstance(place, str) or config.dead_letter_directory:
        from sinksdk.topics.directory.dead_letters import DirectoryDeadLetters  # noqa: PLC0415 - see above

        directory = place if isinstance(place, str) else config.dead_letter_directory
        return DirectoryDeadLetters(directory, config.dead_letter_topic)
    from sinksdk.topics.kafka import dead_letters as letters  # noqa: PLC0415 - see above
    from sinksdk.topics.kafka.client import producer_properties  # noqa: PLC0415 - the same

    client = letters.dead_letter_client(config, place)
    return letters.KafkaDeadLetters(config.dead_letter_topic, producer_properties(config, client))


def topic_id_check(
    config: ConnectorConfig, source: KafkaClient | None, ids: Mapping[str, str]
) -> TopicIdCheck:
    """Checks that topics still have their planned ids; only Kafka's topics have ids."""
    if source is None or not ids:
        return always_valid
    try:
        from sinksdk.topics.kafka import cluster  # noqa: PLC0415 - an extra, slow to load

        return cluster.topic_id_check(source, config.overrides(CONSUMER_OVERRIDES), ids)
    except (ImportError, ConfigException) as error:
        log.warning(
            "connector %s: a topic that is deleted and created again while it is read is noticed late: this "
            "executor cannot ask for its id (%s)",
            config.name,
            error,
        )
        return always_valid


class Outside(NamedTuple):
    """How a task reaches what is neither its store nor its destination.

    Args:
        dead_letters: opens their writer, given the place that the driver has found.
        topic_id_check: creates the check of topic ids, given the ids of the plan.
    """

    dead_letters: Callable[
        [ConnectorConfig, KafkaClient | str | None], AbstractContextManager[DeadLetters | None]
    ] = open_dead_letters
    topic_id_check: Callable[[ConnectorConfig, KafkaClient | None, Mapping[str, str]], TopicIdCheck] = (
        topic_id_check
    )
