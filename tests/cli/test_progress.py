"""The display of a running connector, on a terminal and elsewhere."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Mapping

import pytest
from rich.console import Console

from sinksdk import ClosingReason, TopicPartition
from sinksdk.cli.display import LiveProgress, PlainProgress, render
from sinksdk.cli.output import counted, duration, number, size
from sinksdk.cli.progress import RunProgress
from sinksdk.cli.run import lost, on_close, progress_on, summary
from sinksdk.model.measures import LOST
from sinksdk.model.plan import RangePlan
from sinksdk.model.status import PartitionStatus
from sinksdk.store.records import GenerationPlan, TaskPlan
from sinksdk.testing import ManualClock

END = 1000


def plan(generation: int, starts: Mapping[int, int]) -> GenerationPlan:
    """Return a plan with one task that reads partitions of topic t from these offsets to their end."""
    ranges = tuple(RangePlan(topic="t", partition=p, start=start, end=END) for p, start in starts.items())
    return GenerationPlan(
        generation=generation, config_version=1, tasks=(TaskPlan(ranges=ranges),), committed=()
    )


def view(
    partition: int = 0,
    committed: int | None = None,
    position: int | None = None,
    records: int = 0,
    *,
    failure: str | None = None,
    tail: int = 0,
    **counts: int,
) -> PartitionStatus:
    return PartitionStatus.reported(
        TopicPartition("t", partition),
        committed,
        position,
        END,
        records=records,
        counts=counts,
        error=failure,
        tail=tail,
    )


@pytest.fixture
def progress(clock: ManualClock) -> RunProgress:
    return RunProgress(clock.now)


def test_numbers_are_formatted_with_separators_and_units() -> None:
    assert [number(1234567), number(None), number(0.6)] == ["1,234,567", "–", "1"]
    assert [size(999), size(12_345), size(123_456_789), size(5e15), size(None)] == [
        "999 B",
        "12.3 kB",
        "123 MB",
        "5,000 TB",
        "–",
    ]
    assert [duration(8.44), duration(125), duration(3661)] == ["8.4 s", "2:05 min", "1:01:01 h"]
    assert [counted(1, "file"), counted(1200, "file")] == ["1 file", "1,200 files"]


def test_rates_cover_the_last_ten_seconds(progress: RunProgress, clock: ManualClock) -> None:
    for second in range(0, 31, 2):
        progress.progress([view(position=0, records=second * 100)])
        clock.advance(2)
    assert progress.snapshot().total.rate == pytest.approx(100, rel=0.2)

    for _ in range(15):
        progress.progress([view(records=3000)])
        clock.advance(1)
    assert progress.snapshot().total.rate == 0


def test_a_tasks_second_attempt_makes_no_negative_rate(progress: RunProgress, clock: ManualClock) -> None:
    progress.progress([view(position=500, records=500)])
    clock.advance(2)
    progress.progress([view(position=100, records=100)])

    assert progress.snapshot().total.rate >= 0


def test_the_closing_message_depends_on_running_tasks(progress: RunProgress) -> None:
    assert on_close(progress.snapshot()) == "no task is running"
    progress.progress([view(committed=300)])
    waiting = "no task is running; the next run reads the remaining 700 offsets"
    assert on_close(progress.snapshot()) == waiting

    progress.planned(plan(1, {0: 300}))
    assert on_close(progress.snapshot()) == "partial batches are flushed and committed"
    progress.progress([view(committed=300, position=400)])
    assert on_close(progress.snapshot()) == "partial batches are flushed and committed"

    progress.ended(1, [view(committed=300, position=400, records=100, tail=100)])
    assert on_close(progress.snapshot()) == waiting


def test_committed_records_exclude_the_tail(progress: RunProgress) -> None:
    progress.planned(plan(1, {0: 100}))
    progress.ended(1, [view(committed=400, position=450, records=320, tail=50)])
    progress.planned(plan(2, {0: 400}))
    progress.ended(2, [view(committed=1000, position=1000, records=600)])

    total = progress.snapshot()
    assert (total.records, total.offsets) == (870, 900)
    assert summary(total) == "870 records (900 offsets) committed, 0.0 s"


def test_commits_of_a_running_generation_count(progress: RunProgress) -> None:
    # A frozen driver that was replaced never sees the end of its generation. The next attempt at a killed
    # task counts from 0, but the records that the killed attempt committed stay counted.
    progress.planned(plan(1, {0: 0}))
    progress.progress([view(committed=60, position=70, records=70, tail=10)])
    progress.progress([view(committed=60, position=60, records=0)])
    progress.progress([view(committed=90, position=95, records=35, tail=5)])
    progress.over("replaced")

    assert progress.snapshot().records == 90
    assert summary(progress.snapshot()) == "at least 90 records committed, 0.0 s"


def test_a_failed_partitions_line_names_its_retry(clock: ManualClock) -> None:
    lines: list[str] = []
    progress = PlainProgress(lines.append, clock=clock.now)
    progress.planned(plan(1, {0: 0}))
    progress.ended(1, [view(position=10, failure="busy").model_copy(update={"opens_in": 12.5})])

    assert lines[-1] == "t-0 failed (read up to offset 10), retried in 12.5 s: busy"


def test_generations_without_failures_share_a_line_a_minute(clock: ManualClock) -> None:
    # Regression: a server's 30 idle connectors logged 94 kB a minute.
    lines: list[str] = []
    progress = PlainProgress(lines.append, interval=math.inf, quiet=60.0, clock=clock.now)
    for generation in range(1, 31):
        progress.planned(plan(generation, {0: 0}))
        clock.advance(5.0)
        progress.ended(generation, [view(committed=10, position=10, records=10)])

    assert len(lines) == 3
    assert lines[0].startswith("generation 1: completed in 5.0 s, ")
    assert lines[1].startswith("generation 13: ")
    assert lines[1].endswith("; 11 generations before it were not logged")


def test_a_failed_generation_has_its_lines_at_once(clock: ManualClock) -> None:
    lines: list[str] = []
    progress = PlainProgress(lines.append, interval=math.inf, quiet=60.0, clock=clock.now)
    progress.planned(plan(1, {0: 0}))
    progress.ended(1, [view(committed=10, position=10, records=10)])
    progress.planned(plan(2, {0: 0}))
    progress.ended(2, [view(position=10, failure="busy")])

    assert len(lines) == 3
    assert "busy" in lines[-1]


def test_the_summary_names_files_and_bytes_where_the_connector_counts_them(progress: RunProgress) -> None:
    progress.planned(plan(1, {0: 0}))
    progress.ended(1, [view(committed=1000, position=1000, records=1000, files=2, bytes=2_000_000)])

    assert summary(progress.snapshot()) == "1,000 records committed, 2 files (2.0 MB), 0.0 s"


def test_lost_offsets_are_listed_by_partition(progress: RunProgress) -> None:
    progress.planned(plan(1, {0: 0, 1: 0, 2: 0}))
    progress.ended(1, [view(0, **{LOST: 1_200}), view(1), view(2, **{LOST: 1})])

    assert lost(progress.snapshot()) == (
        "skipped 1,201 offsets that the source no longer has (t-0: 1,200, t-2: 1)"
    )


def test_a_failure_is_shown_until_its_partition_succeeds(progress: RunProgress) -> None:
    progress.planned(plan(1, {0: 0}))
    progress.ended(1, [view(position=10, failure="poison")])
    progress.progress([view()])
    assert progress.snapshot().rows[0].error == "poison"
    assert progress.snapshot().state == "waiting for a retry"

    progress.planned(plan(2, {0: 0}))
    progress.ended(2, [view(position=1000, committed=1000)])
    assert progress.snapshot().rows[0].error is None


def test_the_state_names_the_current_activity(progress: RunProgress) -> None:
    states = [progress.snapshot().state]
    progress.progress([view()])
    states.append(progress.snapshot().state)
    progress.planned(plan(1, {0: 0}))
    states.append(progress.snapshot().state)
    progress.progress([view(position=5)])
    states.append(progress.snapshot().state)
    progress.closing(1, ClosingReason.SHUTDOWN)
    progress.progress([view(position=6)])
    states.append(progress.snapshot().state)
    progress.ended(1, [view(position=6)])
    states.append(progress.snapshot().state)
    progress.over("stopped")
    states.append(progress.snapshot().state)

    assert states == [
        "starting",
        "waiting for records",
        "starting tasks",
        "reading",
        "closing: SHUTDOWN",
        "waiting for records",
        "stopped",
    ]


def drawn(progress: RunProgress, width: int) -> list[str]:
    """Return lines of the table on a terminal of this width."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(render("archive", progress.snapshot(), width))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_table_shows_all_columns_at_80_columns(progress: RunProgress, width: int) -> None:
    progress.planned(plan(3, {0: 0, 1: 0}))
    progress.progress([view(0, 400, 500, 500, files=4, bytes=4_000), view(1, None, 20, 20)])

    lines = drawn(progress, width)
    assert lines[0] == "archive · generation 3 · reading · 0.0 s"
    heading = "partition read to committed end lag records/s files bytes"
    assert [line.split() for line in lines[1:]] == [
        heading.split(),
        ["t-0", "500", "400", "1,000", "600", "0", "4", "4.0", "kB"],
        ["t-1", "20", "–", "1,000", "1,000", "0", "–", "–"],
        ["total", "520", "400", "2,000", "1,600", "0", "4", "4.0", "kB"],
    ]


