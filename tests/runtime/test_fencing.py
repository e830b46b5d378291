"""KIP-618's decision table, row by row."""

from __future__ import annotations

import pytest

from sinksdk.engine.writer import tasks_to_fence


@pytest.mark.parametrize(
    ("is_pending", "recorded", "tasks", "fenced"),
    [
        pytest.param(False, None, 0, range(0), id="nothing pending, no record"),
        pytest.param(False, 3, 5, range(0), id="nothing pending: any record"),
        pytest.param(False, 1, 1, range(0), id="nothing pending: one task"),
        pytest.param(True, None, 4, range(0), id="no record: no transactional producer can exist"),
        pytest.param(True, None, 0, range(0), id="no record, stopped"),
        pytest.param(True, 1, 1, range(0), id="from one task to one: the same id fences itself"),
        pytest.param(True, 1, 2, range(1), id="from one task to more: id 0"),
        pytest.param(True, 1, 0, range(1), id="from one task to none: id 0"),
        pytest.param(True, 3, 5, range(3), id="as many ids as were recorded, not as will run: more"),
        pytest.param(True, 5, 3, range(5), id="as many ids as were recorded, not as will run: fewer"),
        pytest.param(True, 3, 3, range(3), id="the same number again"),
        pytest.param(True, 3, 1, range(3), id="down to one"),
        pytest.param(True, 3, 0, range(3), id="stopped"),
        pytest.param(True, 0, 4, range(0), id="after a stop: no task to fence (F3)"),
        pytest.param(True, 0, 0, range(0), id="stopped twice"),
    ],
)
def test_fencing_rounds_follow_the_decision_table(
    is_pending: bool, recorded: int | None, tasks: int, fenced: range
) -> None:
    assert tasks_to_fence(is_pending=is_pending, recorded=recorded, tasks=tasks) == fenced


@pytest.mark.parametrize("recorded", [None, *range(5)])
@pytest.mark.parametrize("tasks", range(5))
def test_every_task_that_may_still_write_is_fenced(recorded: int | None, tasks: int) -> None:
    decided = tasks_to_fence(is_pending=True, recorded=recorded, tasks=tasks)

    by_itself = {0} if recorded == tasks == 1 else set()
    assert set(decided) | by_itself >= set(range(recorded or 0))
