"""The commit of micro-batches with one piece left out, each in turn: what the simulation must notice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from property_tests.simulation.frames import FileTask
from property_tests.simulation.mutations import no_fence, writes_without_condition
from property_tests.simulation.planted import (
    COMMITS,
    CONFIG,
    PLANS,
    Patch,
    Plant,
    Value,
    fields,
    no_tokens,
    others_read_as,
    plants,
    publishes_in_pre_commit,
    reads_as,
    writes_as,
)
from property_tests.simulation.store import SimulatedStore
from sinksdk import ConnectException, FencedException, OffsetAndMetadata, Token, TopicPartition
from sinksdk.frames import batches, protocol, task
from sinksdk.frames.batches import FrameBatches
from sinksdk.frames.protocol import Settled, Share, Standing, Writing
from sinksdk.frames.task import HeldCommits
from sinksdk.store import TakenOver, table
from sinksdk.store.generations import Claim, Generations
from sinksdk.store.ledger import Ledger
from sinksdk.store.records import Begun, FrameState, TaskCountRecord, WrittenBatch


def number_is_not_committed(patch: Patch) -> None:
    """The commit does not say which micro-batch it is of."""
    writes_as(patch, PLANS, lambda plan: _with_written(plan, ()))


def number_counts_for_every_query(patch: Patch) -> None:
    """A number is skipped, whichever checkpoint it is of."""

    def anyhow(connector: str, frames: FrameState | None, writing: Writing) -> Standing:
        found = protocol.standing(connector, frames, writing)
        numbers = [one.batch for one in frames.written if one.batch is not None] if frames else []
        is_passed = writing.batch is not None and any(writing.batch <= number for number in numbers)
        return Standing.COMMITTED if is_passed else found

    patch.setattr(batches, "standing", anyhow)


def only_the_last_query_is_remembered(patch: Patch) -> None:
    """The number of one query replaces that of another."""
    writes_as(patch, PLANS, lambda plan: _with_written(plan, plan["frames"]["written"][-1:]))


def _with_written(plan: Value, written: Sequence[Any]) -> Value:
    return {**plan, "frames": {**plan["frames"], "written": list(written)}}


def tasks_publish_what_they_commit(patch: Patch) -> None:
    """A task publishes before the driver has committed the micro-batch."""
    publishes_in_pre_commit(patch, FileTask, FileTask.publish)


def attempts_discard_each_others(patch: Patch) -> None:
    """An attempt discards what another one has prepared, whose result Spark may take."""
    patch.setattr(task, "HeldCommits", _DiscardsAll)


class _DiscardsAll(HeldCommits):
    def __init__(self, taken: TakenOver) -> None:
        super().__init__(taken)
        self.ledger = taken.ledger

    def stale(self, partition: TopicPartition) -> Sequence[Token]:
        return self.ledger.stale(partition)


def everything_prepared_is_committed(patch: Patch) -> None:
    """Also what attempts have prepared whose result Spark did not take."""

    def greedy(connector: str, before: Settled, shares: Iterable[Share], **rest: Any) -> Settled:
        more = []
        for share in shares:
            found = {**before.stale.get(share.partition, {})}
            commit = OffsetAndMetadata(share.commit.offset, publish=tuple(found.values()))
            more.append(replace(share, commit=commit))
        return protocol.with_shares(connector, before, more, **rest)

    patch.setattr(batches, "with_shares", greedy)


def published_before_the_commit(patch: Patch) -> None:
    """The driver publishes what the tasks have prepared, then commits it."""
    commit = FrameBatches.commit

    def eager(self: FrameBatches, writing: Writing, shares: Sequence[Share], settle: Any) -> None:
        for share in shares:
            for token in share.commit.tokens:
                settle.__self__.destination.complete(token.id)
        commit(self, writing, shares, settle)

    patch.setattr(FrameBatches, "commit", eager)


def nothing_is_published_after_a_crash(patch: Patch) -> None:
    """A micro-batch that is committed needs nothing any more; nobody but its driver publishes it."""

    def settled(value: Value) -> Value:
        is_plan = value.get("frames") is not None
        opened = {"frames": {**value["frames"], "is_open": True}} if is_plan else {}
        return {**no_tokens(value), **opened}

    others_read_as(patch, COMMITS, settled)


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
    writes_as(patch, PLANS, lambda plan: {**plan, "frames": {**plan["frames"], "superseded": []}})


def uncounted_tasks(patch: Patch) -> None:
    """Further tasks are planned and not counted: nobody fences them, nobody finds what they have prepared."""
    plan, claim_from, counted = Generations.plan, Generations.claim_from, dict[int, int]()

    def noted(self: Generations, claim: Claim, tasks: Sequence[Any], *arguments: Any, **named: Any) -> Any:
        counted[claim.generation] = len(tasks)
        return plan(self, claim, tasks, *arguments, **named)

    def uncounted(self: Generations, seen: table.Row[TaskCountRecord] | None) -> Claim:
        if seen is not None and seen.value.planned:
            fewer = seen.value.model_copy(update={"tasks": counted[seen.value.planned]})
            seen = table.Row(fewer, seen.version)
        return claim_from(self, seen)

    patch.setattr(Generations, "plan", noted)
    patch.setattr(Generations, "claim_from", uncounted)


def older_checkpoint_is_skipped(patch: Patch) -> None:
    """A run that begins with an older number than the last committed one skips its rows without a word."""

    def lenient(connector: str, frames: FrameState | None, writing: Writing) -> Standing:
        try:
            return protocol.standing(connector, frames, writing)
        except protocol.CheckpointException:
            return Standing.COMMITTED

    patch.setattr(batches, "standing", lenient)


def result_of_any_generation_is_taken(patch: Patch) -> None:
    """A task's result is committed, whatever has happened to its record since."""

    def lenient(
        connector: str, before: Settled, shares: Iterable[Share], *, prepared_in: int, **rest: Any
    ) -> Settled:
        known = {p: dict(tokens) for p, tokens in before.stale.items()}
        committed, fitting = dict(before.committed), []
        for share in shares:
            known.setdefault(share.partition, {}).update({token.id: token for token in share.commit.tokens})
            start, entry = 0, committed.get(share.partition)
            if entry is not None:
                start, committed[share.partition] = entry.offset, entry.model_copy(update={"publish": ()})
            fitting.append(replace(share, generation=prepared_in, start=start))
        settled = Settled(committed, known)
        return protocol.with_shares(connector, settled, fitting, prepared_in=prepared_in, **rest)

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
    """A task's records count as written, whatever its last pre_commit has returned or raised."""
    pre_commit = FileTask.pre_commit

    def anyhow(
        self: FileTask, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        returned: Mapping[TopicPartition, OffsetAndMetadata] = {}
        with suppress(ConnectException):
            returned = pre_commit(self, offsets)
        if not self.context.is_closing():
            return returned
        return {p: replace(returned.get(p, offset), offset=offset.offset) for p, offset in offsets.items()}

    patch.setattr(FileTask, "pre_commit", anyhow)


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


def names_have_any_number_of_writers(patch: Patch) -> None:
    """A sink's driver is not told that DataFrames are written under its name."""
    reads_as(patch, CONFIG, fields(kind=None), _driver_of_a_sink)
    reads_as(patch, PLANS, fields(frames=None), _driver_of_a_sink)


def _driver_of_a_sink(store: SimulatedStore) -> bool:
    return re.match(r"driver \d", store.process.name) is not None


MUTATIONS: Mapping[str, Plant] = plants(
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
    older_checkpoint_is_skipped,
    result_of_any_generation_is_taken,
    stale_tokens_are_not_carried,
    rows_kept_back_are_taken_for_written,
    whatever_the_table_has_is_skipped,
    nothing_that_the_table_has_is_skipped,
    first_offset_is_not_noted,
    names_have_any_number_of_writers,
    no_fence,
    writes_without_condition,
)
"""What breaks the promise: random schedules must notice."""
