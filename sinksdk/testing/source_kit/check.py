"""check_source: the whole contract of a source in one line of an author's test module."""

from __future__ import annotations

import itertools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any, Final, TypedDict, Unpack

from sinksdk.source.task import SourceTask
from sinksdk.testing.contract import KitError, SourceContractError, Step
from sinksdk.testing.faults import Crash, FaultPlan
from sinksdk.testing.quiet import quiet
from sinksdk.testing.shorten import shorten
from sinksdk.testing.source_kit.report import SourceReport
from sinksdk.testing.source_kit.schedules import at_random, small_run, sweep
from sinksdk.testing.source_kit.subject import Expected, SourceCapabilities, SourceSubject
from sinksdk.testing.source_kit.trial import SourceTrial

CASES: Final = 200
"""How many schedules are tried where nothing else is said."""

_HASTE: Final = 20  # how much less patient the kit is while it looks for a shorter story


class SourceOptions(TypedDict, total=False):
    """What :func:`check_source` and :func:`replay_source` need to know of a source.

    Args:
        origin: makes what the source reads from, new for each case, given the fault plan that it (or the
            client in front of it) should ask before each operation, as ``"origin"``.
            :class:`MemoryOrigin` by default.
        config: what ``start`` is given, or a function that makes it of the origin.
        task_configs: makes at most so many configurations of the origin, one for each task. By default
            there is one task.
        capabilities: what the source promises; by default all there is to promise.
        changes: what happens to the origin while it is read, in this order, each once: functions of it.
        clean_up: called with the origin when a case is over.
        patience: seconds after which a call that should have returned is taken to hang; 2 by default.
    """

    origin: Callable[[FaultPlan], Any]
    config: Any
    task_configs: Callable[[Any, int], Sequence[Any]]
    capabilities: SourceCapabilities
    changes: Sequence[Callable[[Any], object]]
    clean_up: Callable[[Any], object]
    patience: float


def check_source(
    make_task: Callable[[Any], SourceTask],
    *,
    expected: Sequence[Expected] | Callable[[Any], Iterable[Expected]],
    cases: int = CASES,
    seed: int = 0,
    **options: Unpack[SourceOptions],
) -> SourceReport:
    """Try a source under restarts, crashes, zombies, stops and faults at each of its steps.

    ::

        def test_my_source() -> None:
            check_source(lambda origin: MyTask(), expected=[b"one", b"two", b"three"])

    Args:
        make_task: makes a fresh task, as in a fresh process, that reads from the given origin.
        expected: what the topics must hold in the end: values, or (topic, value), or (topic, key, value);
            or a function of the origin that reads it there.
        cases: how many schedules are tried.
        seed: what chooses those that are put together at random; the same seed, the same cases.

    Returns:
        What was shown, and how often each fault was met. It is also printed.

    Raises:
        SourceContractError: the source does not keep its promise; with a short story, and how to replay it.
        KitError: nothing can be shown: nothing is expected, or the options do not fit together.
    """
    subject = SourceSubject(make_task, expected, **options)
    exercised: Counter[str] = Counter()
    with quiet(), _silent_deaths():
        _see_something(subject)
        for steps in _schedules(subject, cases, Random(seed)):  # noqa: S311 - cases, not secrets
            _try(subject, steps, exercised)
    report = SourceReport(subject.capabilities, exercised)
    sys.stdout.write(f"{report}\n")
    return report


def replay_source(
    schedule: Iterable[Step],
    make_task: Callable[[Any], SourceTask],
    *,
    expected: Sequence[Expected] | Callable[[Any], Iterable[Expected]],
    **options: Unpack[SourceOptions],
) -> None:
    """Do the steps of a failure again: for debugging, and as a regression test.

    Args:
        schedule: steps, as printed with the failure.
        make_task: as for :func:`check_source`.
        expected: as for :func:`check_source`.

    Raises:
        SourceContractError: the source still does not keep its promise.
    """
    with quiet(), _silent_deaths():
        failure = SourceTrial(SourceSubject(make_task, expected, **options)).play(list(schedule))
    if failure is not None:
        raise failure


def _schedules(subject: SourceSubject, cases: int, random: Random) -> Iterator[Sequence[Step]]:
    """Three quarters with one thing at one operation; the rest at random."""
    single = sweep(subject, cases * 3 // 4)
    yield from single
    yield from itertools.islice(at_random(subject, random), cases - len(single))


def _try(subject: SourceSubject, steps: Sequence[Step], exercised: Counter[str]) -> None:
    trial = SourceTrial(subject, exercised)
    failure = trial.play(steps)
    if failure is None:
        return
    if trial.is_hanging:  # each try to shorten it would leave one more thread behind
        raise failure
    raise _shortened(subject, failure) from None


def _shortened(subject: SourceSubject, failure: SourceContractError) -> SourceContractError:
    """Shorter in haste, and only if that holds with patience too.

    What seems to hang in haste says nothing: the failure does not hang, and the machine may be busy.
    """
    hasty = replace(subject, patience=subject.patience / _HASTE)

    def hastily(steps: Sequence[Step]) -> SourceContractError | None:
        trial = SourceTrial(hasty)
        found = trial.play(steps)
        return None if trial.is_hanging else found

    shorter = shorten(failure, hastily)
    return SourceTrial(subject).play(shorter.steps) or failure


def _see_something(subject: SourceSubject) -> None:
    """Before anything goes wrong everything must arrive; and imports and caches are warm after it."""
    trial = SourceTrial(subject, looks_at_what_is_left=False)
    failure = trial.play([])
    if not any(trial.topics.logs.values()) and not trial.is_hanging:
        message = (
            "the task gave no record, though nothing went wrong: is `config` what it needs, and does it read "
            f"from the origin it is given? What happened: {'. '.join(trial.story)}"
        )
        raise KitError(message) from failure
    if failure is not None:
        raise failure
    for steps in ([("idle",)], small_run(subject)):
        _try(subject, steps, Counter())


@contextmanager
def _silent_deaths() -> Iterator[None]:
    """A process that dies takes the threads of its task with it, without a word."""
    before = threading.excepthook

    def hook(arguments: threading.ExceptHookArgs) -> None:
        if not issubclass(arguments.exc_type, Crash):
            before(arguments)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before
