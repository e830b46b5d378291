"""What is installed: one top-level package, with the connectors inside it."""

from __future__ import annotations

import subprocess
import sys
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
