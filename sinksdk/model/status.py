"""Operators see this status of a partition in the CLI, in REST and in metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, computed_field

from sinksdk.model.base import Value
from sinksdk.model.measures import LOST, WITHDRAWN
from sinksdk.offsets import TopicPartition


class Waiting(Value):
    """An unavailable system that a connector waits for."""

    reason: str = Field(description="Error of the last attempt.")
    since: float = Field(description="Time of the first failed attempt, in seconds since the epoch.")
    next_attempt: float = Field(description="Time of the next attempt, in seconds since the epoch.")
    attempts: int = Field(description="Number of failed attempts.")


class PartitionStatus(BaseModel):
    """One partition."""

    model_config = ConfigDict(frozen=True, serialize_by_alias=True)

    topic: str
    number: int = Field(alias="partition")
    task: int | None = Field(description="The task that it is, or was last, assigned to.")
    committed: int | None = Field(description="Next offset to read after the last commit.")
    position: int | None = Field(description="Offset after the last record read, while it is read.")
    end: int | None = Field(description="End offset of the source at the last check.")
    lag: int | None = Field(description="Offsets not committed yet; null while the source does not respond.")
    committed_at: float | None = Field(description="Time of the last commit, in seconds since the epoch.")
    rate: float = Field(description="Records read per second, lately.")
    error: str | None = Field(description="Its last error; null after a success.")
    failures: int = Field(description="Number of failures in a row.")
    # The server's responses leave out the counters of all generations, and a wait, which is no failure.
    counts: Mapping[str, int] = Field(default_factory=dict, exclude=True)
    waiting: Waiting | None = Field(default=None, exclude=True)
    # Only a driver's listener gets these: records delivered in the latest generation, those of them above
    # the commit, and seconds until a partition that failed or waits may be opened again.
    records: int = Field(default=0, exclude=True)
    tail: int = Field(default=0, exclude=True)
    opens_in: float = Field(default=0.0, exclude=True)

    @classmethod
    def reported(
        cls, partition: TopicPartition, committed: int | None, position: int | None, end: int, **more: Any
    ) -> Self:
        # Only the store has these values.
        unknown = {"task": None, "committed_at": None, "rate": 0.0, "error": None, "failures": 0}
        return cls(
            topic=partition.topic,
            partition=partition.partition,
            committed=committed,
            position=position,
            end=end,
            lag=lag(committed, end),
            **{**unknown, **more},
        )

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.number)

    @computed_field  # type: ignore[prop-decorator] # mypy knows no decorated properties
    @property
    def lost_offsets(self) -> int:
        """Offsets after a commit that the source no longer had, and that were skipped."""
        return self.counts.get(LOST, 0)

    @computed_field  # type: ignore[prop-decorator] # the same
    @property
    def withdrawn_commits(self) -> int:
        """Commits that were withdrawn: their records are read again, if the source still has them."""
        return self.counts.get(WITHDRAWN, 0)


def lag(committed: int | None, end: int | None) -> int | None:
    return None if end is None else max(end - (committed or 0), 0)
