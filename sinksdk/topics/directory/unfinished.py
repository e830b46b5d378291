"""Telling a file that is still being written from one that is broken."""

from __future__ import annotations

import time
from collections.abc import Callable

from sinksdk.errors import ConnectException, RetriableException
from sinksdk.topics.directory.layout import FileStat


class Unfinished:
    """Judges files that have their final name but no readable content.

    Writers should rename files into place; some do not. As long as such a file keeps changing it is
    being written, and whoever asked looks again. Once it has stayed the same for a while, it is broken.

    Args:
        patience: seconds without a change after which a file is taken for broken.
        clock: seconds since the epoch, as file times.
    """

    def __init__(self, patience: float, clock: Callable[[], float] = time.time) -> None:
        self._patience = patience
        self._clock = clock
        self._first_seen: dict[str, tuple[FileStat, float]] = {}

    def judge(self, stat: FileStat, problem: str) -> ConnectException:
        """The error to raise for a file: retriable while it may still be written, fatal afterwards.

        Args:
            problem: what is wrong with it, as a sentence that begins with its path.
        """
        now = self._clock()
        known, since = self._first_seen.get(stat.path, (None, now))
        if known != stat:
            since = now
            self._first_seen[stat.path] = (stat, now)
        # Either clock may show that nothing moves: the file's own, or ours where the file's is ahead.
        quiet = max(now - stat.mtime_ns / 1e9, now - since)
        if quiet < self._patience:
            return RetriableException(
                f"{problem}; it was changed {max(quiet, 0):.0f} s ago and may be growing"
            )
        return ConnectException(
            f"{problem}; it has not changed for {quiet:.0f} s: write it again (under a name that begins with "
            f"'_' or '.', renamed when it is whole) or move it away"
        )

    def forget(self, path: str) -> None:
        """The file turned out well."""
        self._first_seen.pop(path, None)
