"""The cluster and topic of a connector's dead letters, found or made before Spark is started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinksdk.config import ConnectorConfig
from sinksdk.errors import ConfigException
from sinksdk.launch.topics import SourceOptions

if TYPE_CHECKING:
    from sinksdk.sources.kafka import KafkaClient


def prepare_dead_letters(options: SourceOptions, config: ConnectorConfig) -> KafkaClient | None:
    """See that dead letters have somewhere to go.

    Args:
        options: where records come from: their cluster takes the dead letters, too.
        config: of the connector.

    Returns:
        How its tasks reach the cluster; None where no dead letters are asked for.

    Raises:
        ConfigException: there is no cluster, or the topic cannot be made.
        RetriableException: the cluster does not answer.
    """
    if not config.dead_letter_topic:
        return None
    try:
        from sinksdk.sources.kafka import KafkaClient  # noqa: PLC0415 - an extra
        from sinksdk.sources.kafka.dead_letter_topic import ensure_topic  # noqa: PLC0415 - the same
        from sinksdk.sources.kafka.dead_letters import dead_letter_client  # noqa: PLC0415 - the same
    except ImportError as error:
        raise ConfigException(
            f"dead letters need a further package ({error}): pip install 'sinksdk[kafka]'"
        ) from error
    source = KafkaClient(options.bootstrap_servers, options.absolute_config) if options.is_kafka else None
    client = dead_letter_client(config, source)
    ensure_topic(config, client)
    return client
