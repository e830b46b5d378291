"""One schedule of a source under test, step by step: what fails here fails in a replay."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from sinksdk.engine.outcome import End
from sinksdk.testing.contract import KitError, SourceContractError, Step
from sinksdk.testing.faults import Crash, Fault, FaultKind
from sinksdk.testing.source_kit.attempt import CONNECTOR, GROUP, Attempt
from sinksdk.testing.source_kit.held import KIT_THREAD, Held
from sinksdk.testing.source_kit.judge import SourceJudge, changed_classes, class_state
from sinksdk.testing.source_kit.moments import TOPICS, Event, Moments
from sinksdk.testing.source_kit.story import END, sentence
from sinksdk.testing.source_kit.subject import Boundary, SourceSubject
from sinksdk.topics.memory import MemoryTopics

T = TypeVar("T")

_LOOK: Final = 0.001  # seconds between two looks at what the task's thread does
_WAITING: Final = 0.003  # seconds after which a poll is taken to wait for what does not come
_AFTERWARDS: Final = 0.001  # seconds that a task has to give again what is all there
_IDLE: Final = 0.2  # seconds
_MOST_POLLS: Final = 10_000
_ROUNDS: Final = 3
_MOST_NESTED: Final = 3


class SourceTrial:
    """Runs one generation of tasks after the other, as the runtime would, and judges when all is over.

    The case runs on a thread of its own, where everything that happens at the same time is nested: a task
    that freezes does so while its successor runs, before one of its operations. Only what really waits is
    ended from outside, by the caller's thread.

    Args:
        looks_at_what_is_left: not in a process's first case, in which libraries open what they keep.
    """

    def __init__(
        self,
        subject: SourceSubject,
        exercised: Counter[str] | None = None,
        *,
        looks_at_what_is_left: bool = True,
    ) -> None:
        self.subject = subject
        self.exercised = Counter[str]() if exercised is None else exercised
        self.moments = Moments()
        self.origin = subject.origin(self.moments)
        self.topics = MemoryTopics(lambda _, effect: self.moments.run(TOPICS, effect))
        self.judge = SourceJudge(subject.capabilities)
        self.steps: list[Step] = []
        self.story: list[str] = []
        """What happened, a sentence for each step."""
        self._boundary: Boundary = subject.capabilities.boundaries[0]
        self._changes = list(subject.changes)
        self._count = 1
        self._running: list[Attempt] = []
        """Attempts under way, each begun while the one before stands still."""
        self._limit: int | None = None
        self._patience = _WAITING
        self._idle = 0.0
        self._idle_until: float | None = None
        self._is_left_of_interest = looks_at_what_is_left
        self._dead: list[Attempt] = []
        self._is_hanging = False

    # -- running -------------------------------------------------------------------------------------

    def play(self, steps: Sequence[Step]) -> SourceContractError | None:
        """Do the steps, then what is left, and say what is wrong. Cleans up."""
        try:
            self._watch(lambda: self._play(steps))
            self._count_what_happened()
            if self.judge.problem is None:
                return None
            return SourceContractError(self.judge.problem + self._hint(), self.story, self.steps)
        finally:
            if not self._is_hanging:
                self._bury_the_dead()
                self.subject.clean_up(self.origin)

    @property
    def is_hanging(self) -> bool:
        """Whether a call of the task's does not return: its thread is left behind."""
        return self._is_hanging

    def _play(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self._step(*step)
            if self.judge.problem is not None:
                return
        self._finish()

    def _step(self, name: str, *arguments: Any) -> None:
        method: Callable[..., None] | None = getattr(self, name, None) if name in STEPS else None
        if method is None:
            message = f"there is no step {name!r}; there are {', '.join(STEPS)}"
            raise KitError(message)
        self.steps.append((name, *arguments))
        self.exercised[name] += 1
        self.story.append(sentence(name, arguments))
        method(*arguments)

    def _finish(self) -> None:
        """No more faults: what is left happens to the origin, tasks read until everything is there."""
        self.story.append(END)
        self.moments.disarm()
        while self._changes:
            self.change()
        for round_ in range(_ROUNDS):
            if self._is_complete():
                break
            self._patience = (_WAITING, 10 * _WAITING, self.subject.patience / 2)[round_]
            self._generation(self._count, None)
        self._look_beyond()
        truth = self.subject.truth(self.origin)
        self.judge.look(truth, self.topics.logs.values())

    def _look_beyond(self) -> None:
        """Everything is there: a new generation must not give any of it again."""
        self._patience = self._idle or _AFTERWARDS
        self._idle_until = time.monotonic() + self._idle
        self._generation(self._count, None)

    # -- steps ---------------------------------------------------------------------------------------

    def run(self, more: int, polls: int) -> None:
        """A new generation: a task, and so many more, which each poll so often and are stopped."""
        self._patience = _WAITING
        self._generation(1 + more, polls)

    def boundary(self, name: Boundary) -> None:
        """From the next generation on, transactions end there."""
        self._boundary = name

    def idle(self) -> None:
        """In the end tasks go on for a while, to show how they wait when there is nothing."""
        self._idle = _IDLE

    def fault(self, where: str, at: int, kind: str) -> None:
        """Let an operation go wrong that is still to come."""
        self.moments.arm(Fault(where, at, FaultKind(kind)))

    def meanwhile(self, where: str, at: int, what: str) -> None:
        """Let something else happen right before an operation that is still to come."""
        self.moments.before(where, at, lambda: self._happen(Event(what)))

    def change(self) -> None:
        """The next thing happens to the origin."""
        if self._changes:
            self.exercised["changes of the origin"] += 1
            self._changes.pop(0)(self.origin)

    def _happen(self, event: Event) -> None:
        if not self._running or len(self._running) > _MOST_NESTED:
            return
        attempt = self._running[-1]
        self.exercised[f"meanwhile: {event}"] += 1
        match event:
            case Event.STOP:
                self._tell(f"{attempt.label} is asked to stop")
                attempt.ask_to_stop()
            case Event.CHANGE:
                self._tell("the origin changes")
                self.change()
            case Event.FREEZE:
                self._tell(f"{attempt.label} freezes, and another generation takes over")
                self._generation(self._count, 2)
                self._tell(f"{attempt.label} wakes up, a zombie")

    # -- generations -----------------------------------------------------------------------------------

    def _generation(self, tasks: int, polls: int | None) -> None:
        """Fence the last one, then run tasks, each begun while the one before it polls."""
        for number in range(self._count):
            self.topics.take_over(f"{GROUP}-{CONNECTOR}-{number}")
        configs = list(self.subject.configs(self.origin, min(tasks, self.subject.most_tasks)))
        self._count = len(configs)
        self.exercised[f"generations of {self._count} tasks"] += 1
        outer, self._limit = self._limit, polls
        waiting = [(number, config) for number, config in enumerate(configs)]
        while waiting:
            self._next_of(waiting)
        self._limit = outer

    def _next_of(self, waiting: list[tuple[int, Any]]) -> None:
        """Run the next task to its end; the one after it begins at its second poll."""
        number, config = waiting.pop(0)
        before, met = Held.now(), self.moments.happened.total()
        limit = self._limit
        attempt = Attempt(
            self.subject,
            self.origin,
            number,
            config,
            topics=self.topics,
            moments=self.moments,
            judge=self.judge,
            boundary=self._boundary,
            tell=self._tell,
            at_poll=lambda attempt: self._at_poll(attempt, waiting, limit),
        )
        shared = class_state(attempt.task)
        self._running.append(attempt)
        try:
            outcome = attempt.run()
        except Crash:
            if self._is_hanging:
                raise  # nobody waits for this case any more
            self.moments.bury()
            self._is_left_of_interest = False  # what dies closes nothing
            self._dead.append(attempt)
            self._tell(f"{attempt.label} dies")
            self.exercised["tasks that died"] += 1
        else:
            self.exercised[f"tasks that ended {outcome.end}"] += 1
            if outcome.failure is not None:
                self._tell(f"{attempt.label} ends: {outcome.failure.message}")
            if outcome.end is End.FAILED and self.moments.happened.total() == met and outcome.failure:
                self.judge.blame(f"a task failed, and nothing had gone wrong: {outcome.failure.message}")
            if self._is_left_of_interest:
                self._look_at_what_is_left(attempt, before)
        finally:
            self._running.remove(attempt)
            if self._running:
                self._running[-1].go_on()
        self.subject.shared.update(changed_classes(shared, class_state(attempt.task)))

    def _look_at_what_is_left(self, attempt: Attempt, before: Held) -> None:
        self.exercised["looks for what is left after stopped"] += 1
        left = before.left_since()
        if left:
            self.judge.blame(f"{attempt.label} has left {' and '.join(left)} after stopped()")

    def _at_poll(self, attempt: Attempt, waiting: list[tuple[int, Any]], limit: int | None) -> None:
        if attempt.polls and waiting:
            self._next_of(waiting)
        if self._has_polled_enough(attempt, limit):
            attempt.ask_to_stop()

    def _has_polled_enough(self, attempt: Attempt, limit: int | None) -> bool:
        if limit is not None and attempt.polls >= limit:
            return True
        if self._idle_until is not None:
            return attempt.polls > 0 and time.monotonic() >= self._idle_until
        if attempt.polls >= _MOST_POLLS:
            self.judge.blame(f"{attempt.label} gave records {_MOST_POLLS:,} times, and there is no end to it")
            return True
        return self._is_complete() or attempt.quiet() > self._patience

    def _is_complete(self) -> bool:
        """Whether everything is in the topics, as far as its number goes."""
        if self._changes:
            return False
        return sum(map(len, self.topics.logs.values())) >= len(self.subject.truth(self.origin))

    # -- what really waits -----------------------------------------------------------------------------

    def _watch(self, play: Callable[[], None]) -> None:
        """Run the case on a thread of its own, and end from here what waits there."""
        done = threading.Event()
        raised: list[BaseException] = []

        def stage() -> None:
            self.moments.enter()
            try:
                play()
            except BaseException as error:  # noqa: BLE001 - it is raised again where it can be seen
                raised.append(error)
            finally:
                done.set()

        thread = threading.Thread(target=stage, name=f"{KIT_THREAD}: stage", daemon=True)
        thread.start()
        while not done.wait(_LOOK) and not self._is_hanging:
            self._look_at_the_stage()
        if self._is_hanging:
            return  # whatever it still raises, should it come back: it is left behind
        thread.join()
        if raised:
            raise raised[0]

    def _look_at_the_stage(self) -> None:
        try:
            attempt = self._running[-1]
            call = attempt.calling[-1]
        except IndexError:
            return  # nobody is called just now
        now = time.monotonic()
        if call.name == "poll" and attempt.asked_at is None:
            if now - call.since > self._patience:
                attempt.ask_to_stop()
        elif now - max(call.since, attempt.asked_at or 0.0) > self.subject.patience:
            self._is_hanging = True
            self.moments.crash()  # whatever it does when it wakes up, it is its last
            self.judge.problem = (
                f"poll() still waits {self.subject.patience:g} s after stop(): let it wait for something "
                f"that stop() signals"
                if call.name == "poll"
                else f"{call.name}() has not returned for {self.subject.patience:g} s, and nothing is awaited"
            )

    # -- afterwards ----------------------------------------------------------------------------------

    def _bury_the_dead(self) -> None:
        """Close what the system would have closed when the processes died; nobody looks any more."""
        self.moments.disarm()
        for attempt in self._dead:
            for release in (type(attempt.task).stop, type(attempt.task).stopped):
                with suppress(Exception):  # the crash has left it half-made
                    release(attempt.task)

    def _count_what_happened(self) -> None:
        self.exercised["cases"] += 1
        self.exercised["steps"] += len(self.steps)
        self.exercised["records"] += sum(map(len, self.topics.logs.values()))
        self.exercised["operations of the origin"] += self.moments.asked["origin"]
        self.exercised["duplicates seen"] += self.judge.duplicates
        for (where, kind), times in self.moments.happened.items():
            self.exercised[f"{where}: {kind}"] += times

    def _hint(self) -> str:
        if not self.subject.shared:
            return ""
        names = ", ".join(sorted(self.subject.shared))
        return (
            f" (tasks share state: {names} changed while a task ran, and all tasks of a process see it; "
            f"keep it in the instance)"
        )

    def _tell(self, what: str) -> None:
        """Add a line to the sentence of the step that is under way."""
        if self.story:
            self.story[-1] += f"\n     - {what}"


STEPS: Final = ("run", "boundary", "idle", "fault", "meanwhile", "change")
"""Names of the steps there are."""
