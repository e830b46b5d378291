"""Altering offsets of sinks and sources (KIP-875): expect STOPPED, claim, call alter_offsets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar

from sinksdk.connector import Connector, ConnectorContext, ConnectorIdentity, SinkConnector
from sinksdk.control import registry
from sinksdk.control.connector_calls import ConnectorCalls, ThreadExecutor
from sinksdk.control.deletion import settle
from sinksdk.control.liveness import await_end
from sinksdk.engine.clock import WallClock
from sinksdk.errors import ConnectException
from sinksdk.offsets import OffsetAndMetadata, TopicPartition
from sinksdk.settings.job import PaceSettings
from sinksdk.store import Store, identify
from sinksdk.store.generations import Claim, Generations, UnpublishedException
from sinksdk.store.records import ConnectorRecord

log = logging.getLogger(__name__)

T = TypeVar("T")

Executors = Callable[[], ThreadExecutor]

IN_THREADS: Final[Executors] = ThreadExecutor


class ConnectorRunsException(ConnectException):
    """The request requires a stopped connector (Connect's 400 for offsets)."""


class OffsetsRefusedException(ConnectException):
    """The connector refuses the offsets that an operator has requested."""


class ClaimedContext(ConnectorContext):
    """The context of a connector that no driver runs, with the claimed commits."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim

    def committed(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return {partition: entry.as_offset() for partition, entry in self._claim.committed.items()}


class StoppedConnector:
    """A connector whose offsets are altered; raises ConnectorRunsException if it is not STOPPED."""

    def __init__(
        self,
        store: Store,
        name: str,
        clock: WallClock,
        executors: Executors = IN_THREADS,
    ) -> None:
        self._store = store
        self._name = name
        self._clock = clock
        self._executors = executors
        self.generations = Generations(store, name)
        self.record = self._stopped()

    def claim(self, config: PaceSettings, patience: float) -> Claim:
        """Wait at most ``patience`` seconds until the tasks have closed, and fence zombies."""
        graceful = config.graceful_timeout_ms / 1000
        await_end(self._store, self._name, clock=self._clock, graceful=graceful, patience=patience)
        claim = self.generations.claim()
        # Read again: if an operator resumes the connector from here on, its driver claims later and fences
        # this process.
        self.record = self._stopped()
        return claim

    def publish(self, connector: SinkConnector, config: PaceSettings, claim: Claim) -> tuple[Claim, str]:
        """Publish commits as far as possible; return the next claim, and the problem or ""."""
        problem = settle(
            self._store,
            self._name,
            self.record,
            generations=self.generations,
            claim=claim,
            connector=connector,
            own=dict,
            call=lambda what, method: self.call(what, connector, config, method),
            clock=self._clock,
        )
        if problem:
            log.warning("connector %s: not all commits could be published: %s", self._name, problem)
        return self.generations.claim(), problem

    def expect_settled(self, claim: Claim, offsets: Collection[TopicPartition], problem: str) -> None:
        """Raise UnpublishedException for an unpublished commit that is not recovered."""
        left = ", ".join(str(p) for p in sorted(claim.unpublished().keys() - set(offsets)))
        if left:
            raise UnpublishedException(
                f"connector {self._name}: the commits of {left} cannot be published"
                f"{f': {problem}' if problem else ''}. No offsets were recovered; fix the cause, then run "
                f"'sinksdk offsets recover CONFIG' again"
            )

    def alter(self, connector: Connector, config: PaceSettings, alter_offsets: Callable[[], Any]) -> bool:
        """Call ``alter_offsets``; return whether the connector has moved offsets of its own."""
        # The caller has claimed the connector before, so no task commits during the call.
        return bool(self.call("alter_offsets", connector, config, alter_offsets))

    def call(self, what: str, connector: Connector, config: PaceSettings, method: Callable[[], T]) -> T:
        """Call a method of a connector that is not started. Raises OffsetsRefusedException."""
        connector.identity = ConnectorIdentity(identify(self._store), self._name, self.record.incarnation)
        calls = ConnectorCalls(connector, self._name, self._clock, self._executors)
        timeout = config.connector_start_timeout_ms / 1000
        try:
            return calls.call(what, method, timeout=timeout)
        except Exception as error:
            why = str(error) if isinstance(error, ConnectException) else f"{type(error).__name__}: {error}"
            raise OffsetsRefusedException(
                f"connector {self._name}: {what} failed, and no offsets were altered: {why}"
            ) from error
        finally:
            calls.end()

    def _stopped(self) -> ConnectorRecord:
        record = registry.find(self._store, self._name)
        registry.expect_connector(self._store, self._name, record)
        if record.target_state != "STOPPED" or record.deleted:
            raise ConnectorRunsException(
                f"connector '{self._name}' has the target state {record.target_state}: its offsets can be "
                f"altered only while it is stopped ('sinksdk stop {self._name}')"
            )
        return record
