"""Remove one piece of the micro-batch commit each; schedules must fail with every mutation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from property_tests.simulation.frames import FileTask
from property_tests.simulation.mutations import store_without_compare_and_set, task_records_not_fenced
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


def batch_id_not_committed(patch: Patch) -> None:
    writes_as(patch, PLANS, lambda plan: _with_written(plan, ()))


def batch_id_not_per_query(patch: Patch) -> None:
    def anyhow(connector: str, frames: FrameState | None, writing: Writing) -> Standing:
        found = protocol.standing(connector, frames, writing)
        numbers = [one.batch for one in frames.written if one.batch is not None] if frames else []
        is_passed = writing.batch is not None and any(writing.batch <= number for number in numbers)
        return Standing.COMMITTED if is_passed else found

    patch.setattr(batches, "standing", anyhow)


def only_last_query_remembered(patch: Patch) -> None:
    writes_as(patch, PLANS, lambda plan: _with_written(plan, plan["frames"]["written"][-1:]))


def _with_written(plan: Value, written: Sequence[Any]) -> Value:
    return {**plan, "frames": {**plan["frames"], "written": list(written)}}


def tasks_publish_before_commit(patch: Patch) -> None:
    publishes_in_pre_commit(patch, FileTask, FileTask.publish)


def attempts_discard_tokens_of_others(patch: Patch) -> None:
    # Spark may commit the result of the attempt whose tokens are discarded.
    patch.setattr(task, "HeldCommits", _DiscardsAll)


class _DiscardsAll(HeldCommits):
    def __init__(self, taken: TakenOver) -> None:
        super().__init__(taken)
        self.ledger = taken.ledger

    def stale(self, partition: TopicPartition) -> Sequence[Token]:
        return self.ledger.stale(partition)


def tokens_of_failed_attempts_committed(patch: Patch) -> None:
    # Spark discarded the results of the attempts whose tokens this mutation commits.
    def greedy(connector: str, before: Settled, shares: Iterable[Share], **rest: Any) -> Settled:
        more = []
        for share in shares:
            found = {**before.stale.get(share.partition, {})}
            commit = OffsetAndMetadata(share.commit.offset, publish=tuple(found.values()))
            more.append(replace(share, commit=commit))
        return protocol.with_shares(connector, before, more, **rest)

    patch.setattr(batches, "with_shares", greedy)


def driver_publishes_before_commit(patch: Patch) -> None:
    commit = FrameBatches.commit

    def eager(self: FrameBatches, writing: Writing, shares: Sequence[Share], settle: Any) -> None:
        for share in shares:
            for token in share.commit.tokens:
                settle.__self__.destination.complete(token.id)
        commit(self, writing, shares, settle)

    patch.setattr(FrameBatches, "commit", eager)


def committed_batch_not_published_after_crash(patch: Patch) -> None:
    def settled(value: Value) -> Value:
        is_plan = value.get("frames") is not None
        opened = {"frames": {**value["frames"], "is_open": True}} if is_plan else {}
        return {**no_tokens(value), **opened}

    others_read_as(patch, COMMITS, settled)


def abort_discards_committed_tokens(patch: Patch) -> None:
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


def fenced_runs_not_remembered(patch: Patch) -> None:
    # With this mutation, two queries endlessly take over the connector from each other.
    writes_as(patch, PLANS, lambda plan: {**plan, "frames": {**plan["frames"], "superseded": []}})


def additional_tasks_not_recorded(patch: Patch) -> None:
    # Without the record, tokens of these tasks are neither fenced nor discarded.
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


def older_checkpoint_skips_rows(patch: Patch) -> None:
    def lenient(connector: str, frames: FrameState | None, writing: Writing) -> Standing:
        try:
            return protocol.standing(connector, frames, writing)
        except protocol.CheckpointException:
            return Standing.COMMITTED

    patch.setattr(batches, "standing", lenient)


def fenced_task_result_committed(patch: Patch) -> None:
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


def stale_tokens_dropped_at_commit(patch: Patch) -> None:
    def forgetful(connector: str, before: Settled, shares: Iterable[Share], **rest: Any) -> Settled:
        return replace(protocol.with_shares(connector, before, shares, **rest), stale={})

    patch.setattr(batches, "with_shares", forgetful)


def pre_commit_result_ignored(patch: Patch) -> None:
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


def first_offset_ignores_table(patch: Patch) -> None:
    def begun(before: Begun | None, partition: TopicPartition, at: int, batch: WrittenBatch) -> Begun:
        return Begun(topic=partition.topic, at=at, batch=batch, base=at)

    patch.setattr(Begun, "after", begun)


def first_offset_always_after_table(patch: Patch) -> None:
    def begun(before: Begun | None, partition: TopicPartition, at: int, batch: WrittenBatch) -> Begun:
        return Begun(topic=partition.topic, at=at, batch=batch)

    patch.setattr(Begun, "after", begun)


def first_offset_not_recorded(patch: Patch) -> None:
    patch.setattr(Ledger, "begin_at", lambda self, offset: None)


def name_shared_with_sink_connector(patch: Patch) -> None:
    reads_as(patch, CONFIG, fields(kind=None), _driver_of_a_sink)
    reads_as(patch, PLANS, fields(frames=None), _driver_of_a_sink)


def _driver_of_a_sink(store: SimulatedStore) -> bool:
    return re.match(r"driver \d", store.process.name) is not None


MUTATIONS: Mapping[str, Plant] = plants(
    batch_id_not_committed,
    batch_id_not_per_query,
    only_last_query_remembered,
    tasks_publish_before_commit,
    attempts_discard_tokens_of_others,
    tokens_of_failed_attempts_committed,
    driver_publishes_before_commit,
    committed_batch_not_published_after_crash,
    abort_discards_committed_tokens,
    fenced_runs_not_remembered,
    additional_tasks_not_recorded,
    older_checkpoint_skips_rows,
    fenced_task_result_committed,
    stale_tokens_dropped_at_commit,
    pre_commit_result_ignored,
    first_offset_ignores_table,
    first_offset_always_after_table,
    first_offset_not_recorded,
    name_shared_with_sink_connector,
    task_records_not_fenced,
    store_without_compare_and_set,
)
