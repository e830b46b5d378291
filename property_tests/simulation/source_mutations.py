"""The protocol of sources with one piece left out, each in turn: what the simulation must notice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from property_tests.simulation.mutations import driver_reads_its_claim_afresh, writes_without_condition
from property_tests.simulation.places import SimulatedDisk
from sinksdk.engine.source import WorkerSourceTask
from sinksdk.engine.transactions import Boundaries, Decision
from sinksdk.engine.writer import FencingRound
from sinksdk.runtime import source_driver
from sinksdk.runtime.source_driver import SourceSession
from sinksdk.source.positions import SourcePosition
from sinksdk.source.records import RecordMetadata
from sinksdk.spark import attempts, watches
from sinksdk.store import Store, TakenOver, ledger, table
from sinksdk.store.keys import (
    plan_key,
    task_count_key,
    task_key,
)
from sinksdk.store.ledger import TaskLedger
from sinksdk.store.records import (
    GenerationPlan,
    TaskCountRecord,
    TaskRecord,
)
from sinksdk.topics.directory.log import Entry, TransactionLog
from sinksdk.topics.directory.writer import TopicDirectoryWriter
from sinksdk.topics.memory import MemoryWriter, _Transaction

Patch = pytest.MonkeyPatch
Positions = Sequence[SourcePosition]


def no_round(patch: Patch) -> None:
    """Nobody is fenced before others start; each task fences its own predecessor."""
    decided(patch, lambda recorded, tasks: range(0))


def shortcut_for_any_number(patch: Patch) -> None:
    """Not only a single task that stays one fences itself, but any number that stays the same."""
    decided(patch, lambda recorded, tasks: range(0 if recorded == tasks else recorded))


def shortcut_from_one_task_to_any(patch: Patch) -> None:
    """A single task is taken to be fenced by its successor, however many others start beside that one."""
    decided(patch, lambda recorded, tasks: range(0 if recorded == 1 else recorded))


def shortcut_to_one_task(patch: Patch) -> None:
    """A single task is taken to fence all before it."""
    decided(patch, lambda recorded, tasks: range(0 if tasks == 1 else recorded))


def as_many_as_will_run(patch: Patch) -> None:
    """The round concerns the ids of those that start, not of those that may still write."""
    decided(patch, lambda recorded, tasks: range(tasks))


def decided(patch: Patch, fence: Callable[[int, int], range]) -> None:
    """Another table of decisions."""

    def fencing_round(*, is_pending: bool, recorded: int | None, tasks: int) -> FencingRound:
        if not is_pending:
            return FencingRound(range(0), None)
        return FencingRound(range(0) if recorded is None else fence(recorded, tasks), tasks)

    patch.setattr(source_driver, "fencing_round", fencing_round)


def nothing_is_ever_pending(patch: Patch) -> None:
    """The round is for other numbers of tasks only, not for other configurations."""

    def is_pending(claim: Any, record: Any, configs: Sequence[Any]) -> bool:
        return claim.before is None or len(claim.before.tasks) != len(configs)

    patch.setattr(source_driver, "_is_pending", is_pending)


def fencing_may_fail(patch: Patch) -> None:
    """Tasks start although those before them could not be fenced."""
    fence = SourceSession._try_to_fence

    def anyhow(self: SourceSession, tasks: range) -> None:
        fence(self, tasks)

    patch.setattr(SourceSession, "_try_to_fence", anyhow)


def no_check_before_the_writer(patch: Patch) -> None:
    """An old task becomes its record's owner, and fences whoever writes as it, whatever is newer."""

    def take_over(store: Store, connector: str, generation: int, task: int) -> TakenOver | None:
        plan = table.read(store, plan_key(connector, generation), GenerationPlan)
        if plan is None:
            return None
        key = task_key(connector, task)
        before = table.read(store, key, TaskRecord)
        record = ledger._successor(before.value if before else None, plan.value, task)
        taken = table.write(store, key, record, before.version if before else None)
        return TakenOver(plan.value, TaskLedger(store, connector, task, taken, {}))

    patch.setattr(attempts, "take_over", take_over)
    prepare = WorkerSourceTask._prepare

    def without(self: WorkerSourceTask) -> bool:
        may_run, answers = self._may_run, iter([True])
        self._may_run = lambda: next(answers, None) or may_run()
        return prepare(self)

    patch.setattr(WorkerSourceTask, "_prepare", without)


