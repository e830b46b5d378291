"""CPU seconds and memory of a process and all that it has started."""

from __future__ import annotations

import os
import re
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """One line of ``/proc/<pid>/stat``.

    Args:
        pid: its id.
        parent: its parent's.
        name: of its program, as in ``java``.
        cpu: seconds it has used itself, and those that its children had used when they ended and were
            waited for.
    """

    pid: int
    parent: int
    name: str
    cpu: float

    @classmethod
    def parse(cls, line: str) -> Self:
        """From the kernel's text. The name in parentheses may hold spaces and parentheses itself."""
        pid, _, rest = line.partition(" (")
        name, _, numbers = rest.rpartition(")")
        fields = numbers.split()
        user, system, children_user, children_system = map(int, fields[11:15])
        return cls(
            int(pid),
            parent=int(fields[1]),
            name=name,
            cpu=(user + system + children_user + children_system) / _TICKS,
        )


def tree(root: int, processes: Mapping[int, Process]) -> list[Process]:
    """The process ``root`` and all below it."""
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    found, waiting = [], [root] if root in processes else []
    while waiting:
        pid = waiting.pop()
        found.append(processes[pid])
        waiting += children.get(pid, [])
    return found


def running() -> dict[int, Process]:
    """All processes of this machine."""
    return {process.pid: process for process in _running()}


def _running() -> Iterator[Process]:
    for folder in _PROC.iterdir():
        if folder.name.isdecimal():
            try:
                yield Process.parse((folder / "stat").read_text())
            except OSError:  # it has ended
                continue


def cpu_seconds(root: int) -> dict[str, float]:
    """What the process and all below it have used until now, by program, with those that have ended.

    A child that ended counts as its parent's as soon as that has waited for it, as the JVM and PySpark's
    daemon do; before that it is still there, as a zombie.
    """
    used: dict[str, float] = defaultdict(float)
    for process in tree(root, running()):
        used[process.name] += process.cpu
    return used


def memory(pid: int) -> int:
    """Bytes of a process; a page that it shares with others counts in proportion. 0: it has ended."""
    try:
        text = (_PROC / str(pid) / "smaps_rollup").read_text()
    except OSError:
        return 0
    found = re.search(r"^Pss: +(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


class PeakMemory:
    """The most memory of a process tree, looked at every half second while it is open."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._ended = threading.Event()
        self._peak = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def bytes(self) -> int:
        """The most so far; see :func:`memory`."""
        return self._peak

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._ended.wait(0.5):
            self._look()

    def _look(self) -> None:
        now = sum(memory(process.pid) for process in tree(self._root, running()))
        self._peak = max(self._peak, now)
