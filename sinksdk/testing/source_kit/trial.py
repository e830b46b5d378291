"""Run one schedule of a source under test, step by step; a replay runs the same code."""

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
from typing import Any, Final

from sinksdk.engine.clock import OneThread
from sinksdk.engine.options import TaskName
from sinksdk.engine.worker_source_task import WorkerSourceTask
from sinksdk.engine.writer import transactional_id
from sinksdk.model.outcome import End, SourceTaskOutcome
from sinksdk.source.positions import SourcePosition, partition_key
from sinksdk.source.records import RecordMetadata, SourceOffset, SourcePartition, SourceRecord
from sinksdk.support.hooks import finished
from sinksdk.testing.contract import HIDDEN, KitError, SourceContractError, Step, nth, upcoming
from sinksdk.testing.faults import ORIGIN, TASK, TOPICS, Crash, Fault, FaultKind, FaultPlan, ManualClock
from sinksdk.testing.source_kit.judge import (
    KIT_THREAD,
    OpenResources,
    SourceJudge,
    changed_classes,
    class_state,
    rows_of,
)
from sinksdk.testing.source_kit.subject import Boundary, SourceSubject
from sinksdk.topics.memory import MemoryOffsets, MemoryTopics, MemoryWriter

__tracebackhide__ = HIDDEN

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
        self, trial: SourceTrial, number: int, config: Any, at_poll: Callable[[Attempt], None]
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


END: Final = "recovery: no more faults, all changes of the origin happen, tasks read the rest"
_EVENTS: Final = {
    Event.FREEZE: "the process freezes, and another generation runs",
    Event.STOP: "the task is requested to stop",
    Event.CHANGE: "the origin changes",
}
_SENTENCES: Final[Mapping[str, Callable[..., str]]] = {
    "run": lambda more, polls: (
        f"a generation of {1 + more} task{'s' if more else ''} starts; {'each' if more else 'it'} is stopped "
        f"during its {nth(polls)} poll"
    ),
    "boundary": lambda name: f"from now on transaction.boundary is {name}",
    "idle": lambda: "after recovery, tasks run for a while with nothing left to read",
    "fault": lambda where, at, kind: f"fault at the {upcoming(at, where)}: {kind}",
    "meanwhile": lambda where, at, what: f"before the {upcoming(at, where)}, {_EVENTS.get(what, what)}",
    "change": lambda: "the origin changes",
}

STEPS: Final = tuple(_SENTENCES)

# Counts the stops that ended the poll of an idle, waiting task.
STOPPED_WAITS: Final = "stops of a poll that waited"


_POLL: Final = 0.001  # seconds between two checks of the task's thread
# Longest time between two checks that counts: in a longer gap the machine stood still.
_LONGEST_POLL: Final = 0.1
_WAITING: Final = 0.003  # seconds after which a poll counts as waiting
_AFTERWARDS: Final = 0.001  # seconds in which a task might write records again
_IDLE: Final = 0.2  # seconds
_MOST_POLLS: Final = 10_000
_ROUNDS: Final = 3
_MOST_NESTED: Final = 3


