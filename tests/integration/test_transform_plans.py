from __future__ import annotations

import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from pyspark import SparkContext, cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

import sinksdk
from examples.folder_sink import FolderSink, FolderTask
from sinksdk import ConfigException, ConnectException, SinkRecords, TopicPartition
from sinksdk.records import RECORD_COLUMNS
from sinksdk.spark.bypass import Columns
from sinksdk.spark.transform import (
    _COUNTED,
    _MOST_PACKED,
    Transform,
    TransformedRecords,
    _attributes,
    _column_use,
    _copied_session,
    _counts,
    _path,
    _sent_by_value,
)
from sinksdk.spark.transform_task import TYPES, sent
from sinksdk.topics import write_records
from sinksdk.values.declared import declared_shape
from sinksdk.worker.generation_spec import GenerationSpec
from tests.integration.line_sink import LineSinkConfig
from tests.integration.row_sink import rows_in
from tests.project.test_docs import ROOT, fences
from tests.values.generated import Json

pytestmark = pytest.mark.spark

COUNT = 40
MODULE = "tests.integration.transforms"
BYTES = f"{__name__}:SinkOfBytes"
SPEC = GenerationSpec("", "", "", 0)


class TaskOfBytes(FolderTask):
    takes_bytes = True


class SinkOfBytes(FolderSink):
    task_class = TaskOfBytes


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
    def ran(**config: Any) -> dict[str, Counter[int]]:
        out = tmp_path / "out"
        out.mkdir()
        sinksdk.run(
            {
                "name": "lines",
                "connector.class": "tests.integration.row_sink:RowSink",
                "topics": "t",
                "tasks.max": 2,
                "out.folder": out,
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
        return {partition: Counter(offset for offset, *_ in rows) for partition, rows in rows_in(out).items()}

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
def test_transforms_that_keep_rows_in_place_are_accepted(
    run: Callable[..., dict[str, Counter[int]]],
    session: SparkSession,
    tmp_path: Path,
    function: str,
    expected: Counter[int],
) -> None:
    assert run(records_transform=f"{MODULE}:{function}") == {"t-0": expected, "t-1": expected}

    transform = Transform.of(LineSinkConfig.model_construct(records_transform=f"{MODULE}:{function}"))
    assert transform is not None
    with _sent_by_value((str(ROOT),)):
        alone = [row.asDict() for row in transform.apply(as_a_table(session)).collect()]
    assert {
        name: [[offset, key, value] for offset, key, value, *_ in rows]
        for name, rows in rows_in(tmp_path / "out").items()
    } == {
        f"t-{number}": [
            [row["offset"], text(row.get("key")), text(row["value"])]
            for row in alone
            if row["partition"] == number
        ]
        for number in range(2)
    }


def as_a_table(session: SparkSession) -> DataFrame:
    rows = [
        ("t", number, offset, None, 0, bytearray(b"k%d" % (offset % 4)), bytearray(b'{"n": %d}' % offset), [])
        for number in range(2)
        for offset in range(COUNT)
    ]
    schema = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
    return session.createDataFrame(rows, schema).coalesce(1)


def text(value: str | bytes | bytearray | None) -> str | None:
    return value if value is None or isinstance(value, str) else value.decode()


@pytest.mark.extended
def test_two_connectors_of_one_session_are_isolated(session: SparkSession, tmp_path: Path) -> None:
    # Both connectors run at the same time, create views of the same name and change the same setting.
    # ``records`` in a query is not the view of that name in the user's session.
    hour = pa.array([3_600_000 * (offset % 24) for offset in range(COUNT)], pa.timestamp("ms", "UTC"))
    for begin in (0, COUNT):  # the second half arrives while both run
        table = pa.table(
            {
                "offset": range(begin, begin + COUNT),
                "key": [b"k%d" % (offset % 4) for offset in range(COUNT)],
                "value": [b"v"] * COUNT,
                "timestamp": hour,
            }
        )
        write_records(tmp_path / ("topics" if not begin else "later"), TopicPartition("t", 0), table)
    mine = session.newSession()
    mine.range(3).createOrReplaceTempView("records")
    mine.udf.register("shown", lambda value: f"<{value}>", "string")
    zone, where = mine.conf.get("spark.sql.session.timeZone"), f"sqlite:///{tmp_path}/store.sqlite"
    transforms = {
        "first": {"records.transform": f"{MODULE}:with_a_lookup_of_its_own"},
        "second": {"records.transform": f"{MODULE}:with_another_lookup"},
        "third": {
            "records.sql": "SELECT * EXCEPT (value), shown(offset) AS value FROM records WHERE offset > 5"
        },
    }

    def committed(running: list[sinksdk.RunningConnector]) -> list[int]:
        found = [connector.status().partitions for connector in running]
        return [partitions[0].committed or 0 if partitions else 0 for partitions in found]

    with ExitStack() as stack:
        running = []
        for name, transform in transforms.items():
            (tmp_path / name).mkdir()
            config = {
                "name": name,
                "connector.class": "tests.integration.row_sink:RowSink",
                "topics": "t",
                "poll.interval.ms": 100,
                "out.folder": tmp_path / name,
                **transform,
            }
            started = sinksdk.start(config, source=tmp_path / "topics", store=where, spark=mine)
            running.append(stack.enter_context(started))
        for end in (COUNT, 2 * COUNT):
            give_up = time.monotonic() + 60
            while committed(running) != [end] * 3:
                assert time.monotonic() < give_up
                assert not any(connector.wait(0.05) for connector in running)
            if end == COUNT:
                (file,) = (tmp_path / "later").rglob("*.parquet")
                file.rename(tmp_path / "topics" / file.relative_to(tmp_path / "later"))

    def found(name: str) -> list[tuple[int, str]]:
        return [(offset, value) for offset, _, value, *_ in rows_in(tmp_path / name)["t-0"]]

    offsets = range(2 * COUNT)
    hours = [offset % COUNT % 24 for offset in offsets]
    assert found("first") == [(o, f"{'ab'[o % 4]} {hours[o]:02}") for o in offsets if o % 4 < 2]
    assert found("second") == [
        (o, f"{'cd'[o % 4 - 1]} {(hours[o] + 9) % 24:02}") for o in offsets if o % 4 in (1, 2)
    ]
    assert found("third") == [(o, f"<{o}>") for o in offsets if o > 5]
    assert mine.table("records").count() == 3
    assert mine.conf.get("spark.sql.session.timeZone") == zone
    assert not mine.catalog.tableExists("lookup")
    assert not mine.catalog.tableExists("mine")


def test_functions_and_views_of_the_session_are_usable_and_unchanged(
    run: Callable[..., dict[str, Counter[int]]], session: SparkSession
) -> None:
    # The query runs in a copy of the user's session.
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


def test_the_given_session_is_copied(session: SparkSession, topics: Path, tmp_path: Path) -> None:
    # Regression: Spark's default session was copied, whose table has the same name.
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


def test_only_modules_of_the_python_path_are_sent_by_value(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_module_with_two_names_is_sent_by_value_but_main_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Multiprocessing gives the program's module a second name. Regression: cloudpickle raised ValueError.
    before = cloudpickle.list_registry_pickle_by_value()
    for name, aliases in {"__main__": ("__mp_main__",), "flights_by_two_names": ("its_other_name",)}.items():
        module = ModuleType(name)
        module.__file__ = str(tmp_path / f"{name}.py")
        for alias in (name, *aliases):
            monkeypatch.setitem(sys.modules, alias, module)

    with _sent_by_value((str(tmp_path),)):
        assert cloudpickle.list_registry_pickle_by_value() == {*before, "flights_by_two_names"}

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
    "SELECT /*+ COALESCE(1) */ * FROM records": "Coalesce, which merges rows of several tasks",
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
    "SELECT *, 1 AS extra FROM records": "returns extra, but a record has only topic, partition",
    "SELECT *, value FROM records": "returns value more than once",
    "SELECT * EXCEPT (value), make_interval(1) AS value FROM records": "which Arrow does not support",
    "SELECT * EXCEPT (offset), string(offset) AS offset FROM records": "offset as string: it must be bigint",
    "SELECT * EXCEPT (offset), offset * 2 AS offset FROM records": "computes offset",
    "SELECT * EXCEPT (partition), 1 - partition AS partition FROM records": "computes partition",
    "SELECT * EXCEPT (topic), 'x' AS topic FROM records": "computes topic",
    "SELECT r.* FROM records r FULL JOIN wanted w ON r.offset > w.number": "reading the records twice",
    "SELECT r.* FROM records r RIGHT JOIN wanted w ON r.offset > w.number": (
        "BroadcastExchange, which sends the records to all tasks"
    ),
    "DROP TABLE IF EXISTS records": "the query is a statement: give one SELECT",
    "INSERT INTO somewhere SELECT * FROM records": "the query is a statement: give one SELECT",
}


@pytest.mark.parametrize("query", REFUSED)
def test_a_query_that_moves_or_loses_rows_is_refused(
    run: Callable[..., dict[str, Counter[int]]], session: SparkSession, query: str
) -> None:
    session.createDataFrame([(0,), (1,)], "number int").createOrReplaceTempView("wanted")
    with pytest.raises(ConfigException) as caught:
        run(records_sql=query)
    assert REFUSED[query] in str(caught.value)
    assert "records.sql" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("returns_nothing", "returned NoneType: return a DataFrame"),
        ("raises", "raised LookupError: no such table"),
        ("other_records", "does not read the view 'records'"),
        ("cached", "or reads a cache"),
        ("united", "Union, which adds partitions"),
        ("not_a_function", "is a str, not a function"),
        ("missing", f"module '{MODULE}' has no 'missing'"),
        ("returns_a_stream", "returned a streaming DataFrame: derive it from 'records'"),
        ("returns_a_list", "returned list: return a DataFrame"),
        ("loses_the_offset", "returns no offset: keep topic, partition and offset unchanged"),
        ("aggregates", "Aggregate, which needs rows of several offsets together"),
        ("of_a_missing_column", "`delay` cannot be resolved"),
    ],
)
def test_an_invalid_transform_function_is_refused(
    run: Callable[..., dict[str, Counter[int]]], function: str, said: str
) -> None:
    with pytest.raises(ConfigException) as caught:
        run(records_transform=f"{MODULE}:{function}")
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_record_that_a_query_cannot_compute_is_not_committed(
    run: Callable[..., dict[str, Counter[int]]], tmp_path: Path
) -> None:
    with pytest.raises(ConnectException, match="Division by zero"):
        run(records_sql="SELECT * EXCEPT (value), string(1 / (offset - 20)) AS value FROM records")
    committed = sinksdk.committed_offsets(f"sqlite:///{tmp_path}/store.sqlite", "lines")
    assert all(offset.offset <= 20 for offset in committed.values())


