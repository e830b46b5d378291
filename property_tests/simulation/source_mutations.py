"""Remove one piece of the source protocol each; schedules must fail with every mutation."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from property_tests.simulation.mutations import driver_overwrites_newer_claim, store_without_compare_and_set
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
from sinksdk.engine.writer import TransactionalWriter
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


def no_fencing_round(patch: Patch) -> None:
    _decided(patch, lambda recorded, tasks: range(0))


def no_round_if_task_count_unchanged(patch: Patch) -> None:
    _decided(patch, lambda recorded, tasks: range(0 if recorded == tasks else recorded))


def no_round_after_single_task(patch: Patch) -> None:
    _decided(patch, lambda recorded, tasks: range(0 if recorded == 1 else recorded))


def no_round_before_single_task(patch: Patch) -> None:
    _decided(patch, lambda recorded, tasks: range(0 if tasks == 1 else recorded))


def round_fences_new_task_count(patch: Patch) -> None:
    _decided(patch, lambda recorded, tasks: range(tasks))


def _decided(patch: Patch, fence: Callable[[int, int], range]) -> None:
    def tasks_to_fence(*, is_pending: bool, recorded: int | None, tasks: int) -> range:
        return range(0) if not is_pending or recorded is None else fence(recorded, tasks)

    patch.setattr(source_driver, "tasks_to_fence", tasks_to_fence)


def round_ignores_config_changes(patch: Patch) -> None:
    def tasks_to_fence(*, is_pending: bool, recorded: int | None, tasks: int) -> range:
        is_pending = is_pending and recorded != tasks
        return writer.tasks_to_fence(is_pending=is_pending, recorded=recorded, tasks=tasks)

    patch.setattr(source_driver, "tasks_to_fence", tasks_to_fence)


def fencing_errors_ignored(patch: Patch) -> None:
    def anyhow(*arguments: Any) -> None:
        with suppress(ConnectException):
            writer.fence(*arguments)

    patch.setattr(source_driver, "fence", anyhow)


# -- the checks of an attempt -----------------------------------------------------------------


def no_generation_check_before_fencing(patch: Patch) -> None:
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


def no_generation_check_after_fencing(patch: Patch) -> None:
    _may_run_at(patch, 2)


def _may_run_at(patch: Patch, time: int) -> None:
    may_run, looks = Attempt.may_run, WeakKeyDictionary[Store, int]()

    def anyhow(self: Attempt) -> bool:
        looks[self.store] = looks.get(self.store, 0) + 1
        return looks[self.store] == time or may_run(self)

    patch.setattr(Attempt, "may_run", anyhow)


def newer_claims_ignored(patch: Patch) -> None:
    # The mutation lets tasks continue that start after a newer fencing round.
    reads_as(patch, COUNT, _as_planned, task)
    patch.setattr(Attempt, "owns_task", lambda self: True)


def _as_planned(count: Value) -> Value:
    return {**count, "claimed": count["planned"]}


# -- writes -------------------------------------------------------------------------------------


def offsets_committed_after_records(patch: Patch) -> None:
    _in_two_transactions(patch, are_offsets_first=False)


def offsets_committed_before_records(patch: Patch) -> None:
    _in_two_transactions(patch, are_offsets_first=True)


def _in_two_transactions(patch: Patch, *, are_offsets_first: bool) -> None:
    made = Memory.writer

    def two(self: Memory, identity: str, connector: str) -> TransactionalWriter:
        offsets = made(self, f"{identity}-offsets", connector)
        return _Two(made(self, identity, connector), offsets, are_offsets_first=are_offsets_first)

    patch.setattr(Memory, "writer", two)


class _Wrapped:
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


def open_transaction_committed(patch: Patch) -> None:
    patch.setattr(Boundaries, "at_the_end", lambda self: Decision.COMMIT)
    patch.setattr(Boundaries, "after_batch", lambda self, now: Decision.COMMIT)


# -- in a topic directory --------------------------------------------------------------------------------


def directory_entry_overwritten(patch: Patch) -> None:
    link = SimulatedDisk.link

    def anyhow(self: SimulatedDisk, existing: Path, name: Path) -> bool:
        name.unlink(missing_ok=True)
        return link(self, existing, name) or anyhow(self, existing, name)

    patch.setattr(SimulatedDisk, "link", anyhow)


def directory_ends_not_compared(patch: Patch) -> None:
    append = TransactionLog.append

    def anyhow(self: TransactionLog, entry: Entry) -> bool:
        self.refresh()
        return append(self, entry)

    patch.setattr(TransactionLog, "append", anyhow)


def directory_epochs_not_compared(patch: Patch) -> None:
    made = Directory.writer
    patch.setattr(Directory, "writer", lambda self, *names: _Undeterred(made(self, *names)))


class _Undeterred(_Wrapped):
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
    no_fencing_round,
    no_round_if_task_count_unchanged,
    no_round_after_single_task,
    no_round_before_single_task,
    round_fences_new_task_count,
    round_ignores_config_changes,
    fencing_errors_ignored,
    no_generation_check_before_fencing,
    no_generation_check_after_fencing,
    newer_claims_ignored,
    store_without_compare_and_set,
    driver_overwrites_newer_claim,
    offsets_committed_after_records,
    offsets_committed_before_records,
    open_transaction_committed,
)

IN_DIRECTORIES: Mapping[str, Plant] = plants(
    directory_entry_overwritten, directory_ends_not_compared, directory_epochs_not_compared
)
