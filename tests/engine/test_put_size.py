"""The number of records of one ``put``, and the effect of accepting only some of them."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import ClassVar

import pytest

from sinksdk import (
    ClosingReason,
    ConnectException,
    ConnectorConfig,
    DataException,
    OffsetAndMetadata,
    RetriableException,
    SinkRecords,
)
from sinksdk.engine import EngineOptions, TaskName, WorkerSinkTask
from sinksdk.engine.retry import RetryPolicy
from sinksdk.engine.task_run import ClosingRequest, SinkTaskRun
from sinksdk.model.plan import RangePlan
from sinksdk.testing import ManualClock, MemoryCommitLog, SinkTaskHarness
from tests.engine.sinks import P0, P1, Offsets, Sink, offsets_of, rows


class Partly(Sink):
    """Accepts as many records as the test sets, then raises; ``given`` has the records of each put."""

    def __init__(self, *accepted: object) -> None:
        super().__init__()
        self.accepts = list(accepted)
        self.given: list[list[int]] = []

    def put(self, records: SinkRecords) -> None:
        self.given.append(offsets_of(records))
        if self.accepts:
            count = self.accepts.pop(0)
            raise RetriableException("busy", accepted=count)
        self.taken[records.partition] += offsets_of(records)


def partly(*accepted: object, most: int | None = None, **options: object) -> SinkTaskHarness:
    """Return a sink that accepts these numbers of records in its first attempts."""
    harness = SinkTaskHarness(Partly(*accepted), options=EngineOptions(max_poll_records=most, **options))
    harness.start()
    harness.assign(P0, P1)
    return harness


def until_taken(harness: SinkTaskHarness) -> list[float]:
    """Advance the clock until nothing waits; return the waits."""
    waits = []
    while harness.worker.pending:
        waits.append(round(harness.worker.wait(), 3))
        harness.advance(harness.worker.wait())
    return waits


# -- max.poll.records --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "sizes"), [(499, [499]), (500, [500]), (501, [500, 1]), (1_700, [500] * 3 + [200])]
)
def test_put_gets_at_most_500_records(count: int, sizes: list[int]) -> None:
    # As in Kafka Connect, the number of records does not depend on how batches are read.
    harness = SinkTaskHarness(Partly)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, rows(P0, *range(count)))
    assert [len(given) for given in harness.task.given] == sizes
    assert harness.task.taken == {P0: list(range(count))}
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(count)}


def test_max_poll_records_overrides_the_task_class() -> None:
    # The limit is max.poll.records or, as in a Connect file, the consumer's key of that name; the default is
    # the connector's own value.

    def options(**config: str) -> EngineOptions:
        return EngineOptions.of(ConnectorConfig.parse({"name": "c", "topics": "t", **config}))

    assert options().max_poll_records is None
    assert options(**{"max.poll.records": "7"}).max_poll_records == 7
    assert options(**{"consumer.override.max.poll.records": "8"}).max_poll_records == 8
    harness = partly(most=2)
    harness.deliver(P0, rows(P0, 1, 2, 5))
    assert harness.task.given == [[1, 2], [5]]


def test_a_task_without_a_limit_gets_complete_batches() -> None:
    class Whole(Partly):
        max_poll_records: ClassVar[int | None] = None

    for configured, sizes in ((None, [1_200]), (1_000, [1_000, 200])):
        harness = SinkTaskHarness(Whole, options=EngineOptions(max_poll_records=configured))
        harness.start()
        harness.assign(P0)
        harness.deliver(P0, rows(P0, *range(1_200)))
        assert [len(given) for given in harness.task.given] == sizes


def test_portions_are_views_of_the_batch() -> None:
    harness = SinkTaskHarness(Partly)
    harness.start()
    harness.assign(P0)
    batch = rows(P0, *range(1_200))
    harness.deliver(P0, batch)
    read = batch.arrow.column("value").buffers()
    for call in harness.called("put"):
        buffers = call.arguments[0].arrow.column("value").buffers()
        assert [buffer.address for buffer in buffers if buffer] == [
            buffer.address for buffer in read if buffer
        ]


def test_a_retry_repeats_only_its_portion() -> None:
    harness = partly(most=2)
    harness.task.accepts = [0]
    harness.deliver(P0, rows(P0, 0, 1, 2, 3, 4))
    assert harness.task.given == [[0, 1]]
    harness.task.accepts = []
    harness.advance(0.3)
    assert harness.task.given == [[0, 1], [0, 1], [2, 3], [4]]
    assert harness.task.taken == {P0: [0, 1, 2, 3, 4]}


def test_occasional_failures_do_not_stop_progress() -> None:
    # One request in fifteen fails, so 10,000 records never succeed in one put; all of them arrive
    # nevertheless.
    harness = partly(retry=RetryPolicy(timeout=60.0))

    requests = 0
    sent: list[int] = []

    def put(records: SinkRecords) -> None:
        nonlocal requests
        for at in range(0, len(records), 50):
            requests += 1
            if requests % 15 == 0:
                raise RetriableException("503")
            sent.extend(offsets_of(records[at : at + 50]))

    harness.task.put = put
    harness.deliver(P0, rows(P0, *range(10_000)))
    until_taken(harness)
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(10_000)}
    assert len(sent) < 20_000


def test_portions_before_a_failed_one_are_committed() -> None:
    harness = partly(most=2)

    def put(records: SinkRecords) -> None:
        if records.first_offset == 4:
            raise DataException("bad")

    harness.task.put = put
    harness.deliver(P0, rows(P0, *range(9)))
    assert harness.committed == {P0: OffsetAndMetadata(4)}
    assert not harness.worker.pending
    assert harness.outcome(P0).failure.message == "bad"


def test_periodic_commits_run_between_portions() -> None:
    harness = partly(most=2)
    seen: list[Offsets] = []

    def put(records: SinkRecords) -> None:
        seen.append(dict(harness.committed))
        harness.task.context.request_commit()

    harness.task.put = put
    harness.deliver(P0, rows(P0, 0, 1, 2, 3, 4))
    assert seen == [{}, {P0: OffsetAndMetadata(2)}, {P0: OffsetAndMetadata(4)}]


def test_closing_does_not_wait_for_the_rest_of_a_batch() -> None:
    sink, log, clock = Partly(), MemoryCommitLog(), ManualClock()
    worker = WorkerSinkTask(
        sink, TaskName("c", 0), None, commits=log, clock=clock, options=EngineOptions(max_poll_records=2)
    )
    run = SinkTaskRun(
        worker,
        [RangePlan.of(P0, 0, 9)],
        [rows(P0, *range(9))],
        closing=lambda: ClosingRequest(ClosingReason.REBALANCE, 9.0) if len(sink.given) == 2 else None,
        clock=clock,
    )
    (outcome,) = run.run()
    assert sink.given == [[0, 1], [2, 3]]
    assert outcome.committed == 4
    assert clock.now() == ManualClock().now(), "nothing was waited for"


def test_progress_is_reported_between_portions() -> None:
    clock, told = ManualClock(), []
    sink = Partly()
    worker = WorkerSinkTask(
        sink,
        TaskName("c", 0),
        None,
        commits=MemoryCommitLog(),
        clock=clock,
        options=EngineOptions(max_poll_records=2),
    )
    SinkTaskRun(
        worker,
        [RangePlan.of(P0, 0, 8)],
        [rows(P0, *range(8))],
        closing=lambda: None,
        clock=clock,
        on_progress=lambda: told.append(worker.outcomes()[0].records),
    ).run()
    assert told == [6, 8, 8]


def test_each_portion_is_converted_once() -> None:
    converted: list[bytes] = []

    def converter(topic: str, data: bytes) -> str:
        converted.append(data)
        return data.decode()

    harness = partly(0, 0, most=2, value_converter=converter)
    harness.deliver(P0, rows(P0, 0, 1, 2))
    until_taken(harness)
    assert converted == [b"0", b"1", b"2"]


# -- accepted=n --------------------------------------------------------------------------------------


def test_accepted_records_are_not_put_again() -> None:
    harness = partly(2, 0, 1)
    harness.deliver(P0, rows(P0, 3, 5, 6, 9))
    until_taken(harness)
    assert harness.task.given == [[3, 5, 6, 9], [6, 9], [6, 9], [9]]
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(10)}
    assert harness.outcome(P0).records == 4


def test_accepted_records_may_be_committed_at_once() -> None:
    harness = partly(2)
    harness.deliver(P0, rows(P0, 3, 5, 6, 9))
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(6)}
    harness.revoke()
    assert harness.committed == {P0: OffsetAndMetadata(6)}


def test_progress_restarts_the_timeout_and_the_delay() -> None:
    harness = partly(0, 0, *[1] * 8, most=100, retry=RetryPolicy(timeout=1.0))
    harness.deliver(P0, rows(P0, *range(9)))
    waits = until_taken(harness)
    assert waits == [0.3, 0.6, *[0.3] * 8]
    assert harness.outcome(P0).failure is None


def test_a_completely_accepted_portion_is_not_retried() -> None:
    harness = partly(2, 1, most=2)
    harness.deliver(P0, rows(P0, 0, 1, 2))
    assert harness.task.given == [[0, 1], [2]]
    assert not harness.worker.pending
    assert harness.committed == {}
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(3)}


@pytest.mark.parametrize("accepted", [-1, 4, 1.5, "all", None])
def test_an_invalid_accepted_count_fails_the_partition(accepted: object) -> None:
    harness = partly(accepted)
    harness.deliver(P0, rows(P0, 0, 1, 2))
    failure = harness.outcome(P0).failure
    assert f"accepted={accepted!r}" in failure.message
    assert "for 3 records" in failure.message
    assert "busy" in failure.trace
    assert harness.committed == {}
    assert not harness.worker.pending
    assert harness.task.context.assignment() == {P1}


def test_accepted_records_stay_committed_after_the_retry_timeout() -> None:
    harness = partly(2, *[0] * 99, retry=RetryPolicy(timeout=1.0))
    harness.deliver(P0, rows(P0, *range(4)))
    until_taken(harness)
    assert harness.committed == {P0: OffsetAndMetadata(2)}
    assert "put of flights-0 at offset 2 failed" in harness.outcome(P0).failure.message


def test_accepted_does_not_count_unconvertible_records() -> None:
    def converter(topic: str, data: bytes) -> str:
        if data in {b"1", b"2", b"5"}:
            raise DataException("no")
        return data.decode()

    harness = partly(1, 1, value_converter=converter, tolerate_errors=True)
    harness.deliver(P0, rows(P0, *range(6)))
    assert harness.task.given == [[0, 3, 4]]
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(3)}
    until_taken(harness)
    assert harness.task.given == [[0, 3, 4], [3, 4], [4]]
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(6)}
    assert harness.worker.measures(0.0).errors.records_skipped == 3


def test_accepted_is_ignored_in_an_error_of_a_converter() -> None:
    fails: list[Exception] = [RetriableException("registry away", accepted=1)]

    def converter(topic: str, data: bytes) -> bytes:
        if fails:
            raise fails.pop()
        return data

    harness = partly(value_converter=converter)
    harness.deliver(P0, rows(P0, 0, 1))
    until_taken(harness)
    assert harness.task.taken == {P0: [0, 1]}
    assert harness.outcome(P0).records == 2


def test_a_portion_with_a_refused_record_is_not_accepted() -> None:
    class Reporting(Sink):
        def put(self, records: SinkRecords) -> None:
            reporter = self.context.errant_record_reporter()
            try:
                reporter.report(records[0], DataException("bad"))
            except ConnectException:
                raise RetriableException("busy", accepted=1) from None

    harness = SinkTaskHarness(Reporting, options=EngineOptions(log_errors=True))
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, rows(P0, 0, 1))
    assert harness.committed == {}
    assert "errors.tolerance is none" in harness.outcome(P0).failure.message


def test_a_retriable_exception_keeps_accepted_when_pickled() -> None:
    copy = pickle.loads(pickle.dumps(RetriableException("busy", retry_after=2.0, accepted=3)))  # noqa: S301 - our own
    assert (str(copy), copy.retry_after, copy.accepted) == ("busy", 2.0, 3)


def test_uncommitted_records_include_accepted_parts_of_a_batch() -> None:
    harness = partly(2, most=3)
    harness.deliver(P0, rows(P0, *range(5)))
    assert _tail(harness) == 2
    assert harness.worker.measures(0.0).active.now == 5


def _tail(harness: SinkTaskHarness) -> int:
    tails: Sequence[int] = [o.tail for o in harness.worker.outcomes() if o.partition == P0]
    return tails[0]
