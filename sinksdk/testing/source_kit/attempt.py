"""One task from its making to its end: the real engine, with a trial looking at every call."""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sinksdk.engine.clock import OneThread
from sinksdk.engine.options import TaskName
from sinksdk.engine.outcome import SourceTaskOutcome
from sinksdk.engine.source import WorkerSourceTask
from sinksdk.engine.writer import transactional_id
from sinksdk.source.positions import SourcePosition, partition_key
from sinksdk.source.records import RecordMetadata, SourceOffset, SourcePartition, SourceRecord
from sinksdk.testing.clock import ManualClock
from sinksdk.testing.faults import TASK, Crash, FaultKind
from sinksdk.testing.source_kit.held import KIT_THREAD
from sinksdk.topics.memory import MemoryOffsets, MemoryTopics, MemoryWriter

if TYPE_CHECKING:
    from sinksdk.testing.source_kit.judge import SourceJudge
    from sinksdk.testing.source_kit.moments import Moments
    from sinksdk.testing.source_kit.subject import Boundary, SourceSubject

CONNECTOR: Final = "source"
GROUP: Final = "kit"
_OBSERVED: Final = ("initialize", "start", "poll", "commit", "commit_record", "stop", "stopped")
_RELEASING: Final = frozenset({"stop", "stopped"})
_STOP_PATIENCE: Final = 0.05  # seconds in which a stop that only signals is done
BUSY_POLLS: Final = 100
"""So many polls without records, one after the other, may not be over …"""
BUSY_SECONDS: Final = 0.05
"""… in so many seconds."""


class KitThreads(OneThread):
    """Real locks, because ``stop`` comes from another thread; time that passes at once; ticks by hand."""

    def lock(self) -> threading.Lock:
        """A lock between threads."""
        return threading.Lock()


@dataclass(eq=False)
class Call:
    """A call of the author's that runs now.

    Args:
        since: when it began, or went on.
    """

    name: str
    since: float


class ObservedWriter(MemoryWriter):
    """A writer that tells a judge how far the source was read by what it committed."""

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
    """A reader that tells what a task was told."""

    def __init__(
        self,
        topics: MemoryTopics,
        told: Callable[[Sequence[SourcePartition], Sequence[SourceOffset | None]], None],
    ) -> None:
        super().__init__(topics, CONNECTOR)
        self._told = told

    def offsets(self, partitions: Sequence[SourcePartition]) -> Sequence[SourceOffset | None]:
        found = super().offsets(partitions)
        self._told(partitions, found)
        return found


