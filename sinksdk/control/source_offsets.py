"""An operator reads, alters and resets source offsets (KIP-875).

Source offsets are on the cluster of the connector's records, and change in a transaction, as with tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import closing, suppress
from typing import NamedTuple

from sinksdk.control import registry
from sinksdk.control.offsets import StoppedConnector
from sinksdk.engine import TaskName
from sinksdk.engine.clock import SystemWallClock, WallClock
from sinksdk.engine.writer import Target, fence
from sinksdk.source import SourceConnector, SourceConnectorConfig, SourceOffset, SourcePartition
from sinksdk.source.positions import SourcePosition, partition_key
from sinksdk.store import Conflict, Store, table
from sinksdk.store.keys import progress_prefix
from sinksdk.store.reports import TaskProgress

Changes = Sequence[tuple[SourcePartition, SourceOffset | None]]


class OpenedTarget(NamedTuple):
    """A source connector, not started, with its validated configuration and target."""

    connector: SourceConnector
    config: SourceConnectorConfig
    target: Target


Targets = Callable[[Mapping[str, str]], OpenedTarget]


class SourceOffsets:
    def __init__(self, store: Store, targets: Targets, clock: WallClock | None = None) -> None:
        self._store = store
        self._opened = targets
        self._clock = clock or SystemWallClock()

    def read(self, name: str) -> list[SourcePosition]:
        opened = self._opened(registry.find(self._store, name).config)
        with closing(opened.target.offsets(opened.config)) as offsets:
            return sorted(offsets.positions(), key=lambda position: partition_key(position.partition))

    def alter(self, name: str, changes: Changes, *, patience: float = math.inf) -> bool:
        """Commit other offsets while the connector is STOPPED; None: as if no record was ever read.

        Returns: Whether the connector has moved offsets of its own (``alter_offsets``).
        """
        stopped = StoppedConnector(self._store, name, self._clock)
        connector, config, target = self._opened(stopped.record.config)
        written = [SourcePosition.of(at, offset) for at, offset in changes if offset is not None]
        removed = [SourcePosition.of(at, {}).partition for at, offset in changes if offset is None]
        claim = stopped.claim(config, patience)
        # Tasks may still run and write, as zombies.
        for task in range(claim.transactional_tasks or 0):
            fence(target, config, task)
        has_moved = stopped.alter(connector, config, lambda: connector.alter_offsets(config, list(changes)))
        with closing(target.writer(config, TaskName(name, 0))) as writer:
            writer.init()
            writer.begin()
            writer.commit(written, removed)
        self._forget_reported(name, {partition_key(partition) for partition, _ in changes})
        return has_moved

    def reset(self, name: str, *, patience: float = math.inf) -> bool:
        changes = [(position.partition, None) for position in self.read(name)]
        return self.alter(name, changes, patience=patience)

    def _forget_reported(self, name: str, altered: Container[str]) -> None:
        # The tasks' reports of altered partitions are outdated.
        for key in self._store.list(progress_prefix(name)):
            row = table.read(self._store, key, TaskProgress)
            if row is None or row.value.source is None:
                continue
            offsets = [at for at in row.value.source.offsets if partition_key(at.partition) not in altered]
            source = row.value.source.model_copy(update={"offsets": tuple(offsets)})
            with suppress(Conflict):  # a zombie has just written this report; the next task overwrites it
                table.write(self._store, key, row.value.model_copy(update={"source": source}), row.version)
