from __future__ import annotations

import logging
import pickle
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import core, settings
from hypothesis.stateful import rule

import sinksdk.testing
from sinksdk import (
    ConnectorConfig,
    DataException,
    OffsetAndMetadata,
    SinkRecord,
    SinkRecords,
    SinkTask,
    Token,
    TopicPartition,
)
from sinksdk.testing import (
    Capabilities,
    FaultKind,
    FaultPlan,
    Guarantee,
    KitError,
    MemoryDestination,
    SinkContractError,
    Trial,
    check,
    check_machine,
    check_sink,
    replay,
    sink_machine,
)
from sinksdk.testing.machine import _ROUND, DEFAULTS, explore, generating
from tests.testing import zoo

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

FEW = settings(DEFAULTS, max_examples=10, stateful_step_count=10)
read_back = MemoryDestination.read_back


class Unwatched(SinkTask):
    """Writes at once, to a list without a fault plan."""

    def __init__(self, rows: list[SinkRecord]) -> None:
        self.rows = rows

    def put(self, records: SinkRecords) -> None:
        self.rows += records


def coordinates(rows: list[SinkRecord]) -> list[tuple[str, int, int]]:
    return [(row.topic, row.partition, row.offset) for row in rows]


# -- reports -------------------------------------------------------------------------------------


def test_report_lists_the_checked_promises(capsys: pytest.CaptureFixture[str]) -> None:
    report = check_sink(
        zoo.TwoPhaseSink,
        read_back=read_back,
        capabilities=Capabilities(Guarantee.EXACTLY_ONCE, ordered=True),
        settings=FEW,
    )
    assert report.guarantee is Guarantee.EXACTLY_ONCE
    assert report.cases >= 10
    text = str(report)
    assert "exactly once: nothing was lost, nothing was seen twice or before its commit" in text
    assert "ordered: each partition was read back in the order of its offsets" in text
    assert f"{report.exercised['deliver']:>9,}  deliver" in text
    assert capsys.readouterr().out == f"{text}\n"


def test_every_fault_happens_with_default_settings() -> None:
    report = check_sink(zoo.RangeSink, read_back=read_back, capabilities=EFFECTIVELY)
    kinds = {what: count for what, count in report.exercised.items() if ": " in what}
    assert len(kinds) == 6 + 5 + 2 + 3
    assert min(kinds.values()) >= report.cases // 100
    assert report.exercised["zombie_close"] > 0


EFFECTIVELY = Capabilities(Guarantee.EFFECTIVELY_ONCE)


@pytest.mark.extended
def test_transforms_can_be_disabled() -> None:
    report = check_sink(zoo.KeysByOffset, read_back=read_back, capabilities=EFFECTIVELY, transforms=False)
    assert not [what for what in report.exercised if what.startswith("transform")]


@pytest.mark.extended
def test_next_owner_publishes_and_discards_in_some_cases() -> None:
    exactly = Capabilities(Guarantee.EXACTLY_ONCE)
    report = check_sink(zoo.TwoPhaseSink, read_back=read_back, capabilities=exactly)
    assert report.exercised["published by the next owner"] >= report.cases // 10
    assert report.exercised["discarded by the next owner"] >= report.cases // 10
    assert report.exercised["task: crash before"] > 0


@pytest.mark.extended
def test_fault_in_fewer_than_one_percent_of_cases_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(check.POSSIBLE, "moon", (FaultKind.SLOW,))
    with pytest.raises(
        KitError, match=r"these faults happened in fewer than 1 % of the \d+ cases: moon: slow;"
    ):
        check_sink(zoo.RangeSink, read_back=read_back, capabilities=EFFECTIVELY)


def test_report_names_a_destination_that_ignores_its_fault_plan() -> None:
    report = check_sink(Unwatched, read_back=coordinates, destination=lambda faults: [], settings=FEW)
    assert "the destination does not use its fault plan" in str(report)


def test_stronger_guarantee_than_at_least_once_requires_a_fault_plan() -> None:
    """A destination without a fault plan would let a sink pass that repeats a write after a lost response."""
    with pytest.raises(KitError, match=r"never used its fault plan.*cannot check 'effectively once'"):
        check_sink(
            Unwatched,
            read_back=coordinates,
            destination=lambda faults: [],
            capabilities=EFFECTIVELY,
            settings=FEW,
        )


def bare(faults: FaultPlan) -> MemoryDestination:
    destination = MemoryDestination(faults)
    destination.leftovers = None  # type: ignore[assignment,method-assign]  # it has none
    return destination


