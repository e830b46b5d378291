"""Many schedules, on all cores: counted, and the first one that fails told as a story."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice, takewhile

from property_tests.exercised import EXERCISED

Run = Callable[[int], Counter[str]]
"""Runs the schedule of a seed; what happened in it. Raises ScheduleFailed."""

_AT_ONCE = 25  # schedules a process runs before it reports


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
                while len(running) < 2 * workers and (portion := list(islice(seeds, _AT_ONCE))):
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


def run_for(seconds: float, run: Run, seeds: Iterable[int], mutation: str) -> None:
    """Run schedules with a piece of the protocol left out, for so many seconds of computing, and count them.

    Raises:
        ScheduleFailed: it was noticed.
    """
    started = time.process_time()  # of this process: however much runs beside it
    for seed in takewhile(lambda _: time.process_time() - started < seconds, seeds):
        EXERCISED["the protocol with a piece left out"][f"schedules until {mutation} was noticed"] += 1
        run(seed)
