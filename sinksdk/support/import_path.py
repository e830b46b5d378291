"""Where executors import a connector from."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path


def import_path() -> tuple[str, ...]:
    """Folders that executors import from besides the installed packages, as this process does."""
    installed = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    own = dict.fromkeys(Path(path).absolute() for path in ("", *sys.path))
    return tuple(str(path) for path in own if path.is_dir() and not any(map(path.is_relative_to, installed)))
