from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from examples.webhook_receiver import Endpoint, Mishap
from sinksdk import TopicPartition, committed_offsets
from tests.examples.test_webhook_sink import LOST, TAKEN, serving
from tests.helpers.tiers import extended_after
from tests.integration.archive_site import Site, site
from tests.integration.frame_query import read_stream, start
from tests.store.postgres_server import PostgresServer

if TYPE_CHECKING:
    from pyspark import SparkContext

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parent.parent.parent
ROWS, FILES = 40, 3  # rows of each file
FOLDER_SINK = "examples.exactly_once_folder_sink:ExactlyOnceFolderSink"
KILLED_SINK = "tests.integration.frame_sinks:KilledSink"
PATIENCE = 240.0  # seconds


@pytest.fixture(scope="module")
def session(spark: SparkContext) -> SparkSession:
    made = SparkSession(spark)
    made.conf.set("spark.sql.shuffle.partitions", "2")
    return made


class Place:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = f"sqlite:///{folder}/store.sqlite"
        (folder / "input").mkdir()
        self._files = 0

    def options(self, sink: str = FOLDER_SINK, **more: object) -> dict[str, str]:
        return {
            "connector.class": sink,
            "name": "frames",
            "topic": "numbers",
            "store": self.store,
            "folder": str(self.folder / "out"),
            "flush.size": "15",
            "value.converter": "string",
            **{name.replace("_", "."): str(value) for name, value in more.items()},
        }

    def add_files(self, files: int = FILES) -> None:
        for _ in range(files):
            rows = range(self._files * ROWS, (self._files + 1) * ROWS)
            path = self.folder / "input" / f"{self._files:03d}.json"
            hidden = path.with_name(f".{path.name}")
            hidden.write_text("".join(f'{{"id": {row}}}\n' for row in rows))
            hidden.rename(path)
            self._files += 1

    def written(self, topic: str = "numbers") -> Counter[str]:
        return Counter(row["value"] for row in self.records(topic))

    def records(self, topic: str = "numbers") -> list[dict[str, Any]]:
        files = sorted((self.folder / "out").glob(f"{topic}-*.jsonl"))
        return [json.loads(line) for path in files for line in path.read_text().splitlines()]

    def committed(self) -> dict[TopicPartition, int]:
        return {p: at.offset for p, at in committed_offsets(self.store, "frames").items()}

    def assert_once(self, rows: int, *, kills: bool = False) -> None:
        # A kill may leave an empty file, which was created before its token was stored.
        assert self.written() == Counter(map(str, range(rows)))
        assert sum(self.committed().values()) == rows
        hidden = (self.folder / "out").glob(".numbers*")
        assert {path.name for path in hidden if not kills or path.stat().st_size} == set()
        for partition, offset in self.committed().items():
            files = sorted((self.folder / "out").glob(f"{partition}+*.jsonl"))
            lines = [json.loads(line)["offset"] for path in files for line in path.read_text().splitlines()]
            assert lines == list(range(offset))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def numbers(session: SparkSession, start: int, end: int, partitions: int = 3) -> DataFrame:
    return session.range(start, end, numPartitions=partitions).selectExpr("cast(id as string) AS value")


def save(frame: DataFrame, options: dict[str, str]) -> None:
    frame.write.format("sinksdk").options(**options).mode("append").save()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


# -- batch writes ----------------------------------------------------------------------------------------


def test_a_batch_write_writes_every_row_once_after_the_previous_write(
    session: SparkSession, place: Place
) -> None:
    # PySpark finds the format without registration.
    save(numbers(session, 0, 100), place.options())
    place.assert_once(100)
    save(numbers(session, 100, 300, partitions=5), place.options())

    place.assert_once(300)
    assert len(place.committed()) == 5


def test_a_failed_write_leaves_no_visible_rows(session: SparkSession, place: Place) -> None:
    options = place.options(KILLED_SINK, fails_at="50")
    with pytest.raises(PySparkException, match="50 cannot be written"):
        save(numbers(session, 0, 100), options)
    assert place.written() == Counter()
    save(numbers(session, 0, 50), options)

    place.assert_once(50, kills=True)


@pytest.mark.parametrize("step", extended_after(1, ["put", "prepared"]))
def test_rows_are_written_once_when_a_worker_is_killed(
    session: SparkSession, place: Place, step: str, tmp_path: Path
) -> None:
    (tmp_path / "flag").touch()
    save(numbers(session, 0, 100), place.options(KILLED_SINK, kill_at=step, kill_flag=tmp_path / "flag"))

    assert not (tmp_path / "flag").exists()
    place.assert_once(100)


