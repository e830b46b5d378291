"""Decides what a micro-batch commits, and which micro-batches are skipped or refused. No I/O, no Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from sinksdk.errors import ConnectException, FencedException
from sinksdk.offsets import OffsetAndMetadata, Token, TopicPartition
from sinksdk.store.records import FrameState, PartitionCommit, WrittenBatch

# Streaming queries whose last micro-batch is stored: those that committed last.
_QUERIES: Final = 200
_RUNS: Final = 200

Tokens = Mapping[TopicPartition, Mapping[str, Token]]


@dataclass(frozen=True, slots=True)
class Writing:
    """Identifies a micro-batch by its query, its run (new at each start) and its number.

    Batch writes have no number.
    """

    query: str
    run: str
    batch: int | None = None

    def as_stored(self) -> WrittenBatch:
        return WrittenBatch(query=self.query, batch=self.batch)

    def __str__(self) -> str:
        return str(self.as_stored())


@dataclass(frozen=True, slots=True)
class Share:
    """A task's result: its commit with the tokens to publish, and the offset that was committed before."""

    generation: int
    partition: TopicPartition
    start: int
    commit: OffsetAndMetadata
    records: int


class Standing(Enum):
    """What a run may do with a micro-batch: take over and write it, write it as the owner, or skip it."""

    NEW = auto()
    WRITER = auto()
    COMMITTED = auto()


class CheckpointException(ConnectException):
    """A query starts with an older micro-batch than its last committed one: its checkpoint was restored."""


def standing(connector: str, frames: FrameState | None, writing: Writing) -> Standing:
    if frames is None:
        return Standing.NEW
    if writing.run in frames.superseded:
        raise FencedException(
            f"connector {connector}: {writing} is fenced, because another query, or another start of this "
            f"query, has taken over the connector. For two queries set different 'name' and 'topic'"
        )
    is_writer = writing.run == frames.writer
    last = next((stored for stored in frames.written if stored.query == writing.query), None)
    if last is None or _follows(writing, last):
        return Standing.WRITER if is_writer else Standing.NEW
    # Spark repeats at most the last committed micro-batch, because it plans the next one after the checkpoint
    # has it. An older number means a restored checkpoint, and other rows.
    if last.batch != writing.batch and not is_writer:  # the writer's own tasks may run late attempts
        raise CheckpointException(
            f"connector {connector}: {writing} would be skipped with all its rows, because the query has "
            f"committed micro-batch {last.batch} already: the checkpoint was restored from an older copy or "
            f"emptied, or another start of the query has continued. Start the query with its newest "
            f"checkpoint; or with a new 'checkpointLocation', after the rows written so far"
        )
    return Standing.COMMITTED


def taken_over(frames: FrameState | None, run: str, *, is_open: bool) -> FrameState:
    """Return the state in which ``run`` owns the connector and all other runs are fenced."""
    if frames is None:
        return FrameState(writer=run, is_open=is_open)
    others = [other for other in (*frames.superseded, frames.writer) if other != run]
    update = {"writer": run, "is_open": is_open, "superseded": tuple(dict.fromkeys(others))[-_RUNS:]}
    return frames.model_copy(update=update)


def with_batch(frames: FrameState, writing: Writing) -> FrameState:
    # Spark does not repeat batch writes, so only the last one is kept.
    kept = [
        stored
        for stored in frames.written
        if stored.query != writing.query and not (stored.batch is None and writing.batch is None)
    ]
    written = (*kept[-_QUERIES + 1 :], writing.as_stored())
    return frames.model_copy(update={"written": written})


def _follows(writing: Writing, last: WrittenBatch) -> bool:

    return writing.batch is not None and last.batch is not None and writing.batch > last.batch


@dataclass(frozen=True, slots=True)
class Settled:
    """Commits of all partitions, and ``stale`` tokens that no commit covers, also of unused attempts."""

    committed: Mapping[TopicPartition, PartitionCommit]
    stale: Tokens

    def unsettled(self) -> list[TopicPartition]:
        waiting = {p for p, entry in self.committed.items() if entry.publish}
        return sorted(waiting | {p for p, tokens in self.stale.items() if tokens})


def with_shares(
    connector: str,
    before: Settled,
    shares: Iterable[Share],
    *,
    prepared_in: int | None,
    generation: int,
) -> Settled:
    """Add the results of tasks that ran in the fenced generation ``prepared_in`` to the commits."""
    committed, stale = dict(before.committed), {p: dict(tokens) for p, tokens in before.stale.items()}
    for share in shares:
        entry, known = committed.get(share.partition), stale.get(share.partition, {})
        problem = _problem(share, entry, known, prepared_in)
        if problem:
            raise ConnectException(
                f"connector {connector}, {share.partition}: the micro-batch is not committed, because "
                f"{problem}; start the query or the write again"
            )
        committed[share.partition] = PartitionCommit.of(share.partition, share.commit, generation, entry)
        for token in share.commit.tokens:
            del known[token.id]
    return Settled(committed, {p: tokens for p, tokens in stale.items() if tokens})


def _problem(
    share: Share, entry: PartitionCommit | None, prepared: Collection[str], prepared_in: int | None
) -> str | None:
    at = entry.offset if entry else 0
    if share.generation != prepared_in:
        return f"its task ran in generation {share.generation}, but the newest is {prepared_in}"
    if share.start != at:
        return f"its task started at offset {share.start}, but {at} is committed"
    if entry is not None and entry.publish:
        return f"the commit at offset {at} is not published yet"
    unknown = [token.id for token in share.commit.tokens if token.id not in prepared]
    if unknown:
        return f"its task has not stored the tokens {', '.join(unknown)}"
    return None
