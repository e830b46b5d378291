"""A task's measurements: the same numbers in the engine, the store, the metrics and REST.

Times are in seconds. ``+`` adds the numbers of two generations, the older one first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final, TypeVar

Number = TypeVar("Number", int, float)
M = TypeVar("M", "ErrorCounts", "SourceMeasures", "TaskMeasures")


LOST: Final = "sinksdk.lost_offsets"
"""Count of offsets after a partition's commit that the source no longer had (``on.data.loss=skip``)."""

WITHDRAWN: Final = "sinksdk.withdrawn_commits"
"""Count of a partition's commits that were withdrawn. No keyword of ``context.count`` can equal it."""

OWN_COUNTS: Final = frozenset({LOST, WITHDRAWN})
"""Counts of the engine and the driver; all others are the connector's own."""


class Phase(StrEnum):
    """Phases of a task's time, besides waiting for records."""

    FENCE = "fence"
    """Of a source: fencing the transactional id of earlier tasks."""
    CLOSE_LATENCY = "close_latency"
    """A close request is stored and the task has not seen it: it had not checked, or was in a call."""
    START = "start"
    """``initialize`` and ``start``."""
    POLL = "poll"
    """Of a source: ``poll``, including its wait for records."""
    OPEN = "open"
    """``open``."""
    CONVERT = "convert"
    """The converters."""
    PUT = "put"
    """``put``, whether it returns or raises."""
    CHECK_TOPIC_IDS = "check_topic_ids"
    """Checking with Kafka, before a commit, that topics still have the planned ids."""
    REPORT = "report"
    """Waiting, before a commit, for dead letters to be durable."""
    PRE_COMMIT = "pre_commit"
    """``pre_commit``."""
    COMMIT = "commit"
    """Writing offsets to the store; of a source: committing a transaction."""
    COMMIT_CALLBACK = "commit_callback"
    """Of a source: ``commit_record`` and ``commit``."""
    PUBLISH = "publish"
    """``publish``, and the delays between its attempts."""
    DISCARD = "discard"
    """``discard``."""
    CLOSE = "close"
    """``close``."""
    STOP = "stop"
    """``stop``."""


@dataclass(frozen=True, slots=True)
class Timing:
    count: int = 0
    seconds: float = 0.0
    longest: float = 0.0

    def and_one(self, seconds: float) -> Timing:
        return self + Timing(1, seconds, seconds)

    def __add__(self, other: Timing) -> Timing:
        return Timing(
            self.count + other.count, self.seconds + other.seconds, max(self.longest, other.longest)
        )

    @property
    def mean(self) -> float | None:
        return self.seconds / self.count if self.count else None


@dataclass(frozen=True, slots=True)
class Level:
    """A number that goes up and down.

    Args:
        now: its last value.
        largest: the largest sample.
        total: the sum of all samples.
        looks: the number of samples.
    """

    now: int = 0
    largest: int = 0
    total: int = 0
    looks: int = 0

    def seen_at(self, number: int) -> Level:
        return Level(number, max(self.largest, number), self.total + number, self.looks + 1)

    def __add__(self, later: Level) -> Level:
        return Level(
            later.now, max(self.largest, later.largest), self.total + later.total, self.looks + later.looks
        )

    @property
    def mean(self) -> float | None:
        return self.total / self.looks if self.looks else None


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of things of one kind.

    Args:
        total: the sum of their sizes.
        smallest: 0 if there are none.
    """

    count: int = 0
    total: int = 0
    largest: int = 0
    smallest: int = 0

    def and_one(self, size: int) -> Sizes:
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
        return self.total / self.count if self.count else None


@dataclass(frozen=True, slots=True)
class ErrorCounts:
    """Connect's task-error-metrics.

    Args:
        record_failures: reported records, and attempts at a batch that raised; for a source, attempts at
            polling and writing that raised.
        record_errors: partitions that ended with a failure of a record, a batch, a commit, or publishing;
            for a source, tasks.
        records_skipped: reported records that were tolerated.
        retries: retries of a batch or of publishing; for a source, of polling and writing.
        errors_logged: reported records that were logged.
        dead_letters: records passed to the dead letters.
        dead_letter_failures: those of them that could not be written.
        last: time of the last failure, in seconds since the epoch; None if there was none.
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
        return _summed(self, later, last=self.last if later.last is None else later.last)


@dataclass(frozen=True, slots=True)
class SourceMeasures:
    """Measurements that only a source's task has.

    Args:
        polls: calls of ``poll`` that returned records.
        transactions: committed transactions, by their number of records.
        aborts: transactions aborted at the task's request.
    """

    polls: Timing = Timing()
    records: int = 0
    transactions: Sizes = Sizes()
    aborts: int = 0

    def __add__(self, later: SourceMeasures) -> SourceMeasures:
        return _summed(self, later)


@dataclass(frozen=True, slots=True)
class TaskMeasures:
    """One task's numbers, of one generation or of all so far.

    Args:
        puts: calls of ``put`` that returned.
        largest_batch: most records of one ``put``; for a source, of one ``poll``.
        records_read: records read, without those that had been committed before.
        records_sent: records that ``put`` accepted: those read, without those that could not be converted.
        active: records read or polled and not committed; sampled at each batch.
        commits: attempts at a commit that did not fail, from ``pre_commit`` until the store had written it,
            even without offsets. For a source, commits of transactions.
        commit_failures: attempts that failed in ``pre_commit`` or the store; for a source, in the writer.
        commit_writes: commits that were written to the store.
        seconds: time by :class:`Phase`.
        closings: number of close requests.
        closing_seconds: the part of ``seconds`` spent on them.
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
        return _summed(
            self,
            later,
            largest_batch=max(self.largest_batch, later.largest_batch),
            seconds=added(self.seconds, later.seconds),
            closing_seconds=added(self.closing_seconds, later.closing_seconds),
        )


def added(one: Mapping[str, Number], other: Mapping[str, Number]) -> dict[str, Number]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in dict.fromkeys([*one, *other])}


def _summed(one: M, other: M, **others: Any) -> M:
    names = (each.name for each in fields(one) if each.name not in others)
    return type(one)(**{name: getattr(one, name) + getattr(other, name) for name in names}, **others)
