"""State machine of a task's tokens in the two-phase commit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final, NamedTuple

from sinksdk.errors import ConnectException
from sinksdk.offsets import OffsetAndMetadata, Token, TopicPartition
from sinksdk.store.records import (
    PartitionCommit,
    PreparedTokens,
    RetiredTokens,
    TaskRecord,
    by_partition,
    digest,
    prepared_tokens,
    retired,
)

TokensByPartition = Mapping[TopicPartition, Mapping[str, Token]]


class TokenState(Enum):
    """State of a token that is neither published nor discarded.

    ========  =====================  =====================
    step      from                   to
    ========  =====================  =====================
    prepare   nothing; PREPARED      PREPARED
    commit    PREPARED               COMMITTED
    publish   COMMITTED              published
    withdraw  COMMITTED              PREPARED or published
    discard   STALE, LEFT, PREPARED  discarded
    ========  =====================  =====================

    When a generation or attempt ends, its uncommitted tokens become STALE or LEFT for the successor.
    """

    STALE = auto()  # prepared in an earlier generation; the plan lists it
    LEFT = auto()  # prepared by an earlier attempt of this generation
    PREPARED = auto()  # prepared by this attempt, or its commit was withdrawn
    COMMITTED = auto()  # covered by the last commit, not published yet


class _Kept(NamedTuple):
    token: Token
    state: TokenState


_NEW_IDS: Final = (
    "and another process may be about to discard it: use a new id in each attempt, for example with "
    "uuid.uuid4().hex"
)

_ByPartition = Mapping[TopicPartition, Mapping[str, _Kept]]


@dataclass(frozen=True, slots=True)
class TaskTokens:
    """A task's tokens that are neither published nor discarded.

    Each step returns a new object, so that a step whose write fails has no effect.
    """

    _kept: _ByPartition
    _planned: Collection[str]
    _retired: Mapping[TopicPartition, tuple[str, ...]] = field(default_factory=dict)
    _known: frozenset[str] = frozenset()

    @classmethod
    def taken_over(
        cls,
        record: TaskRecord,
        planned: TokensByPartition,
        commits: Iterable[PartitionCommit],
        before: Iterable[RetiredTokens] = (),
    ) -> TaskTokens:
        kept: _ByPartition = {}
        for partition, stale in planned.items():
            open_still = [token for key, token in stale.items() if key not in record.discarded]
            kept = _with(kept, partition, open_still, TokenState.STALE)
        for row in record.prepared:
            kept = _with(kept, row.topic_partition, row.tokens, TokenState.LEFT)
        for entry in commits:
            kept = _with(kept, entry.topic_partition, entry.publish, TokenState.COMMITTED)
        own = {row.topic_partition: row.ids for row in record.retired}
        known = frozenset(one for row in (*before, *record.retired) for one in row.ids)
        return cls(kept, dict.fromkeys(key for stale in planned.values() for key in stale), own, known)

    def of(self, partition: TopicPartition, *states: TokenState) -> tuple[Token, ...]:
        return tuple(kept.token for kept in self._kept.get(partition, {}).values() if kept.state in states)

    def uncommitted(self) -> tuple[PreparedTokens, ...]:
        states = TokenState.LEFT, TokenState.PREPARED
        return prepared_tokens({partition: self.of(partition, *states) for partition in self._kept})

    def discarded(self) -> tuple[str, ...]:
        """Return the plan's ids that need no discarding any more, in its order."""
        states = TokenState.STALE, TokenState.LEFT, TokenState.PREPARED
        uncommitted = {key for partition in self._kept for key in self._ids(partition, *states)}
        return tuple(key for key in self._planned if key not in uncommitted)

    def retired(self) -> tuple[RetiredTokens, ...]:
        return retired(
            [RetiredTokens(topic=p.topic, partition=p.partition, ids=ids) for p, ids in self._retired.items()]
        )

    def unusable(self, given: Mapping[TopicPartition, Sequence[Token]]) -> dict[TopicPartition, str]:
        """Return why a token cannot be prepared, by partition."""
        owners = {key: (p, one.state) for p, ones in self._kept.items() for key, one in ones.items()}
        found: dict[TopicPartition, str] = {}
        for partition, tokens in given.items():
            for token in tokens:
                owner, state = owners.setdefault(token.id, (partition, TokenState.PREPARED))
                flaw = self._flaw(token, state, owner, partition)
                if flaw:
                    found.setdefault(partition, f"token {token.id} {flaw}")
        return found

    def _flaw(
        self, token: Token, state: TokenState, owner: TopicPartition, partition: TopicPartition
    ) -> str | None:
        if state is TokenState.COMMITTED:
            return "is committed, and not published yet"
        # A predecessor may be frozen right before it discards a token. If an inherited or discarded id were
        # used again, the predecessor could resume and destroy what its successor has committed.
        if state is not TokenState.PREPARED:
            return f"was prepared by an earlier attempt, {_NEW_IDS}"
        if owner != partition:
            return f"was prepared for {owner}: use a different token for each partition"
        return f"was discarded before, {_NEW_IDS}" if digest(token.id) in self._known else None

    def prepare(self, given: Mapping[TopicPartition, Sequence[Token]]) -> TaskTokens:
        for partition, flaw in self.unusable(given).items():
            raise ConnectException(f"{partition}: {flaw}")
        kept = self._kept
        for partition, tokens in given.items():
            kept = _with(kept, partition, tokens, TokenState.PREPARED)
        return replace(self, _kept=kept)

    def commit(self, partition: TopicPartition, offset: OffsetAndMetadata) -> TaskTokens:
        waiting = self.of(partition, TokenState.COMMITTED)
        if waiting:
            raise ConnectException(
                f"{partition}: a commit at {offset.offset} would overwrite tokens that are committed and "
                f"not published: {', '.join(token.id for token in waiting)}"
            )
        prepared = self._ids(partition, TokenState.PREPARED)
        unknown = [token.id for token in offset.tokens if token.id not in prepared]
        _refuse(partition, "commit", unknown, "was not prepared by this attempt")
        left = _without(self._kept, partition, [token.id for token in offset.tokens])
        # A token's data may have changed since it was prepared: the data of the commit counts.
        return replace(self, _kept=_with(left, partition, offset.tokens, TokenState.COMMITTED))

    def publish(self, partition: TopicPartition) -> TaskTokens:
        return replace(
            self, _kept=_without(self._kept, partition, self._ids(partition, TokenState.COMMITTED))
        )

    def withdraw(self, partition: TopicPartition, discard: Sequence[Token]) -> TaskTokens:
        """Withdraw the commit: the given tokens of it must be discarded, the others are published."""
        committed = self._ids(partition, TokenState.COMMITTED)
        _refuse(partition, "withdraw", [t.id for t in discard if t.id not in committed], "is not committed")
        left = _without(self._kept, partition, committed)
        return replace(self, _kept=_with(left, partition, discard, TokenState.PREPARED))

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> TaskTokens:
        ids = [token.id for token in tokens]
        uncommitted = self._ids(partition, TokenState.STALE, TokenState.LEFT, TokenState.PREPARED)
        others = [key for key in ids if key not in uncommitted]
        _refuse(partition, "discard", others, "is committed, published or discarded already")
        digests = tuple(map(digest, ids))
        before = tuple(one for one in self._retired.get(partition, ()) if one not in digests)
        return replace(
            self,
            _kept=_without(self._kept, partition, ids),
            _retired={**self._retired, partition: before + digests},
            _known=self._known.union(digests),
        )

    def _ids(self, partition: TopicPartition, *states: TokenState) -> set[str]:
        return {token.id for token in self.of(partition, *states)}


def _with(
    kept: _ByPartition, partition: TopicPartition, tokens: Sequence[Token], state: TokenState
) -> _ByPartition:
    if not tokens:
        return kept
    return {**kept, partition: {**kept.get(partition, {}), **{t.id: _Kept(t, state) for t in tokens}}}


def _without(kept: _ByPartition, partition: TopicPartition, ids: Collection[str]) -> _ByPartition:
    left = {key: one for key, one in kept.get(partition, {}).items() if key not in ids}
    others = {p: ones for p, ones in kept.items() if p != partition}
    return {**others, partition: left} if left else others


def _refuse(partition: TopicPartition, step: str, ids: Sequence[str], why: str) -> None:
    if ids:
        raise ConnectException(f"{partition}: cannot {step} token {', '.join(ids)}, which {why}")


def stale_after(
    planned: Sequence[PreparedTokens], records: Sequence[TaskRecord], commits: Iterable[PartitionCommit]
) -> dict[TopicPartition, dict[str, Token]]:
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
