from __future__ import annotations

import statistics

import pytest

from benchmarks.isolation import BATCH, ILL, Site, hang, latencies, site

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.slow]

TASKS = 2  # tasks of each hanging connector: together twice as many as there are cores


def metrics(here: Site) -> str:
    return here.server.client.get("/metrics").text


def value(page: str, metric: str, connector: str) -> float:
    # Return 0 while the connector has no generation.
    found = (line for line in page.splitlines() if f'{metric}{{connector="{connector}"' in line)
    return sum(float(line.split()[1]) for line in found)


def test_healthy_connectors_do_not_wait_for_connectors_whose_s3_hangs() -> None:
    with site(warm=3) as here:
        before = statistics.median(latencies(here, 5))
        hang(here, tasks=TASKS)
        # The generation must last: it would end sooner if S3 responded.
        here.until(lambda: all(value(metrics(here), "task_slot_used_seconds", name) > 2 for name in ILL))
        beside = statistics.median(latencies(here, 8, patience=20))
        page = metrics(here)
        here.ill.heal()
        here.until(lambda: all(here.committed(name) == 2 * TASKS * BATCH for name in ILL))
        after = statistics.median(latencies(here, 5))

    alone = max(before, after)  # other load on the machine may have changed in between
    # If the healthy connectors waited for a task slot, they would wait as long as a request may take: 20 s
    # and more.
    assert beside < max(2 * alone + 1, 10), f"{beside:.2f} s beside those that hang, {alone:.2f} s alone"
    assert "sinksdk_spark_task_slots 8.0\n" in page
    for name in ILL:
        # The records of the second partition may have come too late for this generation.
        assert 1 <= value(page, "task_slots_used", name) <= TASKS
        assert value(page, "task_slot_used_seconds", name) > 5
