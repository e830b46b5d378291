from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.support import SINK, Here


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "linesink.py").write_text(SINK)
    yield Here(tmp_path)
    sys.modules.pop("linesink", None)


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace Spark: these tests end before they need it, or only test how it is started."""

    def start_spark(*_: object, **__: object) -> None:
        message = "Spark was started"
        raise AssertionError(message)

    monkeypatch.setattr("sinksdk.spark.context.start_spark", start_spark)
