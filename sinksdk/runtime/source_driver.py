"""Drives one source: builds what its generations need, and runs them until it is asked to stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sinksdk.context import ClosingReason
from sinksdk.control.connector_calls import CallExecutor, ThreadExecutor
from sinksdk.control.progress import Silent, SourceListener
from sinksdk.control.requests import ClosingSignal, PendingRequests
from sinksdk.engine.clock import SystemWallClock, WallClock
from sinksdk.engine.writer import Target
from sinksdk.errors import ConfigException
from sinksdk.runtime.backoff import Backoff, Waits, random_jitter
from sinksdk.runtime.failures import TaskFailures
from sinksdk.runtime.reporter import SourceReporter
from sinksdk.runtime.session import DriverSession
from sinksdk.runtime.source_session import SourceLauncher, SourceSession
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.source.connector import SourceConnector
from sinksdk.store import Store
from sinksdk.store.records import ConnectorRecord


class SourceDriver:
    """Runs one source connector from its start to its end.

    Args:
        store: what must survive.
        connector: the connector; its ``start`` and ``stop`` are called here.
        config: its validated configuration.
        raw: the same as it was written.
        target: where its records go.
        launcher: starts generations.
        listener: watches.
        clock: time.
        signal: asks it to close.
        executors: make what runs the connector's own code.
        jitter: what each back-off is multiplied by.
        requests: what an operator wants of it.
        record: where the configuration comes from, if it is the store's own; None: it becomes the store's
            once the driver has claimed a generation.
        waits: told once what the connector needed for its start is there.
    """

    # More than eight parameters: the simulation hands in each of what a machine has: clock, threads, chance.
    # Here a source is put together, and nowhere else: hence the imports.
    def __init__(
        self,
        *,
        store: Store,
        connector: SourceConnector,
        config: SourceConnectorConfig,
        raw: Mapping[str, Any],
        target: Target,
        launcher: SourceLauncher,
        listener: SourceListener | None = None,
        clock: WallClock | None = None,
        signal: ClosingSignal | None = None,
        executors: Callable[[], CallExecutor] = ThreadExecutor,
        jitter: Callable[[], float] = random_jitter,
        requests: PendingRequests | None = None,
        record: ConnectorRecord | None = None,
        waits: Waits | None = None,
    ) -> None:
        self._store = store
        self._config = config
        self._target = target
        self._launcher = launcher
        self._listener = listener or Silent()
        self._clock = clock or SystemWallClock()
        self._signal = signal or ClosingSignal()
        self._jitter = jitter
        self._connector = connector
        self._raw = raw
        self._executors = executors
        self._record = record
        self._waits = waits
        self._requests = requests or PendingRequests(store, config.name, self._clock)

    def close(self, reason: ClosingReason = ClosingReason.SHUTDOWN) -> None:
        """End: what runs commits and stops first. From any thread or signal handler."""
        self._signal.ask(reason)

    def rebalance(self) -> None:
        """End the running generation early; the next one follows with new configurations of its tasks."""
        self._signal.ask(ClosingReason.REBALANCE, final=False)

    def run(self, *, until_caught_up: bool = False) -> ClosingReason | None:
        """Run until :meth:`close`.

        Returns:
            Why an operator wants the connector stopped; None when he does not.

        Raises:
            ConfigException: the connector refuses to start; or it shall end once it has caught up: a source
                never has, there may always be more to poll.
            FencedException: a newer driver has taken over.
            ConnectException: a task failed too often; the others have committed first. Or those before could
                not be fenced.
        """
        if until_caught_up:
            raise ConfigException(
                f"connector {self._config.name} is a source, and there may always be more to poll: run it "
                f"without --until-caught-up, and stop it when it has read what you want"
            )
        session = DriverSession(
            self._store,
            self._connector,
            self._config,
            self._raw,
            clock=self._clock,
            signal=self._signal,
            requests=self._requests,
            executors=self._executors,
            record=self._record,
            waits=self._waits,
        )
        source = SourceSession(
            session,
            self._config,
            self._launcher,
            target=self._target,
            failures=TaskFailures(self._config, session.status, self._clock, self._jitter),
            reporter=SourceReporter(
                self._store, self._config.name, self._listener, session.status, self._clock
            ),
            backoff=Backoff.of_restarts(self._config, self._clock, self._jitter),
        )
        return session.run(source.drive)
