"""The commit of micro-batches with one piece left out, each in turn: what the simulation must notice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from property_tests.simulation.mutations import no_fence, writes_without_condition
from sinksdk import FencedException, OffsetAndMetadata, Token, TopicPartition
from sinksdk.engine.worker import AssignedRange
from sinksdk.frames import batches, protocol
from sinksdk.frames.batches import FrameBatches
from sinksdk.frames.protocol import Settled, Share, Standing, Writing
from sinksdk.frames.task import FrameTask, HeldCommits
from sinksdk.store import TakenOver, table, take_over
from sinksdk.store.keys import plan_key
from sinksdk.store.ledger import Ledger
from sinksdk.store.records import Begun, FrameState, GenerationPlan, WrittenBatch

Patch = pytest.MonkeyPatch


def number_is_not_committed(patch: Patch) -> None:
    """The commit does not say which micro-batch it is of."""
    patch.setattr(batches, "with_batch", lambda frames, writing: frames)


def number_counts_for_every_query(patch: Patch) -> None:
    """A number is skipped, whichever checkpoint it is of."""

    def anyhow(connector: str, frames: FrameState | None, writing: Writing) -> protocol.Standing:
        found = standing(connector, frames, writing)
        numbers = [one.batch for one in frames.written if one.batch is not None] if frames else []
        if writing.batch is not None and any(writing.batch <= number for number in numbers):
            return protocol.Standing.COMMITTED
        return found

    standing = protocol.standing
    patch.setattr(batches, "standing", anyhow)


def only_the_last_query_is_remembered(patch: Patch) -> None:
    """The number of one query replaces that of another."""
    with_batch = protocol.with_batch

    def forgetful(frames: FrameState, writing: Writing) -> FrameState:
        return with_batch(frames.model_copy(update={"written": ()}), writing)

    patch.setattr(batches, "with_batch", forgetful)


def tasks_publish_what_they_commit(patch: Patch) -> None:
    """A task publishes before the driver has committed the micro-batch."""
    commit = HeldCommits.commit

    def eager(
        self: HeldCommits,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *records: Mapping[TopicPartition, int],
    ) -> None:
        commit(self, offsets, *records)
        self._commits.update(offsets)

    patch.setattr(HeldCommits, "commit", eager)
    patch.setattr(HeldCommits, "published", lambda self, partition: None)


def attempts_discard_each_others(patch: Patch) -> None:
    """An attempt discards what another one has prepared, whose result Spark may take."""

    def all_of_them(self: HeldCommits, partition: TopicPartition) -> Sequence[Token]:
        return self._ledger.stale(partition)

    patch.setattr(HeldCommits, "stale", all_of_them)


def everything_prepared_is_committed(patch: Patch) -> None:
    """Also what attempts have prepared whose result Spark did not take."""
    with_shares = protocol.with_shares

    def greedy(connector: str, before: Settled, shares: Iterable[Share], **rest: Any) -> Settled:
        more = []
        for share in shares:
            found = {**before.stale.get(share.partition, {})}
            commit = OffsetAndMetadata(share.commit.offset, publish=tuple(found.values()))
            more.append(replace(share, commit=commit))
        return with_shares(connector, before, more, **rest)

    patch.setattr(batches, "with_shares", greedy)


def published_before_the_commit(patch: Patch) -> None:
    """The driver publishes what the tasks have prepared, then commits it."""
    settled = FrameBatches._settled

    def eager(
        self: FrameBatches, count: Any, writing: Writing, shares: Sequence[Share] | None, settle: Any
    ) -> bool:
        destination = settle.__self__.destination
        for share in shares or ():
            for token in share.commit.tokens:
                destination.complete(token.id)
        return settled(self, count, writing, shares, settle)

    patch.setattr(FrameBatches, "_settled", eager)


def nothing_is_published_after_a_crash(patch: Patch) -> None:
    """A micro-batch that is committed needs nothing any more; nobody but its driver publishes it."""
    commit, write = FrameBatches.commit, FrameTask.write

    def careless(self: FrameBatches, writing: Writing, shares: Sequence[Share], settle: Any) -> None:
        frames = self._newest().frames
        if protocol.standing(self._connector, frames, writing) is not Standing.COMMITTED:
            commit(self, writing, shares, settle)

    def overwriting(self: FrameTask, rows: Any) -> Share:
        self._worker._committer.publish = lambda partition, deadline=None: None
        return write(self, rows)

    patch.setattr(FrameBatches, "commit", careless)
    patch.setattr(FrameTask, "write", overwriting)
    patch.setattr(protocol, "_flaw", lambda *_: None)


def abort_discards_what_is_committed(patch: Patch) -> None:
    """A driver whose commit has failed takes it for not done, and cleans up what its tasks told it."""
    commit = FrameBatches.commit

    def tidy(self: FrameBatches, writing: Writing, shares: Sequence[Share], settle: Any) -> None:
        try:
            commit(self, writing, shares, settle)
        except Exception:
            for share in shares:
                for token in share.commit.tokens:
                    settle.__self__.destination.abort(token.id)
            raise

    patch.setattr(FrameBatches, "commit", tidy)


def fenced_runs_come_back(patch: Patch) -> None:
    """Nobody remembers which runs were fenced: two queries take the connector from each other for ever."""

    def forgetful(frames: FrameState | None, run: str, *, is_open: bool) -> FrameState:
        return (frames or FrameState(writer=run)).model_copy(update={"writer": run, "is_open": is_open})

    patch.setattr(batches, "taken_over", forgetful)


def uncounted_tasks(patch: Patch) -> None:
    """Further tasks are planned and not counted: nobody fences them, nobody finds what they have prepared."""

    def taken(
        self: FrameBatches, count: Any, plan: table.Row[GenerationPlan], writing: Any, number: int
    ) -> TakenOver | None:
        if number >= len(plan.value.tasks):
            committed = {entry.topic_partition: entry for entry in plan.value.committed}
            more = self._terms.tasks(number + 1, committed)
            key = plan_key(self._connector, plan.value.generation)
            longer = plan.value.model_copy(update={"tasks": more})
            table.write(self._store, key, longer, plan.version)
        return take_over(self._store, self._connector, plan.value.generation, number)

    patch.setattr(FrameBatches, "_taken", taken)


def result_of_any_generation_is_taken(patch: Patch) -> None:
    """A task's result is committed, whatever has happened to its record since."""
    with_shares = protocol.with_shares

    def lenient(connector: str, before: Settled, shares: Iterable[Share], **rest: Any) -> Settled:
        known = {p: dict(tokens) for p, tokens in before.stale.items()}
        for share in shares:
            tokens = {token.id: token for token in share.commit.tokens}
            known[share.partition] = {**known.get(share.partition, {}), **tokens}
        return with_shares(connector, Settled(before.committed, known), shares, **rest)

    patch.setattr(protocol, "_flaw", lambda *_: None)
    patch.setattr(batches, "with_shares", lenient)
    patch.setattr(batches, "standing", _never_fenced)


