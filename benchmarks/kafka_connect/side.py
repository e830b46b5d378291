"""What is compared: something that archives a topic to S3, in processes of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from benchmarks.kafka_connect.topics import Topic


@dataclass(frozen=True)
class Run:
    """One topic archived.

    Args:
        seconds: from the first record read to the last (Kafka Connect), or from the start of tasks until all
            are committed (sinksdk).
        read: records that were handed to the sink's tasks, each time they were.
    """

    seconds: float
    read: int


class Side(Protocol):
    """One of those that are compared."""

    name: str

    @property
    def pid(self) -> int:
        """The process that has started all others."""
        ...

    def archive(self, topic: Topic, codec: str, *, rebalance_at: int | None = None) -> Run:
        """Archive a whole topic, with tasks of its own; return once all of it is committed.

        Args:
            topic: which.
            codec: Avro's name of the blocks' codec.
            rebalance_at: force a rebalance once so many records have been read.
        """
        ...
