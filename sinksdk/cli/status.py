"""``sinksdk list`` and ``sinksdk status``, as text or JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from sinksdk.cli.control import open_herder
from sinksdk.cli.options import DEFAULT_STORE, AsJson, KeptIn, Name, Verbose
from sinksdk.cli.output import (
    add_row,
    command,
    counted,
    moment,
    number,
    print_json,
    stdout,
    table,
    warn,
    write,
    write_table,
)
from sinksdk.cli.progress import committed
from sinksdk.control.shown import ConnectorInfo, TaskInfo
from sinksdk.runtime.backoff import in_words
from sinksdk.source.positions import as_json as compact


@command
def show_connectors(
    *, store: KeptIn = DEFAULT_STORE, as_json: AsJson = False, verbose: Verbose = False
) -> None:
    """List connectors with type, state, tasks, lag (of sinks), records per second and driver."""
    with open_herder(store) as (herder, _):
        found = herder.infos(
            lambda name, error: warn(f"connector {name} cannot be read and is left out: {error}")
        )
    if as_json:
        print_json([_summary(info) for info in found])
        return
    if not found:
        write(stdout(), "no connectors")
        return
    rows = table("name", "type", "state", "tasks", "lag", "records/s", "driver")
    for info in found:
        add_row(
            rows, info.name, info.type, _state(info), number(len(info.tasks)), number(info.lag),
            number(info.rate), info.driver or "–",
        )  # fmt: skip
    write_table(stdout(), rows)


@command
def show_status(
    *, name: Name, store: KeptIn = DEFAULT_STORE, as_json: AsJson = False, verbose: Verbose = False
) -> None:
    """Show a connector: its tasks, its partitions with commit, end, lag and rate, and the last errors.

    Of a source: the records and transactions that its tasks have committed, and the offsets of source
    partitions.
    """
    with open_herder(store) as (herder, _):
        info = herder.info(name)
    if as_json:
        print_json(_status(info))
        return
    console = stdout()
    driver = f"driver {info.driver}" if info.driver else "no living driver"
    write(
        console,
        f"{info.name}: {info.type}, {_state(info)}, generation {info.generation}, {driver}",
        "bold",
    )
    if info.type == "source":
        _show_source(console, info)
    else:
        _show_sink(console, info)
    if info.waiting:
        write(
            console,
            f"waiting for an unavailable system, retrying: {in_words(info.waiting)}",
            "yellow",
        )
    if info.missing_topics:
        write(console, f"missing topics: {', '.join(info.missing_topics)}", "red")
    for row in info.unavailable:
        write(
            console,
            f"{row.topic_partition} has had no leader since {moment(row.since)}: not read until it has one",
            "yellow",
        )
    if more := info.unavailable_count - len(info.unavailable):
        write(console, f"and {number(more)} more partitions have no leader", "yellow")
    if info.trace:
        write(console, info.trace.rstrip(), "dim")


def _show_sink(console: Console, info: ConnectorInfo) -> None:
    for task in info.tasks:
        write(console, f"task {task.number}: {task.state}: {', '.join(map(str, task.partitions))}")
    rows = table("partition", "committed", "end", "lag", "records/s", "last commit", right=4)
    for p in info.partitions:
        add_row(
            rows, str(p.partition), number(p.committed), number(p.end), number(p.lag), number(p.rate),
            moment(p.committed_at), style="red" if p.error else "",
        )  # fmt: skip
    if info.partitions:
        write_table(console, rows)
    for p in info.partitions:
        if p.error:
            write(console, f"{p.partition}: {p.error}", "red")
        if p.lost_offsets:
            write(
                console,
                f"{p.partition}: skipped {counted(p.lost_offsets, 'offset')} that the source no longer has",
                "yellow",
            )
        if p.withdrawn_commits:
            write(console, f"{p.partition}: {counted(p.withdrawn_commits, 'commit')} withdrawn", "yellow")


def _show_source(console: Console, info: ConnectorInfo) -> None:
    for task in info.tasks:
        transactions = info.total_of(task.number).source.transactions
        done = committed(transactions.total, transactions.count)
        if task.source is not None and task.state == "RUNNING":
            done += f", {number(task.source.rate)} records/s"
        write(console, f"task {task.number}: {task.state}: {done}", "red" if task.trace else "")
        if task.trace:
            write(console, task.trace.rstrip(), "dim")
    if not info.source_offsets:
        return
    rows = table("source partition", "offset", "task", right=1)
    for row in info.source_offsets:
        add_row(rows, compact(row.partition), compact(row.offset), number(row.task))
    write_table(console, rows)
    if info.has_more_source_offsets:
        write(console, f"more are listed by 'sinksdk offsets show {info.name}'", "dim")


def _state(info: ConnectorInfo) -> str:
    return (
        info.state
        if info.state in (info.target_state, "FAILED", "DELETING")
        else f"{info.state}, target state {info.target_state}"
    )


def _summary(info: ConnectorInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "type": info.type,
        "state": info.state,
        "target_state": info.target_state,
        "driver": info.driver,
        "tasks": len(info.tasks),
        "lag": info.lag,
        "committed_at": info.committed_at,
        "rate": round(info.rate, 1),
    }


def _status(info: ConnectorInfo) -> dict[str, Any]:
    return {
        **_summary(info),
        "generation": info.generation,
        "deleted": info.is_deleted,
        "missing_topics": list(info.missing_topics),
        "waiting": info.waiting.as_json() if info.waiting else None,
        "unavailable": [row.as_json() for row in info.unavailable],
        "unavailable_count": info.unavailable_count,
        "trace": info.trace,
        "tasks": [_task(info, task) for task in info.tasks],
        **_partitions(info),
    }


def _partitions(info: ConnectorInfo) -> dict[str, Any]:
    if info.type == "source":
        return {"source_partitions": [row.model_dump() for row in info.source_offsets]}
    return {
        "partitions": [
            {**row.model_dump(exclude={"task", "failures"}), "rate": round(row.rate, 1)}
            for row in info.partitions
        ]
    }


def _task(info: ConnectorInfo, task: TaskInfo) -> dict[str, Any]:
    own: dict[str, Any] = {"partitions": list(map(str, task.partitions))}
    if info.type == "source":
        transactions = info.total_of(task.number).source.transactions
        own = {
            "records": transactions.total,
            "transactions": transactions.count,
            "rate": round(task.source.rate, 1) if task.source is not None else 0.0,
            "source_state": task.source.state if task.source is not None else None,
        }
    return {"id": task.number, "state": task.state, **own, "trace": task.trace}
