"""Schedule races that random schedules rarely meet, and that lose records without the protocol's step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from property_tests.simulation.archive import Archive
from property_tests.simulation.schedule import _calm_down as calm_down
from property_tests.simulation.seeds import told
from property_tests.simulation.store import Records, SimulatedStore
from property_tests.simulation.world import Chaos, Process, World
from sinksdk import TopicPartition
from sinksdk.connectors.s3_archiver.s3.client import Location
from sinksdk.store.base import Versioned

# Seconds, after which the connector may be deleted, or created again.
_FROZEN = (60.0, 120.0, 300.0, 3_000.0)
_SETTINGS = {"tasks.max": "1", "generation.max.records": "1000", "offset.flush.interval.ms": "500"}


def run(seed: int) -> Counter[str]:
    def whole(world: World) -> None:
        archive = Archive(world)
        if archive.deletes:
            _deleted_while_taken_over(archive)
        elif archive.groups.siblings_expire:
            _completed_after_a_withdrawal(archive)
        else:
            _attempts_that_commit_again(archive)
        calm_down(archive)

    return told(seed, whole, f"property_tests.simulation.races.run({seed})")


def _attempts_that_commit_again(archive: Archive) -> None:
    # Attempts are killed between commit and publish, or after a withdrawal.
    world, cluster, dice = archive.world, archive.cluster, archive.world.dice
    world.chaos = Chaos(switch=1.0, lost_after=dice.choice((0.0, 0.0, 0.02)))
    for partition in cluster.log.records:
        cluster.log.produce(partition, dice.randint(10, 40))
    for _ in range(dice.randint(1, 4)):
        _have_driver(archive)
        # The first commit of a task's second partition archives the earlier commits in a segment.
        before = set(_pending(archive)) if dice.random() < 0.5 else set(list(cluster.log.records)[:1])
        _go_on(archive, 900, lambda before=before: not before.issuperset(_pending(archive)))  # type: ignore[misc]
        if dice.random() < 0.5:
            archive.expire()
            for process in (*cluster.drivers, *cluster.attempts()):
                _kill(world, process)
            _have_driver(archive)
            withdrawn = world.happened["commit withdrawn"]
            _go_on(archive, 600, lambda withdrawn=withdrawn: world.happened["commit withdrawn"] > withdrawn)  # type: ignore[misc]
            _go_on(archive, dice.randint(0, 30))
        for process in cluster.attempts():
            _kill(world, process)


def _have_driver(archive: Archive) -> None:
    if not archive.cluster.drivers:
        archive.cluster.start_driver(**_SETTINGS)


def _pending(archive: Archive) -> dict[TopicPartition, int]:
    return {partition: entry.offset for partition, entry in archive.commits().items() if entry.publish}


def _deleted_while_taken_over(archive: Archive) -> None:
    # Attempts freeze before they claim their task records, the driver dies, and the connector is deleted.
    world, cluster, dice = archive.world, archive.cluster, archive.world.dice
    world.chaos = Chaos(switch=1.0)
    for partition in cluster.log.records:
        cluster.log.produce(partition, dice.randint(20, 60))
    driver = cluster.start_driver(**{"tasks.max": "3"})
    _go_on(archive, dice.randint(1, 600))
    stalls = dice.choice((0.3, 0.6, 1.0))
    cluster.store = lambda: _Stalling(world, cluster.records, stalls)  # type: ignore[method-assign]  # from now on
    _go_on(archive, 600, lambda: world.happened["frozen about to take its record over"] > 0)
    _go_on(archive, dice.randint(0, 100))
    if driver.is_alive:
        _kill(world, driver)
    archive.delete()
    if cluster.is_deleting:
        cluster.start_deletion()
        _go_on(archive, 400)
    del cluster.store


def _completed_after_a_withdrawal(archive: Archive) -> None:
    # An attempt freezes before it completes an upload, another upload of its group expires, and the next
    # attempt withdraws the commit.
    world, cluster, dice = archive.world, archive.cluster, archive.world.dice
    world.chaos = Chaos(switch=1.0)
    for partition in cluster.log.records:
        cluster.log.produce(partition, dice.randint(20, 60))
    complete, frozen = archive.s3.complete_upload, list[Process]()

    def stalling(location: Location, upload_id: str, *parts: Any, **how: Any) -> Any:
        for entry in archive.commits().values():
            pending = [token.id for token in entry.publish if token.id in archive.s3.uploads]
            if not frozen and upload_id in pending and len(pending) > 1 and " task " in world.current.name:
                archive.expire_one(dice.choice([one for one in pending if one != upload_id]))
                frozen.append(world.current)
                world.happened["frozen about to complete an upload"] += 1
                world.tell("is frozen about to complete an upload")
                world.freeze(world.current, _FROZEN[-1])
        return complete(location, upload_id, *parts, **how)

    archive.s3.complete_upload = stalling  # type: ignore[method-assign]
    _have_driver(archive)
    _go_on(archive, 900, lambda: bool(frozen))
    for driver in cluster.drivers:
        _kill(world, driver)
    withdrawn = world.happened["commit withdrawn"]
    _have_driver(archive)
    _go_on(archive, 900, lambda: world.happened["commit withdrawn"] > withdrawn)
    _go_on(
        archive, dice.choice((0, 1, 2, 3, 5, 10, 20))
    )  # meanwhile the next owner may discard the withdrawn tokens
    for process in frozen:
        for thread in process.threads:
            thread.is_frozen_until = world.now()
            world.wake(thread)


class _Stalling(SimulatedStore):
    def __init__(self, world: World, records: Records, stalls: float) -> None:
        super().__init__(world, records)
        self.stalls = stalls
        self.world = world

    def get(self, key: str) -> Versioned | None:
        if "/tasks/" in key and " task " in self.process.name and self.world.dice.random() < self.stalls:
            self.stalls = 0.0
            self.world.happened["frozen about to take its record over"] += 1
            self.world.tell("is frozen about to take its record over")
            self.world.freeze(self.process, self.world.dice.choice(_FROZEN))
        return super().get(key)


def _go_on(archive: Archive, steps: int, until: Callable[[], bool] = lambda: False) -> None:
    for _ in range(steps):
        archive.world.step()
        archive.cluster.reap()
        if until():
            return


def _kill(world: World, process: Process) -> None:
    world.tell(f"{process.name} is killed")
    world.happened["killed"] += 1
    world.kill(process)
