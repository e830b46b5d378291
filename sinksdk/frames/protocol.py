"""What a micro-batch commits, and which micro-batches are skipped or refused. Pure: no I/O, no Spark.

A micro-batch is the unit of a commit. Its tasks prepare and commit nothing; the driver commits what all of
them have prepared, together with the query's id and the micro-batch's number, in one compare-and-set.
Whatever Spark runs again after that is recognised by id and number, and is skipped.
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
"""Streaming queries whose newest micro-batch is remembered, those that have committed last."""
_RUNS: Final = 200
"""Superseded runs that are remembered."""

Tokens = Mapping[TopicPartition, Mapping[str, Token]]
"""Tokens by partition and id."""


@dataclass(frozen=True, slots=True)
class Writing:
    """Which micro-batch is written.

    Args:
        query: id of the streaming query, the same as long as its checkpoint; or of one batch write.
        run: id of this run of the query: another one after each start.
        batch: number of the micro-batch; None: a batch write.
    """

    query: str
    run: str
    batch: int | None = None

    def as_written(self) -> WrittenBatch:
        """In the store's form."""
        return WrittenBatch(query=self.query, batch=self.batch)

    def __str__(self) -> str:
        return str(self.as_written())


@dataclass(frozen=True, slots=True)
class Share:
    """What one task of a micro-batch has done.

    Args:
        generation: in which it was done.
        start: the partition's commit before.
        commit: the partition's commit with this micro-batch, with the tokens to publish.
        records: how many were written.
    """

    generation: int
    partition: TopicPartition
    start: int
    commit: OffsetAndMetadata
    records: int


class Standing(Enum):
    """What a run may do with a micro-batch."""

    NEW = auto()
    """The run has not written yet: it takes the connector over from the run before."""
    WRITER = auto()
    """The run is the one that writes."""
    COMMITTED = auto()
    """The micro-batch is committed: its rows must not be written again."""


class CheckpointException(ConnectException):
    """A query began with a micro-batch older than the last one it has committed: its checkpoint went back."""


def standing(connector: str, frames: FrameState | None, writing: Writing) -> Standing:
    """What a run may do with a micro-batch.

    Spark runs at most one committed micro-batch again, the last: it plans none before the checkpoint has the
    one before it. An older number is of a checkpoint that was restored or emptied, and its rows are others.

    Raises:
        FencedException: another run has taken the connector over.
        CheckpointException: a run begins with a micro-batch older than the query's last committed one.
    """
    if frames is None:
        return Standing.NEW
    if writing.run in frames.superseded:
        raise FencedException(
            f"connector {connector}: another query, or another start of this one, writes to it since; "
            f"{writing} is fenced and writes nothing more. Two queries need two names: set another 'name' "
            f"and another 'topic'"
        )
    is_writer = writing.run == frames.writer
    last = next((one for one in frames.written if one.query == writing.query), None)
    if last is None or _follows(writing, last):
        return Standing.WRITER if is_writer else Standing.NEW
    if last.batch != writing.batch and not is_writer:  # the writer's are late attempts of its own tasks
        raise CheckpointException(
            f"connector {connector}: {writing} would be skipped with all its rows, since the query has "
            f"committed up to micro-batch {last.batch}: its checkpoint was restored from an older copy or "
            f"emptied, or another start of the query has gone on meanwhile. Start it with its newest "
            f"checkpoint; or with a new 'checkpointLocation', from where the rows written so far end"
        )
    return Standing.COMMITTED


def taken_over(frames: FrameState | None, run: str, *, is_open: bool) -> FrameState:
    """The state in which a run writes: every other run is fenced."""
    if frames is None:
        return FrameState(writer=run, is_open=is_open)
    others = [one for one in (*frames.superseded, frames.writer) if one != run]
    update = {"writer": run, "is_open": is_open, "superseded": tuple(dict.fromkeys(others))[-_RUNS:]}
    return frames.model_copy(update=update)


def with_batch(frames: FrameState, writing: Writing) -> FrameState:
    """The state in which a micro-batch is committed.

    A batch write is remembered until the next one: Spark never runs it again.
    """
    kept = [
        one
        for one in frames.written
        if one.query != writing.query and not (one.batch is None and writing.batch is None)
    ]
    written = (*kept[-_QUERIES + 1 :], writing.as_written())
    return frames.model_copy(update={"written": written})


def _follows(writing: Writing, last: WrittenBatch) -> bool:
    """Whether a micro-batch comes after the query's last committed one; a batch write is only one."""
    return writing.batch is not None and last.batch is not None and writing.batch > last.batch


@dataclass(frozen=True, slots=True)
class Settled:
    """Commits and stale tokens with a micro-batch.

    Args:
        committed: of every partition.
        stale: tokens that no commit covers: those of attempts whose result Spark did not take, too.
    """

    committed: Mapping[TopicPartition, PartitionCommit]
    stale: Tokens

    def unsettled(self) -> list[TopicPartition]:
        """Partitions with tokens to publish or to discard."""
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
    """The commits with those of a micro-batch's tasks.

    Args:
        before: as the tasks' fenced records have left it.
        prepared_in: the generation whose tasks were fenced.
        generation: that commits.

    Raises:
        ConnectException: a task's result does not follow what is committed.
    """
    committed, stale = dict(before.committed), {p: dict(tokens) for p, tokens in before.stale.items()}
    for share in shares:
        entry, known = committed.get(share.partition), stale.get(share.partition, {})
        problem = _flaw(share, entry, known, prepared_in)
        if problem:
            raise ConnectException(
                f"connector {connector}, {share.partition}: nothing of the micro-batch is committed, for "
                f"{problem}; start the query, or the write, again"
            )
        committed[share.partition] = PartitionCommit.of(share.partition, share.commit, generation, entry)
        for token in share.commit.tokens:
            del known[token.id]
    return Settled(committed, {p: tokens for p, tokens in stale.items() if tokens})


def _flaw(
    share: Share, entry: PartitionCommit | None, prepared: Collection[str], prepared_in: int | None
) -> str | None:
    """Why a task's result cannot be committed, or None."""
    at = entry.offset if entry else 0
    if share.generation != prepared_in:
        return f"its task worked in generation {share.generation}, and {prepared_in} is the newest"
    if share.start != at:
        return f"its task began at offset {share.start}, and {at} is committed"
    if entry is not None and entry.publish:
        return f"what is committed up to {at} is not published yet"
    unknown = [token.id for token in share.commit.tokens if token.id not in prepared]
    if unknown:
        return f"its task has not noted {', '.join(unknown)}"
    return None
