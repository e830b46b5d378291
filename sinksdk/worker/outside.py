"""A task reaches its schema registry, dead letters and topic ids through these functions.

confluent-kafka is imported on use: it is an extra, and slow to import.
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
    from sinksdk.topics.kafka.schema_registry import connect  # noqa: PLC0415 - see above

    return connect(address)


def prepare_dead_letters(
    config: ConnectorConfig, kafka: KafkaClient | None, directory: str = ""
) -> KafkaClient | str:
    """Find or create the dead letter topic; return the cluster's client, or the topic directory's path.

    ``kafka`` and ``directory`` are those of the connector's records.

    Raises:
        RetriableException: the cluster is unavailable.
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
    """Open the writer of dead letters at the place that the driver found; None: as configured."""
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
    # Only Kafka's topics have ids.
    if source is None or not ids:
        return always_valid
    try:
        from sinksdk.topics.kafka import cluster  # noqa: PLC0415 - an extra, slow to load

        return cluster.topic_id_check(source, config.overrides(CONSUMER_OVERRIDES), ids)
    except (ImportError, ConfigException) as error:
        log.warning(
            "connector %s: this executor cannot read topic ids, so a topic that is deleted and created again "
            "while it is read is detected late: %s",
            config.name,
            error,
        )
        return always_valid


class Outside(NamedTuple):
    dead_letters: Callable[
        [ConnectorConfig, KafkaClient | str | None], AbstractContextManager[DeadLetters | None]
    ] = open_dead_letters
    topic_id_check: Callable[[ConnectorConfig, KafkaClient | None, Mapping[str, str]], TopicIdCheck] = (
        topic_id_check
    )
