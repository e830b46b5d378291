"""Growing delays between attempts, and the table of all of them.

========  ===========================================  ======================  ============================
name      what is retried                              keys of a connector     when the total is over
========  ===========================================  ======================  ============================
STORE     a request to the commit store                none                    StoreUnavailable
S3_STORE  the same, of a store in S3                   none                    StoreUnavailable
HOOK      ``put``, ``publish``; a source's requests    errors.retry.delay.max  the partition or task fails
                                                       .ms, errors.retry
                                                       .timeout
RESTART   a failed partition or task                   restart.backoff.ms,     restart.max.attempts, not a
                                                       restart.backoff.max.ms  time, ends the connector
SYSTEM    planning, while Kafka or S3 is unavailable   restart.backoff.ms      never: it is shown as waiting
DISCARD   data that no commit covers                   restart.backoff.ms      never
========  ===========================================  ======================  ============================

An attempt of HOOK that would wait longer than its task may in place is left to a later generation
(``engine/retry``); the connector's keys replace ``cap``, ``total`` and ``first``.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Final

_MOST_DOUBLINGS: Final = 30  # a float of more of them is of no use, and overflows in the end


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds between attempts: ``first``, then ``factor`` times the one before, at most ``cap``.

    Args:
        total: seconds after the first failure until which attempts are made.
    """

    first: float
    cap: float
    total: float = math.inf
    factor: float = 2.0

    def after(self, failures: int) -> float:
        """Seconds to wait after so many failures; 1 is the first."""
        return min(self.first * self.factor ** min(failures - 1, _MOST_DOUBLINGS), self.cap)


STORE: Final = Delays(first=0.05, cap=2.0, total=30.0)
# Connect's RetryWithToleranceOperator starts with 300 ms.
HOOK: Final = Delays(first=0.3, cap=60.0, total=300.0)
S3_STORE: Final = Delays(first=0.1, cap=2.0, total=30.0)
RESTART: Final = Delays(first=1.0, cap=60.0)
SYSTEM: Final = Delays(first=1.0, cap=60.0)
# Rarer than restarts: such data only takes up storage.
DISCARD: Final = Delays(first=2.0, cap=3600.0)


def jitter() -> float:
    """A factor of +-20 %, as Kafka's clients use (KIP-580), so that processes do not retry together."""
    return random.uniform(0.8, 1.2)  # noqa: S311 - no secret
