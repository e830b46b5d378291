"""The protocol of sources with one piece left out, each in turn: what the simulation must notice."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from property_tests.simulation.mutations import driver_reads_its_claim_afresh, writes_without_condition
from property_tests.simulation.places import Directory, Memory, SimulatedDisk
from property_tests.simulation.planted import (
    COUNT,
    TASKS,
    Patch,
    Plant,
    TakingOver,
    Value,
    on_get,
    plants,
    reads_as,
    task,
)
from property_tests.simulation.store import SimulatedStore
from sinksdk import ConnectException, FencedException
from sinksdk.engine import writer
from sinksdk.engine.transactions import Boundaries, Decision
from sinksdk.engine.writer import FencingRound, TransactionalWriter
from sinksdk.runtime import source_driver
from sinksdk.source.positions import SourcePosition
from sinksdk.source.records import RecordMetadata, SourcePartition, SourceRecord
from sinksdk.store import Store
from sinksdk.store.base import Versioned
from sinksdk.topics.directory.log import Entry, TransactionLog
from sinksdk.worker.attempts import Attempt

Positions = Sequence[SourcePosition]
Forgotten = Sequence[SourcePartition]
_GENERATION: Final = re.compile(r"generation (\d+) task")

# -- the round of fencing --------------------------------------------------------------------------------


def no_round(patch: Patch) -> None:
    """Nobody is fenced before others start; each task fences its own predecessor."""
    _decided(patch, lambda recorded, tasks: range(0))


def shortcut_for_any_number(patch: Patch) -> None:
    """Not only a single task that stays one fences itself, but any number that stays the same."""
    _decided(patch, lambda recorded, tasks: range(0 if recorded == tasks else recorded))


def shortcut_from_one_task_to_any(patch: Patch) -> None:
    """A single task is taken to be fenced by its successor, however many others start beside that one."""
    _decided(patch, lambda recorded, tasks: range(0 if recorded == 1 else recorded))


def shortcut_to_one_task(patch: Patch) -> None:
    """A single task is taken to fence all before it."""
    _decided(patch, lambda recorded, tasks: range(0 if tasks == 1 else recorded))


def as_many_as_will_run(patch: Patch) -> None:
    """The round concerns the ids of those that start, not of those that may still write."""
    _decided(patch, lambda recorded, tasks: range(tasks))


def _decided(patch: Patch, fence: Callable[[int, int], range]) -> None:
    """Another table of decisions."""

    def fencing_round(*, is_pending: bool, recorded: int | None, tasks: int) -> FencingRound:
        if not is_pending:
            return FencingRound(range(0), None)
        return FencingRound(range(0) if recorded is None else fence(recorded, tasks), tasks)

    patch.setattr(source_driver, "fencing_round", fencing_round)


def nothing_is_ever_pending(patch: Patch) -> None:
    """The round is for other numbers of tasks only, not for other configurations."""

    def fencing_round(*, is_pending: bool, recorded: int | None, tasks: int) -> FencingRound:
        is_pending = is_pending and recorded != tasks
        return writer.fencing_round(is_pending=is_pending, recorded=recorded, tasks=tasks)

    patch.setattr(source_driver, "fencing_round", fencing_round)


def fencing_may_fail(patch: Patch) -> None:
    """Tasks start although those before them could not be fenced."""

    def anyhow(*arguments: Any) -> None:
        with suppress(ConnectException):
            writer.fence(*arguments)

    patch.setattr(source_driver, "fence", anyhow)


# -- an attempt looks whether it may run -----------------------------------------------------------------


def no_check_before_the_writer(patch: Patch) -> None:
    """An old task becomes its record's owner, and fences whoever writes as it, whatever is newer."""
    taking = TakingOver()

    def never_older(
        store: SimulatedStore, key: str, read: Callable[[], Versioned | None]
    ) -> Versioned | None:
        is_meant, found = taking.is_on(store), read()
        if found is None or not is_meant or not (named := _GENERATION.search(store.process.name)):
            return found
        own, value = int(named[1]), found.value
        if COUNT.search(key):
            value = {**value, "claimed": own, "planned": own}
        elif TASKS.search(key):
            value = {**value, "generation": min(own, value["generation"])}
        return Versioned(value, found.version)

    on_get(patch, never_older)
    taking.watch(patch)
    _may_run_at(patch, 1)


def no_check_after_the_writer(patch: Patch) -> None:
    """A task that was the newest before it had fenced its predecessors is taken to be it afterwards."""
    _may_run_at(patch, 2)


def _may_run_at(patch: Patch, time: int) -> None:
    """An attempt that looks for this time whether it may run finds that it may."""
    may_run, looks = Attempt.may_run, WeakKeyDictionary[Store, int]()

    def anyhow(self: Attempt) -> bool:
        looks[self.store] = looks.get(self.store, 0) + 1
        return looks[self.store] == time or may_run(self)

    patch.setattr(Attempt, "may_run", anyhow)