def test_report_names_unchecked_leftovers() -> None:
    exactly = Capabilities(Guarantee.EXACTLY_ONCE)
    unseen = check_sink(
        zoo.DiscardsNothing, read_back=read_back, destination=bare, capabilities=exactly, settings=FEW
    )
    assert "not checked: leftovers" in str(unseen)
    seen = check_sink(
        zoo.TwoPhaseSink,
        read_back=read_back,
        destination=bare,
        leftovers=lambda destination: [name for name, rows in destination.staged.items() if rows],
        capabilities=exactly,
        settings=FEW,
    )
    assert "not checked" not in str(seen)


@pytest.mark.extended
def test_two_runs_have_the_same_counts() -> None:
    first, second = (
        check_sink(zoo.BufferingSink, read_back=read_back, settings=FEW).exercised for _ in range(2)
    )
    assert first == second


def test_logging_is_enabled_again_after_a_failed_check() -> None:
    with pytest.raises(SinkContractError):
        check_sink(zoo.AcknowledgesEarly, read_back=read_back, settings=FEW)
    assert logging.root.manager.disable == logging.NOTSET


# -- misuse of the kit ------------------------------------------------------------------------


def test_read_back_that_returns_nothing_is_a_kit_error() -> None:
    with pytest.raises(
        KitError, match="read_back returned nothing although records were put and committed without a fault"
    ) as caught:
        check_sink(zoo.RangeSink, read_back=lambda _: [])
    assert "committed offsets: {'records-0': 3}" in str(caught.value)
    assert "on close" not in str(caught.value)


def test_kit_error_for_a_sink_that_writes_nothing_has_its_exception() -> None:
    class Wrong(SinkTask):
        def put(self, records: SinkRecords) -> None:
            raise TypeError("no such table")

    with pytest.raises(KitError, match=r"put raises TypeError: no such table"):
        check_sink(lambda _: Wrong(), read_back=read_back)


class Typed(ConnectorConfig):
    pass


def typed(**keys: str) -> Typed:
    schema = {"value.converter": "json", "value.converter.schema": "sensor STRING NOT NULL"}
    return Typed.parse({"name": "typed", "topics": "records"} | schema | keys)


def sensed(partition: TopicPartition, offset: int) -> SinkRecord:
    value = b'{"sensor": "s"}' if offset % 3 else b"{}"
    return SinkRecord(partition.topic, partition.partition, offset, b"k", value)


def test_a_run_without_written_values_is_a_kit_error() -> None:
    """A configured schema that no default record fits would let every sink pass that tolerates bad records."""
    with pytest.raises(
        KitError,
        match=r"the sink wrote no record with a value: 3 became dead letters, the first one with .*DataException: .*sensor.*let `record`",
    ):
        check_sink(
            zoo.BufferingSink,
            read_back=lambda d: [row[:3] for row in d.read_back()],
            config=typed(),
            capabilities=Capabilities(dead_letters=True),
        )


def test_values_rejected_by_the_converter_are_a_kit_error() -> None:
    with pytest.raises(
        KitError, match=r"the sink wrote no record with a value: no task received it, because a conv"
    ):
        check_sink(
            zoo.BufferingSink,
            read_back=lambda d: [row[:3] for row in d.read_back()],
            config=typed(**{"errors.tolerance": "all"}),
        )


def test_loss_names_a_value_rejected_by_the_converter() -> None:
    with pytest.raises(
        SinkContractError,
        match=r"not at the destination, although .*; no task received it, because a converter",
    ):
        check_sink(
            zoo.BufferingSink,
            read_back=lambda d: [row[:3] for row in d.read_back()],
            config=typed(**{"errors.tolerance": "all"}),
            record=sensed,
        )


class ForgetsOnClose(SinkTask):
    """Stages records, and returns no tokens from its closing commit."""

    def __init__(self, destination: MemoryDestination) -> None:
        self.destination = destination

    def put(self, records: SinkRecords) -> None:
        name = self.destination.begin()
        self.context.prepared({records.partition: [Token(name)]})
        self.destination.fill(name, records)

    def pre_commit(self, offsets: Any) -> Any:
        return offsets if self.context.is_closing() else {}

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        for token in tokens:
            self.destination.discard(token.id)