def _never_fenced(connector: str, frames: FrameState | None, writing: Writing) -> Standing:
    try:
        return protocol.standing(connector, frames, writing)
    except FencedException:
        return Standing.WRITER


def stale_tokens_are_not_carried(patch: Patch) -> None:
    """What no commit covers is forgotten with the commit."""

    def forgetful(connector: str, before: Settled, shares: Iterable[Share], **rest: Any) -> Settled:
        return replace(protocol.with_shares(connector, before, shares, **rest), stale={})

    patch.setattr(batches, "with_shares", forgetful)


def rows_kept_back_are_taken_for_written(patch: Patch) -> None:
    """A task's records count as written, whatever its last pre_commit has returned."""

    def anyhow(self: FrameTask, rows: Any) -> Share:
        partition, start = self.partition, self._start
        (outcome,) = self._run([AssignedRange(partition, None, due=False)], self._numbered(rows))
        held = self._commits.held_commit(partition) or OffsetAndMetadata(start)
        commit = OffsetAndMetadata(outcome.delivered, held.metadata, held.publish)
        return Share(self._plan.generation, partition, start, commit, outcome.records)

    patch.setattr(FrameTask, "write", anyhow)


def whatever_the_table_has_is_skipped(patch: Patch) -> None:
    """Offsets begin at the commit, whoever has written the rows that the table has beyond it."""

    def begun(before: Begun | None, partition: TopicPartition, at: int, batch: WrittenBatch) -> Begun:
        return Begun(topic=partition.topic, at=at, batch=batch, base=at)

    patch.setattr(Begun, "after", begun)


def nothing_that_the_table_has_is_skipped(patch: Patch) -> None:
    """Offsets begin where the table is, also where the same micro-batch has written those rows before."""

    def begun(before: Begun | None, partition: TopicPartition, at: int, batch: WrittenBatch) -> Begun:
        return Begun(topic=partition.topic, at=at, batch=batch)

    patch.setattr(Begun, "after", begun)


def first_offset_is_not_noted(patch: Patch) -> None:
    """Each attempt finds out by itself where the table is."""
    patch.setattr(Ledger, "begin_at", lambda self, offset: None)


MUTATIONS: Mapping[str, Callable[[Patch], None]] = {
    mutation.__name__: mutation
    for mutation in (
        number_is_not_committed,
        number_counts_for_every_query,
        only_the_last_query_is_remembered,
        tasks_publish_what_they_commit,
        attempts_discard_each_others,
        everything_prepared_is_committed,
        published_before_the_commit,
        nothing_is_published_after_a_crash,
        abort_discards_what_is_committed,
        fenced_runs_come_back,
        uncounted_tasks,
        result_of_any_generation_is_taken,
        stale_tokens_are_not_carried,
        rows_kept_back_are_taken_for_written,
        whatever_the_table_has_is_skipped,
        nothing_that_the_table_has_is_skipped,
        first_offset_is_not_noted,
        no_fence,
        writes_without_condition,
    )
}
"""What breaks the promise: random schedules must notice."""
