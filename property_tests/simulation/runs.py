"""Run many schedules on all cores."""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice

import pytest

Run = Callable[[int], Counter[str]]

# With this many schedules, each kind of fault happens in each test.
AT_ONCE = 1_000

# ``make test`` runs this many schedules: they take seconds, and omit the rarest faults.
IN_BRIEF = 40

TIMEOUT = pytest.mark.timeout(1800)

_REPORTED = 25  # schedules that a process runs before it reports


def portions(schedules: int, first: int) -> list[range]:
    return [range(seed, seed + AT_ONCE) for seed in range(first, first + schedules, AT_ONCE)]


def run_all(seeds: Iterator[int], run: Run) -> Iterator[Counter[str]]:
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
    happened: Counter[str] = Counter()
    for seed in seeds:
        happened += run(seed)
    return happened
