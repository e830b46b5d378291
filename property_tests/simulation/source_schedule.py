"""Schedule a source at random: drivers, tasks and zombies write; at the end each row must be there once."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from property_tests.simulation.copies import MOST_TASKS, Copies
from property_tests.simulation.places import Directory, Memory, Place
from property_tests.simulation.seeds import run_until, told
from property_tests.simulation.world import Chaos, Process, Violation, World
from sinksdk import ClosingReason, ConnectException

MOST_DRIVERS = 6
WISHES = ("pause", "stop", "resume", "resume", "restart", "rebalance", "flush", "configure", "configure")
# Every n-th schedule writes to a topic directory on the real file system.
IN_A_DIRECTORY = 20


# Every n-th schedule starts without tables: no task runs until the connector requests one.
WITHOUT_TABLES = 10


def run(seed: int) -> Counter[str]:
    return told(seed, live, f"python -m property_tests.simulation --sources --seed {seed}")


def live(world: World) -> None:
    with _place(world) as place:
        copies = Copies(world, place)
        _live(copies)
        _calm_down(copies)
        world.happened["rows copied"] += copies.reader.rows


@contextmanager
def _place(world: World) -> Iterator[Place]:
    if world.seed % IN_A_DIRECTORY:
        yield Memory(world, refused=ConnectException)
        return
    world.happened["schedules in a topic directory"] += 1
    with tempfile.TemporaryDirectory() as folder:
        yield Directory(world, Path(folder) / "topics")


def _variation(copies: Copies) -> dict[str, str]:
    dice = copies.world.dice
    if dice.random() < 0.3:
        return {}
    return {
        "tasks.max": str(dice.randint(1, MOST_TASKS)),
        "restart.backoff.ms": dice.choice(("1000", "1500")),
    }


def _live(copies: Copies) -> None:
    world, cluster, dice = copies.world, copies.cluster, copies.world.dice
    if not world.seed % WITHOUT_TABLES:
        copies.tables.lengths.clear()
    for name in copies.tables.lengths:
        copies.tables.grow(name, dice.randint(1, 4))
    world.chaos = Chaos.drawn(dice)
    copies.tables.trouble = dice.choice((0.0, 0.0, 0.02, 0.1))
    for _ in range(dice.randint(2, 7)):
        if not cluster.drivers and cluster.started < MOST_DRIVERS:
            cluster.start_driver(**_variation(copies))
        dice.choice(_EVENTS)(copies)
        _go_on(copies, dice.randint(5, 80))


def _go_on(copies: Copies, steps: int, until: Callable[[], bool] = lambda: False) -> bool:
    for _ in range(steps):
        if until():
            return True
        copies.world.step()
        copies.cluster.reap()
    return until()


# -- events ----------------------------------------------------------------------------------------


def _rows_come(copies: Copies) -> None:
    dice = copies.world.dice
    if not copies.tables.lengths:
        return
    copies.tables.grow(dice.choice(list(copies.tables.lengths)), dice.randint(1, 3))


def _task_is_doubled(copies: Copies) -> None:
    copies.cluster.double()


def _driver_is_asked(copies: Copies) -> None:
    _ask(copies, copies.world.dice.choice((ClosingReason.REBALANCE, ClosingReason.SHUTDOWN)))


def _network_fails(copies: Copies) -> None:
    world, dice = copies.world, copies.world.dice
    if world.processes:
        process, seconds = dice.choice(world.processes), dice.choice((5.0, 20.0, 200.0))
        world.tell(f"{process.name} is cut off from the network for {seconds:.0f} s")
        world.cut_off(process, seconds)


def _anybody_is_frozen(copies: Copies) -> None:
    if copies.world.processes:
        copies.freeze(copies.world.dice.choice(copies.world.processes), "anywhere", 10_000)


def _operator_wishes(copies: Copies) -> None:
    wish = copies.world.dice.choice(WISHES)
    copies.cluster.wish(wish, **(_variation(copies) if wish == "configure" else {}))


def _zombies(copies: Copies) -> None:
    # KIP-618: tasks freeze in a transaction, after a generation check or during a fencing round; others
    # replace them.
    world, dice = copies.world, copies.world.dice
    where, victims = dice.choice(_WHERE_IT_HURTS)
    if _go_on(copies, _A_WHILE, lambda: bool(victims(copies))):
        for process in victims(copies):
            copies.freeze(process, where, dice.choice(_FROZEN_FOR))
    if dice.random() < 0.3:
        world.happened["fencing fails for a while"] += 1
        copies.reader.fencing_fails_until = world.now() + dice.choice((1.0, 5.0, 30.0))
    dice.choice(_RECONFIGURATIONS)(copies)
    if dice.random() < 0.5:
        _rows_come(copies)
    if dice.random() < 0.25:
        _successor_is_late(copies)
    if dice.random() < 0.3 and _go_on(copies, _A_WHILE, lambda: bool(copies.in_a_round())):
        for process in copies.in_a_round():
            copies.freeze(process, "in its round of fencing", dice.choice(_FROZEN_FOR))


def _successor_is_late(copies: Copies) -> None:
    dice = copies.world.dice
    if _go_on(copies, 2 * _A_WHILE, lambda: bool(copies.about_to_take_over())):
        for process in copies.about_to_take_over():
            if dice.random() < 0.5:
                copies.freeze(process, "before it is its task's owner", dice.choice((20.0, 200.0)))
        _go_on(copies, 2 * _A_WHILE)


_A_WHILE = 150  # steps
_FROZEN_FOR = (3.0, 10.0, 15.0, 30.0, 100.0, 10_000.0)  # seconds
_WHERE_IT_HURTS: tuple[tuple[str, Callable[[Copies], list[Process]]], ...] = (
    ("in a transaction", Copies.in_a_transaction),
    ("in a transaction", Copies.in_a_transaction),
    ("about to fence its predecessor", Copies.about_to_fence),
    ("before it is its task's owner", Copies.about_to_take_over),
)


def _table_comes(copies: Copies) -> None:
    if len(copies.tables.lengths) < 2 * MOST_TASKS:
        copies.tables.add()
    if copies.cluster.drivers:
        driver = copies.world.dice.choice(copies.cluster.drivers)
        if (connector := copies.tables.watching.get(driver)) is not None:
            copies.world.tell(f"the connector of {driver.name} asks for new configurations of its tasks")
            copies.world.happened["a connector asks for new configurations"] += 1
            connector.context.request_task_reconfiguration()


def _other_settings_come(copies: Copies) -> None:
    copies.cluster.wish("configure", **_variation(copies))


def _driver_comes(copies: Copies) -> None:
    if copies.cluster.started < MOST_DRIVERS:
        copies.world.happened["another driver is started beside"] += bool(copies.cluster.drivers)
        copies.cluster.start_driver(**_variation(copies))


def _driver_is_replaced(copies: Copies) -> None:
    # The driver's tasks continue; the next driver may have another configuration.
    if copies.cluster.drivers:
        driver = copies.world.dice.choice(copies.cluster.drivers)
        copies.world.tell(f"{driver.name} is killed, its tasks are not")
        copies.world.happened["driver killed"] += 1
        copies.world.kill(driver)
    _driver_comes(copies)


def _ask(copies: Copies, reason: ClosingReason) -> None:
    if copies.cluster.drivers:
        driver = copies.world.dice.choice(copies.cluster.drivers)
        copies.cluster.ask(driver, reason, final=reason is ClosingReason.SHUTDOWN)


Event = Callable[[Copies], None]
_RECONFIGURATIONS: tuple[Event, ...] = (
    _table_comes,
    _table_comes,
    _other_settings_come,
    _driver_comes,
    _driver_is_replaced,
    _driver_is_replaced,
)
_EVENTS: tuple[Event, ...] = (
    *(_zombies,) * 8,
    *_RECONFIGURATIONS,
    _rows_come,
    _task_is_doubled,
    _driver_is_asked,
    _network_fails,
    _anybody_is_frozen,
    _operator_wishes,
    _operator_wishes,
)


# -- the end --------------------------------------------------------------------------------------


def _calm_down(copies: Copies) -> None:
    world, cluster = copies.world, copies.cluster
    world.chaos = Chaos(switch=0.3)
    copies.tables.trouble = copies.reader.fencing_fails_until = 0.0
    world.tell("from here on nothing goes wrong any more")
    _catch_up(copies)
    copies.check_end()
    for driver in cluster.drivers:
        cluster.ask(driver, ClosingReason.SHUTDOWN, final=True)
    run_until(cluster, lambda: not world.processes)
    copies.check_end()


def _catch_up(copies: Copies) -> None:
    # A driver that was frozen before its first claim may resume, and then is the newest.
    for _ in range(MOST_DRIVERS + 1):
        driver = copies.cluster.start_driver()
        run_until(copies.cluster, partial(_is_done, copies, driver))
        if driver.is_alive:
            return
    message = "no driver copies everything, though nothing goes wrong any more"
    raise Violation(message)


def _is_done(copies: Copies, driver: Process) -> bool:
    return not driver.is_alive or (copies.planned_by is driver and copies.reader.is_complete())
