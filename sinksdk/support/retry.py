"""A pending retry: the same value from the engine through the store to REST."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Retry:
    """A failure that may pass, left to a later generation. Survives pickling and JSON.

    The engine has its times on the task's clock; outside of a task, and in the store, they are seconds since
    the epoch.

    Args:
        since: when it first failed.
        attempts: how often it has failed.
        refused: offset of the first record that was refused: its success is progress. None: only a commit is.
    """

    # Fields of newer versions are left out, also within a value that keeps those of its own.
    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "ignore"}

    since: float
    attempts: int
    next_attempt: float
    refused: int | None = None

    def moved(self, seconds: float) -> Retry:
        """The same on a clock that is ahead by so much."""
        return replace(self, since=self.since + seconds, next_attempt=self.next_attempt + seconds)
