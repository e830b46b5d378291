"""Limits of the open files of a topic partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MOST_OPEN_FILES: Final = 1_000  # one commit holds all of their tokens

_BUFFER_BYTES: Final = 256 * 1024 * 1024
MOST_RUNS: Final = 500_000  # a token of 1 MB


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits that end a group of files, besides the schedule and a close; None for no limit.

    Args:
        bytes: of any of its files, about.
        interval: milliseconds between the timestamps of its first record and of the first one beyond it.
        is_of_one_folder: with an interval, end also before the first record of another folder.
        buffered: bytes that all open files of a task hold in memory.
        runs: of neighbouring records that go to the same file: tokens hold their offsets.
    """

    records: int | None = None
    bytes: int | None = None
    interval: int | None = None
    is_of_one_folder: bool = False
    files: int | None = None
    buffered: int = _BUFFER_BYTES
    runs: int = MOST_RUNS
