"""What is installed: one top-level package, with the connectors inside it."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from importlib.metadata import entry_points
from pathlib import Path

from sinksdk.plugins import GROUP, connector_class


def test_a_folder_of_the_users_own_does_not_hide_the_archiver(tmp_path: Path) -> None:
    """A project with a package called connectors runs the bundled archiver all the same."""
    (tmp_path / "connectors").mkdir()
    (tmp_path / "connectors" / "__init__.py").write_text("")
    code = "from sinksdk.plugins import connector_class; print(connector_class('s3-archiver').__name__)"

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.strip() == "S3ArchiverConnector"


def test_every_bundled_connector_is_below_sinksdk() -> None:
    """Entry points: no top-level name besides sinksdk is needed."""
    (archiver,) = entry_points(group=GROUP, name="s3-archiver")

    assert archiver.value == "sinksdk.connectors.s3_archiver:S3ArchiverConnector"


def test_what_named_the_archiver_by_its_old_path_still_finds_it() -> None:
    """Configurations in stores and files outlive a move."""
    found = connector_class("s3-archiver")

    assert connector_class("connectors.s3_archiver:S3ArchiverConnector") is found
    assert connector_class("connectors.s3_archiver.S3ArchiverConnector") is found


def test_a_source_distribution_holds_the_bundled_connectors(tmp_path: Path) -> None:
    """Also those that are elsewhere in the repository; what is compiled is compiled where it is installed."""
    built = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(tmp_path)]
    subprocess.run(built, cwd=Path(__file__).parents[1], capture_output=True, timeout=60, check=True)

    (archive,) = tmp_path.iterdir()
    with tarfile.open(archive) as opened:
        held = {name.partition("/")[2] for name in opened.getnames()}
    needed = {"__init__.py", "task.py", "_datums.c"}
    assert {f"sinksdk/connectors/s3_archiver/{name}" for name in needed} <= held
    assert "hatch_build.py" in held
    assert not any(name.endswith(".so") for name in held)
