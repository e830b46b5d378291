"""The second phase: publishing what a commit carries, discarding what no commit covers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Final

from sinksdk.engine.clock import Clock
from sinksdk.engine.guard import GuardedCommitLog
from sinksdk.engine.measures import Measures
from sinksdk.engine.retry import Attempts, RetryPolicy
from sinksdk.errors import RetriableException, UnpublishableException
from sinksdk.measures import Phase
from sinksdk.records import OffsetAndMetadata, Token, TopicPartition
from sinksdk.task import SinkTask

log = logging.getLogger(__name__)

_LONGEST_WAIT: Final = 1.0  # seconds between two looks whether to close


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

    def publish(self, partition: TopicPartition, deadline: float | None = None) -> Exception | None:
        """Publish the tokens of a partition's last commit, if it has any left.

        Args:
            partition: whose.
            deadline: when to stop trying, on the clock; what is not published then waits for the
                next generation.

        Returns:
            What it failed with; None when all is published.
        """
        committed = self._commits.committed(partition)
        if committed is None or not committed.tokens:
            return None
        with self._measures.phase(Phase.PUBLISH):
            return self._publish(partition, committed, deadline)

    def _publish(
        self, partition: TopicPartition, committed: OffsetAndMetadata, deadline: float | None
    ) -> Exception | None:
        attempts = Attempts(self._retry)
        while True:
            try:
                self._commits.call(self._task.publish, partition, committed.tokens)
            except RetriableException as error:
                self._commits.raise_failure()
                if not self._waited(attempts, error, deadline):
                    return error
            except UnpublishableException as error:
                self._commits.raise_failure()
                return self._withdrawn(partition, committed, error)
            except Exception as error:  # noqa: BLE001 - the author's code may raise anything
                self._commits.raise_failure()
                return error
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

    def _waited(self, attempts: Attempts, error: RetriableException, deadline: float | None) -> bool:
        """Wait until the next attempt; False when there is no time for one."""
        now = self._clock.now()
        delay = attempts.failed(now, error.retry_after)
        if delay is None or (deadline is not None and now + delay > deadline):
            return False
        while delay > 0:
            if deadline is None and self.closing_asked():
                return False
            self._clock.sleep(min(delay, _LONGEST_WAIT))
            delay -= _LONGEST_WAIT
        self._measures.retried()
        return True

    def discard(self, partition: TopicPartition, tokens: Collection[Token]) -> None:
        """Undo what no commit covers. What cannot be undone now stays noted for a successor."""
        if not tokens:
            return
        try:
            with self._measures.phase(Phase.DISCARD):
                self._commits.call(self._task.discard, partition, tuple(tokens))
        except Exception:
            self._commits.raise_failure()
            log.warning(
                "%s: discarding %s of %s failed; a later generation tries again",
                self._label,
                ", ".join(map(str, tokens)),
                partition,
                exc_info=True,
            )
        else:
            self._commits.discarded(partition, tuple(tokens))
