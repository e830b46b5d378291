"""Where the engine's commits go: one task's durable record, as the engine needs to see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from sinksdk.records import OffsetAndMetadata, Token, TopicPartition


class CommitLog(Protocol):
    """What one attempt at one task has made durable. Every write is fenced.

    All writes raise :class:`~sinksdk.FencedException` once a newer generation or attempt owns the
    record, and leave no doubt: when they return the effect is durable, when they raise anything else
    the caller must stop using this log.
    """

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """The last commit; ``publish`` holds its tokens that are not published yet."""
        ...

    def visible(self, partition: TopicPartition) -> int | None:
        """Up to which offset everything is published: where the last commit, or the one before it, is.

        None where nothing is, or that is not known.
        """
        ...

    def prepared(self, partition: TopicPartition) -> Sequence[Token]:
        """Tokens this attempt noted that no commit covers."""
        ...

    def stale(self, partition: TopicPartition) -> Sequence[Token]:
        """Tokens that predecessors noted, that no commit covered, and that are not discarded yet."""
        ...

    def prepare(self, tokens: Mapping[TopicPartition, Sequence[Token]]) -> None:
        """Note tokens, in one write."""
        ...

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit offsets with the tokens to publish, in one atomic write."""
        ...

    def published(self, partition: TopicPartition) -> None:
        """All tokens of the last commit are published. May become durable with the next write."""
        ...

    def withdraw(
        self, partition: TopicPartition, offset: OffsetAndMetadata, discard: Sequence[Token]
    ) -> None:
        """The last commit goes back to this offset; these of its tokens are noted as to be discarded.

        The one way a commit goes back. No token of it is left to publish.
        """
        ...

    def is_withdrawn(self, partition: TopicPartition) -> bool:
        """Whether the last commit was withdrawn in this generation, by this attempt or an earlier one."""
        ...

    def discarded(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        """These tokens are discarded. May become durable with the next write."""
        ...

    def flush(self) -> None:
        """Make what may wait for the next write durable now."""
        ...
