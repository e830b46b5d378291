"""How many records may fail before it is no longer the records: an outage must not drain a topic.

Records are judged one by one, in the order of their offsets, wherever batches begin and end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sinksdk.errors import ConnectException
from sinksdk.records import TopicPartition

_LEAST = 100  # records: a share of fewer says little

CONSECUTIVE_KEY = "errors.deadletterqueue.max.consecutive"
SHARE_KEY = "errors.deadletterqueue.max.share"


class TooManyErrorsException(ConnectException):
    """More of a partition's records failed than may; what was not committed yet is read again."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """How many records of one partition may fail in one generation.

    Args:
        max_consecutive: most in a row; None for any number.
        max_share: largest share of all, looked at from the 100th record on; 1 for any.
    """

    max_consecutive: int | None = 1_000
    max_share: float = 0.5

    def excess(self, *, in_a_row: int, failed: int, of: int) -> str | None:
        """What is exceeded, if anything, with the key that limits it."""
        if self.max_consecutive is not None and in_a_row > self.max_consecutive:
            return f"{in_a_row:,} in a row, and {CONSECUTIVE_KEY} allows {self.max_consecutive:,}"
        if of >= _LEAST and failed > self.max_share * of:
            return f"a larger share than the {self.max_share:g} that {SHARE_KEY} allows"
        return None


class Tally:
    """Failed records of one partition since it was opened.

    Args:
        partition: whose, for messages.
        ceiling: what it must not exceed.
    """

    def __init__(self, partition: TopicPartition, ceiling: Ceiling) -> None:
        self._partition = partition
        self._ceiling = ceiling
        self._offsets: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._before = 0
        self._seen = 0
        self._failed = 0
        self._first = ""
        self._counted: set[int] = set()
        self._runs: dict[int, int] = {}

    def begin(self, offsets: npt.NDArray[np.int64]) -> None:
        """The next batch, by its offsets: all records before it have been judged."""
        last = self._before + len(self._offsets)
        self._before = self._seen = last
        self._offsets = offsets
        self._counted = {last} & self._counted
        self._runs = {last: self._runs[last]} if last in self._counted else {}

    def failed(self, offset: int, cause: str) -> TooManyErrorsException | None:
        """Count a record that failed; one that is reported twice counts once.

        Args:
            offset: the record's.
            cause: where and why, in words.

        Returns:
            What its partition must fail with; None while the ceiling is not exceeded.
        """
        place = self._place(offset)
        if place in self._counted:
            return None
        self._failed += 1
        self._first = self._first or f"offset {offset}: {cause}"
        in_a_row = 1 if place is None else self._join(place)
        excess = self._ceiling.excess(in_a_row=in_a_row, failed=self._failed, of=self._seen)
        if excess is None:
            return None
        return TooManyErrorsException(
            f"{self._failed:,} of {self._seen:,} records of {self._partition} failed in this generation: "
            f"{excess}. The first was at {self._first}; the last at offset {offset}: {cause}. Nothing after "
            f"the partition's last commit is committed, so these records are read again: mend what they "
            f"fail of, or allow more of them to fail if they are bad indeed"
        )

    def _place(self, offset: int) -> int | None:
        """How many records there were up to this one; None for one of an earlier batch, reported late."""
        row = int(np.searchsorted(self._offsets, offset))
        if row == len(self._offsets) or self._offsets[row] != offset:
            return None
        place = self._before + row + 1
        self._seen = max(self._seen, place)
        return place

    def _join(self, place: int) -> int:
        """Length of the run of failed records that this one now belongs to."""
        self._counted.add(place)
        left, right = self._runs.get(place - 1, 0), self._runs.get(place + 1, 0)
        length = left + 1 + right
        self._runs[place] = self._runs[place - left] = self._runs[place + right] = length
        return length


class Tallies:
    """Failed records of every partition that is open.

    Args:
        ceiling: what each must not exceed.
    """

    def __init__(self, ceiling: Ceiling) -> None:
        self._ceiling = ceiling
        self._of: dict[TopicPartition, Tally] = {}

    def begin(self, partition: TopicPartition, offsets: npt.NDArray[np.int64]) -> None:
        """A partition's next batch, by its offsets."""
        self._of.setdefault(partition, Tally(partition, self._ceiling)).begin(offsets)

    def failed(self, partition: TopicPartition, offset: int, cause: str) -> TooManyErrorsException | None:
        """See :meth:`Tally.failed`; a partition that is not read here any more is not counted."""
        tally = self._of.get(partition)
        return tally.failed(offset, cause) if tally else None

    def forget(self, partition: TopicPartition) -> None:
        """The partition is not ours any more."""
        self._of.pop(partition, None)