def test_kit_error_names_the_offsets_committed_on_close_but_not_published() -> None:
    with pytest.raises(
        KitError,
        match=r"the sink does not write or publish the records that it commits \(on close, pre_commit returned records-0 up to 3 and "
        r"records-1 up to 2\), or read_back .* let pre_commit return them with the offset",
    ):
        check_sink(ForgetsOnClose, read_back=read_back, capabilities=Capabilities(Guarantee.EXACTLY_ONCE))


class KeepsFive(zoo.BufferingSink):
    """Would commit only more records than the kit ever puts, so it commits none, also on close."""

    def pre_commit(self, offsets: Any) -> Any:
        return {}


@pytest.mark.parametrize("promise", [Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE])
def test_closing_commit_that_covers_no_record_is_a_contract_error(promise: Guarantee) -> None:
    with pytest.raises(
        SinkContractError,
        match=r"the committed offset of records-0 is 0, but its last.*return their offsets while",
    ):
        check_sink(KeepsFive, read_back=read_back, capabilities=Capabilities(promise))


def test_sink_that_never_commits_is_a_kit_error_without_commits_on_close() -> None:
    with pytest.raises(KitError, match="the sink committed no record, not even on close"):
        check_sink(KeepsFive, read_back=read_back, capabilities=Capabilities(commits_on_close=False))


def test_traceback_of_a_failing_test_has_no_frames_of_the_kit(tmp_path: Path) -> None:
    lines = [
        "from sinksdk.testing import MemoryDestination, check_sink",
        "from tests.testing.zoo import RangeSink",
        "def test_read_back():",
        "    check_sink(RangeSink, read_back=lambda _: [])",
        "def test_loss():",
        "    from tests.testing.zoo import DropsTheTail",
        "    check_sink(DropsTheTail, read_back=MemoryDestination.read_back)",
    ]
    (tmp_path / "test_it.py").write_text("\n".join(lines))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", str(tmp_path / "test_it.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "2 failed" in done.stdout, done.stdout
    assert not re.findall(r"^\S*sinksdk/testing/\w+\.py:\d+", done.stdout, re.MULTILINE)


class Picky(SinkTask):
    """Reports bad records and writes the rest."""

    def __init__(self, destination: MemoryDestination) -> None:
        self.destination = destination

    def put(self, records: SinkRecords) -> None:
        for number, record in enumerate(records):
            if record.value is None or record.value.startswith(b"bad"):
                self.context.errant_record_reporter().report(record, DataException("it has no name"))
            else:
                self.destination.append("all", records[number : number + 1])


def test_kit_error_for_a_sink_that_reports_every_record_has_its_exception() -> None:
    with pytest.raises(
        KitError,
        match=r"the sink reported 5 of 5 records as bad, the first one with .*DataException: it has no name",
    ):
        check_sink(
            Picky,
            read_back=read_back,
            record=lambda partition, offset: SinkRecord(*partition, offset, value=None),
            capabilities=Capabilities(dead_letters=True),
        )


def test_poison_may_be_several_values() -> None:
    seen = set()

    class Counting(Picky):
        def put(self, records: SinkRecords) -> None:
            seen.update(record.value for record in records)
            super().put(records)

    check_sink(
        Counting,
        read_back=read_back,
        record=lambda partition, offset: SinkRecord(*partition, offset, value=b"good"),
        poison=[b"bad one", b"bad two"],
        capabilities=Capabilities(dead_letters=True),
        settings=settings(DEFAULTS, max_examples=20),
    )
    assert seen == {b"good", b"bad one", b"bad two"}


def test_errors_tolerance_none_contradicts_dead_letters() -> None:
    config = ConnectorConfig.parse({"name": "c", "topics": "t", "errors.tolerance": "none"})
    with pytest.raises(KitError, match=r"errors.tolerance=none contradicts dead_letters=True"):
        check_sink(Picky, read_back=read_back, config=config, capabilities=Capabilities(dead_letters=True))


def test_kit_error_names_prepared_tokens_that_no_commit_contains() -> None:
    class Forgetful(zoo.TwoPhaseSink):
        def pre_commit(self, offsets: Mapping[TopicPartition, Any]) -> Mapping[TopicPartition, Any]:
            super().pre_commit(offsets)
            return offsets

    with pytest.raises(
        KitError, match=r"No commit contains the tokens that the sink prepared: let pre_commit return them"
    ):
        check_sink(Forgetful, read_back=read_back, capabilities=Capabilities(Guarantee.EXACTLY_ONCE))


