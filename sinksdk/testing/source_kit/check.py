"""Check a source under faults in one line of an author's test module."""

from __future__ import annotations

import itertools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final, TypedDict, Unpack

from sinksdk.source.task import SourceTask
from sinksdk.testing.contract import (
    HIDDEN,
    KitError,
    SourceContractError,
    Step,
    evenly,
    quiet,
    shorten,
    spelling_out,
)
from sinksdk.testing.faults import ORIGIN, TASK, TOPICS, Crash, FaultPlan
from sinksdk.testing.source_kit.judge import can_see_files
from sinksdk.testing.source_kit.subject import Expected, Rows, SourceCapabilities, SourceSubject, Truth
from sinksdk.testing.source_kit.trial import FAULTS, STOPPED_WAITS, Event, SourceTrial

__tracebackhide__ = HIDDEN

_NOT_LISTED = ("cases", "steps", "records", "duplicates seen", "operations of the origin")


@dataclass(frozen=True)
class SourceReport:
    """The result of a run in which the source kept its promise; its text lists the checks.

    Args:
        exercised: how often each step, each fault and each end of a task happened.
    """

    capabilities: SourceCapabilities
    exercised: Counter[str]

    @property
    def cases(self) -> int:
        """The number of schedules that were run."""
        return self.exercised["cases"]

    def __str__(self) -> str:
        promise, counts = self.capabilities, self.exercised
        lines = [
            f"checked in {self.cases:,} cases of {counts['steps']:,} steps and {counts['records']:,} records:"
        ]
        if promise.exactly_once:
            lines.append("  exactly once: nothing was lost, nothing was seen twice")
        else:
            lines.append("  at least once: nothing was lost")
            lines.append(f"  duplicates seen: {counts['duplicates seen']:,}")
        if promise.ordered:
            lines.append("  ordered: the records of each source partition kept their order")
        what = "no thread and no open file" if can_see_files() else "no thread"
        lines.append(f"  stopped is the last call: nothing ran after it, and {what} was left")
        if not can_see_files():
            lines.append("  not checked: open files; this system does not list them")
        lines.append("steps, faults and events:")
        lines += [f"{count:>9,}  {what}" for what, count in sorted(counts.items()) if what not in _NOT_LISTED]
        if not counts["operations of the origin"]:
            lines.append("  the origin does not use its fault plan: none of its operations failed")
        if not counts[STOPPED_WAITS]:
            lines.append(
                "  not checked: whether stop() ends a waiting poll(), because none was waiting; if the pause "
                "of poll() is configured, set it to a minute in the test"
            )
        return "\n".join(lines)


_MOST_STEPS: Final = 7
# Operations of each kind at which a fault is always tried: a task starts, reads, and commits.
_FIRST: Final = 6
_FAR: Final = 25  # largest number of operations before a fault


def small_run(subject: SourceSubject) -> list[Step]:
    steps: list[Step] = [("run", 0, 2)]
    for number in range(max(len(subject.changes), 2)):
        if number < len(subject.changes):
            steps.append(("change",))
        steps.append(("run", (number + 1) % subject.most_tasks, 2))
    return steps


def sweep(subject: SourceSubject, most: int) -> list[Sequence[Step]]:
    # One fault or event at each of the first operations, then at later ones, chosen evenly up to the maximum.
    steps = small_run(subject)
    trial = SourceTrial(subject)
    if trial.play(steps) is not None:
        return [steps]
    operations = {where: min(trial.faults.operations[where], 4 * _FAR) for where in (TASK, TOPICS, ORIGIN)}
    events = [event for event in Event if event is not Event.CHANGE or subject.changes]
    first: list[Sequence[Step]] = []
    later: list[Sequence[Step]] = []
    for where, count in operations.items():
        for at in range(count):
            schedules = first if at < _FIRST else later
            schedules += [[("fault", where, at, kind.value), *steps] for kind in FAULTS[where]]
            schedules += [[("meanwhile", where, at, event.value), *steps] for event in events]
    chosen = evenly(first, most)
    return [*chosen, *evenly(later, most - len(chosen))]


def at_random(subject: SourceSubject, random: Random) -> Iterator[Sequence[Step]]:
    boundaries = list(subject.capabilities.boundaries)
    faults = [(where, kind.value) for where, kinds in FAULTS.items() for kind in kinds]
    while True:
        steps: list[Step] = [("boundary", random.choice(boundaries))]
        for _ in range(random.randint(2, _MOST_STEPS)):
            match random.choice(("run", "run", "fault", "fault", "meanwhile", "change")):
                case "run":
                    steps.append(("run", random.randrange(subject.most_tasks), random.randint(1, 4)))
                case "fault":
                    where, kind = random.choice(faults)
                    steps.append(("fault", where, random.randrange(_FAR), kind))
                case "meanwhile":
                    event = random.choice(list(Event)).value
                    steps.append(("meanwhile", random.choice(list(FAULTS)), random.randrange(_FAR), event))
                case _:
                    if subject.changes:
                        steps.append(("change",))
        yield steps


_IMPATIENCE: Final = 20  # divisor of the waits while a failing case is shortened


