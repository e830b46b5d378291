"""Waiting for what is away and comes back by itself: S3, Kafka, the store. Who waits says so."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from sinksdk.confidential import SECRETS
from sinksdk.engine.clock import WallClock
from sinksdk.errors import RetriableException
from sinksdk.job_settings import PaceSettings
from sinksdk.logs import Outage
from sinksdk.runtime.pacing import Pacing, random_jitter
from sinksdk.store import StoreUnavailable
from sinksdk.store.reports import Waiting

log = logging.getLogger(__name__)

PASSING: Final = (RetriableException, StoreUnavailable)
"""What passes by itself: no answer, an answer that asks for patience. Nobody need do anything about it."""


class Waits:
    """How long is waited for one thing after the other that is away.

    Args:
        who: waits, for log lines.
        clock: time.
        first: seconds until the second attempt; doubled with each.
        longest: seconds between two attempts at most.
        after: seconds that something must be away for until it is told: until then there is no delay but the
            first.
        jitter: what each delay is multiplied by.
    """

    def __init__(
        self,
        who: str,
        clock: WallClock,
        *,
        first: float = 1.0,
        longest: float = 60.0,
        after: float = 0.0,
        jitter: Callable[[], float] = random_jitter,
    ) -> None:
        self._who = who
        self._clock = clock
        self._after = after
        self._pacing = Pacing(first, clock, longest=longest, jitter=jitter)
        self._outage = Outage(log, f"{who}: what was away", after=after, clock=clock.now)
        self._failures = 0
        self._since = 0.0
        self.has_ended = False
        """Whether the wait is over, or there was none, since this was last set to False."""

    @classmethod
    def of_restarts(
        cls, who: str, config: PaceSettings, clock: WallClock, jitter: Callable[[], float]
    ) -> Waits:
        """As ``restart.backoff.ms`` and ``restart.backoff.max.ms`` say."""
        first, longest = config.restart_backoff_ms / 1000, config.restart_backoff_max_ms / 1000
        return cls(who, clock, first=first, longest=longest, jitter=jitter)

    def failed(self, error: Exception, *, since: float | None = None) -> tuple[float, Waiting | None]:
        """One more attempt has failed.

        Args:
            error: how.
            since: when the first attempt was begun, on the clock; by default now.

        Returns:
            Seconds until the next one; and what is waited for, unless that is not told yet.
        """
        self.has_ended = False
        now = self._clock.now()
        if self._outage.since is None:
            self._failures = 0
            self._since = self._clock.time() - (now - since if since is not None else 0.0)
        is_told = self._clock.time() - self._since >= self._after
        self._failures += is_told
        delay = self._pacing.delay(max(self._failures, 1))
        self._outage.failed(
            "%s waits for what is away, and tries again by itself in %.1f s: %s",
            self._who,
            delay,
            error,
            since=since,
        )
        if not is_told:
            return delay, None
        return delay, Waiting(
            reason=SECRETS.hide(str(error)),
            since=self._since,
            next_attempt=self._clock.time() + delay,
            attempts=self._failures,
        )

    def heed(self, error: Exception | None, tell: Callable[[Waiting | None], None]) -> float:
        """What the last attempt has come to: it has failed, or what it needs is there.

        Args:
            error: how it has failed; None: it has not.
            tell: takes what is waited for.

        Returns:
            Seconds until the next one.
        """
        if error is None:
            self.over()
            tell(None)
            return 0.0
        delay, waiting = self.failed(error)
        tell(waiting)
        return delay

    def over(self) -> None:
        """It is there again."""
        self.has_ended = True
        self._outage.worked()


def told(waiting: Waiting) -> str:
    """Since when, how often it was tried, when it is tried next, and what is the matter; in one line."""
    tries = "once" if waiting.attempts == 1 else f"{waiting.attempts} times"
    since, then = _hour(waiting.since), _hour(waiting.next_attempt)
    return f"since {since}, tried {tries}, next at {then}: {waiting.reason}"


def _hour(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", " UTC")
