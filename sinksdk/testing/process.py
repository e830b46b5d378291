"""Run one attempt at the task under test in the real engine; report each call and write to its trial."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from sinksdk.context import SinkTaskContext
from sinksdk.errors import ConnectException
from sinksdk.offsets import OffsetAndMetadata, TopicPartition
from sinksdk.store import StoreUnavailable
from sinksdk.store.records import TaskRecord
from sinksdk.support.hooks import finished
from sinksdk.task import SinkTask
from sinksdk.testing.contract import Subject
from sinksdk.testing.doubles import MemoryCommitLog
from sinksdk.testing.faults import COMMIT_LOG, TASK, FaultKind, FaultPlan
from sinksdk.testing.harness import SinkTaskHarness
from sinksdk.testing.judge import EndlessSource, Judge, Seen

PORTION: Final = 3


class FaultyCommitLog(MemoryCommitLog):
    # Writes fail as the fault plan says, with or without effect; each failure ends the attempt.
    def __init__(self, faults: FaultPlan, judge: Judge) -> None:
        super().__init__()
        self._faults = faults
        self._judge = judge

    def _save(self, record: TaskRecord) -> None:
        save = super()._save

        def effect() -> None:
            before = self.saved
            save(record)
            self._judge.saved(before, self.saved)

        if self.is_fenced:
            effect()
        try:
            self._faults.run(COMMIT_LOG, effect)
        except ConnectException as error:
            raise StoreUnavailable(str(error)) from error


class RunningTrial(Protocol):
    @property
    def subject(self) -> Subject[Any]: ...
    @property
    def destination(self) -> Any: ...
    @property
    def source(self) -> EndlessSource: ...
    @property
    def generation(self) -> int: ...
    @property
    def faults(self) -> FaultPlan: ...
    @property
    def judge(self) -> Judge: ...
    def note(self, what: str, /) -> None: ...
    def see(self) -> Seen: ...
    def before_discard(self, process: Process, partition: TopicPartition, /) -> None: ...


class Process(SinkTaskHarness):
    def __init__(self, trial: RunningTrial) -> None:
        self._trial = trial
        self._faults = trial.faults
        self._judge = trial.judge
        config = trial.subject.config_for(trial.destination)
        super().__init__(
            self._make_task,
            config,
            dead_letters=trial.judge if trial.subject.capabilities.dead_letters else None,
            log=FaultyCommitLog(trial.faults, trial.judge),
            clock=trial.faults.clock,
        )

    def _make_task(self) -> SinkTask:
        # None: the task takes whole batches.
        task = self._trial.subject.make_task(self._trial.destination)
        if task.max_poll_records is not None:
            task.max_poll_records = PORTION  # type: ignore[misc]  # of this very task, for its trials
        return task

    def _build(self) -> None:
        self.opened: set[TopicPartition] = set()
        self.dies_in_publish = False
        self._context: SinkTaskContext | None = None
        self._depth = 0
        self._generation = self._trial.generation
        self._options = self._trial.subject.options(
            self._config, is_transformed=self._trial.source.is_transformed
        )
        super()._build()

    def _observed(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        watch: Callable[..., Any] | None = getattr(self, f"_watched_{name}", None)

        def finished_call(*arguments: Any) -> Any:
            return finished(name, method(*arguments))

        watched = finished_call if watch is None else functools.partial(watch, finished_call)

        @functools.wraps(method)
        def observed(*arguments: Any) -> Any:
            kind = self._faults.take(TASK)
            if kind is FaultKind.CRASH_BEFORE:
                raise self._faults.crash()
            self._judge.acting(self.opened)
            if not self._depth:  # otherwise the task calls its own method
                self._check_engine(name, *arguments)
            self._depth += 1
            try:
                result = watched(*arguments)
            except Exception as error:
                self._trial.note(f"{name} raises {type(error).__name__}: {error}")
                raise
            finally:
                self._depth -= 1
            if kind is FaultKind.CRASH_AFTER:
                raise self._faults.crash()
            return result

        observed.__name__ = name
        return observed

    def _watched_initialize(self, method: Callable[..., Any], context: SinkTaskContext) -> None:
        self._context = context
        method(context)

    def _watched_open(self, method: Callable[..., Any], partitions: Sequence[TopicPartition]) -> None:
        self._judge.acting(partitions)
        method(partitions)
        self.opened.update(partitions)
        for partition in partitions:
            self._judge.opened(partition, getattr(self._context, "moves", {}).get(partition))

    def _watched_put(self, method: Callable[..., Any], records: Any) -> None:
        self._judge.put(records)
        method(records)

    def _watched_pre_commit(
        self, method: Callable[..., Any], offered: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Any:
        is_closing = self._is_closing()
        before = dict(offered)
        # A task may move back below its commit; then pre_commit is offered the lower offset.
        floor = {partition: min(self.floor(partition), offset.offset) for partition, offset in before.items()}
        returned = method(offered)
        prepared = {p: {token.id for token in self.log.prepared(p)} for p in before}
        self._judge.pre_committed(returned, before, floor, prepared, is_closing=is_closing)
        return returned

    def _is_closing(self) -> bool:
        return self._context is not None and self._context.is_closing()

    def _check_engine(self, name: str, *arguments: Any) -> None:
        # A violation at this point is a bug of the engine, not of the sink.
        concerned = set(arguments[0]) if name in ("pre_commit", "close") else set()
        if name == "put":
            concerned = {arguments[0].partition}
        if not concerned <= self.opened:
            self._judge.blame(
                f"{name} was called for partitions that are not open: this is a bug of sinksdk; please "
                f"report it"
            )
        if name != "pre_commit" and self._is_closing():
            self._judge.blame(f"is_closing() is true in {name}: this is a bug of sinksdk; please report it")

    def floor(self, partition: TopicPartition) -> int:
        committed = self.log.committed(partition)
        return committed.offset if committed else 0

    def _watched_publish(self, method: Callable[..., Any], partition: TopicPartition, tokens: Any) -> None:
        self._judge.acting([partition])
        if self.dies_in_publish:
            raise self._faults.crash()
        self._judge.met["published by the next owner"] += self._is_a_predecessors(partition)
        method(partition, tokens)
        self._judge.published(partition, tokens)

    def _watched_discard(self, method: Callable[..., Any], partition: TopicPartition, tokens: Any) -> None:
        self._judge.acting([partition])
        if self._is_a_predecessors(partition):
            self._judge.met["discarded by the next owner"] += 1
            self._trial.before_discard(self, partition)
            self._judge.acting([partition])
        try:
            method(partition, tokens)
        except Exception as error:
            self._judge.not_discarded(partition, tokens, error)
            raise
        self._judge.discarded(partition, tokens)

    def _is_a_predecessors(self, partition: TopicPartition) -> bool:
        # A task may call the method itself in close, with tokens of its own.
        return self._depth == 1 and partition not in self.opened

    def _watched_close(self, method: Callable[..., Any], partitions: Sequence[TopicPartition]) -> Any:
        self.opened.difference_update(partitions)
        return self._watched_end("close", method, partitions)

    def _watched_stop(self, method: Callable[..., Any]) -> Any:
        return self._watched_end("stop", method)

    def _watched_end(self, name: str, method: Callable[..., Any], *arguments: Any) -> Any:
        before = self._trial.see()
        try:
            return method(*arguments)
        finally:
            self._judge.changed_by_closing(name, before, self._trial.see())
