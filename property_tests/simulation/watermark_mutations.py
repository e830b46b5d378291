"""The moves of a sink that keeps its own offsets, each with one piece left out: what the simulation must notice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from property_tests.simulation.mutations import withdrawn_commit_is_read_past, writes_without_condition
from property_tests.simulation.planted import Patch, Plant, plants
from property_tests.simulation.watermarks import TableTask
from sinksdk import OffsetAndMetadata, SinkRecords, Token, TopicPartition
from sinksdk.engine import worker_sink_task as sink
from sinksdk.engine.context import TaskScope, WorkerSinkTaskContext
from sinksdk.engine.partition import PartitionState
from sinksdk.store.ledger import Ledger


def position_is_ignored(patch: Patch) -> None:
    """What the task asks for in open changes nothing."""
    patch.setattr(WorkerSinkTaskContext, "offset", lambda self, offsets: None)


def commit_does_not_go_back(patch: Patch) -> None:
    """A partition that shall go back ends, and its commit stays where it is."""
    patch.setattr(Ledger, "withdraw", lambda self, *_: None)


def generation_reads_on_after_going_back(patch: Patch) -> None:
    """The commit goes back, and this generation goes on where it has begun."""
    patch.setattr(sink, "WorkerSinkTaskContext", _GoesOn)


class _GoesOn(WorkerSinkTaskContext):
    """Moves the commit back by itself, so that the engine never hears that the partition is to be read again."""

    def __init__(self, scope: TaskScope, **named: Any) -> None:
        super().__init__(scope, **named)
        self.commits = scope.commits

    def offset(self, offsets: Mapping[TopicPartition, int]) -> None:
        for partition, asked in offsets.items():
            committed = self.committed(partition)
            if committed is not None and asked < committed.offset:
                self.commits.withdraw(partition, OffsetAndMetadata(asked), ())
            else:
                super().offset({partition: asked})


def position_skipped_to_is_not_delivered_from(patch: Patch) -> None:
    """The task is put what it has, too."""
    skip = PartitionState.skip_to

    def lenient(self: PartitionState, offset: int) -> None:
        start = self.start
        skip(self, offset)
        self.start = self.position = start

    patch.setattr(PartitionState, "skip_to", lenient)


def skip_is_committed_without_being_asked_for(patch: Patch) -> None:
    """A skip is committed with what the sink said of the commit before; it is asked only of what was put."""
    pre_commit, put, filled = TableTask.pre_commit, TableTask.put, set[tuple[int, TopicPartition]]()

    def noted(self: TableTask, records: SinkRecords) -> None:
        filled.add((id(self), records.partition))
        put(self, records)

    def of_what_was_put(
        self: TableTask, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        before = {p: self.context.committed(p) or OffsetAndMetadata(0) for p in offsets}
        return {
            p: replace(offset, metadata=before[p].metadata)
            if (id(self), p) not in filled and offset.offset > before[p].offset
            else offset
            for p, offset in pre_commit(self, offsets).items()
        }

    patch.setattr(TableTask, "put", noted)
    patch.setattr(TableTask, "pre_commit", of_what_was_put)


def metadata_stays_when_the_commit_goes_back(patch: Patch) -> None:
    """The commit goes back with what the sink said of a later position."""
    withdraw = Ledger.withdraw

    def stale(
        self: Ledger, partition: TopicPartition, offset: OffsetAndMetadata, *rest: Sequence[Token]
    ) -> None:
        committed = self.committed(partition)
        withdraw(self, partition, replace(offset, metadata=committed.metadata if committed else ""), *rest)

    patch.setattr(Ledger, "withdraw", stale)


MUTATIONS: Mapping[str, Plant] = plants(
    position_is_ignored,
    commit_does_not_go_back,
    generation_reads_on_after_going_back,
    withdrawn_commit_is_read_past,
    position_skipped_to_is_not_delivered_from,
    skip_is_committed_without_being_asked_for,
    metadata_stays_when_the_commit_goes_back,
    writes_without_condition,
)
"""What breaks the promise: random schedules must notice."""
