"""Run a source task in the real engine; report each call to its trial."""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final, Protocol

from sinksdk.engine.clock import OneThread
from sinksdk.engine.options import TaskName
from sinksdk.engine.worker_source_task import WorkerSourceTask
from sinksdk.engine.writer import transactional_id
from sinksdk.model.outcome import SourceTaskOutcome
from sinksdk.source.positions import SourcePosition, partition_key
from sinksdk.source.records import RecordMetadata, SourceOffset, SourcePartition, SourceRecord
from sinksdk.support.hooks import finished
from sinksdk.testing.faults import ORIGIN, TASK, TOPICS, Crash, FaultKind, FaultPlan, ManualClock
from sinksdk.testing.source_kit.judge import KIT_THREAD, SourceJudge
from sinksdk.testing.source_kit.subject import Boundary, SourceSubject
from sinksdk.topics.memory import MemoryOffsets, MemoryTopics, MemoryWriter

CONNECTOR: Final = "source"
GROUP: Final = "kit"
_OBSERVED: Final = ("initialize", "start", "poll", "commit", "commit_record", "stop", "stopped")
_STOP_PATIENCE: Final = 0.05  # seconds for a stop() that only signals
# Consecutive polls without records: if they take less than ``_BUSY_SECONDS``, the task does not wait.
_BUSY_POLLS: Final = 100
_BUSY_SECONDS: Final = 0.05


FAULTS: Final[Mapping[str, Sequence[FaultKind]]] = {
    TOPICS: tuple(kind for kind in FaultKind if kind is not FaultKind.SLOW),
    ORIGIN: tuple(kind for kind in FaultKind if kind is not FaultKind.SLOW),
    TASK: (FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER),
}


class RunningTrial(Protocol):
    @property
    def subject(self) -> SourceSubject: ...
    @property
    def origin(self) -> Any: ...
    @property
    def topics(self) -> MemoryTopics: ...
    @property
    def ends_at(self) -> Boundary: ...
    @property
    def faults(self) -> FaultSchedule: ...
    @property
    def judge(self) -> SourceJudge: ...
    def note(self, what: str, /) -> None: ...


class Event(StrEnum):
    FREEZE = "freeze"
    """The process freezes, another generation takes over and runs; then the process resumes as a zombie."""
    STOP = "stop"
    """The runtime stops the task, from another thread."""
    CHANGE = "change"
    """The next change of the origin happens."""


class FaultSchedule(FaultPlan):
    def __init__(self) -> None:
        super().__init__()
        self._events: dict[tuple[str, int], Callable[[], None]] = {}
        self._thread = threading.local()

    def before(self, where: str, at: int, event: Callable[[], None]) -> None:
        self._events[where, self.operations[where] + at] = event

    def enter(self) -> None:
        # In threads of the task only faults happen, and no events.
        self._thread.is_entered = True

    def take(self, where: str) -> FaultKind | None:
        if not self.has_crashed and getattr(self._thread, "is_entered", False):
            event = self._events.pop((where, self.operations[where]), None)
            if event is not None:
                event()
        return super().take(where)

    def disarm(self) -> None:
        super().disarm()
        self._events.clear()


class KitThreads(OneThread):
    # Real locks are needed, because ``stop`` comes from another thread.
    def lock(self) -> threading.Lock:
        return threading.Lock()


@dataclass(eq=False)
class Call:
    # The time of a call starts again if another task ran during the call.
    name: str
    since: float


class ObservedWriter(MemoryWriter):
    def __init__(self, topics: MemoryTopics, identity: str, judge: SourceJudge) -> None:
        super().__init__(topics, identity, CONNECTOR)
        self._judge = judge

    def commit(
        self, positions: Sequence[SourcePosition], forget: Sequence[SourcePartition] = ()
    ) -> Sequence[RecordMetadata]:
        written = super().commit(positions, forget)
        for position in positions:
            self._judge.moved(position)
        return written


class ObservedOffsets(MemoryOffsets):
    def __init__(
        self,
        topics: MemoryTopics,
        note: Callable[[Sequence[SourcePartition], Sequence[SourceOffset | None]], None],
    ) -> None:
        super().__init__(topics, CONNECTOR)
        self._note = note

    def offsets(self, partitions: Sequence[SourcePartition]) -> Sequence[SourceOffset | None]:
        found = super().offsets(partitions)
        self._note(partitions, found)
        return found


