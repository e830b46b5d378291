"""Transforms in a session of the user's own: what they may do, and what is refused before anything is read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import SparkContext, cloudpickle
from pyspark.sql import SparkSession

import sinksdk
from sinksdk import ConfigException, ConnectException, TopicPartition
from sinksdk.records import RECORD_COLUMNS
from sinksdk.spark.transform import Transform, TransformedRecords, _sent_by_value
from sinksdk.topics import write_records
from tests.integration.line_sink import LineSinkConfig
from tests.test_docs import ROOT, fences

pytestmark = pytest.mark.spark

COUNT = 40
MODULE = "tests.integration.transforms"


@pytest.fixture(scope="module")
def session(spark: SparkContext) -> SparkSession:
    return SparkSession(spark)


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("topics")
    for number in range(2):
        table = pa.table(
            {
                "offset": range(COUNT),
                "key": [b"k%d" % (offset % 4) for offset in range(COUNT)],
                "value": [b'{"n": %d}' % offset for offset in range(COUNT)],
            }
        )
        write_records(folder, TopicPartition("t", number), table)
    return folder


@pytest.fixture
def run(session: SparkSession, topics: Path, tmp_path: Path) -> Callable[..., dict[str, Counter[int]]]:
    """Run a connector until it has caught up; how often each offset was written, by partition."""

    def ran(**config: Any) -> dict[str, Counter[int]]:
        out = tmp_path / "out"
        out.mkdir()
        sinksdk.run(
            {
                "name": "lines",
                "connector.class": "tests.integration.line_sink:LineSink",
                "topics": "t",
                "tasks.max": 2,
                "out.folder": out,
                "batch.size": 10,
                "restart.max.attempts": 0,
                **{key.replace("_", "."): value for key, value in config.items()},
            },
            source=topics,
            store=f"sqlite:///{tmp_path}/store.sqlite",
            spark=session,
            until_caught_up=True,
        )
        committed = sinksdk.committed_offsets(f"sqlite:///{tmp_path}/store.sqlite", "lines")
        assert {offset.offset for offset in committed.values()} == {COUNT}, "dropped records leave no lag"
        return {path.stem: Counter(map(int, path.read_text().split())) for path in out.glob("*.txt")}

    return ran


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("with_a_python_udf", Counter(range(COUNT))),
        ("with_a_pandas_udf", Counter(range(COUNT))),
        ("in_arrow", Counter(range(1, COUNT, 2))),
        ("with_a_broadcast_join", Counter(n for n in range(COUNT) if n % 4 < 2)),
        ("from_json", Counter(range(11, COUNT))),
        ("exploded", Counter([*range(COUNT), *range(COUNT)])),
    ],
)
def test_what_keeps_rows_in_place_may_stand_between_records_and_sink(
    run: Callable[..., dict[str, Counter[int]]], function: str, expected: Counter[int]
) -> None:
    """UDFs, mapInArrow, broadcast joins, from_json, explode: rows may vanish, change and multiply."""
    assert run(records_transform=f"{MODULE}:{function}") == {"t-0": expected, "t-1": expected}


def test_functions_and_views_of_the_session_can_be_used_and_it_stays_as_it_was(
    run: Callable[..., dict[str, Counter[int]]], session: SparkSession
) -> None:
    """The query runs in a copy of the user's session: what it needs itself does not show there."""
    session.udf.register("is_even", lambda number: number % 2 == 0, "boolean")
    session.createDataFrame([(0,), (1,)], "number int").createOrReplaceTempView("wanted")
    before = session.conf.get("spark.sql.adaptive.enabled")

    query = """
        SELECT /*+ BROADCAST(wanted) */ records.* FROM records JOIN wanted ON offset % 4 = number
        WHERE is_even(offset);
    """
    assert run(records_sql=query)["t-0"] == Counter(range(0, COUNT, 4))

    assert session.conf.get("spark.sql.adaptive.enabled") == before
    assert not session.catalog.tableExists("records")


