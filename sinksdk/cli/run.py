"""``sinksdk run``: one connector, until it is stopped or has caught up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from sinksdk.cli.board import FAILED, Snapshot
from sinksdk.cli.driving import drive
from sinksdk.cli.formatting import counted, duration, number, size
from sinksdk.cli.live import LiveProgress
from sinksdk.cli.output import stdout, write
from sinksdk.cli.patience import WarnedOnce, patiently
from sinksdk.cli.plain import PlainProgress, lines_on
from sinksdk.cli.signals import ShutdownSignals
from sinksdk.cli.source import SourceOptions
from sinksdk.cli.spark import SparkOnDemand
from sinksdk.cli.startable import Startable, StartableSource
from sinksdk.cli.startup import prepare
from sinksdk.engine.clock import SystemWallClock
from sinksdk.logs import WARNINGS, LogSettings, configure_logging
from sinksdk.runtime.backoff import Waits

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What ``sinksdk run`` was asked for.

    Args:
        config: the configuration file.
        source: where records come from.
        store: the store's URL.
        master: Spark's master URL.
        until_caught_up: end when everything there is now is committed.
        logs: how it logs, and its tasks do.
        spark_conf: Spark's own settings, each ``KEY=VALUE``.
    """

    config: Path
    source: SourceOptions
    store: str
    master: str
    until_caught_up: bool = False
    logs: LogSettings = WARNINGS
    spark_conf: Sequence[str] = ()


def run(options: RunOptions) -> None:
    """Run a connector to its end, showing its progress.

    Raises:
        ConfigException: something is wrong with the configuration; nothing was read.
        MissingSourceTopicException: a subscribed topic is not there.
        FencedException: a newer driver has taken over.
        ConnectException: it failed for good; what was committed stays committed.
    """
    configure_logging(options.logs)
    with ShutdownSignals() as signals:
        waits = Waits(f"the start of {options.config.name}", SystemWallClock())
        ready = patiently(_preparing(options), waits, signals)
        if ready is None:
            write(stdout(), "stopped: nothing was started", "bold")
            return
        _run_ready(ready, options, signals)


def _preparing(options: RunOptions) -> Callable[[], Startable | StartableSource]:
    return partial(
        prepare,
        options.config,
        options.source,
        options.store,
        options.master,
        options.spark_conf,
        tell=WarnedOnce(),
    )


def _run_ready(ready: Startable | StartableSource, options: RunOptions, signals: ShutdownSignals) -> None:
    console = stdout()
    write(console, f"{ready.config.name}: store {ready.store.url}, Spark on {ready.place.master}", "dim")
    progress = progress_on(console, ready.config.name, options.logs)
    try:
        _run(ready, options, progress, signals)
    finally:
        ready.store.close()
        shown = progress.snapshot()
        if shown.generation or shown.state != FAILED:
            write(console, f"{shown.state}: {summary(shown)}", "bold")
            if shown.total.lost:
                write(console, lost(shown), "bold yellow")


def _run(
    ready: Startable | StartableSource,
    options: RunOptions,
    progress: LiveProgress | PlainProgress,
    signals: ShutdownSignals,
) -> None:
    spark = SparkOnDemand(
        ready.place,
        ready.config.name,
        python_path=(str(Path.cwd()),),
        logs=options.logs,
        is_stopping=lambda: signals.received is not None,
        tell=progress.note,
    )
    with progress, spark:
        worker = ready.place.worker(ready.config.name, spark, progress, first=ready)
        drive(worker, signals, progress, until_caught_up=options.until_caught_up)


def progress_on(
    console: Console, connector: str, logs: LogSettings = WARNINGS
) -> LiveProgress | PlainProgress:
    """A table on a terminal, lines elsewhere; log lines where programs read them."""
    if logs.is_json:
        return PlainProgress(log.info)
    return LiveProgress(console, connector) if console.is_terminal else lines_on(console)


def summary(shown: Snapshot) -> str:
    """What was committed since the start, in one line."""
    if shown.tally is not None:
        return f"{shown.tally}, {duration(shown.seconds)}"
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
