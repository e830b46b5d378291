"""The store's keys, byte by byte: the next version must read a store of this one."""

from __future__ import annotations

import pytest

from sinksdk.store import keys


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (keys.STORE_KEY, "store"),
        (keys.config_key("archive"), "connectors/archive/config"),
        (keys.task_count_key("archive"), "connectors/archive/tasks-count"),
        (keys.plans_prefix("archive"), "connectors/archive/generations/"),
        (keys.plan_key("archive", 7), "connectors/archive/generations/000000000007"),
        (keys.closing_key("archive", 7), "connectors/archive/generations/000000000007-closing"),
        (keys.dropped_key("archive", 7), "connectors/archive/dropped/000000000007"),
        (keys.task_key("archive", 12), "connectors/archive/tasks/12"),
        (keys.status_key("archive"), "connectors/archive/status"),
        (keys.remembered_key("archive"), "connectors/archive/remembered"),
        (keys.progress_key("archive", 3), "connectors/archive/progress/3"),
        (keys.history_key("archive"), "connectors/archive/history"),
        (keys.progress_prefix("archive"), "connectors/archive/progress/"),
        (keys.totals_key("archive"), "connectors/archive/totals"),
        (keys.config_key("a/b c%é"), "connectors/a%2Fb%20c%25%C3%A9/config"),
        (keys.task_key("A-Z_a.z~0", 0), "connectors/A-Z_a.z~0/tasks/0"),
    ],
)
def test_keys_have_their_documented_format(key: str, text: str) -> None:
    # A connector's name is percent-encoded, so that no name reaches into another connector's keys.
    assert key == text


def test_plans_sort_by_generation() -> None:
    found = [keys.plan_key("c", generation) for generation in (1, 2, 9, 10, 99, 100, 999_999_999_999)]
    assert sorted(found) == found


def test_keys_of_a_generation_sort_between_its_plan_and_the_next() -> None:
    # Every key below a plan's is of an older generation, and may be removed.
    assert keys.plan_key("c", 7) < keys.closing_key("c", 7) < keys.plan_key("c", 8)