def test_the_session_that_is_given_is_the_one_that_is_copied(
    session: SparkSession, topics: Path, tmp_path: Path
) -> None:
    """Not Spark's default one, whose views have the same names.

    Regression: it was joined with the other session's table, and committed.
    """
    mine = session.newSession()
    session.createDataFrame([(0,)], "number int").createOrReplaceTempView("wanted")
    mine.createDataFrame([(0,), (1,)], "number int").createOrReplaceTempView("wanted")
    (tmp_path / "out").mkdir()
    summary = sinksdk.run(
        {
            "name": "lines",
            "connector.class": "tests.integration.line_sink:LineSink",
            "topics": "t",
            "out.folder": tmp_path / "out",
            "batch.size": 10,
            "records.sql": "SELECT /*+ BROADCAST(wanted) */ records.* FROM records JOIN wanted ON offset % 4 = number",
        },
        source=topics,
        store=f"sqlite:///{tmp_path}/store.sqlite",
        spark=mine,
        until_caught_up=True,
    )
    assert summary.records == COUNT, "half of two partitions"


def test_only_modules_of_the_folders_are_sent_and_only_for_a_moment(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function and what it imports, from a folder that executors do not have; pyspark's registry is as before."""
    (tmp_path / "my_flights").mkdir()
    (tmp_path / "my_flights/__init__.py").touch()
    (tmp_path / "my_flights/parsing.py").write_text("def shout(value):\n    return value + b'!'\n")
    (tmp_path / "my_flights/delayed.py").write_text(
        "from pyspark.sql import functions as f\n"
        "from my_flights import parsing\n"
        "def loud(records):\n"
        "    return records.withColumn('value', f.udf(lambda value: parsing.shout(value), 'binary')('value'))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    before = cloudpickle.list_registry_pickle_by_value()
    transform = Transform.of(LineSinkConfig.model_construct(records_transform="my_flights.delayed:loud"))
    assert transform is not None
    frame = session.createDataFrame([(bytearray(b"v"),)], "value binary")

    with _sent_by_value((str(tmp_path),)):
        changed = transform.apply(frame)

    assert [bytes(row.value) for row in changed.collect()] == [b"v!"]
    assert cloudpickle.list_registry_pickle_by_value() == before


REFUSED = {
    "SELECT * FROM records ORDER BY offset": "needs Spark's operator Sort, which changes the order of rows",
    "SELECT topic, partition, max(offset) AS offset, max(value) AS value FROM records GROUP BY ALL": (
        "Aggregate, which needs rows of several offsets together"
    ),
    "SELECT DISTINCT topic, partition, offset, value FROM records": (
        "Aggregate, which needs rows of several offsets together"
    ),
    "SELECT * FROM records LIMIT 5": "which stops before the end",
    "SELECT /*+ REPARTITION(3) */ * FROM records": "Exchange, which moves rows between tasks",
    "SELECT /*+ COALESCE(1) */ * FROM records": "Coalesce, which puts rows of several tasks together",
    "SELECT * FROM records UNION ALL SELECT * FROM records": "Union, which adds partitions",
    "SELECT * EXCEPT (n) FROM (SELECT *, row_number() OVER (ORDER BY offset) AS n FROM records) WHERE n > 1": (
        "which needs rows of several offsets together"
    ),
    "SELECT * FROM records WHERE offset < (SELECT max(offset) FROM records)": "more than once",
    "SELECT a.* FROM records a JOIN records b USING (offset)": "more than once",
    "SELECT 't' AS topic, 0 AS partition, 1L AS offset, 'v' AS value": "does not read the view 'records'",
    "SELECT * FORM records": "Syntax error at or near 'records'",
    "SELECT * FROM recrods": "The table or view `recrods` cannot be found",
    "SELECT *, delay FROM records": "with name `delay` cannot be resolved",
    "SELECT topic, partition, value FROM records": "returns no offset: keep topic, partition and offset",
    "SELECT topic, partition, offset, key FROM records": "returns no value",
    "SELECT *, 1 AS extra FROM records": "returns extra, and a record has topic, partition",
    "SELECT *, value FROM records": "returns value more than once",
    "SELECT * EXCEPT (value), struct(offset) AS value FROM records": "it must be binary or string",
    "SELECT * EXCEPT (offset), string(offset) AS offset FROM records": "offset as string: it must be bigint",
    "SELECT * EXCEPT (offset), offset * 2 AS offset FROM records": "computes offset",
    "SELECT * EXCEPT (partition), 1 - partition AS partition FROM records": "computes partition",
    "SELECT * EXCEPT (topic), 'x' AS topic FROM records": "computes topic",
    "SELECT r.* FROM records r FULL JOIN wanted w ON r.offset > w.number": "reading the records twice",
    "SELECT r.* FROM records r RIGHT JOIN wanted w ON r.offset > w.number": (
        "BroadcastExchange, which sends the records to all tasks"
    ),
    "DROP TABLE IF EXISTS records": "it is a statement: give one SELECT",
    "INSERT INTO somewhere SELECT * FROM records": "it is a statement: give one SELECT",
}


@pytest.mark.parametrize("query", REFUSED)
def test_a_query_that_moves_rows_or_loses_them_is_refused(
    run: Callable[..., dict[str, Counter[int]]], session: SparkSession, query: str
) -> None:
    """In one sentence that names the operator or the column; nothing is read."""
    session.createDataFrame([(0,), (1,)], "number int").createOrReplaceTempView("wanted")
    with pytest.raises(ConfigException) as caught:
        run(records_sql=query)
    assert REFUSED[query] in str(caught.value)
    assert "records.sql" in str(caught.value)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("returns_nothing", "returned NoneType: return a DataFrame"),
        ("raises", "raised LookupError: no such table"),
        ("other_records", "does not read the view 'records'"),
        ("cached", "or from a cache"),
        ("united", "Union, which adds partitions"),
        ("not_a_function", "is of type str, not a function"),
        ("missing", f"module '{MODULE}' has no 'missing'"),
    ],
)
def test_a_function_that_is_no_transform_is_refused(
    run: Callable[..., dict[str, Counter[int]]], function: str, said: str
) -> None:
    """Likewise."""
    with pytest.raises(ConfigException) as caught:
        run(records_transform=f"{MODULE}:{function}")
    assert said in str(caught.value)


