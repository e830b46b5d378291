"""What a process holds: open files and connections, and threads."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

KIT_THREAD: Final = "sinksdk kit"
"""What the names of the kit's own threads begin with."""

_FILES: Final = next((path for path in map(Path, ("/proc/self/fd", "/dev/fd")) if path.is_dir()), None)
_SETTLING: Final = 1.0  # seconds that a thread whose work is done may need to be gone
_PAUSE: Final = 0.002


@dataclass(frozen=True, slots=True)
class Held:
    """Open files by number, and threads."""

    files: frozenset[tuple[str, str]]
    threads: frozenset[threading.Thread]

    @classmethod
    def now(cls) -> Held:
        """What this process holds."""
        threads = (thread for thread in threading.enumerate() if not thread.name.startswith(KIT_THREAD))
        return cls(frozenset(_open_files()), frozenset(threads))

    def left_since(self) -> list[str]:
        """What is held now and was not then, in words. Threads are given a moment to end."""
        deadline = time.monotonic() + _SETTLING
        while (now := Held.now()).threads - self.threads and time.monotonic() < deadline:
            time.sleep(_PAUSE)
        files = sorted(f"the open file {name}" for _, name in now.files - self.files)
        threads = sorted(f"the thread {thread.name!r}" for thread in now.threads - self.threads)
        return files + threads


def can_see_files() -> bool:
    """Whether this system tells which files are open."""
    return _FILES is not None


def _open_files() -> list[tuple[str, str]]:
    found = []
    for number in os.listdir(_FILES) if _FILES else ():
        try:
            found.append((number, os.readlink(f"{_FILES}/{number}")))
        except OSError:
            pass  # the listing's own, closed by now
    return found
