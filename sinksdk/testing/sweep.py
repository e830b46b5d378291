"""Every fault at every operation of a small run, and every mishap between its steps: needs no luck."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from sinksdk.testing.contract import SinkContractError, Step, Subject
from sinksdk.testing.faults import POSSIBLE
from sinksdk.testing.trial import Trial

SMALL_RUN: Final[Sequence[Step]] = (
    *(("deliver", 0, 2), ("deliver", 1, 3), ("commit",), ("deliver", 0, 3), ("revoke", 0)),
    *(("deliver", 0, 1), ("rebalance",), ("deliver", 1, 1), ("deliver", 2, 5)),
)
"""A bit of everything."""

MISHAPS: Final[Sequence[Step]] = (("crash",), ("fence",), ("lose", 0), ("lose", 1))
"""What may happen between two steps."""


def sweep(subject: Subject[Any], exercised: Counter[str], most: int) -> SinkContractError | None:
    """Try the small run with one fault, or one mishap, at a time.

    Args:
        most: runs at most so many, evenly chosen.

    Returns:
        The first failure.
    """
    schedules = _schedules(subject)
    chosen = min(most, len(schedules))
    for number in range(chosen):
        failure = run(subject, schedules[number * len(schedules) // chosen], exercised)
        if failure is not None:
            return failure
    return None


def _schedules(subject: Subject[Any]) -> list[Sequence[Step]]:
    trial = Trial(subject, Counter())
    try:
        before = Counter(trial.faults.asked)
        for step in SMALL_RUN:
            trial.step(*step)
        operations = trial.faults.asked - before
    finally:
        trial.end()
    faults = [
        (("fault", where, at, kind.value), *SMALL_RUN)
        for where, kinds in POSSIBLE.items()
        for at in range(operations[where])
        for kind in kinds
    ]
    mishaps = [
        (*SMALL_RUN[:at], mishap, *SMALL_RUN[at:])
        for at in range(1, len(SMALL_RUN) + 1)
        for mishap in MISHAPS
    ]
    return [*mishaps, *faults]


def run(
    subject: Subject[Any], steps: Sequence[Step], exercised: Counter[str] | None = None
) -> SinkContractError | None:
    """Do the steps, and say what was wrong with the sink."""
    trial = Trial(subject, exercised)
    try:
        for step in steps:
            trial.step(*step)
        trial.finish()
    except SinkContractError as error:
        return error
    finally:
        trial.end()
    return None
