"""A sink in a package of its own, from source to records, as examples/outside/try_it.py shows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.archive_site import descendants

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(900)]

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "examples/outside/try_it.py"


def test_a_package_outside_the_repository_is_built_installed_checked_and_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both come from their wheels, the kit finds nothing, every record arrives once, and nothing stays behind."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    done = subprocess.run(
        [sys.executable, SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=840
    )

    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    for module in ("sinksdk/__init__.py", "csv_folder_sink.py"):
        assert any(line.startswith(f"installed: {tmp_path}") and line.endswith(module) for line in lines), (
            lines
        )
    assert "exactly once" in done.stdout
    assert [line for line in lines if line.endswith("records, each once")] == [
        "readings-0: 5000 records, each once",
        "readings-1: 5000 records, each once",
    ]
    assert list(tmp_path.iterdir()) == []
    left = [command for _, command in descendants(1) if str(tmp_path) in command]
    assert left == []
