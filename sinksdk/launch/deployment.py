"""Connectors after all checks that need no Spark, and what those of a process share: store, topics, Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from sinksdk.config import ConnectorConfig
from sinksdk.connector import SinkConnector
from sinksdk.control.progress import Listener
from sinksdk.control.requests import ClosingSignal
from sinksdk.engine.writer import Target
from sinksdk.errors import ConfigException
from sinksdk.launch.idle import connector_to_delete, group_to_delete, read_ends
from sinksdk.launch.topics import OpenedSource, Topics, find_dead_letters, open_source, open_target
from sinksdk.plugins.checks import Checked, check_config
from sinksdk.runtime.backoff import Waits
from sinksdk.runtime.driver import ConnectorDriver
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.idle import Openers
from sinksdk.runtime.outcomes import Launcher, SourceLauncher
from sinksdk.runtime.source_driver import SourceDriver
from sinksdk.runtime.worker_connector import Driver, WorkerConnector
from sinksdk.settings.references import ALL_PROVIDERS, ConfigProviders
from sinksdk.source import SourceConnector, SourceConnectorConfig
from sinksdk.spark.options import SparkSettings
from sinksdk.store import Store

if TYPE_CHECKING:
    from sinksdk.topics.kafka import KafkaClient


class Launchers(Protocol):
    def launcher(self, ready: PreparedSink) -> Launcher: ...

    def source_launcher(self, ready: PreparedSource) -> SourceLauncher: ...


@dataclass(frozen=True, slots=True)
class PreparedSink:
    checked: Checked
    connector: SinkConnector
    config: ConnectorConfig
    opened: OpenedSource
    # A client of the cluster with the dead letters, or the path of their topic directory.
    dead_letters: KafkaClient | str | None = None

    def __post_init__(self) -> None:
        self.config.keep_secrets()

    def driver(self, environment: Environment, launchers: Launchers, listener: Listener) -> ConnectorDriver:
        return ConnectorDriver(
            environment,
            source=self.opened.source,
            group=self.opened.group,
            connector=self.connector,
            config=self.config,
            raw=self.checked.raw,
            launcher=launchers.launcher(self),
            listener=listener,
        )


@dataclass(frozen=True, slots=True)
class PreparedSource:
    checked: Checked
    connector: SourceConnector
    config: SourceConnectorConfig
    target: Target

    def __post_init__(self) -> None:
        self.config.keep_secrets()

    def driver(self, environment: Environment, launchers: Launchers, listener: Listener) -> SourceDriver:
        return SourceDriver(
            environment,
            connector=self.connector,
            config=self.config,
            raw=self.checked.raw,
            target=self.target,
            launcher=launchers.source_launcher(self),
            listener=listener,
        )


PreparedConnector = PreparedSink | PreparedSource


def prepare_connector(
    topics: Topics, checked: Checked, opened: OpenedSource | None = None
) -> PreparedConnector:
    connector, config = checked.connector, checked.config
    if isinstance(connector, SourceConnector):
        assert isinstance(config, SourceConnectorConfig)  # noqa: S101 - parsed by the connector's config_class
        return PreparedSource(checked, connector, config, open_target(topics, config))
    assert connector is not None  # noqa: S101 - there are no problems
    assert isinstance(config, ConnectorConfig)  # noqa: S101 - parsed by the connector's config_class
    opened = opened or open_source(topics, config)
    assert opened is not None  # noqa: S101 - there is a configuration
    return PreparedSink(checked, connector, config, opened, find_dead_letters(topics, config))


def check_and_prepare(
    topics: Topics, raw: Mapping[str, str], providers: ConfigProviders
) -> PreparedConnector:
    checked = check_config(raw, providers)
    if checked.problems:
        raise ConfigException(checked.problems)
    return prepare_connector(topics, checked)


@dataclass(frozen=True, slots=True)
class Deployment:
    topics: Topics
    store: Store
    # Passed to executors: absolute, with unresolved references.
    store_url: str
    spark: SparkSettings
    providers: ConfigProviders = ALL_PROVIDERS

    def worker(
        self,
        name: str,
        launchers: Launchers,
        listener: Listener,
        *,
        first: PreparedConnector | None = None,
        signal: ClosingSignal | None = None,
    ) -> WorkerConnector:
        environment = Environment(self.store, signal=signal or ClosingSignal())
        environment = replace(
            environment,
            waits=Waits(f"connector {name}", environment.clock),
            requests=environment.requests_for(name),
        )
        # Only ``sinksdk run`` brings a configuration, and ends after failures. A server's connectors have
        # theirs in the store.
        raw = first.checked.raw if first is not None else {}

        def driver(environment: Environment) -> Driver:
            config = environment.record.config if environment.record is not None else raw
            ready = check_and_prepare(self.topics, config, self.providers)
            return ready.driver(environment, launchers, listener)

        return WorkerConnector(
            environment,
            name,
            driver,
            Openers(
                partial(connector_to_delete, providers=self.providers),
                partial(group_to_delete, self.topics, providers=self.providers),
                partial(read_ends, self.topics, providers=self.providers),
            ),
            first=first.driver(environment, launchers, listener) if first is not None else None,
            brings_config=first is not None,
            stays=first is None,
        )
