"""Connectors whose S3 hangs do not hold up those that are well."""

from __future__ import annotations

import statistics
import time

import pytest

from benchmarks.isolation import BATCH, ILL, hang, latencies, site

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TASKS = 2  # of each connector in trouble: together twice as many as there are cores


def test_healthy_connectors_do_not_wait_for_those_whose_s3_hangs() -> None:
    """They commit about as fast as alone while the others hold their places; who does is a metric."""
    with site(warm=3) as here:
        before = statistics.median(latencies(here, 5))
        hang(here, tasks=TASKS)
        time.sleep(2)  # until their tasks have begun
        beside = statistics.median(latencies(here, 8, patience=20))
        page = here.server.client.get("/metrics").text
        here.ill.heal()
        here.until(lambda: all(here.committed(name) == 2 * TASKS * BATCH for name in ILL))
        after = statistics.median(latencies(here, 5))

    alone = max(before, after)  # whatever else computes here may have begun, or ended, in between
    # Where they wait for places they wait for as long as a request may take to be answered: 20 s and more.
    assert beside < 2 * alone + 1, f"{beside:.2f} s beside those that hang, {alone:.2f} s alone"
    assert "sinksdk_spark_places 8.0\n" in page
    for name in ILL:
        (held,) = (line for line in page.splitlines() if f'places_held{{connector="{name}"' in line)
        assert 1 <= float(held.split()[1]) <= TASKS  # the second partition's records may have come too late
        (line,) = (line for line in page.splitlines() if f'place_held_seconds{{connector="{name}"' in line)
        assert float(line.split()[1]) > 5
