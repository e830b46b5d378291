"""Decides what a micro-batch commits, and which micro-batches are skipped or refused. No I/O, no Spark.

A commit covers a whole micro-batch. Its tasks prepare tokens and commit nothing; the driver commits the
tokens of all tasks, with the query's id and the micro-batch's number, in one compare-and-set. Id and number
identify a micro-batch that Spark runs again, which is skipped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from sinksdk.errors import ConnectException, FencedException
from sinksdk.offsets import OffsetAndMetadata, Token, TopicPartition
from sinksdk.store.records import FrameState, PartitionCommit, WrittenBatch

_QUERIES: Final = 200
"""Number of streaming queries whose last micro-batch is stored: those that committed last."""
_RUNS: Final = 200

Tokens = Mapping[TopicPartition, Mapping[str, Token]]


@dataclass(frozen=True, slots=True)
class Writing:
    """Identifies a micro-batch.

    Args:
        query: id of the streaming query, which its checkpoint keeps; or of a batch write.
        run: id of the query's run, new at each start.
        batch: number of the micro-batch; None: a batch write.
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
    """The result of a task of a micro-batch.

    Args:
        generation: the task's generation.
        start: the partition's committed offset before the micro-batch.
        commit: the partition's commit with this micro-batch, with the tokens to publish.
        records: number of records written.
    """

    generation: int
    partition: TopicPartition
    start: int
    commit: OffsetAndMetadata
    records: int


class Standing(Enum):
    """What a run of a query may do with a micro-batch."""

    NEW = auto()
    """Write it, after it has taken over the connector from the previous run."""
    WRITER = auto()
    """Write it: the run owns the connector."""
    COMMITTED = auto()
    """Skip it: the micro-batch is already committed."""


class CheckpointException(ConnectException):
    """A query starts with an older micro-batch than its last committed one: its checkpoint was restored."""


def standing(connector: str, frames: FrameState | None, writing: Writing) -> Standing:
    """Decide what a run may do with a micro-batch.

    Spark repeats at most the last committed micro-batch: it plans a micro-batch only after the checkpoint has
    the previous one. An older number means that the checkpoint was restored or emptied, and belongs to other
    rows.

    Raises:
        FencedException: another run has taken over the connector.
        CheckpointException: a run starts with an older micro-batch than the query's last committed one.
    """
    if frames is None:
        return Standing.NEW
    if writing.run in frames.superseded:
        raise FencedException(
            f"connector {connector}: {writing} is fenced, because another query, or another start of this "
            f"query, has taken over the connector. For two queries set different 'name' and 'topic'"
        )
    is_writer = writing.run == frames.writer
    last = next((one for one in frames.written if one.query == writing.query), None)
    if last is None or _follows(writing, last):
        return Standing.WRITER if is_writer else Standing.NEW
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
    others = [one for one in (*frames.superseded, frames.writer) if one != run]
    update = {"writer": run, "is_open": is_open, "superseded": tuple(dict.fromkeys(others))[-_RUNS:]}
    return frames.model_copy(update=update)


def with_batch(frames: FrameState, writing: Writing) -> FrameState:
    """Return the state in which a micro-batch is committed.

    Only the last batch write is kept: Spark does not repeat batch writes.
    """
    kept = [
        one
        for one in frames.written
        if one.query != writing.query and not (one.batch is None and writing.batch is None)
    ]
    written = (*kept[-_QUERIES + 1 :], writing.as_stored())
    return frames.model_copy(update={"written": written})


def _follows(writing: Writing, last: WrittenBatch) -> bool:

    return writing.batch is not None and last.batch is not None and writing.batch > last.batch


@dataclass(frozen=True, slots=True)
class Settled:
    """Commits of all partitions, and tokens that no commit covers.

    Args:
        stale: among them tokens of attempts whose result Spark did not use.
    """

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
    """Add the results of a micro-batch's tasks to the commits.

    Args:
        before: the state of the fenced tasks' records.
        prepared_in: the generation whose tasks were fenced.
        generation: the generation that commits.

    Raises:
        ConnectException: a task's result does not continue the commits.
    """
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
