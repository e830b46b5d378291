"""Commit in the order ``pre_commit``, commit, ``publish``, and ``discard`` uncommitted tokens."""

from __future__ import annotations

import logging
import operator
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, SupportsIndex

from sinksdk.context import ClosingReason
from sinksdk.engine.commits import TopicIdCheck
from sinksdk.engine.context import Ending, TaskScope, WorkerSinkTaskContext, token_flaw
from sinksdk.engine.retry import Attempts
from sinksdk.errors import ConnectException, RetriableException, UnpublishableException, describe
from sinksdk.model.measures import WITHDRAWN, Phase
from sinksdk.offsets import OffsetAndMetadata, Token, TopicPartition

log = logging.getLogger(__name__)

_LONGEST_WAIT: Final = 1.0  # seconds between two checks for a close request


class Committer:
    def __init__(self, scope: TaskScope, context: WorkerSinkTaskContext, check_topics: TopicIdCheck) -> None:
        self._scope = scope
        self._task = scope.task
        self._commits = scope.commits
        self._states = scope.states
        self._measures = scope.measures
        self._label = scope.label
        self._context = context
        self._check_topics = check_topics
        # A task that must close leaves retries to the next generation.
        self.is_closing_requested: Callable[[], bool] = lambda: False

    # -- the first phase -------------------------------------------------------------------------

    def commit(
        self,
        partitions: Collection[TopicPartition],
        reason: ClosingReason | None,
        deadline: float | None,
        *,
        is_last: bool,
    ) -> Collection[TopicPartition]:
        """Commit and publish; return the partitions whose topics are still the planned ones."""
        partitions = self._of_planned_topics(partitions, is_last=is_last)
        offered = {
            partition: OffsetAndMetadata(self._states[partition].position)
            for partition in sorted(partitions)
            if self._has_offer(partition) and self._await_letters(partition)
        }
        if offered:
            with self._measures.offset_commit():
                changed = self._write(self._pre_commit(offered, reason, deadline))
            for partition in changed:
                self.publish(partition, deadline)
        return partitions

    def metadata_at(self, partition: TopicPartition, offset: int) -> str | None:
        """Return the task's metadata for a position to move back to; None: it failed."""
        # Without metadata, a sink that keeps its watermark there could not tell a later loss from this move.
        offered = {partition: OffsetAndMetadata(offset)}
        try:
            with self._measures.phase(Phase.PRE_COMMIT):
                returned = self._scope.call("pre_commit", offered)
        except Exception as error:
            self._scope.raise_failure()
            self._scope.note(partition, error)
            return None
        found = returned.get(partition) if isinstance(returned, Mapping) else None
        if not isinstance(found, OffsetAndMetadata) or found.offset != offset:
            return ""
        return found.metadata if isinstance(found.metadata, str) else ""

    def _has_offer(self, partition: TopicPartition) -> bool:
        state = self._states[partition]
        # If the task has skipped to this position, the commit may need the task's metadata.
        return state.position > self._scope.floor(partition) or state.has_skipped

    def _of_planned_topics(
        self, partitions: Collection[TopicPartition], *, is_last: bool
    ) -> Collection[TopicPartition]:
        # A topic that was deleted and created again has other records at the same offsets. If no broker
        # responds, the next commit repeats the check; if there is no next commit, the records are read again.
        topics = {p.topic for p in partitions if self._states[p].has_uncommitted(self._scope.floor(p))}
        with self._measures.phase(Phase.CHECK_TOPIC_IDS):
            errors = self._check_topics(topics) if topics else {}
        for partition in partitions:
            error = errors.get(partition.topic)
            if error is not None and (is_last or not isinstance(error, RetriableException)):
                self._scope.note(partition, error)
        return [p for p in partitions if p.topic not in errors]

    def _pre_commit(
        self,
        offered: Mapping[TopicPartition, OffsetAndMetadata],
        reason: ClosingReason | None,
        deadline: float | None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        began = self._scope.clock.now()
        try:
            with self._context.closing(reason, deadline), self._measures.phase(Phase.PRE_COMMIT):
                returned = self._scope.call("pre_commit", dict(offered))
        except Exception as error:
            self._scope.raise_failure()
            self._measures.commit_failed()
            for partition in offered:
                self._scope.note(partition, error, began=began)
            return {}
        sound = committable(
            returned,
            offered=offered,
            floor={partition: self._scope.floor(partition) for partition in offered},
            prepared={
                p: {token.id for token in (*self._commits.prepared(p), *self._commits.held.get(p, ()))}
                for p in offered
            },
            label=self._label,
        )
        return {p: offset for p, offset in sound.items() if self._await_letters(p)}

    def _write(self, accepted: Mapping[TopicPartition, OffsetAndMetadata]) -> Collection[TopicPartition]:
        changed = {
            partition: self._states[partition].to_range_end(offset)
            for partition, offset in accepted.items()
            if self._has_changed(partition, offset)
        }
        if changed:
            with self._measures.commit_write():
                self._scope.write(self._commits.commit, changed, self._records(changed), self._due(changed))
        for partition, offset in changed.items():
            self._states[partition].note_commit(offset.offset)
        return changed

    def _records(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, int]:
        return {p: self._states[p].accepted.below(offset.offset) for p, offset in offsets.items()}

    def _due(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, int]:
        found = {p: self._states[p].accepted.due_below(offset.offset) for p, offset in offsets.items()}
        return {p: due for p, due in found.items() if due is not None}

    def _has_changed(self, partition: TopicPartition, offset: OffsetAndMetadata) -> bool:
        committed = self._commits.committed(partition)
        metadata = committed.metadata if committed else ""
        return bool(
            offset.offset > self._scope.floor(partition) or offset.tokens or offset.metadata != metadata
        )

    def write_late_ends(self, partitions: Collection[TopicPartition]) -> None:
        self.write_range_ends(self._of_planned_topics(partitions, is_last=True))

    def write_range_ends(self, partitions: Collection[TopicPartition]) -> None:
        """Commit offsets without a record: range ends behind gaps, and positions skipped to."""
        ends = {}
        for partition in partitions:
            state, committed = self._states[partition], self._commits.committed(partition)
            if state.ending.failure:
                continue
            metadata = committed.metadata if committed else ""
            end = state.range_end(self._scope.floor(partition))
            if end is not None:
                ends[partition] = OffsetAndMetadata(end, metadata)
            elif state.has_skipped and (committed.offset if committed else state.plan.start) < state.start:
                ends[partition] = OffsetAndMetadata(state.start, metadata)
            state.has_skipped = False
        if ends:
            with self._measures.commit_write():
                self._scope.write(self._commits.commit, ends, self._records(ends), self._due(ends))
        for partition, offset in ends.items():
            self._states[partition].reach(offset.offset)

    def _await_letters(self, partition: TopicPartition) -> bool:
        state = self._states[partition]
        letters, state.letters = state.letters, deque()
        try:
            with self._measures.phase(Phase.REPORT):
                for letter in letters:
                    letter.result()
        except Exception as error:
            lost = ConnectException(
                f"{self._label}: a dead letter of {partition} was not written: {describe(error)}"
            )
            lost.__cause__ = error
            self._scope.note(partition, lost)
            return False
        return state.ending.refusal is None  # a commit must not cover refused records

    # -- the second phase ------------------------------------------------------------------------

    def publish(self, partition: TopicPartition, deadline: float | None = None) -> None:
        """Publish the last commit's tokens; after ``deadline``, the next generation does."""
        committed = self._commits.committed(partition)
        if committed is None or not committed.tokens:
            return
        with self._measures.phase(Phase.PUBLISH):
            failed = self._publish(partition, committed, deadline)
        if failed is not None:  # the partition ends, because its next commit would lose the tokens
            self._scope.note(partition, failed.error, at_once=failed.retry is None, retry=failed.retry)

    def _publish(
        self,
        partition: TopicPartition,
        committed: OffsetAndMetadata,
        deadline: float | None,
    ) -> Ending | None:
        clock = self._scope.clock
        attempts = Attempts(self._scope.options.retry, clock.now(), self._states[partition].retry)
        while True:
            try:
                self._scope.call("publish", partition, committed.tokens)
            except RetriableException as error:
                self._scope.raise_failure()
                now = clock.now()
                delay = attempts.failed(now, error.retry_after)
                if delay is None or (deadline is not None and now + delay > deadline):
                    return Ending(error)
                if deadline is None and attempts.holds_up(now, delay):
                    return Ending(error, attempts.left(now, delay))
                if not self._waited(delay, deadline):
                    return Ending(error)
            except UnpublishableException as error:
                self._scope.raise_failure()
                return Ending(self._withdraw_unpublishable(partition, committed, error))
            except Exception as error:
                self._scope.raise_failure()
                return Ending(error)
            else:
                self._scope.write(self._commits.mark_published, partition)
                return None

    def withdraw(
        self,
        partition: TopicPartition,
        to: OffsetAndMetadata,
        discard: Collection[Token] = (),
        partly_visible_to: int | None = None,
    ) -> None:
        # This is the only place in the engine that moves a commit back.
        self._scope.write(self._commits.withdraw, partition, to, discard, partly_visible_to)
        self._context.count(partition, **{WITHDRAWN: 1})

    def _withdraw_unpublishable(
        self, partition: TopicPartition, committed: OffsetAndMetadata, error: UnpublishableException
    ) -> Exception:
        discard = OffsetAndMetadata(error.offset, publish=error.discard).tokens
        tokens = {token.id for token in committed.tokens}
        if not (0 <= error.offset < committed.offset and {token.id for token in discard} <= tokens):
            log.error(
                "%s: the commit of %s stays at offset %d: UnpublishableException names offset %d and tokens "
                "to discard (%s), but only a lower offset and tokens of this commit are allowed",
                self._label,
                partition,
                committed.offset,
                error.offset,
                ", ".join(token.id for token in discard) or "none",
            )
            return error
        to = OffsetAndMetadata(error.offset, error.metadata)
        self.withdraw(partition, to, discard, error.partly_visible_to)
        log.error(
            "%s: the commit of %s is withdrawn from offset %d to %d; records from there are read again: %s",
            self._label,
            partition,
            committed.offset,
            error.offset,
            error,
        )
        return error

    def _waited(self, delay: float, deadline: float | None) -> bool:
        while delay > 0:
            if deadline is None and self.is_closing_requested():
                return False
            self._scope.clock.sleep(min(delay, _LONGEST_WAIT))
            delay -= _LONGEST_WAIT
        self._measures.retried()
        return True

    def discard(self, partition: TopicPartition, tokens: Collection[Token]) -> None:
        # One refused token must not block the others: each is then discarded alone. After a
        # RetriableException the others would fail in the same way.
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
                "%s: discarding %s of %s failed; a later generation retries",
                self._label,
                ", ".join(map(str, left)),
                partition,
                exc_info=error,
            )

    def _discard(self, partition: TopicPartition, tokens: tuple[Token, ...]) -> Exception | None:
        try:
            with self._measures.phase(Phase.DISCARD):
                self._scope.call("discard", partition, tokens)
        except Exception as error:
            self._scope.raise_failure()
            return error
        self._scope.write(self._commits.mark_discarded, partition, tokens)
        return None


