"""The wheel: one top-level package, with the connectors inside it, and nothing that only tests use."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from sinksdk.cli.new import FILES
from sinksdk.plugins.classes import connector_class

ROOT = Path(__file__).parents[2]


def built(target: str, project: Path, folder: Path, kind: str = "") -> Path:
    """Build what ``make dist`` builds, without an environment of its own."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    variables = {**os.environ, "SINKSDK_BUILD": kind}
    subprocess.run(command, cwd=project, env=variables, capture_output=True, timeout=60, check=True)
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def source_distribution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(source_distribution: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the source distribution, as ``make dist`` and pip do."""
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(source_distribution) as opened:
        opened.extractall(unpacked, filter="data")
    (project,) = unpacked.iterdir()
    return built("wheel", project, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(folder)  # noqa: S202 - built a moment ago
    return folder


def python(site: Path, folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def test_wheel_has_two_top_level_names(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {
        "sinksdk",
        "pyspark_sinksdk",
        "sinksdk-0.1.0.dist-info",
    }


def test_wheel_contains_all_of_sinksdk_and_no_tests(wheel: Path) -> None:
    held = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("sinksdk/")}

    files = [
        path for folder in ("sinksdk", "connectors") for path in (ROOT / folder).rglob("*") if path.is_file()
    ]
    there = {
        str(path.relative_to(ROOT))
        for path in files
        if path.suffix not in {".c", ".so", ".pyc"} and ".ruff_cache" not in path.parts
    }
    assert {f"sinksdk/templates/my-{kind}/{name}" for kind, names in FILES.items() for name in names} <= held
    assert {name for name in held if not name.endswith(".so")} == {
        f"sinksdk/{name}" if name.startswith("connectors/") else name for name in there
    }
    # Templates contain tests on purpose.
    others = [name for name in held if not name.startswith("sinksdk/templates/")]
    assert [name for name in others if re.search(r"[/_](tests?|zoo|simulation)[/_.]", name)] == []


def test_pure_wheel_holds_the_same_files_without_compiled_parts(wheel: Path, tmp_path: Path) -> None:
    pure = built("wheel", ROOT, tmp_path, "pure")

    assert pure.name.endswith("-py3-none-any.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith(".so")}
    assert set(zipfile.ZipFile(pure).namelist()) == held


@pytest.mark.parametrize("is_package", [True, False])
def test_users_connectors_folder_does_not_hide_the_archiver(
    site: Path, tmp_path: Path, *, is_package: bool
) -> None:
    (tmp_path / "connectors").mkdir()
    (tmp_path / "connectors/s3_archiver.py").write_text("raise ImportError('the user\\'s own')")
    if is_package:
        (tmp_path / "connectors/__init__.py").write_text("")
    code = (
        "import sys; from sinksdk.plugins.classes import connector_class;"
        "print(sys.modules[connector_class('s3-archiver').__module__].__file__)"
    )

    assert python(site, tmp_path, "-c", code) == str(site / "sinksdk/connectors/s3_archiver/connector.py")


def test_users_connectors_module_is_found(site: Path, tmp_path: Path) -> None:
    (tmp_path / "connectors").mkdir()
    (tmp_path / "connectors/s3_archiver.py").write_text(
        "from sinksdk import SinkConnector\nclass Mine(SinkConnector): ..."
    )
    code = (
        "from sinksdk.plugins.classes import connector_class;"
        "print(*(connector_class(n).__name__ for n in ('connectors.s3_archiver:Mine', 's3-archiver')))"
    )

    assert python(site, tmp_path, "-c", code) == "Mine S3ArchiverConnector"


def test_cli_runs_as_a_module(site: Path, tmp_path: Path) -> None:
    assert "s3-archiver" in python(site, tmp_path, "-m", "sinksdk", "plugins")


def test_archiver_is_found_by_its_old_path() -> None:
    # Stored configurations contain this name.
    found = connector_class("s3-archiver")

    assert connector_class("connectors.s3_archiver:S3ArchiverConnector") is found
    assert connector_class("connectors.s3_archiver.S3ArchiverConnector") is found


def test_source_distribution_contains_connectors_without_binaries(source_distribution: Path) -> None:
    with tarfile.open(source_distribution) as opened:
        held = {name.partition("/")[2] for name in opened.getnames()}
    needed = {"__init__.py", "task.py", "formats/_datums.c"}
    assert {f"sinksdk/connectors/s3_archiver/{name}" for name in needed} <= held
    assert "hatch_build.py" in held
    assert not any(name.endswith(".so") for name in held)
    assert {name.partition("/")[0] for name in held if "/" in name} == {
        "sinksdk",
        "pyspark_sinksdk",
        "examples",
        "docs",
    }
