"""Fetches jars of Kafka's broker and of Kafka Connect from Maven Central into a cache."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_PATIENCE: Final = 600.0  # seconds; a first download brings Maven's own plugins as well


class MavenError(RuntimeError):
    """The jars cannot be fetched; the message says why."""


def cache_folder() -> Path:
    """``sinksdk`` in ``XDG_CACHE_HOME``, by default in ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sinksdk"


def copy_jars(pom: Path, name: str) -> list[Path]:
    """Return the runtime dependencies of a POM as jars; downloaded the first time.

    Args:
        pom: the project file.
        name: of the folder that caches the jars; another version needs another name.

    Raises:
        MavenError: ``mvn`` is missing or failed.
    """
    folder = cache_folder() / name
    if not folder.is_dir():
        with _alone():
            if not folder.is_dir():  # false if another process was faster
                _download(pom, folder)
    return sorted(folder.glob("*.jar"))


def _download(pom: Path, folder: Path) -> None:
    if shutil.which("mvn") is None:
        message = "Maven (mvn) is not on the PATH: install it (Debian: apt install maven)"
        raise MavenError(message)
    # The download goes into another folder first, so that an interrupted one is not used.
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as unfinished:
        target = Path(unfinished, "jars")
        options = ["-Dstyle.color=never", f"-DoutputDirectory={target}", "-DincludeScope=runtime"]
        _maven("--batch-mode", "--quiet", "--file", str(pom), _COPY, *options)
        target.rename(folder)


@contextmanager
def _alone() -> Iterator[None]:
    # Two Mavens that fill one local repository at once may find incomplete files there.
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / ".maven.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # closing the file releases the lock, as does a crash
        yield


def _maven(*arguments: str) -> None:
    try:
        done = subprocess.run(
            ["mvn", *arguments],
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MavenError(f"Maven did not end within {_PATIENCE:g} s: {error.cmd}") from error
    if done.returncode:
        said = (line.partition("[ERROR]")[2].strip() for line in done.stdout.splitlines())
        reason = next(filter(None, said), done.stdout[-500:])
        raise MavenError(f"Maven could not get the jars: {reason}")
