"""Tables with one row per key: the last record of a key wins."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import settings

from sinksdk import DataException, SinkRecord, SinkRecords, TopicPartition
from sinksdk.task import SinkTask
from sinksdk.testing import Capabilities, Guarantee, KitError, SinkContractError, check_sink, replay
from sinksdk.testing.contract import POISON
from sinksdk.testing.machine import DEFAULTS
from tests.helpers.depth import DEPTH
from tests.helpers.tiers import extended_after
from tests.testing import keyed_zoo as zoo

pytestmark = pytest.mark.slow

MOST_STEPS = 12
FEW = settings(DEFAULTS, max_examples=10, stateful_step_count=10)


def options_of(capabilities: Capabilities, **others: Any) -> dict[str, Any]:
    return {
        "read_back": zoo.Table.read_back,
        "destination": zoo.Table,
        "alter": zoo.Table.move,
        "capabilities": capabilities,
        **others,
    }


@pytest.mark.parametrize("make_task", extended_after(1, zoo.HONEST), ids=lambda cls: cls.__name__)
def test_correct_sinks_pass(make_task: type[SinkTask]) -> None:
    cases = settings(DEFAULTS, max_examples=DEPTH.cases)
    report = check_sink(make_task, settings=cases, **options_of(zoo.HONEST[make_task]))
    assert "last write wins: each key had the value of its last record" in str(report)
    for counted in ("keys checked", "key written again", "deletions checked"):
        assert report.exercised[counted] > report.cases, counted


@pytest.mark.parametrize("make_task", extended_after(2, zoo.BROKEN), ids=lambda cls: cls.__name__)
def test_broken_keyed_sinks_fail_with_default_settings(make_task: type[SinkTask]) -> None:
    capabilities, problem = zoo.BROKEN[make_task]
    with pytest.raises(SinkContractError, match=problem) as caught:
        check_sink(make_task, **options_of(capabilities))
    assert len(caught.value.steps) <= MOST_STEPS
    with pytest.raises(SinkContractError) as again:
        replay(caught.value.steps, make_task, **options_of(capabilities))
    assert again.value.problem == caught.value.problem


TOMBSTONE_LATE: Sequence[tuple[Any, ...]] = (
    *(("deliver", 1, 2), ("fence",), ("deliver", 1, 6), ("commit",), ("zombie_deliver", 1, 1)),
)


@pytest.mark.parametrize("make_task", extended_after(1, [zoo.OverwritesNewer, zoo.ForgetsDeletions]))
def test_deleted_key_with_an_older_value_is_a_contract_error(make_task: type[SinkTask]) -> None:
    with pytest.raises(
        SinkContractError, match="key None has the value of offset 2 of records-1, but offset 5"
    ):
        replay(TOMBSTONE_LATE, make_task, **options_of(Capabilities()))
    for honest, capabilities in zoo.HONEST.items():
        replay(TOMBSTONE_LATE, honest, **options_of(capabilities))


def whole(record: SinkRecord) -> tuple[Any, Any]:
    return record.key, None if record.value is None else (record.value, record.timestamp)


class Whole(zoo.MarkingSink):
    """Writes a row of value and timestamp instead of the value alone."""

    def write(self, records: Sequence[SinkRecord]) -> None:
        super().write(records)
        for record in records:
            if record.key in self.table.rows and self.table.rows[record.key] == record.value:
                self.table.rows[record.key] = (record.value, record.timestamp)


def test_row_option_sets_the_expected_key_and_value() -> None:
    effectively = zoo.HONEST[zoo.MarkingSink]
    check_sink(Whole, settings=FEW, **options_of(effectively, row=whole))
    with pytest.raises(SinkContractError, match="which no record with it has"):
        check_sink(Whole, settings=FEW, **options_of(effectively))


def test_read_back_keys_of_another_type_are_a_kit_error() -> None:
    class Text(zoo.Table):
        def read_back(self) -> dict[Any, Any]:
            return {str(key): value for key, value in super().read_back().items()}

    with pytest.raises(
        KitError, match=r"of type str, but the keys of records are of type bytes.*let `row` return"
    ):
        check_sink(
            zoo.MarkingSink,
            settings=FEW,
            **options_of(Capabilities(), destination=Text, read_back=Text.read_back),
        )


@pytest.mark.parametrize(
    "row", [lambda record: 5, lambda record: ([], 1), lambda record: (record.key, 1 / 0)]
)
def test_row_option_must_return_a_hashable_key_and_a_value(row: Any) -> None:
    with pytest.raises(KitError, match=r"`row` raised \w+Error\(.*\) for offset 0 of records-0"):
        check_sink(zoo.MarkingSink, **options_of(Capabilities(), row=row))


def is_refused(record: SinkRecord) -> bool:
    return record.key is None or record.value == POISON


class NeedsKeys(zoo.MarkingSink):
    """Reports records without a key, and waits for their dead letters before its watermark passes them."""

    waits = True

    def open(self, partitions: Collection[TopicPartition]) -> None:
        self.context.offset({p: mark for p in partitions if (mark := self.table.marks.get(p))})

    def put(self, records: SinkRecords) -> None:
        letters = [
            self.context.errant_record_reporter().report(record, DataException("no key"))
            for record in records
            if is_refused(record)
        ]
        for letter in letters if self.waits else ():
            letter.result()
        rows = [record for record in records if not is_refused(record)]
        self.table.faults.run("destination", lambda: self.write(rows))


class DropsWithoutKey(NeedsKeys):
    """Skips records without a key silently."""

    def put(self, records: SinkRecords) -> None:
        rows = [record for record in records if not is_refused(record)]
        self.table.faults.run("destination", lambda: self.write(rows))


class WaitsForNothing(NeedsKeys):
    """Moves its watermark past a record whose dead letter may be lost."""

    waits = False


def keyed_row(record: SinkRecord) -> tuple[Any, Any] | None:
    return None if record.key is None else (record.key, record.value)


LETTERS = Capabilities(Guarantee.EFFECTIVELY_ONCE, buffers=False, dead_letters=True)


def test_record_without_a_row_must_become_a_dead_letter() -> None:
    check_sink(NeedsKeys, settings=FEW, **options_of(LETTERS, row=keyed_row))
    with pytest.raises(SinkContractError, match="is not in the dead letters"):
        check_sink(DropsWithoutKey, settings=FEW, **options_of(LETTERS, row=keyed_row))


def test_dead_letter_is_durable_only_after_its_future_was_awaited() -> None:
    steps = [("fault", "destination", 1, "crash after"), ("deliver", 0, 4), ("commit",), ("deliver", 0, 1)]
    replay(steps, NeedsKeys, **options_of(LETTERS, row=keyed_row))
    with pytest.raises(
        SinkContractError,
        match="lost: offset 2 of records-0, which cannot be delivered, is not in the dead letters",
    ):
        replay(steps, WaitsForNothing, **options_of(LETTERS, row=keyed_row))


def test_mapping_contradicts_ordered_true() -> None:
    with pytest.raises(KitError, match="do not declare ordered=True"):
        check_sink(zoo.MarkingSink, **options_of(Capabilities(ordered=True)))


@pytest.mark.extended
def test_run_without_repeated_keys_is_a_kit_error() -> None:
    def unique(partition: TopicPartition, offset: int) -> SinkRecord:
        return SinkRecord(*partition, offset, f"{partition}+{offset}".encode(), b"v")

    with pytest.raises(KitError, match="no key was written twice"):
        check_sink(zoo.MarkingSink, **options_of(Capabilities(), record=unique))


def test_read_back_that_changes_its_type_is_a_kit_error() -> None:
    def read_rows(table: zoo.Table) -> Mapping[Any, Any] | list[Any]:
        return table.rows or []

    with pytest.raises(KitError, match="records at first, and a mapping later"):
        check_sink(zoo.MarkingSink, **options_of(Capabilities(), read_back=read_rows))
