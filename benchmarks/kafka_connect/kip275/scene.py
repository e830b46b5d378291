"""The scene that both systems play, and the journal of the batches of their tasks.

The journal has the lines ``open PARTITION`` and ``put PARTITION FIRST NEXT``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

RECORDS = 100_000  # of each partition, and of a file: no file is complete before the partition's end
VALUE = 20  # bytes of a value: a file is one part, so that S3 gets a request when the file is full
TASKS = 4  # one for each partition
FAST = 3  # the partition whose S3 fails: its file is full while the others' are not
SLOW_FROM = 60_000  # the offset from which the others are slow
RATE = 4_000  # records per second of each slow task
REFUSED = f"partition={FAST}/"  # in the path of each of its objects


@dataclass(frozen=True)
class Loss:
    """The cost of a rebalance for one partition.

    Args:
        delivered: records passed to its task before the rebalance.
        committed: its committed offset right after the rebalance.
        read_again: records passed to a task again, counted each time.
        is_kept: its task kept the partition, with the open file.
    """

    delivered: int
    committed: int
    read_again: int
    is_kept: bool = False


@dataclass
class Life:
    """A partition with one task, from open to close.

    Args:
        puts: start and end offset of each batch.
    """

    puts: list[tuple[int, int]] = field(default_factory=list)

    @property
    def end(self) -> int:
        return max((end for _, end in self.puts), default=0)

    def below(self, offset: int) -> int:
        return sum(max(min(end, offset) - first, 0) for first, end in self.puts)


def lives(journal: Path) -> Mapping[int, Sequence[Life]]:
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
    # ``seen`` are the lives right after the rebalance. A partition that was opened more than twice, or did
    # not resume at its commit, raises ValueError.
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
