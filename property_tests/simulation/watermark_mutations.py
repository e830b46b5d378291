"""Remove one piece of the moves by a sink with its own offsets; schedules must fail with each mutation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from property_tests.simulation.mutations import (
    attempt_reads_past_withdrawn_commit,
    store_without_compare_and_set,
)
from property_tests.simulation.planted import Patch, Plant, plants
from property_tests.simulation.watermarks import TableTask
from sinksdk import OffsetAndMetadata, SinkRecords, Token, TopicPartition
from sinksdk.engine import worker_sink_task as sink
from sinksdk.engine.context import TaskScope, WorkerSinkTaskContext
from sinksdk.engine.partition import PartitionState
from sinksdk.store.ledger import Ledger


def requested_offset_ignored(patch: Patch) -> None:
    patch.setattr(WorkerSinkTaskContext, "offset", lambda self, offsets: None)


def commit_not_rewound(patch: Patch) -> None:
    patch.setattr(Ledger, "withdraw", lambda self, *_: None)


def generation_continues_after_rewind(patch: Patch) -> None:
    patch.setattr(sink, "WorkerSinkTaskContext", _GoesOn)


class _GoesOn(WorkerSinkTaskContext):
    # Without the move, the engine does not read the partition again.
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


def skipped_records_delivered(patch: Patch) -> None:
    skip = PartitionState.skip_to

    def lenient(self: PartitionState, offset: int) -> None:
        start = self.start
        skip(self, offset)
        self.start = self.position = start

    patch.setattr(PartitionState, "skip_to", lenient)


def skip_committed_without_pre_commit(patch: Patch) -> None:
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


def metadata_kept_after_rewind(patch: Patch) -> None:
    withdraw = Ledger.withdraw

    def stale(
        self: Ledger, partition: TopicPartition, offset: OffsetAndMetadata, *rest: Sequence[Token]
    ) -> None:
        committed = self.committed(partition)
        withdraw(self, partition, replace(offset, metadata=committed.metadata if committed else ""), *rest)

    patch.setattr(Ledger, "withdraw", stale)


MUTATIONS: Mapping[str, Plant] = plants(
    requested_offset_ignored,
    commit_not_rewound,
    generation_continues_after_rewind,
    attempt_reads_past_withdrawn_commit,
    skipped_records_delivered,
    skip_committed_without_pre_commit,
    metadata_kept_after_rewind,
    store_without_compare_and_set,
)
