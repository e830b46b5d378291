"""How far a source is read as far as its task knows: for whoever watches, and bounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from sinksdk.source.positions import SourcePosition, as_json, partition_key
from sinksdk.source.records import SourceOffset, SourcePartition

MOST: Final = 50
"""Source partitions that are told of: those that something was committed of last."""

LONGEST: Final = 1_000
"""Characters that a source partition has with its offset, both as JSON; what is longer is not told of."""


class Known(NamedTuple):
    """How far a source partition is read.

    Args:
        position: partition and offset.
        is_committed: whether the task has committed it itself. Otherwise it has asked for it: others may
            have done so, too, and one of them have got further since.
    """

    position: SourcePosition
    is_committed: bool


class KnownPositions:
    """What a task has asked for, and what it has committed. A source may have any number of partitions.

    One thread writes at a time; any may read.
    """

    def __init__(self) -> None:
        self._known: dict[str, Known] = {}
        self._has_more = False

    @property
    def has_more(self) -> bool:
        """Whether there are others that are not told of."""
        return self._has_more

    def told(self) -> Sequence[Known]:
        """What there is to tell, sorted by source partitions."""
        return [known for _, known in sorted(self._known.copy().items())]

    def read(self, partitions: Sequence[SourcePartition], offsets: Sequence[SourceOffset | None]) -> None:
        """The task has asked for these partitions' offsets, and they were answered so."""
        answered = {key: Known(at, is_committed=False) for key, at in _answered(partitions, offsets)}
        committed = {key for key, known in self._known.items() if known.is_committed}
        self._learn({key: known for key, known in answered.items() if key not in committed})

    def committed(self, positions: Mapping[str, SourcePosition]) -> None:
        """Source partitions, by their keys, are read so far; the ones known for longest make way."""
        self._learn({key: Known(position, is_committed=True) for key, position in positions.items()})

    def _learn(self, news: dict[str, Known]) -> None:
        latest = islice(reversed(news.items()), MOST)
        new = {key: known for key, known in latest if _length(key, known.position) <= LONGEST}
        old = {key: known for key, known in reversed(self._known.items()) if key not in news}
        kept = list({**new, **old}.items())
        self._has_more = self._has_more or len(new) < len(news) or len(kept) > MOST
        self._known = dict(reversed(kept[:MOST]))


def _answered(
    partitions: Sequence[SourcePartition], offsets: Sequence[SourceOffset | None]
) -> Iterator[tuple[str, SourcePosition]]:
    for partition, offset in zip(partitions, offsets, strict=True):
        if offset is not None:
            yield partition_key(partition), SourcePosition.of(partition, offset)


def _length(key: str, position: SourcePosition) -> int:
    return len(key) + len(as_json(position.offset))
