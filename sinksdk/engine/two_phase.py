"""The second phase: publishing what a commit carries, discarding what no commit covers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from sinksdk.engine.clock import Clock
from sinksdk.engine.guard import GuardedCommitLog
from sinksdk.engine.measures import Measures
from sinksdk.engine.retry import Attempts, RetryPolicy
from sinksdk.errors import RetriableException, UnpublishableException
from sinksdk.records import OffsetAndMetadata, Token, TopicPartition
from sinksdk.support.measures import Phase
from sinksdk.support.retry import Retry
from sinksdk.task import SinkTask

log = logging.getLogger(__name__)

_LONGEST_WAIT: Final = 1.0  # seconds between two looks whether to close


class Unpublished(NamedTuple):
    """Why the tokens of a commit are not published.

    Args:
        error: what ``publish`` raised last.
        retry: what is left to a later generation, where it may pass and there is time for it.
    """

    error: Exception
    retry: Retry | None = None


class SecondPhase:
    """Calls the task's ``publish`` and ``discard``, and has the commit log remember what they did.

    Args:
        task: the author's task.
        commits: where the tokens stand.
        clock: lets time pass between attempts.
        retry: delays and budget of ``publish``.
        label: connector, task and generation, for messages.
        measures: times both, and counts attempts made again.
    """

    def __init__(
        self,
        task: SinkTask,
        commits: GuardedCommitLog,
        clock: Clock,
        *,
        retry: RetryPolicy,
        label: str,
        measures: Measures,
    ) -> None:
        self._task = task
        self._commits = commits
        self._clock = clock
        self._retry = retry
        self._label = label
        self._measures = measures
        self.closing_asked: Callable[[], bool] = lambda: False
        """Whether closing was asked for meanwhile: then nothing is tried again that can wait."""

    def publish(
        self, partition: TopicPartition, deadline: float | None = None, earlier: Retry | None = None
    ) -> Unpublished | None:
        """Publish the tokens of a partition's last commit, if it has any left.

        Args:
            partition: whose.
            deadline: when to stop trying, on the clock; what is not published then waits for the
                next generation.
            earlier: attempts of earlier generations.

        Returns:
            Why they are not; None when all is published.
        """
        committed = self._commits.committed(partition)
        if committed is None or not committed.tokens:
            return None
        with self._measures.phase(Phase.PUBLISH):
            return self._publish(partition, committed, deadline, earlier)

    def _publish(
        self,
        partition: TopicPartition,
        committed: OffsetAndMetadata,
        deadline: float | None,
        earlier: Retry | None,
    ) -> Unpublished | None:
        attempts = Attempts(self._retry, self._clock.now(), earlier)
        while True:
            try:
                self._commits.call(self._task.publish, partition, committed.tokens)
            except RetriableException as error:
                self._commits.raise_failure()
                now = self._clock.now()
                delay = attempts.failed(now, error.retry_after)
                if delay is None or (deadline is not None and now + delay > deadline):
                    return Unpublished(error)
                if deadline is None and attempts.holds_up(now, delay):
                    return Unpublished(error, attempts.left(now, delay))
                if not self._waited(delay, deadline):
                    return Unpublished(error)
            except UnpublishableException as error:
                self._commits.raise_failure()
                return Unpublished(self._withdrawn(partition, committed, error))
            except Exception as error:  # noqa: BLE001 - the author's code may raise anything
                self._commits.raise_failure()
                return Unpublished(error)
            else:
                self._commits.published(partition)
                return None

    def _withdrawn(
        self, partition: TopicPartition, committed: OffsetAndMetadata, error: UnpublishableException
    ) -> Exception:
        """Let a commit go back to what is, or can be, visible."""
        discard = OffsetAndMetadata(error.offset, publish=error.discard).tokens
        tokens = {token.id for token in committed.tokens}
        if not (0 <= error.offset < committed.offset and {token.id for token in discard} <= tokens):
            log.error(
                "%s: %s cannot go back from offset %d to %d with tokens %s to discard: that is not part of "
                "its commit; it stays as it is",
                self._label,
                partition,
                committed.offset,
                error.offset,
                ", ".join(token.id for token in discard) or "none",
            )
            return error
        self._commits.withdraw(partition, OffsetAndMetadata(error.offset, error.metadata), discard)
        log.error(
            "%s: the commit of %s is withdrawn from offset %d to %d; from there it is read again: %s",
            self._label,
            partition,
            committed.offset,
            error.offset,
            error,
        )
        return error

    def _waited(self, delay: float, deadline: float | None) -> bool:
        """Wait until the next attempt; False when closing was asked for meanwhile, which cannot wait."""
        while delay > 0:
            if deadline is None and self.closing_asked():
                return False
            self._clock.sleep(min(delay, _LONGEST_WAIT))
            delay -= _LONGEST_WAIT
        self._measures.retried()
        return True

    def discard(self, partition: TopicPartition, tokens: Collection[Token]) -> None:
        """Undo what no commit covers. What cannot be undone now stays noted for a successor.

        A token that is refused keeps no other one from being discarded: then each is tried by itself. What
        may pass (``RetriableException``) is left to a later generation at once: the others would wait for
        the same.
        """
        left = tuple(tokens)
        error = self._discard(partition, left) if left else None
        if error is not None and len(left) > 1 and not isinstance(error, RetriableException):
            waiting, left, error = left, (), None
            for at, token in enumerate(waiting):
                if (problem := self._discard(partition, (token,))) is None:
                    continue
                error, left = error or problem, (*left, token)
                if isinstance(problem, RetriableException):
                    left += waiting[at + 1 :]
                    break
        if error is not None:
            log.warning(
                "%s: discarding %s of %s failed; a later generation tries again",
                self._label,
                ", ".join(map(str, left)),
                partition,
                exc_info=error,
            )

    def _discard(self, partition: TopicPartition, tokens: tuple[Token, ...]) -> Exception | None:
        """Have the task discard these; what it raised, if it did."""
        try:
            with self._measures.phase(Phase.DISCARD):
                self._commits.call(self._task.discard, partition, tokens)
        except Exception as error:  # noqa: BLE001 - the author's
            self._commits.raise_failure()
            return error
        self._commits.discarded(partition, tokens)
        return None