class Attempt:
    """Runs one task, once.

    Args:
        number: which of its connector's tasks.
        moments: what happens before, and goes wrong with, its operations.
        boundary: where transactions end.
        at_poll: called before each ``poll``, with this attempt.
    """

    def __init__(
        self,
        subject: SourceSubject,
        origin: Any,
        number: int,
        config: Any,
        *,
        topics: MemoryTopics,
        moments: Moments,
        judge: SourceJudge,
        boundary: Boundary,
        tell: Callable[[str], None],
        at_poll: Callable[[Attempt], None],
    ) -> None:
        self.label = f"task {number}"
        self.polls = 0
        self._quiet_since: float | None = None
        self.asked_at: float | None = None
        """When it was asked to stop."""
        self.calling: list[Call] = []
        """Calls of the author's that run now on the task's thread, and since when."""
        self.calls: Counter[str] = Counter()
        self._moments = moments
        self._judge = judge
        self._tell = tell
        self._at_poll = at_poll
        self._asking: list[threading.Thread] = []
        self._in_a_row, self._since = 0, 0.0
        self._before: dict[str, str] = {}
        self.task = subject.make_task(origin)
        for name in _OBSERVED:
            setattr(self.task, name, self._observed(getattr(self.task, name)))
        self._clock = ManualClock()
        self._options = subject.options(config, boundary)
        self.worker = WorkerSourceTask(
            self.task,
            TaskName(CONNECTOR, number),
            config,
            writer=ObservedWriter(topics, transactional_id(GROUP, TaskName(CONNECTOR, number)), judge),
            offsets=ObservedOffsets(topics, self._was_told),
            clock=self._clock,
            threads=KitThreads(self._clock),
            options=self._options,
        )

    def run(self) -> SourceTaskOutcome:
        """From fencing the predecessors to ``stopped``. Raises Crash when the process dies."""
        outcome = self.worker.run()
        for thread in self._asking:
            thread.join()
        if self.calls["initialize"] and not self.calls["stopped"]:
            self._judge.blame(f"{self.label} never heard stopped: that is a bug of sinksdk; please report it")
        return outcome

    def go_on(self) -> None:
        """Others have run meanwhile: the time that took is not its own."""
        for call in self.calling:
            call.since = time.monotonic()

    def quiet(self) -> float:
        """Seconds since its polls began to give nothing; less than 0 if the last one gave something."""
        return -1.0 if self._quiet_since is None else time.monotonic() - self._quiet_since

    def ask_to_stop(self) -> None:
        """Ask it to stop, from another thread, and give that a moment."""
        if self.asked_at is not None:
            return
        self.asked_at = time.monotonic()
        self._beside("stop", self.worker.stop).join(_STOP_PATIENCE)

    def tick(self) -> None:
        """Let time pass, and commit beside the task's thread if that is due by now.

        Raises:
            Crash: the process dies meanwhile.
        """
        if self._options.boundary != "interval":
            return
        self._clock.advance(self._options.interval * 0.6)
        self._beside("tick", self.worker.tick).join()
        if self._moments.is_dying:
            raise Crash

    def _beside(self, what: str, run: Callable[[], None]) -> threading.Thread:
        def go() -> None:
            self._moments.enter()
            with suppress(Crash):  # the stage notices
                run()

        thread = threading.Thread(target=go, name=f"{KIT_THREAD}: {what} of {self.label}", daemon=True)
        thread.start()
        self._asking.append(thread)
        return thread

    # -- looking on ----------------------------------------------------------------------------------

    def _observed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        name = method.__name__
        watch: Callable[..., Any] = getattr(self, f"_watched_{name}", _unwatched)

        @functools.wraps(method)
        def observed(*arguments: Any) -> Any:
            if self._moments.is_dying:
                raise Crash
            kind = None if name == "stop" else self._moments.take(TASK)
            if kind is FaultKind.CRASH_BEFORE:
                raise self._moments.crash()
            self._check_order(name)
            with self._timed(name):
                result = watch(method, *arguments)
            if kind is FaultKind.CRASH_AFTER:
                raise self._moments.crash()
            return result

        return observed

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        call = Call(name, time.monotonic())
        self.calling.append(call)
        try:
            yield
        finally:
            self.calling.remove(call)

    def _check_order(self, name: str) -> None:
        self.calls[name] += 1
        if name == "stopped" and self.calls[name] > 1:
            self._judge.blame(
                f"stopped() ran {self.calls[name]} times: the task calls it itself; it is the runtime's to "
                f"call, once and last of all, so let stop() only signal"
            )
        elif name != "stopped" and self.calls["stopped"]:
            self._judge.blame(f"{name}() ran after stopped(), which must be the last word")

    def _watched_poll(self, method: Callable[..., Any]) -> list[SourceRecord]:
        self._at_poll(self)
        self.polls += 1
        self.tick()
        began = time.perf_counter()
        records = list(method() or ())
        self._look_for_a_busy_loop(began, is_empty=not records)
        if records:
            self._quiet_since = None
        elif self._quiet_since is None:
            self._quiet_since = time.monotonic()
        self._note_records(records)
        return records

    def _look_for_a_busy_loop(self, began: float, *, is_empty: bool) -> None:
        if not is_empty or self.asked_at is not None:
            self._in_a_row = 0
            return
        if not self._in_a_row:
            self._since = began
        self._in_a_row += 1
        if self._in_a_row == BUSY_POLLS:
            self._in_a_row = 0
            if time.perf_counter() - self._since < BUSY_SECONDS:
                self._judge.blame(
                    f"poll() returned nothing {BUSY_POLLS} times within {BUSY_SECONDS:g} s, which is a "
                    f"busy loop: let it wait for records, at least a little, in a way that stop() ends"
                )

    def _note_records(self, records: list[SourceRecord]) -> None:
        if not records:
            return
        if not all(isinstance(record, SourceRecord) for record in records):
            return  # the engine has a word for that
        first, last = records[0].value, records[-1].value
        shown = f"{first!r}" if len(records) == 1 else f"{first!r} to {last!r} ({len(records)} records)"
        self._tell(f"{self.label} polls {shown}")
        for record in records:
            self._judge.follows(self._before, record)

    def _was_told(
        self, partitions: Sequence[SourcePartition], offsets: Sequence[SourceOffset | None]
    ) -> None:
        for partition, offset in zip(partitions, offsets, strict=True):
            self._before[partition_key(partition)] = partition_key(offset) if offset else ""
        told = [f"{dict(p)}: {dict(o)}" for p, o in zip(partitions, offsets, strict=True) if o]
        if told:
            self._tell(f"{self.label} is told {', '.join(told)}")

    def _watched_stop(self, method: Callable[..., Any]) -> None:
        self._watched_release("stop", method)

    def _watched_stopped(self, method: Callable[..., Any]) -> None:
        self._watched_release("stopped", method)

    def _watched_release(self, name: str, method: Callable[..., Any]) -> None:
        met = self._moments.happened.total()
        try:
            method()
        except Exception as error:
            if self._moments.happened.total() == met:
                after = "" if self.calls["poll"] else ", after a start that had failed half-way"
                self._judge.blame(
                    f"{name}() raised {type(error).__name__}: {error}{after}; the runtime ignores it, and "
                    f"what should have been released is not"
                )
            raise


def _unwatched(method: Callable[..., Any], *arguments: Any) -> Any:
    return method(*arguments)