def claims_do_not_count(patch: Patch) -> None:
    """Tasks run on until the next generation is planned: also those that start after its round of fencing."""
    reads_as(patch, COUNT, _as_planned, task)
    patch.setattr(Attempt, "owns_task", lambda self: True)


def _as_planned(count: Value) -> Value:
    return {**count, "claimed": count["planned"]}


# -- what is written -------------------------------------------------------------------------------------


def offsets_after_the_transaction(patch: Patch) -> None:
    """Source offsets become durable a step after the records they belong to."""
    _in_two_transactions(patch, are_offsets_first=False)


def offsets_before_the_transaction(patch: Patch) -> None:
    """Source offsets become durable a step before the records they belong to."""
    _in_two_transactions(patch, are_offsets_first=True)


def _in_two_transactions(patch: Patch, *, are_offsets_first: bool) -> None:
    made = Memory.writer

    def two(self: Memory, identity: str, connector: str) -> TransactionalWriter:
        offsets = made(self, f"{identity}-offsets", connector)
        return _Two(made(self, identity, connector), offsets, are_offsets_first=are_offsets_first)

    patch.setattr(Memory, "writer", two)


class _Wrapped:
    """A writer that does what another one does."""

    def __init__(self, writer: TransactionalWriter) -> None:
        self.writer = writer

    def init(self) -> None:
        self.writer.init()

    def begin(self) -> None:
        self.writer.begin()

    def send(self, record: SourceRecord) -> None:
        self.writer.send(record)

    def commit(self, positions: Positions, forget: Forgotten = ()) -> Sequence[RecordMetadata]:
        return self.writer.commit(positions, forget)

    def abort(self) -> None:
        self.writer.abort()

    def close(self) -> None:
        self.writer.close()


class _Two(_Wrapped):
    """Commits records and offsets in a transaction each."""

    def __init__(
        self, records: TransactionalWriter, offsets: TransactionalWriter, *, are_offsets_first: bool
    ) -> None:
        super().__init__(records)
        self.offsets = offsets
        self.are_offsets_first = are_offsets_first

    def init(self) -> None:
        super().init()
        self.offsets.init()

    def begin(self) -> None:
        super().begin()
        self.offsets.begin()

    def commit(self, positions: Positions, forget: Forgotten = ()) -> Sequence[RecordMetadata]:
        if self.are_offsets_first:
            self.offsets.commit(positions, forget)
        written = super().commit(())
        if not self.are_offsets_first:
            self.offsets.commit(positions, forget)
        return written


def task_commits_whatever_is_open(patch: Patch) -> None:
    """A task commits the half of a transaction that it has got when it ends, and even after each poll."""
    patch.setattr(Boundaries, "at_the_end", lambda self: Decision.COMMIT)
    patch.setattr(Boundaries, "after_batch", lambda self, now: Decision.COMMIT)


# -- in a topic directory --------------------------------------------------------------------------------


def entries_replace_each_other(patch: Patch) -> None:
    """Who creates an entry of a topic directory's log does not look whether its number is taken."""
    link = SimulatedDisk.link

    def anyhow(self: SimulatedDisk, existing: Path, name: Path) -> bool:
        name.unlink(missing_ok=True)
        return link(self, existing, name) or anyhow(self, existing, name)

    patch.setattr(SimulatedDisk, "link", anyhow)


def ends_are_not_compared(patch: Patch) -> None:
    """A transaction is appended to a topic directory though partitions have grown since its files were written."""
    append = TransactionLog.append

    def anyhow(self: TransactionLog, entry: Entry) -> bool:
        self.refresh()
        return append(self, entry)

    patch.setattr(TransactionLog, "append", anyhow)


def epochs_are_not_compared(patch: Patch) -> None:
    """A transaction is appended to a topic directory by whoever once had its transactional id."""
    made = Directory.writer
    patch.setattr(Directory, "writer", lambda self, *names: _Undeterred(made(self, *names)))


class _Undeterred(_Wrapped):
    """Takes its transactional id back when it is fenced, and writes its transaction all the same."""

    def __init__(self, writer: TransactionalWriter) -> None:
        super().__init__(writer)
        self.sent: list[SourceRecord] = []

    def begin(self) -> None:
        self.sent = []
        super().begin()

    def send(self, record: SourceRecord) -> None:
        self.sent.append(record)
        super().send(record)

    def commit(self, positions: Positions, forget: Forgotten = ()) -> Sequence[RecordMetadata]:
        while True:
            try:
                return super().commit(positions, forget)
            except FencedException:
                self.init()
                super().begin()
                for record in self.sent:
                    super().send(record)


MUTATIONS: Mapping[str, Plant] = plants(
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
"""What breaks the promise: random schedules must notice."""

IN_DIRECTORIES: Mapping[str, Plant] = plants(
    entries_replace_each_other, ends_are_not_compared, epochs_are_not_compared
)
"""The same, of topic directories: schedules that write to one must notice."""
