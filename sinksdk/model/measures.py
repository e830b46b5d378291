"""The engine, the store, the metrics and REST share these measurements. Times are in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final, TypeVar

Number = TypeVar("Number", int, float)
M = TypeVar("M", "ErrorCounts", "SourceMeasures", "TaskMeasures")


# Offsets that the source no longer had (``on.data.loss=skip``).
LOST: Final = "sinksdk.lost_offsets"

# The dots keep these names apart from keywords of ``context.count``.
WITHDRAWN: Final = "sinksdk.withdrawn_commits"

OWN_COUNTS: Final = frozenset({LOST, WITHDRAWN})


class Phase(StrEnum):
    FENCE = "fence"
    """Of a source: fencing the transactional id of earlier tasks."""
    CLOSE_LATENCY = "close_latency"
    """Time until the task notices a stored close request: it checks at intervals, and not during a call."""
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
    now: int = 0
    largest: int = 0
    total: int = 0
    looks: int = 0  # samples

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
    count: int = 0
    total: int = 0
    largest: int = 0
    smallest: int = 0  # 0 also if there are no sizes

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
    """The engine counts errors as Connect's task-error-metrics do."""

    record_failures: int = 0  # reported records, and attempts that raised
    record_errors: int = 0  # failed partitions; for a source, tasks
    records_skipped: int = 0
    retries: int = 0
    errors_logged: int = 0
    dead_letters: int = 0
    dead_letter_failures: int = 0
    last: float | None = None  # seconds since the epoch

    def __add__(self, later: ErrorCounts) -> ErrorCounts:
        return _summed(self, later, last=self.last if later.last is None else later.last)


@dataclass(frozen=True, slots=True)
class SourceMeasures:
    polls: Timing = Timing()  # calls that returned records
    records: int = 0
    transactions: Sizes = Sizes()  # sizes in records
    aborts: int = 0  # aborts that the task requested

    def __add__(self, later: SourceMeasures) -> SourceMeasures:
        return _summed(self, later)


@dataclass(frozen=True, slots=True)
class TaskMeasures:
    puts: Timing = Timing()  # calls that returned
    largest_batch: int = 0  # records of the largest batch of ``put``; for a source, of ``poll``
    records_read: int = 0  # records that the source delivered, without those committed before
    records_sent: int = 0  # accepted by ``put``
    active: Level = Level()  # uncommitted records, sampled at each batch
    commits: Timing = Timing()  # from ``pre_commit`` to the end of the write, even without offsets
    commit_failures: int = 0
    commit_writes: int = 0
    errors: ErrorCounts = ErrorCounts()
    seconds: Mapping[str, float] = field(default_factory=dict)  # seconds by phase
    closings: int = 0  # close requests
    # The part of ``seconds`` that fell into a closing.
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
