"""What of the world outside a task's configuration names: a schema registry, dead letters in Kafka.

Loaded only where they are named: confluent-kafka is an extra, and takes its time.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from sinksdk.config import ConnectorConfig
from sinksdk.converter_settings import RegistryAddress
from sinksdk.engine.converters import SchemaOf
from sinksdk.engine.errant import DeadLetters

if TYPE_CHECKING:
    from sinksdk.sources.kafka.client import KafkaClient


def schema_registry(address: RegistryAddress) -> SchemaOf:
    """A schema registry, which is not asked anything yet.

    Raises:
        ConfigException: its client is not installed, or takes the address for none.
    """
    from sinksdk.sources.kafka.schema_registry import connect  # noqa: PLC0415 - see above

    return connect(address)


def open_dead_letters(
    config: ConnectorConfig, kafka: KafkaClient | None
) -> AbstractContextManager[DeadLetters | None]:
    """Where a task's bad records go while the block runs; None where that is nowhere.

    Args:
        config: of the connector.
        kafka: the cluster its records come from, if they come from one.

    Raises:
        ConfigException: there is no cluster, or its properties cannot be used here.
    """
    if not config.dead_letter_topic:
        return nullcontext()
    from sinksdk.sources.kafka import dead_letters as letters  # noqa: PLC0415 - see above

    client = letters.dead_letter_client(config, kafka)
    return letters.KafkaDeadLetters(config.dead_letter_topic, letters.producer_properties(config, client))
