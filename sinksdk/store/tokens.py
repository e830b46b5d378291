"""State machine of a task's tokens in the two-phase commit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import NamedTuple

from sinksdk.errors import ConnectException
from sinksdk.records import OffsetAndMetadata, Token, TopicPartition
from sinksdk.store.records import Entry, Noted, TaskRecord, by_partition, noted

TokensByPartition = Mapping[TopicPartition, Mapping[str, Token]]
"""Tokens by partition and id."""


class TokenState(Enum):
    """State of a token that is neither published nor discarded.

    ========  ================================================  ======================
    step      from                                              to
    ========  ================================================  ======================
    prepare   nothing; STALE, LEFT, PREPARED (an id used again)  PREPARED
    commit    PREPARED                                          COMMITTED
    publish   COMMITTED                                         published
    withdraw  COMMITTED                                         PREPARED or published
    discard   STALE, LEFT, PREPARED                             discarded
    ========  ================================================  ======================

    When a generation or an attempt ends, tokens that are not COMMITTED become STALE or LEFT for its
    successor.
    """

    STALE = auto()
    """The plan lists it: a task of an earlier generation prepared it."""
    LEFT = auto()
    """An earlier attempt of this generation prepared it."""
    PREPARED = auto()
    """This attempt prepared it, or withdrew the commit that covered it."""
    COMMITTED = auto()
    """The partition's last commit covers it; it waits to be published."""


class _Kept(NamedTuple):
    token: Token
    state: TokenState


_ByPartition = Mapping[TopicPartition, Mapping[str, _Kept]]


@dataclass(frozen=True, slots=True)
class Tokens:
    """A task's tokens that are neither published nor discarded, each in one state.

    Immutable: each step returns a new object, so a step whose write fails has no effect. A forbidden step
    raises ConnectException.
    """

    _kept: _ByPartition
    _planned: Collection[str]

    @classmethod
    def taken_over(cls, record: TaskRecord, planned: TokensByPartition, commits: Iterable[Entry]) -> Tokens:
        """Tokens left by predecessors: in the plan, in the task's record, and with the last commits."""
        kept: _ByPartition = {}
        for partition, stale in planned.items():
            open_still = [token for key, token in stale.items() if key not in record.discarded]
            kept = _with(kept, partition, open_still, TokenState.STALE)
        for row in record.prepared:
            kept = _with(kept, row.topic_partition, row.tokens, TokenState.LEFT)
        for entry in commits:
            kept = _with(kept, entry.topic_partition, entry.publish, TokenState.COMMITTED)
        return cls(kept, dict.fromkeys(key for stale in planned.values() for key in stale))

    def of(self, partition: TopicPartition, *states: TokenState) -> tuple[Token, ...]:
        """A partition's tokens in one of these states, in the order of their preparation."""
        return tuple(kept.token for kept in self._kept.get(partition, {}).values() if kept.state in states)

    def noted(self) -> tuple[Noted, ...]:
        """The task record's tokens: those of this generation that no commit covers."""
        states = TokenState.LEFT, TokenState.PREPARED
        return noted({partition: self.of(partition, *states) for partition in self._kept})

    def discarded(self) -> tuple[str, ...]:
        """Ids in the plan that need no discarding any more, in the plan's order."""
        states = TokenState.STALE, TokenState.LEFT, TokenState.PREPARED
        uncommitted = {key for partition in self._kept for key in self._ids(partition, *states)}
        return tuple(key for key in self._planned if key not in uncommitted)

    def prepare(self, given: Mapping[TopicPartition, Sequence[Token]]) -> Tokens:
        """Record tokens as prepared. An id left by a predecessor, for any partition, is in use again."""
        for partition, tokens in given.items():
            unpublished = self._ids(partition, TokenState.COMMITTED)
            committed = [token.id for token in tokens if token.id in unpublished]
            _refuse(partition, "note", committed, "is committed and not published")
        ids = {token.id for tokens in given.values() for token in tokens}
        inherited = TokenState.STALE, TokenState.LEFT
        kept: _ByPartition = {
            partition: {key: one for key, one in ones.items() if key not in ids or one.state not in inherited}
            for partition, ones in self._kept.items()
        }
        for partition, tokens in given.items():
            kept = _with(kept, partition, tokens, TokenState.PREPARED)
        return replace(self, _kept=kept)

    def commit(self, partition: TopicPartition, offset: OffsetAndMetadata) -> Tokens:
        """A commit covers these tokens, with the data it lists: it may have changed since ``prepare``."""
        waiting = self.of(partition, TokenState.COMMITTED)
        if waiting:
            raise ConnectException(
                f"{partition}: a commit at {offset.offset} would overwrite tokens that are committed and "
                f"not published: {', '.join(token.id for token in waiting)}"
            )
        self._refuse_unknown(partition, offset)
        return replace(self, _kept=_with(self._kept, partition, offset.tokens, TokenState.COMMITTED))

    def _refuse_unknown(self, partition: TopicPartition, offset: OffsetAndMetadata) -> None:
        prepared = self._ids(partition, TokenState.PREPARED)
        unknown = [token.id for token in offset.tokens if token.id not in prepared]
        _refuse(partition, "commit", unknown, "was not noted by this attempt")

    def publish(self, partition: TopicPartition) -> Tokens:
        """All tokens of the partition's last commit are published."""
        return replace(
            self, _kept=_without(self._kept, partition, self._ids(partition, TokenState.COMMITTED))
        )

    def withdraw(self, partition: TopicPartition, discard: Sequence[Token]) -> Tokens:
        """The last commit covers no token any more: these must be discarded, the others are published."""
        committed = self._ids(partition, TokenState.COMMITTED)
        _refuse(partition, "withdraw", [t.id for t in discard if t.id not in committed], "is not committed")
        left = _without(self._kept, partition, committed)
        return replace(self, _kept=_with(left, partition, discard, TokenState.PREPARED))

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> Tokens:
        """These are discarded."""
        ids = [token.id for token in tokens]
        uncommitted = self._ids(partition, TokenState.STALE, TokenState.LEFT, TokenState.PREPARED)
        others = [key for key in ids if key not in uncommitted]
        _refuse(partition, "discard", others, "is committed, published or discarded already")
        return replace(self, _kept=_without(self._kept, partition, ids))

    def _ids(self, partition: TopicPartition, *states: TokenState) -> set[str]:
        return {token.id for token in self.of(partition, *states)}


