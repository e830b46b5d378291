"""Interfaces of a sink task's worker to its commits, its dead letters and the ids of its topics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol

from sinksdk.errors import ConnectException
from sinksdk.offsets import OffsetAndMetadata, Token, TopicPartition
from sinksdk.records import SinkRecord


class CommitLog(Protocol):
    """The durable state of one attempt at one task. Every write is fenced.

    All writes raise :class:`~sinksdk.FencedException` once a newer generation or attempt owns the record.
    When a write returns, its effect is durable; after any other error the caller must stop using this log.
    """

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """The last commit; ``publish`` holds its tokens that are not published yet."""
        ...

    def visible(self, partition: TopicPartition) -> int | None:
        """The offset up to which everything is published: that of the last commit, or of the one before it.

        None where nothing is, or that is not known.
        """
        ...

    def prepared(self, partition: TopicPartition) -> Sequence[Token]:
        """Tokens that this attempt has prepared and that no commit covers."""
        ...

    @property
    def held(self) -> Mapping[TopicPartition, Collection[Token]]:
        """Tokens whose commit waits for other tasks'; the task may return them again. Usually none."""
        ...

    def stale(self, partition: TopicPartition) -> Sequence[Token]:
        """Tokens that predecessors prepared, that no commit covered, and that are not discarded yet."""
        ...

    def prepare(self, tokens: Mapping[TopicPartition, Sequence[Token]]) -> None:
        """Record tokens as prepared, in one write."""
        ...

    def unusable(self, tokens: Mapping[TopicPartition, Sequence[Token]]) -> Mapping[TopicPartition, str]:
        """Of each partition with a token that cannot be prepared, why.

        The id of a token that an earlier attempt prepared, or that was discarded: a predecessor may be frozen
        right before it discards it.
        """
        ...

    def records(self, partition: TopicPartition) -> int:
        """How many records this generation has committed, by this attempt and earlier ones."""
        ...

    def due(self, partition: TopicPartition) -> int | None:
        """The offset after the last record below the commit that a task has accepted.

        Between it and the commit the source had no record, or only bad or filtered ones. None: unknown.
        """
        ...

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        records: Mapping[TopicPartition, int] | None = None,
        due: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Commit offsets with the tokens to publish, in one atomic write.

        Args:
            records: what :meth:`records` says from then on; without it, the same as before.
            due: what :meth:`due` says from then on; without it, None.
        """
        ...

    def mark_published(self, partition: TopicPartition) -> None:
        """All tokens of the last commit are published. May become durable with the next write."""
        ...

    def withdraw(
        self,
        partition: TopicPartition,
        offset: OffsetAndMetadata,
        discard: Sequence[Token],
        partly_visible_to: int | None = None,
    ) -> None:
        """Move the last commit back to this offset; these of its tokens must be discarded.

        The only way to move a commit back. It keeps no token to publish.

        Args:
            partly_visible_to: the offset after the last record above that is visible already; None: none is.
        """
        ...

    def is_withdrawn(self, partition: TopicPartition) -> bool:
        """Whether the last commit was withdrawn in this generation, by this attempt or an earlier one."""
        ...

    def mark_discarded(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        """These tokens are discarded. May become durable with the next write."""
        ...

    def flush(self) -> None:
        """Write now what would wait for the next write."""
        ...


class DeadLetters(Protocol):
    """Writes undeliverable records."""

    def send(self, record: SinkRecord) -> Future[None]:
        """Begin writing a record; the future is done once it is durable."""
        ...


TopicIdCheck = Callable[[Collection[str]], Mapping[str, ConnectException]]
"""Checks topic ids after the delivery of records and before their commit.

Returns the topics that may not be the planned ones, each with an error: a RetriableException if that is
unknown now, any other if the topic is certainly another one.
"""


def always_valid(topics: Collection[str]) -> Mapping[str, ConnectException]:  # noqa: ARG001 - asked as every TopicIdCheck is
    """For sources whose topics cannot be replaced."""
    return {}
