"""Where topics are, which sinks read and sources write: a topic directory or a Kafka cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sinksdk.config import CONSUMER_OVERRIDES, ConnectorConfig
from sinksdk.control.consumer_group import OffsetGroup
from sinksdk.engine.writer import Target
from sinksdk.errors import ConfigException, RetriableException
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.sources import Source, TopicDirectory
from sinksdk.sources.topic_directory.layout import local_root
from sinksdk.writers.topic_directory import TopicDirectoryTarget

if TYPE_CHECKING:
    from sinksdk.sources.kafka import KafkaClient

_ADDRESS: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[^\s:/\[\]]+):(\d{1,5})")
_PORTS: Final = range(1, 65_536)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What the command was told of the source.

    Args:
        directory: a topic directory.
        bootstrap_servers: a Kafka cluster, instead.
        kafka_config: a file with properties of its clients.
    """

    directory: str = ""
    bootstrap_servers: str = ""
    kafka_config: str = ""

    @property
    def is_kafka(self) -> bool:
        """Whether records come from Kafka."""
        return bool(self.bootstrap_servers)

    @property
    def absolute_config(self) -> str:
        """The file of properties, as processes with other working directories find it."""
        return str(Path(self.kafka_config).absolute()) if self.kafka_config else ""

    def check(self) -> None:
        """Raise ConfigException unless exactly one source is named, in words that can be understood."""
        if bool(self.directory) == bool(self.bootstrap_servers):
            message = "name one source: --source-directory DIR, or --bootstrap-servers HOST:PORT"
            raise ConfigException(message)
        if self.directory and self.kafka_config:
            message = "--kafka-config goes with --bootstrap-servers"
            raise ConfigException(message)
        if self.is_kafka and (problems := list(_problems(self.bootstrap_servers))):
            raise ConfigException(problems)


def _problems(servers: str) -> Iterator[str]:
    """Addresses that are none: librdkafka makes one up of them, and tries that for ever."""
    addresses = [address.strip() for address in servers.split(",") if address.strip()]
    if not addresses:
        yield "--bootstrap-servers names no broker: HOST:PORT, several separated by commas"
    for address in addresses:
        parts = _ADDRESS.fullmatch(address)
        if not parts or int(parts[1]) not in _PORTS:
            yield f"--bootstrap-servers: '{address}' is no HOST:PORT, as in broker.example:9092"


@dataclass(frozen=True, slots=True)
class OpenedSource:
    """A source that answers.

    Args:
        source: where records come from.
        group: the consumer group of the connector; None where the source has none.
        client: how executors reach the Kafka cluster, if it is one.
    """

    source: Source
    group: OffsetGroup | None = None
    client: KafkaClient | None = None


def open_source(options: SourceOptions, config: ConnectorConfig | None) -> OpenedSource | None:
    """Open what the options name; None for Kafka as long as there is no configuration.

    Raises:
        ConfigException: not exactly one source is named, it is not there, or it lets this client not in.
        RetriableException: it does not answer.
    """
    options.check()
    if options.is_kafka:
        return None if config is None else _kafka(options, config)
    if config is not None and config.offset_source == "group":
        message = "'offset.source' is 'group', but a topic directory has no consumer groups"
        raise ConfigException(message)
    source = TopicDirectory(options.directory)
    if not source.root.is_dir():
        message = f"the source directory {source.root} is not there, or is no folder"
        raise ConfigException(message)
    return OpenedSource(source)


def open_target(options: SourceOptions, config: SourceConnectorConfig) -> Target:
    """Open where a source's records go: what sinks that are run so read from.

    Raises:
        ConfigException: not exactly one place is named, it is not there, or it refuses.
        RetriableException: it does not answer.
    """
    options.check()
    if not options.is_kafka:
        root = local_root(options.directory)
        if not root.parent.is_dir():
            message = f"the topic directory {root} cannot be made: there is no folder {root.parent}"
            raise ConfigException(message)
        return TopicDirectoryTarget(str(root.absolute()))
    try:
        from sinksdk.sources.kafka import KafkaClient  # noqa: PLC0415 - an extra
        from sinksdk.writers.kafka import KafkaTarget, ensure_offsets_topic  # noqa: PLC0415 - the same
    except ImportError as error:
        raise _needs_kafka(error) from error
    client = KafkaClient(options.bootstrap_servers, options.absolute_config)
    ensure_offsets_topic(config, client)
    return KafkaTarget(client)


def open_group(options: SourceOptions, config: ConnectorConfig) -> OffsetGroup:
    """The consumer group of a connector in the cluster that the options name; nothing is asked yet.

    Raises:
        ConfigException: Kafka's client is not installed.
    """
    try:
        from sinksdk.sources.kafka import ConsumerGroup, KafkaClient, KafkaSource  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise _needs_kafka(error) from error
    overrides = config.overrides(CONSUMER_OVERRIDES)
    source = KafkaSource(KafkaClient(options.bootstrap_servers, options.absolute_config), overrides)
    return ConsumerGroup(source.cluster, _group_id(overrides, config))


def _group_id(overrides: Mapping[str, str], config: ConnectorConfig) -> str:
    return overrides.get("group.id", f"connect-{config.name}")


def _needs_kafka(error: ImportError) -> ConfigException:
    return ConfigException(f"Kafka needs a further package ({error}): pip install 'sinksdk[kafka]'")


def _kafka(options: SourceOptions, config: ConnectorConfig) -> OpenedSource:
    try:
        from sinksdk.sources.kafka import ConsumerGroup, KafkaClient, KafkaSource  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise _needs_kafka(error) from error
    overrides = config.overrides(CONSUMER_OVERRIDES)
    client = KafkaClient(options.bootstrap_servers, options.absolute_config)
    source = KafkaSource(client, overrides)
    try:
        source.cluster.topic_names()
    except RetriableException as error:
        if refusal := source.cluster.refusal():
            raise ConfigException(
                f"the Kafka cluster at {options.bootstrap_servers} lets this client not in: "
                f"{refusal}; check the login and the certificates in --kafka-config"
            ) from error
        raise RetriableException(
            f"no Kafka broker answers at {options.bootstrap_servers}: check --bootstrap-servers, the network "
            f"and, where the cluster wants SASL or TLS, --kafka-config ({error})"
        ) from error
    group = ConsumerGroup(source.cluster, _group_id(overrides, config))
    return OpenedSource(source, group, client)
