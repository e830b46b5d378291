"""An operator's requests and queries, from any machine that reaches the store.

Nothing here runs a connector: every request is a record in the store, which the connector's driver sees
within a second or two. Offsets of a stopped connector are altered here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from sinksdk.control import registry
from sinksdk.control.history import read_history
from sinksdk.control.info import OnDamage, connector_info, of_all, overdue
from sinksdk.control.offsets import IN_THREADS, ClaimedContext, Executors, StoppedConnector
from sinksdk.control.shown import ConnectorInfo
from sinksdk.control.sink_offsets import OpenedSink, Sinks, expect_there, opened_sink
from sinksdk.engine.clock import SystemWallClock, WallClock
from sinksdk.offsets import TopicPartition
from sinksdk.store import Store, read_commits
from sinksdk.store.generations import Claim
from sinksdk.store.records import ConnectorKind, ConnectorRecord, Order, TargetState
from sinksdk.store.reports import ConnectorHistory

Reconfigure = Callable[[Mapping[str, str] | None], Mapping[str, Any]]
"""Maps the current configuration to a new one; None: there is no connector of that name."""


class Herder:
    """All connectors of one store.

    Args:
        sinks: opens a sink to alter its offsets; by default without its source.
        executors: create what runs the sink's own code then.
    """

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
        """Names of all connectors, sorted."""
        return registry.names(self._store)

    def info(self, name: str) -> ConnectorInfo:
        """The state of a connector. Raises ConnectorNotFoundException."""
        return connector_info(self._store, name, self._clock.time())

    def history(self, name: str) -> ConnectorHistory:
        """A connector's recent history; empty if there is no connector of that name."""
        return read_history(self._store, name)

    def infos(self, on_damage: OnDamage | None = None) -> list[ConnectorInfo]:
        """The state of all connectors, by name, including those being deleted.

        Args:
            on_damage: called for each whose records are damaged; None: raise.

        Raises:
            StoreUnavailable: no response from the store.
        """
        now = self._clock.time()
        return of_all(self._store, lambda seen, name: connector_info(seen, name, now), on_damage)

    def overdue(self) -> dict[str, str]:
        """Running connectors for which nothing has been planned for too long, each with the reason.

        Raises:
            StoreUnavailable: no response from the store.
        """
        return overdue(self._store, self._clock.time())

    def reports(self, on_damage: OnDamage | None = None) -> list[tuple[ConnectorInfo, ConnectorHistory]]:
        """As :meth:`infos`, with each connector's recent history."""
        now = self._clock.time()
        return of_all(
            self._store,
            lambda seen, name: (connector_info(seen, name, now), read_history(seen, name)),
            on_damage,
        )

    def connector(self, name: str) -> ConnectorRecord:
        """A connector's record. Raises ConnectorNotFoundException."""
        return registry.find(self._store, name)

    def create(
        self,
        name: str,
        config: Mapping[str, Any],
        target_state: TargetState = "RUNNING",
        kind: ConnectorKind | None = None,
    ) -> ConnectorRecord:
        """Create a connector, which a driver may run from now on. Its configuration is not checked here.

        Args:
            kind: None: its first driver records it.

        Raises:
            ConnectorExistsException: there is one of that name.
            ConnectorDeletedException: there was one, and its deletion is not done yet.
        """

        def exists(_: ConnectorRecord) -> ConnectorRecord:
            raise registry.ConnectorExistsException(f"connector '{name}' already exists")

        return registry.change(
            self._store, name, exists, otherwise=lambda: registry.created(config, target_state, kind=kind)
        )

    def configure(self, name: str, config: Mapping[str, Any] | Reconfigure) -> ConnectorRecord:
        """Replace the configuration, or create the connector; a running generation closes first.

        Args:
            config: as written: dotted names, references unresolved. Or a function of the current one: it is
                called again after a concurrent change, so that no change is lost.

        Raises:
            ConnectorDeletedException: it is being deleted.
            WrongKindException: DataFrames are written under this name, or a source becomes a sink.
            Exception: what ``config`` raises; nothing is changed then.
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
        """Close the running generation, and read nothing until :meth:`resume`."""
        return self.aim(name, "PAUSED")

    def stop(self, name: str) -> ConnectorRecord:
        """As :meth:`pause`; offsets may be altered then (KIP-875)."""
        return self.aim(name, "STOPPED")

    def resume(self, name: str) -> ConnectorRecord:
        """Run again."""
        return self.aim(name, "RUNNING")

    def aim(self, name: str, target_state: TargetState) -> ConnectorRecord:
        """Change the target state.

        Raises:
            ConnectorNotFoundException: there is none of that name.
            ConnectorDeletedException: it is being deleted.
            WrongKindException: DataFrames are written under this name: it stays STOPPED.
        """

        def aimed(record: ConnectorRecord) -> ConnectorRecord:
            if target_state != "STOPPED":
                registry.expect_connector(self._store, name, record)
            return record.model_copy(update={"target_state": target_state})

        return registry.change(self._store, name, aimed)

    def restart(self, name: str, *, only_failed: bool = False) -> ConnectorRecord:
        """Stop the connector and its tasks, and start them again; or only the failed ones."""
        return self._order(name, "restart_failed" if only_failed else "restart")

    def rebalance(self, name: str) -> ConnectorRecord:
        """End the running generation early: everything is flushed, committed, and reassigned."""
        return self._order(name, "rebalance")

    def flush(self, name: str) -> ConnectorRecord:
        """Commit all records available now, tails included."""
        return self._order(name, "flush")

    def _order(self, name: str, what: Order) -> ConnectorRecord:
        """Request a one-time action. Raises as :meth:`aim`."""

        def asked(record: ConnectorRecord) -> ConnectorRecord:
            registry.expect_connector(self._store, name, record)
            orders = record.orders.model_copy(update={what: getattr(record.orders, what) + 1})
            return record.model_copy(update={"orders": orders})

        return registry.change(self._store, name, asked)

    def delete(self, name: str, *, force: bool = False) -> ConnectorRecord:
        """Delete a connector (KIP-883), irrevocably: its driver does it, or the next one that is started.

        Args:
            force: drop committed tokens that cannot be published; otherwise the deletion waits for them.

        Raises:
            ConnectorNotFoundException: there is none of that name.
        """

        def marked(record: ConnectorRecord) -> ConnectorRecord:
            return record.model_copy(update={"deleted": True, "forced": record.forced or force})

        return registry.change(self._store, name, marked, may_be_deleted=True)

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
            WrongKindException: DataFrames are written under this name.
            ConnectorClosingException: it has not closed yet.
            UnpublishedException: a partition has a commit that is not published yet, or records above a
                withdrawn commit are visible.
            OffsetsRefusedException: the connector does not let them be altered so.
            ConfigException: the connector cannot be made here to be asked, or the source is known and has no
                such offsets.
            ConnectException: the source is known and does not answer.
        """
        stopped = StoppedConnector(self._store, name, self._clock, self._executors)
        opened = self._opened(stopped.record.config)
        expect_there(opened, offsets)
        claim = stopped.claim(opened.config, patience)
        _ask(stopped, opened, claim, offsets)
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
        """Commit what the destination holds: after the store was lost or restored from an older copy.

        The connector is created if there is none, gets this configuration, and is STOPPED. What is committed
        and not published is published first. Commits of partitions for which the connector returns no offset
        stay; the others are replaced, also one that could not be published, and one that was withdrawn.

        Args:
            config: as written: dotted names, references unresolved.
            given: offsets that the operator knows.

        Returns:
            The commits afterwards.

        Raises:
            UnpublishedException: a commit cannot be published; it says why.
            ConnectException: as :meth:`alter_offsets`.
        """
        opened = self._opened(config)
        try:
            self.create(name, config, "STOPPED")
        except registry.ConnectorExistsException:
            self.stop(name)
            self.configure(name, config)
        stopped = StoppedConnector(self._store, name, self._clock, self._executors)
        claim = stopped.claim(opened.config, patience)
        connector = opened.connector
        problem = ""
        if claim.all_unsettled():
            claim, problem = stopped.publish(connector, opened.config, claim)
        connector.context = ClaimedContext(claim)
        offsets = stopped.call(
            "recover_offsets",
            connector,
            opened.config,
            lambda: connector.recover_offsets(opened.config, given),
        )
        stopped.expect_settled(claim, offsets, problem)
        expect_there(opened, offsets)
        claim = claim.giving_up(offsets)
        _ask(stopped, opened, claim, offsets)
        stopped.generations.alter(claim, offsets, stopped.record.version, stopped.record.config)
        return self.offsets(name)

    def reset_offsets(self, name: str, *, patience: float = math.inf) -> None:
        """Remove all commits. Raises as :meth:`alter_offsets`."""
        stopped = StoppedConnector(self._store, name, self._clock, self._executors)
        opened = self._opened(stopped.record.config)
        claim = stopped.claim(opened.config, patience)
        _ask(stopped, opened, claim, dict.fromkeys(claim.committed))
        stopped.generations.reset(claim, stopped.record.version, stopped.record.config)


def _ask(
    stopped: StoppedConnector, opened: OpenedSink, claim: Claim, offsets: Mapping[TopicPartition, int | None]
) -> None:
    stopped.generations.expect_published(claim, offsets)
    connector, config, _ = opened
    connector.context = ClaimedContext(claim)
    stopped.ask(connector, config, lambda: connector.alter_offsets(config, dict(offsets)))
