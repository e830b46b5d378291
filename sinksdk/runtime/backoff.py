"""Back-off, and waits for unavailable systems: S3, Kafka, the store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from sinksdk.engine.clock import Clock, WallClock
from sinksdk.errors import RetriableException
from sinksdk.model.status import Waiting
from sinksdk.offsets import TopicPartition
from sinksdk.settings.job import PaceSettings
from sinksdk.store import StoreUnavailable
from sinksdk.support.confidential import SECRETS
from sinksdk.support.delays import DISCARD, RESTART, SYSTEM, Delays, jitter
from sinksdk.support.logs import Outage

# Seconds between attempts at an operation that costs nothing while it waits.
LONGEST: Final = RESTART.cap


class Backoff:
    """Back-off of one connector's partitions; times are in seconds, ``jitter`` is a factor of each delay."""

    def __init__(
        self,
        backoff: float,
        clock: Clock,
        *,
        longest: float = LONGEST,
        jitter: Callable[[], float] = jitter,
    ) -> None:
        self._delays = Delays(backoff, max(longest, backoff))
        self._clock = clock
        self._jitter = jitter
        self._open_at: dict[TopicPartition, float] = {}
        self._discards: dict[TopicPartition, tuple[int, float]] = {}

    @classmethod
    def of_restarts(cls, config: PaceSettings, clock: Clock, jitter: Callable[[], float]) -> Backoff:
        first, longest = config.restart_backoff_ms / 1000, config.restart_backoff_max_ms / 1000
        return cls(first, clock, longest=longest, jitter=jitter)

    def reset(self, partition: TopicPartition) -> None:
        self._open_at.pop(partition, None)

    def reset_all(self) -> None:
        self._open_at.clear()
        self._discards.clear()

    def waits(self, partition: TopicPartition, seconds: float) -> None:
        self._open_at[partition] = self._clock.now() + seconds

    def failed(self, partition: TopicPartition, failures: int) -> float:
        delay = self.delay(failures)
        self.waits(partition, delay)
        return delay

    def delay(self, failures: int) -> float:
        return self._delays.after(failures) * self._jitter()

    def waiting(self, partition: TopicPartition) -> float:
        return max(self._open_at.get(partition, 0.0) - self._clock.now(), 0.0)

    def is_waiting(self, partition: TopicPartition) -> bool:
        return self.waiting(partition) > 0

    def delays(self) -> list[float]:
        return [left for partition in self._open_at if (left := self.waiting(partition)) > 0]

    def tried_to_discard(
        self, partitions: Iterable[TopicPartition], stale: Collection[TopicPartition]
    ) -> None:
        # The delay grows for partitions that still have tokens.
        for partition in set(partitions):
            if partition not in stale:
                self._discards.pop(partition, None)
                continue
            tries = self.discards(partition) + 1
            delays = replace(DISCARD, first=2 * self._delays.first)
            self._discards[partition] = (tries, self._clock.now() + delays.after(tries))

    def discards(self, partition: TopicPartition) -> int:
        """Return how often in a row not everything could be discarded."""
        return self._discards.get(partition, (0, 0.0))[0]

    def discard_now(self) -> None:
        # The count of attempts is kept, so that the wait after another failure is longer.
        self._discards = {partition: (tries, 0.0) for partition, (tries, _) in self._discards.items()}

    def may_discard(self, partition: TopicPartition) -> bool:
        return self._clock.now() >= self._discards.get(partition, (0, 0.0))[1]


log = logging.getLogger(__name__)

# Transient errors, which need no operator: no response, or one that asks for a delay.
PASSING: Final = (RetriableException, StoreUnavailable)


class Waits:
    """Delays while required systems are unavailable, which are shown after ``after`` seconds."""

    def __init__(
        self, who: str, clock: WallClock, backoff: Backoff | None = None, *, after: float = 0.0
    ) -> None:
        self._who = who
        self._clock = clock
        self._after = after
        self._backoff = backoff or Backoff(SYSTEM.first, clock, longest=SYSTEM.cap)
        self._outage = Outage(log, f"{who}: the unavailable system", after=after, clock=clock.now)
        self._failures = 0
        self._since = 0.0
        # Whether a wait has ended, or none was needed, since a caller set this to False.
        self.has_ended = False

    def failed(self, error: Exception, *, since: float | None = None) -> tuple[float, Waiting | None]:
        """Return the seconds until the next attempt, and the wait to show, if any."""
        self.has_ended = False
        now = self._clock.now()
        if self._outage.since is None:
            self._failures = 0
            self._since = self._clock.time() - (now - since if since is not None else 0.0)
        # Delays do not grow until the wait is shown.
        is_shown = self._clock.time() - self._since >= self._after
        self._failures += is_shown
        delay = self._backoff.delay(max(self._failures, 1))
        self._outage.failed(
            "%s waits for an unavailable system, retrying in %.1f s: %s",
            self._who,
            delay,
            error,
            since=since,
        )
        if not is_shown:
            return delay, None
        return delay, Waiting(
            reason=SECRETS.hide(str(error)),
            since=self._since,
            next_attempt=self._clock.time() + delay,
            attempts=self._failures,
        )

    def over(self) -> None:
        self.has_ended = True
        self._outage.worked()


def in_words(waiting: Waiting) -> str:
    tries = "once" if waiting.attempts == 1 else f"{waiting.attempts} times"
    since, then = _hour(waiting.since), _hour(waiting.next_attempt)
    return f"since {since}, tried {tries}, next at {then}: {waiting.reason}"


def _hour(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", " UTC")
