"""The driver of one sink: runs its generations until it is stopped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sinksdk.config import ConnectorConfig
from sinksdk.connector import SinkConnector
from sinksdk.context import ClosingReason
from sinksdk.control.consumer_group import ConsumerGroupSync, OffsetGroup
from sinksdk.control.progress import Listener
from sinksdk.runtime.backoff import Backoff
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.failures import PartitionFailures
from sinksdk.runtime.outcomes import Launcher
from sinksdk.runtime.partition_lag import PartitionLag, TrailingGaps
from sinksdk.runtime.planner import GenerationPlanner, Planner
from sinksdk.runtime.reporter import SinkReporter
from sinksdk.runtime.session import DriverSession
from sinksdk.runtime.sink_planning import SinkPlanning
from sinksdk.runtime.sink_session import SinkSession
from sinksdk.runtime.source_monitor import SourceMonitor
from sinksdk.topics import Source

# More than twelve imports: only this module assembles a sink's parts.


class ConnectorDriver:
    """Runs one connector from its start to its end.

    Args:
        environment: store, clock, threads and jitter.
        source: of its records.
        connector: its ``start`` and ``stop`` are called here.
        config: its validated configuration.
        raw: the same as it was written.
        launcher: starts generations.
        listener: watches.
        group: consumer group to begin from, and for the copy of the commits.
    """

    def __init__(
        self,
        environment: Environment,
        *,
        source: Source,
        connector: SinkConnector,
        config: ConnectorConfig,
        raw: Mapping[str, Any],
        launcher: Launcher,
        listener: Listener | None = None,
        group: OffsetGroup | None = None,
    ) -> None:
        self._environment = environment
        self._source = source
        self._connector = connector
        self._config = config
        self._raw = raw
        self._launcher = launcher
        self._listener = listener or Listener()
        self._group = group
        self._planner = Planner(
            connector.batch_policy(config),
            config.generation_max_records,
            skip_lost=config.on_data_loss == "skip",
        )

    def close(self) -> None:
        """End; the running generation flushes, commits and closes first. From any thread or handler."""
        self._environment.signal.ask(ClosingReason.SHUTDOWN)

    def rebalance(self) -> None:
        """End the running generation early; the next one follows with another assignment."""
        self._environment.signal.ask(ClosingReason.REBALANCE, final=False)

    def run(self, *, until_caught_up: bool = False) -> ClosingReason | None:
        """Run until :meth:`close`, or until all records available now are committed, tails included.

        Returns:
            Why the operator stops the connector; None if he does not.

        Raises:
            ConfigException: the connector refuses to start, or its first offsets cannot be determined.
            MissingSourceTopicException: a subscribed topic is not there, or no longer; what was read of
                the others was committed first.
            FencedException: a newer driver has taken over.
            ConnectException: a partition failed too often in a row; the others were committed first.
        """
        sync: ConsumerGroupSync = ConsumerGroupSync()
        if self._group is not None and self._config.offset_mirror:
            sync = self._environment.threads.syncs(self._group, self._config.name)
        try:
            session = DriverSession(self._environment, self._connector, self._config, self._raw)
            sink = self._sink_session(session, sync, until_caught_up=until_caught_up)
            return session.run(sink.drive, sink.meanwhile)
        finally:
            sync.close()

    def _sink_session(
        self, session: DriverSession, sync: ConsumerGroupSync, *, until_caught_up: bool
    ) -> SinkSession:
        config, clock, environment = self._config, session.clock, self._environment
        background = environment.threads.background
        monitor = SourceMonitor(config, self._source, clock, background, is_fixed=until_caught_up)
        reporter = SinkReporter(session, self._listener, sync)
        backoff = Backoff.of_restarts(config, clock, environment.jitter)
        failures = PartitionFailures(config, session.status, backoff, clock, environment.jitter)
        lag = PartitionLag(
            config,
            lambda topics: session.call("subscribed", lambda: self._connector.subscribed(topics)),
            status=session.status,
            backoff=backoff,
            tracker=reporter.tracker,
            clock=clock,
            gaps=TrailingGaps(self._source, background),
            is_fixed=until_caught_up,
        )
        planning = SinkPlanning(
            session,
            config,
            monitor,
            lag=lag,
            planner=GenerationPlanner(self._planner, config.generation_max_ms / 1000),
            failures=failures,
            reporter=reporter,
            group=self._group,
        )
        return SinkSession(
            session,
            self._launcher,
            monitor=monitor,
            planning=planning,
            failures=failures,
            reporter=reporter,
        )
