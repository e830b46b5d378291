"""Keep a failing seed for each mutation in ``pins.json``, so that a test need not search for one.

After a change of the protocol a pin may miss; ``python -m property_tests.simulation --pin`` finds new ones.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from pathlib import Path

import pytest

from property_tests.exercised import EXERCISED
from property_tests.simulation import (
    frame_mutations,
    frame_schedule,
    mutations,
    races,
    schedule,
    source_mutations,
    source_schedule,
    watermark_mutations,
    watermark_schedule,
)
from property_tests.simulation.runs import Run
from property_tests.simulation.seeds import ScheduleFailed

PATIENCE = 180.0  # CPU seconds in which a mutation must be detected if its pinned seed no longer detects it
_FILE = Path(__file__).with_name("pins.json")

Mutations = Mapping[str, Callable[[pytest.MonkeyPatch], None]]


class Suite:
    # Only multiples of ``step`` are tried as seeds.
    def __init__(self, name: str, mutations: Mutations, run: Run, step: int = 1) -> None:
        self.name = name
        self.mutations = mutations
        self._run = run
        self._step = step

    def notice(self, mutation: str, patch: pytest.MonkeyPatch, first: int = 0) -> int:
        self.mutations[mutation](patch)
        began = time.process_time()  # CPU time of this process only
        for seed in takewhile(lambda _: time.process_time() - began < PATIENCE, self._seeds(mutation, first)):
            EXERCISED["the protocol with a piece left out"][f"schedules until {mutation} was noticed"] += 1
            if self._fails(seed):
                return seed
        message = f"{PATIENCE:g} s of schedules did not notice {mutation}"
        raise AssertionError(message)

    def _fails(self, seed: int) -> bool:
        try:
            self._run(seed)
        except ScheduleFailed as failed:
            story = str(failed)
        else:
            return False
        assert re.search(rf"again with: .*\b{seed}\b", story), story
        return True

    def _seeds(self, mutation: str, first: int) -> Iterator[int]:
        pinned = _pinned().get(self.name, {}).get(mutation)
        if pinned is not None:
            yield pinned
        yield from itertools.count(first - first % self._step, self._step)


SINK = Suite("sink", mutations.MUTATIONS, schedule.run)
TOPIC_CHANGES = Suite("topic changes", mutations.TOPIC_CHANGES, schedule.run_topic_changes)
DEPLOYS = Suite("rolling deploy", mutations.ROLLING, schedule.run_rolling_deploy)
RACES = Suite("races", mutations.RACES, races.run)
FRAMES = Suite("frames", frame_mutations.MUTATIONS, frame_schedule.run)
WATERMARKS = Suite("watermarks", watermark_mutations.MUTATIONS, watermark_schedule.run)
SOURCE = Suite("source", source_mutations.MUTATIONS, source_schedule.run)
DIRECTORIES = Suite(
    "topic directory", source_mutations.IN_DIRECTORIES, source_schedule.run, source_schedule.IN_A_DIRECTORY
)


def _pinned() -> dict[str, dict[str, int]]:
    pins: dict[str, dict[str, int]] = json.loads(_FILE.read_text()) if _FILE.exists() else {}
    return pins


def pin_all() -> None:
    pins = _pinned()
    for suite in (SINK, TOPIC_CHANGES, DEPLOYS, RACES, FRAMES, WATERMARKS, SOURCE, DIRECTORIES):
        for mutation in suite.mutations:
            with pytest.MonkeyPatch.context() as patch:
                seed = suite.notice(mutation, patch)
            pins.setdefault(suite.name, {})[mutation] = seed
            _FILE.write_text(json.dumps(pins, indent=2) + "\n")
            print(f"{suite.name}: {mutation}: {seed}", flush=True)
