"""Ways of running something beside the task's thread that leave nothing to chance."""

from __future__ import annotations

from collections.abc import Callable


def at_once(run: Callable[[], None]) -> Callable[[], None]:
    """Runs it here and now, as if there were nothing beside."""
    run()
    return lambda: None


class Late:
    """Runs what is begun when it is waited for, or when the test says so: as late as can be."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.begun = 0

    def __call__(self, run: Callable[[], None]) -> Callable[[], None]:
        self.begun += 1
        self.waiting.append(run)
        return lambda: self._run(run)

    def run_all(self) -> None:
        """What was begun ends now, in its order."""
        for run in list(self.waiting):
            self._run(run)

    def _run(self, run: Callable[[], None]) -> None:
        if run in self.waiting:
            self.waiting.remove(run)
            run()
