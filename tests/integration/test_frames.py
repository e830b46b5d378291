"""``df.write`` and ``df.writeStream`` with ``format("sinksdk")``: processes are killed, then every row is looked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sinksdk import TopicPartition, committed_offsets
from tests.integration.archive_site import Site, site
from tests.integration.frame_query import start
from tests.integration.test_transforms import archived

if TYPE_CHECKING:
    from pyspark import SparkContext

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parent.parent.parent
ROWS, FILES = 40, 3  # of each file
FOLDER_SINK = "examples.exactly_once_folder_sink:ExactlyOnceFolderSink"
KILLED_SINK = "tests.integration.frame_sinks:KilledSink"
PATIENCE = 120.0


@pytest.fixture(scope="module")
def session(spark: SparkContext) -> SparkSession:
    """A session of the tests' Spark."""
    made = SparkSession(spark)
    made.conf.set("spark.sql.shuffle.partitions", "2")
    return made


class Place:
    """A folder with input files, a store, and the sink's files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "input").mkdir()
        self._files = 0

    def options(self, sink: str = FOLDER_SINK, **more: object) -> dict[str, str]:
        """Keyword ``flush_size`` is key ``flush.size``."""
        return {
            "connector.class": sink,
            "name": "frames",
            "topic": "numbers",
            "store": f"sqlite:///{self.folder}/store.sqlite",
            "folder": str(self.folder / "out"),
            "flush.size": "15",
            "value.converter": "string",
            **{name.replace("_", "."): str(value) for name, value in more.items()},
        }

    def add_files(self, files: int = FILES) -> None:
        """Write further input files, whose rows are numbered on."""
        for _ in range(files):
            rows = range(self._files * ROWS, (self._files + 1) * ROWS)
            path = self.folder / "input" / f"{self._files:03d}.json"
            hidden = path.with_name(f".{path.name}")
            hidden.write_text("".join(f'{{"id": {row}}}\n' for row in rows))
            hidden.rename(path)
            self._files += 1

    def written(self, topic: str = "numbers") -> Counter[str]:
        """Values that readers see, and how often."""
        return Counter(row["value"] for row in self.records(topic))

    def records(self, topic: str = "numbers") -> list[dict[str, Any]]:
        files = sorted((self.folder / "out").glob(f"{topic}-*.jsonl"))
        return [json.loads(line) for path in files for line in path.read_text().splitlines()]

    def committed(self) -> dict[TopicPartition, int]:
        store = self.options()["store"]
        return {p: at.offset for p, at in committed_offsets(store, "frames").items()}

    def assert_once(self, rows: int) -> None:
        """Each row is there once, offsets leave no gap, and nothing is left over."""
        assert self.written() == Counter(map(str, range(rows)))
        assert sum(self.committed().values()) == rows
        found = {path.name for path in (self.folder / "out").glob(".numbers*")}
        assert found == set()
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


def test_a_batch_write_writes_every_row_once_and_goes_on_where_the_last_one_ended(
    session: SparkSession, place: Place
) -> None:
    """Found by PySpark without registration; as many partitions as the DataFrame has; offsets go on."""
    save(numbers(session, 0, 100), place.options())
    place.assert_once(100)
    save(numbers(session, 100, 300, partitions=5), place.options())

    place.assert_once(300)
    assert len(place.committed()) == 5


def test_a_write_that_fails_leaves_nothing(session: SparkSession, place: Place) -> None:
    """One task fails for good: what the others have prepared is discarded; the next write is not disturbed."""
    options = place.options(KILLED_SINK, fails_at="50")
    with pytest.raises(PySparkException, match="50 cannot be written"):
        save(numbers(session, 0, 100), options)
    assert place.written() == Counter()
    save(numbers(session, 0, 50), options)

    place.assert_once(50)


@pytest.mark.parametrize("step", ["put", "prepared"])
def test_a_tasks_worker_is_killed(session: SparkSession, place: Place, step: str, tmp_path: Path) -> None:
    """Kill -9 of a Python worker that has put rows, or prepared files: Spark runs the task again; each row once."""
    (tmp_path / "flag").touch()
    save(numbers(session, 0, 100), place.options(KILLED_SINK, kill_at=step, kill_flag=tmp_path / "flag"))

    assert not (tmp_path / "flag").exists()
    place.assert_once(100)


def test_whole_rows_are_archived_as_json(session: SparkSession, tmp_path: Path) -> None:
    """A DataFrame without a column 'value', by the archiver: row by row what Spark itself writes as JSON."""
    frame = session.range(200).selectExpr(
        "id", "cast(id AS decimal(10, 2)) AS amount", "date_add(date'2026-01-01', int(id)) AS day",
        "if(id % 3 = 0, null, named_struct('x', id / 7, 'tags', array(string(id)))) AS more",
    )  # fmt: skip
    with site(tmp_path) as archive:
        save(frame.repartition(2), archive_options(archive))
        found = [json.loads(row["value"]) for rows in archived(archive).values() for row in rows]

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


# -- streams ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trigger", [{"availableNow": True}, {"once": True}, {"processingTime": "1 second"}], ids=str
)
def test_a_stream_writes_every_row_once(session: SparkSession, place: Place, trigger: dict[str, Any]) -> None:
    """Stopped, and started again with the same checkpoint, while rows arrive: each is there once."""
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


def test_a_stream_is_archived(session: SparkSession, tmp_path: Path) -> None:
    """By the archiver: each value once, in files that are complete."""
    place = Place(tmp_path)
    place.add_files()
    with site(tmp_path) as archive:
        query = start(session, tmp_path, archive_options(archive))
        assert query.awaitTermination(PATIENCE)
        found = Counter(row["value"] for rows in archived(archive).values() for row in rows)

        assert found == Counter(b"%d" % row for row in range(ROWS * FILES))
        assert archive.uploads_with_data() == []


def test_a_new_checkpoint_is_a_new_query(session: SparkSession, place: Place) -> None:
    """Its numbers begin again at 0, and nothing of it is skipped; the old one, started again, skips nothing either."""
    place.add_files(2)
    assert start(session, place.folder, place.options()).awaitTermination(PATIENCE)
    assert start(session, place.folder, place.options(), "another").awaitTermination(PATIENCE)
    assert place.written() == Counter({str(row): 2 for row in range(2 * ROWS)})
    place.add_files(1)
    assert start(session, place.folder, place.options()).awaitTermination(PATIENCE)

    assert place.written() == Counter({str(row): 2 if row < 2 * ROWS else 1 for row in range(3 * ROWS)})


def test_a_second_query_of_the_same_name_fences_the_first(session: SparkSession, place: Place) -> None:
    """The first one ends with an error that says so, and has written no row that is not whole; the second goes on."""
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
    assert (
        "FencedException: connector frames: another query, or another start of this one, writes to it"
        in error
    )
    assert place.written() == Counter({str(row): 2 if row < ROWS else 1 for row in range(2 * ROWS)})


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
def test_a_driver_is_killed(session: SparkSession, place: Place, step: str) -> None:
    """Kill -9 of the driver's processes before and after the compare-and-set and the publish; then the query again."""
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
        ({"store": None}, "option 'store' is required and not set: its offsets are kept there"),
        ({"topic": None}, "option 'topic' is required and not set: rows are records of a topic"),
        ({"name": None}, "'name' is required and not set"),
        ({"foldr": "x"}, f"option 'foldr' is not known to {FOLDER_SINK}; did you mean 'folder'?"),
        ({"topics": "t"}, "option 'topics' cannot be used with"),
        ({"path": "x"}, "option 'path' cannot be used with"),
    ],
    ids=str,
)
def test_wrong_options_are_one_sentence_before_anything_runs(
    session: SparkSession, place: Place, wrong: dict[str, str | None], says: str
) -> None:
    """ConfigException; no store is made, no job runs."""
    options = {key: value for key, value in {**place.options(), **wrong}.items() if value is not None}
    with pytest.raises(PySparkException) as raised:
        save(numbers(session, 0, 10), options)

    assert "ConfigException: " in str(raised.value)
    assert says in str(raised.value)
    assert not (place.folder / "store.sqlite").exists()


