"""Compile sinksdk's extension modules while hatchling builds a wheel.

The modules use the stable ABI of Python 3.11 (abi3) and link against libc only, so one wheel per platform
serves all later Pythons. Without a compiler the wheel is pure Python: everything works, several times slower
in these loops. ``SINKSDK_BUILD`` overrides that: ``pure`` compiles nothing, ``compiled`` fails where a module
does not compile.
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
KINDS = ("", "pure", "compiled")


class CompiledLoops(BuildHookInterface[Any]):
    """Put the compiled modules into a wheel, or next to their sources for an editable installation."""

    _made: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the modules before hatchling collects the files."""
        kind = os.environ.get("SINKSDK_BUILD", "")
        if kind not in KINDS:
            message = f"SINKSDK_BUILD is {kind!r}; it may be unset, 'pure' or 'compiled'"
            raise ValueError(message)
        if self.target_name != "wheel" or kind == "pure":
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
                if kind == "compiled":
                    raise
                cause = (getattr(error, "stderr", None) or str(error)).strip()
                self.app.display_warning(
                    f"{name} was not compiled; sinksdk uses several times the processor time there: {cause}"
                )
                continue
            if not is_editable:
                build_data["force_include"][str(made)] = str(beside.relative_to(self.root))
                build_data["pure_python"] = False
                build_data["tag"] = f"{INTERFACE}-{platform()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - hatchling's
        """Remove the compiled modules when hatchling has written the wheel."""
        if self._made is not None:
            self._made.cleanup()


def compile_module(source: Path, made: Path) -> None:
    """Compile a module with the linker command of this Python, or with ``CC`` and ``CFLAGS`` if they are set.

    Raises:
        ValueError: this Python has no stable ABI, or does not say how extension modules are linked.
        OSError, subprocess.SubprocessError: there is no compiler, or it fails.
    """
    link = shlex.split(sysconfig.get_config_var("LDSHARED") or "")
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED") or not link:
        raise ValueError("this Python loads no abi3 modules")
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
    """Return this machine's platform tag; auditwheel replaces it by a manylinux tag (``make dist``)."""
    tags = (tag.platform for tag in sys_tags())
    return next(tag for tag in tags if "manylinux" not in tag and "musllinux" not in tag)
