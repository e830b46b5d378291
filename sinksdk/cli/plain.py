"""Progress where nobody redraws lines: in a pipe, a file, a container's log."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, Self

from rich.console import Console
from rich.text import Text

from sinksdk.cli.board import Board, Snapshot
from sinksdk.cli.formatting import counted, duration, number, size
from sinksdk.cli.task_tally import TaskTally, ended, progress
from sinksdk.context import ClosingReason
from sinksdk.control.progress import PartitionView, SourceTaskView
from sinksdk.store.records import GenerationPlan

_INTERVAL: Final = 5.0  # seconds between two lines of progress


class PlainProgress(Board):
    """A listener that writes a line per event, and one every few seconds in between.

    Args:
        write: takes a line.
        interval: seconds between two lines of progress; infinite: there are none.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        *,
        interval: float = _INTERVAL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(clock)
        self._write = write
        self._interval = interval
        self._begun = clock()
        self._next = 0.0
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to put away."""

    def note(self, text: str) -> None:
        """A line of its own."""
        self._write(text)

    def planned(self, plan: GenerationPlan) -> None:
        """See :class:`~sinksdk.control.progress.Listener`."""
        super().planned(plan)
        self._begun = self._clock()
        self._next = self._begun + self._interval
        self.note(f"generation {plan.generation}: {_work(plan)}")

    def progress(self, partitions: Sequence[PartitionView]) -> None:
        """See :class:`~sinksdk.control.progress.Listener`."""
        super().progress(partitions)
        self._tell_if_due(_amounts)

    def closing(self, generation: int, reason: ClosingReason) -> None:
        """See :class:`~sinksdk.control.progress.Listener`."""
        super().closing(generation, reason)
        self.note(f"generation {generation}: closing, {reason}")

    def ended(self, generation: int, partitions: Sequence[PartitionView]) -> None:
        """See :class:`~sinksdk.control.progress.Listener`."""
        super().ended(generation, partitions)
        seconds = duration(self._clock() - self._begun)
        self.note(f"generation {generation}: ended after {seconds}, {_outcome(partitions)}")
        for view in partitions:
            if view.failure is not None:
                self.note(f"{view.partition} failed at offset {number(view.position)}: {view.failure}")

    def tasks(self, tasks: Sequence[SourceTaskView]) -> None:
        """See :class:`~sinksdk.control.progress.SourceListener`."""
        super().tasks(tasks)
        self._tell_if_due(lambda shown: progress(shown.tally or TaskTally()))

    def tasks_ended(self, generation: int, tasks: Sequence[SourceTaskView]) -> None:
        """See :class:`~sinksdk.control.progress.SourceListener`."""
        super().tasks_ended(generation, tasks)
        seconds = duration(self._clock() - self._begun)
        self.note(f"generation {generation}: ended after {seconds}, {ended(tasks)}")
        for view in tasks:
            if view.failure is not None:
                self.note(f"task {view.task} failed: {view.failure}")

    def _tell_if_due(self, amounts: Callable[[Snapshot], str]) -> None:
        """A line of progress, if the last one is long enough ago and there is news."""
        if self._clock() < self._next:
            return
        shown = self.snapshot()
        line = f"{shown.state}: {amounts(shown)}"
        if line != self._last:
            self._last = line
            self._next = self._clock() + self._interval
            self.note(line)


def lines_on(console: Console) -> PlainProgress:
    """Lines where people read them."""
    return PlainProgress(lambda text: console.print(Text(text), soft_wrap=True))


def _work(plan: GenerationPlan) -> str:
    ranges = [planned for task in plan.tasks for planned in task.ranges]
    offsets = sum(planned.end - planned.start for planned in ranges)
    if not ranges:
        return counted(len(plan.tasks), "task")  # a source's
    return (
        f"{counted(len(plan.tasks), 'task')}, {counted(len(ranges), 'partition')}, "
        f"{counted(offsets, 'offset')} to read"
    )


def _amounts(shown: Snapshot) -> str:
    total = shown.total
    parts = [f"{number(shown.offsets)} committed", f"lag {number(total.lag)}"]
    parts.append(f"{number(total.rate)} records/s")
    if total.files is not None:
        parts.append(counted(total.files, "file"))
    if total.size is not None:
        parts.append(size(total.size))
    return ", ".join(parts)


def _outcome(partitions: Sequence[PartitionView]) -> str:
    read, again = sum(view.records for view in partitions), sum(view.tail for view in partitions)
    if not read:
        return "nothing read"
    committed = (
        f"{number(read - again)} committed, {number(again)} kept for later" if again else "all committed"
    )
    return f"{counted(read, 'record')} read, {committed}"