def test_a_query_may_return_values_of_any_type(session: SparkSession, topics: Path, tmp_path: Path) -> None:
    query = (
        "SELECT topic, partition, offset, offset AS key, explode(array(struct(offset AS n, string(value) AS s), "
        "null)) AS value FROM records WHERE offset < 3"
    )
    sinksdk.run(
        {
            "name": "typed",
            "connector.class": "examples.folder_sink:FolderSink",
            "topics": "t",
            "folder": tmp_path / "typed",
            "records.sql": query,
        },
        source=topics,
        store=f"sqlite:///{tmp_path}/store.sqlite",
        spark=session,
        until_caught_up=True,
    )
    lines = [line for file in (tmp_path / "typed").iterdir() for line in file.read_text().splitlines()]
    found = [(row["offset"], row["value"] and row["value"]["n"]) for row in map(json.loads, lines)]
    of_each = Counter((offset, value) for offset in range(3) for value in (offset, None))
    partitions = len(list((tmp_path / "typed").iterdir()))
    assert Counter(found) == Counter(dict.fromkeys(of_each, partitions))


@pytest.mark.parametrize(
    ("settings", "value", "says"),
    [
        ({"connector.class": BYTES}, "make_dt_interval(1, 2)", "the sink takes bytes"),
        (
            {"connector.class": BYTES},
            "struct(array(named_struct('took', make_dt_interval(1))) AS l)",
            "the sink takes bytes",
        ),
        ({"value.converter": "json"}, "make_dt_interval(1)", "'value.converter' reads bytes"),
        (
            {
                "errors.tolerance": "all",
                "errors.deadletterqueue.topic.name": "letters",
                "errors.deadletterqueue.topic.directory": "/tmp/letters",
            },
            "make_dt_interval(1)",
            "dead letters hold bytes",
        ),
    ],
)
def test_a_type_without_json_is_refused_at_the_start(  # noqa: PLR0917 - pytest passes them by name
    session: SparkSession, topics: Path, tmp_path: Path, settings: dict[str, str], value: str, says: str
) -> None:
    # JSON has no durations. Regression: the first generation failed and was retried until the connector
    # gave up.
    raw = {
        "name": "durations",
        "connector.class": "examples.folder_sink:FolderSink",
        "topics": "t",
        "folder": tmp_path,
        "records.sql": f"SELECT * EXCEPT (value), {value} AS value FROM records",  # noqa: S608 - the test's own
        **settings,
    }
    with pytest.raises(ConfigException) as caught:
        sinksdk.start(raw, source=topics, store=f"sqlite:///{tmp_path}/store.sqlite", spark=session)
    said = str(caught.value)
    assert re.fullmatch(
        r"'records.sql' returns value as (interval day to second|struct<.*>), which cannot be written as JSON, because it holds "
        rf"duration\[us\], and {says}: cast it",
        said,
    ), said


