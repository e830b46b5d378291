"""Compiles sinksdk's extension modules where that can be done; else the wheel is pure Python.

Run by hatchling. The modules keep to Python's stable interface of 3.11, so that one wheel serves all later
ones, and link against nothing.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags

SOURCES = (
    "sinksdk/topics/kafka/_messages.c",
    "sinksdk/values/_json.c",
    "sinksdk/values/_avro.c",
    "sinksdk/connectors/s3_archiver/formats/_datums.c",
)
INTERFACE = "cp311-abi3"


class CompiledLoops(BuildHookInterface[Any]):
    """Puts the compiled modules into a wheel, or beside their sources where sinksdk is installed editable."""

    _made: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it collects the files."""
        if self.target_name != "wheel":
            return
        is_editable = version == "editable"
        self._made = None if is_editable else tempfile.TemporaryDirectory(prefix="sinksdk-")
        for name in SOURCES:
            source = Path(self.root, name)
            beside = source.with_suffix(".abi3.so")
            made = beside if self._made is None else Path(self._made.name, beside.name)
            try:
                compile_module(source, made)
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                said = (getattr(error, "stderr", None) or str(error)).strip()
                self.app.display_warning(
                    f"{name} was not compiled, without which sinksdk takes several times the processor time "
                    f"there: {said}"
                )
                continue
            if not is_editable:
                build_data["force_include"][str(made)] = str(beside.relative_to(self.root))
                build_data["pure_python"] = False
                build_data["tag"] = f"{INTERFACE}-{platform()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - hatchling's
        """Called by hatchling when the wheel is written."""
        if self._made is not None:
            self._made.cleanup()


def compile_module(source: Path, made: Path) -> None:
    """Compiles a module as Python's own ones were, with ``CC`` and ``CFLAGS`` where they are set.

    Raises:
        ValueError: this Python has no stable interface, or does not say how modules are made.
        OSError, subprocess.SubprocessError: there is no compiler, or it fails.
    """
    link = shlex.split(sysconfig.get_config_var("LDSHARED") or "")
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED") or not link:
        raise ValueError("this Python loads no modules of its stable interface")  # noqa: EM101 - one sentence
    if "CC" in os.environ:
        link[:1] = shlex.split(os.environ["CC"])
    command = [
        *link,
        *("-std=c11", "-O2", "-fPIC", "-DNDEBUG", "-fvisibility=hidden", "-Wall", "-Wextra"),
        *shlex.split(os.environ.get("CFLAGS", "")),
        *(f"-I{sysconfig.get_path(name)}" for name in ("include", "platinclude")),
        *(str(source), "-o", str(made)),
    ]
    subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - the compiler that is configured


def platform() -> str:
    """The part of a wheel's name that says where it runs: this kind of system, no lesser one."""
    tags = (tag.platform for tag in sys_tags())
    return next(tag for tag in tags if "manylinux" not in tag and "musllinux" not in tag)
