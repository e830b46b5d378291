"""Run KIP-618's decision table in a simulated cluster: tasks freeze in a transaction, others replace them."""

from __future__ import annotations

from typing import Final, NamedTuple

from property_tests.simulation.copies import Copies
from property_tests.simulation.places import Memory
from property_tests.simulation.seeds import run_until, told
from property_tests.simulation.world import Chaos, Process, World
from sinksdk import ClosingReason

_TABLES: Final = 4
_FROZEN_FOR: Final = 500.0  # seconds: the process wakes long after all others have ended


class Case(NamedTuple):
    # ``fenced`` holds the transactional ids that the driver must fence. ``before`` is 0 if the connector has
    # never run.
    before: int
    after: int
    is_pending: bool
    fenced: frozenset[int]

    def in_words(self) -> str:
        return f"{self.before} to {self.after}, {'pending' if self.is_pending else 'nothing pending'}"


class Seen(NamedTuple):
    # ``recorded`` is the task count record afterwards. ``zombies`` is the number of tasks that resumed in a
    # transaction and were fenced.
    fenced: frozenset[int]
    recorded: int
    zombies: int


def _case(before: int, after: int, *, is_pending: bool = True) -> Case:
    shortcut = before == after == 1
    return Case(before, after, is_pending, frozenset(range(before if is_pending and not shortcut else 0)))


ROWS: Final = (
    *(_case(0, after) for after in (1, 4)),
    *(_case(before, after) for before in range(1, 5) for after in range(1, 5)),
    *(_case(tasks, tasks, is_pending=False) for tasks in range(1, 5)),
)


def run_case(case: Case) -> Seen:
    seen: list[Seen] = []
    told(ROWS.index(case), lambda world: seen.append(_live(world, case)), f"run_case({case!r})")
    return seen[0]


def _live(world: World, case: Case) -> Seen:
    world.chaos = Chaos(switch=0.5)
    copies = Copies(world, Memory(world), tables=_TABLES, **{"transaction.boundary": "poll"})
    zombies = _freeze_all_in_transactions(copies, case.before) if case.before else set()
    for table in copies.tables.lengths:
        copies.tables.grow(table, 4)
    copies.cluster.start_driver(**_settings(case.after, is_other=case.is_pending))
    run_until(copies.cluster, copies.reader.is_complete)
    newest = copies.rounds[-1]
    for driver in copies.cluster.drivers:
        copies.cluster.ask(driver, ClosingReason.SHUTDOWN, final=True)
    run_until(copies.cluster, lambda: not world.processes)
    copies.check_end()
    return Seen(newest.fenced, newest.tasks, len(zombies & copies.reader.refused))


def _freeze_all_in_transactions(copies: Copies, tasks: int) -> set[Process]:
    # The driver freezes last: if it ended, its tasks would be killed with it.
    for table in copies.tables.lengths:
        copies.tables.grow(table, 4)
    driver = copies.cluster.start_driver(**_settings(tasks, is_other=False))
    frozen: set[Process] = set()
    while len(frozen) < tasks:
        run_until(copies.cluster, lambda: bool(set(copies.in_a_transaction()) - frozen))
        for process in set(copies.in_a_transaction()) - frozen:
            copies.freeze(process, "in a transaction", _FROZEN_FOR)
            frozen.add(process)
    # If the driver ended, its tasks would be killed with it.
    copies.freeze(driver, "beside its tasks", 10 * _FROZEN_FOR)
    return frozen


def _settings(tasks: int, *, is_other: bool) -> dict[str, str]:
    return {"tasks.max": str(tasks), "restart.backoff.ms": "1500" if is_other else "1000"}
