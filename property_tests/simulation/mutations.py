"""The protocol with one piece left out, each in turn: what the simulation must notice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from property_tests.simulation import sink_cluster
from property_tests.simulation.archive import SimulatedTask
from property_tests.simulation.store import SimulatedStore
from sinksdk import ClosingReason, OffsetAndMetadata, Token, TopicPartition
from sinksdk.connectors.s3_archiver import task, upload, writer
from sinksdk.connectors.s3_archiver.client import Location
from sinksdk.connectors.s3_archiver.group import FileGroup
from sinksdk.connectors.s3_archiver.layout import Archived
from sinksdk.connectors.s3_archiver.ranges import Skip
from sinksdk.connectors.s3_archiver.upload import Publisher, groups_of
from sinksdk.connectors.s3_archiver.writer import PartitionWriter
from sinksdk.control import registry
from sinksdk.control.deletion import Deletion
from sinksdk.engine.committer import Committer
from sinksdk.engine.partition import PartitionState
from sinksdk.engine.sink import WorkerSinkTask
from sinksdk.records import SinkRecords
from sinksdk.runtime import session
from sinksdk.runtime.handover import Handover
from sinksdk.runtime.session import DriverSession
from sinksdk.spark import attempts
from sinksdk.spark.transform_task import arranged
from sinksdk.store import Store, TakenOver, generations, ledger, table
from sinksdk.store.generations import Claim, Generations
from sinksdk.store.keys import (
    task_count_key,
    task_key,
)
from sinksdk.store.ledger import Ledger, TaskLedger, current_plan, merge
from sinksdk.store.records import (
    ConnectorRecord,
    Entry,
    GenerationPlan,
    TaskCountRecord,
    TaskRecord,
)
from sinksdk.store.tokens import Tokens

Patch = pytest.MonkeyPatch


def no_fence(patch: Patch) -> None:
    """The records of the generation before are read, not moved."""

    def read_only(self: Generations, task: int, generation: int) -> TaskRecord | None:
        row = table.read(self._store, task_key(self._connector, task), TaskRecord)
        return row.value if row else None

    patch.setattr(Generations, "_fence", read_only)


def no_merge(patch: Patch) -> None:
    """The next plan is made from the plan before, without what its tasks have committed."""
    patch.setattr(generations, "merge", lambda base, records: merge(base, []))


def segments_forgotten(patch: Patch) -> None:
    """The next plan is made without the commits that tasks have set apart."""
    patch.setattr(generations, "whole", lambda store, connector, task, record: record)


def no_attempt(patch: Patch) -> None:
    """A second attempt takes the record as it is, without moving it."""

    def take_over(store: Store, connector: str, number: int, task: int) -> TakenOver | None:
        plan = current_plan(store, connector, number)
        key = task_key(connector, task)
        before = table.read(store, key, TaskRecord)
        if plan is None or (before is not None and before.value.generation > number):
            return None
        if before is not None and before.value.generation == number and before.value.attempt:
            taken = before
        else:
            record = ledger._successor(before.value if before else None, plan, task)
            taken = table.write(store, key, record, before.version if before else None)
        apart = ledger.entries_apart(store, connector, task, taken.value) or ()
        stale = ledger._stale_of(plan, task)
        return TakenOver(plan, TaskLedger(store, connector, task, taken, stale, apart=apart))

    patch.setattr(attempts, "take_over", take_over)


def stale_tokens_not_carried(patch: Patch) -> None:
    """What no commit covers is known to the next generation only by luck."""
    claim = Generations.claim

    def forgetful(self: Generations) -> Claim:
        return replace(claim(self), stale={})

    patch.setattr(Generations, "claim", forgetful)


def publish_before_commit(patch: Patch) -> None:
    """What pre_commit returned is made visible, then committed."""
    write = Committer._write

    def eager(
        self: Committer, accepted: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Collection[TopicPartition]:
        for partition, offset in accepted.items():
            if offset.tokens:
                self._task.publish(partition, offset.tokens)
        return write(self, accepted)

    patch.setattr(Committer, "_write", eager)


def discard_when_fenced(patch: Patch) -> None:
    """A task that lost its partitions cleans up what it had begun."""
    lose = WorkerSinkTask.lose

    def tidy(self: WorkerSinkTask, partitions: Collection[TopicPartition] | None = None) -> None:
        for partition in self.assignment():
            tokens = self._commits.prepared(partition)
            if tokens:
                self._task.discard(partition, tokens)
        lose(self, partitions)

    patch.setattr(WorkerSinkTask, "lose", tidy)


def unpublished_tokens_overwritten(patch: Patch) -> None:
    """A commit follows though the one before could not be published."""

    def ignore(self: Committer, partition: TopicPartition, deadline: float | None = None) -> None:
        committed = self._commits.committed(partition)
        if committed is not None and committed.tokens:
            self._publish(partition, committed, deadline)

    commit = Tokens.commit

    def overwrite(self: Tokens, partition: TopicPartition, offset: OffsetAndMetadata) -> Tokens:
        return commit(self.publish(partition), partition, offset)

    patch.setattr(Tokens, "commit", overwrite)
    patch.setattr(Committer, "publish", ignore)


def clean_up_by_listing(patch: Patch) -> None:
    """Whoever opens or closes a partition aborts the uploads it finds there and does not know."""

    def tidy(task: SimulatedTask, partitions: Collection[TopicPartition]) -> None:
        s3 = task.archive.s3
        for partition in partitions:
            committed = task.context.committed(partition)
            known = {token.id for token in committed.tokens} if committed else set()
            prefix = f"topics/orders/partition={partition.partition}/"
            for found in list(s3.list_uploads("bucket", prefix)):
                if found.upload_id not in known:
                    s3.abort_upload(_location(found.key), found.upload_id)

    begin, end = SimulatedTask.open, SimulatedTask.close

    def tidy_open(self: SimulatedTask, partitions: Collection[TopicPartition]) -> None:
        tidy(self, partitions)
        begin(self, partitions)

    def tidy_close(self: SimulatedTask, partitions: Collection[TopicPartition]) -> None:
        tidy(self, partitions)
        end(self, partitions)

    patch.setattr(SimulatedTask, "open", tidy_open)
    patch.setattr(SimulatedTask, "close", tidy_close)


def _location(key: str) -> Location:
    """A location in the simulated bucket."""
    return Location("bucket", key)


def writes_without_condition(patch: Patch) -> None:
    """The store takes every write."""
    write = SimulatedStore._write

    def anyhow(self: SimulatedStore, key: str, stored: Any, if_version: str | None) -> bool:
        current = self._records.stored.get(key)
        return write(self, key, stored, current.version if current else None)

    patch.setattr(SimulatedStore, "_write", anyhow)


def driver_reads_its_claim_afresh(patch: Patch) -> None:
    """A driver claims from what stands in the store, not from what it wrote last."""
    claim, plan = Generations.claim, Generations.plan

    def forget(self: Generations) -> None:
        self._count = table.read(self._store, task_count_key(self._connector), TaskCountRecord)

    def claim_afresh(self: Generations) -> Claim:
        forget(self)
        return claim(self)

    def plan_afresh(self: Generations, *arguments: Any, **named: Any) -> GenerationPlan:
        forget(self)
        return plan(self, *arguments, **named)

    patch.setattr(Generations, "claim", claim_afresh)
    patch.setattr(Generations, "plan", plan_afresh)


def older_driver_configures(patch: Patch) -> None:
    """A driver's configuration becomes the connector's, though a newer one has brought its own."""

    def anyhow(
        store: Store, connector: str, config: Mapping[str, Any], generation: int, kind: str
    ) -> ConnectorRecord:
        def changed(record: ConnectorRecord) -> ConnectorRecord:
            brought = {"config": registry.texts(config), "target_state": "RUNNING", "claimed": generation}
            return record.model_copy(update={**brought, "kind": kind, "version": record.version + 1})

        return registry.change(store, connector, changed)

    patch.setattr(session, "deploy", anyhow)


def tokens_not_noted(patch: Patch) -> None:
    """An upload is fed though no successor could know of it."""
    patch.setattr(Ledger, "prepare", lambda self, tokens: None)
    patch.setattr(Tokens, "_refuse_unknown", lambda self, partition, offset: None)
    patch.setattr("sinksdk.engine.committer.committable", lambda returned, **rest: dict(returned))


def crashed_and_unknown_commits_stay_unpublished(patch: Patch) -> None:
    """Tokens of a commit are published by the task that made it, by nobody else."""
    patch.setattr(Claim, "all_unsettled", lambda self: set())
    patch.setattr(WorkerSinkTask, "open", open_without_publishing(WorkerSinkTask.open))


def open_without_publishing(begin: Callable[..., None]) -> Callable[..., None]:
    """The engine's open, without the second phase of predecessors."""

    def without(self: WorkerSinkTask, *arguments: Any) -> None:
        publish = self._committer.publish
        self._committer.publish = lambda partition, deadline=None: None  # type: ignore[method-assign]  # of this task only
        try:
            begin(self, *arguments)
        finally:
            self._committer.publish = publish  # type: ignore[method-assign]  # of this task only

    return without


