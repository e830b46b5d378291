"""Run the schedule of a seed in a world of its own; the message of a failure is its story."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable

from property_tests.simulation.cluster import Cluster
from property_tests.simulation.world import Violation, World, in_words

ENOUGH = 40_000  # once faults stop, all processes must end within this number of steps


class ScheduleFailed(AssertionError):
    pass


def told(seed: int, live: Callable[[World], object], again: str) -> Counter[str]:
    # The seed also initialises the module ``random``; ``again`` is the command that replays the schedule.
    world, chance = World(seed), random.getstate()
    random.seed(seed)
    logging.disable(logging.CRITICAL)
    try:
        live(world)
        world.raise_violation()
    except Violation as error:
        message = f"seed {seed}: {error}\n{in_words(world.story)}\nagain with: {again}"
        raise ScheduleFailed(message) from None
    finally:
        world.end()
        logging.disable(logging.NOTSET)
        random.setstate(chance)
    world.happened["schedules"] += 1
    world.happened["steps"] += world.steps
    return world.happened


def run_until(cluster: Cluster, condition: Callable[[], bool]) -> None:
    world = cluster.world
    last = world.steps + ENOUGH
    while not condition():
        if world.steps >= last:
            waiting = [process.name for process in world.processes]
            message = f"{ENOUGH} steps were not enough; still there: {waiting}"
            raise Violation(message)
        world.step()
        cluster.reap()
