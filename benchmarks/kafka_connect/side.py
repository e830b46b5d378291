"""Define a side of the comparison, which archives a topic to S3 in its own processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from benchmarks.kafka_connect.topics import Topic


@dataclass(frozen=True)
class Run:
    """One archived topic.

    Args:
        seconds: from the first record read to the last (Kafka Connect), or from the start of tasks until all
            records are committed (sinksdk).
        read: records passed to the sink's tasks, counted each time.
    """

    seconds: float
    read: int


class Side(Protocol):
    """One side of the comparison."""

    name: str

    @property
    def pid(self) -> int:
        # All other processes are children of this one.
        ...

    def archive(self, topic: Topic, codec: str, *, rebalance_at: int | None = None) -> Run:
        """Archive a whole topic, with new tasks; return once all of it is committed.

        Args:
            rebalance_at: force a rebalance once so many records have been read.
        """
        ...
