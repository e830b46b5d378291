"""Operators' requests and queries, from any machine that reaches the store.

A request is a record in the store, which the connector's driver reads within a second or two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from sinksdk.control import registry
from sinksdk.control.history import read_history
from sinksdk.control.info import OnDamage, connector_info, overdue, read_all
from sinksdk.control.offsets import IN_THREADS, Executors, Sinks, StoppedSink, expect_there, opened_sink
from sinksdk.control.shown import ConnectorInfo
from sinksdk.engine.clock import SystemWallClock, WallClock
from sinksdk.offsets import TopicPartition
from sinksdk.store import Store, read_commits
from sinksdk.store.records import ConnectorKind, ConnectorRecord, Order, TargetState
from sinksdk.store.reports import ConnectorHistory

# Maps the current configuration (None: no connector) to a new one.
Reconfigure = Callable[[Mapping[str, str] | None], Mapping[str, Any]]


class Herder:
    """All connectors of one store."""

    def __init__(
        self,
        store: Store,
        clock: WallClock | None = None,
        *,
        sinks: Sinks = opened_sink,
        executors: Executors = IN_THREADS,
    ) -> None:
        self._store = store
        self._clock = clock or SystemWallClock()
        self._opened = sinks
        self._executors = executors

    def connectors(self) -> list[str]:
        return registry.names(self._store)

    def info(self, name: str) -> ConnectorInfo:
        return connector_info(self._store, name, self._clock.time())

    def history(self, name: str) -> ConnectorHistory:
        return read_history(self._store, name)

    def infos(self, on_damage: OnDamage | None = None) -> list[ConnectorInfo]:
        """Return the state of all connectors; ``on_damage`` is called for damaged ones (None: raise)."""
        now = self._clock.time()
        return read_all(self._store, lambda seen, name: connector_info(seen, name, now), on_damage)

    def overdue(self) -> dict[str, str]:
        """Return, by running connector, why nothing has been planned for too long."""
        return overdue(self._store, self._clock.time())

    def reports(self, on_damage: OnDamage | None = None) -> list[tuple[ConnectorInfo, ConnectorHistory]]:
        now = self._clock.time()
        return read_all(
            self._store,
            lambda seen, name: (connector_info(seen, name, now), read_history(seen, name)),
            on_damage,
        )

    def connector(self, name: str) -> ConnectorRecord:
        return registry.find(self._store, name)

    def create(
        self,
        name: str,
        config: Mapping[str, Any],
        target_state: TargetState = "RUNNING",
        kind: ConnectorKind | None = None,
    ) -> ConnectorRecord:
        """Create a connector, which a driver may run; its configuration is not checked here."""

        def exists(_: ConnectorRecord) -> ConnectorRecord:
            raise registry.ConnectorExistsException(f"connector '{name}' already exists")

        return registry.change(
            self._store, name, exists, otherwise=lambda: registry.created(config, target_state, kind=kind)
        )

    def configure(self, name: str, config: Mapping[str, Any] | Reconfigure) -> ConnectorRecord:
        """Replace the configuration, or create the connector; a running generation closes first.

        Args:
            config: as written, or a function of the current one, called again after a concurrent change.
        """
        wanted: Reconfigure = config if callable(config) else lambda _: config

        def changed(record: ConnectorRecord) -> ConnectorRecord:
            config = registry.texts(wanted(record.config))
            is_other = config.get("connector.class") != record.config.get("connector.class")
            kind = registry.kind_of_class(config) if is_other else None
            record = registry.with_kind(self._store, name, record, kind)
            if record.config == config:
                return record
            return record.model_copy(update={"config": config, "version": record.version + 1})

        def created() -> ConnectorRecord:
            config = registry.texts(wanted(None))
            return registry.created(config, kind=registry.kind_of_class(config))

        return registry.change(self._store, name, changed, otherwise=created)

    def pause(self, name: str) -> ConnectorRecord:
        return self.aim(name, "PAUSED")

    def stop(self, name: str) -> ConnectorRecord:
        """Request STOPPED, in which offsets may be altered (KIP-875)."""
        return self.aim(name, "STOPPED")

    def resume(self, name: str) -> ConnectorRecord:
        return self.aim(name, "RUNNING")

    def aim(self, name: str, target_state: TargetState) -> ConnectorRecord:
        def aimed(record: ConnectorRecord) -> ConnectorRecord:
            if target_state != "STOPPED":
                registry.expect_connector(self._store, name, record)
            return record.model_copy(update={"target_state": target_state})

        return registry.change(self._store, name, aimed)

    def restart(self, name: str, *, only_failed: bool = False) -> ConnectorRecord:
        return self._order(name, "restart_failed" if only_failed else "restart")

    def rebalance(self, name: str) -> ConnectorRecord:
        """Request that the running generation close early, so that its partitions are reassigned."""
        return self._order(name, "rebalance")

    def flush(self, name: str) -> ConnectorRecord:
        """Request a commit of all records available now, tails included."""
        return self._order(name, "flush")

    def _order(self, name: str, what: Order) -> ConnectorRecord:
        def requested(record: ConnectorRecord) -> ConnectorRecord:
            registry.expect_connector(self._store, name, record)
            orders = record.orders.model_copy(update={what: getattr(record.orders, what) + 1})
            return record.model_copy(update={"orders": orders})

        return registry.change(self._store, name, requested)

    def delete(self, name: str, *, force: bool = False) -> ConnectorRecord:
        """Request the irrevocable deletion of a connector, by its driver or the next one (KIP-883).

        Args:
            force: drop committed tokens that cannot be published, instead of waiting for them.
        """

        def marked(record: ConnectorRecord) -> ConnectorRecord:
            return record.model_copy(update={"deleted": True, "forced": record.forced or force})

        return registry.change(self._store, name, marked, may_be_deleted=True)

    def offsets(self, name: str) -> dict[TopicPartition, int]:
        self.connector(name)
        return {p: entry.offset for p, entry in sorted(read_commits(self._store, name).committed.items())}

    def alter_offsets(
        self, name: str, offsets: Mapping[TopicPartition, int | None], *, patience: float = math.inf
    ) -> dict[TopicPartition, int]:
        """Commit an operator's offsets, while the connector is STOPPED (KIP-875).

        Args:
            offsets: next offset to read; None removes a commit.
            patience: seconds to wait for closing tasks, whose last commits count.
        """
        stopped = StoppedSink(self._store, name, self._clock, self._opened, self._executors)
        expect_there(stopped.opened, offsets)
        claim = stopped.claim(patience)
        stopped.alter(claim, offsets)
        stopped.generations.alter(claim, offsets, stopped.record.version, stopped.record.config)
        return self.offsets(name)

    def recover_offsets(
        self,
        name: str,
        config: Mapping[str, Any],
        given: Mapping[TopicPartition, int],
        *,
        patience: float = math.inf,
    ) -> dict[TopicPartition, int]:
        """Commit what the destination holds, after the store was lost or restored from an older copy.

        The connector gets this configuration and is STOPPED; its commits are published first. Those for which
        the connector returns an offset are then replaced, even if unpublished or withdrawn.

        Args:
            given: offsets that the operator knows.
        """
        opened = self._opened(config)
        try:
            self.create(name, config, "STOPPED")
        except registry.ConnectorExistsException:
            self.stop(name)
            self.configure(name, config)
        stopped = StoppedSink(self._store, name, self._clock, lambda _: opened, self._executors)
        claim = stopped.claim(patience)
        problem = ""
        if claim.all_unsettled():
            claim, problem = stopped.publish(claim)
        offsets = stopped.recovered(claim, given, problem)
        expect_there(opened, offsets)
        claim = claim.giving_up(offsets)
        stopped.alter(claim, offsets)
        stopped.generations.alter(claim, offsets, stopped.record.version, stopped.record.config)
        return self.offsets(name)

    def reset_offsets(self, name: str, *, patience: float = math.inf) -> None:
        stopped = StoppedSink(self._store, name, self._clock, self._opened, self._executors)
        claim = stopped.claim(patience)
        stopped.alter(claim, dict.fromkeys(claim.committed))
        stopped.generations.reset(claim, stopped.record.version, stopped.record.config)