@pytest.mark.extended
def test_rows_without_a_value_column_are_archived_as_json(session: SparkSession, tmp_path: Path) -> None:
    frame = session.range(200).selectExpr(
        "id", "cast(id AS decimal(10, 2)) AS amount", "date_add(date'2026-01-01', int(id)) AS day",
        "if(id % 3 = 0, null, named_struct('x', id / 7, 'tags', array(string(id)))) AS more",
    )  # fmt: skip
    with site(tmp_path) as archive:
        save(frame.repartition(2), archive_options(archive))
        found = [json.loads(row["value"]) for rows in archive.archived().values() for row in rows]

        assert sorted(found, key=lambda row: int(row["id"])) == [
            json.loads(row.json) for row in frame.selectExpr("to_json(struct(*)) AS json").collect()
        ]
        assert archive.uploads_with_data() == []


def archive_options(archive: Site) -> dict[str, str]:
    archive.configure()
    config = json.loads(archive.config.read_text())["config"]
    del config["topics"]
    return {
        **{key: str(value) for key, value in config.items()},
        "name": "archive",
        "topic": archive.topic,
        "store": archive.store,
        "flush.size": "30",
    }


# -- sinks that write at once ----------------------------------------------------------------------------


@pytest.mark.extended
def test_the_upsert_sink_applies_each_row_once(session: SparkSession, place: Place) -> None:
    database = sqlite3.connect(place.folder / "accounts.sqlite", isolation_level=None)
    database.executescript("""
        CREATE TABLE accounts (id TEXT PRIMARY KEY, balance INTEGER NOT NULL);
        CREATE TABLE history (id TEXT);
        CREATE TRIGGER made AFTER INSERT ON accounts BEGIN INSERT INTO history VALUES (new.id); END;
        CREATE TRIGGER changed AFTER UPDATE ON accounts BEGIN INSERT INTO history VALUES (new.id); END;
    """)
    keys = {"database.url": f"sqlite:///{place.folder}/accounts.sqlite", "table": "accounts"}
    keys |= {"key.columns": "id", "value.columns": "balance"}
    keys |= {"key.converter": "string", "value.converter": "json", "max.poll.records": "10"}
    options = {**place.options("tests.integration.frame_sinks:KilledUpsertSink"), **keys}
    del options["flush.size"]
    for first in (0, 100):
        (place.folder / "flag").touch()
        rows = session.range(first, first + 100, numPartitions=2)
        frame = rows.selectExpr("cast(id AS string) AS key", "to_json(struct(id * 2 AS balance)) AS value")
        save(frame, {**options, "kill.at": "put", "kill.flag": str(place.folder / "flag")})
        assert not (place.folder / "flag").exists()

    assert dict(database.execute("SELECT id, balance FROM accounts")) == {str(n): n * 2 for n in range(200)}
    assert Counter(database.execute("SELECT id FROM history")) == Counter((str(n),) for n in range(200))
    database.close()


@pytest.mark.extended
def test_the_webhook_sink_posts_each_row_once(session: SparkSession, place: Place) -> None:
    endpoint = Endpoint()
    endpoint.mishaps.extend([TAKEN, LOST, Mishap(503), Mishap(429, {"Retry-After": "0"}), TAKEN] * 2)
    keys = {"key.converter": "string", "value.converter": "json", "max.poll.records": "10"}
    options = {**place.options("examples.webhook_sink:WebhookSink"), **keys, "errors.tolerance": "all"}
    del options["flush.size"], options["folder"]
    with serving(endpoint) as url:
        for first in (0, 100):
            rows = session.range(first, first + 100, numPartitions=2)
            save(
                rows.selectExpr("if(id = 150, 'warm', string(id)) AS celsius").selectExpr(
                    "concat('{\"celsius\":', if(celsius = 'warm', '\"warm\"', celsius), '}') AS value"
                ),
                {**options, "endpoint.url": url},
            )

    found = Counter(event["value"]["celsius"] for event in endpoint.events.values())
    assert found == Counter(n for n in range(200) if n != 150)
    assert endpoint.repeated > 0
    assert sum(place.committed().values()) == 200


