"""Counts the faults and events that property tests met, for the summary of a run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

EXERCISED: Final[defaultdict[str, Counter[str]]] = defaultdict(Counter)


def until_each_happened(
    rare: Collection[str],
    happened: Mapping[str, int],
    run: Callable[[int], Counter[str]],
    seeds: Iterable[int],
) -> Counter[str]:
    """Run further schedules until each rare event has happened.

    Args:
        rare: events that may be missing from a test's own schedules by chance.
        happened: events of the test's own schedules.
        run: runs the schedule of a seed.
        seeds: the maximum number of further schedules.

    Raises:
        AssertionError: an event never happened.
    """
    more: Counter[str] = Counter()
    for seed in seeds:
        if all(happened[event] or more[event] for event in rare):
            break
        more += run(seed)
    never = [event for event in rare if not happened[event] and not more[event]]
    assert not never, f"never happened: {never}"
    return more