def test_what_a_query_does_to_a_record_may_fail_and_commits_nothing_behind_it(
    run: Callable[..., dict[str, Counter[int]]], tmp_path: Path
) -> None:
    """Spark's message says why; the offsets from there on are not committed."""
    with pytest.raises(ConnectException, match="Division by zero"):
        run(records_sql="SELECT * EXCEPT (value), string(1 / (offset - 20)) AS value FROM records")
    committed = sinksdk.committed_offsets(f"sqlite:///{tmp_path}/store.sqlite", "lines")
    assert all(offset.offset <= 20 for offset in committed.values())


def test_a_nondeterministic_query_is_told_of_once(
    run: Callable[..., dict[str, Counter[int]]], caplog: pytest.LogCaptureFixture
) -> None:
    """What is read again after a crash may differ."""
    run(records_sql="SELECT * FROM records WHERE rand() >= 0")
    assert len([line for line in caplog.messages if "gives other records each time it runs" in line]) == 1


def test_the_queries_of_the_documentation_do_what_it_says(session: SparkSession) -> None:
    """Those of docs/transforms.md and of the README are transforms, and their results are records."""
    page, readme = (fences(path) for path in (ROOT / "docs" / "transforms.md", ROOT / "README.md"))
    queries = [fence.code for fence in (*page, *readme) if fence.language == "sql"]
    # The page's other blocks are about Connect's own chain, and have tests of their own.
    queries += [
        json.loads(fence.code)["config"]["records.sql"]
        for fence in page
        if fence.language == "json" and "records.sql" in fence.code
    ]
    assert len(queries) == 3
    names: dict[str, Any] = {}
    (function,) = (fence.code for fence in page if fence.language == "python" and "pyspark.sql" in fence.code)
    exec(compile(function, "docs/transforms.md", "exec"), names)  # noqa: S102 - our own page
    transforms = [Transform.of(LineSinkConfig.model_construct(records_sql=query)) for query in queries]

    for transform in (*transforms, Transform("records.transform", names["delayed"])):
        assert transform is not None
        TransformedRecords(session.sparkContext, transform, tuple(RECORD_COLUMNS)).check()
