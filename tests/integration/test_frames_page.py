from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parent.parent.parent


def test_the_code_of_the_dataframe_page_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs/write-a-dataframe.md").read_text()
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE))
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "OffsetAndMetadata(offset=500" in done.stdout
    rows = {topic: records(tmp_path / "out", topic) for topic in ("readings", "arriving")}

    assert sorted(rows["readings"], key=lambda row: row["sensor"]) == [
        {"sensor": number, "celsius": 20 + number % 7} for number in range(1000)
    ]
    assert sorted(row["value"] for row in rows["arriving"]) == list(range(len(rows["arriving"])))


def records(folder: Path, topic: str) -> list[dict[str, int]]:
    files = folder.glob(f"{topic}-*.jsonl")
    return [json.loads(json.loads(line)["value"]) for path in files for line in path.read_text().splitlines()]
