"""A driver's environment: store, clock, threads and jitter. A simulation injects its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sinksdk.control.connector_calls import ThreadExecutor
from sinksdk.control.consumer_group import BackgroundSync, ConsumerGroupSync, OffsetGroup
from sinksdk.control.requests import ClosingSignal, PendingRequests
from sinksdk.engine.clock import SystemWallClock, WallClock
from sinksdk.runtime.backoff import Waits
from sinksdk.store import Store
from sinksdk.store.generations import Tenure
from sinksdk.store.records import ConnectorRecord
from sinksdk.support import delays
from sinksdk.support.threads import Background, in_a_thread


@dataclass(frozen=True, slots=True)
class Threads:
    """Executors for the connector's code, queries of the source, and copies of offsets: they may block."""

    calls: Callable[[], ThreadExecutor] = ThreadExecutor
    background: Background = in_a_thread
    syncs: Callable[[OffsetGroup, str], ConsumerGroupSync] = BackgroundSync


@dataclass(frozen=True, slots=True)
class Environment:
    store: Store
    clock: WallClock = field(default_factory=SystemWallClock)
    threads: Threads = Threads()
    jitter: Callable[[], float] = delays.jitter
    signal: ClosingSignal = field(default_factory=ClosingSignal)
    # The process's wait for unavailable systems, which ends once the connector has started. None: no wait.
    waits: Waits | None = None
    # None: the driver has the configuration, and stores it once it has claimed a generation.
    record: ConnectorRecord | None = None
    requests: PendingRequests | None = None
    # The process's claims of the connector, in earlier sessions too.
    tenure: Tenure = field(default_factory=Tenure)

    def requests_for(self, connector: str) -> PendingRequests:
        return self.requests or PendingRequests(self.store, connector, self.clock)
