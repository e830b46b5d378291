"""Schedule a sink that keeps its own offsets at random: crashes, zombies, restored backups."""

from __future__ import annotations

from collections import Counter

from property_tests.simulation.seeds import run_until, told
from property_tests.simulation.watermarks import TableCluster
from property_tests.simulation.world import Chaos, Violation, World
from sinksdk import ClosingReason

_MOST_DRIVERS = 5
# Number of backups restored in a schedule: the connector ends with an error after five moves back in a row.
_MOST_BACKUPS = 3


def run(seed: int) -> Counter[str]:
    def whole(world: World) -> None:
        table = TableCluster(world)
        _live(table)
        _calm_down(table)
        world.happened["rows inserted"] += sum(len(found.rows) for found in table.table.content.values())

    return told(seed, whole, f"python -m property_tests.simulation --watermarks --seed {seed}")


def _live(table: TableCluster) -> None:
    world, cluster, dice = table.world, table.cluster, table.world.dice
    for partition in cluster.log.records:
        cluster.log.produce(partition, dice.randint(0, 20), dice.choice((0, 0, 3)))
    world.chaos = Chaos.drawn(dice)
    for _ in range(dice.randint(4, 14)):
        if not cluster.drivers and cluster.started < _MOST_DRIVERS:
            cluster.start_driver(until_caught_up=dice.random() < 0.3)
        _something_happens(table)
        for _ in range(dice.randint(5, 80)):
            world.step()
            cluster.reap()


def _something_happens(table: TableCluster) -> None:
    world, cluster, dice = table.world, table.cluster, table.world.dice
    what = dice.randrange(9)
    if what <= 2:
        partition = dice.choice(list(cluster.log.records))
        cluster.log.produce(partition, dice.randint(1, 15), dice.choice((0, 0, 4)))
    elif what == 3:
        table.table.keep()
    elif what in (4, 5) and table.table.restored < _MOST_BACKUPS:
        table.table.restore()
    elif what == 6:
        cluster.double()
    elif what == 7 and cluster.drivers:
        reason = dice.choice((ClosingReason.REBALANCE, ClosingReason.SHUTDOWN))
        cluster.ask(dice.choice(cluster.drivers), reason, final=reason is ClosingReason.SHUTDOWN)
    elif what == 8 and cluster.started < _MOST_DRIVERS:
        world.happened["another driver is started beside"] += bool(cluster.drivers)
        cluster.start_driver()


def _calm_down(table: TableCluster) -> None:
    world, cluster = table.world, table.cluster
    world.chaos = Chaos(switch=0.3)
    world.tell("from here on nothing goes wrong any more")
    _catch_up(table)
    for driver in cluster.drivers:
        cluster.ask(driver, ClosingReason.SHUTDOWN, final=True)
    run_until(cluster, lambda: not world.processes)
    _catch_up(table)  # a process that resumed late may have left something to complete
    if world.dice.random() < 0.5:
        table.table.restore()
        for partition in cluster.log.records:
            # Without new records no task opens the partition.
            cluster.log.produce(partition, world.dice.randint(1, 5))
        _catch_up(table)
    run_until(cluster, lambda: not world.processes)
    table.check_end()


def _catch_up(table: TableCluster) -> None:
    cluster = table.cluster
    for _ in range(_MOST_DRIVERS + 1):
        for partition in cluster.log.records:
            cluster.log.produce(partition, 1)  # without new records no task opens the partition
        driver = cluster.start_driver(until_caught_up=True)
        run_until(cluster, lambda driver=driver: not driver.is_alive)  # type: ignore[misc]  # of this very turn
        if cluster.ended.get(driver.name) == "well":
            return
    message = "no driver comes to an end, though nothing goes wrong any more"
    raise Violation(message)
