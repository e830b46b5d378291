"""Many schedules, on all cores: counted, and the first one that fails told as a story."""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice

from property_tests.simulation.schedule import ScheduleFailed, run

_AT_ONCE = 25  # schedules a process runs before it reports


def run_all(seeds: Iterator[int]) -> Iterator[Counter[str]]:
    """Run schedules until there are no more seeds, or one fails.

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
                    running.add(pool.submit(run_some, portion))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def run_some(seeds: Sequence[int]) -> Counter[str]:
    """Run a few schedules in this process, and say what happened."""
    happened: Counter[str] = Counter()
    for seed in seeds:
        happened += run(seed)
    return happened


__all__ = ["ScheduleFailed", "run_all", "run_some"]