def test_schemas_in_ddl_are_read_as_spark_reads_them(session: SparkSession) -> None:
    # Executors read value.converter.schema without Spark.
    assert session is not None  # only with a session can the test compute the expected schema

    def named(kind: pa.DataType) -> object:
        # The comparison ignores the names and the nullability that Spark gives to items.
        if pa.types.is_struct(kind):
            return {field.name: named(field.type) for field in kind}
        if pa.types.is_list(kind):
            return [named(kind.value_type)]
        return (named(kind.key_type), named(kind.item_type)) if pa.types.is_map(kind) else str(kind)

    for number in range(40):
        draw = Json(random.Random(number))  # noqa: S311 - no secret
        ddl = ", ".join(f"`c {column}` {draw.ddl()} NOT NULL COMMENT 'it''s'" for column in range(3))
        expected = to_arrow_schema(StructType.fromDDL(ddl), timezone="UTC")
        assert named(declared_shape(ddl).kind) == named(pa.struct(list(expected))), ddl


def test_a_nondeterministic_query_is_logged_once(
    run: Callable[..., dict[str, Counter[int]]], caplog: pytest.LogCaptureFixture
) -> None:
    # Records that are read again after a crash may give other results.
    run(records_sql="SELECT * FROM records WHERE rand() >= 0")
    assert len([line for line in caplog.messages if "is not deterministic" in line]) == 1


