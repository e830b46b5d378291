"""``sinksdk run``: runs one connector until it is stopped or has caught up."""

from __future__ import annotations

import logging
import os
import signal
import sys
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from sinksdk.cli.display import LiveProgress, PlainProgress
from sinksdk.cli.options import (
    DEFAULT_STORE,
    BootstrapServers,
    Conf,
    Config,
    KafkaConfig,
    LogFormat,
    LogFormats,
    Master,
    SourceDirectory,
    SourceOptions,
    StoreUrl,
    Verbose,
    start_logging,
)
from sinksdk.cli.output import command, counted, duration, number, size, stdout, warn, write
from sinksdk.cli.progress import CAUGHT_UP, FAILED, REPLACED, STOPPED, Snapshot
from sinksdk.errors import FencedException
from sinksdk.launch.prepare import prepare
from sinksdk.launch.running import RunningConnector
from sinksdk.launch.signals import ClosingSignals, close_on_signal
from sinksdk.launch.startup import retry_until_available
from sinksdk.model.measures import LOST
from sinksdk.support.logs import WARNINGS, LogSettings

log = logging.getLogger(__name__)

_SHOW_CURSOR: Final = b"\x1b[?25h"  # a live display hides the cursor


@command
def run(
    *,
    config: Config,
    source_directory: SourceDirectory = "",
    bootstrap_servers: BootstrapServers = "",
    kafka_config: KafkaConfig = "",
    store: StoreUrl = DEFAULT_STORE,
    master: Master = None,
    conf: Conf = None,
    until_caught_up: Annotated[
        bool,
        typer.Option(
            "--until-caught-up",
            help="Stop when all records available now are committed, partial batches included.",
        ),
    ] = False,
    log_format: LogFormat = LogFormats.TEXT,
    verbose: Verbose = False,
) -> None:
    """Run a connector until it is stopped (Ctrl-C, SIGTERM) or has caught up.

    Stopping flushes and commits partial batches; a second signal stops at once. Neither loses records. Exit
    codes: 0 caught up or stopped, 1 failed, 2 bad configuration, 3 fenced by a newer driver, 4 a topic is
    missing.
    """
    source = SourceOptions(source_directory, bootstrap_servers, kafka_config)
    options = source.deployment(store, master=master, conf=conf or ())
    logs = start_logging(
        log_format, verbose=verbose, level="INFO" if log_format is LogFormats.JSON else "WARNING"
    )
    console = stdout()
    with ShutdownSignals() as signals:
        prepared = retry_until_available(
            # Cached: each warning is shown once, not at each attempt.
            partial(prepare, config, options, cache(warn)),
            f"the start of {config.name}",
            lambda: signals.is_received,
        )
        if prepared is None:
            write(console, "stopped before Spark was started", "bold")
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
                    report=progress.note,
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
    if logs.is_json:
        return PlainProgress(log.info)
    if console.is_terminal:
        return LiveProgress(console, connector)
    return PlainProgress(lambda text: console.print(Text(text), soft_wrap=True))


def summary(shown: Snapshot) -> str:
    # A fenced driver has not seen all commits of its last generation.
    least = "at least " if shown.state == REPLACED else ""
    if shown.source is not None:
        return f"{least}{shown.source}, {duration(shown.seconds)}"
    offsets = "" if shown.offsets == shown.records else f" ({counted(shown.offsets, 'offset')})"
    parts = [f"{least}{counted(shown.records, 'record')}{offsets} committed"]
    if shown.total.files is not None:
        files = counted(shown.total.files, "file")
        parts.append(f"{files} ({size(shown.total.size)})" if shown.total.size is not None else files)
    parts.append(duration(shown.seconds))
    return ", ".join(parts)


def on_close(shown: Snapshot) -> str:
    if shown.has_tasks:
        return "partial batches are flushed and committed"
    if not shown.total.lag:
        return "no task is running"
    return f"no task is running; the next run reads the remaining {counted(shown.total.lag, 'offset')}"


def lost(shown: Snapshot) -> str:
    lost_rows = ((row.partition, row.counts.get(LOST, 0)) for row in shown.rows)
    each = ", ".join(f"{partition}: {number(count)}" for partition, count in lost_rows if count)
    return f"skipped {counted(shown.total.lost, 'offset')} that the source no longer has ({each})"


# -- signals -----------------------------------------------------------------------------------------


class ShutdownSignals(ClosingSignals):
    """Remembers the first signal; the second one exits at once with 128 + its number."""

    @property
    def is_received(self) -> bool:
        return self.received is not None

    # Exiting at once loses no records: they are read again, and the next start discards unfinished output.
    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.received is None:
            self.received = signal.Signals(number)
            return
        if sys.stdout.isatty():
            os.write(sys.stdout.fileno(), _SHOW_CURSOR)
        os.write(2, b"\nstopped at once: the next run reads uncommitted records again\n")
        os._exit(128 + number)


def drive(
    connector: RunningConnector, signals: ShutdownSignals, progress: LiveProgress | PlainProgress
) -> None:
    """Wait until a connector has stopped; the first signal closes the connector."""

    def note(received: signal.Signals) -> None:
        progress.note(
            f"{received.name}: closing, {on_close(progress.snapshot())} (a second signal stops at once)"
        )

    try:
        close_on_signal(connector, signals, note)
    except FencedException:
        progress.over(REPLACED)
        raise
    except BaseException:
        progress.over(FAILED)
        raise
    progress.over(STOPPED if signals.is_received else CAUGHT_UP)
