"""Which cases are tried: one thing at every operation of a small run, then several at random, from a seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

from sinksdk.testing.contract import Step
from sinksdk.testing.faults import TASK
from sinksdk.testing.source_kit.moments import FAULTS, TOPICS, Event
from sinksdk.testing.source_kit.origin import ORIGIN
from sinksdk.testing.source_kit.subject import SourceSubject
from sinksdk.testing.source_kit.trial import SourceTrial

_MOST_STEPS: Final = 7
_FIRST: Final = 6  # operations of each place that are all tried: a task starts, reads, and commits
_FAR: Final = 25  # operations ahead, at most


def small_run(subject: SourceSubject) -> list[Step]:
    """A bit of everything: restarts, other task counts, and what happens to the origin in between."""
    steps: list[Step] = [("run", 0, 2)]
    for number in range(max(len(subject.changes), 2)):
        if number < len(subject.changes):
            steps.append(("change",))
        steps.append(("run", (number + 1) % subject.most_tasks, 2))
    return steps


def sweep(subject: SourceSubject, most: int) -> list[Sequence[Step]]:
    """The small run with one fault or one event in it: at each of its first operations, then at the others.

    Args:
        most: schedules, at most, evenly chosen from those of later operations.
    """
    steps = small_run(subject)
    trial = SourceTrial(subject, Counter())
    failure = trial.play(steps)
    if failure is not None:
        return [steps]
    operations = {where: min(trial.moments.asked[where], 4 * _FAR) for where in (TASK, TOPICS, ORIGIN)}
    first: list[Sequence[Step]] = []
    later: list[Sequence[Step]] = []
    for where, count in operations.items():
        events = [event for event in Event if event is not Event.CHANGE or subject.changes]
        for at in range(count):
            schedules = first if at < _FIRST else later
            schedules += [[("fault", where, at, kind.value), *steps] for kind in FAULTS[where]]
            schedules += [[("meanwhile", where, at, event.value), *steps] for event in events]
    chosen = _evenly(first, most)
    return [*chosen, *_evenly(later, most - len(chosen))]


def _evenly(schedules: Sequence[Sequence[Step]], most: int) -> list[Sequence[Step]]:
    count = min(most, len(schedules))
    return [schedules[number * len(schedules) // count] for number in range(count)]


def at_random(subject: SourceSubject, random: Random) -> Iterator[Sequence[Step]]:
    """Schedules without end."""
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
