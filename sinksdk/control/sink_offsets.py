"""What is asked before a sink's offsets are altered by hand (KIP-875): the source, and the connector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sinksdk.config import ConnectorConfig
from sinksdk.connector import Connector, SinkConnector
from sinksdk.control.checks import check_config
from sinksdk.control.connector_calls import ConnectorCalls
from sinksdk.engine.clock import Clock
from sinksdk.errors import ConfigException, ConnectException
from sinksdk.records import TopicPartition
from sinksdk.settings.references import ALL_PROVIDERS, ConfigProviders
from sinksdk.topics import Source, Subscription
from sinksdk.topics.base import take_snapshot


class OffsetsRefusedException(ConnectException):
    """The connector's own ``alter_offsets`` does not let its offsets be altered so."""


class OpenedSink(NamedTuple):
    """A sink that does not run here.

    Args:
        connector: made, not started.
        config: its validated configuration.
        source: opens where its records come from. None: that is not known here, and what is said of the
            source is not checked.
    """

    connector: SinkConnector
    config: ConnectorConfig
    source: Callable[[], Source] | None = None


Sinks = Callable[[Mapping[str, str]], OpenedSink]
"""Opens a connector, given its configuration as written. Raises ConfigException."""


def opened_sink(
    raw: Mapping[str, str],
    source: Callable[[ConnectorConfig], Source] | None = None,
    providers: ConfigProviders = ALL_PROVIDERS,
) -> OpenedSink:
    """A sink that does not run.

    Args:
        raw: its configuration as written.
        source: opens where its records come from, if that is known.
        providers: what the configuration may refer to.

    Raises:
        ConfigException: it cannot be made here.
    """
    checked = check_config(raw, providers)
    connector, config = checked.connector, checked.config
    if not isinstance(connector, SinkConnector) or not isinstance(config, ConnectorConfig):
        raise ConfigException(
            f"connector '{raw.get('name', '')}' cannot be asked whether its offsets may be altered "
            f"(alter_offsets), and nothing was altered: {'; '.join(checked.problems) or 'it is no sink'}"
        )
    config.keep_secrets()
    return OpenedSink(connector, config, None if source is None else lambda: source(config))


def expect_there(sink: OpenedSink, offsets: Mapping[TopicPartition, int | None]) -> None:
    """Refuse offsets that no record can have: nothing could be read from there.

    Args:
        sink: whose.
        offsets: next offset to read of each partition; None takes a commit away, also of a partition that is
            not there any more.

    Raises:
        ConfigException: below 0; or the source is known, and does not have the partition, or has another
            range of offsets.
        ConnectException: the source is known and does not answer.
    """
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
                    f"{partition}: offset {offset} is not in the source, which has {begin} to {end}"
                )
    if problems:
        raise ConfigException(f"connector {sink.config.name}: nothing was altered: {'; '.join(problems)}")


def ask_connector(
    connector: Connector, name: str, alter_offsets: Callable[[], Any], *, timeout: float, clock: Clock
) -> bool:
    """Let a connector move what it keeps outside, before its offsets are altered.

    Args:
        connector: made, not started.
        name: its name.
        alter_offsets: calls its method of that name.
        timeout: seconds it may take.
        clock: time.

    Returns:
        What it returned: whether it keeps offsets of its own, and has moved them.

    Raises:
        OffsetsRefusedException: it raised something, or did not return in time.
    """
    calls = ConnectorCalls(connector, name, clock)
    try:
        return bool(calls.call("alter_offsets", alter_offsets, timeout=timeout))
    except Exception as error:
        what = str(error) if isinstance(error, ConnectException) else f"{type(error).__name__}: {error}"
        raise OffsetsRefusedException(
            f"connector {name}: its alter_offsets refuses this, and nothing was altered: {what}"
        ) from error
    finally:
        calls.end()
