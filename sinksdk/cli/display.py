"""A running connector's progress: a live table on a terminal, log-like lines elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sinksdk.cli.output import counted, duration, number, size
from sinksdk.cli.progress import Amounts, RunProgress, Snapshot, SourceTotals
from sinksdk.context import ClosingReason
from sinksdk.model.status import PartitionStatus
from sinksdk.store.records import GenerationPlan
from sinksdk.store.reports import SourceProgress

_MOST_ROWS: Final = 20
_MOST_FAILURES: Final = 5
_WIDE: Final = 100  # terminal width in columns from which the table gets wider padding
_PER_SECOND: Final = 4
_INTERVAL: Final = 5.0  # seconds between two lines of progress


# -- on a terminal -----------------------------------------------------------------------------------


class LiveProgress(RunProgress):
    def __init__(self, console: Console, connector: str) -> None:
        super().__init__()
        self._console = console
        self._connector = connector
        # Log lines of tasks go to stderr: they appear above the table.
        self._live = Live(
            console=console, refresh_per_second=_PER_SECOND, get_renderable=self._render, redirect_stderr=True
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        self._console.print(Text(text))

    def _render(self) -> RenderableType:
        return render(self._connector, self.snapshot(), self._console.width)


def render(connector: str, shown: Snapshot, width: int) -> RenderableType:
    parts = [connector, f"generation {shown.generation}"] if shown.generation else [connector]
    headline = Text(" · ".join([*parts, shown.state, duration(shown.seconds)]), style="bold")
    if shown.source is not None:
        return Group(headline, Text(shown.source.with_rate()), _task_table(shown.source))
    if not shown.rows:
        return headline
    return Group(headline, _table(shown, width), *_failures(shown.rows))


def _table(shown: Snapshot, width: int) -> Table:
    table = Table(box=None, padding=(0, 0, 0, 3 if width >= _WIDE else 2), pad_edge=False, header_style="dim")
    table.add_column("partition", overflow="ellipsis", no_wrap=True, min_width=9)
    for heading in ("read to", "committed", "end", "lag", "records/s", "files", "bytes"):
        table.add_column(heading, justify="right", no_wrap=True)
    # The partitions with the largest lag, in their usual order.
    lagging = sorted(shown.rows, key=lambda row: -(row.lag or 0))[:_MOST_ROWS]
    for row in sorted(lagging, key=shown.rows.index):
        cells = _cells(str(row.partition), Amounts.of([row]))
        table.add_row(*cells, style="red" if row.error else "")
    if len(shown.rows) > _MOST_ROWS:
        table.add_row(f"… and {len(shown.rows) - _MOST_ROWS} more", style="dim")
    if len(shown.rows) > 1:
        table.add_row(*_cells("total", shown.total), style="bold")
    return table


def _task_table(source: SourceTotals) -> Table:
    table = Table(box=None, padding=(0, 0, 0, 2), pad_edge=False, header_style="dim")
    table.add_column("task", justify="right")
    table.add_column("state")
    for heading in ("records", "transactions", "records/s"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("error", overflow="fold")
    for task_number, task in islice(source.tasks.items(), _MOST_ROWS):
        cells = number(task.records), number(task.transactions), number(task.rate), task.failure or ""
        table.add_row(str(task_number), task.state, *cells, style="red" if task.failure else "")
    return table


def _cells(name: str, row: Amounts) -> tuple[str, ...]:
    offsets = map(number, (row.position, row.committed, row.end, row.lag))
    return (name, *offsets, number(row.rate), number(row.files), size(row.size))


def _failures(rows: Sequence[PartitionStatus]) -> Iterator[Text]:
    failed = [row for row in rows if row.error]
    for row in failed[:_MOST_FAILURES]:
        yield Text(f"{row.partition}: {row.error}", style="red")
    if len(failed) > _MOST_FAILURES:
        yield Text(f"and {counted(len(failed) - _MOST_FAILURES, 'more failed partition')}", style="red")


# -- elsewhere ---------------------------------------------------------------------------------------


class PlainProgress(RunProgress):
    """Writes a line per event, and one every few seconds in between.

    Args:
        quiet: seconds between two lines about generations without failures; 0: a line at the
            start and the end of each.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        *,
        interval: float = _INTERVAL,
        quiet: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(clock)
        self._quiet = quiet
        self._quiet_until = -math.inf
        self._unwritten = 0
        self.note = write
        self._interval = interval
        self._begun = clock()
        self._next = 0.0
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def planned(self, plan: GenerationPlan) -> None:
        super().planned(plan)
        self._begun = self._clock()
        self._next = self._begun + self._interval
        if not self._quiet:
            self.note(f"generation {plan.generation}: {_work(plan)}")

    def progress(self, partitions: Sequence[PartitionStatus]) -> None:
        super().progress(partitions)
        self._write_if_due(_amounts)

    def closing(self, generation: int, reason: ClosingReason) -> None:
        super().closing(generation, reason)
        self.note(f"generation {generation}: closing, {reason}")

    def ended(self, generation: int, partitions: Sequence[PartitionStatus]) -> None:
        super().ended(generation, partitions)
        has_failed = any(view.error is not None for view in partitions)
        self._write_end(generation, _outcome(partitions), is_news=has_failed)
        for view in partitions:
            if view.error is not None:
                retry = f", retried in {duration(view.opens_in)}" if view.opens_in else ""
                # The message of the failure itself names the offset of a bad record.
                read = f"read up to offset {number(view.position)}"
                self.note(f"{view.partition} failed ({read}){retry}: {view.error}")

    def tasks(self, tasks: Mapping[int, SourceProgress]) -> None:
        super().tasks(tasks)
        self._write_if_due(lambda shown: (shown.source or SourceTotals()).with_rate())

    def tasks_ended(self, generation: int, tasks: Mapping[int, SourceProgress]) -> None:
        super().tasks_ended(generation, tasks)
        has_failed = any(task.failure is not None for task in tasks.values())
        self._write_end(generation, str(SourceTotals(tasks)), is_news=has_failed)
        for task_number, task in tasks.items():
            if task.failure is not None:
                self.note(f"task {task_number} failed: {task.failure}")

    def _write_end(self, generation: int, outcome: str, *, is_news: bool) -> None:
        now = self._clock()
        if not is_news and now < self._quiet_until:
            self._unwritten += 1
            return
        skipped = (
            f"; {counted(self._unwritten, 'generation')} before it were not logged" if self._unwritten else ""
        )
        self._quiet_until, self._unwritten = now + self._quiet, 0
        self.note(f"generation {generation}: completed in {duration(now - self._begun)}, {outcome}{skipped}")

    def _write_if_due(self, amounts: Callable[[Snapshot], str]) -> None:
        if self._clock() < self._next:
            return
        shown = self.snapshot()
        line = f"{shown.state}: {amounts(shown)}"
        if line != self._last:
            self._last = line
            self._next = self._clock() + self._interval
            self.note(line)


def _work(plan: GenerationPlan) -> str:
    ranges = [planned for task in plan.tasks for planned in task.ranges]
    if not ranges:
        return counted(len(plan.tasks), "task")  # the driver runs a source
    offsets = sum(planned.end - planned.start for planned in ranges)
    return (
        f"{counted(len(plan.tasks), 'task')}, {counted(len(ranges), 'partition')}, "
        f"{counted(offsets, 'offset')} to read"
    )


def _amounts(shown: Snapshot) -> str:
    total = shown.total
    parts = [f"{counted(shown.records, 'record')} committed", f"lag {number(total.lag)}"]
    parts.append(f"{number(total.rate)} records/s")
    if total.files is not None:
        parts.append(counted(total.files, "file"))
    if total.size is not None:
        parts.append(size(total.size))
    return ", ".join(parts)


def _outcome(partitions: Sequence[PartitionStatus]) -> str:
    read, tail = sum(view.records for view in partitions), sum(view.tail for view in partitions)
    if not read:
        return "nothing read"
    committed = (
        f"{number(read - tail)} committed, {number(tail)} left for the next generation"
        if tail
        else "all committed"
    )
    return f"{counted(read, 'record')} read, {committed}"
