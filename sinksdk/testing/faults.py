"""What goes wrong, as data: which operation fails, and how; and the time in which it does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from sinksdk.errors import ConnectException, RetriableException


class ManualClock:
    """A clock, in seconds, that stands still until it is moved; sleeping moves it."""

    def __init__(self, start: float = 1_000.0) -> None:
        self._now = start

    def now(self) -> float:
        """Seconds of no epoch, as a monotonic clock has them."""
        return self._now

    def time(self) -> float:
        """Seconds since the epoch."""
        return 1_700_000_000.0 + self._now

    def sleep(self, seconds: float) -> None:
        """Move on instead of waiting."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        if seconds < 0:
            raise ValueError(f"time does not run backwards: {seconds}")
        self._now += seconds


T = TypeVar("T")

DESTINATION: Final = "destination"
"""Operations of what the sink writes to."""
COMMIT_LOG: Final = "commit log"
"""Writes of commits and of noted tokens."""
ORIGIN: Final = "origin"
"""Operations of what a source reads from."""
TOPICS: Final = "topics"
"""Operations of a source task's writer, and reads of its offsets."""
TASK: Final = "task"
"""Calls of the task's methods."""


class FaultKind(StrEnum):
    """How an operation fails."""

    RETRIABLE = "retriable error"
    """It has no effect and raises RetriableException."""
    PERMANENT = "permanent error"
    """It has no effect and raises ConnectException."""
    LOST_ANSWER = "lost answer"
    """It takes effect and raises RetriableException, as a time-out does."""
    CRASH_BEFORE = "crash before"
    """The process dies; it has no effect."""
    CRASH_AFTER = "crash after"
    """It takes effect; then the process dies."""
    SLOW = "slow"
    """It takes :data:`SLOW_SECONDS`: longer than the runtime waits for a closing task."""


POSSIBLE: Final[Mapping[str, Sequence[FaultKind]]] = {
    DESTINATION: tuple(FaultKind),
    COMMIT_LOG: tuple(kind for kind in FaultKind if kind is not FaultKind.RETRIABLE),
    TASK: (FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER),
}
"""Which faults are possible where: a store retries its passing failures itself; a call is made or not."""

SLOW_SECONDS: Final = 120.0


class Crash(BaseException):
    """The process dies here. No Exception, so that no sink survives it by catching everything."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One operation that fails.

    Args:
        where: which operations are counted; :data:`DESTINATION` by default.
        at: how many of them succeed before it.
    """

    where: str = DESTINATION
    at: int = 0
    kind: FaultKind = FaultKind.PERMANENT


class FaultPlan:
    """Decides for each operation whether it fails. Operations are counted separately for each place.

    ::

        plan = FaultPlan(Fault(at=1, kind=FaultKind.LOST_ANSWER))
        plan.run("destination", write_first)   # goes well
        plan.run("destination", write_second)  # takes effect and raises RetriableException

    Args:
        clock: advanced by slow operations.
    """

    def __init__(self, *faults: Fault, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        """Only slow operations and the test advance it."""
        self.deadline: float | None = None
        """Time on the clock at which the runtime kills the process; None: never."""
        self.happened: Counter[tuple[str, FaultKind]] = Counter()
        """Faults that were met, by place and kind."""
        self.asked: Counter[str] = Counter()
        """Operations so far, by place."""
        self._armed: dict[tuple[str, int], FaultKind] = {}
        self.is_dying = False
        """Whether the process is dying: whatever it still tries has no effect."""
        for fault in faults:
            self.arm(fault)

    def arm(self, fault: Fault) -> None:
        """Let an operation go wrong, counted from now."""
        self._armed[fault.where, self.asked[fault.where] + fault.at] = fault.kind

    def disarm(self) -> None:
        """From now on everything goes well."""
        self._armed.clear()

    def take(self, where: str) -> FaultKind | None:
        """How the operation that is about to be done goes wrong, None when it goes well.

        For destinations that make errors of their own of it; all others call :meth:`run`.
        """
        if self.is_dying:
            raise Crash
        kind = self._armed.pop((where, self.asked[where]), None)
        self.asked[where] += 1
        if kind is not None:
            self.happened[where, kind] += 1
        return kind

    def crash(self) -> Crash:
        """From now on the process is dying. Raise what this returns."""
        self.is_dying = True
        return Crash()

    def bury(self) -> None:
        """The process that was dying is gone; operations are those of others again."""
        self.is_dying = False

    def run(self, where: str, effect: Callable[[], T]) -> T:
        """Do an operation, and whatever goes wrong with it.

        Raises:
            RetriableException: it failed, or its answer was lost.
            ConnectException: it failed for good.
            Crash: the process dies.
        """
        kind = self.take(where)
        if kind is FaultKind.CRASH_BEFORE:
            raise self.crash()
        if kind is FaultKind.RETRIABLE:
            raise RetriableException(f"{where}: busy (injected)")
        if kind is FaultKind.PERMANENT:
            raise ConnectException(f"{where}: refused (injected)")
        result = effect()
        if kind is FaultKind.CRASH_AFTER:
            raise self.crash()
        if kind is FaultKind.LOST_ANSWER:
            raise RetriableException(f"{where}: no answer, and it took effect (injected)")
        if kind is FaultKind.SLOW:
            self.be_slow()
        return result

    def be_slow(self) -> None:
        """Time passes; a process that is still closing when its deadline has passed is killed."""
        self.clock.advance(SLOW_SECONDS)
        if self.deadline is not None and self.clock.now() > self.deadline:
            raise self.crash()
