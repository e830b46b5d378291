from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from tests.helpers.archive_to_read import PAGE, code, copied

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


def test_spark_reads_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkContext
) -> None:
    copied(tmp_path)
    text = code(of_spark=True)
    for folder in ("by-day", "lines"):
        assert f'"{folder}/orders"' in text
        text = text.replace(f'"{folder}/orders"', f'"{tmp_path}/{folder}/orders"')
    names: dict[str, Any] = {}
    exec(compile(text, str(PAGE), "exec", dont_inherit=True), names)  # noqa: S102 - our own page

    assert [tuple(row) for row in names["days"]] == [
        (dt.date(2024, 2, 28), 10),
        (dt.date(2024, 2, 29), 50),
        (dt.date(2024, 3, 1), 90),
    ]
    assert (names["lines"].count(), names["most"]) == (6, 50)
