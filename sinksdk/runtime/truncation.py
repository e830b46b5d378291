"""Checks whether logs have lost records below their commits (KIP-320)."""

from __future__ import annotations

from collections.abc import Mapping

from sinksdk.offsets import TopicPartition
from sinksdk.runtime.planner import LostTail
from sinksdk.store.records import PartitionCommit
from sinksdk.topics import Source
from sinksdk.topics.base import Position, Snapshot


class TruncationCheck:
    """Compares commits with logs; again after each change of a partition's commit or leader."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._known: dict[TopicPartition, tuple[Position, int, LostTail | None]] = {}

    def of(
        self, committed: Mapping[TopicPartition, PartitionCommit], snapshot: Snapshot
    ) -> dict[TopicPartition, LostTail]:
        doubts = {
            partition: (Position(entry.offset, entry.leader_epoch), epoch)
            for partition, epoch in snapshot.epochs.items()
            if (entry := committed.get(partition)) is not None
            and entry.leader_epoch not in (None, epoch)
            and (log := snapshot.partitions.get(partition)) is not None
            and log.start <= entry.offset <= log.end
            and entry.leader_epoch is not None
        }
        # An unclean leader election or a restored broker gives new records offsets that were already read.
        # Once the log is longer than the commit again, only leader epochs show that (decision 0034).
        unknown = {p: at for p, (at, epoch) in doubts.items() if self._known.get(p, ())[:2] != (at, epoch)}
        if unknown:
            found = self._source.truncated(unknown)
            for partition, at in unknown.items():
                lost = LostTail(found[partition]) if partition in found else None
                self._known[partition] = at, doubts[partition][1], lost
        self._known = {p: known for p, known in self._known.items() if p in doubts}
        return {p: lost for p, (_, _, lost) in self._known.items() if lost is not None}
