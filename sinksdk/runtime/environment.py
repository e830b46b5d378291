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
    """A driver's executors for calls that may block.

    Args:
        calls: of the connector's own code.
        background: of queries of the source while a generation runs.
        syncs: of the copy of offsets to a consumer group.
    """

    calls: Callable[[], ThreadExecutor] = ThreadExecutor
    background: Background = in_a_thread
    syncs: Callable[[OffsetGroup, str], ConsumerGroupSync] = BackgroundSync


@dataclass(frozen=True, slots=True)
class Environment:
    """A driver's environment.

    Args:
        jitter: factor of each back-off.
        signal: close requests to the driver.
        waits: the process's wait for unavailable systems. A driver ends the wait once the connector has
            started; without it the process does not wait.
        record: the connector's configuration, if it comes from the store; None: the driver has it, and stores
            it once it has claimed a generation.
        requests: of the operator; by default read from the store.
        tenure: what this process has claimed of the connector, in earlier sessions too.
    """

    store: Store
    clock: WallClock = field(default_factory=SystemWallClock)
    threads: Threads = Threads()
    jitter: Callable[[], float] = delays.jitter
    signal: ClosingSignal = field(default_factory=ClosingSignal)
    waits: Waits | None = None
    record: ConnectorRecord | None = None
    requests: PendingRequests | None = None
    tenure: Tenure = field(default_factory=Tenure)

    def requests_for(self, connector: str) -> PendingRequests:
        """The operator's requests for a connector."""
        return self.requests or PendingRequests(self.store, connector, self.clock)
