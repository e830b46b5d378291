"""Sources on the command line: problems before Spark starts, and the display of their tasks."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sinksdk import ConfigException
from sinksdk.cli.display import PlainProgress, render
from sinksdk.cli.output import warn
from sinksdk.cli.run import summary
from sinksdk.context import ClosingReason
from sinksdk.launch.deployment import PreparedSource
from sinksdk.launch.prepare import DeploymentOptions, prepare
from sinksdk.launch.topics import TopicDirectory
from sinksdk.spark.options import SparkOptions
from sinksdk.store.records import GenerationPlan, TaskPlan
from sinksdk.store.reports import SourceProgress
from sinksdk.testing import ManualClock
from sinksdk.topics.directory.writer import TopicDirectoryTarget
from tests.cli.support import Here

SOURCE = "tests.runtime.running_sources:Counting"
PLAN = GenerationPlan(generation=4, config_version=1, tasks=(TaskPlan(ranges=()),) * 2, committed=())
TASKS = {
    0: SourceProgress(state="RUNNING", records=1_200, transactions=12, rate=60.0),
    1: SourceProgress(state="STOPPED", records=30, transactions=3, failure="the file is gone"),
}


def config(here: Here, **more: Any) -> Path:
    document = {"name": "numbers", "config": {"connector.class": SOURCE, **more}}
    return here.file("numbers.json", json.dumps(document))


def test_a_source_creates_its_topic_directory(here: Here) -> None:

    def options(directory: str) -> DeploymentOptions:
        return DeploymentOptions(TopicDirectory(directory), "sqlite:///store.db", SparkOptions("local[1]"))

    _, ready = prepare(config(here), options("topics"), warn)

    assert isinstance(ready, PreparedSource)
    assert ready.target == TopicDirectoryTarget(str((here.folder / "topics").absolute()))
    with pytest.raises(
        ConfigException, match=r"cannot create the topic directory .*: the folder .* does not exist"
    ):
        prepare(config(here), options("absent/topics"), warn)


@pytest.mark.parametrize(
    ("master", "tasks", "is_warned"),
    [("local[2]", 4, True), ("local[4]", 4, False), ("local", 2, True), ("local[*]", 4, False)],
)
def test_more_tasks_than_task_slots_are_warned_of_before_spark_starts(
    here: Here, capsys: pytest.CaptureFixture[str], master: str, tasks: int, is_warned: bool
) -> None:
    # The problem is only a warning, because the connector may return fewer task configurations.
    options = DeploymentOptions(TopicDirectory("topics"), "sqlite:///store.db", SparkOptions(master))
    prepare(config(here, **{"tasks.max": tasks}), options, warn)

    errors = capsys.readouterr().err
    assert (f"'tasks.max' is {tasks}, but Spark on {master} has " in errors) is is_warned


def test_a_misspelt_source_is_one_problem(here: Here) -> None:
    # Regression: the command also reported that topics are missing, as for a sink.
    path = here.file("numbers.json", json.dumps({"name": "n", "config": {"connector.class": SOURCE + "x"}}))
    result = here.sinksdk("validate", path)

    assert result.exit_code == 2
    assert "has no 'Countingx'" in result.stdout
    assert "topics" not in result.stdout


def test_until_caught_up_is_refused_for_a_source(here: Here) -> None:
    result = here.sinksdk("run", config(here), "--topic-directory", "topics", "--until-caught-up")

    assert result.exit_code == 2
    assert "is a source, which never catches up" in result.stderr


def test_run_reports_every_problem_of_a_source_at_once(here: Here) -> None:
    file = config(here, **{"transaction.boundary": "connector", "exactly.once.support": "required"})
    result = here.sinksdk("run", file)

    assert result.exit_code == 2
    for problem in ("'exactly.once.support' is 'required'", "'transaction.boundary' is 'connector'"):
        assert problem in result.stderr
    assert "give either --topic-directory DIR" in result.stderr


def test_a_source_is_validated(here: Here) -> None:
    result = here.sinksdk("validate", config(here, topics="orders"))

    assert result.exit_code == 0
    assert "each record of a source names its topic" in result.stdout


def test_plain_output_shows_the_records_committed_by_tasks(clock: ManualClock) -> None:
    lines: list[str] = []
    progress = PlainProgress(lines.append, interval=5.0, clock=clock.now)
    progress.planned(PLAN)
    clock.advance(6)
    progress.tasks(TASKS)
    clock.advance(1)
    progress.tasks(TASKS)
    progress.closing(4, ClosingReason.FAILURE)
    progress.tasks_ended(4, TASKS)
    progress.over("stopped")

    assert lines == [
        "generation 4: 2 tasks",
        "running: 1,230 records committed in 15 transactions, 60 records/s",
        "generation 4: closing, FAILURE",
        "generation 4: completed in 7.0 s, 1,230 records committed in 15 transactions",
        "task 1 failed: the file is gone",
    ]
    assert summary(progress.snapshot()) == "1,230 records committed in 15 transactions, 7.0 s"


def test_records_of_all_generations_are_counted() -> None:
    progress = PlainProgress(lambda _: None, clock=ManualClock().now)
    progress.tasks_ended(4, TASKS)
    progress.tasks({0: SourceProgress(state="RUNNING", records=5, transactions=1)})

    assert summary(progress.snapshot()) == "1,235 records committed in 16 transactions, 0.0 s"


def test_a_terminal_shows_a_table_of_tasks() -> None:
    progress = PlainProgress(lambda _: None, clock=ManualClock().now)
    progress.planned(PLAN)
    progress.tasks(TASKS)
    console = Console(file=io.StringIO(), width=100)
    console.print(render("numbers", progress.snapshot(), 100))
    shown = console.file.getvalue()  # type: ignore[attr-defined]  # the text made above

    assert "numbers · generation 4 · running" in shown
    assert "1,230 records committed in 15 transactions, 60 records/s" in shown
    assert [line.split()[:3] for line in shown.splitlines()[3:]] == [
        ["0", "RUNNING", "1,200"],
        ["1", "STOPPED", "30"],
    ]
    assert "the file is gone" in shown
