"""The location of topics that sinks read and sources write: a Kafka cluster or a topic directory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sinksdk.config import CONSUMER_OVERRIDES, ConnectorConfig
from sinksdk.control.consumer_group import OffsetGroup
from sinksdk.engine.writer import Target
from sinksdk.errors import ConfigException, RetriableException
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.topics import Source, TopicDirectorySource
from sinksdk.topics.directory.layout import local_root
from sinksdk.topics.directory.writer import TopicDirectoryTarget
from sinksdk.worker.outside import prepare_dead_letters

if TYPE_CHECKING:
    from sinksdk.topics.kafka import KafkaClient, KafkaSource

_ADDRESS: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[^\s:/\[\]]+):(\d{1,5})")
_PORTS: Final = range(1, 65_536)
_KAFKA: Final = "kafka://"


@dataclass(frozen=True, slots=True)
class KafkaTopics:
    """The topics of a Kafka cluster; as a URL ``kafka://HOST:PORT``, several brokers separated by commas.

    Args:
        bootstrap_servers: ``host:port``, several separated by commas.
        properties: client properties as for Kafka's own tools (``security.protocol``, ``sasl.jaas.config``
            …): a properties file, or a mapping. Each process that creates a client resolves references
            (``${env:NAME}``, ``${file:/path:key}``), executors included. A secret in a mapping is sent to the
            executors: use a reference instead.

    Raises:
        ConfigException: an address is not ``host:port``.
    """

    bootstrap_servers: str
    properties: str | os.PathLike[str] | Mapping[str, str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if problems := list(address_problems(self.bootstrap_servers, "bootstrap_servers")):
            raise ConfigException(problems)


@dataclass(frozen=True, slots=True)
class TopicDirectory:
    """Topics as folders of Parquet files, ``topic=<t>/partition=<p>/*.parquet``.

    Args:
        path: the directory, or its ``file:`` URL. Executors on other hosts must see the same files under this
            path.

    Raises:
        ConfigException: a URL of another file system.
    """

    path: str | os.PathLike[str]

    def __post_init__(self) -> None:
        # Absolute: executors may have another working directory.
        object.__setattr__(self, "path", str(local_root(self.path)))


Topics = KafkaTopics | TopicDirectory


def topics_at(source: Topics | str | os.PathLike[str]) -> Topics:
    if isinstance(source, KafkaTopics | TopicDirectory):
        return source
    if not isinstance(source, str | os.PathLike):
        raise ConfigException(
            f"the source is a {type(source).__name__}: give KafkaTopics, TopicDirectory, or a URL"
        )
    text = os.fspath(source)
    if text.startswith(_KAFKA):
        return KafkaTopics(text.removeprefix(_KAFKA))
    if _ADDRESS.fullmatch(text):
        raise ConfigException(f"the source '{text}' is not a URL: write {_KAFKA}{text} for a Kafka cluster")
    if not text:
        raise ConfigException(f"the source is empty: give {_KAFKA}HOST:PORT or a topic directory")
    return TopicDirectory(text)


def address_problems(servers: str, what: str) -> Iterator[str]:
    addresses = [address.strip() for address in servers.split(",") if address.strip()]
    if not addresses:
        yield f"{what} is empty: give HOST:PORT, several separated by commas"
    # librdkafka would retry malformed addresses without limit.
    for address in addresses:
        parts = _ADDRESS.fullmatch(address)
        if not parts or int(parts[1]) not in _PORTS:
            yield f"{what}: '{address}' is not HOST:PORT, as in broker.example:9092"


@dataclass(frozen=True, slots=True)
class OpenedSource:
    source: Source
    group: OffsetGroup | None = None
    client: KafkaClient | None = None


def open_source(topics: Topics, config: ConnectorConfig | None) -> OpenedSource | None:
    """Open a sink's source; None for Kafka without a configuration."""
    if isinstance(topics, KafkaTopics):
        return None if config is None else _open_kafka(topics, config)
    if config is not None and config.offset_source == "group":
        raise ConfigException("'offset.source' is 'group', but a topic directory has no consumer groups")
    source = TopicDirectorySource(topics.path)
    if not source.root.is_dir():
        raise ConfigException(f"the topic directory {source.root} does not exist or is not a folder")
    return OpenedSource(source)


def sink_source(topics: Topics, config: ConnectorConfig) -> Source:
    opened = open_source(topics, config)
    assert opened is not None  # noqa: S101 - there is a configuration
    return opened.source


def open_target(topics: Topics, config: SourceConnectorConfig) -> Target:
    if isinstance(topics, TopicDirectory):
        root = Path(topics.path)
        if not root.parent.is_dir():
            raise ConfigException(
                f"cannot create the topic directory {root}: the folder {root.parent} does not exist"
            )
        return TopicDirectoryTarget(str(root))
    client = _client(topics)
    from sinksdk.topics.kafka import KafkaTarget, ensure_offsets_topic  # noqa: PLC0415 - an extra

    ensure_offsets_topic(config, client)
    return KafkaTarget(client)


def open_group(topics: KafkaTopics, config: ConnectorConfig) -> OffsetGroup:
    return _group(_source(topics, config), config)


def find_dead_letters(topics: Topics, config: ConnectorConfig) -> KafkaClient | str | None:
    if not config.dead_letter_topic:
        return None
    if isinstance(topics, TopicDirectory):
        return prepare_dead_letters(config, None, str(topics.path))
    return prepare_dead_letters(config, _client(topics) if isinstance(topics, KafkaTopics) else None)


def _open_kafka(topics: KafkaTopics, config: ConnectorConfig) -> OpenedSource:
    source = _source(topics, config)
    try:
        source.cluster.topic_names()
    except RetriableException as error:
        if refusal := source.cluster.refusal():
            raise ConfigException(
                f"authentication with the Kafka cluster at {topics.bootstrap_servers} failed: {refusal}; "
                f"check the credentials and certificates in --kafka-config"
            ) from error
        raise RetriableException(
            f"no Kafka broker responds at {topics.bootstrap_servers}: check the address, the network and, if "
            f"the cluster requires SASL or TLS, the properties in --kafka-config ({error})"
        ) from error
    return OpenedSource(source, _group(source, config), _client(topics))


def _source(topics: KafkaTopics, config: ConnectorConfig) -> KafkaSource:
    client = _client(topics)
    from sinksdk.topics.kafka import KafkaSource  # noqa: PLC0415 - an extra

    return KafkaSource(client, config.overrides(CONSUMER_OVERRIDES))


def _group(source: KafkaSource, config: ConnectorConfig) -> OffsetGroup:
    from sinksdk.topics.kafka import ConsumerGroup  # noqa: PLC0415 - an extra

    group_id = config.overrides(CONSUMER_OVERRIDES).get("group.id", f"connect-{config.name}")
    return ConsumerGroup(source.cluster, group_id)


def _client(topics: KafkaTopics) -> KafkaClient:
    try:
        from sinksdk.topics.kafka import KafkaClient  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigException(
            f"Kafka's client is not installed ({error}): pip install 'sinksdk[kafka]'"
        ) from error
    properties = topics.properties
    if isinstance(properties, Mapping):
        return KafkaClient(topics.bootstrap_servers, properties=tuple(properties.items()))
    file = str(Path(properties).absolute()) if properties else ""  # executors have other working directories
    return KafkaClient(topics.bootstrap_servers, file)
