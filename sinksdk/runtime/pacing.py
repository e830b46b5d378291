"""When a partition may be opened again after something went wrong with it. Clock handed in."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from sinksdk.engine.clock import Clock
from sinksdk.job_settings import PaceSettings
from sinksdk.records import TopicPartition

_LONGEST = 60.0  # seconds between two attempts at what has not worked and costs nothing while it waits
_LONGEST_DISCARD = 3600.0  # seconds between two attempts at what takes up storage while it waits
_MOST_DOUBLINGS = 30


def random_jitter() -> float:
    """A fifth more or less, as Kafka's clients wait (KIP-580): what failed together returns one by one."""
    return random.uniform(0.8, 1.2)  # noqa: S311 - no secret


class Pacing:
    """Waiting times of one connector's partitions.

    Args:
        backoff: seconds before the first new attempt; doubled with each.
        clock: time.
        longest: seconds that an attempt waits at most.
        jitter: what each time is multiplied by.
    """

    def __init__(
        self,
        backoff: float,
        clock: Clock,
        *,
        longest: float = _LONGEST,
        jitter: Callable[[], float] = random_jitter,
    ) -> None:
        self._backoff = backoff
        self._clock = clock
        self._longest = max(longest, backoff)
        self._jitter = jitter
        self._open_at: dict[TopicPartition, float] = {}
        self._discards: dict[TopicPartition, tuple[int, float]] = {}

    @classmethod
    def of_restarts(cls, config: PaceSettings, clock: Clock, jitter: Callable[[], float]) -> Pacing:
        """As ``restart.backoff.ms`` and ``restart.backoff.max.ms`` say."""
        first, longest = config.restart_backoff_ms / 1000, config.restart_backoff_max_ms / 1000
        return cls(first, clock, longest=longest, jitter=jitter)

    def forget(self, partition: TopicPartition) -> None:
        """It did well: it may be opened at any time."""
        self._open_at.pop(partition, None)

    def forget_all(self) -> None:
        """Everything may be opened, and discarded, at any time."""
        self._open_at.clear()
        self._discards.clear()

    def waits(self, partition: TopicPartition, seconds: float) -> None:
        """It is tried again after so many seconds."""
        self._open_at[partition] = self._clock.now() + seconds

    def failed(self, partition: TopicPartition, failures: int) -> None:
        """It failed, so many times."""
        self._open_at[partition] = self._clock.now() + self.delay(failures)

    def delay(self, failures: int) -> float:
        """Seconds until the attempt that follows so many failures."""
        grown: float = self._backoff * 2 ** min(failures - 1, _MOST_DOUBLINGS)
        return min(grown, self._longest) * self._jitter()

    def refused(self, partition: TopicPartition) -> None:
        """Its task kept something back that it should not have."""
        self._open_at[partition] = self._clock.now() + _LONGEST

    def is_waiting(self, partition: TopicPartition) -> bool:
        """Whether it shall not be opened yet."""
        return self._open_at.get(partition, 0.0) > self._clock.now()

    def waiting(self, partition: TopicPartition) -> float:
        """Seconds until it may be opened."""
        return max(self._open_at.get(partition, 0.0) - self._clock.now(), 0.0)

    def delays(self) -> list[float]:
        """Seconds until each partition that waits may be opened."""
        now = self._clock.now()
        return [at - now for at in self._open_at.values() if at > now]

    def discarded(self, partitions: Iterable[TopicPartition], stale: Iterable[TopicPartition]) -> None:
        """A generation had these partitions, and those of ``stale`` still have something to discard.

        It is tried again, but not at once and not ever faster.
        """
        left = set(stale)
        for partition in set(partitions):
            if partition not in left:
                self._discards.pop(partition, None)
                continue
            tries = self._discards.get(partition, (0, 0.0))[0] + 1
            delay = min(self._backoff * 2 ** min(tries, _MOST_DOUBLINGS), _LONGEST_DISCARD)
            self._discards[partition] = (tries, self._clock.now() + delay)

    def discards(self, partition: TopicPartition) -> int:
        """How often in a row not everything could be discarded."""
        return self._discards.get(partition, (0, 0.0))[0]

    def discard_now(self) -> None:
        """Discarding may be tried again at once; if it fails again, the next wait is longer all the same."""
        self._discards = {partition: (tries, 0.0) for partition, (tries, _) in self._discards.items()}

    def may_discard(self, partition: TopicPartition) -> bool:
        """Whether discarding may be tried again."""
        _, not_before = self._discards.get(partition, (0, 0.0))
        return self._clock.now() >= not_before
