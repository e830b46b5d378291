"""What the property tests have met: counted while they run, printed at the end of every run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

EXERCISED: Final[defaultdict[str, Counter[str]]] = defaultdict(Counter)
"""By test, how often each fault and event occurred."""


def until_each_happened(
    rare: Collection[str],
    happened: Mapping[str, int],
    run: Callable[[int], Counter[str]],
    seeds: Iterable[int],
) -> Counter[str]:
    """Run further schedules until every rare event has occurred.

    Args:
        rare: events, each of which a test's own schedules may lack by chance.
        happened: in the test's own schedules.
        run: runs the schedule of a seed.
        seeds: at most these.

    Returns:
        What happened in the further schedules.

    Raises:
        AssertionError: an event never occurred.
    """
    more: Counter[str] = Counter()
    for seed in seeds:
        if all(happened[event] or more[event] for event in rare):
            break
        more += run(seed)
    never = [event for event in rare if not happened[event] and not more[event]]
    assert not never, f"never happened: {never}"
    return more
