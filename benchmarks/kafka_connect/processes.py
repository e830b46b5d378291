"""Measure CPU seconds and memory of a process and all its descendants."""

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
        cpu: seconds of the process itself, and of its children that ended and were waited for.
    """

    pid: int
    parent: int
    name: str
    cpu: float

    @classmethod
    def parse(cls, line: str) -> Self:
        # The name in parentheses may itself hold spaces and parentheses.
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
    return {process.pid: process for process in _running()}


def _running() -> Iterator[Process]:
    for folder in _PROC.iterdir():
        if folder.name.isdecimal():
            try:
                yield Process.parse((folder / "stat").read_text())
            except OSError:  # it has ended
                continue


def cpu_seconds(root: int) -> dict[str, float]:
    # A child that ended counts as its parent's once the parent has waited for it, as the JVM and PySpark's
    # daemon do; before that it still exists, as a zombie.
    used: dict[str, float] = defaultdict(float)
    for process in tree(root, running()):
        used[process.name] += process.cpu
    return used


def memory(pid: int) -> int:
    # Shared pages count in proportion; 0: the process has ended.
    try:
        text = (_PROC / str(pid) / "smaps_rollup").read_text()
    except OSError:
        return 0
    found = re.search(r"^Pss: +(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


class PeakMemory:
    """The peak memory of a process tree, measured every half second."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._ended = threading.Event()
        self._peak = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def bytes(self) -> int:
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
