"""Drives one sink: builds what its generations need, and runs them until it is asked to stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sinksdk.config import ConnectorConfig
from sinksdk.connector import SinkConnector
from sinksdk.context import ClosingReason
from sinksdk.control.connector_calls import CallExecutor, ThreadExecutor
from sinksdk.control.consumer_group import BackgroundSync, ConsumerGroupSync, NoSync, OffsetGroup
from sinksdk.control.ends import EndsKeeper
from sinksdk.control.progress import Listener, Silent
from sinksdk.control.requests import ClosingSignal, PendingRequests
from sinksdk.engine.clock import SystemWallClock, WallClock
from sinksdk.runtime.backoff import Backoff, Waits, random_jitter
from sinksdk.runtime.failures import PartitionFailures
from sinksdk.runtime.partition_lag import PartitionLag, TrailingGaps
from sinksdk.runtime.planner import GenerationPlanner, Planner
from sinksdk.runtime.reporter import SinkReporter
from sinksdk.runtime.session import DriverSession
from sinksdk.runtime.sink_session import Launcher, SinkSession
from sinksdk.runtime.source_monitor import SourceMonitor
from sinksdk.store import Store
from sinksdk.store.records import ConnectorRecord
from sinksdk.support.threads import Background, in_a_thread
from sinksdk.topics import Source


class ConnectorDriver:
    """Runs one connector from its start to its end.

    Args:
        store: what must survive.
        source: where records come from.
        connector: the connector; its ``start`` and ``stop`` are called here.
        config: its validated configuration.
        raw: the same as it was written.
        launcher: starts generations.
        listener: watches.
        clock: time.
        signal: asks it to close.
        group: offsets kept outside, to begin from and to show commits in.
        background: looks at the source while a generation runs.
        executors: make what runs the connector's own code.
        jitter: what each back-off is multiplied by.
        requests: what an operator wants of it.
        record: where the configuration comes from, if it is the store's own; None: it becomes the store's
            once the driver has claimed a generation.
        waits: told once what the connector needed for its start is there.
        syncs: make what shows in the group how far everything is published.
    """

    # More than eight parameters: the simulation hands in each of what a machine has: clock, threads, chance.
    # Here a sink is put together, and nowhere else: hence the imports.
    def __init__(
        self,
        *,
        store: Store,
        source: Source,
        connector: SinkConnector,
        config: ConnectorConfig,
        raw: Mapping[str, Any],
        launcher: Launcher,
        listener: Listener | None = None,
        clock: WallClock | None = None,
        signal: ClosingSignal | None = None,
        group: OffsetGroup | None = None,
        background: Background = in_a_thread,
        executors: Callable[[], CallExecutor] = ThreadExecutor,
        jitter: Callable[[], float] = random_jitter,
        requests: PendingRequests | None = None,
        record: ConnectorRecord | None = None,
        waits: Waits | None = None,
        syncs: Callable[[OffsetGroup, str], ConsumerGroupSync] = BackgroundSync,
    ) -> None:
        self._store = store
        self._source = source
        self._connector = connector
        self._config = config
        self._raw = raw
        self._launcher = launcher
        self._listener = listener or Silent()
        self._clock = clock or SystemWallClock()
        self._signal = signal or ClosingSignal()
        self._group = group
        self._background = background
        self._executors = executors
        self._jitter = jitter
        self._requests = requests or PendingRequests(store, config.name, self._clock)
        self._record = record
        self._waits = waits
        self._syncs = syncs
        self._planner = Planner(
            connector.batch_policy(config),
            config.generation_max_records,
            skip_lost=config.on_data_loss == "skip",
        )

    def close(self, reason: ClosingReason = ClosingReason.SHUTDOWN) -> None:
        """End: what runs flushes, commits and closes first. From any thread or signal handler."""
        self._signal.ask(reason)

    def rebalance(self) -> None:
        """End the running generation early; the next one follows with another assignment."""
        self._signal.ask(ClosingReason.REBALANCE, final=False)

    def run(self, *, until_caught_up: bool = False) -> ClosingReason | None:
        """Run until :meth:`close`, or until everything there is now is committed, tails included.

        Returns:
            Why an operator wants the connector stopped; None when he does not.

        Raises:
            ConfigException: the connector refuses to start, or where it begins cannot be said.
            MissingSourceTopicException: a subscribed topic is not there, or no longer; what was read of
                the others was committed first.
            FencedException: a newer driver has taken over.
            ConnectException: a partition failed too often in a row; the others were committed first.
        """
        sync: ConsumerGroupSync = NoSync()
        if self._group is not None and self._config.offset_mirror:
            sync = self._syncs(self._group, self._config.name)
        try:
            return self._run(sync, until_caught_up=until_caught_up)
        finally:
            sync.close()

    def _run(self, sync: ConsumerGroupSync, *, until_caught_up: bool) -> ClosingReason | None:
        config, clock = self._config, self._clock
        monitor = SourceMonitor.of(config, self._source, clock, self._background, is_fixed=until_caught_up)
        ends = EndsKeeper(self._store, config.name, clock)

        def meanwhile() -> None:
            monitor.refresh_in_background()
            ends.saw(monitor.ends)
            ends.save_if_due()

        session = DriverSession(
            self._store,
            self._connector,
            config,
            self._raw,
            clock=clock,
            signal=self._signal,
            requests=self._requests,
            executors=self._executors,
            record=self._record,
            meanwhile=meanwhile,
            waits=self._waits,
        )
        reporter = SinkReporter(
            self._store,
            config.name,
            listener=self._listener,
            status=session.status,
            ends=ends,
            sync=sync,
            clock=clock,
        )
        backoff = Backoff.of_restarts(config, clock, self._jitter)
        lag = PartitionLag(
            config,
            lambda topics: session.call("subscribed", lambda: self._connector.subscribed(topics)),
            status=session.status,
            backoff=backoff,
            tracker=reporter.tracker,
            clock=clock,
            gaps=TrailingGaps(self._source, self._background),
            is_fixed=until_caught_up,
        )
        sink = SinkSession(
            session,
            config,
            self._launcher,
            monitor=monitor,
            lag=lag,
            planner=GenerationPlanner(self._planner, config.generation_max_ms / 1000),
            failures=PartitionFailures(config, session.status, backoff, clock, self._jitter),
            reporter=reporter,
            group=self._group,
            until_caught_up=until_caught_up,
        )
        return session.run(sink.drive)