def no_check_after_the_writer(patch: Patch) -> None:
    """A task that was the newest before it had fenced its predecessors is taken to be it afterwards."""

    def prepare(self: WorkerSourceTask) -> bool:
        if self._stop_asked.is_set() or not self._may_run():
            return False
        with self._writing:
            self._transactions.init()
        return True

    patch.setattr(WorkerSourceTask, "_prepare", prepare)


def claims_do_not_count(patch: Patch) -> None:
    """Tasks run on until the next generation is planned: also those that start after its round of fencing."""

    def is_current(store: Store, connector: str, generation: int) -> bool:
        count = table.read(store, task_count_key(connector), TaskCountRecord)
        return count is not None and count.value.planned == generation

    for module in (ledger, attempts, watches):
        patch.setattr(module, "is_current", is_current)
    patch.setattr(attempts.Attempt, "owns_task", lambda self: True)


def offsets_after_the_transaction(patch: Patch) -> None:
    """Source offsets become durable a step after the records they belong to."""

    def commit(self: MemoryWriter, positions: Positions, forget: Any = ()) -> Sequence[RecordMetadata]:
        written = whole(self, (), ())
        _commit_offsets(self, positions)
        return written

    whole = MemoryWriter.commit
    patch.setattr(MemoryWriter, "commit", commit)


def offsets_before_the_transaction(patch: Patch) -> None:
    """Source offsets become durable a step before the records they belong to."""

    def commit(self: MemoryWriter, positions: Positions, forget: Any = ()) -> Sequence[RecordMetadata]:
        _commit_offsets(self, positions)
        return whole(self, (), ())

    whole = MemoryWriter.commit
    patch.setattr(MemoryWriter, "commit", commit)


def _commit_offsets(writer: MemoryWriter, positions: Positions) -> None:
    """In a transaction of their own."""
    topics, transaction = writer._topics, _Transaction(writer._id, writer._epoch, -writer._number)
    topics.operate("offsets", lambda: topics.append(transaction, writer._connector, (), positions))


def task_commits_whatever_is_open(patch: Patch) -> None:
    """A task commits the half of a transaction that it has got when it ends, and even after each poll."""
    patch.setattr(Boundaries, "at_the_end", lambda self: Decision.COMMIT)
    patch.setattr(Boundaries, "after_batch", lambda self, now: Decision.COMMIT)


def entries_replace_each_other(patch: Patch) -> None:
    """Who creates an entry of a topic directory's log does not look whether its number is taken."""

    def link(self: SimulatedDisk, existing: Path, name: Path) -> bool:
        def effect() -> bool:
            existing.replace(name)
            self._on_link()
            return True

        return self._step(f"links {name.name}", effect)

    patch.setattr(SimulatedDisk, "link", link)


def ends_are_not_compared(patch: Patch) -> None:
    """A transaction is appended to a topic directory though partitions have grown since its files were written."""
    append = TransactionLog.append

    def anyhow(self: TransactionLog, entry: Entry) -> bool:
        self.refresh()
        return append(self, entry)

    patch.setattr(TransactionLog, "append", anyhow)


def epochs_are_not_compared(patch: Patch) -> None:
    """A transaction is appended to a topic directory by whoever once had its transactional id."""
    patch.setattr(TopicDirectoryWriter, "_owned", lambda self: self._log.refresh())


MUTATIONS: Mapping[str, Callable[[Patch], None]] = {
    mutation.__name__: mutation
    for mutation in (
        no_round,
        shortcut_for_any_number,
        shortcut_from_one_task_to_any,
        shortcut_to_one_task,
        as_many_as_will_run,
        nothing_is_ever_pending,
        fencing_may_fail,
        no_check_before_the_writer,
        no_check_after_the_writer,
        claims_do_not_count,
        writes_without_condition,
        driver_reads_its_claim_afresh,
        offsets_after_the_transaction,
        offsets_before_the_transaction,
        task_commits_whatever_is_open,
    )
}
"""What breaks the promise: random schedules must notice."""

IN_DIRECTORIES: Mapping[str, Callable[[Patch], None]] = {
    mutation.__name__: mutation
    for mutation in (entries_replace_each_other, ends_are_not_compared, epochs_are_not_compared)
}
"""The same, of topic directories: schedules that write to one must notice."""