class SourceOptions(TypedDict, total=False):
    """Options of :func:`check_source` and :func:`replay_source`.

    Args:
        origin: creates the origin that the source reads from, for each case. The origin, or the client in
            front of it, runs each operation with the fault plan that it is given, as ``"origin"``. Use it to
            check the source with its system, or with a double of that.
        config: the argument of ``start``, or a function of the origin that creates it. Use it for a task that
            reads its configuration.
        task_configs: returns at most the given number of configurations for an origin, one for each task; or
            none while there is nothing to read. By default there is one task. Use it, instead of ``config``,
            for a source that several tasks share.
        capabilities: what the source promises; by default everything. Use it for a source that promises less.
        changes: changes of the origin while it is read, in this order, each once: functions of the origin.
            Use it for a source that follows what grows, rotates or is truncated.
        clean_up: called with the origin when a case is finished. Use it for files and connections.
        patience: seconds after which a call that should have returned counts as hanging. Use it for a source
            that is silent for seconds before it returns records.
    """

    origin: Callable[[FaultPlan], Any]
    config: Any
    task_configs: Callable[[Any, int], Sequence[Any]]
    capabilities: SourceCapabilities
    changes: Sequence[Callable[[Any], object]]
    clean_up: Callable[[Any], object]
    patience: float


@spelling_out(SourceOptions, SourceSubject)
def check_source(
    make_task: Callable[[Any], SourceTask],
    *,
    expected: Truth | Callable[[Any], Iterable[Expected] | Rows],
    cases: int = 200,
    seed: int = 0,
    **options: Unpack[SourceOptions],
) -> SourceReport:
    """Run a source under restarts, crashes, zombies, stops and faults at each of its steps.

    ::

        def test_my_source() -> None:
            check_source(lambda origin: MyTask(), expected=[b"one", b"two", b"three"])

    Args:
        make_task: creates a task, as in a new process, that reads from the given origin.
        expected: what the topics must hold in the end: values, or (topic, value), or (topic, key, value);
            or a mapping of value by key, or by (topic, key), where the last record of a key counts, for a
            source that reads rows in their current state and may miss earlier ones (None: the row is
            deleted); or a function of the origin that returns one of these.
        cases: the number of schedules. Use it for fewer if the origin is slow, and for more at night.
        seed: chooses the random schedules; the same seed gives the same cases. Use it for other cases than in
            the last run.
        options: those of :class:`SourceOptions`.

    Returns:
        The checks, and the number of faults of each kind; they are also printed.

    Raises:
        SourceContractError: the source does not keep its promise; with a short story and the steps to replay
            it.
        KitError: the run shows nothing: nothing is expected, or the options contradict each other.
    """
    __tracebackhide__ = True  # pytest shows the author's test then
    subject = SourceSubject(make_task, expected, **options)
    exercised: Counter[str] = Counter()
    with quiet(), _silenced_crashes():
        _check_without_faults(subject, exercised)
        for steps in _schedules(subject, cases, Random(seed)):  # noqa: S311 - cases, not secrets
            _try(subject, steps, exercised)
    report = SourceReport(subject.capabilities, exercised)
    sys.stdout.write(f"{report}\n")
    return report


@spelling_out(SourceOptions, SourceSubject)
def replay_source(
    schedule: Iterable[Step],
    make_task: Callable[[Any], SourceTask],
    *,
    expected: Truth | Callable[[Any], Iterable[Expected] | Rows],
    **options: Unpack[SourceOptions],
) -> None:
    """Run the steps of a failure again: for debugging, and as a regression test.

    Args:
        schedule: the steps, as printed with the failure.
        make_task, expected, options: as for :func:`check_source`.

    Raises:
        SourceContractError: the source still does not keep its promise.
    """
    __tracebackhide__ = True
    with quiet(), _silenced_crashes():
        failure = SourceTrial(SourceSubject(make_task, expected, **options)).play(list(schedule))
    if failure is not None:
        raise failure


def _schedules(subject: SourceSubject, cases: int, random: Random) -> Iterator[Sequence[Step]]:
    single = sweep(subject, cases * 3 // 4)
    yield from single
    yield from itertools.islice(at_random(subject, random), cases - len(single))


def _try(subject: SourceSubject, steps: Sequence[Step], exercised: Counter[str] | None = None) -> None:
    __tracebackhide__ = True
    trial = SourceTrial(subject, exercised)
    failure = trial.play(steps)
    if failure is None:
        return
    if trial.is_hanging:  # otherwise each attempt to shorten the schedule would leave one more thread behind
        raise failure
    impatient = replace(subject, patience=subject.patience / _IMPATIENCE)

    def play_impatiently(steps: Sequence[Step]) -> SourceContractError | None:
        # A busy machine may exceed the short patience: the schedule only seems to hang.
        trial = SourceTrial(impatient)
        found = trial.play(steps)
        return None if trial.is_hanging else found

    shorter = shorten(failure, play_impatiently)
    raise SourceTrial(subject).play(shorter.steps) or failure


def _check_without_faults(subject: SourceSubject, exercised: Counter[str]) -> None:
    # The first run also loads modules and fills caches.
    __tracebackhide__ = True
    trial = SourceTrial(subject, checks_open_resources=False)
    failure = trial.play([])
    if not any(trial.topics.logs.values()) and not trial.is_hanging:
        why = f"{trial.raised}. The task" if trial.raised else "the task"
        raise KitError(
            f"{why} returned no record although no fault was injected: check `config`, and that the task "
            f"reads from the origin that make_task receives. What happened: {'. '.join(trial.story)}"
        ) from failure
    if failure is not None:
        raise failure
    idle = Counter[str]()
    _try(subject, [("idle",)], idle)
    exercised[STOPPED_WAITS] += idle[STOPPED_WAITS]
    _try(subject, small_run(subject))


@contextmanager
def _silenced_crashes() -> Iterator[None]:
    # An error in a thread of the task is ignored once its process has ended.
    before = threading.excepthook

    def hook(arguments: threading.ExceptHookArgs) -> None:
        if not issubclass(arguments.exc_type, Crash):
            before(arguments)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before
