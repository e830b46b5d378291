from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sinksdk.errors import ConfigException, ConnectException
from sinksdk.spark.generation_job import SparkGeneration, task_job
from sinksdk.worker.generation_spec import GenerationSpec
from sinksdk.worker.task_result import TaskResult

if TYPE_CHECKING:
    from pyspark import SparkContext

pytestmark = pytest.mark.spark

LONG = 300.0  # seconds: for a task that hangs
SOON = 60.0  # seconds that a busy machine may need for something immediate


def stuck(spec: GenerationSpec, task: int) -> TaskResult:
    time.sleep(LONG)
    return TaskResult(task, 1, [])


def running_stuck(spark: SparkContext, generation: int) -> SparkGeneration[TaskResult]:
    spec = GenerationSpec("sqlite:///absent", "id", "lines", generation)
    return SparkGeneration(spark, spec, task_job(spark, 1, spec, stuck), TaskResult)


def descriptions(spark: SparkContext) -> set[str]:
    stages = spark._jsc.sc().statusStore().activeStages()
    found = (stages.apply(at).description().getOrElse(None) for at in range(stages.size()))
    return {name for name in found if name and name.startswith("connector lines, generation ")}


def test_a_cancelled_generation_ends_at_once(spark: SparkContext) -> None:
    # Spark's web UI names the generation that a stage belongs to.
    one, other = running_stuck(spark, 1), running_stuck(spark, 2)
    assert not one.wait(5), "it should be running"
    expected = {"connector lines, generation 1", "connector lines, generation 2"}
    give_up = time.monotonic() + SOON
    while (shown := descriptions(spark)) != expected:
        assert time.monotonic() < give_up, shown
        time.sleep(0.1)

    one.cancel()

    assert one.wait(SOON)
    with pytest.raises(ConnectException, match="cancelled"):
        one.results()
    assert not other.wait(0)
    other.cancel()
    assert other.wait(SOON)


def test_a_generation_cancelled_before_its_job_ends(spark: SparkContext) -> None:
    # During planning there is no job yet that could be cancelled.
    running = running_stuck(spark, 1)

    running.cancel()

    assert running.wait(SOON)


def process_id(spec: GenerationSpec, task: int) -> TaskResult:
    return TaskResult(task, 1, [], os.getpid())


@pytest.mark.parametrize("keeps_workers", [True, False])
def test_workers_are_kept_or_end_with_their_tasks(spark: SparkContext, *, keeps_workers: bool) -> None:
    # A sink reuses Kafka consumers in the next generation; threads that hang in a source's task must end.
    # Regression: a task that left the end of its input unread made Spark discard the worker.
    seen = []
    for number in range(1, 4):
        spec = GenerationSpec("sqlite:///absent", "id", "lines", number)
        job = task_job(spark, 1, spec, process_id, keeps_workers=keeps_workers)
        running = SparkGeneration(spark, spec, job, TaskResult)
        assert running.wait(SOON)
        seen += [result.peak_memory for result in running.results()]
    assert len(set(seen)) == (1 if keeps_workers else 3), seen


def killed(spec: GenerationSpec, task: int) -> TaskResult:
    # The kernel's OOM killer ends a process like this.
    if task == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return TaskResult(task, 1, [])


def failed(spark: SparkContext, task: Callable[[GenerationSpec, int], TaskResult]) -> ConnectException:
    spec = GenerationSpec("sqlite:///absent", "id", "lines", 1)
    generation = SparkGeneration(spark, spec, task_job(spark, 2, spec, task), TaskResult)
    assert generation.wait(LONG)
    with pytest.raises(ConnectException) as raised:
        generation.results()
    return raised.value


def test_a_killed_worker_is_named_with_its_task(spark: SparkContext) -> None:
    said = str(failed(spark, killed))

    assert said.startswith("the Spark job failed: Python worker exited unexpectedly")
    assert "under task 1: its process was killed, for example by the kernel for lack of memory" in said


def test_a_missing_python_is_named(spark: SparkContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "pythonExec", "./environment/bin/python")

    error = failed(spark, killed)

    assert isinstance(error, ConfigException)
    assert str(error).startswith("the executors cannot run ./environment/bin/python: ")


def test_python_that_is_not_executable_is_named(
    spark: SparkContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.touch(mode=0o644)
    monkeypatch.setattr(spark, "pythonExec", str(python))

    error = failed(spark, killed)

    assert isinstance(error, ConfigException)
    assert f"cannot run {python}: it is not executable on their hosts (Permission denied)" in str(error)
