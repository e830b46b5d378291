"""A stopped sink, opened to alter its offsets (KIP-875), and the check against its source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from sinksdk.config import ConnectorConfig
from sinksdk.connector import SinkConnector
from sinksdk.errors import ConfigException
from sinksdk.offsets import TopicPartition
from sinksdk.plugins.checks import check_config
from sinksdk.settings.references import ALL_PROVIDERS, ConfigProviders
from sinksdk.topics import Source, Subscription
from sinksdk.topics.base import take_snapshot


class OpenedSink(NamedTuple):
    """A sink, not started, with its validated configuration.

    Args:
        source: opens the source; None: offsets are not checked against it.
    """

    connector: SinkConnector
    config: ConnectorConfig
    source: Callable[[], Source] | None = None


Sinks = Callable[[Mapping[str, str]], OpenedSink]


def opened_sink(
    raw: Mapping[str, str],
    source: Callable[[ConnectorConfig], Source] | None = None,
    providers: ConfigProviders = ALL_PROVIDERS,
) -> OpenedSink:
    """Open a sink, given its configuration as written. Raises ConfigException."""
    checked = check_config(raw, providers)
    connector, config = checked.connector, checked.config
    if not isinstance(connector, SinkConnector) or not isinstance(config, ConnectorConfig):
        raise ConfigException(
            f"connector '{raw.get('name', '')}': alter_offsets cannot be called, and no offsets were "
            f"altered: {'; '.join(checked.problems) or 'it is not a sink'}"
        )
    config.keep_secrets()
    return OpenedSink(connector, config, None if source is None else lambda: source(config))


def expect_there(sink: OpenedSink, offsets: Mapping[TopicPartition, int | None]) -> None:
    """Refuse offsets that no record can have; None, which removes a commit, is always accepted."""
    wanted = {partition: offset for partition, offset in sorted(offsets.items()) if offset is not None}
    problems = [f"{p}: offset {offset} is below 0" for p, offset in wanted.items() if offset < 0]
    if wanted and not problems and sink.source is not None:
        topics = tuple(sorted({partition.topic for partition in wanted}))
        there = take_snapshot(sink.source(), Subscription(topics), 0.0).partitions
        for partition, offset in wanted.items():
            if partition not in there:
                problems.append(f"{partition}: the source has no such partition")
            elif not there[partition].start <= offset <= there[partition].end:
                begin, end = there[partition]
                problems.append(
                    f"{partition}: offset {offset} is not in the source, which has offsets {begin} to {end}"
                )
    if problems:
        raise ConfigException(f"connector {sink.config.name}: no offsets were altered: {'; '.join(problems)}")
