"""What is in folders, listed again only where it may have changed."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

_COARSE: Final = 2.0
"""Seconds within which a file system may give two changes of a folder the same time; FAT is the coarsest."""

_NAMES: Final = 30.0  # seconds after which names are compared in a folder that has not changed
_ANYWAY: Final = 300.0  # seconds after which its files are looked at, too

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Listed:
    """What a folder held.

    Args:
        stamp: what told this state of the folder from others, before it was listed.
        seen_at: when it had this stamp first.
        at: when it was listed.
        compared_at: when its names were last compared.
    """

    stamp: tuple[int, ...]
    seen_at: float
    at: float
    compared_at: float
    names: frozenset[str]
    value: Any

    @property
    def is_settled(self) -> bool:
        """Whether any change since must have given the folder another stamp."""
        return self.at - self.seen_at >= _COARSE


class Listings:
    """Knows folders by their times of change, which files that are added, removed or renamed move.

    Not all file systems move them, as some that show an object store. So each folder's names are compared
    now and then all the same; when that finds what its time has kept quiet about, no folder's time is trusted
    any more.

    Args:
        root: the topic directory, for messages.
        clock: seconds on a clock that never jumps.
    """

    def __init__(self, root: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock = clock
        self._known: dict[str, _Listed] = {}
        self._is_trusted = True

    def of(self, folder: str, read: Callable[[], T]) -> T:
        """What a folder holds.

        Returns:
            What ``read`` has returned now or before: the same object for as long as it is equal.
        """
        stamp, now = _stamp(folder), self._clock()
        if stamp is None:
            return read()  # which says what is wrong
        known = self._known.get(folder)
        is_same = known is not None and known.stamp == stamp
        if known is not None and is_same and self._is_still(folder, known, now):
            before: T = known.value
            return before
        value, names = read(), _names(folder)
        if known is not None:
            is_silent = is_same and known.is_settled and names != known.names
            if is_silent and _stamp(folder) == stamp:
                self._distrust(folder)
            if value == known.value:
                value = known.value
        seen_at = known.seen_at if known is not None and is_same else now
        self._known[folder] = _Listed(stamp, seen_at, now, now, names, value)
        return value

    def _is_still(self, folder: str, known: _Listed, now: float) -> bool:
        """Whether a folder that has the same stamp needs no listing."""
        if not (self._is_trusted and known.is_settled) or now - known.at >= _ANYWAY:
            return False
        if now - known.compared_at < _NAMES:
            return True
        self._known[folder] = replace(known, compared_at=now)
        return _names(folder) == known.names

    def forget(self) -> None:
        """List all folders again: files in them are being written, or are not as they should be."""
        self._known.clear()

    def _distrust(self, folder: str) -> None:
        if self._is_trusted:
            self._is_trusted = False
            _log.info(
                "topic directory %s: files in %s came or went, and its time of change did not move; all "
                "folders are listed at every look from now on",
                self._root,
                folder,
            )


def _stamp(folder: str) -> tuple[int, ...] | None:
    """What tells a folder's state from others; None where there is no folder."""
    try:
        stat = os.stat(folder)  # noqa: PTH116 - a Path for each of them would take longer
    except OSError:
        return None
    return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns


def _names(folder: str) -> frozenset[str]:
    with suppress(OSError):  # gone since it was listed
        return frozenset(os.listdir(folder))  # noqa: PTH208 - names, of which there may be many
    return frozenset()
