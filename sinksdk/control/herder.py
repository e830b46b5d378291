"""Connectors as an operator handles them, from any machine that reaches the store.

Nothing here runs a connector: every wish is a record in the store, and the driver that runs the connector
sees it within a second or two. Where no driver is alive, what must not wait for one is done here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sinksdk.connector import ConnectorIdentity
from sinksdk.control import registry
from sinksdk.control.info import (
    ConnectorInfo,
    OnDamage,
    connector_history,
    connector_info,
    connector_infos,
    connector_reports,
)
from sinksdk.control.liveness import await_end
from sinksdk.control.sink_offsets import OpenedSink, Sinks, ask_connector, expect_there, opened_sink
from sinksdk.engine.clock import SystemWallClock, WallClock
from sinksdk.errors import ConnectException
from sinksdk.records import TopicPartition
from sinksdk.store import Store, identify, read_commits
from sinksdk.store.generations import Claim, Generations
from sinksdk.store.records import ConnectorRecord, TargetState
from sinksdk.store.reports import ConnectorHistory


class ConnectorRunsException(ConnectException):
    """This is possible only while the connector is stopped (Connect's 400 for its offsets)."""


class Herder:
    """All connectors of one store.

    Args:
        store: where they are kept.
        clock: time.
        sinks: open a sink whose offsets are altered; by default where its records come from is not known.
    """

    def __init__(self, store: Store, clock: WallClock | None = None, *, sinks: Sinks = opened_sink) -> None:
        self._store = store
        self._clock = clock or SystemWallClock()
        self._opened = sinks

    def connectors(self) -> list[str]:
        """Names of all connectors, sorted."""
        return registry.names(self._store)

    def info(self, name: str) -> ConnectorInfo:
        """How a connector is doing. Raises ConnectorNotFoundException."""
        return connector_info(self._store, name, self._clock.time())

    def infos(self, on_damage: OnDamage | None = None) -> list[ConnectorInfo]:
        """How all connectors are doing, by name.

        Args:
            on_damage: told of each whose records are damaged, and what is wrong; None: that is raised.
        """
        return connector_infos(self._store, self._clock.time(), on_damage)

    def history(self, name: str) -> ConnectorHistory:
        """What a connector did lately; nothing, where there is none of that name."""
        return connector_history(self._store, name)

    def reports(self, on_damage: OnDamage | None = None) -> list[tuple[ConnectorInfo, ConnectorHistory]]:
        """How all connectors are doing, and what they did lately; otherwise as :meth:`infos`."""
        return connector_reports(self._store, self._clock.time(), on_damage)

    def connector(self, name: str) -> ConnectorRecord:
        """What is wanted of a connector. Raises ConnectorNotFoundException."""
        return registry.find(self._store, name)

    def create(
        self, name: str, config: Mapping[str, Any], target_state: TargetState = "RUNNING"
    ) -> ConnectorRecord:
        """A new connector, which a driver may run from now on. Its configuration is not checked here.

        Raises:
            ConnectorExistsException: there is one of that name.
            ConnectorDeletedException: there was one, and its deletion is not done yet.
        """
        return registry.create(self._store, name, config, target_state)

    def configure(self, name: str, config: Mapping[str, Any] | registry.Reconfigure) -> ConnectorRecord:
        """Replace the configuration, or create the connector; what runs closes and begins again with it."""
        return registry.configure(self._store, name, config)

    def pause(self, name: str) -> ConnectorRecord:
        """Close what runs, and read nothing until :meth:`resume`."""
        return registry.aim(self._store, name, "PAUSED")

    def stop(self, name: str) -> ConnectorRecord:
        """As :meth:`pause`; offsets may be altered then (KIP-875)."""
        return registry.aim(self._store, name, "STOPPED")

    def resume(self, name: str) -> ConnectorRecord:
        """Run again."""
        return registry.aim(self._store, name, "RUNNING")

    def restart(self, name: str, *, only_failed: bool = False) -> ConnectorRecord:
        """Stop the connector and its tasks, and start them again; or only what has failed."""
        return registry.order(self._store, name, "restart_failed" if only_failed else "restart")

    def rebalance(self, name: str) -> ConnectorRecord:
        """End the running generation early: everything is flushed, committed, and assigned anew."""
        return registry.order(self._store, name, "rebalance")

    def flush(self, name: str) -> ConnectorRecord:
        """Commit everything that is there now, tails included."""
        return registry.order(self._store, name, "flush")

    def delete(self, name: str, *, force: bool = False) -> ConnectorRecord:
        """From now on it is being deleted (KIP-883): by its driver, or by whoever finds none alive.

        Args:
            name: the connector's.
            force: what is committed and cannot be published is given up; else that keeps it from being done.

        Raises:
            ConnectorNotFoundException: there is none of that name.
        """
        return registry.mark_deleted(self._store, name, force=force)

    def offsets(self, name: str) -> dict[TopicPartition, int]:
        """Next offset to read of each partition that something is committed of."""
        self.connector(name)
        return {p: entry.offset for p, entry in sorted(read_commits(self._store, name).committed.items())}

    def alter_offsets(
        self, name: str, offsets: Mapping[TopicPartition, int | None], *, patience: float = math.inf
    ) -> dict[TopicPartition, int]:
        """Commit other offsets, by hand; only while the connector is STOPPED (KIP-875).

        They are a generation of their own: whatever still ran as a zombie is fenced by it. Tasks that are
        closing are waited for: what they commit last counts. The connector is asked (``alter_offsets``)
        before anything is written.

        Args:
            name: the connector's.
            offsets: next offset to read of each partition named; None: as if nothing had been committed.
            patience: seconds to wait at most until it has closed; it is never waited for longer than
                closing may take.

        Returns:
            What is committed now.

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
        opened = self._opened(self._stopped(name).config)
        expect_there(opened, offsets)
        generations, claim, record = self._claimed(name, patience)
        self._ask(opened, record, generations, claim, offsets)
        generations.alter(claim, offsets, record.version, record.config)
        return self.offsets(name)

    def reset_offsets(self, name: str, *, patience: float = math.inf) -> None:
        """As if nothing had ever been committed. Raises as :meth:`alter_offsets`."""
        opened = self._opened(self._stopped(name).config)
        generations, claim, record = self._claimed(name, patience)
        self._ask(opened, record, generations, claim, dict.fromkeys(claim.committed))
        generations.reset(claim, record.version, record.config)

    def _ask(
        self,
        opened: OpenedSink,
        record: ConnectorRecord,
        generations: Generations,
        claim: Claim,
        offsets: Mapping[TopicPartition, int | None],
    ) -> None:
        """Let the connector move what it keeps outside; nobody else commits to that any more."""
        generations.expect_published(claim, offsets.keys())
        connector, config, _ = opened
        connector.identity = ConnectorIdentity(identify(self._store), config.name, record.incarnation)
        ask_connector(
            connector,
            config.name,
            lambda: connector.alter_offsets(config, dict(offsets)),
            timeout=config.connector_start_timeout_ms / 1000,
            clock=self._clock,
        )

    def _claimed(self, name: str, patience: float) -> tuple[Generations, Claim, ConnectorRecord]:
        """A generation of a stopped connector, which is nobody else's any more."""
        graceful = registry.graceful_timeout(self._stopped(name))
        await_end(self._store, name, clock=self._clock, graceful=graceful, patience=patience)
        generations = Generations(self._store, name)
        claim = generations.claim()
        # Again: whoever resumes or deletes it from here on claims after us, and we are fenced.
        return generations, claim, self._stopped(name)

    def _stopped(self, name: str) -> ConnectorRecord:
        """The record of a connector that shall be STOPPED. Raises ConnectorRunsException."""
        record = self.connector(name)
        if record.target_state != "STOPPED" or record.deleted:
            raise ConnectorRunsException(
                f"connector '{name}' is to be {record.target_state}: its offsets are altered only while "
                f"it is stopped ('sinksdk stop {name}')"
            )
        return record