def test_a_column_value_without_json_is_refused_where_bytes_are_wanted(
    session: SparkSession, place: Place
) -> None:
    """With what to do about it."""
    with pytest.raises(PySparkException, match="column 'value' cannot be written as JSON, it holds duration"):
        save(session.range(3).selectExpr("make_dt_interval(1) AS value"), place.options())


def test_whole_rows_arrive_typed(session: SparkSession, place: Place) -> None:
    """At a sink that takes any type: dicts when it iterates. With value.converter=string it gets their JSON."""
    frame = session.range(3).selectExpr("id", "named_struct('s', string(id), 'l', array(id, null)) AS more")
    save(frame, place.options(value_converter="bytes"))
    assert [row["value"] for row in place.records()] == [
        {"id": number, "more": {"s": str(number), "l": [number, None]}} for number in range(3)
    ]
    save(frame, place.options(name="texts", topic="texts"))
    assert place.written("texts") == Counter(
        row[0] for row in frame.selectExpr("to_json(struct(*))").collect()
    )


def test_overwriting_is_refused(session: SparkSession, place: Place) -> None:
    """What a sink has published stays."""
    with pytest.raises(PySparkException, match="a sink only appends"):
        numbers(session, 0, 3).write.format("sinksdk").options(**place.options()).mode("overwrite").save()


def test_the_name_of_a_connector_that_reads_topics_is_refused(session: SparkSession, tmp_path: Path) -> None:
    """One that ``sinksdk run`` drives."""
    with site(tmp_path) as archive:
        options = archive_options(archive)
        archive.produce(1, 10)
        assert archive.run("--until-caught-up")[0] == 0
        with pytest.raises(PySparkException, match=r"connector archive in store .* reads topics"):
            save(numbers(session, 0, 3), options)


@pytest.fixture(autouse=True)
def no_query_left(session: SparkSession) -> Iterator[None]:
    """A test that fails leaves no query that writes on."""
    yield
    for query in session.streams.active:
        query.stop()
