"""An operator's requests and queries, from any machine that reaches the store.

Nothing here runs a connector: every request is a record in the store, which the connector's driver sees
within a second or two. Offsets of a stopped connector are altered here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sinksdk.control import registry
from sinksdk.control.history import read_history
from sinksdk.control.info import (
    OnDamage,
    connector_info,
    connector_infos,
    connector_reports,
)
from sinksdk.control.offsets import StoppedConnector
from sinksdk.control.shown import ConnectorInfo
from sinksdk.control.sink_offsets import OpenedSink, Sinks, expect_there, opened_sink
from sinksdk.engine.clock import SystemWallClock, WallClock
from sinksdk.records import TopicPartition
from sinksdk.store import Store, read_commits
from sinksdk.store.generations import Claim
from sinksdk.store.records import ConnectorRecord, TargetState
from sinksdk.store.reports import ConnectorHistory


class Herder:
    """All connectors of one store.

    Args:
        sinks: opens a sink to alter its offsets; by default without its source.
    """

    def __init__(self, store: Store, clock: WallClock | None = None, *, sinks: Sinks = opened_sink) -> None:
        self._store = store
        self._clock = clock or SystemWallClock()
        self._opened = sinks

    def connectors(self) -> list[str]:
        """Names of all connectors, sorted."""
        return registry.names(self._store)

    def info(self, name: str) -> ConnectorInfo:
        """The state of a connector. Raises ConnectorNotFoundException."""
        return connector_info(self._store, name, self._clock.time())

    def infos(self, on_damage: OnDamage | None = None) -> list[ConnectorInfo]:
        """The state of all connectors, by name; ``on_damage`` as in :func:`connector_infos`."""
        return connector_infos(self._store, self._clock.time(), on_damage)

    def history(self, name: str) -> ConnectorHistory:
        """A connector's recent history; empty if there is no connector of that name."""
        return read_history(self._store, name)

    def reports(self, on_damage: OnDamage | None = None) -> list[tuple[ConnectorInfo, ConnectorHistory]]:
        """As :meth:`infos`, with each connector's recent history."""
        return connector_reports(self._store, self._clock.time(), on_damage)

    def connector(self, name: str) -> ConnectorRecord:
        """A connector's record. Raises ConnectorNotFoundException."""
        return registry.find(self._store, name)

    def create(
        self, name: str, config: Mapping[str, Any], target_state: TargetState = "RUNNING"
    ) -> ConnectorRecord:
        """Create a connector, which a driver may run from now on. Its configuration is not checked here.

        Raises:
            ConnectorExistsException: there is one of that name.
            ConnectorDeletedException: there was one, and its deletion is not done yet.
        """
        return registry.create(self._store, name, config, target_state)

    def configure(self, name: str, config: Mapping[str, Any] | registry.Reconfigure) -> ConnectorRecord:
        """Replace the configuration, or create the connector; a running generation closes first."""
        return registry.configure(self._store, name, config)

    def pause(self, name: str) -> ConnectorRecord:
        """Close the running generation, and read nothing until :meth:`resume`."""
        return registry.aim(self._store, name, "PAUSED")

    def stop(self, name: str) -> ConnectorRecord:
        """As :meth:`pause`; offsets may be altered then (KIP-875)."""
        return registry.aim(self._store, name, "STOPPED")

    def resume(self, name: str) -> ConnectorRecord:
        """Run again."""
        return registry.aim(self._store, name, "RUNNING")

    def restart(self, name: str, *, only_failed: bool = False) -> ConnectorRecord:
        """Stop the connector and its tasks, and start them again; or only the failed ones."""
        return registry.order(self._store, name, "restart_failed" if only_failed else "restart")

    def rebalance(self, name: str) -> ConnectorRecord:
        """End the running generation early: everything is flushed, committed, and reassigned."""
        return registry.order(self._store, name, "rebalance")

    def flush(self, name: str) -> ConnectorRecord:
        """Commit all records available now, tails included."""
        return registry.order(self._store, name, "flush")

    def delete(self, name: str, *, force: bool = False) -> ConnectorRecord:
        """Delete a connector (KIP-883): its driver does it, or the next one that is started.

        Args:
            force: drop committed tokens that cannot be published; otherwise the deletion waits for them.

        Raises:
            ConnectorNotFoundException: there is none of that name.
        """
        return registry.mark_deleted(self._store, name, force=force)

    def offsets(self, name: str) -> dict[TopicPartition, int]:
        """Next offset to read of each partition with a commit."""
        self.connector(name)
        return {p: entry.offset for p, entry in sorted(read_commits(self._store, name).committed.items())}

    def alter_offsets(
        self, name: str, offsets: Mapping[TopicPartition, int | None], *, patience: float = math.inf
    ) -> dict[TopicPartition, int]:
        """Commit an operator's offsets; only while the connector is STOPPED (KIP-875).

        They are a separate generation, which fences zombies. The call first waits for closing tasks, whose
        last commits count, and calls the connector's ``alter_offsets`` before it writes.

        Args:
            offsets: next offset to read of each partition named; None removes its commit.
            patience: seconds to wait at most until it has closed; never longer than closing may take.

        Returns:
            The commits afterwards.

        Raises:
            ConnectorNotFoundException: there is none of that name.
            ConnectorRunsException: its target state is not STOPPED.
            ConnectorClosingException: it has not closed yet.
            UnpublishedException: a partition has a commit that is not published yet.
            OffsetsRefusedException: the connector does not let them be altered so.
            ConfigException: the connector cannot be made here to be asked, or the source is known and has no
                such offsets.
            ConnectException: the source is known and does not answer.
        """
        stopped = StoppedConnector(self._store, name, self._clock)
        opened = self._opened(stopped.record.config)
        expect_there(opened, offsets)
        claim = stopped.claim(opened.config.graceful_timeout_ms / 1000, patience)
        _ask(stopped, opened, claim, offsets)
        stopped.generations.alter(claim, offsets, stopped.record.version, stopped.record.config)
        return self.offsets(name)

    def reset_offsets(self, name: str, *, patience: float = math.inf) -> None:
        """Remove all commits. Raises as :meth:`alter_offsets`."""
        stopped = StoppedConnector(self._store, name, self._clock)
        opened = self._opened(stopped.record.config)
        claim = stopped.claim(opened.config.graceful_timeout_ms / 1000, patience)
        _ask(stopped, opened, claim, dict.fromkeys(claim.committed))
        stopped.generations.reset(claim, stopped.record.version, stopped.record.config)


def _ask(
    stopped: StoppedConnector,
    opened: OpenedSink,
    claim: Claim,
    offsets: Mapping[TopicPartition, int | None],
) -> None:
    stopped.generations.expect_published(claim, offsets.keys())
    connector, config, _ = opened
    stopped.ask(
        connector,
        lambda: connector.alter_offsets(config, dict(offsets)),
        timeout=config.connector_start_timeout_ms / 1000,
    )
