from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from property_tests.soak_server.scene import Happened, run_freezes, run_hour


@pytest.mark.nightly
@pytest.mark.spark
def test_connectors_of_a_server_recover_from_all_outages_by_themselves(tmp_path: Path) -> None:
    happened = run_hour(tmp_path, print, outage=15, pause=5, connectors=6)

    assert happened.counts["archives verified"] == 6
    assert happened.counts["kills of the server"] == 2
    assert happened.counts["records"] > 1_000
    assert not [line for line in happened.log if line["level"] in {"ERROR", "CRITICAL"}]


@pytest.mark.nightly
@pytest.mark.spark
def test_connectors_catch_up_within_a_minute_after_a_frozen_broker_resumes(tmp_path: Path) -> None:
    happened = run_freezes(tmp_path, print)

    assert happened.counts["freezes"] == 10
    assert happened.counts["archives verified"] == 30
    assert happened.counts["looks at lags"] > 100


def line(message: str, level: str = "WARNING", connector: str = "a") -> dict[str, Any]:
    return {"level": level, "connector": connector, "message": message, "logger": "sinksdk"}


def test_the_soak_finds_an_error_logged_without_its_cause() -> None:
    log = [line("connector a has failed", "ERROR"), line("a has FAILED: disk full", "ERROR"), line("a waits")]

    assert Happened(log=log).without_cause() == ["connector a has failed"]


def test_the_soak_finds_repeated_log_lines() -> None:
    log = [line(f"the store gives no answer, failed {n} times") for n in range(3)]
    log += [line("the store gives no answer, failed 9 times", connector="b")]

    assert Happened(log=log).repeated(2) == ["a: the store gives no answer, failed … times (3 times)"]
    assert Happened(log=log).repeated(3) == []
