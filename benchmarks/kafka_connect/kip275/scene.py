"""The scene both systems play, and what their tasks were handed in it.

Each task, in Java or in Python, writes a line to one journal whenever it is given a partition and whenever it
is handed records: ``open PARTITION`` and ``put PARTITION FIRST NEXT``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

RECORDS = 100_000  # of each partition, and of a file: until its end, nobody has a whole one
VALUE = 20  # bytes of a value: a file is one part, so that S3 is asked when the file is full
TASKS = 4  # one for each partition
FAST = 3  # the partition whose S3 fails: its task comes to S3 while the others are in mid-file
SLOW_FROM = 60_000  # the offset from which the others are slow
RATE = 4_000  # records a second that each of them takes then
REFUSED = f"partition={FAST}/"  # in the path of each of its objects


@dataclass(frozen=True)
class Loss:
    """What a rebalance cost one partition.

    Args:
        delivered: records that were handed to its task before it.
        committed: its committed offset right after it.
        read_again: records handed to a task later that had been delivered before; each time they were.
        is_kept: whether its task kept it, with the file that was open.
    """

    delivered: int
    committed: int
    read_again: int
    is_kept: bool = False


@dataclass
class Life:
    """A partition with one task, from being opened to being closed.

    Args:
        puts: offset of the first record, and after the last one, of each batch the task was handed.
    """

    puts: list[tuple[int, int]] = field(default_factory=list)

    @property
    def end(self) -> int:
        """Offset after the last record it was handed; 0 where it was handed none."""
        return max((end for _, end in self.puts), default=0)

    def below(self, offset: int) -> int:
        """How many records it was handed below an offset."""
        return sum(max(min(end, offset) - first, 0) for first, end in self.puts)


def lives(journal: Path) -> Mapping[int, Sequence[Life]]:
    """Every partition's lives, first to last; nothing before the first task has been given one."""
    found: dict[int, list[Life]] = defaultdict(list)
    lines = journal.read_text().splitlines() if journal.exists() else []
    for what, partition, *offsets in (line.split() for line in lines):
        if what == "open":
            found[int(partition)].append(Life())
        else:
            first, end = map(int, offsets)
            found[int(partition)][-1].puts.append((first, end))
    return found


def losses(
    played: Mapping[int, Sequence[Life]], seen: Mapping[int, Sequence[Life]], committed: Mapping[int, int]
) -> dict[int, Loss]:
    """What the one rebalance of a scene cost each partition.

    Args:
        played: the lives of the whole scene.
        seen: those right after the rebalance.
        committed: offsets right after the rebalance.

    Raises:
        ValueError: a partition was opened more than twice, or did not go on at its commit: this is another
            scene.
    """
    return {
        partition: _loss(partition, opened, seen[partition][0].end, committed[partition])
        for partition, opened in sorted(played.items())
    }


def _loss(partition: int, opened: Sequence[Life], delivered: int, committed: int) -> Loss:
    if len(opened) > 2:
        message = f"partition {partition} was opened {len(opened)} times, in a scene with one rebalance"
        raise ValueError(message)
    if len(opened) == 1:
        return Loss(delivered, committed, 0, is_kept=True)
    after = opened[1]
    went_on = after.puts[0][0] if after.puts else committed
    if went_on != committed:
        message = f"partition {partition} is committed up to {committed} and was read again from {went_on}"
        raise ValueError(message)
    return Loss(delivered, committed, after.below(delivered))
