"""Schedule the archiver at random: faults, then recovery without faults and a final check."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial

from property_tests.simulation.archive import Archive
from property_tests.simulation.seeds import run_until, told
from property_tests.simulation.world import Chaos, Violation, World
from sinksdk import ClosingReason

MOST_DRIVERS = 6
WISHES = ("pause", "stop", "resume", "resume", "restart", "rebalance", "flush", "configure")


def run(seed: int) -> Counter[str]:
    return _told(seed, Archive, _random, f"python -m property_tests.simulation --seed {seed}")


def run_topic_changes(seed: int) -> Counter[str]:
    return _told(seed, partial(Archive, topic_changes=True), _random, f"run_topic_changes({seed})")


def run_rolling_deploy(seed: int) -> Counter[str]:
    # Without faults, no record may be read twice.
    return _told(seed, partial(Archive, whole_files=True), _rolling_deploy, f"run_rolling_deploy({seed})")


def _told(
    seed: int, make: Callable[[World], Archive], live: Callable[[Archive], None], again: str
) -> Counter[str]:
    def whole(world: World) -> None:
        archive = make(world)
        live(archive)
        world.happened["records archived"] += sum(
            len(rows) for content, rows in archive.visible().items() if not content.view
        )
        world.happened["keys and headers archived beside"] += sum(
            len(rows) for content, rows in archive.visible().items() if content.view
        )
        world.happened["files archived"] += len(archive.s3.visible())

    return told(seed, whole, again)


def _random(archive: Archive) -> None:
    _live(archive)
    _calm_down(archive)


def _rolling_deploy(archive: Archive) -> None:
    world, cluster, dice = archive.world, archive.cluster, archive.world.dice
    world.chaos = Chaos(switch=1.0)
    for partition in cluster.log.records:
        cluster.log.produce(partition, dice.randint(100, 200))
    first = cluster.start_driver()
    enough = dice.randint(1, 60)
    _run_until(archive, lambda: len(archive.put) >= enough)
    before = archive.claimed()
    cluster.start_driver(**_variation(dice))
    _run_until(archive, lambda: not first.is_alive)
    more = archive.claimed() - before
    if more > 2:  # two are allowed: the generation that runs, and the one that the successor claims
        world.violation(f"the first driver was asked to give way, and went on: {more} more generations")
    if cluster.ended[first.name] != "FencedException":
        world.violation(f"the first driver ended: {cluster.ended[first.name]}")
    # The second driver's first generation reads what the first driver left. At the end, a third driver
    # starts. It is not part of the deploy, and may treat a frozen second driver as dead.
    took_over = archive.claimed()
    _run_until(archive, lambda: archive.claimed() > took_over)
    again = [record for record, times in archive.put.items() if times > 1]
    if again:
        world.violation(f"{len(again)} records were read again, {again[0]} first")
    _calm_down(archive)


def _variation(dice: random.Random) -> dict[str, str]:
    return {"restart.backoff.ms": dice.choice(("1000", "1500"))}


def _begin(archive: Archive) -> None:
    world, cluster, dice = archive.world, archive.cluster, archive.world.dice
    if not archive.groups.settings:
        blanks = random.Random(f"{world.seed} blanks")  # noqa: S311 - chance, not secrets
        cluster.log.blanks = blanks.choice((0, 0, 1, 2, 5))
        world.happened["schedules with empty values and none in whole records"] += cluster.log.blanks > 0
    for partition in cluster.log.records:
        cluster.log.produce(partition, dice.randint(0, 20), dice.choice((0, 0, 3)))
    if archive.is_long:
        for partition in cluster.log.records:
            cluster.log.produce(partition, archive.operator.randint(30, 90))
    world.chaos = Chaos.drawn(dice)
    if not archive.changing:
        cluster.log.breaks_order = cluster.log.dice.choice((0.0, 0.0, 0.0, 0.0, 0.3))
    if cluster.log.is_transformed:
        cluster.log.cuts = cluster.log.dice.choice((0.0, 0.3, 0.6))


def _live(archive: Archive) -> None:
    world, cluster, dice = archive.world, archive.cluster, archive.world.dice
    _begin(archive)
    for _ in range(dice.randint(4, 16)):
        if not cluster.drivers and cluster.started < MOST_DRIVERS:
            cluster.start_driver(until_caught_up=dice.random() < 0.3, **_variation(dice))
        _something_happens(archive)
        _something_special_happens(archive)
        if dice.random() < 0.2:
            archive.expire()
        for _ in range(dice.randint(5, 80)):
            world.step()
            cluster.reap()


def _something_happens(archive: Archive) -> None:
    world, cluster, dice = archive.world, archive.cluster, archive.world.dice
    what = dice.randrange(14)
    if what <= 2:
        partition = dice.choice(list(cluster.log.records))
        cluster.log.produce(partition, dice.randint(1, 15), dice.choice((0, 0, 1, 5)))
    elif what == 3 and cluster.started < MOST_DRIVERS:
        world.happened["another driver is started beside"] += bool(cluster.drivers)
        cluster.start_driver(until_caught_up=dice.random() < 0.3, **_variation(dice))
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
    elif what >= 11:
        wish = dice.choice(WISHES)
        cluster.wish(wish, **(_variation(dice) if wish == "configure" else {}))
    elif what == 7 and world.processes:
        process = dice.choice(world.processes)
        world.happened["frozen for very long"] += 1
        world.tell(f"{process.name} is frozen for very long")
        world.freeze(process, 10_000)


def _something_special_happens(archive: Archive) -> None:
    if archive.deletes:
        _an_operator_deletes(archive)
    if archive.restores:
        _an_operator_restores(archive)
    if archive.alters:
        _an_operator_alters(archive)
    if archive.is_long:
        archive.cluster.double()
    if archive.changing and archive.changing.events.random() < 0.6:
        archive.change_topic(archive.changing)


def _an_operator_restores(archive: Archive) -> None:
    dice = archive.operator
    if archive.is_behind and dice.random() < 0.3:
        archive.recover()
    elif dice.random() < (0.6 if archive.copy is None else 0.4):
        archive.keep_or_restore_the_store()


def _an_operator_alters(archive: Archive) -> None:
    dice = archive.operator
    if dice.random() < 0.3:
        archive.alter_offsets()
    if dice.random() < 0.3:
        archive.cluster.wish("resume")


def _an_operator_deletes(archive: Archive) -> None:
    world, cluster, dice = archive.world, archive.cluster, archive.operator
    if dice.random() < 0.3:
        seconds = dice.choice((2.0, 20.0, 100.0))
        world.tell(f"S3 denies to complete uploads for {seconds:.0f} s")
        archive.s3.completes_from = world.now() + seconds
    if dice.random() < 0.3:
        archive.delete()
    if cluster.is_deleting and cluster.deletions < MOST_DRIVERS:
        if archive.has_rows_ahead() and cluster.started < MOST_DRIVERS and dice.random() < 0.3:
            cluster.start_driver()
        elif not cluster.drivers or dice.random() < 0.1:
            cluster.start_deletion()
    elif not cluster.is_deleting:
        archive.remove_markers()


def _calm_down(archive: Archive) -> None:
    world, cluster = archive.world, archive.cluster
    world.chaos = Chaos(switch=0.3)
    cluster.log.breaks_order = cluster.log.cuts = 0.0
    archive.s3.completes_from = archive.groups.siblings_expire = 0.0
    archive.s3.contradicts = archive.s3.lags = archive.lingers = 0.0
    world.tell("from here on nothing goes wrong any more")
    if archive.changing:
        # The connector continues only after the operator has handled its failure.
        archive.restore_topic()
        archive.changing.calm_down(
            {partition: entry.offset for partition, entry in archive.commits().items()}
        )
        cluster.settings["on.data.loss"] = "skip"
    _recover(archive)
    _catch_up(archive)
    # A deletion also removes the marker of its incarnation.
    late = {location: archive.s3.objects[location].data for location in archive.files()}
    for driver in cluster.drivers:
        cluster.ask(driver, ClosingReason.SHUTDOWN, final=True)
    claimed = archive.claimed()
    _run_until(archive, lambda: not world.processes)
    if archive.claimed() != claimed:
        _catch_up(archive)  # a process that resumed late has claimed a generation
    archive.check_end()
    for location, data in late.items():
        if archive.s3.objects[location].data != data:
            world.violation(f"{location} was changed by somebody who came late")


def _recover(archive: Archive) -> None:
    # A start is refused while the archive holds more than the store's commits cover.
    for _ in range(MOST_DRIVERS):
        if not archive.is_behind:
            return
        driver = archive.cluster.start_driver(until_caught_up=True)
        _run_until(archive, lambda driver=driver: not driver.is_alive)  # type: ignore[misc]  # of this very turn
        if archive.cluster.ended.get(driver.name) == "ConfigException":
            archive.world.happened["start refused until the offsets are recovered"] += 1
        archive.recover()
        operator = archive.cluster.operators[-1]
        _run_until(archive, lambda operator=operator: not operator.is_alive)  # type: ignore[misc]  # the same
    message = "offsets cannot be recovered, though nothing goes wrong any more"
    raise Violation(message)


def _catch_up(archive: Archive) -> None:
    # A driver that was frozen before its first claim may resume, and then is the newest.
    cluster = archive.cluster
    for _ in range(MOST_DRIVERS + 1):
        while cluster.is_deleting:
            # If rows are visible above a commit, the deletion waits for a driver that reads them.
            deletion = cluster.start_deletion()
            _run_until(archive, lambda deletion=deletion: not deletion.is_alive or archive.has_rows_ahead())
            if cluster.is_deleting and archive.has_rows_ahead():
                driver = cluster.start_driver(until_caught_up=True)
                _run_until(archive, lambda driver=driver: not driver.is_alive)
        if archive.deletes:
            archive.remove_markers()
        driver = cluster.start_driver(until_caught_up=True)
        _run_until(archive, lambda driver=driver: not driver.is_alive)
        if cluster.ended.get(driver.name) == "well" and not cluster.is_deleting:
            return
    message = "no driver comes to an end, though nothing goes wrong any more"
    raise Violation(message)


def _run_until(archive: Archive, condition: Callable[[], bool]) -> None:
    run_until(archive.cluster, condition)
