"""How far a source is read as far as its task knows: for whoever watches, and bounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from sinksdk.source.positions import SourcePosition, as_json, partition_key
from sinksdk.source.records import SourceOffset, SourcePartition

MOST: Final = 50
"""Source partitions that are told of: those that something was committed of last."""

LONGEST: Final = 1_000
"""Characters that a source partition has with its offset, both as JSON; what is longer is not told of."""


class KnownPositions:
    """What a task has asked for, and what it has committed. A source may have any number of partitions.

    One thread writes at a time; any may read.
    """

    def __init__(self) -> None:
        self._positions: dict[str, SourcePosition] = {}
        self._has_more = False

    @property
    def has_more(self) -> bool:
        """Whether there are others that are not told of."""
        return self._has_more

    def told(self) -> Sequence[SourcePosition]:
        """How far the partitions are read, sorted."""
        return [position for _, position in sorted(self._positions.copy().items())]

    def read(self, partitions: Sequence[SourcePartition], offsets: Sequence[SourceOffset | None]) -> None:
        """The task has asked for these partitions' offsets, and they were answered so."""
        self.learn(dict(_answered(partitions, offsets)))

    def learn(self, positions: dict[str, SourcePosition]) -> None:
        """Source partitions, by their keys, are read so far; the ones known for longest make way."""
        latest = islice(reversed(positions.items()), MOST)
        new = {key: position for key, position in latest if _length(key, position) <= LONGEST}
        old = {key: known for key, known in reversed(self._positions.items()) if key not in positions}
        kept = list({**new, **old}.items())
        self._has_more = self._has_more or len(new) < len(positions) or len(kept) > MOST
        self._positions = dict(reversed(kept[:MOST]))


def _answered(
    partitions: Sequence[SourcePartition], offsets: Sequence[SourceOffset | None]
) -> Iterator[tuple[str, SourcePosition]]:
    for partition, offset in zip(partitions, offsets, strict=True):
        if offset is not None:
            yield partition_key(partition), SourcePosition.of(partition, offset)


def _length(key: str, position: SourcePosition) -> int:
    return len(key) + len(as_json(position.offset))
