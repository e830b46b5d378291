"""What a sink task needs from outside: its commit log, its dead letters and a check of topic ids."""

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
        """The last commit, with its tokens that are not published yet."""
        ...

    def visible(self, partition: TopicPartition) -> int | None:
        """The offset up to which everything is published; None: unknown.

        That of the last commit, or of the one before it.
        """
        ...

    def prepared(self, partition: TopicPartition) -> Sequence[Token]:
        """Tokens that this attempt has prepared and that no commit covers."""
        ...

    @property
    def held(self) -> Mapping[TopicPartition, Collection[Token]]:
        """Tokens whose commit waits for other tasks (DataFrames); the task may return them again."""
        ...

    def stale(self, partition: TopicPartition) -> Sequence[Token]:
        """Tokens of predecessors that no commit covers and that are not discarded yet."""
        ...

    def prepare(self, tokens: Mapping[TopicPartition, Sequence[Token]]) -> None:
        """Record tokens as prepared, in one write."""
        ...

    def unusable(self, tokens: Mapping[TopicPartition, Sequence[Token]]) -> Mapping[TopicPartition, str]:
        """Why tokens cannot be prepared, by partition.

        The ids of tokens that an earlier attempt prepared or that were discarded are refused: a frozen
        predecessor may be about to discard them.
        """
        ...

    def records(self, partition: TopicPartition) -> int:
        """Number of records that this generation has committed, by this attempt and earlier ones."""
        ...

    def due(self, partition: TopicPartition) -> int | None:
        """The offset after the last record below the commit that a task has accepted; None: unknown.

        Between it and the commit the source had no record, or only bad or filtered ones.
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
            records: the new value of :meth:`records`; by default unchanged.
            due: the new value of :meth:`due`; by default None.
        """
        ...

    def mark_published(self, partition: TopicPartition) -> None:
        """The tokens of the last commit are published. May become durable with the next write."""
        ...

    def withdraw(
        self,
        partition: TopicPartition,
        offset: OffsetAndMetadata,
        discard: Sequence[Token],
        partly_visible_to: int | None = None,
    ) -> None:
        """Move the last commit back to this offset: the only way to do so. It keeps no token to publish.

        Args:
            discard: those of its tokens that must be discarded.
            partly_visible_to: the offset after the last record above ``offset`` that is visible; None: there
                is no such record.
        """
        ...

    def is_withdrawn(self, partition: TopicPartition) -> bool:
        """Whether this generation has withdrawn the last commit, in this attempt or an earlier one."""
        ...

    def mark_discarded(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        """May become durable with the next write."""
        ...

    def flush(self) -> None:
        """Write now the changes that would wait for the next write."""
        ...


class DeadLetters(Protocol):
    """Writes undeliverable records."""

    def send(self, record: SinkRecord) -> Future[None]:
        """Begin to write a record; the future is done once it is durable."""
        ...


TopicIdCheck = Callable[[Collection[str]], Mapping[str, ConnectException]]
"""Checks topic ids after the delivery of records and before their commit.

Returns an error for each topic that may not be the planned one: a RetriableException if that is unknown now,
any other if the topic is certainly another one.
"""


def always_valid(topics: Collection[str]) -> Mapping[str, ConnectException]:  # noqa: ARG001 - asked as every TopicIdCheck is
    """For sources whose topics cannot be replaced."""
    return {}
