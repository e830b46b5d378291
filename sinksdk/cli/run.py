"""``sinksdk run``: one connector, until it is stopped or has caught up."""

from __future__ import annotations

import logging
from functools import cache, partial
from pathlib import Path

from rich.console import Console
from rich.text import Text

from sinksdk.cli.display import LiveProgress, PlainProgress
from sinksdk.cli.output import counted, duration, number, size, stdout, warn, write
from sinksdk.cli.progress import FAILED, Snapshot
from sinksdk.cli.signals import ShutdownSignals, drive
from sinksdk.launch.patience import patiently
from sinksdk.launch.prepare import Place, prepare
from sinksdk.launch.running import RunningConnector
from sinksdk.support.logs import WARNINGS, LogSettings, configure_logging

log = logging.getLogger(__name__)


def run(config: Path, place: Place, logs: LogSettings, *, until_caught_up: bool) -> None:
    """Run a connector to its end, showing its progress.

    Args:
        logs: how this process logs, and the connector's tasks.

    Raises:
        ConfigException: something is wrong with the configuration; nothing was read.
        MissingSourceTopicException: a subscribed topic is not there.
        FencedException: a newer driver has taken over.
        ConnectException: it failed for good; what was committed stays committed.
    """
    configure_logging(logs)
    console = stdout()
    with ShutdownSignals() as signals:
        prepared = patiently(
            partial(prepare, config, place, cache(warn)),  # each warning once, however often it is tried
            f"the start of {config.name}",
            lambda: signals.is_received,
        )
        if prepared is None:
            write(console, "stopped: nothing was started", "bold")
            return
        deployment, ready = prepared
        name = ready.config.name
        write(console, f"{name}: store {deployment.store.url}, Spark on {deployment.spark.master}", "dim")
        progress = progress_on(console, name, logs)
        try:
            with progress:
                connector = RunningConnector(
                    prepared,
                    until_caught_up=until_caught_up,
                    listener=progress,
                    python_path=(str(Path.cwd()),),
                    logs=logs,
                    is_stopping=lambda: signals.is_received,
                    tell=progress.note,
                )
                drive(connector, signals, progress)
        finally:
            shown = progress.snapshot()
            if shown.generation or shown.state != FAILED:
                write(console, f"{shown.state}: {summary(shown)}", "bold")
                if shown.total.lost:
                    write(console, lost(shown), "bold yellow")


def progress_on(
    console: Console, connector: str, logs: LogSettings = WARNINGS
) -> LiveProgress | PlainProgress:
    """A table on a terminal, lines elsewhere; log lines where programs read them."""
    if logs.is_json:
        return PlainProgress(log.info)
    if console.is_terminal:
        return LiveProgress(console, connector)
    return PlainProgress(lambda text: console.print(Text(text), soft_wrap=True))


def summary(shown: Snapshot) -> str:
    """The commits since the start, in one line."""
    if shown.source is not None:
        return f"{shown.source}, {duration(shown.seconds)}"
    offsets = "" if shown.offsets == shown.records else f" ({counted(shown.offsets, 'offset')})"
    parts = [f"{counted(shown.records, 'record')}{offsets} committed"]
    if shown.total.files is not None:
        files = counted(shown.total.files, "file")
        parts.append(f"{files} ({size(shown.total.size)})" if shown.total.size is not None else files)
    parts.append(duration(shown.seconds))
    return ", ".join(parts)


def lost(shown: Snapshot) -> str:
    """What the source had forgotten before it was read, by partition."""
    each = ", ".join(f"{row.name}: {number(row.lost)}" for row in shown.rows if row.lost)
    return f"lost before they were read, and skipped: {counted(shown.total.lost, 'offset')} ({each})"
