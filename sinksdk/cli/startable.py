"""Connectors of which everything is checked that can be checked without Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sinksdk.cli.source import OpenedSource
from sinksdk.config import ConnectorConfig
from sinksdk.connector import SinkConnector
from sinksdk.control.checks import Checked
from sinksdk.control.progress import Listener, SourceListener
from sinksdk.engine.writer import Target
from sinksdk.runtime.driver import ConnectorDriver
from sinksdk.runtime.sink_session import Launcher
from sinksdk.runtime.source_driver import SourceDriver
from sinksdk.runtime.source_session import SourceLauncher
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.source.connector import SourceConnector
from sinksdk.store import Store

if TYPE_CHECKING:
    from sinksdk.cli.startup import Place
    from sinksdk.sources.kafka import KafkaClient


@dataclass(frozen=True, slots=True)
class Startable:
    """A sink.

    Args:
        place: where it runs.
        checked: its configuration, which has no problems.
        connector: what ``checked`` names.
        config: its validated configuration.
        opened: where its records come from.
        dead_letters: the cluster that takes its dead letters, if it has any.
    """

    place: Place
    checked: Checked
    connector: SinkConnector
    config: ConnectorConfig
    opened: OpenedSource
    dead_letters: KafkaClient | None = None

    def __post_init__(self) -> None:
        self.config.keep_secrets()

    @property
    def store(self) -> Store:
        """Where its commits are kept."""
        return self.place.store

    def driver(self, launcher: Launcher, listener: Listener, **more: Any) -> ConnectorDriver:
        """What runs it with this very configuration; ``more`` as :class:`ConnectorDriver` takes it."""
        return ConnectorDriver(
            store=self.store,
            source=self.opened.source,
            group=self.opened.group,
            connector=self.connector,
            config=self.config,
            raw=self.checked.raw,
            launcher=launcher,
            listener=listener,
            **more,
        )


@dataclass(frozen=True, slots=True)
class StartableSource:
    """A source.

    Args:
        place: where it runs.
        checked: its configuration, which has no problems.
        connector: what ``checked`` names.
        config: its validated configuration.
        target: where its records go.
    """

    place: Place
    checked: Checked
    connector: SourceConnector
    config: SourceConnectorConfig
    target: Target

    def __post_init__(self) -> None:
        self.config.keep_secrets()

    @property
    def store(self) -> Store:
        """Where its plans and states are kept."""
        return self.place.store

    def driver(self, launcher: SourceLauncher, listener: SourceListener, **more: Any) -> SourceDriver:
        """What runs it with this very configuration; ``more`` as :class:`SourceDriver` takes it."""
        return SourceDriver(
            store=self.store,
            connector=self.connector,
            config=self.config,
            raw=self.checked.raw,
            target=self.target,
            launcher=launcher,
            listener=listener,
            **more,
        )


class Launchers(Protocol):
    """Makes what launches the generations of connectors."""

    def launcher(self, ready: Startable) -> Launcher:
        """Of a sink."""
        ...

    def source_launcher(self, ready: StartableSource) -> SourceLauncher:
        """Of a source."""
        ...


class Watcher(Listener, SourceListener, Protocol):
    """Watches a connector of either kind."""
