"""A seed's schedule: run in a world of its own; one that fails is told as a story."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable

from property_tests.simulation.cluster import Cluster
from property_tests.simulation.world import Violation, World, in_words

ENOUGH = 40_000  # steps for all to end once nothing goes wrong any more


class ScheduleFailed(AssertionError):
    """A schedule broke the promise; the message is its story."""


def told(seed: int, live: Callable[[World], object], again: str) -> Counter[str]:
    """Run a schedule.

    Args:
        seed: of everything left to chance, also of what is drawn with :mod:`random` itself.
        live: the schedule.
        again: how to replay it.

    Returns:
        How often what happened in it.

    Raises:
        ScheduleFailed: with the story.
    """
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
    """Let a cluster go on until it is so. Raises Violation when it never comes to be."""
    world = cluster.world
    last = world.steps + ENOUGH
    while not condition():
        if world.steps >= last:
            waiting = [process.name for process in world.processes]
            message = f"{ENOUGH} steps were not enough; still there: {waiting}"
            raise Violation(message)
        world.step()
        cluster.reap()
