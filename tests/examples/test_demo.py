"""The parts of the demonstration that need neither Spark nor S3; tests/integration runs all of it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console

from examples.demo.play import (
    Delays,
    Interrupted,
    Interruption,
    delays,
    query_archive,
    show_delays,
    show_interrupted,
)
from sinksdk import ClosingReason, TopicPartition
from sinksdk.control.progress import Listener
from sinksdk.model.status import PartitionStatus
from sinksdk.store.records import GenerationPlan

PLAN = GenerationPlan(generation=1, config_version=1, tasks=(), committed=())


def view(position: int, committed: int) -> PartitionStatus:
    return PartitionStatus.reported(TopicPartition("t", 0), committed, position, 1000, records=position)


def test_only_a_rebalance_is_an_interruption() -> None:
    told: list[Sequence[Interrupted]] = []
    resumed: list[bool] = []
    story = Interruption(Listener(), 100, lambda: resumed.append(True), told.append)

    story.planned(PLAN)
    story.closing(1, ClosingReason.REBALANCE)
    story.ended(1, [view(position=250, committed=250)])
    story.planned(PLAN)
    story.ended(2, [view(position=1000, committed=1000)])

    assert told == [[Interrupted("t-0", read=250, whole=200, committed=250)]]


def test_the_table_fits_80_columns() -> None:
    console = Console(file=io.StringIO(), width=80)
    show_interrupted(
        console,
        [Interrupted("flights-0", 69_999, 45_000, 69_999), Interrupted("flights-1", 109_999, 0, 109_000)],
    )

    assert isinstance(console.file, io.StringIO)
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    assert lines[-3:] == [
        ["flights-0", "69,999", "45,000", "24,999", "69,999", "0"],
        ["flights-1", "109,999", "0", "109,999", "109,000", "999"],
        ["total", "179,998", "45,000", "134,998", "178,999", "999"],
    ]


def test_duckdb_and_the_flights_give_the_same_result(tmp_path: Path) -> None:
    flights = pd.DataFrame(
        {
            "carrier": ["UA", "AA", "AA", "AS", "UA", "UA"],
            "day": [1, 1, 2, 3, 1, 2],
            "dep_delay": [5.0, -1.0, None, 2.0, 7.0, 1.0],
        }
    )
    for (carrier, day), rows in flights.groupby(["carrier", "day"]):
        folder = tmp_path / f"first-week/carrier={carrier}/date=2013-01-0{day}"
        folder.mkdir(parents=True)
        rows[["day", "dep_delay"]].to_parquet(folder / "flights.parquet")

    answer = query_archive(tmp_path)

    assert answer == delays(flights)
    assert answer == [Delays("UA", 3, 2, 13 / 3), Delays("AA", 2, 2, -1.0), Delays("AS", 1, 1, 2.0)]


def test_delays_are_shown_with_one_decimal() -> None:
    console = Console(file=io.StringIO(), width=80)
    show_delays(console, [Delays("UA", 1_067, 7, 13 / 3)])

    assert isinstance(console.file, io.StringIO)
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    assert lines == [["carrier", "flights", "days", "delay"], ["UA", "1,067", "7", "4.3"]]
