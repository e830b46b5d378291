"""Limits of the open files of a topic partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MOST_OPEN_FILES: Final = 1_000
"""The most open files of a topic partition: one commit holds all of their tokens."""

_BUFFER_BYTES: Final = 256 * 1024 * 1024
MOST_RUNS: Final = 500_000
"""The most runs of neighbouring records in a group: a token of 1 MB."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits that end a group of files, besides the schedule and a close.

    Args:
        records: of the group; None for no limit.
        bytes: of any of its files, about; None for no limit.
        interval: milliseconds between the timestamp of its first record and that of the first record beyond
            it; None for no limit.
        is_of_one_folder: with an interval, also the first record of another folder than the one before it.
        files: open at a time in a topic partition; None for no limit.
        buffered: bytes that all open files of a task hold in memory.
        runs: of neighbouring records that go to the same file: their offsets stand in the tokens.
    """

    records: int | None = None
    bytes: int | None = None
    interval: int | None = None
    is_of_one_folder: bool = False
    files: int | None = None
    buffered: int = _BUFFER_BYTES
    runs: int = MOST_RUNS
