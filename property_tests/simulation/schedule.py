"""One schedule: a cluster lives through what its seed holds ready, then everything calms down and is counted."""

from __future__ import annotations

import logging
from collections import Counter

from property_tests.simulation.archive import Archive
from sinksdk import ClosingReason
from sinksdk.testing.simulation.world import Chaos, Violation, World, in_words

MOST_DRIVERS = 6
ENOUGH = 40_000  # steps for all to end once nothing goes wrong any more


class ScheduleFailed(AssertionError):
    """A schedule broke the promise; the message is its story."""


def run(seed: int) -> Counter[str]:
    """Run the schedule of a seed.

    Returns:
        How often what happened in it.

    Raises:
        ScheduleFailed: with the story, and how to replay it.
    """
    world = World(seed)
    logging.disable(logging.CRITICAL)
    try:
        archive = Archive(world)
        _live(archive)
        _calm_down(archive)
        world.raise_violation()
    except Violation as error:
        message = (
            f"seed {seed}: {error}\n{in_words(world.story)}\n"
            f"again with: python -m property_tests.simulation --seed {seed}"
        )
        raise ScheduleFailed(message) from None
    finally:
        world.end()
        logging.disable(logging.NOTSET)
    world.happened["schedules"] += 1
    world.happened["steps"] += world.steps
    world.happened["records archived"] += sum(map(len, archive.visible().values()))
    world.happened["files archived"] += len(archive.s3.visible())
    return world.happened


def _live(archive: Archive) -> None:
    """Drivers come and go, records arrive, and things go wrong."""
    world, cluster, dice = archive.world, archive.cluster, archive.world.dice
    for partition in cluster.log.records:
        cluster.log.produce(partition, dice.randint(0, 20), dice.choice((0, 0, 3)))
    world.chaos = Chaos.drawn(dice)
    for _ in range(dice.randint(4, 16)):
        if not cluster.drivers and cluster.started < MOST_DRIVERS:
            cluster.start_driver(until_caught_up=dice.random() < 0.3)
        _something_happens(archive)
        for _ in range(dice.randint(5, 80)):
            world.step()
            cluster.reap()


def _something_happens(archive: Archive) -> None:
    world, cluster, dice = archive.world, archive.cluster, archive.world.dice
    what = dice.randrange(11)
    if what <= 2:
        partition = dice.choice(list(cluster.log.records))
        cluster.log.produce(partition, dice.randint(1, 15), dice.choice((0, 0, 1, 5)))
    elif what == 3 and cluster.started < MOST_DRIVERS:
        world.happened["another driver is started beside"] += bool(cluster.drivers)
        cluster.start_driver(until_caught_up=dice.random() < 0.3)
    elif what == 4:
        cluster.double()
    elif what in (5, 6) and cluster.drivers:
        reason = dice.choice((ClosingReason.REBALANCE, ClosingReason.SHUTDOWN))
        cluster.ask(dice.choice(cluster.drivers), reason, final=reason is ClosingReason.SHUTDOWN)
    elif what == 9 and world.processes:
        process, seconds = dice.choice(world.processes), dice.choice((5.0, 20.0, 200.0))
        world.tell(f"{process.name} is cut off from the network for {seconds:.0f} s")
        world.cut_off(process, seconds)
    elif what == 8:
        archive.expire()
    elif what == 7 and world.processes:
        process = dice.choice(world.processes)
        world.happened["frozen for very long"] += 1
        world.tell(f"{process.name} is frozen for very long")
        world.freeze(process, 10_000)


def _calm_down(archive: Archive) -> None:
    """No more faults: everything is archived, zombies wake up, and nothing changes any more."""
    world, cluster = archive.world, archive.cluster
    world.chaos = Chaos(switch=0.3)
    world.tell("from here on nothing goes wrong any more")
    _catch_up(archive)
    late = {location: found.data for location, found in archive.s3.objects.items()}
    for driver in cluster.drivers:
        cluster.ask(driver, ClosingReason.SHUTDOWN, final=True)
    claimed = archive.claimed()
    _run_until(archive, lambda: not world.processes)
    if archive.claimed() != claimed:
        _catch_up(archive)  # somebody who came late has begun something
    archive.check_end()
    for location, data in late.items():
        if archive.s3.objects[location].data != data:
            world.violation(f"{location} was changed by somebody who came late")


def _catch_up(archive: Archive) -> None:
    """Drivers that were frozen before their first claim may wake up and be the newest: then once more."""
    cluster = archive.cluster
    for _ in range(MOST_DRIVERS + 1):
        driver = cluster.start_driver(until_caught_up=True)
        _run_until(archive, lambda driver=driver: not driver.is_alive)
        if cluster.ended.get(driver.name) == "well":
            return
    message = "no driver comes to an end, though nothing goes wrong any more"
    raise Violation(message)


def _run_until(archive: Archive, condition: object) -> None:
    last = archive.world.steps + ENOUGH
    while not condition():  # type: ignore[operator] # a function
        if archive.world.steps >= last:
            waiting = [process.name for process in archive.world.processes]
            message = f"{ENOUGH} steps were not enough; still there: {waiting}"
            raise Violation(message)
        archive.world.step()
        archive.cluster.reap()