def test_destination_with_records_of_an_earlier_case_is_a_kit_error() -> None:
    shared = MemoryDestination()
    shared.write("old", [SinkRecord("t", 0, 0)])
    with pytest.raises(KitError, match="before anything was written"):
        check_sink(zoo.RangeSink, read_back=read_back, destination=lambda faults: shared)


def test_read_back_row_without_an_offset_is_a_kit_error() -> None:
    with pytest.raises(
        KitError, match=r"read_back returned 'records', not|read_back returned \('records',\)"
    ):
        check_sink(zoo.RangeSink, read_back=lambda d: [(row[0],) for row in d.read_back()])


def test_read_back_that_raises_is_a_kit_error() -> None:
    def fails(destination: MemoryDestination) -> list[Any]:
        if destination.visible:
            raise FileNotFoundError("part-0.tmp")
        return []

    with pytest.raises(KitError, match=r"read_back raised FileNotFoundError\('part-0.tmp'\)"):
        check_sink(zoo.RangeSink, read_back=fails)


def test_sink_with_its_own_watermark_is_effectively_once() -> None:
    report = check_sink(
        zoo.WatermarkSink,
        read_back=read_back,
        capabilities=EFFECTIVELY,
        alter=zoo.move_mark,
        settings=FEW,
    )
    assert report.exercised["duplicates seen"] == 0


def test_contract_error_is_reported_although_the_destination_is_cleaned_up() -> None:
    class Place(MemoryDestination):
        is_gone = False

    def read_until_cleaned_up(destination: Place) -> list[Any]:
        if destination.is_gone:
            raise FileNotFoundError("the temporary folder")
        return destination.read_back()

    def clean_up(destination: Place) -> None:
        destination.is_gone = True

    with pytest.raises(SinkContractError, match="after the closing commit the committed offset of records-"):
        check_sink(zoo.DropsTheTail, read_back=read_until_cleaned_up, destination=Place, clean_up=clean_up)


def test_contract_error_before_the_first_write_is_not_blamed_on_read_back() -> None:
    class CommitsUnopenedPartitions(zoo.BufferingSink):
        def pre_commit(self, offsets: Any) -> Any:
            return {TopicPartition("strangers", 0): next(iter(offsets.values()))}

    with pytest.raises(SinkContractError, match="strangers-0"):
        check_sink(CommitsUnopenedPartitions, read_back=read_back)


def test_task_that_cannot_start_is_a_kit_error() -> None:
    class Configured(zoo.RangeSink):
        def start(self, config: Any) -> None:
            self.table = config.table

    with pytest.raises(KitError, match="start failed although no fault was injected: AttributeError"):
        check_sink(Configured, read_back=read_back)


def test_unknown_step_is_a_kit_error() -> None:
    with pytest.raises(KitError, match="there is no step 'comit'; the steps are alter, commit, crash"):
        replay([("comit",)], zoo.RangeSink, read_back=read_back)


# -- options ------------------------------------------------------------------------


def test_config_may_be_a_function_of_the_destination() -> None:
    seen = []

    class Configured(zoo.RangeSink):
        def start(self, config: ConnectorConfig) -> None:
            seen.append(config.name)

        def put(self, records: SinkRecords) -> None:
            assert records[0].value is None or records[0].value["partition"] in (0, 1)  # JSON, as configured
            super().put(records)

    check_sink(
        Configured,
        read_back=lambda d: (row[:3] for row in d.read_back()),
        config=lambda _: ConnectorConfig.parse(
            {"name": "configured", "topics": "records", "value.converter": "json"}
        ),
        capabilities=EFFECTIVELY,
        settings=FEW,
    )
    assert set(seen) == {"configured"}


def test_partitions_and_records_can_be_set() -> None:
    partitions = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 7)]
    values = set()

    class Reading(zoo.RangeSink):
        def put(self, records: SinkRecords) -> None:
            values.update(record.value for record in records)
            super().put(records)

    check_sink(
        Reading,
        read_back=read_back,
        partitions=partitions,
        record=lambda partition, offset: SinkRecord(*partition, offset, value=f"{partition}".encode()),
        capabilities=EFFECTIVELY,
        settings=FEW,
    )
    assert values == {b"a-0", b"a-1", b"b-7"}


def test_buffering_sink_must_not_declare_buffers_false() -> None:
    with pytest.raises(SinkContractError, match=r"did not cover all records of records-[01]"):
        check_sink(zoo.BufferingSink, read_back=read_back, capabilities=Capabilities(buffers=False))
    check_sink(
        zoo.RangeSink,
        read_back=read_back,
        capabilities=Capabilities(Guarantee.EFFECTIVELY_ONCE, buffers=False),
        settings=FEW,
    )


