"""The demonstration's parts that need neither Spark nor S3; the whole of it is an integration test."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from rich.console import Console

from sinksdk import ClosingReason, TopicPartition
from sinksdk.cli import demo
from sinksdk.cli.demo.play import Interrupted, Interruption, show_interrupted
from sinksdk.control.progress import Listener, PartitionView
from sinksdk.store.records import GenerationPlan
from tests.cli.support import Here

PLAN = GenerationPlan(generation=1, config_version=1, tasks=(), committed=())


def view(position: int, committed: int) -> PartitionView:
    return PartitionView(TopicPartition("t", 0), committed, position, 1000, position)


def test_only_a_rebalance_is_an_interruption() -> None:
    """What was read beyond the last whole file is what others would drop."""
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
    """With a total below it."""
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


def test_missing_packages_are_named_with_what_to_install(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 2 before anything is written."""
    monkeypatch.setattr(demo, "_PACKAGES", ("moto", "no_such_package", "no_such.package"))

    result = here.sinksdk("demo")

    assert result.exit_code == 2
    assert result.stderr == (
        "error: the demonstration needs no_such_package, no_such.package: pip install 'sinksdk[all]'\n"
    )
