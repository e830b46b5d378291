from __future__ import annotations

import subprocess
import sys


def test_python_runs_it_as_a_module() -> None:
    """It is the same command line, also where no console script is on the path."""
    done = subprocess.run(
        [sys.executable, "-m", "sinksdk", "--help"], check=False, capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0
    assert "validate" in done.stdout
