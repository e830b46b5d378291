from __future__ import annotations

from collections.abc import Callable, Mapping

from sinksdk import OffsetRange, RetriableException, TopicPartition
from sinksdk.model.plan import PlannerState, Tail
from sinksdk.runtime.partition_lag import TrailingGaps
from sinksdk.runtime.planner import Backlog

TP = TopicPartition("t", 0)


class Source:
    def __init__(self, *offsets: int, failures: int = 0, most: int = 100_000) -> None:
        self.offsets = offsets
        self.most = most  # number of partitions that a request can query in time
        self.failures = failures
        self.asked = 0

    def first_records(self, ranges: Mapping[TopicPartition, OffsetRange]) -> dict[TopicPartition, int]:
        self.asked += 1
        if self.failures:
            self.failures -= 1
            message = "no broker answers"
            raise RetriableException(message)
        return {
            partition: next((o for o in self.offsets if offsets.start <= o < offsets.end), offsets.end)
            for partition, offsets in list(ranges.items())[: self.most]
        }


def at_once(run: Callable[[], None]) -> None:
    run()


def planned_gaps(source: Source, *backlogs: Backlog) -> list[list[tuple[int, int, bool]]]:
    gaps = TrailingGaps(source, at_once)  # type: ignore[arg-type]  # the checks need no more of a source
    return [[(r.start, r.end, r.due) for r in gaps.among([backlog])] for backlog in backlogs]


def test_a_trailing_marker_is_committed_once_the_partition_is_steady() -> None:
    behind = Backlog(TP, OffsetRange(0, 101), 100)

    assert planned_gaps(Source(), behind, behind) == [[], [(100, 101, True)]]


def test_a_growing_partition_is_not_queried_for_records() -> None:
    source = Source()

    assert planned_gaps(source, *(Backlog(TP, OffsetRange(0, end), 0) for end in range(5, 9))) == [
        [],
        [],
        [],
        [],
    ]
    assert source.asked == 0


def test_a_range_with_records_is_queried_once() -> None:
    # While a found record is unread, the check remembers it, whether or not the end moves.
    source = Source(3, 5, 7)
    ends = [5, 5, 6, 6, 8, 8]

    assert planned_gaps(source, *(Backlog(TP, OffsetRange(0, end), 0) for end in ends)) == [[]] * 6
    assert source.asked == 1


def test_offsets_after_a_committed_record_are_queried() -> None:
    source = Source(3)
    before, after = Backlog(TP, OffsetRange(0, 5), 0), Backlog(TP, OffsetRange(0, 5), 4)

    assert planned_gaps(source, before, before, after, after) == [[], [], [(4, 5, True)], [(4, 5, True)]]


def test_records_held_back_by_the_sink_are_not_queried() -> None:
    source = Source()
    tail = PlannerState(topic="t", partition=0, tail=Tail(committed=0, end=5, records=2))
    kept = Backlog(TP, OffsetRange(0, 5), 0, state=tail)

    assert planned_gaps(source, kept, kept) == [[], []]
    assert source.asked == 0


def test_a_partition_read_to_its_end_is_not_queried() -> None:
    done = Backlog(TP, OffsetRange(0, 5), 5)

    assert planned_gaps(Source(), done, done) == [[], []]


def test_an_unresponsive_source_is_queried_again() -> None:
    behind = Backlog(TP, OffsetRange(0, 101), 100)

    assert planned_gaps(Source(failures=1), behind, behind, behind) == [[], [], [(100, 101, True)]]


def test_ten_thousand_steady_partitions_do_not_block_the_driver() -> None:
    # Regression: the driver queried the partitions one after another, and sent no heartbeat meanwhile.
    source, later = Source(most=6_000), []
    gaps = TrailingGaps(source, later.append)  # type: ignore[arg-type]  # the same
    quiet = [Backlog(TopicPartition("t", n), OffsetRange(0, 5), 0) for n in range(10_000)]

    assert [gaps.among(quiet) for _ in range(3)] == [[], [], []]
    assert (source.asked, len(later)) == (0, 1), "asked in the background, once at a time"
    later.pop()()
    assert source.asked == 1, "about all of them together"
    assert len(gaps.among(quiet)) == 6_000
    later.pop()()
    assert len(gaps.among(quiet)) == 10_000
    assert source.asked == 2, "again about those that there was no time for"
