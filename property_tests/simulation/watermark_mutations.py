"""The moves of a sink that keeps its own offsets, each with one piece left out: what the simulation must notice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import pytest

from property_tests.simulation.mutations import writes_without_condition
from sinksdk import OffsetAndMetadata, Token, TopicPartition
from sinksdk.engine.committer import Committer
from sinksdk.engine.partition import PartitionState
from sinksdk.engine.sink import WorkerSinkTask
from sinksdk.store.ledger import Ledger

Patch = pytest.MonkeyPatch


def position_is_ignored(patch: Patch) -> None:
    """What the task asks for in open changes nothing."""
    patch.setattr(WorkerSinkTask, "_move", lambda self, opened: self._context.moves.clear())


def commit_does_not_go_back(patch: Patch) -> None:
    """A partition that shall go back ends, and its commit stays where it is."""

    def stays(
        self: Ledger, partition: TopicPartition, offset: OffsetAndMetadata, discard: Sequence[Token]
    ) -> None:
        return

    patch.setattr(Ledger, "withdraw", stays)


def generation_reads_on_after_going_back(patch: Patch) -> None:
    """The commit goes back, and this generation goes on where it has begun."""
    patch.setattr(PartitionState, "go_back_to", lambda self, offset: None)
    release, move = WorkerSinkTask._release, WorkerSinkTask._move

    def moved(self: WorkerSinkTask, opened: Collection[TopicPartition]) -> None:
        self._release = lambda partitions: None  # type: ignore[method-assign]  # of this task, while it moves
        try:
            move(self, opened)
        finally:
            self._release = release.__get__(self)  # type: ignore[method-assign]  # as before

    patch.setattr(WorkerSinkTask, "_move", moved)


def second_attempt_reads_on_after_going_back(patch: Patch) -> None:
    """Another attempt at the task does not mind that its range begins beyond the commit."""
    patch.setattr(WorkerSinkTask, "_refuse_gap", lambda self, partition, committed, start: None)


def position_skipped_to_is_not_delivered_from(patch: Patch) -> None:
    """The task is put what it has, too."""
    skip = PartitionState.skip_to

    def lenient(self: PartitionState, offset: int) -> None:
        start = self.start
        skip(self, offset)
        self.start = self.position = start

    patch.setattr(PartitionState, "skip_to", lenient)


def skip_is_committed_without_being_asked_for(patch: Patch) -> None:
    """pre_commit is asked only where records were put: a skip is committed without the sink's metadata."""

    def only_records(self: Committer, partition: TopicPartition) -> bool:
        return self._states[partition].position > self._scope.floor(partition)

    patch.setattr(Committer, "_has_offer", only_records)


def metadata_stays_when_the_commit_goes_back(patch: Patch) -> None:
    """The commit goes back with what the sink said of a later position."""

    def stale(self: Committer, partition: TopicPartition, offset: int) -> str:
        committed = self._commits.committed(partition)
        return committed.metadata if committed else ""

    patch.setattr(Committer, "metadata_at", stale)


MUTATIONS: Mapping[str, Callable[[Patch], None]] = {
    mutation.__name__: mutation
    for mutation in (
        position_is_ignored,
        commit_does_not_go_back,
        generation_reads_on_after_going_back,
        second_attempt_reads_on_after_going_back,
        position_skipped_to_is_not_delivered_from,
        skip_is_committed_without_being_asked_for,
        metadata_stays_when_the_commit_goes_back,
        writes_without_condition,
    )
}
"""What breaks the promise: random schedules must notice."""