def _with(
    kept: _ByPartition, partition: TopicPartition, tokens: Sequence[Token], state: TokenState
) -> _ByPartition:
    if not tokens:
        return kept
    return {**kept, partition: {**kept.get(partition, {}), **{t.id: _Kept(t, state) for t in tokens}}}


def _without(kept: _ByPartition, partition: TopicPartition, ids: Collection[str]) -> _ByPartition:
    """Drops partitions without tokens."""
    left = {key: one for key, one in kept.get(partition, {}).items() if key not in ids}
    others = {p: ones for p, ones in kept.items() if p != partition}
    return {**others, partition: left} if left else others


def _refuse(partition: TopicPartition, step: str, ids: Sequence[str], why: str) -> None:
    if ids:
        raise ConnectException(f"{partition}: cannot {step} token {', '.join(ids)}, which {why}")


def stale_after(
    planned: Sequence[Noted], records: Sequence[TaskRecord], commits: Iterable[Entry]
) -> dict[TopicPartition, dict[str, Token]]:
    """A generation's stale tokens: prepared in it or before, neither committed nor discarded.

    Args:
        commits: the last commit of each partition.
    """
    stale = by_partition(planned)
    for record in records:
        for partition, tokens in by_partition(record.prepared).items():
            stale.setdefault(partition, {}).update(tokens)
    settled = {token.id for entry in commits for token in entry.publish}
    for record in records:
        # Older versions list withdrawn tokens twice: as discarded, and as prepared again.
        settled |= set(record.discarded) - {token.id for row in record.prepared for token in row.tokens}
    left = {p: {key: one for key, one in ones.items() if key not in settled} for p, ones in stale.items()}
    return {partition: tokens for partition, tokens in left.items() if tokens}