def test_sink_may_keep_its_tail_without_commits_on_close() -> None:
    check_sink(
        zoo.DropsTheTail, read_back=read_back, capabilities=Capabilities(commits_on_close=False), settings=FEW
    )


def test_order_is_checked_only_if_declared() -> None:
    class Reversing(zoo.TwoPhaseSink):
        def put(self, records: SinkRecords) -> None:
            super().put(records)
            self.waiting[records.partition].reverse()

    once = Capabilities(Guarantee.EXACTLY_ONCE)
    check_sink(Reversing, read_back=read_back, capabilities=once, settings=FEW)
    with pytest.raises(
        SinkContractError, match=r"returned offsets 1, 0 of .* in this order, although ordered=True"
    ):
        check_sink(Reversing, read_back=read_back, capabilities=Capabilities(once.guarantee, ordered=True))


def test_values_are_compared_if_read_back_returns_them() -> None:
    class Mistaken(zoo.RangeSink):
        def write(self, name: str, rows: Sequence[SinkRecord]) -> None:
            super().write(
                name, [SinkRecord(row.topic, row.partition, row.offset, value=b"?") for row in rows]
            )

    with pytest.raises(
        SinkContractError, match=r"with the value b'\?', but the value of the record that was put is"
    ):
        check_sink(Mistaken, read_back=read_back, capabilities=EFFECTIVELY)


@pytest.mark.parametrize(
    ("result_of", "problem"),
    [
        (lambda offsets: None, "pre_commit returned None, not a mapping"),
        (
            lambda offsets: {p: OffsetAndMetadata(o.offset + 1) for p, o in offsets.items()},
            "beyond the last delivered record",
        ),
        (lambda offsets: {TopicPartition("x", 0): OffsetAndMetadata(1)}, "which is not part of this commit"),
    ],
)
def test_invalid_results_of_pre_commit_are_contract_errors(result_of: Any, problem: str) -> None:
    class Answering(zoo.RangeSink):
        def pre_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Any:
            return result_of(offsets)

    with pytest.raises(SinkContractError, match=problem):
        check_sink(Answering, read_back=read_back, capabilities=EFFECTIVELY)


def test_every_destination_is_cleaned_up_once() -> None:
    made: list[MemoryDestination] = []
    cleaned: list[MemoryDestination] = []

    def make(faults: FaultPlan) -> MemoryDestination:
        made.append(MemoryDestination(faults))
        return made[-1]

    with pytest.raises(SinkContractError):
        check_sink(zoo.AcknowledgesEarly, read_back=read_back, destination=make, clean_up=cleaned.append)
    assert len(made) > 1
    assert list(map(id, made)) == list(map(id, cleaned))


# -- failures ------------------------------------------------------------------------------------------


def test_contract_error_has_the_problem_the_story_and_the_replay() -> None:
    steps = [("fault", "destination", 0, "retriable error"), ("deliver", 0, 1), ("tick", 1), ("commit",)]
    with pytest.raises(SinkContractError) as caught:
        replay(steps, zoo.DropsOnRetry, read_back=read_back, capabilities=EFFECTIVELY)
    assert str(caught.value).splitlines() == [
        "lost: offset 0 of records-0 is not at the destination, although the committed offset is 1",
        "",
        "What happened:",
        "  1. fault at the next operation of the destination: retriable error",
        "  2. 1 record of records-0 is put; put raises RetriableException: destination: busy (injected)",
        "  3. 1 s pass",
        "  4. a periodic commit",
        "",
        "To replay it:",
        f"    replay([{', '.join(map(repr, steps))}], …)",
    ]


class CannotDiscard(zoo.TwoPhaseSink):
    """A sink whose discard always fails."""

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        raise DataException("no such right")


@pytest.mark.parametrize("count", [1, 3])
def test_token_that_cannot_be_discarded_is_a_contract_error(count: int) -> None:
    steps = [("deliver", 0, count), ("fault", "commit log", 0, "crash before"), ("commit",), ("crash",)]
    with pytest.raises(SinkContractError) as caught:
        replay(steps, CannotDiscard, read_back=read_back, capabilities=Capabilities(Guarantee.EXACTLY_ONCE))
    assert caught.value.problem == (
        "discard of records-0 failed although no fault was injected, so staged-0 stays prepared for ever: "
        "DataException: no such right; discard must return without an error when there is nothing to remove"
    )


