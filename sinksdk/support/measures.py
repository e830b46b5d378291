"""What a task measures of itself: the same numbers from the engine through the store to whoever asks.

Times are in seconds. Numbers of two generations are added with ``+``, the older one first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

Number = TypeVar("Number", int, float)


class Phase(StrEnum):
    """What a task spends its time with, besides waiting for records."""

    FENCE = "fence"
    """Of a source: taking over the transactional id of the tasks before."""
    NOTICE = "notice"
    """Closing was asked for, and not seen yet: the task had not looked, or was in the middle of a call."""
    START = "start"
    """``initialize`` and ``start``."""
    POLL = "poll"
    """Of a source: ``poll``, also while it waits for something to be there."""
    OPEN = "open"
    """``open``."""
    CONVERT = "convert"
    """The converters."""
    PUT = "put"
    """``put``, whether it returns or raises."""
    VOUCH = "vouch"
    """Asking Kafka, before a commit, whether topics are still the ones that were planned."""
    REPORT = "report"
    """Waiting, before a commit, for dead letters to be durable."""
    PRE_COMMIT = "pre_commit"
    """``pre_commit``."""
    COMMIT = "commit"
    """Writing offsets to the store; of a source: committing a transaction."""
    TELL = "tell"
    """Of a source: ``commit_record`` and ``commit``."""
    PUBLISH = "publish"
    """``publish``, and the waits between its attempts."""
    DISCARD = "discard"
    """``discard``."""
    CLOSE = "close"
    """``close``."""
    STOP = "stop"
    """``stop``."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Calls of one kind.

    Args:
        count: how many.
        seconds: what they took together.
        longest: what the longest of them took.
    """

    count: int = 0
    seconds: float = 0.0
    longest: float = 0.0

    def and_one(self, seconds: float) -> Timing:
        """With one more call."""
        return self + Timing(1, seconds, seconds)

    def __add__(self, other: Timing) -> Timing:
        return Timing(
            self.count + other.count, self.seconds + other.seconds, max(self.longest, other.longest)
        )

    @property
    def mean(self) -> float | None:
        """What a call took on average; None before the first."""
        return self.seconds / self.count if self.count else None


@dataclass(frozen=True, slots=True)
class Level:
    """A number that goes up and down.

    Args:
        now: what it is.
        largest: the most it was, whenever it was looked at.
        total: everything it was then, added up.
        looks: how often it was looked at.
    """

    now: int = 0
    largest: int = 0
    total: int = 0
    looks: int = 0

    def seen_at(self, number: int) -> Level:
        """After one more look."""
        return Level(number, max(self.largest, number), self.total + number, self.looks + 1)

    def __add__(self, later: Level) -> Level:
        return Level(
            later.now, max(self.largest, later.largest), self.total + later.total, self.looks + later.looks
        )

    @property
    def mean(self) -> float | None:
        """What it was on average; None before the first look."""
        return self.total / self.looks if self.looks else None


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large things of one kind were.

    Args:
        count: how many there were.
        total: their sizes together.
        largest: the largest of them.
        smallest: the smallest of them; 0 before the first.
    """

    count: int = 0
    total: int = 0
    largest: int = 0
    smallest: int = 0

    def and_one(self, size: int) -> Sizes:
        """With one more thing."""
        return self + Sizes(1, size, size, size)

    def __add__(self, other: Sizes) -> Sizes:
        return Sizes(
            self.count + other.count,
            self.total + other.total,
            max(self.largest, other.largest),
            min((sizes.smallest for sizes in (self, other) if sizes.count), default=0),
        )

    @property
    def mean(self) -> float | None:
        """What one was on average; None before the first."""
        return self.total / self.count if self.count else None