class SourceTrial:
    # A case runs on a separate thread, where concurrent events are nested: the successor of a frozen task
    # runs before one of the task's operations. The caller's thread ends calls that really wait. Libraries
    # open files in the first case of a process, and keep them: that case does not check open resources.
    def __init__(
        self,
        subject: SourceSubject,
        exercised: Counter[str] | None = None,
        *,
        checks_open_resources: bool = True,
    ) -> None:
        self.subject = subject
        self.faults = FaultSchedule()
        self.origin = subject.origin(self.faults)
        self.topics = MemoryTopics(lambda _, effect: self.faults.run(TOPICS, effect))
        self.judge = SourceJudge(subject.capabilities)
        self.ends_at: Boundary = subject.capabilities.boundaries[0]
        self.story: list[str] = []
        self.exercised = Counter[str]() if exercised is None else exercised
        self.steps: list[Step] = []
        self.is_hanging = False
        self.raised: str | None = None
        self._changes = list(subject.changes)
        self._count = 1
        self._running: list[Attempt] = []
        self._crashed: list[Attempt] = []
        self._wait: tuple[Any, ...] = ()
        self._checked_at = 0.0
        self._waited = 0.0
        self._patience = _WAITING
        self._idle = 0.0
        self._idle_until: float | None = None
        self._checks_open_resources = checks_open_resources

    # -- running -------------------------------------------------------------------------------------

    def play(self, steps: Sequence[Step]) -> SourceContractError | None:
        try:
            self._watch(lambda: self._play(steps))
            self._count_what_happened()
            if self.judge.problem is None:
                return None
            return SourceContractError(self.judge.problem + self._hint(), self.story, self.steps)
        except Exception as error:
            # The error may come from the author's ``changes``; the story is added as a note.
            error.add_note(SourceContractError.story_text(self.story, self.steps))
            raise
        finally:
            if not self.is_hanging:
                self._release_crashed()
                self.subject.clean_up(self.origin)

    def _play(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self._step(*step)
            if self.judge.problem is not None:
                return
        self._finish()

    def _step(self, name: str, *arguments: Any) -> None:
        method: Callable[..., None] | None = getattr(self, name, None) if name in STEPS else None
        if method is None:
            raise KitError(f"there is no step {name!r}; the steps are {', '.join(STEPS)}")
        self.steps.append((name, *arguments))
        self.exercised[name] += 1
        self.story.append(_SENTENCES[name](*arguments))
        method(*arguments)

    def _finish(self) -> None:
        self.story.append(END)
        self.faults.disarm()
        while self._changes:
            self.change()
        for round_ in range(_ROUNDS):
            if self._is_complete():
                break
            self._patience = (_WAITING, 10 * _WAITING, self.subject.patience / 2)[round_]
            self._generation(self._count, None)
        # All records have arrived: a new generation must not write any of them again.
        self._patience = self._idle or _AFTERWARDS
        self._idle_until = time.monotonic() + self._idle
        self._generation(self._count, None)
        self.judge.check(self.subject.truth(self.origin), self.topics.logs.values())

    # -- steps ---------------------------------------------------------------------------------------

    def run(self, more: int, polls: int) -> None:
        """Run a generation of ``1 + more`` tasks; each is stopped during the poll after ``polls`` others."""
        self._patience = _WAITING
        self._generation(1 + more, polls)

    def boundary(self, name: Boundary) -> None:
        """Set ``transaction.boundary`` from the next generation on."""
        self.ends_at = name

    def idle(self) -> None:
        """Let tasks run for a while at the end, to check how they wait when there is nothing to read."""
        self._idle = _IDLE

    def fault(self, where: str, at: int, kind: str) -> None:
        """Inject a fault into a later operation."""
        self.faults.arm(Fault(where, at, FaultKind(kind)))

    def meanwhile(self, where: str, at: int, what: str) -> None:
        """Run an event right before a later operation."""
        self.faults.before(where, at, lambda: self._run_event(Event(what)))

    def change(self) -> None:
        """Run the next change of the origin."""
        if self._changes:
            self.exercised["changes of the origin"] += 1
            self._changes.pop(0)(self.origin)

    def _run_event(self, event: Event) -> None:
        if not self._running or len(self._running) > _MOST_NESTED:
            return
        attempt = self._running[-1]
        self.exercised[f"meanwhile: {event}"] += 1
        match event:
            case Event.STOP:
                self.note(f"{attempt.label} is requested to stop")
                attempt.request_stop()
            case Event.CHANGE:
                self.note("the origin changes")
                self.change()
            case Event.FREEZE:
                self.note(f"{attempt.label} freezes, and another generation takes over")
                self._generation(self._count, 2)
                self.note(f"{attempt.label} resumes as a zombie")

    # -- generations -----------------------------------------------------------------------------------

    def _generation(self, tasks: int, polls: int | None) -> None:
        for number in range(self._count):
            self.topics.take_over(f"{GROUP}-{CONNECTOR}-{number}")
        configs = self.subject.configs(self.origin, min(max(tasks, 1), self.subject.most_tasks))
        self._count = len(configs)
        self.exercised[f"generations of {self._count} tasks"] += 1
        waiting = list(enumerate(configs))
        while waiting:
            self._next_of(waiting, polls)

    def _next_of(self, waiting: list[tuple[int, Any]], polls: int | None) -> None:
        number, config = waiting.pop(0)
        before, met = OpenResources.now(), self.faults.happened.total()
        attempt = Attempt(self, number, config, lambda attempt: self._at_poll(attempt, waiting, polls))
        shared = class_state(attempt.task)
        self._running.append(attempt)
        try:
            outcome = attempt.run()
        except Crash:
            if self.is_hanging:
                raise  # the kit has abandoned this case
            self.faults.restart()
            self._checks_open_resources = False  # a crashed process does not close its resources
            self._crashed.append(attempt)
            self.note(f"{attempt.label} dies")
            self.exercised["tasks that died"] += 1
        else:
            self.exercised[f"tasks that ended {outcome.end}"] += 1
            if outcome.failure is not None:
                self.raised = self.raised or outcome.failure.message
                self.note(f"{attempt.label} ends: {outcome.failure.message}")
            if outcome.end is End.FAILED and self.faults.happened.total() == met and outcome.failure:
                self.judge.blame(f"a task failed although no fault was injected: {outcome.failure.message}")
            if self._checks_open_resources:
                self.exercised["checks for open resources after stopped"] += 1
                if left := before.left_since():
                    self.judge.blame(
                        f"after stopped(), {attempt.label} still has {' and '.join(left)}; stopped() must "
                        f"release everything"
                    )
        finally:
            self._running.remove(attempt)
            if self._running:
                self._running[-1].resume()
        self.subject.shared.update(changed_classes(shared, class_state(attempt.task)))

    def _at_poll(self, attempt: Attempt, waiting: list[tuple[int, Any]], limit: int | None) -> None:
        if attempt.polls and waiting:
            self._next_of(waiting, limit)
        if self._has_polled_enough(attempt, limit):
            attempt.request_stop()

    def _has_polled_enough(self, attempt: Attempt, limit: int | None) -> bool:
        if limit is not None and attempt.polls >= limit:
            return True
        if self._idle_until is not None:
            return attempt.polls > 0 and time.monotonic() >= self._idle_until
        if attempt.polls >= _MOST_POLLS:
            self.judge.blame(
                f"{attempt.label} polled {_MOST_POLLS:,} times and still returns records, but not all that "
                f"`expected` names"
            )
            return True
        return self._is_complete() or attempt.quiet() > self._patience

    def _is_complete(self) -> bool:
        if self._changes:
            return False
        truth, logs = self.subject.truth(self.origin), self.topics.logs.values()
        if isinstance(truth, Mapping):
            rows = rows_of(truth, logs)
            return all(rows.get(key) == value for key, value in truth.items())
        return sum(map(len, logs)) >= len(truth)

    # -- calls that really wait ------------------------------------------------------------------------

    def _watch(self, play: Callable[[], None]) -> None:
        done = threading.Event()
        raised: list[BaseException] = []

        def run() -> None:
            self.faults.enter()
            try:
                play()
            except BaseException as error:  # noqa: BLE001 - it is raised again where it can be seen
                raised.append(error)
            finally:
                done.set()

        thread = threading.Thread(target=run, name=f"{KIT_THREAD}: stage", daemon=True)
        thread.start()
        while not done.wait(_POLL) and not self.is_hanging:
            self._end_waiting_call()
        if self.is_hanging:
            return  # the thread and its errors are abandoned
        thread.join()
        if raised:
            raise raised[0]

    def _end_waiting_call(self) -> None:
        try:
            attempt = self._running[-1]
            call = attempt.calling[-1]
        except IndexError:
            return  # no method of a task runs
        waited, patience = (
            self._seconds_of(call, call.since, attempt.stop_requested_at),
            self.subject.patience,
        )
        if call.name == "poll" and attempt.stop_requested_at is None:
            if waited > self._patience:
                if self._idle:  # the wait is too long for a pause on a busy machine
                    self.exercised[STOPPED_WAITS] += 1
                attempt.request_stop()
        elif waited > patience:
            self.is_hanging = True
            self.faults.crash()  # the next operation raises Crash, if the thread ever resumes
            self.judge.problem = (
                f"poll() still waits {patience:g} s after stop(): let it wait for an event that stop() sets"
                if call.name == "poll"
                else f"{call.name}() did not return within {patience:g} s"
            )

    def _seconds_of(self, *wait: Any) -> float:
        # Time in which the machine stood still does not count.
        now = time.monotonic()
        self._waited = (
            self._waited + min(now - self._checked_at, _LONGEST_POLL) if wait == self._wait else 0.0
        )
        self._wait, self._checked_at = wait, now
        return self._waited

    # -- afterwards ----------------------------------------------------------------------------------

    def _release_crashed(self) -> None:
        # The operating system closes such resources when a process dies, so errors do not count.
        self.faults.disarm()
        for attempt in self._crashed:
            for release in (type(attempt.task).stop, type(attempt.task).stopped):
                with suppress(Exception):  # the crash may have interrupted the start
                    release(attempt.task)

    def _count_what_happened(self) -> None:
        self.exercised["cases"] += 1
        self.exercised["steps"] += len(self.steps)
        self.exercised["records"] += sum(map(len, self.topics.logs.values()))
        self.exercised["operations of the origin"] += self.faults.operations["origin"]
        self.exercised["duplicates seen"] += self.judge.duplicates
        for (where, kind), times in self.faults.happened.items():
            self.exercised[f"{where}: {kind}"] += times

    def note(self, what: str) -> None:
        if self.story:
            self.story[-1] += f"\n     - {what}"

    def _hint(self) -> str:
        if not self.subject.shared:
            return ""
        names = ", ".join(sorted(self.subject.shared))
        return (
            f" (tasks share state: {names} changed while a task ran, and all tasks of a process share it; "
            f"make it an attribute of the instance)"
        )
