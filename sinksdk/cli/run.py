"""``sinksdk run``: one connector, until it is stopped or has caught up."""

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
from sinksdk.control.progress import LOST
from sinksdk.errors import FencedException
from sinksdk.launch.patience import patiently
from sinksdk.launch.prepare import prepare
from sinksdk.launch.running import RunningConnector
from sinksdk.launch.signals import ClosingSignals, close_on_signal
from sinksdk.support.logs import WARNINGS, LogSettings

log = logging.getLogger(__name__)

_SHOW_CURSOR: Final = b"\x1b[?25h"  # a live display had hidden it


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
        typer.Option("--until-caught-up", help="End when everything there now is committed, tails included."),
    ] = False,
    log_format: LogFormat = LogFormats.TEXT,
    verbose: Verbose = False,
) -> None:
    """Run a connector: until it is stopped (Ctrl-C, SIGTERM), or has caught up.

    Stopping flushes and commits partial batches; a second signal stops at once. Nothing is lost either
    way. Exit codes: 0 done or stopped, 1 failed, 2 bad configuration, 3 a newer driver has taken over, 4
    a topic is missing.
    """
    source = SourceOptions(source_directory, bootstrap_servers, kafka_config)
    options = source.deployment(store, master=master, conf=conf or ())
    logs = start_logging(
        log_format, verbose=verbose, level="INFO" if log_format is LogFormats.JSON else "WARNING"
    )
    console = stdout()
    with ShutdownSignals() as signals:
        prepared = patiently(
            partial(prepare, config, options, cache(warn)),  # each warning once, however often it is tried
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
    """The commits since the start, in one line. A driver that was replaced has not seen all of them."""
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
    """What becomes of records when a connector closes now."""
    if shown.has_tasks:
        return "partial batches are flushed and committed"
    if not shown.total.lag:
        return "no task is open"
    return f"no task is open, and the next run reads what waits ({counted(shown.total.lag, 'offset')})"


def lost(shown: Snapshot) -> str:
    """What the source had forgotten before it was read, by partition."""
    lost_rows = ((row.partition, row.counts.get(LOST, 0)) for row in shown.rows)
    each = ", ".join(f"{partition}: {number(count)}" for partition, count in lost_rows if count)
    return f"lost before they were read, and skipped: {counted(shown.total.lost, 'offset')} ({each})"


# -- signals: the first one asks for the end, the second one is the end -----------------------------------


class ShutdownSignals(ClosingSignals):
    """Remembers the first signal; the second one ends the process at once with 128 + its number.

    Ending at once loses nothing: what is not committed is read again, what was begun outside is
    discarded by the next start.
    """

    @property
    def is_received(self) -> bool:
        """Whether a signal has asked for the end."""
        return self.received is not None

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.received is None:
            self.received = signal.Signals(number)
            return
        if sys.stdout.isatty():
            os.write(sys.stdout.fileno(), _SHOW_CURSOR)
        os.write(2, b"\nstopped at once: what was not committed is read again by the next run\n")
        os._exit(128 + number)


def drive(
    connector: RunningConnector, signals: ShutdownSignals, progress: LiveProgress | PlainProgress
) -> None:
    """Wait for a connector's end, and show it; the first signal closes it. Raises what has ended it."""

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
