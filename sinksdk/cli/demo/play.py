"""The demonstration, act by act."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from sinksdk.cli.demo.endpoint import ACCESS_KEY, REGION, SECRET_KEY, S3Endpoint, Stall
from sinksdk.cli.demo.flights import TOPIC, write_topic
from sinksdk.cli.demo.story import Interrupted, Interruption, show_interrupted
from sinksdk.cli.output import number, stdout, warn, write
from sinksdk.cli.run import ShutdownSignals, drive, progress_on, summary
from sinksdk.errors import ConnectException
from sinksdk.launch.prepare import Place, Prepared, prepare
from sinksdk.launch.running import RunningConnector
from sinksdk.launch.spark_options import SparkOptions
from sinksdk.launch.topics import TopicDirectory
from sinksdk.support.logs import LogSettings, configure_logging

NAME: Final = "flights-archive"
BUCKET: Final = "archive"
MASTER: Final = "local[4]"  # four tasks at once, whatever the machine has
FLUSH_SIZE: Final = 45_000
PART_SIZE: Final = 5 * 1024 * 1024  # the least S3 allows: about 15,000 of these records

STALLS: Final = (
    Stall(f"{TOPIC}+0+0000045000.avro", 1),
    Stall(f"{TOPIC}+1+0000000000.avro", 1),
    Stall(f"{TOPIC}+2+0000000000.avro", 2),
    Stall(f"{TOPIC}+3+0000090000.avro", 1),
)
"""One per partition, each in the middle of a file."""

_CONFIG: Final = f"{NAME}.json"
_TOPICS: Final = "topics"
_STORE: Final = "sinksdk.sqlite"


def play(folder: Path, *, verbose: bool) -> None:
    """Archive the flights, be interrupted, check the archive; all of it in an empty folder.

    Raises:
        ConnectException: something failed, or the archive is not whole.
    """
    console = stdout()
    with S3Endpoint(STALLS) as endpoint:
        with ShutdownSignals() as signals:
            _set_up(console, endpoint, folder)
            store = f"sqlite:///{folder / _STORE}"
            place = Place(lambda: TopicDirectory(folder / _TOPICS), store, SparkOptions(MASTER))
            ready = prepare(folder / _CONFIG, place, warn)
            _archive(console, endpoint, ready, signals, verbose=verbose)
            if signals.received:
                return
        _verify(console, folder)


def _set_up(console: Console, endpoint: S3Endpoint, folder: Path) -> None:
    _act(console, 1, "An S3, a topic, a connector")
    endpoint.create_bucket(BUCKET)
    write(console, f"S3 is moto, in this process, at {endpoint.url}; its bucket '{BUCKET}' is empty.")
    written = write_topic(folder / _TOPICS)
    write(
        console,
        f"The topic '{TOPIC}' holds {number(sum(written.values()))} flights that left New York in 2013, in "
        f"{len(written)} partitions (key: the carrier, value: JSON), as Parquet files. This archives them:",
    )
    text = json.dumps(_connector(endpoint.url), indent=2)
    (folder / _CONFIG).write_text(text, encoding="utf-8")
    console.print_json(text)


def _connector(endpoint: str) -> dict[str, object]:
    return {
        "name": NAME,
        "config": {
            "connector.class": "s3-archiver",
            "topics": TOPIC,
            "tasks.max": "4",
            "flush.size": str(FLUSH_SIZE),
            "s3.bucket.name": BUCKET,
            "s3.region": REGION,
            "s3.part.size": str(PART_SIZE),
            "store.url": endpoint,
            "aws.access.key.id": ACCESS_KEY,
            "aws.secret.access.key": SECRET_KEY,
            "closing.poll.ms": "100",
        },
    }


def _archive(
    console: Console, endpoint: S3Endpoint, ready: Prepared, signals: ShutdownSignals, *, verbose: bool
) -> None:
    _act(console, 2, "The archive is written, and interrupted")
    write(
        console,
        f"Four tasks on a local Spark write files of {number(FLUSH_SIZE)} records. To have something to "
        f"interrupt, this S3 will stop answering once each of them is in the middle of a file.",
    )
    progress = progress_on(console, NAME)
    logs = LogSettings("DEBUG" if verbose else "WARNING", traces=verbose)
    interruption = Interruption(
        progress, FLUSH_SIZE, endpoint.resume, on_interrupted=lambda rows: _explain(console, rows)
    )
    with progress:
        configure_logging(logs)
        connector = RunningConnector(
            ready,
            until_caught_up=True,
            listener=interruption,
            python_path=(),
            logs=logs,
            is_stopping=lambda: signals.received is not None,
            tell=progress.note,
        )

        def rebalance() -> None:
            progress.note(
                "\nS3 has stopped answering. A rebalance takes the partitions away from the tasks; then S3 "
                "answers again.\n"
            )
            connector.rebalance()

        endpoint.on_stalled = rebalance
        drive(connector, signals, progress)
    shown = progress.snapshot()
    write(console, f"{shown.state}: {summary(shown)}", "bold")


def _explain(console: Console, rows: Sequence[Interrupted]) -> None:
    dropped = sum(row.read - row.whole for row in rows)
    again = sum(row.read - row.committed for row in rows)
    console.print()
    write(
        console,
        f"A sink that is not told that it is closing can commit whole files only: it would drop "
        f"{number(dropped)} records and read them again (KIP-275). These tasks asked context.is_closing(), "
        f"flushed what they had as shorter files, and committed it; {number(again)} are read again:",
    )
    console.print()
    show_interrupted(console, rows)
    console.print()


def _verify(console: Console, folder: Path) -> None:
    """Check the archive as its owner would."""
    _act(console, 3, "The archive is read back and compared with the topic")
    arguments = ["verify", _CONFIG, "--store", f"sqlite:///{_STORE}", "--source-directory", _TOPICS]
    write(console, f"$ python -m sinksdk.connectors.s3_archiver {' '.join(arguments)}", "dim")
    sys.stdout.flush()
    command = [sys.executable, "-m", "sinksdk.connectors.s3_archiver", *arguments]
    if subprocess.run(command, cwd=folder, check=False).returncode:  # noqa: S603 - our own module
        message = "the archive is not whole, see above"
        raise ConnectException(message)
    console.print()
    write(console, "Nothing is lost and nothing is there twice. All of this is removed again.", "bold green")


def _act(console: Console, count: int, title: str) -> None:
    console.print()
    write(console, f"{count}. {title}", "bold cyan")
