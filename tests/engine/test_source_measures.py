"""Measurements of a source task, and the source partitions that it reports."""

from __future__ import annotations

import pytest

from sinksdk import RetriableException
from sinksdk.engine.options import SourceOptions
from sinksdk.engine.source_context import LONGEST, MOST, KnownPositions
from sinksdk.model.measures import Phase, Sizes, SourceMeasures, TaskMeasures, Timing
from sinksdk.source.positions import SourcePosition
from sinksdk.source.records import SourceRecord
from tests.engine.sources import Scene, Script, lines, scene

CONNECTOR = SourceOptions("connector")


def measured(its: Scene) -> TaskMeasures:
    """Return the measurements of the task at its end."""
    return its.worker.measures(1_000.0)


def test_polls_with_records_are_counted_and_timed() -> None:
    task = Script()
    its = scene(task)

    def slowly(seconds: float, records: list[SourceRecord]) -> list[SourceRecord]:
        its.clock.advance(seconds)
        return records

    task.steps.extend(
        [lambda: slowly(2.0, lines(0, 1, 2)), lambda: slowly(7.0, []), lambda: slowly(4.0, lines(3))]
    )
    its.worker.run()
    found = measured(its)

    assert found.source.polls == Timing(2, 6.0, 4.0)
    assert (found.source.records, found.largest_batch) == (4, 3)
    assert found.seconds[Phase.POLL] == 13.0


def test_transactions_are_counted_by_their_records() -> None:
    its = scene(Script(lines(0, 1, 2), lines(3), lines(4, 5)))
    its.worker.run()

    assert measured(its).source.transactions == Sizes(3, 6, 3, 1)
    assert measured(its).commits.count == 3
    assert (its.worker.records, its.worker.transactions) == (6, 3)


def test_an_aborted_transaction_is_not_counted_as_written() -> None:
    task = Script()
    its = scene(task, options=CONNECTOR)

    def aborted() -> list[SourceRecord]:
        its.worker._context.transaction_context().abort_transaction()  # type: ignore[union-attr]  # the connector says when
        return lines(0, 1)

    task.steps.append(aborted)
    its.worker.run()

    assert measured(its).source == SourceMeasures(Timing(1), 2, Sizes(), aborts=1)
    assert its.offset() == {"line": 2}


def test_records_are_active_until_they_are_committed() -> None:
    task = Script(lines(0, 1), lines(2))
    its = scene(task, options=CONNECTOR)
    task.steps.append(lambda: seen.append(measured(its).active.now))
    task.steps.append(OSError("gone"))
    seen: list[int] = []
    its.worker.run()

    assert seen == [3]
    assert measured(its).active.largest == 3
    assert (measured(its).active.now, measured(its).active.mean) == (0, 2.5)
    assert measured(its).source.transactions.count == 0


def test_failures_and_retries_are_counted() -> None:
    task = Script(RetriableException("not yet"), lines(0), OSError("gone"))
    its = scene(task)
    failing = its.writer.commit
    faults: list[Exception] = [RetriableException("nobody answers")]

    def commit(*arguments: object) -> object:
        if faults:
            raise faults.pop()
        return failing(*arguments)  # type: ignore[arg-type]  # as they came

    its.writer.commit = commit  # type: ignore[method-assign,assignment]  # of this writer only
    its.worker.run()
    errors = measured(its).errors

    assert (errors.record_failures, errors.retries, errors.record_errors) == (2, 2, 1)
    assert errors.last == pytest.approx(1_000.0)
    assert measured(its).commit_failures == 0


def test_a_commit_that_fails_is_counted() -> None:
    task = Script(lines(0))
    its = scene(task)

    def commit(*_: object) -> object:
        message = "disk full"
        raise OSError(message)

    its.writer.commit = commit  # type: ignore[method-assign,assignment]  # of this writer only
    its.worker.run()

    assert measured(its).commit_failures == 1
    assert measured(its).source.transactions == Sizes()


# -- source partitions -------------------------------------------------------------------------------


def at(number: int, line: int = 1) -> dict[str, SourcePosition]:
    return {f"{number:03}": SourcePosition({"file": number}, {"line": line})}


def test_a_task_lists_requested_and_committed_source_offsets() -> None:
    its = scene(Script(lines(0)))
    its.worker.run()
    reader = its.worker._context.offset_storage_reader()
    reader.offsets([{"file": "a"}, {"file": "b"}])

    assert its.worker.known.listed() == [(({"file": "a"}, {"line": 1}), True)]


def test_requested_source_offsets_are_marked_as_not_committed() -> None:
    # Another task may have read the same offset, and have committed a later one. The first commit makes the
    # source partition this task's own.
    known = KnownPositions()
    known.read([{"file": 1}, {"file": 2}], [{"line": 1}, None])
    assert known.listed() == [(({"file": 1}, {"line": 1}), False)]
    known.committed({'{"file":1}': SourcePosition({"file": 1}, {"line": 5})})
    known.read([{"file": 1}], [{"line": 1}])

    assert known.listed() == [(({"file": 1}, {"line": 5}), True)]


def test_the_last_of_many_source_partitions_are_listed() -> None:
    known = KnownPositions()
    for number in range(MOST):
        known.committed(at(number))
    assert (len(known.listed()), known.has_more) == (MOST, False)
    known.committed(at(0, line=2))
    known.committed(at(MOST))

    told = {at.partition["file"]: at.offset for at, _ in known.listed()}
    assert known.has_more
    assert len(told) == MOST
    assert 1 not in told
    assert told[0] == {"line": 2}
    assert MOST in told


def test_one_transaction_may_exceed_the_listed_source_partitions() -> None:
    known = KnownPositions()
    known.committed({key: position for number in range(MOST + 5) for key, position in at(number).items()})

    assert [at.partition["file"] for at, _ in known.listed()] == list(range(5, MOST + 5))
    assert known.has_more


def test_too_long_source_positions_are_not_listed() -> None:
    known = KnownPositions()
    known.committed({"a": SourcePosition({"file": "a"}, {"line": 1})})
    known.committed({"a": SourcePosition({"file": "a"}, {"text": "x" * LONGEST})})

    assert known.listed() == []
    assert known.has_more


# -- adding ------------------------------------------------------------------------------------------


def test_sizes_are_added() -> None:
    assert Sizes() + Sizes(1, 5, 5, 5) + Sizes() == Sizes(1, 5, 5, 5)
    assert Sizes(2, 7, 4, 3) + Sizes(1, 5, 5, 5) == Sizes(3, 12, 5, 3)
    assert (Sizes().mean, Sizes(2, 7, 4, 3).mean) == (None, 3.5)


def test_measures_of_two_generations_are_added() -> None:
    one = SourceMeasures(Timing(1, 2.0, 2.0), 10, Sizes(1, 8, 8, 8), 1)
    both = TaskMeasures(source=one) + TaskMeasures(source=one)
    assert both.source == SourceMeasures(Timing(2, 4.0, 2.0), 20, Sizes(2, 16, 8, 8), 2)
