"""What a process holds: open files and connections, and threads."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

KIT_THREAD: Final = "sinksdk kit"
"""What the names of the kit's own threads begin with."""

_FILES: Final = next((path for path in map(Path, ("/proc/self/fd", "/dev/fd")) if path.is_dir()), None)
_SETTLING: Final = 1.0  # seconds that a thread whose work is done may need to be gone
_PAUSE: Final = 0.002


class OpenFile(NamedTuple):
    """An open file or connection. Its name is left out: it may be renamed while it is open."""

    number: int
    device: int
    inode: int

    @property
    def name(self) -> str:
        """What it is called now."""
        try:
            return str(Path(f"{_FILES}/{self.number}").readlink())
        except OSError:
            return f"number {self.number}"


@dataclass(frozen=True, slots=True)
class Held:
    """Open files, and threads."""

    files: frozenset[OpenFile]
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
        files = sorted(f"the open file {file.name}" for file in now.files - self.files)
        threads = sorted(f"the thread {thread.name!r}" for thread in now.threads - self.threads)
        return files + threads


def can_see_files() -> bool:
    """Whether this system tells which files are open."""
    return _FILES is not None


def _open_files() -> list[OpenFile]:
    found = []
    for number in [int(entry.name) for entry in (_FILES.iterdir() if _FILES else ())]:
        with suppress(OSError):  # the listing's own is closed by now
            status = os.fstat(number)
            found.append(OpenFile(number, status.st_dev, status.st_ino))
    return found
