"""Growing delays between attempts, with one table of all of them.

=========  ===========================================  ======================  ============================
name       retried operation                            keys of a connector     when the total is used up
=========  ===========================================  ======================  ============================
STORE      a request to the commit store                none                    StoreUnavailable
S3_STORE   a request to a commit store in S3            none                    StoreUnavailable
HOOK       ``put``, ``publish``; a source's requests    errors.retry.delay.max  the partition or task fails
                                                        .ms, errors.retry
                                                        .timeout
RESTART    a failed partition or task                   restart.backoff.ms,     no total: the connector
                                                        restart.backoff.max.ms  fails after
                                                                                restart.max.attempts
SYSTEM     planning, while Kafka or S3 is unavailable   restart.backoff.ms      no total: shown as waiting
S3_COMMIT  requests of a commit                         s3.retry.backoff.ms     put or the commit fails: HOOK
S3_GROUP   requests of several files, of which some     s3.retry.backoff.ms     likewise
           succeed
S3_PROBE   the archiver's test of an S3 endpoint        none                    its start fails: SYSTEM
DISCARD    discarding data that no commit covers        restart.backoff.ms      no total
=========  ===========================================  ======================  ============================

A HOOK attempt whose delay exceeds the time that its task may wait is left to a later generation
(``engine/retry``); the connector's keys replace ``cap``, ``total`` and ``first``.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Final

_MOST_DOUBLINGS: Final = 30  # every cap is reached with fewer; a float overflows at 1,024


@dataclass(frozen=True, slots=True)
class Delays:
    """Delays in seconds: ``first``, then ``factor`` times the previous one, at most ``cap``."""

    first: float
    cap: float
    # Seconds after the first failure until the operation fails for good.
    total: float = math.inf
    factor: float = 2.0

    def after(self, failures: int) -> float:
        return min(self.first * self.factor ** min(failures - 1, _MOST_DOUBLINGS), self.cap)

    def before(self, deadline: float, failures: int, now: float) -> float | None:
        """Return the delay until the next attempt; None if it would begin after the deadline."""
        delay = self.after(failures)
        return delay if now + delay <= deadline else None


STORE: Final = Delays(first=0.05, cap=2.0, total=30.0)
# Connect's RetryWithToleranceOperator starts with 300 ms.
HOOK: Final = Delays(first=0.3, cap=60.0, total=300.0)
S3_STORE: Final = Delays(first=0.1, cap=2.0, total=30.0)
# In a periodic commit, other connectors wait for the task slot.
S3_COMMIT: Final = Delays(first=0.2, cap=10.0, total=5.0)
# The total counts from the last request that succeeded, or from the first failure.
S3_GROUP: Final = Delays(first=0.2, cap=1.0, total=5.0)
S3_PROBE: Final = Delays(first=0.3, cap=5.0, total=5.0)
RESTART: Final = Delays(first=1.0, cap=60.0)
SYSTEM: Final = Delays(first=1.0, cap=60.0)
# Rarer than restarts, because such data only uses storage.
DISCARD: Final = Delays(first=2.0, cap=3600.0)


def jitter() -> float:
    """Return a factor of +-20 %, like Kafka's clients (KIP-580), so that processes do not retry together."""
    return random.uniform(0.8, 1.2)  # noqa: S311 - no secret