def what_came_before_a_late_offset_is_committed(patch: Patch) -> None:
    """A source that breaks its order ends a partition as a failing put does."""

    def as_any_other(self: WorkerSinkTask, partition: TopicPartition, error: BaseException) -> None:
        self._scope.note(partition, error)
        self._finish([partition], ClosingReason.FAILURE, None)

    patch.setattr(WorkerSinkTask, "_fail", as_any_other)


def deletion_without_publishing(patch: Patch) -> None:
    """A connector is deleted as soon as its tasks have ended, whatever waits to be published."""
    patch.setattr(DriverSession, "_has_unpublished", lambda self: False)
    patch.setattr(Deletion, "settle", lambda self, *arguments: "")
    patch.setattr(Deletion, "expect_published", lambda self, reason="": None)


def deletion_above_visible_rows(patch: Patch) -> None:
    """A connector is deleted while rows above its commit are visible, which only it passes over."""
    patch.setattr(Claim, "partly_visible", lambda self: {})


def group_ahead_of_what_is_visible(patch: Patch) -> None:
    """The group shows what is committed, published or not."""
    patch.setattr(Entry, "visible", property(lambda self: self.offset))


def offsets_are_divided(patch: Patch) -> None:
    """Files, portions and record limits end between any two records, also of the same offset."""
    patch.setattr(SinkRecords, "whole_offsets", lambda self, rows: min(rows, len(self)))