# -- streams ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trigger",
    extended_after(1, [{"availableNow": True}, {"once": True}, {"processingTime": "1 second"}]),
    ids=str,
)
def test_a_stream_writes_every_row_once(session: SparkSession, place: Place, trigger: dict[str, Any]) -> None:
    for run in (1, 2):
        place.add_files(1 if "once" in trigger else FILES)
        rows = run * ROWS * (1 if "once" in trigger else FILES)
        query = start(session, place.folder, place.options(), **trigger)
        if "processingTime" in trigger:
            wait_until(lambda rows=rows: sum(place.written().values()) == rows, "all rows are written")
            query.processAllAvailable()
            query.stop()
        assert query.awaitTermination(PATIENCE)
        place.assert_once(rows)


@pytest.mark.parametrize("where", extended_after(1, ["SQLite", "PostgreSQL", "S3"]))
def test_a_stream_is_archived(
    session: SparkSession, tmp_path: Path, where: str, postgres: PostgresServer
) -> None:
    place = Place(tmp_path)
    place.add_files()
    with site(tmp_path) as archive:
        options = archive_options(archive)
        if where == "PostgreSQL":
            options["store"] = postgres.url(f"frames_{uuid.uuid4().hex}")
        elif where == "S3":
            options["store"] = (
                f"s3://{archive.bucket}/state?endpoint={archive.endpoint}&region=us-east-1&access_key_id=key"
                f"&secret_access_key=secret"
            )
        query = start(session, tmp_path, options)
        assert query.awaitTermination(PATIENCE)
        found = Counter(row["value"] for rows in archive.archived().values() for row in rows)

        assert found == Counter(b"%d" % row for row in range(ROWS * FILES))
        assert archive.uploads_with_data() == []


@pytest.mark.extended
def test_a_new_checkpoint_starts_a_new_query(session: SparkSession, place: Place) -> None:
    place.add_files(2)
    assert start(session, place.folder, place.options()).awaitTermination(PATIENCE)
    assert start(session, place.folder, place.options(), "another").awaitTermination(PATIENCE)
    assert place.written() == Counter({str(row): 2 for row in range(2 * ROWS)})
    place.add_files(1)
    assert start(session, place.folder, place.options()).awaitTermination(PATIENCE)

    assert place.written() == Counter({str(row): 2 if row < 2 * ROWS else 1 for row in range(3 * ROWS)})


def test_a_second_query_of_the_same_name_fences_the_first(session: SparkSession, place: Place) -> None:
    place.add_files(1)
    first = start(session, place.folder, place.options(), processingTime="100 milliseconds")
    first.processAllAvailable()
    second = start(session, place.folder, place.options(), "another", processingTime="100 milliseconds")
    second.processAllAvailable()
    place.add_files(1)
    wait_until(lambda: not first.isActive, "the first query has ended")
    second.processAllAvailable()
    second.stop()

    error = str(first.exception())
    assert "FencedException: connector frames: " in error
    assert "is fenced, because another query, or another start of this query, has taken over" in error
    assert place.written() == Counter({str(row): 2 if row < ROWS else 1 for row in range(2 * ROWS)})


@pytest.mark.extended
@pytest.mark.parametrize(
    "step",
    [
        pytest.param("prepared", marks=pytest.mark.nightly),
        "before the commit",
        "committed",
        pytest.param("published one", marks=pytest.mark.nightly),
        pytest.param("published", marks=pytest.mark.nightly),
    ],
)
def test_rows_are_written_once_when_the_driver_is_killed(
    session: SparkSession, place: Place, step: str
) -> None:
    place.add_files()
    flag = place.folder / "flag"
    flag.touch()
    options = place.options(KILLED_SINK, kill_at=step, kill_flag=flag)
    command = [sys.executable, "-m", "tests.integration.frame_query", str(place.folder), json.dumps(options)]
    killed = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        start_new_session=True,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert killed.returncode == -9, killed.stderr
    assert not flag.exists()
    assert sum(place.written().values()) < ROWS * FILES
    assert start(session, place.folder, options).awaitTermination(PATIENCE)

    place.assert_once(ROWS * FILES)


