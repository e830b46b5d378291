"""A commit log whose failures cannot be swallowed by the author's code they pass through."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from sinksdk.engine.commits import CommitLog
from sinksdk.errors import ConnectException
from sinksdk.records import OffsetAndMetadata, Token, TopicPartition

T = TypeVar("T")


class GuardedCommitLog:
    """Remembers the first failed write: after it the record's content is not ours to judge."""

    def __init__(self, commits: CommitLog) -> None:
        self._commits = commits
        self._failure: BaseException | None = None

    def raise_failure(self) -> None:
        """Raise what the first failed write raised, if one did."""
        if self._failure is not None:
            raise self._failure

    def call(self, method: Callable[..., T], *arguments: object) -> T:
        """Run the author's code. A write that failed inside speaks louder than what came of it.

        When it raises, the caller asks :meth:`raise_failure` before it looks at the error. A ``sys.exit`` of
        the author's is an error as any other: it would end Spark's worker, and the task be run again.
        """
        try:
            result = method(*arguments)
        except SystemExit as error:
            message = f"{getattr(method, '__name__', 'the task')} raised SystemExit: {error.code}"
            raise ConnectException(message) from error
        self.raise_failure()
        return result

    def _write(self, write: Callable[[], None]) -> None:
        self.raise_failure()
        try:
            write()
        except BaseException as error:
            self._failure = error
            raise

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """See :class:`CommitLog`."""
        return self._commits.committed(partition)

    def visible(self, partition: TopicPartition) -> int | None:
        """See :class:`CommitLog`."""
        return self._commits.visible(partition)

    def prepared(self, partition: TopicPartition) -> Sequence[Token]:
        """See :class:`CommitLog`."""
        return self._commits.prepared(partition)

    def stale(self, partition: TopicPartition) -> Sequence[Token]:
        """See :class:`CommitLog`."""
        return self._commits.stale(partition)

    def prepare(self, tokens: Mapping[TopicPartition, Sequence[Token]]) -> None:
        """See :class:`CommitLog`."""
        self._write(lambda: self._commits.prepare(tokens))

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """See :class:`CommitLog`."""
        self._write(lambda: self._commits.commit(offsets))

    def published(self, partition: TopicPartition) -> None:
        """See :class:`CommitLog`."""
        self._write(lambda: self._commits.published(partition))

    def withdraw(
        self, partition: TopicPartition, offset: OffsetAndMetadata, discard: Sequence[Token]
    ) -> None:
        """See :class:`CommitLog`."""
        self._write(lambda: self._commits.withdraw(partition, offset, discard))

    def is_withdrawn(self, partition: TopicPartition) -> bool:
        """See :class:`CommitLog`."""
        return self._commits.is_withdrawn(partition)

    def discarded(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        """See :class:`CommitLog`."""
        self._write(lambda: self._commits.discarded(partition, tokens))

    def flush(self) -> None:
        """See :class:`CommitLog`."""
        self._write(self._commits.flush)