def cut_stream_is_taken_for_its_end(patch: Patch) -> None:
    """Ranges are finished when no more rows come, also where the transform has failed."""

    def anyhow(rows: Any, said: Any, has_ended: object) -> Any:
        return arranged(rows, said, lambda: True)

    patch.setattr(sink_cluster, "arranged", anyhow)


def dropped_tail_is_not_committed(patch: Patch) -> None:
    """A range is committed to its last record, as if there were a next one."""
    patch.setattr(PartitionState, "range_end", lambda self, committed: None)


def newcomer_never_asks(patch: Patch) -> None:
    """A second driver fences the first one at once."""
    patch.setattr(Handover, "await_turn", lambda self: True)


def older_driver_never_gives_way(patch: Patch) -> None:
    """The first driver ends its generation, and begins the next one."""
    patch.setattr(Generations, "yield_to_successor", lambda self: None)


def closing_commits_nothing(patch: Patch) -> None:
    """What is taken away is closed, without a commit before."""

    def release(self: WorkerSinkTask, reason: object, partitions: object = None, **rest: object) -> None:
        self.lose()

    patch.setattr(WorkerSinkTask, "close", release)


def closing_is_not_told(patch: Patch) -> None:
    """The last pre_commit of a partition looks like any other."""
    finish = WorkerSinkTask._finish

    def silent(self: WorkerSinkTask, partitions: Any, closing: object, deadline: float | None) -> None:
        finish(self, partitions, None, deadline)

    patch.setattr(WorkerSinkTask, "_finish", silent)


def groups_are_published_without_looking(patch: Patch) -> None:
    """Files of a group are completed one by one, until one is met that has expired."""
    patch.setattr(Publisher, "_look", lambda self, token: None)


def later_group_is_published_first(patch: Patch) -> None:
    """A group is completed though one before it is not."""
    patch.setattr(upload, "groups_of", lambda tokens: groups_of(tokens)[::-1])


def ranges_of_visible_siblings_are_forgotten(patch: Patch) -> None:
    """A withdrawn commit does not say which rows above it are visible."""
    patch.setattr(task, "Skip", _NoSkip)


class _NoSkip(Skip):
    @classmethod
    def union(cls, several: Iterable[Skip]) -> Skip:  # noqa: ARG003 - of the original
        return Skip()


