"""A task's offset commits: ``pre_commit`` → commit → ``publish``, and the ends of ranges that end in gaps."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sinksdk.context import ClosingReason
from sinksdk.engine.clock import Clock
from sinksdk.engine.context import WorkerSinkTaskContext
from sinksdk.engine.failures import Failures
from sinksdk.engine.guard import GuardedCommitLog
from sinksdk.engine.measures import Measures
from sinksdk.engine.partition import PartitionState
from sinksdk.engine.reports import Reports
from sinksdk.engine.two_phase import SecondPhase
from sinksdk.engine.validation import committable
from sinksdk.engine.vouching import Vouch
from sinksdk.errors import ConnectException, RetriableException
from sinksdk.records import OffsetAndMetadata, TopicPartition
from sinksdk.support.measures import Phase
from sinksdk.task import SinkTask


class Committer:
    """Commits what one task has taken.

    Args:
        task: the author's task.
        commits: where commits go.
        clock: time.
        states: what is known of each partition.
        context: says to the task whether it is closing.
        reports: dead letters that must be durable first.
        second_phase: publishes what a commit carries.
        vouch: whether topics are still those that were planned.
        failures: told of every partition that cannot go on.
        measures: counts commits, and times what they consist of.
        label: connector, task and generation, for messages.
    """

    def __init__(
        self,
        task: SinkTask,
        commits: GuardedCommitLog,
        clock: Clock,
        states: Mapping[TopicPartition, PartitionState],
        *,
        context: WorkerSinkTaskContext,
        reports: Reports,
        second_phase: SecondPhase,
        vouch: Vouch,
        failures: Failures,
        measures: Measures,
        label: str,
    ) -> None:
        self._task = task
        self._commits = commits
        self._clock = clock
        self._states = states
        self._context = context
        self._reports = reports
        self._second_phase = second_phase
        self._vouch = vouch
        self._failures = failures
        self._measures = measures
        self._label = label

    def commit(
        self,
        partitions: Collection[TopicPartition],
        closing: ClosingReason | None,
        deadline: float | None,
        *,
        is_last: bool,
    ) -> Collection[TopicPartition]:
        """``pre_commit`` → commit → ``publish`` for those of the partitions with something to commit.

        Returns:
            Partitions whose topics are still the ones that were planned: their ends may be committed too.
        """
        partitions = self._vouched(partitions, is_last=is_last)
        offered = {
            partition: OffsetAndMetadata(self._states[partition].position)
            for partition in sorted(partitions)
            if self._states[partition].position > self.floor(partition) and self._is_reported(partition)
        }
        if offered:
            with self._measures.offset_commit():
                changed = self._write(self._pre_commit(offered, closing, deadline))
            for partition in changed:
                self.publish(partition, deadline)
        return partitions

    def _vouched(
        self, partitions: Collection[TopicPartition], *, is_last: bool
    ) -> Collection[TopicPartition]:
        """Those of which something may be committed: their topics are still the ones that were planned.

        Where that cannot be told now, the next commit asks again; the last one cannot, and what it does not
        commit is read again.
        """
        asked = {p.topic for p in partitions if self._states[p].has_news(self.floor(p))}
        with self._measures.phase(Phase.VOUCH):
            doubts = self._vouch(asked) if asked else {}
        for partition in partitions:
            error = doubts.get(partition.topic)
            if error is not None and (is_last or not isinstance(error, RetriableException)):
                self._failures.note(partition, error)
        return [p for p in partitions if p.topic not in doubts]

    def _pre_commit(
        self,
        offered: Mapping[TopicPartition, OffsetAndMetadata],
        closing: ClosingReason | None,
        deadline: float | None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        began = self._clock.now()
        try:
            with self._context.closing(closing, deadline), self._measures.phase(Phase.PRE_COMMIT):
                returned = self._commits.call(self._task.pre_commit, dict(offered))
        except Exception as error:
            self._commits.raise_failure()
            self._measures.commit_failed()
            for partition in offered:
                self._failures.note(partition, error, began=began)
            return {}
        sound = committable(
            returned,
            offered=offered,
            floor={partition: self.floor(partition) for partition in offered},
            prepared={p: {token.id for token in self._commits.prepared(p)} for p in offered},
            label=self._label,
        )
        return {p: offset for p, offset in sound.items() if self._is_reported(p)}

    def _write(self, accepted: Mapping[TopicPartition, OffsetAndMetadata]) -> Collection[TopicPartition]:
        """Commit what is news; the partitions of which something was."""
        changed = {
            partition: self._states[partition].up_to_range_end(offset)
            for partition, offset in accepted.items()
            if self._is_news(partition, offset)
        }
        if changed:
            with self._measures.commit_write():
                self._commits.commit(changed)
        for partition, offset in changed.items():
            self._states[partition].committed(offset.offset)
        return changed

    def _is_news(self, partition: TopicPartition, offset: OffsetAndMetadata) -> bool:
        committed = self._commits.committed(partition)
        metadata = committed.metadata if committed else ""
        return bool(offset.offset > self.floor(partition) or offset.tokens or offset.metadata != metadata)

    def write_range_ends(self, partitions: Collection[TopicPartition]) -> None:
        """Where no record is: ends of ranges that end in gaps, and positions that were skipped to."""
        ends = {}
        for partition in partitions:
            state, committed = self._states[partition], self._commits.committed(partition)
            if state.failure:
                continue
            metadata = committed.metadata if committed else ""
            if state.take_range_end(self.floor(partition)):
                ends[partition] = OffsetAndMetadata(state.position, metadata)
            elif state.has_skipped and (committed.offset if committed else state.begin) < state.start:
                ends[partition] = OffsetAndMetadata(state.start, metadata)
            state.has_skipped = False
        if ends:
            with self._measures.commit_write():
                self._commits.commit(ends)

    def floor(self, partition: TopicPartition) -> int:
        """The offset up to which a partition is committed, or its range began."""
        committed, start = self._commits.committed(partition), self._states[partition].start
        return max(committed.offset, start) if committed else start

    def _is_reported(self, partition: TopicPartition) -> bool:
        """Dead letters are durable before the commit that covers them, and what was refused is in none."""
        try:
            with self._measures.phase(Phase.REPORT):
                self._reports.wait(partition)
        except Exception as error:
            lost = ConnectException(f"{self._label}: a dead letter of {partition} was not written: {error}")
            lost.__cause__ = error
            self._failures.note(partition, lost)
            return False
        return not self._reports.refused(partition)

    def publish(self, partition: TopicPartition, deadline: float | None = None) -> None:
        """Publish a commit's tokens. Failing that, end the partition: its next commit would lose them."""
        failed = self._second_phase.publish(partition, deadline, self._states[partition].retry)
        if failed is not None:
            self._failures.note(partition, failed.error, at_once=failed.retry is None, retry=failed.retry)
