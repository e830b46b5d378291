"""Makes a failing schedule short: leaves steps out and makes numbers small while it still fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sinksdk.testing.contract import SinkContractError, Step, Subject
from sinksdk.testing.sweep import run

MOST_TRIES = 2_000
"""After so many replays what was found so far is short enough."""


def shorten(subject: Subject[Any], failure: SinkContractError) -> SinkContractError:
    """The failure of a shorter schedule: none of its steps can be left out or made smaller."""
    tries = 0
    is_shortest = False
    while not is_shortest:
        is_shortest = True
        for candidate in _simpler(failure.steps):
            tries += 1
            simpler = run(subject, candidate) if tries <= MOST_TRIES else None
            if simpler is not None:
                failure, is_shortest = simpler, False
                break
    return failure


def _simpler(steps: Sequence[Step]) -> Iterator[Sequence[Step]]:
    """Schedules with less in them, the boldest first."""
    size = len(steps) // 2
    while size:
        for start in range(len(steps) - size, -1, -size):
            yield [*steps[:start], *steps[start + size :]]
        size //= 2
    for at, (name, *arguments) in enumerate(steps):
        for place, argument in enumerate(arguments):
            for smaller in range(argument) if isinstance(argument, int) else ():
                if smaller or name not in ("deliver", "zombie_deliver", "skip") or not place:
                    changed = [*arguments[:place], smaller, *arguments[place + 1 :]]
                    yield [*steps[:at], (name, *changed), *steps[at + 1 :]]