def visible_keys_and_headers_are_forgotten(patch: Patch) -> None:
    """A withdrawn commit says which values above it are visible, and not which keys and headers."""
    patch.setattr(task, "Skip", _SkipOfValues)


class _SkipOfValues(Skip):
    @classmethod
    def union(cls, several: Iterable[Skip]) -> Skip:
        return Skip({view: rows for view, rows in Skip.union(several).of.items() if not view})


def visible_siblings_are_not_counted(patch: Patch) -> None:
    """What is visible of a group that is withdrawn counts as gone: the chain goes on without it."""
    patch.setattr(Publisher, "_settled", lambda self, group: [])


def siblings_are_not_aborted_first(patch: Patch) -> None:
    """Whoever withdraws a group only looks which of its files are visible: others may be completing them."""

    def only_looks(self: Publisher, group: Sequence[Token]) -> list[Token]:
        with pytest.MonkeyPatch.context() as inside:
            inside.setattr(upload, "abort", lambda s3, token: None)
            return settled(self, group)

    settled = Publisher._settled
    patch.setattr(Publisher, "_settled", only_looks)


def skip_is_forgotten_above_a_commit(patch: Patch) -> None:
    """A commit within a withdrawn group forgets what of it is visible above."""
    committable = PartitionWriter.committable

    def forgetful(self: PartitionWriter, accepted: OffsetAndMetadata) -> OffsetAndMetadata | None:
        found = committable(self, accepted)
        if found is None:
            return None
        return replace(found, metadata=replace(Archived.of(found), skip="").to_text())

    patch.setattr(PartitionWriter, "committable", forgetful)


def skip_is_lost_when_a_generation_begins(patch: Patch) -> None:
    """Whoever goes on from a withdrawn commit writes all rows above it."""
    begin = PartitionWriter.__init__

    def forgetful(self: PartitionWriter, *arguments: Any, **named: Any) -> None:
        begin(self, *arguments, **named)
        self._skip = Skip()

    patch.setattr(PartitionWriter, "__init__", forgetful)


def skip_is_lost_by_a_second_withdrawal(patch: Patch) -> None:
    """A group that was begun above visible rows does not say so in its tokens."""
    tokens = FileGroup.tokens

    def forgetful(self: FileGroup) -> list[Token]:
        return [replace(t, data={k: v for k, v in t.data.items() if k != "skip"}) for t in tokens(self)]

    patch.setattr(FileGroup, "tokens", forgetful)


def rows_of_one_offset_are_one(patch: Patch) -> None:
    """What is visible is told by offsets, also where a transform has made several records of one."""
    patch.setattr(writer, "numbers_of", lambda offsets: np.zeros(len(offsets), np.int64))


ROLLING: Mapping[str, Callable[[Patch], None]] = {
    mutation.__name__: mutation
    for mutation in (
        newcomer_never_asks,
        older_driver_never_gives_way,
        closing_commits_nothing,
        closing_is_not_told,
    )
}
"""What only costs progress, never a record: a rolling deploy must notice."""

MUTATIONS: Mapping[str, Callable[[Patch], None]] = {
    mutation.__name__: mutation
    for mutation in (
        no_fence,
        no_merge,
        segments_forgotten,
        no_attempt,
        stale_tokens_not_carried,
        publish_before_commit,
        discard_when_fenced,
        unpublished_tokens_overwritten,
        clean_up_by_listing,
        writes_without_condition,
        driver_reads_its_claim_afresh,
        older_driver_configures,
        tokens_not_noted,
        crashed_and_unknown_commits_stay_unpublished,
        deletion_without_publishing,
        deletion_above_visible_rows,
        group_ahead_of_what_is_visible,
        what_came_before_a_late_offset_is_committed,
        offsets_are_divided,
        cut_stream_is_taken_for_its_end,
        dropped_tail_is_not_committed,
        groups_are_published_without_looking,
        later_group_is_published_first,
        ranges_of_visible_siblings_are_forgotten,
        visible_keys_and_headers_are_forgotten,
        visible_siblings_are_not_counted,
        siblings_are_not_aborted_first,
        skip_is_forgotten_above_a_commit,
        skip_is_lost_when_a_generation_begins,
        skip_is_lost_by_a_second_withdrawal,
        rows_of_one_offset_are_one,
    )
}
"""What breaks the promise: random schedules must notice."""
