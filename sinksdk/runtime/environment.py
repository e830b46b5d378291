"""What a driver runs in: its store, time, threads and chance. A simulation hands in its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sinksdk.control.connector_calls import CallExecutor, ThreadExecutor
from sinksdk.control.consumer_group import BackgroundSync, ConsumerGroupSync, OffsetGroup
from sinksdk.control.requests import ClosingSignal, PendingRequests
from sinksdk.engine.clock import SystemWallClock, WallClock
from sinksdk.runtime.backoff import Waits, random_jitter
from sinksdk.store import Store
from sinksdk.store.records import ConnectorRecord
from sinksdk.support.threads import Background, in_a_thread


@dataclass(frozen=True, slots=True)
class Threads:
    """How a driver runs what may block.

    Args:
        calls: make what runs the connector's own code.
        background: runs questions to the source while a generation runs.
        syncs: make what writes commits to a consumer group.
    """

    calls: Callable[[], CallExecutor] = ThreadExecutor
    background: Background = in_a_thread
    syncs: Callable[[OffsetGroup, str], ConsumerGroupSync] = BackgroundSync


@dataclass(frozen=True, slots=True)
class Environment:
    """What a driver runs in.

    Args:
        jitter: what each back-off is multiplied by.
        signal: asks the driver to close.
        waits: how long a process waits for what is away. A driver ends the wait once the connector has
            started; a process without it does not wait.
        record: the connector's configuration, if it comes from the store; None: the driver brings it, and it
            becomes the store's once the driver has claimed a generation.
        requests: what an operator asks; by default read from the store.
    """

    store: Store
    clock: WallClock = field(default_factory=SystemWallClock)
    threads: Threads = Threads()
    jitter: Callable[[], float] = random_jitter
    signal: ClosingSignal = field(default_factory=ClosingSignal)
    waits: Waits | None = None
    record: ConnectorRecord | None = None
    requests: PendingRequests | None = None

    def requests_for(self, connector: str) -> PendingRequests:
        """What an operator asks of a connector."""
        return self.requests or PendingRequests(self.store, connector, self.clock)
