"""How a source is doing, for people and for programs: its tasks, and how far they have read it."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from sinksdk.cli.formatting import number
from sinksdk.cli.output import add_row, table, write, write_table
from sinksdk.cli.task_tally import committed
from sinksdk.control.shown import ConnectorInfo, TaskInfo
from sinksdk.source.positions import as_json


def show_source(console: Console, info: ConnectorInfo) -> None:
    """Each task with what it has committed and what it failed with, then source partitions."""
    for task in info.tasks:
        _show_task(console, info, task)
    if not info.source_offsets:
        return
    rows = table("source partition", "offset", "task", right=1)
    for row in info.source_offsets:
        add_row(rows, as_json(row.partition), as_json(row.offset), number(row.task))
    write_table(console, rows)
    if info.has_more_source_offsets:
        write(console, f"and others: 'sinksdk offsets show {info.name}' has all of them", "dim")


def _show_task(console: Console, info: ConnectorInfo, task: TaskInfo) -> None:
    transactions = info.total_of(task.number).source.transactions
    done = committed(transactions.total, transactions.count)
    rate = (
        f", {number(task.source.rate)} records/s"
        if task.source is not None and task.state == "RUNNING"
        else ""
    )
    write(console, f"task {task.number}: {task.state}: {done}{rate}", "red" if task.trace else "")
    if task.trace:
        write(console, task.trace.rstrip(), "dim")


def source_task(info: ConnectorInfo, task: TaskInfo) -> dict[str, Any]:
    """A task for programs: what it has committed in all generations, and what it does in this one."""
    transactions = info.total_of(task.number).source.transactions
    return {
        "records": transactions.total,
        "transactions": transactions.count,
        "rate": round(task.source.rate, 1) if task.source is not None else 0.0,
        "source_state": task.source.state if task.source is not None else None,
    }


def source_partitions(info: ConnectorInfo) -> list[dict[str, Any]]:
    """Source partitions for programs."""
    return [
        {"partition": dict(row.partition), "offset": dict(row.offset), "task": row.task}
        for row in info.source_offsets
    ]
