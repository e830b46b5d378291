"""``sinksdk run``: one connector, until it is stopped or has caught up."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from sinksdk.cli.board import FAILED, Snapshot
from sinksdk.cli.driving import drive
from sinksdk.cli.formatting import counted, duration, number, size
from sinksdk.cli.live import LiveProgress
from sinksdk.cli.output import stdout, warn, write
from sinksdk.cli.plain import PlainProgress, lines_on
from sinksdk.cli.signals import ShutdownSignals
from sinksdk.cli.source import SourceOptions
from sinksdk.launch.patience import WarnedOnce, patiently
from sinksdk.launch.prepare import Place, Prepared, prepare
from sinksdk.launch.running import RunningConnector
from sinksdk.launch.spark_options import SparkOptions
from sinksdk.support.logs import WARNINGS, LogSettings, configure_logging

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What ``sinksdk run`` was asked for.

    Args:
        config: the configuration file.
        source: where records come from.
        store: the store's URL.
        master: Spark's master URL; None: what Spark's own configuration says.
        until_caught_up: end when everything there is now is committed.
        logs: how it logs, and its tasks do.
        spark_conf: Spark's own settings, each ``KEY=VALUE``.
    """

    config: Path
    source: SourceOptions
    store: str
    master: str | None
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
    spark = SparkOptions(options.master, options.spark_conf)
    place = Place(options.source.topics, options.store, spark)
    with ShutdownSignals() as signals:
        prepared = patiently(
            partial(prepare, options.config, place, WarnedOnce(warn)),
            f"the start of {options.config.name}",
            lambda: signals.received is not None,
        )
        if prepared is None:
            write(stdout(), "stopped: nothing was started", "bold")
            return
        _run(prepared, options, signals)


def _run(prepared: Prepared, options: RunOptions, signals: ShutdownSignals) -> None:
    console, (deployment, ready) = stdout(), prepared
    store, name = deployment.store.url, ready.config.name
    write(console, f"{name}: store {store}, Spark on {deployment.spark.master}", "dim")
    progress = progress_on(console, name, options.logs)
    try:
        with progress:
            connector = RunningConnector(
                prepared,
                until_caught_up=options.until_caught_up,
                listener=progress,
                python_path=(str(Path.cwd()),),
                logs=options.logs,
                is_stopping=lambda: signals.received is not None,
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
