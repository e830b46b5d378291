"""What the tasks of a source have done since its driver was started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sinksdk.cli.formatting import counted, number
from sinksdk.control.progress import SourceTaskView


@dataclass(frozen=True, slots=True)
class TaskTally:
    """Of all generations together; the tasks are those of the newest one.

    Args:
        tasks: as they last were.
        records: records that the generations which have ended had committed.
        transactions: in how many transactions.
    """

    tasks: Sequence[SourceTaskView] = ()
    records: int = 0
    transactions: int = 0

    def at(self, tasks: Sequence[SourceTaskView]) -> TaskTally:
        """Once the tasks of the running generation are so far."""
        return TaskTally(tuple(tasks), self.records, self.transactions)

    def ended(self, tasks: Sequence[SourceTaskView]) -> TaskTally:
        """Once they have ended so."""
        return TaskTally(
            (),
            self.records + sum(task.records for task in tasks),
            self.transactions + sum(task.transactions for task in tasks),
        )

    @property
    def rate(self) -> float:
        """Records per second, lately."""
        return sum(task.rate for task in self.tasks)

    def __str__(self) -> str:
        """What was committed, in a few words."""
        return committed(
            self.records + sum(task.records for task in self.tasks),
            self.transactions + sum(task.transactions for task in self.tasks),
        )


def committed(records: int, transactions: int) -> str:
    """Records and transactions, in a few words."""
    return f"{counted(records, 'record')} committed in {counted(transactions, 'transaction')}"


def ended(tasks: Sequence[SourceTaskView]) -> str:
    """What the tasks of a generation have committed, in a few words."""
    return committed(sum(task.records for task in tasks), sum(task.transactions for task in tasks))


def progress(tally: TaskTally) -> str:
    """How far it is, in a few words."""
    return f"{tally}, {number(tally.rate)} records/s"
