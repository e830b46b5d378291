from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kafka import maven
from tests.kafka.maven import MavenError, copy_jars


@pytest.fixture
def mvn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    # The PATH contains no other programs.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    def install(script: str) -> Path:
        (tmp_path / "bin").mkdir()
        program = tmp_path / "bin" / "mvn"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return maven.cache_folder()

    return install


_COPY = """
for argument in "$@"; do case "$argument" in -DoutputDirectory=*) target="${argument#*=}";; esac; done
/bin/mkdir -p "$target"
for name in kafka-server-9 kafka-clients-9; do : > "$target/$name.jar"; done
echo run >> "$target/../../runs"
"""


def copied() -> list[str]:
    return [jar.name for jar in copy_jars(Path("pom.xml"), "kafka-9")]


def test_maven_runs_once(mvn: Callable[[str], Path]) -> None:
    cache = mvn(_COPY)

    assert copied() == ["kafka-clients-9.jar", "kafka-server-9.jar"]
    assert copied() == ["kafka-clients-9.jar", "kafka-server-9.jar"]
    assert (cache / "runs").read_text() == "run\n"


def test_concurrent_requests_for_jars_run_maven_once(mvn: Callable[[str], Path]) -> None:
    cache = mvn(_COPY + "/bin/sleep 0.3\n")

    with ThreadPoolExecutor() as both:
        first, second = both.map(lambda _: copied(), range(2))

    assert first == second
    assert (cache / "runs").read_text() == "run\n"


def test_failed_download_leaves_no_file(mvn: Callable[[str], Path]) -> None:
    cache = mvn(
        """
for argument in "$@"; do case "$argument" in -DoutputDirectory=*) target="${argument#*=}";; esac; done
/bin/mkdir -p "$target"; : > "$target/kafka-clients-9.jar"
echo "[ERROR] "; echo "[ERROR] Could not find artifact kafka-server"; exit 1
"""
    )

    with pytest.raises(MavenError, match=r"could not get the jars: Could not find artifact kafka-server"):
        copied()

    assert [path.name for path in cache.iterdir()] == [".maven.lock"]


def test_missing_maven_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(MavenError, match=r"mvn.* is not on the PATH: install it"):
        copied()
