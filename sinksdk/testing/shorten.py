"""Makes a failing schedule short: leaves steps out and makes numbers small while it still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from sinksdk.testing.contract import ContractError, Step

E = TypeVar("E", bound=ContractError)

MOST_TRIES = 2_000
"""After so many replays what was found so far is short enough."""


def shorten(failure: E, run: Callable[[Sequence[Step]], E | None]) -> E:
    """The failure of a shorter schedule: none of its steps can be left out or made smaller.

    Args:
        run: does the steps of a schedule, and says what was wrong.
    """
    tries = 0
    is_shortest = False
    while not is_shortest:
        is_shortest = True
        for candidate in _simpler(failure.steps):
            tries += 1
            simpler = run(candidate) if tries <= MOST_TRIES else None
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
            for smaller in _smaller(argument) if isinstance(argument, int) else ():
                if smaller or name not in ("deliver", "zombie_deliver", "skip") or not place:
                    changed = [*arguments[:place], smaller, *arguments[place + 1 :]]
                    yield [*steps[:at], (name, *changed), *steps[at + 1 :]]


def _smaller(number: int) -> list[int]:
    return sorted({candidate for candidate in (0, 1, number // 2, number - 1) if 0 <= candidate < number})
