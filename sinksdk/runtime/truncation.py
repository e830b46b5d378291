"""Whether logs still have what was committed of them: they may have lost their tails (KIP-320).

After an unclean leader election, or with a broker that was restored from a copy, a log ends earlier than
before, and new records get offsets that were read already. Once it has grown beyond the commit again, only
leader epochs tell.
"""

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
        """The partitions that have lost records below their commits. Raises as :meth:`Source.truncated`."""
        doubts = {
            partition: (Position(entry.offset, entry.leader_epoch), epoch)
            for partition, epoch in snapshot.epochs.items()
            if (entry := committed.get(partition)) is not None
            and entry.leader_epoch not in (None, epoch)
            and (log := snapshot.partitions.get(partition)) is not None
            and log.start <= entry.offset <= log.end
            and entry.leader_epoch is not None
        }
        asked = {p: at for p, (at, epoch) in doubts.items() if self._known.get(p, ())[:2] != (at, epoch)}
        if asked:
            found = self._source.truncated(asked)
            for partition, at in asked.items():
                lost = LostTail(found[partition]) if partition in found else None
                self._known[partition] = at, doubts[partition][1], lost
        self._known = {p: known for p, known in self._known.items() if p in doubts}
        return {p: lost for p, (_, _, lost) in self._known.items() if lost is not None}
