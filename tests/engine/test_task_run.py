"""SinkTaskRun: one task from start to stop, its ranges in turn, close requests between batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest

from sinksdk import (
    ClosingReason,
    ConnectException,
    FencedException,
    OffsetAndMetadata,
    OffsetRange,
    RetriableException,
    SinkRecords,
    TopicPartition,
)
from sinksdk.engine import TaskName, WorkerSinkTask
from sinksdk.engine.task_run import ClosingRequest, SinkTaskRun, Unread
from sinksdk.errors import OffsetOutOfRangeException
from sinksdk.model.plan import RangePlan
from sinksdk.testing import ManualClock, MemoryCommitLog
from tests.engine.sinks import P0, P1, P2, BufferingSink, Offsets, Sink, TwoPhaseSink, rows

REBALANCE = ClosingRequest(ClosingReason.REBALANCE, 30.0)
RANGE = OffsetRange(0, 10)


class Run:
    """A task, its commit log and its clock, run over batches; ``calls`` are the calls of the sink."""

    def __init__(self, sink: Sink, committed: dict[TopicPartition, int] | None = None) -> None:
        self.sink = sink
        self.clock = ManualClock()
        self.log = MemoryCommitLog({p: OffsetAndMetadata(offset) for p, offset in (committed or {}).items()})
        self.calls: list[str] = []
        for name in ("initialize", "start", "open", "put", "pre_commit", "publish", "close", "stop"):
            self._record(name)
        self.worker = WorkerSinkTask(
            sink, TaskName("archive", 3), None, commits=self.log, clock=self.clock, generation=7
        )

    def _record(self, name: str) -> None:
        method = getattr(self.sink, name)

        def recorded(*arguments: object) -> object:
            self.calls.append(name)
            return method(*arguments)

        setattr(self.sink, name, recorded)

    def over(
        self,
        batches: Iterable[SinkRecords | Unread | None],
        *assigned: RangePlan,
        closing: Callable[[], ClosingRequest | None] = lambda: None,
        on_progress: Callable[[], None] = lambda: None,
    ) -> dict[TopicPartition, object]:
        ranges = assigned or (RangePlan.of(P0, *RANGE), RangePlan.of(P1, *RANGE))
        run = SinkTaskRun(
            self.worker, ranges, batches, closing=closing, clock=self.clock, on_progress=on_progress
        )
        return {outcome.partition: outcome for outcome in run.run()}

    @property
    def committed(self) -> dict[TopicPartition, int]:
        return {p: offset.offset for p, offset in self.log.offsets.items()}


def after(looks: int, request: ClosingRequest = REBALANCE) -> Callable[[], ClosingRequest | None]:
    """Request closing after the given number of polls."""
    left = iter([None] * looks)
    return lambda: next(left, request)


# -- the whole life ----------------------------------------------------------------------------------


def test_a_run_calls_the_hooks_in_order() -> None:
    run = Run(Sink())
    outcomes = run.over([rows(P0, 0, 1), rows(P0, 5), rows(P1, 3)])
    assert run.calls == [
        *("initialize", "start", "open"),
        *("put", "put", "pre_commit", "close"),
        *("put", "pre_commit", "close"),
        "stop",
    ]
    assert run.committed == {P0: 10, P1: 10}
    assert [(o.committed, o.records, o.tail, o.failure) for o in outcomes.values()] == [
        (10, 3, 0, None),
        (10, 1, 0, None),
    ]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OffsetOutOfRangeException("retention was faster"), [ClosingReason.FAILURE]),
        (RetriableException("no broker answers"), [None]),
    ],
)
def test_an_unreadable_range_does_not_stop_the_others(
    error: ConnectException, reason: list[ClosingReason | None]
) -> None:
    seen: list[ClosingReason | None] = []

    class Watching(Sink):
        def pre_commit(self, offsets: Offsets) -> Offsets:
            seen.append(self.context.closing_reason() if self.context.is_closing() else None)
            return super().pre_commit(offsets)

    run = Run(Watching())

    outcomes = run.over([rows(P0, 0, 1), Unread(P0, error), rows(P1, 3)])

    assert run.committed == {P0: 2, P1: 10}
    assert run.sink.taken == {P0: [0, 1], P1: [3]}
    assert seen == [*reason, None]
    failure = outcomes[P0].failure
    assert failure.kind == type(error).__name__
    assert outcomes[P1].failure is None


def test_a_failed_partition_keeps_its_first_failure() -> None:
    run = Run(Sink())
    run.sink.faults["put"].append(ConnectException("no"))

    outcomes = run.over([rows(P0, 0), Unread(P0, ConnectException("retention was faster")), rows(P1, 3)])

    assert outcomes[P0].failure.message == "no"
    assert run.committed == {P1: 10}
    assert run.calls.count("close") == 2


def test_an_unreadable_range_fails_with_its_error() -> None:
    run = Run(Sink())

    outcomes = run.over([Unread(P1, ConnectException("access is denied")), rows(P0, 0)])

    assert run.committed == {P0: 10}
    assert outcomes[P1].failure.message == "access is denied"


def test_ranges_without_records_are_committed_to_their_end() -> None:
    run = Run(Sink())
    run.over([None, rows(P1, 3), None], *(RangePlan.of(p, *RANGE) for p in (P0, P1, P2)))
    assert run.committed == {P0: 10, P1: 10, P2: 10}
    assert run.sink.taken == {P1: [3]}


def test_is_closing_is_true_only_at_the_end_of_due_ranges() -> None:
    run = Run(BufferingSink())
    outcomes = run.over(
        [rows(P0, 0, 1), rows(P1, 0, 1)], RangePlan.of(P0, *RANGE, due=True), RangePlan.of(P1, *RANGE)
    )
    assert run.committed == {P0: 10}
    assert run.sink.files == [(P0, [0, 1])]
    assert (outcomes[P1].committed, outcomes[P1].tail) == (None, 2)


def test_a_range_ends_after_its_limit_of_records() -> None:
    run = Run(BufferingSink())
    sink_rows = [rows(P0, 0, 2), rows(P0, 4, 6, 7), rows(P0, 8), rows(P1, 0, 2, 4, 5)]
    outcomes = run.over(
        sink_rows,
        RangePlan.of(P0, *RANGE, due=True, records=4),
        RangePlan.of(P1, *RANGE, due=True, records=4),
    )
    assert run.sink.taken == {P0: [0, 2, 4, 6], P1: [0, 2, 4, 5]}
    assert [(o.position, o.read_from, o.read_to, o.records, o.tail) for o in outcomes.values()] == [
        (7, 0, 7, 4, 1),
        (10, 0, 10, 4, 0),
    ]
    assert run.committed == {P0: 5, P1: 10}, "only the end of a range that holds no more is closing"


def test_a_limited_range_reads_no_further_than_it_must() -> None:
    run, taken = Run(Sink()), []

    def input_rows() -> Iterator[SinkRecords | None]:
        for offset in range(0, 10, 2):
            taken.append(offset)
            yield rows(P0, offset, offset + 1)

    run.over(input_rows(), RangePlan.of(P0, *RANGE, records=3))
    assert run.committed == {P0: 3}
    assert taken == [0, 2]


def test_published_marks_are_durable_at_the_end() -> None:
    # The run ends with a write of the marks of published tokens: without them the next task would publish
    # again.
    run = Run(TwoPhaseSink())
    run.over([rows(P0, 0), rows(P1, 0)])
    assert run.log.offsets == {P0: OffsetAndMetadata(10), P1: OffsetAndMetadata(10)}


def test_progress_is_reported_between_batches() -> None:
    run, positions = Run(Sink()), []
    run.over(
        [rows(P0, 0), None, rows(P0, 1)],
        RangePlan.of(P0, *RANGE),
        on_progress=lambda: positions.append(run.worker.outcomes()[0].position),
    )
    assert positions == [1, 1, 2]


def test_periodic_commits_run_without_new_records() -> None:
    run = Run(Sink())
    seen = []

    def silent() -> Iterator[SinkRecords | None]:
        yield rows(P0, 0)
        run.clock.advance(61)
        yield None
        seen.append(run.committed)

    run.over(silent(), RangePlan.of(P0, *RANGE))
    assert seen == [{P0: 1}]


# -- closing -----------------------------------------------------------------------------------------


def test_partitions_are_not_opened_after_a_close_request() -> None:
    run = Run(Sink())
    assert run.over([rows(P0, 0)], closing=lambda: REBALANCE) == {}
    assert run.calls == []


def test_a_close_request_is_seen_between_batches() -> None:
    seen = []

    class Asking(BufferingSink):
        def pre_commit(self, offsets: Offsets) -> Offsets:
            seen.append((self.context.is_closing(), self.context.closing_reason(), self.context.deadline()))
            return super().pre_commit(offsets)

    run = Run(Asking())
    outcomes = run.over([rows(P0, 0, 1), rows(P0, 2, 3), rows(P0, 4)], closing=after(3))
    assert seen == [(True, ClosingReason.REBALANCE, 30.0)]
    assert run.committed == {P0: 4}
    assert run.calls[-3:] == ["pre_commit", "close", "stop"]
    assert (outcomes[P0].position, outcomes[P0].tail) == (4, 0)
    assert outcomes[P1].committed is None


def test_a_batch_read_before_the_close_request_was_seen_is_read_again() -> None:
    first = Run(Sink())
    first.over([rows(P0, 0), rows(P0, 1), rows(P0, 2)], closing=after(2))
    assert first.sink.taken == {P0: [0]}
    assert first.committed == {P0: 1}
    second = Run(Sink(), committed=first.committed)
    second.over([rows(P0, 0, 1, 2)])
    assert second.sink.taken == {P0: [1, 2]}


def test_a_close_request_is_seen_without_new_records() -> None:
    run = Run(BufferingSink())
    run.over([rows(P0, 0), None, None, None, rows(P0, 1)], closing=after(3))
    assert run.committed == {P0: 1}


def test_a_close_request_is_seen_at_the_end_of_the_input() -> None:
    run = Run(BufferingSink())
    run.over([rows(P0, 0)], RangePlan.of(P0, *RANGE), closing=after(2))
    assert run.sink.files == [(P0, [0])]


def test_a_close_request_is_seen_while_a_batch_waits_for_a_retry() -> None:
    run = Run(Sink())
    run.sink.faults["put"].extend([None, *[RetriableException("busy")] * 99])
    run.over([rows(P0, 0), rows(P0, 1)], closing=after(6))
    assert run.committed == {P0: 1}
    assert run.clock.now() < 1_010


def test_a_waiting_batch_is_put_before_further_records_are_read() -> None:
    run = Run(Sink())
    run.sink.faults["put"].extend([RetriableException("busy")] * 3)
    run.over([rows(P0, 0), rows(P0, 1), rows(P1, 0)])
    assert run.sink.taken == {P0: [0, 1], P1: [0]}
    assert run.clock.now() == pytest.approx(1_000 + 0.3 + 0.6 + 1.2, abs=0.5)
    assert run.committed == {P0: 10, P1: 10}


# -- failures ----------------------------------------------------------------------------------------


def test_the_records_of_a_failed_partition_are_skipped() -> None:
    run = Run(Sink())
    run.sink.faults["put"].extend([None, ConnectException("no")])
    outcomes = run.over([rows(P0, 0), rows(P0, 1), rows(P0, 2), rows(P1, 0)])
    assert run.sink.taken == {P0: [0], P1: [0]}
    assert run.committed == {P0: 1, P1: 10}
    assert outcomes[P0].failure.message == "no"
    assert outcomes[P1].failure is None


def test_reading_stops_when_every_partition_has_failed() -> None:
    run, read = Run(Sink()), []

    def input_rows() -> Iterator[SinkRecords]:
        for offset in range(5):
            read.append(offset)
            yield rows(P0, offset)

    run.sink.faults["put"].append(ConnectException("no"))
    run.over(input_rows(), RangePlan.of(P0, *RANGE))
    assert read == [0]
    assert run.committed == {}


@pytest.mark.parametrize("method", ["initialize", "start"])
def test_a_failed_start_fails_all_partitions(method: str) -> None:
    run = Run(Sink(), committed={P0: 4})
    run.sink.faults[method].append(ConnectException("no route to host"))
    outcomes = run.over([rows(P0, 0)])
    assert run.calls == ["initialize", *(["start"] if method == "start" else []), "stop"]
    assert {o.failure.message for o in outcomes.values()} == {"no route to host"}
    assert [(p, o.committed, o.position, o.records, o.tail) for p, o in outcomes.items()] == [
        (P0, 4, 0, 0, 0),
        (P1, None, 0, 0, 0),
    ]


def test_a_fenced_task_commits_no_open_partition() -> None:
    run = Run(TwoPhaseSink())

    def fenced_meanwhile() -> Iterator[SinkRecords]:
        yield rows(P0, 0)
        run.log.succeed()
        yield rows(P1, 0)

    with pytest.raises(FencedException):
        run.over(fenced_meanwhile())
    assert run.calls[-2:] == ["close", "stop"]
    assert run.committed == {}
    assert run.sink.world.undone == []


def test_a_failed_input_closes_without_a_commit() -> None:
    run = Run(BufferingSink())

    def broken() -> Iterator[SinkRecords]:
        yield rows(P0, 0)
        raise OSError("socket closed")

    with pytest.raises(OSError, match="socket closed"):
        run.over(broken())
    assert run.calls == ["initialize", "start", "open", "put", "close", "stop"]
    assert run.committed == {}


def test_a_keyboard_interrupt_in_a_hook_is_raised_after_close() -> None:
    run = Run(Sink())
    run.sink.faults["put"].append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run.over([rows(P0, 0)])
    assert run.calls[-2:] == ["close", "stop"]
    assert run.committed == {}


def test_an_error_of_the_close_check_is_raised() -> None:
    run = Run(Sink())
    looks = iter([None, None])

    def over() -> None:
        try:
            return next(looks)
        except StopIteration:
            raise FencedException("the generation is over") from None

    with pytest.raises(FencedException):
        run.over([rows(P0, 0), rows(P0, 1)], closing=over)
    assert run.committed == {}
    assert run.calls[-2:] == ["close", "stop"]


@pytest.mark.parametrize(
    "batches",
    [
        [rows(P0, 0), rows(P2, 0)],
        [rows(P0, 0), rows(P1, 0), rows(P0, 1)],
    ],
    ids=["a partition that is not assigned", "a range that ended before"],
)
def test_records_of_an_unassigned_or_finished_range_are_refused(batches: list[SinkRecords]) -> None:
    # Rows of a range after those of the next one are an error of the input. If they counted as a new range,
    # the task would commit ranges that it has not read.
    run = Run(Sink())
    with pytest.raises(ConnectException, match="range is not assigned to this task or is already finished"):
        run.over(batches)
    assert P1 not in run.committed or run.committed[P1] <= 10
    assert run.calls[-2:] == ["close", "stop"] or run.calls[-1] == "stop"


def test_records_of_an_unassigned_partition_finish_no_range() -> None:
    run = Run(Sink())
    with pytest.raises(ConnectException, match="range is not assigned to this task or is already finished"):
        run.over([rows(P2, 0), rows(P0, 0), rows(P1, 0)])
    assert run.committed == {}


def test_ranges_may_come_in_any_order() -> None:
    run = Run(Sink())

    run.over([rows(P1, *range(10)), rows(P0, *range(10))])

    assert run.committed == {P0: 10, P1: 10}
    assert run.calls.count("close") == 2
