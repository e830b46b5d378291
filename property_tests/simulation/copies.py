"""Copy tables to a topic in a simulated cluster, and check the invariants of the source."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final, NamedTuple

from property_tests.simulation.places import Place
from property_tests.simulation.reader import Attempt, Reader
from property_tests.simulation.source_cluster import SourceCluster
from property_tests.simulation.store import Bystander
from property_tests.simulation.tables import Tables, TablesConnector, is_taken_back
from property_tests.simulation.watched import WatchedTarget
from property_tests.simulation.world import Process, World
from sinksdk.store import table
from sinksdk.store.base import Stored
from sinksdk.store.keys import (
    plan_key,
    task_count_key,
    task_key,
)
from sinksdk.store.records import (
    GenerationPlan,
)

CONNECTOR: Final = "copy"
MOST_TASKS: Final = 4


class Round(NamedTuple):
    # ``recorded`` is the number of tasks in the task count record before this round (None: missing),
    # ``tasks`` the number after it.
    is_pending: bool
    recorded: int | None
    tasks: int
    fenced: frozenset[int]

    def in_words(self) -> str:
        if not self.is_pending:
            return "round: nothing pending"
        if self.recorded is None:
            return "round: no record"
        if self.recorded == self.tasks == 1:
            return "round: from one task to one"
        change = (
            "more" if self.tasks > self.recorded else "fewer" if self.tasks < self.recorded else "as many"
        )
        before = {0: "no task", 1: "one task"}.get(self.recorded, "several tasks")
        return f"round: from {before} to {change}"


class Copies:
    def __init__(self, world: World, place: Place, *, tables: int | None = None, **settings: str) -> None:
        dice = world.dice
        self.world = world
        self.tables = Tables(world, tables or dice.randint(1, 5))
        raw = {
            "name": CONNECTOR,
            "connector.class": f"{TablesConnector.__module__}:{TablesConnector.__name__}",
            "tasks.max": str(dice.randint(1, MOST_TASKS)),
            "transaction.boundary": dice.choice(("poll", "interval", "connector")),
            "transaction.boundary.interval.ms": dice.choice(("500", "3000")),
            "task.shutdown.graceful.timeout.ms": dice.choice(("2000", "20000")),
            "errors.retry.timeout": dice.choice(("0", "3000")),
            "closing.poll.ms": dice.choice(("500", "2000", "20000")),
            "restart.backoff.ms": "1000",
            "restart.max.attempts": "20",
            **settings,
        }
        takes_back = raw["transaction.boundary"] == "connector"
        self.reader = Reader(
            world, place, self.tables, CONNECTOR, lambda row: not (takes_back and is_taken_back(row))
        )
        self.rounds: list[Round] = []
        self.planned_by: Process | None = None
        self._target = WatchedTarget(place, self.reader, world)
        self.cluster = SourceCluster(
            world, CONNECTOR, TablesConnector, raw, target=self._target, on_end=self._has_ended
        )
        self.cluster.records.on_change = self._on_change
        self._bystander = Bystander(self.cluster.records.stored)

    def freeze(self, process: Process, where: str, seconds: float) -> None:
        self.world.happened[f"frozen {where}"] += 1
        self.world.tell(f"{process.name} is frozen {where}, for {seconds:.0f} s")
        self.world.freeze(process, seconds)

    def in_a_transaction(self) -> list[Process]:
        return self._awake(process for process, sent in self.reader.open.items() if sent)

    def about_to_fence(self) -> list[Process]:
        return self._awake(w.process for w in self._target.writers if w.is_a_tasks and w.is_fencing)

    def about_to_take_over(self) -> list[Process]:
        attempts = self.cluster.attempts()
        return self._awake(process for process in attempts if process not in self.reader.attempts)

    def in_a_round(self) -> list[Process]:
        return self._awake(process for process, fenced in self.reader.fences.items() if fenced)

    def _awake(self, processes: Iterable[Process]) -> list[Process]:
        return [p for p in processes if p.is_alive and p.is_frozen_until <= self.world.now()]

    def check_end(self) -> None:
        self.reader.check_end()

    def _has_ended(self, process: Process) -> None:
        tasks = [task for task in self.tables.tasks if task.process is process]
        for task in tasks:
            if task.calls and task.calls[-1] != "stopped":
                self.world.violation(f"{process.name} has ended, and its task last heard {task.calls[-1]}")
        for writer in self._target.writers:
            if writer.process is not process:
                continue
            if not writer.is_closed:
                self.world.violation(f"{process.name} has ended, and its writer is open")
            if not any(task.calls for task in tasks):
                moment = "after its writer was made" if writer.has_fenced else "before it had a writer"
                self.world.happened[f"task abandoned {moment}"] += 1

    def _on_change(self, key: str, before: Stored | None, after: Stored | None) -> None:
        if after is None:
            return
        if key.startswith(task_key(CONNECTOR, 0)[:-1]):
            row = json.loads(after.body)
            attempt = Attempt(row["generation"], row["attempt"])
            if before is not None and attempt < Attempt(*_generation_and_attempt(before)):
                self.world.violation(f"{key} went back to {attempt}")
            if row["attempt"]:  # attempt 0 means that the record was fenced and no task owns it
                self.reader.attempts[self.world.current.threads[0]] = attempt
        elif key == task_count_key(CONNECTOR):
            self._on_count(json.loads(before.body) if before else None, json.loads(after.body))

    def _on_count(self, before: dict[str, int] | None, after: dict[str, int]) -> None:
        driver = self.world.current.threads[0]
        if before is not None and after["claimed"] < before["claimed"]:
            self.world.violation(f"the claim went back from {before['claimed']} to {after['claimed']}")
        self.reader.claimed = after["claimed"]
        if before is None or after["planned"] == before["planned"]:
            self.reader.fences[driver].clear()  # the driver has claimed, and now decides which tasks to fence
            return
        if after["transactional_tasks"] is None:  # only a write without compare-and-set can remove the number
            self.world.violation(f"the task count record of generation {before['planned']} was lost")
            return
        plans = [self._plan(before["planned"]), self._plan(after["planned"])]
        tasks = [plan and (plan.config, [task.config for task in plan.tasks]) for plan in plans]
        recorded = before["transactional_tasks"]
        round_ = Round(
            plans[0] is None or tasks[0] != tasks[1] or recorded != len(plans[0].tasks),
            recorded,
            after["transactional_tasks"],
            frozenset(self.reader.fences[driver]),
        )
        self.rounds.append(round_)
        self.reader.fences[driver].clear()
        self.planned_by = driver
        self.world.happened[round_.in_words()] += 1
        self.world.happened["generation without tasks"] += not round_.tasks

    def _plan(self, generation: int) -> GenerationPlan | None:
        row = table.read(self._bystander, plan_key(CONNECTOR, generation), GenerationPlan)
        return row.value if row else None


def _generation_and_attempt(stored: Stored) -> tuple[int, int]:
    row = json.loads(stored.body)
    return row["generation"], row["attempt"]
