"""A sink task commits, writes dead letters and checks topic ids through these interfaces."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol

from sinksdk.errors import ConnectException
from sinksdk.offsets import OffsetAndMetadata, Token, TopicPartition
from sinksdk.records import SinkRecord


class CommitLog(Protocol):
    """One attempt at one task keeps its durable state here; every write is fenced.

    A write raises FencedException once a newer attempt owns the record. After any other error the caller must
    stop using the log.
    """

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """Return the last commit, with its tokens that are not published yet."""
        ...

    def visible(self, partition: TopicPartition) -> int | None:
        """Return the offset up to which everything is published; None: unknown."""
        ...

    def prepared(self, partition: TopicPartition) -> Sequence[Token]:
        """Return tokens that this attempt has prepared and no commit covers."""
        ...

    @property
    def held(self) -> Mapping[TopicPartition, Collection[Token]]:
        """Return tokens whose commit waits for other tasks (DataFrames)."""
        ...

    def stale(self, partition: TopicPartition) -> Sequence[Token]:
        """Return tokens of predecessors that no commit covers and that are not discarded yet."""
        ...

    def prepare(self, tokens: Mapping[TopicPartition, Sequence[Token]]) -> None: ...

    # A frozen predecessor may be about to discard ids that it prepared: they are never used again.
    def unusable(self, tokens: Mapping[TopicPartition, Sequence[Token]]) -> Mapping[TopicPartition, str]: ...

    def records(self, partition: TopicPartition) -> int:
        """Return how many records this generation has committed."""
        ...

    def due(self, partition: TopicPartition) -> int | None:
        """Return the offset after the last accepted record below the commit; None: unknown.

        The source had no record from there to the commit, or only bad or filtered ones.
        """
        ...

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        records: Mapping[TopicPartition, int] | None = None,
        due: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Commit offsets with their tokens, and new :meth:`records` and :meth:`due`, in one write."""
        ...

    def mark_published(self, partition: TopicPartition) -> None:
        """Mark the last commit's tokens; the mark may become durable with the next write."""
        ...

    def withdraw(
        self,
        partition: TopicPartition,
        offset: OffsetAndMetadata,
        discard: Sequence[Token],
        partly_visible_to: int | None = None,
    ) -> None:
        """Move the last commit back to this offset, without tokens to publish.

        Args:
            discard: those of its tokens that must be discarded.
            partly_visible_to: the offset after the last visible record above ``offset``, if any.
        """
        ...

    def is_withdrawn(self, partition: TopicPartition) -> bool:
        """Return whether this generation has withdrawn the last commit."""
        ...

    def mark_discarded(self, partition: TopicPartition, tokens: Sequence[Token]) -> None: ...

    def flush(self) -> None:
        """Write the marks that would wait for the next write."""
        ...


class DeadLetters(Protocol):
    def send(self, record: SinkRecord) -> Future[None]:
        """Return a future that is done once the record is durable."""
        ...


# Returns errors by topic: a RetriableException if the topic's id cannot be queried now, any other error if
# the topic was replaced. An id that is right after records were read was right while they were read.
TopicIdCheck = Callable[[Collection[str]], Mapping[str, ConnectException]]


def always_valid(topics: Collection[str]) -> Mapping[str, ConnectException]:  # noqa: ARG001 - asked as every TopicIdCheck is
    return {}