EVERYTHING = {"topic", "partition", *RECORD_COLUMNS}
PAST_SPARK: dict[str, tuple[set[str], set[str]]] = {
    # For each query: the columns that no expression reads, and those among them that the query returns
    # unchanged.
    "SELECT * FROM records WHERE offset % 2 = 0": (EVERYTHING - {"offset"}, EVERYTHING - {"offset"}),
    "SELECT * FROM records WHERE length(value) > 1 AND key IS NOT NULL": (
        EVERYTHING - {"value", "key"},
        EVERYTHING - {"value", "key"},
    ),
    "SELECT topic, partition, offset, value FROM records": (
        EVERYTHING,
        {"topic", "partition", "offset", "value"},
    ),
    "SELECT * EXCEPT (value), concat('v', offset) AS value FROM records": (
        EVERYTHING - {"offset"},
        EVERYTHING - {"offset", "value"},
    ),
    "SELECT * EXCEPT (key, value), value AS key, key AS value FROM records": (
        EVERYTHING - {"key", "value"},
        EVERYTHING - {"key", "value"},
    ),
    "SELECT * EXCEPT (value), to_json(struct(*)) AS value FROM records": (set(), set()),
    "SELECT r.* FROM records r LATERAL VIEW explode(r.headers) AS header WHERE header.key = 'h'": (
        EVERYTHING - {"headers"},
        EVERYTHING - {"headers"},
    ),
    "SELECT /*+ BROADCAST(w) */ r.* FROM records r JOIN wanted w ON length(r.key) = w.number AND r.offset > 1": (
        EVERYTHING - {"key", "offset"},
        EVERYTHING - {"key", "offset"},
    ),
    "SELECT /*+ BROADCAST(w) */ r.* FROM records r LEFT SEMI JOIN wanted w ON r.timestampType = w.number": (
        EVERYTHING - {"timestampType"},
        EVERYTHING - {"timestampType"},
    ),
    "SELECT /*+ BROADCAST(w) */ r.* FROM records r LEFT JOIN wanted w ON r.timestampType > w.number": (
        EVERYTHING - {"timestampType"},
        EVERYTHING - {"timestampType"},
    ),
    "SELECT * FROM records WHERE is_long(value)": (EVERYTHING - {"value"}, EVERYTHING - {"value"}),
    "SELECT * FROM records WHERE partition = 1": (EVERYTHING - {"partition"}, EVERYTHING - {"partition"}),
    "SELECT * FROM records TABLESAMPLE (50 PERCENT)": (set(), set()),
}