class Attempt:
    def __init__(
        self, trial: RunningTrial, number: int, config: Any, at_poll: Callable[[Attempt], None]
    ) -> None:
        self.label = f"task {number}"
        self.polls = 0
        self.stop_requested_at: float | None = None
        self.calling: list[Call] = []
        self.calls: Counter[str] = Counter()
        self._trial = trial
        self._at_poll = at_poll
        self._quiet_since: float | None = None
        self._empty_polls, self._empty_since = 0, 0.0
        self._threads: list[threading.Thread] = []
        self._reached: dict[str, str] = {}
        self.task = trial.subject.make_task(trial.origin)
        for name in _OBSERVED:
            setattr(self.task, name, self._observed(name, getattr(self.task, name)))
        self._clock = ManualClock()
        self._options = trial.subject.options(config, trial.ends_at)
        task_name = TaskName(CONNECTOR, number)
        self.worker = WorkerSourceTask(
            self.task,
            task_name,
            config,
            writer=ObservedWriter(trial.topics, transactional_id(GROUP, task_name), trial.judge),
            offsets=ObservedOffsets(trial.topics, self._note_offsets),
            clock=self._clock,
            threads=KitThreads(self._clock),
            options=self._options,
        )

    def run(self) -> SourceTaskOutcome:
        outcome = self.worker.run()
        for thread in self._threads:
            thread.join()
        if self.calls["initialize"] and not self.calls["stopped"]:
            self._trial.judge.blame(
                f"stopped() of {self.label} was not called: this is a bug of sinksdk; please report it"
            )
        return outcome

    def resume(self) -> None:
        for call in self.calling:
            call.since = time.monotonic()

    def quiet(self) -> float:
        # -1: the last poll returned records.
        return -1.0 if self._quiet_since is None else time.monotonic() - self._quiet_since

    def request_stop(self) -> None:
        if self.stop_requested_at is not None:
            return
        self.stop_requested_at = time.monotonic()
        self._run_on_thread("stop", self.worker.stop).join(_STOP_PATIENCE)

    def tick(self) -> None:
        # The engine makes a commit that is due on another thread; the Crash of that thread is raised here.
        if self._options.boundary != "interval":
            return
        self._clock.advance(self._options.interval * 0.6)
        self._run_on_thread("tick", self.worker.tick).join()
        if self._trial.faults.has_crashed:
            raise Crash

    def _run_on_thread(self, what: str, run: Callable[[], None]) -> threading.Thread:
        def go() -> None:
            self._trial.faults.enter()
            with suppress(Crash):  # the thread of the case raises the Crash
                run()

        thread = threading.Thread(target=go, name=f"{KIT_THREAD}: {what} of {self.label}", daemon=True)
        thread.start()
        self._threads.append(thread)
        return thread

    # -- observation ----------------------------------------------------------------------------------

    def _observed(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def finished_call(*arguments: Any) -> Any:
            return finished(name, method(*arguments))

        finished_call.__name__ = name
        watches = {"poll": self._poll, "stop": self._release, "stopped": self._release}
        watched: Callable[..., Any] = (
            partial(watches[name], finished_call) if name in watches else finished_call
        )

        @functools.wraps(method)
        def observed(*arguments: Any) -> Any:
            if self._trial.faults.has_crashed:
                raise Crash
            kind = None if name == "stop" else self._trial.faults.take(TASK)
            if kind is FaultKind.CRASH_BEFORE:
                raise self._trial.faults.crash()
            self._check_order(name)
            call = Call(name, time.monotonic())
            self.calling.append(call)
            try:
                result = watched(*arguments)
            finally:
                self.calling.remove(call)
            if kind is FaultKind.CRASH_AFTER:
                raise self._trial.faults.crash()
            return result

        observed.__name__ = name
        return observed

    def _check_order(self, name: str) -> None:
        self.calls[name] += 1
        if name == "stopped" and self.calls[name] > 1:
            self._trial.judge.blame(
                f"stopped() ran {self.calls[name]} times, because the task called it: only the runtime may "
                f"call it, once and last; let stop() only signal"
            )
        elif name != "stopped" and self.calls["stopped"]:
            self._trial.judge.blame(f"{name}() ran after stopped(), which must be the last call")

    def _poll(self, method: Callable[..., Any]) -> list[SourceRecord]:
        self._at_poll(self)
        self.polls += 1
        self.tick()
        began = time.perf_counter()
        records = list(method() or ())
        self._check_busy_loop(began, is_empty=not records)
        if records:
            self._quiet_since = None
        elif self._quiet_since is None:
            self._quiet_since = time.monotonic()
        self._note_records(records)
        return records

    def _check_busy_loop(self, began: float, *, is_empty: bool) -> None:
        if not is_empty or self.stop_requested_at is not None:
            self._empty_polls = 0
            return
        if not self._empty_polls:
            self._empty_since = began
        self._empty_polls += 1
        if self._empty_polls == _BUSY_POLLS:
            self._empty_polls = 0
            if time.perf_counter() - self._empty_since < _BUSY_SECONDS:
                self._trial.judge.blame(
                    f"poll() returned no records {_BUSY_POLLS} times within {_BUSY_SECONDS:g} s, which is a "
                    f"busy loop: let it wait for records, at least briefly, until stop() wakes it up"
                )

    def _note_records(self, records: list[SourceRecord]) -> None:
        if not records or not all(isinstance(record, SourceRecord) for record in records):
            return  # the engine refuses other objects
        first, last = records[0].value, records[-1].value
        shown = f"{first!r}" if len(records) == 1 else f"{first!r} to {last!r} ({len(records)} records)"
        self._trial.note(f"{self.label} polls {shown}")
        for record in records:
            self._trial.judge.follows(self._reached, record)

    def _note_offsets(
        self, partitions: Sequence[SourcePartition], offsets: Sequence[SourceOffset | None]
    ) -> None:
        for partition, offset in zip(partitions, offsets, strict=True):
            self._reached[partition_key(partition)] = partition_key(offset) if offset else ""
        starts = [f"{dict(p)}: {dict(o)}" for p, o in zip(partitions, offsets, strict=True) if o]
        if starts:
            self._trial.note(f"{self.label} starts at {', '.join(starts)}")

    def _release(self, method: Callable[..., Any]) -> None:
        met = self._trial.faults.happened.total()
        try:
            method()
        except Exception as error:
            if self._trial.faults.happened.total() == met:
                after = "" if self.calls["poll"] else " after start() had failed"
                self._trial.judge.blame(
                    f"{method.__name__}() raised {type(error).__name__}: {error}{after}; the runtime ignores "
                    f"it, so resources may not have been released"
                )
            raise
