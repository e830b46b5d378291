"""Offsets, end offsets and deletion of connectors that do not run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial

from sinksdk.config import ConnectorConfig
from sinksdk.connector import SinkConnector
from sinksdk.control.consumer_group import OffsetGroup
from sinksdk.control.offsets import OpenedSink, OpenedTarget, opened_sink
from sinksdk.errors import ConfigException
from sinksdk.launch.topics import KafkaTopics, Topics, open_group, open_source, open_target, sink_source
from sinksdk.offsets import TopicPartition
from sinksdk.plugins.checks import check_config
from sinksdk.settings.references import ALL_PROVIDERS, ConfigProviders
from sinksdk.source import SourceConnector, SourceConnectorConfig
from sinksdk.store.records import ConnectorRecord
from sinksdk.topics import Subscription
from sinksdk.topics.base import end_offsets

ReadEnds = Callable[[], Mapping[TopicPartition, int]]


def source_target(
    topics: Topics, raw: Mapping[str, str], providers: ConfigProviders = ALL_PROVIDERS
) -> OpenedTarget:
    checked = check_config(raw, providers)
    if checked.problems:
        raise ConfigException(checked.problems)
    connector, config = checked.connector, checked.config
    if not isinstance(connector, SourceConnector) or not isinstance(config, SourceConnectorConfig):
        raise ConfigException(f"connector '{raw.get('name')}' is not a source")
    config.keep_secrets()
    return OpenedTarget(connector, config, open_target(topics, config))


def sink_to_alter(
    topics: Topics, raw: Mapping[str, str], providers: ConfigProviders = ALL_PROVIDERS
) -> OpenedSink:
    return opened_sink(raw, partial(sink_source, topics), providers)


def read_ends(topics: Topics, record: ConnectorRecord, providers: ConfigProviders) -> ReadEnds:
    """Return a function that reads a connector's end offsets; it may block, and first opens the source."""
    opened = cache(partial(_open_ends, topics, record, providers))

    def ends() -> Mapping[TopicPartition, int]:
        return opened()()

    return ends


def _open_ends(topics: Topics, record: ConnectorRecord, providers: ConfigProviders) -> ReadEnds:
    config = check_config(record.config, providers).config
    read = open_source(topics, config) if isinstance(config, ConnectorConfig) else None
    if not isinstance(config, ConnectorConfig) or read is None:
        return dict  # a source has no end offsets, and those of an invalid sink are unknown
    return partial(end_offsets, read.source, Subscription(config.topics, config.topics_regex))


def connector_to_delete(
    record: ConnectorRecord, providers: ConfigProviders = ALL_PROVIDERS
) -> tuple[SinkConnector | SourceConnector, ConnectorConfig | SourceConnectorConfig]:
    checked = check_config(record.config, providers)
    if checked.connector is None or checked.config is None:
        raise ConfigException(checked.problems)
    checked.config.keep_secrets()
    return checked.connector, checked.config


def group_to_delete(
    topics: Topics | None, record: ConnectorRecord, providers: ConfigProviders = ALL_PROVIDERS
) -> OffsetGroup | None:
    config = check_config(record.config, providers).config
    if not isinstance(topics, KafkaTopics) or not isinstance(config, ConnectorConfig):
        return None
    return open_group(topics, config) if config.offset_mirror else None
