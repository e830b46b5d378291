"""Many schedules, on all cores: counted, and the first one that fails told as a story."""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice

import pytest

Run = Callable[[int], Counter[str]]
"""Runs the schedule of a seed; what happened in it. Raises ScheduleFailed."""

AT_ONCE = 1_000
"""Schedules of one test: enough that each kind of fault has its share in every one of them."""

IN_BRIEF = 40
"""Schedules of each kind in ``make test``: they end in seconds, and do not meet every rare fault."""

TIMEOUT = pytest.mark.timeout(1800)
"""A thousand schedules take minutes, and the search for a planted mistake does, beside other processes' tests."""

_REPORTED = 25  # schedules a process runs before it reports


def portions(schedules: int, first: int) -> list[range]:
    """Seeds of so many schedules from a first one on, as many a test as it takes."""
    return [range(seed, seed + AT_ONCE) for seed in range(first, first + schedules, AT_ONCE)]


def run_all(seeds: Iterator[int], run: Run) -> Iterator[Counter[str]]:
    """Run schedules until there are no more seeds, or one fails.

    Args:
        seeds: of the schedules.
        run: a function of a module.

    Returns:
        What happened, a few schedules at a time.

    Raises:
        ScheduleFailed: a schedule broke the promise.
    """
    workers = os.cpu_count() or 1
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context) as pool:
        running: set[Future[Counter[str]]] = set()
        try:
            while True:
                while len(running) < 2 * workers and (portion := list(islice(seeds, _REPORTED))):
                    running.add(pool.submit(run_some, run, portion))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def run_some(run: Run, seeds: Sequence[int]) -> Counter[str]:
    """Run a few schedules in this process, and say what happened."""
    happened: Counter[str] = Counter()
    for seed in seeds:
        happened += run(seed)
    return happened