def test_discard_may_fail_while_faults_are_injected() -> None:
    steps = [
        *(("deliver", 0, 3), ("crash",), ("fault", "destination", 0, "permanent error"), ("deliver", 0, 3)),
        *(("commit",), ("deliver", 1, 1)),
    ]
    replay(steps, zoo.TwoPhaseSink, read_back=read_back, capabilities=Capabilities(Guarantee.EXACTLY_ONCE))


def test_tokens_prepared_by_the_last_owner_are_discarded_by_another_task() -> None:
    class FillsAtOnce(zoo.TwoPhaseSink):
        def put(self, records: SinkRecords) -> None:
            super().put(records)
            self.destination.fill(self.uploads[records.partition].id, self.waiting[records.partition])

        def pre_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Any:
            return {}

    replay(
        [("deliver", 0, 1)],
        FillsAtOnce,
        read_back=read_back,
        capabilities=Capabilities(Guarantee.EXACTLY_ONCE, commits_on_close=False),
    )


def test_contract_error_can_be_pickled() -> None:
    failure = SinkContractError("lost", ["a commit"], [("commit",)])
    copy = pickle.loads(pickle.dumps(failure))  # noqa: S301 - our own
    assert (str(copy), copy.steps) == (str(failure), failure.steps)


# -- rules of one's own --------------------------------------------------------------------------------


def vacuum(trial: Trial[MemoryDestination]) -> None:
    trial.destination.visible.clear()


def test_own_steps_are_part_of_the_story_and_the_replay() -> None:
    machine = sink_machine(
        zoo.RangeSink, read_back=read_back, capabilities=EFFECTIVELY, steps={"vacuum": vacuum}
    )

    class Machine(machine):  # type: ignore[misc,valid-type]  # made at run time
        @rule()
        def vacuum(self) -> None:
            self.step("vacuum")

    with pytest.raises(SinkContractError) as caught:
        check_machine(Machine)
    assert ("vacuum",) in caught.value.steps
    assert len(caught.value.steps) <= 4
    with pytest.raises(SinkContractError, match=re.escape(caught.value.problem)):
        replay(
            caught.value.steps,
            zoo.RangeSink,
            read_back=read_back,
            capabilities=EFFECTIVELY,
            steps={"vacuum": vacuum},
        )


def test_hypothesis_seed_does_not_repeat_cases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(core, "global_force_seed", 7)
    tried: list[str] = []

    class Machine(sink_machine(zoo.RangeSink, read_back=read_back)):  # type: ignore[misc] # made at run time
        def teardown(self) -> None:
            tried.append(repr(self.trial.steps))
            super().teardown()

    explore(Machine, generating(settings(FEW, max_examples=4 * _ROUND, derandomize=False)))
    assert len(tried) >= 4 * _ROUND
    assert len(set(tried)) > 2 * _ROUND


def test_sink_machine_has_a_hypothesis_test_case() -> None:
    machine = sink_machine(zoo.AcknowledgesEarly, read_back=read_back)
    machine.TestCase.settings = settings(FEW, max_examples=40)
    with pytest.raises(SinkContractError, match=r"lost: offsets? .* of (records|others)-"):
        machine.TestCase("runTest").runTest()


def test_replay_works_without_hypothesis() -> None:
    code = """
import sys
sys.modules["hypothesis"] = None
from sinksdk.testing import MemoryDestination, replay
from tests.testing.zoo import RangeSink
replay([("deliver", 0, 2), ("rebalance",)], RangeSink, read_back=MemoryDestination.read_back)
print("fine")
"""
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert ran.stdout == "fine\n"


def test_unknown_name_of_the_kit_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'sinksdk\.testing' has no attribute 'check_sunk'"):
        _ = sinksdk.testing.check_sunk


def test_sink_that_does_not_fence_zombies_runs_without_zombies() -> None:
    promise = Capabilities(Guarantee.EFFECTIVELY_ONCE, fences_zombies=False)
    report = check_sink(
        zoo.WatermarkSink,
        read_back=MemoryDestination.read_back,
        capabilities=promise,
        alter=zoo.move_mark,
        settings=settings(DEFAULTS, max_examples=20),
    )
    shown = str(report)
    assert "effectively once, unless a replaced task continues to write: nothing was lost" in shown
    assert "not checked: zombies, because fences_zombies=False is declared" in shown
    assert not any("zombie" in step or step in ("fence", "freeze") for step in report.exercised)