@pytest.mark.parametrize("query", PAST_SPARK)
def test_columns_without_an_expression_bypass_spark(session: SparkSession, query: str) -> None:
    session.createDataFrame([(0,), (1,)], "number int").createOrReplaceTempView("wanted")
    session.udf.register("is_long", lambda value: len(value) > 1, "boolean")
    transform = Transform.of(LineSinkConfig.model_construct(records_sql=query))
    assert transform is not None
    records = TransformedRecords(session, transform, tuple(RECORD_COLUMNS))
    frame = records._planned_frame(SPEC, 2)
    found = _column_use(frame)
    unread, handed_on = PAST_SPARK[query]
    assert (set(found.unread), set(found.unread & found.passed)) == (unread, handed_on)


@pytest.mark.parametrize("query", [query for query, (_, past) in PAST_SPARK.items() if "partition" in past])
def test_spark_gets_only_the_needed_columns(session: SparkSession, query: str) -> None:
    session.createDataFrame([(0,), (1,)], "number int").createOrReplaceTempView("wanted")
    session.udf.register("is_long", lambda value: len(value) > 1, "boolean")
    transform = Transform.of(LineSinkConfig.model_construct(records_sql=query))
    assert transform is not None
    records = TransformedRecords(session, transform, tuple(RECORD_COLUMNS))
    frame = records._planned_frame(SPEC, 2)
    found = _column_use(frame)
    reports = records._bypassing_reports(frame, SPEC, 2)
    assert reports is not None
    sink, *_, source = _path(reports._jdf.queryExecution().executedPlan())
    given, returned = _attributes(source), _attributes(sink.child())
    assert set(given) == set(found.in_rows)
    assert _column_use(reports).unread == found.unread & set(found.in_rows)
    assert set(returned) == {*frame.columns} - (found.passed - set(given))
    assert {returned[name] for name in ("partition", "offset")} == {given["partition"], given["offset"]}


@pytest.mark.parametrize(
    ("query", "counts"),
    [
        ("SELECT * FROM records WHERE offset % 2 = 0", True),
        (
            "SELECT * EXCEPT (key), offset + 1 AS key FROM records WHERE timestamp > '2024-01-01' AND timestampType = 0",
            True,
        ),
        ("SELECT * FROM records WHERE topic = 't'", True),
        ("SELECT * FROM records WHERE length(key) > 1", False),
        ("SELECT * EXCEPT (value), repeat('x', 1000000) AS value FROM records", False),
        ("SELECT * EXCEPT (value), offset AS value FROM records", True),
    ],
)
def test_spark_limits_batches_by_rows_of_fixed_size(session: SparkSession, query: str, counts: bool) -> None:
    # Measuring the bytes of a batch at each row takes longer than the rows themselves; Spark does so only
    # where a row may be large.
    transform = Transform("records.transform", lambda records: within(records, query))
    records = TransformedRecords(session, transform, tuple(RECORD_COLUMNS))
    frame = records._planned_frame(SPEC, 2)
    assert _counts(frame, _column_use(frame)) == counts
    reports = records._bypassing_reports(frame, SPEC, 2)
    assert reports is not None
    limit = reports.sparkSession.conf.get("spark.sql.execution.arrow.maxBytesPerBatch")
    assert limit == (str(2**31 - 1) if counts else str(16 * 1024 * 1024))


