"""Alert expressions of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sinksdk.metrics.prometheus import METRICS

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
NAME = re.compile(r"\b((?:sinksdk|kafka_connect)_\w+)(?:\{([^}]*)\})?")
# The alert expression on the documentation's page.
SLOW = "time() - sinksdk_partition_last_commit_timestamp_seconds > 900 and sinksdk_partition_lag > 0"


def expressions() -> list[str]:
    """Return expressions of the page's table."""
    table = PAGE.read_text().partition("## Alerts worth having")[2]
    found = re.findall(r"^\| `([^`]+)`", table, flags=re.MULTILINE)
    assert len(found) > 10
    return found


@pytest.mark.parametrize("expression", expressions())
def test_metrics_and_labels_of_an_alert_exist(expression: str) -> None:
    # An expression with a misspelt name never fires.
    known = {metric.prometheus_name: metric for metric in METRICS}
    used = NAME.findall(expression)
    assert used
    for name, labels in used:
        assert name in known
        for label in re.findall(r"(\w+)\s*[=!]", labels):
            assert label in known[name].labels
    for grouped in re.findall(r"by \((\w+)\)", expression):
        assert all(grouped in known[name].labels for name, _ in used)


@pytest.mark.parametrize(
    ("lag", "since_commit", "fires"),
    [(18_000, 901, True), (1, 901, True), (18_000, 60, False), (0, 7200, False), (None, 7200, False)],
    ids=["slow topic", "one record", "in time", "nothing waits", "unknown"],
)
def test_the_backlog_alert_fires_for_a_slow_topic(lag: int | None, since_commit: float, fires: bool) -> None:
    # Regression: with 20 records a second it fired after 83 minutes, because it waited for 100,000 records.
    assert SLOW in expressions()
    values = {"time()": 10_000.0, "sinksdk_partition_last_commit_timestamp_seconds": 10_000.0 - since_commit}
    if lag is not None:
        values["sinksdk_partition_lag"] = lag
    assert holds(SLOW, values) is fires


def holds(expression: str, values: dict[str, float]) -> bool:
    """Evaluate ``a - b > number and c > number`` as Prometheus does: missing values match nothing."""
    results = []
    for part in expression.split(" and "):
        side, _, limit = part.partition(" > ")
        terms = side.split(" - ")
        if any(term not in values for term in terms):
            return False
        results.append(values[terms[0]] - sum(values[term] for term in terms[1:]) > float(limit))
    return all(results)