def committable(
    returned: Any,
    *,
    offered: Mapping[TopicPartition, OffsetAndMetadata],
    floor: Mapping[TopicPartition, int],
    prepared: Mapping[TopicPartition, Collection[str]],
    label: str,
) -> dict[TopicPartition, OffsetAndMetadata]:
    if not isinstance(returned, Mapping):
        log.warning(
            "%s: pre_commit returned %r, not a mapping of offsets; nothing is committed for %s "
            "(return {} when there is nothing to commit)",
            label,
            returned,
            ", ".join(map(str, offered)),
        )
        return {}
    sound = {}
    for partition, offset in returned.items():
        flaw = flaw_of(partition, offset, offered, floor, prepared)
        if flaw is None:
            # Numpy's integers and plain tuples are accepted, but the store needs Python's types.
            sound[TopicPartition(*partition)] = OffsetAndMetadata(
                operator.index(offset.offset), offset.metadata, offset.tokens
            )
        else:
            log.warning(
                "%s: pre_commit returned %s for %s, %s; ignored: %s",
                label,
                getattr(offset, "offset", offset),
                partition if _is_partition(partition) else repr(partition),
                flaw,
                _kept(partition, floor),
            )
    return sound


def flaw_of(
    partition: TopicPartition,
    offset: Any,
    offered: Mapping[TopicPartition, OffsetAndMetadata],
    floor: Mapping[TopicPartition, int],
    prepared: Mapping[TopicPartition, Collection[str]],
) -> str | None:
    if partition not in offered:
        if _is_partition(partition):
            return "which is not part of this commit"
        return "but the keys of its result must be TopicPartition, as in the argument of pre_commit"
    if nonsense := _nonsense(offset):
        return nonsense
    if offset.offset > offered[partition].offset:
        return f"beyond the last delivered record (next offset {offered[partition].offset})"
    if offset.offset < floor[partition]:
        return "below the committed offset: a commit never moves back"
    unknown = [token.id for token in offset.tokens if token.id not in prepared[partition]]
    return f"with tokens that were not passed to context.prepared: {', '.join(unknown)}" if unknown else None


def _kept(partition: Any, floor: Mapping[TopicPartition, int]) -> str:
    if partition in floor:
        return f"the commit stays at {floor[partition]}"
    if _is_partition(partition):
        return "its commit is unchanged"
    return f"this entry commits nothing for {', '.join(map(str, floor))}"


def _is_partition(key: Any) -> bool:
    return isinstance(key, tuple) and len(key) == 2  # noqa: PLR2004 - or a plain tuple


def _nonsense(offset: Any) -> str | None:
    # A type checker may not have seen the connector's code.
    if not isinstance(offset, OffsetAndMetadata):
        return f"which is of type {type(offset).__name__}, not an OffsetAndMetadata"
    number: Any = offset.offset
    metadata: Any = offset.metadata
    if not isinstance(number, SupportsIndex):
        return "which is not a whole number"
    if not isinstance(metadata, str):
        return f"with metadata {metadata!r}, which is not a string"
    flaw = token_flaw(offset.publish)
    return f"with invalid tokens: {flaw}" if flaw else None
