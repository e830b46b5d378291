from __future__ import annotations

from sinksdk.model.measures import Phase, TaskMeasures
from sinksdk.runtime.outcomes import closing_durations

QUICK = TaskMeasures(closings=1, closing_seconds={Phase.CLOSE_LATENCY: 0.2, Phase.PRE_COMMIT: 0.4})
SLOW = TaskMeasures(
    closings=1,
    closing_seconds={Phase.CLOSE_LATENCY: 0.5, Phase.PRE_COMMIT: 2.5, Phase.COMMIT: 0.01, Phase.PUBLISH: 0.3},
)


def test_the_phases_of_the_slowest_task_are_listed() -> None:
    # The rest of the time was spent in Spark and in the driver. Phases that took no time are left out.
    assert closing_durations(3.6, {0: QUICK, 1: SLOW, 2: TaskMeasures()}) == (
        "3.6 s; the slowest, task 1: close_latency 0.5 s, pre_commit 2.5 s, publish 0.3 s, Spark and the driver 0.3 s"
    )


def test_tasks_that_finished_before_the_close_request_are_not_listed() -> None:
    # A generation may end by itself during a close request.
    assert closing_durations(0.2, {0: TaskMeasures()}) == "0.2 s; all tasks had finished before"
