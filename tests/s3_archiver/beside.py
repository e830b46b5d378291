"""Deterministic stand-ins for the threads that send parts."""

from __future__ import annotations

from collections.abc import Callable


def at_once(run: Callable[[], None]) -> Callable[[], None]:
    run()
    return lambda: None


class Late:
    """Runs a function only when the caller waits for its end, or when the test runs it."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.begun = 0

    def __call__(self, run: Callable[[], None]) -> Callable[[], None]:
        self.begun += 1
        self.waiting.append(run)
        return lambda: self._run(run)

    def run_all(self) -> None:
        for run in list(self.waiting):
            self._run(run)

    def _run(self, run: Callable[[], None]) -> None:
        if run in self.waiting:
            self.waiting.remove(run)
            run()
