"""Source offsets handled by an operator: shown, altered, reset (KIP-875).

They are where the records of the connector go, not in the store, and change in a transaction as the tasks'
own do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from sinksdk.connector import ConnectorIdentity
from sinksdk.control import registry
from sinksdk.control.herder import ConnectorRunsException
from sinksdk.control.liveness import await_end
from sinksdk.control.sink_offsets import ask_connector
from sinksdk.engine.clock import SystemWallClock, WallClock
from sinksdk.engine.options import TaskName
from sinksdk.engine.writer import CommittedOffsets, Target, fence
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.source.connector import SourceConnector
from sinksdk.source.positions import SourcePosition, partition_key
from sinksdk.source.records import SourceOffset, SourcePartition
from sinksdk.store import Conflict, Store, identify, table
from sinksdk.store.generations import Generations
from sinksdk.store.keys import progress_prefix
from sinksdk.store.records import ConnectorRecord
from sinksdk.store.reports import TaskProgress

Changes = Sequence[tuple[SourcePartition, SourceOffset | None]]
"""Source partitions with their new offsets; None: as if nothing of them had been read."""


class OpenedTarget(NamedTuple):
    """A source connector that does not run here, and where its records go.

    Args:
        connector: made, not started.
        config: its validated configuration.
        target: where its records go.
    """

    connector: SourceConnector
    config: SourceConnectorConfig
    target: Target


Targets = Callable[[Mapping[str, str]], OpenedTarget]
"""Opens a connector, given its configuration as written. Raises ConfigException."""


class SourceOffsets:
    """The source offsets of a store's connectors.

    Args:
        store: where the connectors are.
        targets: open where they write.
        clock: time.
    """

    def __init__(self, store: Store, targets: Targets, clock: WallClock | None = None) -> None:
        self._store = store
        self._opened = targets
        self._clock = clock or SystemWallClock()

    def read(self, name: str) -> list[SourcePosition]:
        """What is committed, by source partition.

        Raises:
            ConnectorNotFoundException: there is none of that name.
            ConfigException: it cannot be made, or where its records go cannot be opened.
            ConnectException: its offsets cannot be read.
        """
        opened = self._opened(registry.find(self._store, name).config)
        with _reading(opened) as offsets:
            return sorted(offsets.positions(), key=lambda position: partition_key(position.partition))

    def alter(self, name: str, changes: Changes, *, patience: float = math.inf) -> bool:
        """Commit other offsets; only while the connector is STOPPED. Its tasks, should they live, are fenced.

        Args:
            name: the connector's.
            changes: what changes.
            patience: seconds to wait at most until it has closed; never longer than closing may take.

        Returns:
            Whether the connector moved offsets of its own accordingly (``alter_offsets``).

        Raises:
            ConnectorNotFoundException: there is none of that name.
            ConnectorRunsException: its target state is not STOPPED.
            DataException: what is given can be no source partition or offset.
            ConnectorClosingException: it has not closed yet.
            OffsetsRefusedException: the connector does not let them be altered so.
            ConnectException: they cannot be written.
        """
        record = registry.find(self._store, name)
        if record.target_state != "STOPPED" or record.deleted:
            raise ConnectorRunsException(
                f"connector '{name}' is to be {record.target_state}: its offsets are altered only while "
                f"it is stopped ('sinksdk stop {name}')"
            )
        opened = self._opened(record.config)
        positions = [
            SourcePosition.of(partition, offset) for partition, offset in changes if offset is not None
        ]
        forget = [
            SourcePosition.of(partition, {}).partition for partition, offset in changes if offset is None
        ]
        await_end(
            self._store,
            name,
            clock=self._clock,
            graceful=opened.config.graceful_timeout_ms / 1000,
            patience=patience,
        )
        claim = Generations(self._store, name).claim()
        for task in range(claim.transactional_tasks or 0):
            fence(opened.target, opened.config, task)
        # Only now nobody reads from, or commits to, what the connector keeps outside.
        has_moved = self._ask(opened, record, changes)
        writer = opened.target.writer(opened.config, TaskName(name, 0))
        try:
            writer.init()
            writer.begin()
            writer.commit(positions, forget)
        finally:
            writer.close()
        self._forget_told(name, {partition_key(partition) for partition, _ in changes})
        return has_moved

    def _ask(self, opened: OpenedTarget, record: ConnectorRecord, changes: Changes) -> bool:
        connector, config, _ = opened
        connector.identity = ConnectorIdentity(identify(self._store), config.name, record.incarnation)
        return ask_connector(
            connector,
            config.name,
            lambda: connector.alter_offsets(config, list(changes)),
            timeout=config.connector_start_timeout_ms / 1000,
            clock=self._clock,
        )

    def _forget_told(self, name: str, altered: Container[str]) -> None:
        """How far the tasks said last that they had read these partitions does not hold any more."""
        for key in self._store.list(progress_prefix(name)):
            row = table.read(self._store, key, TaskProgress)
            if row is None or row.value.source is None:
                continue
            offsets = [at for at in row.value.source.offsets if partition_key(at.partition) not in altered]
            source = row.value.source.model_copy(update={"offsets": tuple(offsets)})
            with suppress(Conflict):  # a zombie has just written it: that is gone with the next task's
                table.write(self._store, key, row.value.model_copy(update={"source": source}), row.version)

    def reset(self, name: str, *, patience: float = math.inf) -> bool:
        """As if nothing had ever been read. Otherwise as :meth:`alter`."""
        changes = [(position.partition, None) for position in self.read(name)]
        return self.alter(name, changes, patience=patience)


@contextmanager
def _reading(opened: OpenedTarget) -> Iterator[CommittedOffsets]:
    offsets = opened.target.offsets(opened.config)
    try:
        yield offsets
    finally:
        offsets.close()
