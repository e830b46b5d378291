"""Versions that are looked at again and again, by many threads: read together, in one request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

AGE: Final = 0.25
"""Seconds for which a version that was read counts."""

_FORGOTTEN: Final = 30.0  # seconds after which a key that nobody asks for is read no more


class Glances:
    """What versions keys had lately. Any thread's.

    Args:
        read: reads the versions of some keys; a key that has none is left out.
        clock: seconds on a clock that never jumps.
    """

    def __init__(
        self,
        read: Callable[[Collection[str]], Mapping[str, str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._clock = clock
        self._reading = threading.Lock()
        self._asked: dict[str, float] = {}
        self._known: Mapping[str, str] = {}
        self._covers: frozenset[str] = frozenset()
        self._read_at = -AGE

    def version(self, key: str) -> str | None:
        """Its version, at most :data:`AGE` old; None where it has no value."""
        now = self._clock()
        # While somebody else reads, which may take as long as an outage, everybody asks for himself.
        if not self._reading.acquire(blocking=False):
            return self._read([key]).get(key)
        try:
            self._asked[key] = now
            if now - self._read_at >= AGE or key not in self._covers:
                self._asked = {k: at for k, at in self._asked.items() if now - at < _FORGOTTEN}
                keys = frozenset(self._asked)
                self._known, self._covers = self._read(keys), keys
                self._read_at = now
            return self._known.get(key)
        finally:
            self._reading.release()