# -- bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"connector.class": None}, "option 'connector.class' is required and not set: name the sink, as in"),
        ({"store": None}, "option 'store' is required and not set: offsets are stored there"),
        ({"topic": None}, "option 'topic' is required and not set: rows become records of a topic"),
        ({"name": None}, "'name' is required and not set"),
        ({"foldr": "x"}, f"option 'foldr' is not known to {FOLDER_SINK}; did you mean 'folder'?"),
        ({"topics": "t"}, "option 'topics' cannot be used with"),
        ({"path": "x"}, "option 'path' cannot be used with"),
        (
            {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "letters"},
            "the source is not a Kafka cluster: set the cluster of this topic with 'producer.override.bootstrap.servers'",
        ),
    ],
    ids=str,
)
def test_invalid_options_are_reported_in_one_sentence_before_the_job(
    session: SparkSession, place: Place, wrong: dict[str, str | None], says: str
) -> None:
    options = {key: value for key, value in {**place.options(), **wrong}.items() if value is not None}
    with pytest.raises(PySparkException) as raised:
        save(numbers(session, 0, 10), options)

    assert "ConfigException: " in str(raised.value)
    assert says in str(raised.value)
    assert not (place.folder / "store.sqlite").exists()


def test_a_value_column_without_json_is_refused_by_a_sink_of_bytes(
    session: SparkSession, place: Place
) -> None:
    with pytest.raises(
        PySparkException, match="column 'value' cannot be written as JSON, because it holds duration"
    ):
        save(session.range(3).selectExpr("make_dt_interval(1) AS value"), place.options())


def test_rows_without_a_value_column_arrive_typed(session: SparkSession, place: Place) -> None:
    frame = session.range(3).selectExpr("id", "named_struct('s', string(id), 'l', array(id, null)) AS more")
    save(frame, place.options(value_converter="bytes"))
    assert [row["value"] for row in place.records()] == [
        {"id": number, "more": {"s": str(number), "l": [number, None]}} for number in range(3)
    ]
    save(frame, place.options(name="texts", topic="texts"))
    assert place.written("texts") == Counter(
        row[0] for row in frame.selectExpr("to_json(struct(*))").collect()
    )


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("overwrite", r"a sink only appends: use mode\('append'\)"),
        ("ignore", 'cannot be written in the "Ignore" mode'),
        ("errorifexists", 'cannot be written in the "ErrorIfExists" mode'),
    ],
)
def test_batch_writes_only_append(session: SparkSession, place: Place, mode: str, says: str) -> None:
    with pytest.raises(PySparkException, match=says):
        numbers(session, 0, 3).write.format("sinksdk").options(**place.options()).mode(mode).save()


@pytest.mark.parametrize(
    ("mode", "says"), [("complete", "a sink only appends"), ("update", "does not support Update mode")]
)
def test_streams_only_append(session: SparkSession, place: Place, mode: str, says: str) -> None:
    # Spark itself refuses 'update', because its Python data sources do not support it.
    place.add_files(1)
    counted = read_stream(session, place.folder).groupBy("value").count().select("value")
    writer = counted.writeStream.format("sinksdk").options(**place.options()).outputMode(mode)
    query = writer.option("checkpointLocation", str(place.folder / "checkpoint")).start()
    wait_until(lambda: not query.isActive, "the query has ended")

    assert says in str(query.exception())


def test_partition_by_is_refused(session: SparkSession, place: Place) -> None:
    writer = numbers(session, 0, 3).write.format("sinksdk").options(**place.options())
    with pytest.raises(PySparkException, match="partitioning or clustering columns do not match"):
        writer.partitionBy("value").mode("append").save()


@pytest.mark.parametrize(
    "query", ["SELECT '1' AS value WHERE false", "SELECT CAST(null AS STRING) AS value FROM range(3)"]
)
def test_empty_frames_and_null_rows_are_written(session: SparkSession, place: Place, query: str) -> None:
    frame = session.sql(query)
    save(frame, place.options())

    assert [row["value"] for row in place.records()] == [None] * frame.count()
    assert sum(place.committed().values()) == frame.count()


@pytest.mark.extended
def test_name_of_a_connector_of_sinksdk_run_is_refused(session: SparkSession, tmp_path: Path) -> None:
    with site(tmp_path) as archive:
        options = archive_options(archive)
        archive.produce(1, 10)
        assert archive.run("--until-caught-up")[0] == 0
        with pytest.raises(
            PySparkException, match=r"connector archive in store .* is a sink of 'sinksdk run'"
        ):
            save(numbers(session, 0, 3), options)


@pytest.fixture(autouse=True)
def no_query_left(session: SparkSession) -> Iterator[None]:
    yield
    for query in session.streams.active:
        query.stop()