@dataclass(frozen=True, slots=True)
class ErrorCounts:
    """Connect's task-error-metrics.

    Args:
        record_failures: reported records, and attempts at a batch that raised; of a source, attempts at
            polling and writing that did.
        record_errors: partitions that ended by a failure: of a record, a batch, a commit, or publishing; of
            a source, tasks that did.
        records_skipped: reported records that were tolerated.
        retries: attempts made again, at a batch or at publishing; of a source, at polling and writing.
        errors_logged: reported records that were logged.
        dead_letters: records given to the dead letters.
        dead_letter_failures: those of them that could not be written.
        last: when something failed the last time, in seconds since the epoch; None if nothing has.
    """

    record_failures: int = 0
    record_errors: int = 0
    records_skipped: int = 0
    retries: int = 0
    errors_logged: int = 0
    dead_letters: int = 0
    dead_letter_failures: int = 0
    last: float | None = None

    def __add__(self, later: ErrorCounts) -> ErrorCounts:
        return ErrorCounts(
            self.record_failures + later.record_failures,
            self.record_errors + later.record_errors,
            self.records_skipped + later.records_skipped,
            self.retries + later.retries,
            self.errors_logged + later.errors_logged,
            self.dead_letters + later.dead_letters,
            self.dead_letter_failures + later.dead_letter_failures,
            self.last if later.last is None else later.last,
        )


@dataclass(frozen=True, slots=True)
class SourceMeasures:
    """What only a source's task does.

    Args:
        polls: calls of ``poll`` that returned records.
        records: how many they returned.
        transactions: those that were committed, by their records.
        aborts: transactions that were aborted because the task asked for it.
    """

    polls: Timing = Timing()
    records: int = 0
    transactions: Sizes = Sizes()
    aborts: int = 0

    def __add__(self, later: SourceMeasures) -> SourceMeasures:
        return SourceMeasures(
            self.polls + later.polls,
            self.records + later.records,
            self.transactions + later.transactions,
            self.aborts + later.aborts,
        )


@dataclass(frozen=True, slots=True)
class TaskMeasures:
    """One task's numbers, of one generation or of all so far.

    Args:
        puts: calls of ``put`` that returned.
        largest_batch: most records that one of them was given; of a source, that ``poll`` returned.
        records_read: records that were read for it, and had not been committed before.
        records_sent: records that ``put`` took: what was read, without what could not be converted.
        active: records that were read, or polled, and are not committed; looked at whenever a batch came.
        commits: attempts at a commit that did not fail, from ``pre_commit`` until the store had it; the sink
            may have had nothing to commit. Of a source, commits of transactions.
        commit_failures: attempts that failed: ``pre_commit`` raised, or the store; of a source, the writer.
        commit_writes: commits that were written to the store.
        errors: what went wrong.
        seconds: time by :class:`Phase`.
        closings: how often closing was asked for from outside.
        closing_seconds: the part of ``seconds`` that these took.
        source: what a source's task does besides.
    """

    puts: Timing = Timing()
    largest_batch: int = 0
    records_read: int = 0
    records_sent: int = 0
    active: Level = Level()
    commits: Timing = Timing()
    commit_failures: int = 0
    commit_writes: int = 0
    errors: ErrorCounts = ErrorCounts()
    seconds: Mapping[str, float] = field(default_factory=dict)
    closings: int = 0
    closing_seconds: Mapping[str, float] = field(default_factory=dict)
    source: SourceMeasures = SourceMeasures()

    def __add__(self, later: TaskMeasures) -> TaskMeasures:
        return TaskMeasures(
            self.puts + later.puts,
            max(self.largest_batch, later.largest_batch),
            self.records_read + later.records_read,
            self.records_sent + later.records_sent,
            self.active + later.active,
            self.commits + later.commits,
            self.commit_failures + later.commit_failures,
            self.commit_writes + later.commit_writes,
            self.errors + later.errors,
            added(self.seconds, later.seconds),
            self.closings + later.closings,
            added(self.closing_seconds, later.closing_seconds),
            self.source + later.source,
        )


def added(one: Mapping[str, Number], other: Mapping[str, Number]) -> dict[str, Number]:
    """Two sets of named numbers, added name by name."""
    return {name: one.get(name, 0) + other.get(name, 0) for name in dict.fromkeys([*one, *other])}
