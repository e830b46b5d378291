"""One attempt at the task under test: the real engine, with a trial looking at every call and every write."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sinksdk.errors import ConnectException
from sinksdk.records import OffsetAndMetadata, TopicPartition
from sinksdk.store import StoreUnavailable
from sinksdk.store.records import TaskRecord
from sinksdk.testing.commits import MemoryCommitLog
from sinksdk.testing.contract import D, Subject
from sinksdk.testing.faults import COMMIT_LOG, TASK, FaultKind, FaultPlan
from sinksdk.testing.harness import SinkTaskHarness
from sinksdk.testing.judge import Judge, Seen


class FaultyCommitLog(MemoryCommitLog):
    """A commit log whose writes may fail as planned: then the attempt is over, whatever the write did.

    Args:
        faults: what goes wrong.
        judge: told of every write.
    """

    def __init__(self, faults: FaultPlan, judge: Judge) -> None:
        super().__init__()
        self._faults = faults
        self._judge = judge

    def _save(self, record: TaskRecord) -> None:
        save = super()._save

        def effect() -> None:
            before = self.offsets
            save(record)
            self._judge.saved(before, self.offsets)

        if self.is_fenced:
            effect()
        try:
            self._faults.run(COMMIT_LOG, effect)
        except ConnectException as error:
            raise StoreUnavailable(str(error)) from error


class Process(SinkTaskHarness):
    """A harness that tells the judge what its task is asked and what it answers.

    Args:
        subject: the sink under test.
        destination: what it writes to.
        faults: what goes wrong with the calls.
        judge: who is told.
        see: reads back what is at the destination now.
        tell: is told what the task raises, for the story.
    """

    def __init__(
        self,
        subject: Subject[D],
        destination: D,
        *,
        faults: FaultPlan,
        judge: Judge,
        see: Callable[[], Seen],
        tell: Callable[[str], None],
    ) -> None:
        config = subject.config_for(destination)
        self._faults = faults
        self._judge = judge
        self._see = see
        self._tell = tell
        super().__init__(
            lambda: subject.make_task(destination),
            config,
            options=subject.options(config),
            dead_letters=judge if subject.capabilities.dead_letters else None,
            log=FaultyCommitLog(faults, judge),
            clock=faults.clock,
        )

    def _build(self) -> None:
        self.opened: set[TopicPartition] = set()
        """What the task has open, as it knows it."""
        super()._build()

    def _observed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        watch: Callable[..., Any] = getattr(self, f"_watched_{method.__name__}", _unwatched)

        @functools.wraps(method)
        def observed(*arguments: Any) -> Any:
            kind = self._faults.take(TASK)
            if kind is FaultKind.CRASH_BEFORE:
                raise self._faults.crash()
            self._judge.acting(self.opened)
            try:
                result = watch(method, *arguments)
            except Exception as error:
                self._tell(f"{method.__name__} raises {type(error).__name__}: {error}")
                raise
            if kind is FaultKind.CRASH_AFTER:
                raise self._faults.crash()
            return result

        return observed

    def _watched_open(self, method: Callable[..., Any], partitions: Sequence[TopicPartition]) -> None:
        self._judge.acting(partitions)
        method(partitions)
        self.opened.update(partitions)

    def _watched_put(self, method: Callable[..., Any], records: Any) -> None:
        self._judge.put(records)
        method(records)

    def _watched_pre_commit(
        self, method: Callable[..., Any], offered: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Any:
        is_closing = self.task.context.is_closing()
        asked = dict(offered)
        floor = {partition: self._floor(partition) for partition in asked}
        answer = method(offered)
        prepared = {p: {token.id for token in self.log.prepared(p)} for p in asked}
        self._judge.answered(answer, asked, floor, prepared, is_closing=is_closing)
        return answer

    def _floor(self, partition: TopicPartition) -> int:
        committed = self.log.committed(partition)
        return committed.offset if committed else 0

    def _watched_publish(self, method: Callable[..., Any], partition: TopicPartition, tokens: Any) -> None:
        self._judge.acting([partition])
        self._judge.met["published by the next owner"] += partition not in self.opened
        method(partition, tokens)
        self._judge.published(partition, tokens)

    def _watched_discard(self, method: Callable[..., Any], partition: TopicPartition, tokens: Any) -> None:
        self._judge.acting([partition])
        self._judge.met["discarded by the next owner"] += partition not in self.opened
        method(partition, tokens)

    def _watched_close(self, method: Callable[..., Any], partitions: Sequence[TopicPartition]) -> None:
        self.opened.difference_update(partitions)
        self._watched_end("close", method, partitions)

    def _watched_stop(self, method: Callable[..., Any]) -> None:
        self._watched_end("stop", method)

    def _watched_end(self, name: str, method: Callable[..., Any], *arguments: Any) -> None:
        before = self._see()
        try:
            method(*arguments)
        finally:
            self._judge.changed_by_closing(name, before, self._see())


def _unwatched(method: Callable[..., Any], *arguments: Any) -> Any:
    return method(*arguments)