def test_the_table_shows_the_twenty_partitions_with_most_lag(progress: RunProgress) -> None:
    progress.progress([view(p, committed=1000 if p % 9 else p) for p in range(200)])

    lines = drawn(progress, 80)
    names = [line.split()[0] for line in lines[2:]]
    assert len(names) == 22
    assert names[:3] == ["t-0", "t-9", "t-18"]
    assert lines[-2] == "… and 180 more"
    assert names[-1] == "total"


def test_failures_are_shown_below_the_table(progress: RunProgress) -> None:
    progress.progress([view(p, position=1, failure=f"cause {p}") for p in range(7)])

    assert drawn(progress, 80)[-6:] == [f"t-{p}: cause {p}" for p in range(5)] + [
        "and 2 more failed partitions"
    ]


def test_plain_output_has_a_line_per_event_and_every_five_seconds(clock: ManualClock) -> None:
    lines: list[str] = []
    progress = PlainProgress(lines.append, clock=clock.now)
    progress.planned(plan(1, {0: 0, 1: 0}))
    for step in range(1, 9):
        clock.advance(1)
        progress.progress([view(0, None, 50 * step, 50 * step, tail=30 * step, files=1, bytes=2_000)])
    progress.closing(1, ClosingReason.REBALANCE)
    progress.ended(
        1, [view(0, 400, 450, 450, tail=50), view(1, 10, 10, 10, failure="the endpoint is gone\nfor good")]
    )

    assert lines == [
        "generation 1: 1 task, 2 partitions, 2,000 offsets to read",
        "reading: 100 records committed, lag 1,000, 50 records/s, 1 file, 2.0 kB",
        "generation 1: closing, REBALANCE",
        "generation 1: completed in 8.0 s, 460 records read, 410 committed, 50 left for the next generation",
        "t-1 failed (read up to offset 10): the endpoint is gone\nfor good",
    ]


