"""Inject faults: which operation fails, and how; the manual clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from sinksdk.errors import ConnectException, RetriableException


class ManualClock:
    """A clock, in seconds, that only a test moves; sleeping moves it."""

    def __init__(self, start: float = 1_000.0) -> None:
        self._now = start

    def now(self) -> float:
        """Return monotonic seconds."""
        return self._now

    def time(self) -> float:
        """Return seconds since the epoch."""
        return 1_700_000_000.0 + self._now

    def sleep(self, seconds: float) -> None:
        """Advance the clock instead of waiting."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Advance the clock. Raises ValueError for negative seconds."""
        if seconds < 0:
            raise ValueError(f"cannot advance the clock by {seconds} seconds")
        self._now += seconds


T = TypeVar("T")

# Kinds of operations. COMMIT_LOG: writes of commits and prepared tokens. TOPICS: operations of a source
# task's writer, and reads of its offsets. TASK: calls of the task's methods.
DESTINATION: Final = "destination"
COMMIT_LOG: Final = "commit log"
ORIGIN: Final = "origin"
TOPICS: Final = "topics"
TASK: Final = "task"


class FaultKind(StrEnum):
    """How an operation fails."""

    RETRIABLE = "retriable error"
    """The operation has no effect and raises RetriableException."""
    PERMANENT = "permanent error"
    """The operation has no effect and raises ConnectException."""
    LOST_RESPONSE = "lost response"
    """The operation takes effect and raises RetriableException, as when it times out."""
    CRASH_BEFORE = "crash before"
    """The process dies before the operation takes effect."""
    CRASH_AFTER = "crash after"
    """The operation takes effect; then the process dies."""
    SLOW = "slow"
    """The operation takes :data:`SLOW_SECONDS`, longer than the runtime waits for a closing task."""


POSSIBLE: Final[Mapping[str, Sequence[FaultKind]]] = {
    DESTINATION: tuple(FaultKind),
    COMMIT_LOG: tuple(kind for kind in FaultKind if kind is not FaultKind.RETRIABLE),
    TASK: (FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER),
}

SLOW_SECONDS: Final = 120.0


class Crash(BaseException):
    """The process dies here; a BaseException, so that a sink that catches Exception does not survive it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one operation.

    Args:
        where: the kind of operations that are counted; :data:`DESTINATION` by default.
        at: how many of them succeed first.
    """

    where: str = DESTINATION
    at: int = 0
    kind: FaultKind = FaultKind.PERMANENT


class FaultPlan:
    """Decides for each operation whether it fails; each kind of operations is counted separately.

    ::

        plan = FaultPlan(Fault(at=1, kind=FaultKind.LOST_RESPONSE))
        plan.run("destination", write_first)   # succeeds
        plan.run("destination", write_second)  # takes effect and raises RetriableException

    Args:
        clock: advanced by slow operations.
    """

    def __init__(self, *faults: Fault, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.deadline: float | None = None
        """Time on the clock at which the runtime kills the process; None: never."""
        self.happened: Counter[tuple[str, FaultKind]] = Counter()
        self.operations: Counter[str] = Counter()
        self._armed: dict[tuple[str, int], FaultKind] = {}
        self.has_crashed = False
        """Every operation raises :class:`Crash` while it is set."""
        for fault in faults:
            self.arm(fault)

    def arm(self, fault: Fault) -> None:
        """Inject a fault; operations are counted from now."""
        self._armed[fault.where, self.operations[fault.where] + fault.at] = fault.kind

    def disarm(self) -> None:
        """Drop all faults that have not happened yet."""
        self._armed.clear()

    def take(self, where: str) -> FaultKind | None:
        """Count an operation and return its fault, or None.

        Use it for a destination that raises errors of its own. Raises Crash after a crash.
        """
        if self.has_crashed:
            raise Crash
        kind = self._armed.pop((where, self.operations[where]), None)
        self.operations[where] += 1
        if kind is not None:
            self.happened[where, kind] += 1
        return kind

    def crash(self) -> Crash:
        """Crash the process and return :class:`Crash` to raise; every later operation raises it, too."""
        self.has_crashed = True
        return Crash()

    def restart(self) -> None:
        """Let operations take effect again, as those of the next process."""
        self.has_crashed = False

    def run(self, where: str, effect: Callable[[], T]) -> T:
        """Run an operation with its fault, if it has one.

        Raises:
            RetriableException: the operation failed, or its response was lost.
            ConnectException: the operation failed permanently.
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
        if kind is FaultKind.LOST_RESPONSE:
            raise RetriableException(f"{where}: response lost after it took effect (injected)")
        if kind is FaultKind.SLOW:
            self.delay()
        return result

    def delay(self) -> None:
        """Advance the clock by :data:`SLOW_SECONDS`; raise Crash if this passes :attr:`deadline`."""
        self.clock.advance(SLOW_SECONDS)
        if self.deadline is not None and self.clock.now() > self.deadline:
            raise self.crash()
