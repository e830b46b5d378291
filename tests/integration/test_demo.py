from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.nightly
@pytest.mark.spark
def test_the_demonstration_archives_every_flight_once(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    out = done.stdout
    assert "generation 1: closing, REBALANCE" in out
    dropped = re.search(r"it would drop ([\d,]+) records", out)
    assert dropped
    assert int(dropped[1].replace(",", "")) > 50_000
    assert re.search(r"^total +[\d,]+ +[\d,]+ +[\d,]+ +[\d,]+ +0$", out, re.MULTILINE)
    archived = re.search(r"336,776 records in (\d+) files .*: each offset once, nothing missing", out)
    assert archived
    assert f"caught up: 336,776 records committed, {archived[1]} files (114 MB)" in out
    assert "caught up: 6,099 records committed, 102 files" in out
    assert re.search(r"^B6 +1,107 +7 +10\.5$", out, re.MULTILINE)
    assert "The flights themselves give the same result." in out
    assert not list(tmp_path.glob("sinksdk-demo-*"))
