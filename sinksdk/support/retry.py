"""What is tried again later: the same values from the engine through the store to whoever asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Retry:
    """What failed in a way that may pass, and is left to a later generation. Survives pickling and JSON.

    The engine has it on the task's clock. Whatever leaves a task, and what the store keeps, is in seconds
    since the epoch.

    Args:
        since: when it first failed.
        attempts: how often it has failed.
        next_attempt: when it is tried again, on the same clock.
        refused: the first record that was refused: once it is taken, there was progress. None: it was not
            about a record, and only a commit is progress.
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