def within(records: DataFrame, query: str) -> DataFrame:
    records.createOrReplaceTempView("records")
    return records.sparkSession.sql(query)


@pytest.mark.extended
def test_a_batch_of_large_rows_is_limited_despite_counting_rows(session: SparkSession) -> None:
    # 10,000 rows of 20 KB would be 200 MB.
    columns = Columns(frozenset(EVERYTHING - {"offset"}), frozenset(EVERYTHING), most=_MOST_PACKED)
    size, rows = 20_000, 9_000

    def read(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for first in range(0, rows, 500):
            offsets, values = pa.array(range(first, first + 500)), pa.array([bytes(size)] * 500)
            batch = pa.RecordBatch.from_arrays([offsets, values], names=["offset", "value"])
            yield sent(SinkRecords(TopicPartition("t", 0), batch), columns, None)

    def sizes(given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in given:
            whole = batch.num_rows - batch.column("value").null_count
            yield pa.RecordBatch.from_pydict({"bytes": [batch.nbytes], "rows": [whole]})

    counting = _copied_session(session, _COUNTED)
    frame = counting.range(0, 1, 1, 1).mapInArrow(read, "partition int, offset bigint, value binary")
    found = frame.where("offset % 3 = 0").mapInArrow(sizes, "bytes bigint, rows bigint").collect()
    assert sum(row["rows"] for row in found) == rows / 3
    assert len(found) > 1
    assert max(row["bytes"] for row in found) < 33 * 1024 * 1024


def test_a_transform_function_is_called_once(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    # A second plan might read columns that bypass Spark.
    answers = iter(["offset > 1", "length(value) > 1", "length(key) > 1"])
    transform = Transform("records.transform", lambda records: records.where(next(answers)))
    records = TransformedRecords(session, transform, tuple(RECORD_COLUMNS))
    records.check()
    given = []
    monkeypatch.setattr(TransformedRecords, "_records", recording(TransformedRecords._records, given))
    records.job(SPEC, 2)
    assert [set(columns.in_rows) for columns in given] == [
        EVERYTHING,
        {"partition", "offset", "key", "value"},
    ]
    assert len(list(answers)) == 1


def recording(function: Callable[..., Any], given: list[Columns]) -> Callable[..., Any]:
    def recorded(*arguments: Any) -> Any:
        given.append(arguments[-1])
        return function(*arguments)

    return recorded


def test_with_map_in_arrow_all_columns_go_through_spark(session: SparkSession) -> None:
    # sinksdk cannot know which columns such a function reads and returns.
    transform = Transform.of(LineSinkConfig.model_construct(records_transform=f"{MODULE}:in_arrow"))
    assert transform is not None
    records = TransformedRecords(session, transform, tuple(RECORD_COLUMNS))
    assert _column_use(records._planned_frame(SPEC, 2)) == Columns()


def test_the_queries_of_the_documentation_return_the_documented_results(session: SparkSession) -> None:
    page = fences(ROOT / "docs" / "transforms.md")
    queries = [fence.code for fence in page if fence.language == "sql"]
    # The page's other blocks are about Connect's own chain, and have tests of their own.
    queries += [
        json.loads(fence.code)["config"]["records.sql"]
        for fence in page
        if fence.language == "json" and "records.sql" in fence.code
    ]
    assert len(queries) == 2
    names: dict[str, Any] = {}
    (function,) = (fence.code for fence in page if fence.language == "python" and "def delayed" in fence.code)
    exec(compile(function, "docs/transforms.md", "exec"), names)  # noqa: S102 - our own page
    transforms = [Transform.of(LineSinkConfig.model_construct(records_sql=query)) for query in queries]

    for transform in (*transforms, Transform("records.transform", names["delayed"])):
        assert transform is not None
        TransformedRecords(session.sparkContext, transform, tuple(RECORD_COLUMNS)).check()
