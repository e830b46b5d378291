"""The interruption: the tasks' uncommitted records, and what happened to them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

from sinksdk.cli.output import number
from sinksdk.context import ClosingReason
from sinksdk.control.progress import Listener, PartitionView
from sinksdk.store.records import GenerationPlan

_SEEN: Final = 1.0  # seconds after which every task has seen the close request


@dataclass(frozen=True, slots=True)
class Interrupted:
    """One partition at the rebalance.

    Args:
        read: offset after the last record its task had read.
        whole: where the last whole file ends: the most that a sink can commit that does not know that
            it is closing.
    """

    name: str
    read: int
    whole: int
    committed: int


class Interruption(Listener):
    """A listener that passes on what it hears, and shows what one rebalance did.

    Args:
        flush_size: records of a whole file.
        resume: lets S3 answer again.
        on_interrupted: called once, after the rebalance.
    """

    def __init__(
        self,
        listener: Listener,
        flush_size: int,
        resume: Callable[[], None],
        on_interrupted: Callable[[Sequence[Interrupted]], None],
    ) -> None:
        self._listener = listener
        self._flush_size = flush_size
        self._resume = resume
        self._on_interrupted = on_interrupted
        self._reason: ClosingReason | None = None

    def planned(self, plan: GenerationPlan) -> None:
        """Passed on."""
        self._reason = None
        self._listener.planned(plan)

    def progress(self, partitions: Sequence[PartitionView]) -> None:
        """Passed on."""
        self._listener.progress(partitions)

    def closing(self, generation: int, reason: ClosingReason) -> None:
        """Once every task has seen it, S3 answers again."""
        self._reason = reason
        self._listener.closing(generation, reason)
        threading.Timer(_SEEN, self._resume).start()

    def ended(self, generation: int, partitions: Sequence[PartitionView]) -> None:
        """What the rebalance has interrupted is shown."""
        self._listener.ended(generation, partitions)
        if self._reason is ClosingReason.REBALANCE:
            self._on_interrupted([self._interrupted(view) for view in partitions])

    def _interrupted(self, view: PartitionView) -> Interrupted:
        read, committed = view.position or 0, view.committed or 0
        # The topic's offsets have no gaps and the first generation began at 0.
        return Interrupted(str(view.partition), read, read // self._flush_size * self._flush_size, committed)


def show_interrupted(console: Console, rows: Sequence[Interrupted]) -> None:
    """The table that this project is about."""
    table = Table(box=None, padding=(0, 0, 0, 3), pad_edge=False, header_style="dim")
    table.add_column("partition")
    for heading in (
        "read to",
        "last whole\nfile ends",
        "dropped, read again\nwithout commit-on-close",
        "committed\nhere",
        "read again\nhere",
    ):
        table.add_column(heading, justify="right", vertical="bottom")
    for row in rows:
        table.add_row(*_cells(row))
    total = Interrupted("total", *(sum(values) for values in zip(*map(_numbers, rows), strict=True)))
    table.add_row(*_cells(total), style="bold")
    console.print(table)


def _numbers(row: Interrupted) -> tuple[int, int, int]:
    return row.read, row.whole, row.committed


def _cells(row: Interrupted) -> tuple[str, ...]:
    again = number(row.read - row.committed)
    return (
        row.name,
        number(row.read),
        number(row.whole),
        number(row.read - row.whole),
        number(row.committed),
        again,
    )