def test_an_unchanged_line_is_not_repeated(clock: ManualClock) -> None:
    lines: list[str] = []
    progress = PlainProgress(lines.append, clock=clock.now)
    for _ in range(100):
        progress.progress([view(committed=900)])
        clock.advance(1)

    assert lines == ["waiting for records: 0 records committed, lag 100, 0 records/s"]


def test_only_records_of_this_run_count_as_committed(clock: ManualClock) -> None:
    # A connector that begins at the latest offset, 900, has committed nothing yet.
    lines: list[str] = []
    progress = PlainProgress(lines.append, clock=clock.now)
    progress.progress([view(committed=900)])
    progress.planned(plan(1, {0: 900}))
    progress.ended(1, [view(0, 950, 950, 50)])
    clock.advance(10)
    progress.progress([view(committed=950)])

    assert lines[0] == "waiting for records: 0 records committed, lag 100, 0 records/s"
    assert lines[-1] == "waiting for records: 50 records committed, lag 50, 0 records/s"


def test_a_terminal_gets_the_table_and_a_pipe_gets_lines() -> None:
    assert isinstance(progress_on(Console(force_terminal=True), "a"), LiveProgress)
    assert isinstance(progress_on(Console(file=io.StringIO()), "a"), PlainProgress)


def test_log_lines_appear_above_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=80)
    with LiveProgress(console, "archive") as progress:
        sys.stderr.write("a task says\n")
        progress.note("[not] markup")

    assert isinstance(console.file, io.StringIO)
    assert "a task says\n" in console.file.getvalue()
    assert "[not] markup\n" in console.file.getvalue()
    assert capsys.readouterr().err == ""
