from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sinksdk.records import HEADERS_TYPE, OffsetRange, TopicPartition
from sinksdk.sources import Subscription, TopicDirectory, write_records, write_transaction
from sinksdk.sources.topic_directory.frames import union_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
ALL = Subscription(regex=".*")


def rows(offsets: Any, **columns: Any) -> pa.Table:
    size = len(offsets)
    plain: dict[str, Any] = {
        "offset": pa.array(offsets, pa.int64()),
        "key": pa.nulls(size, pa.binary()),
        "value": pa.array([b"v"] * size, pa.binary()),
    }
    return pa.table(plain | columns)


def put(path: Path, table: pa.Table, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)


def read_all(spark: SparkSession, root: Path) -> DataFrame:
    source = TopicDirectory(root)
    return source.read(spark, source.partitions(ALL))


def offsets_by_partition(frame: DataFrame) -> list[list[int]]:
    """The offsets as `mapInArrow` sees them, one list per Spark partition."""

    def one_row(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seen = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
        yield pa.RecordBatch.from_pydict({"seen": pa.array([seen], pa.list_(pa.int64()))})

    return [row.seen for row in frame.select("offset").mapInArrow(one_row, "seen array<long>").collect()]


def jobs(spark: SparkSession) -> int:
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup())


@pytest.fixture
def session_conf(spark: SparkSession) -> Iterator[Any]:
    """Set a configuration key for one test."""
    before: dict[str, str | None] = {}

    def set_conf(key: str, value: str) -> None:
        before.setdefault(key, spark.conf.get(key, None))
        spark.conf.set(key, value)

    yield set_conf
    for key, value in before.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


def test_records_come_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    """Null keys and values, 1 MB values, -1 timestamps, repeated and non-ASCII headers: the same bytes."""
    columns: dict[str, Any] = {
        "key": pa.array([None, b"", bytes(range(256)), b"k"], pa.binary()),
        "value": pa.array([b"\x00" * 1_000_000, None, b"", b"\xff\xfe"], pa.binary()),
        "timestamp": pa.array([-1, 0, None, 1_700_000_000_123], pa.timestamp("ms", "UTC")),
        "timestampType": pa.array([0, 1, None, -1], pa.int32()),
        "headers": pa.array(
            [
                [{"key": "größe", "value": b"1"}, {"key": "größe", "value": None}],
                [],
                None,
                [{"key": "", "value": b""}],
            ],
            HEADERS_TYPE,
        ),
    }
    write_records(tmp_path, T0, rows([3, 5, 6, 9], **columns))
    frame = read_all(spark, tmp_path)
    assert frame.columns == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
    ]
    got = frame.toArrow()
    for name in ("key", "value", "timestampType", "headers"):
        assert got.column(name).to_pylist() == columns[name].to_pylist()
    assert got.column("offset").to_pylist() == [3, 5, 6, 9]
    assert got.column("topic").to_pylist() == ["t"] * 4
    assert got.column("partition").to_pylist() == [0] * 4
    assert got.column("timestamp").cast(pa.int64()).to_pylist() == [-1_000, 0, None, 1_700_000_000_123_000]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
@pytest.mark.parametrize("reader", ["true", "false"])
def test_timestamps_are_the_same_instants_however_they_are_written(
    spark: SparkSession, tmp_path: Path, session_conf: Any, zone: str, reader: str
) -> None:
    """Any unit, with and without a zone, INT96, plain milliseconds; whatever the session's zone is."""
    session_conf("spark.sql.session.timeZone", zone)
    session_conf("spark.sql.parquet.enableVectorizedReader", reader)
    milliseconds = [-1, 0, None, 1_600_000_000_123]
    nanoseconds = [-1, 0, None, 1_600_000_000_123_456_789]
    arrays = {
        "ms": pa.array(milliseconds, pa.timestamp("ms")),
        "ms_utc": pa.array(milliseconds, pa.timestamp("ms", "UTC")),
        "us_zone": pa.array(milliseconds, pa.int64())
        .cast(pa.timestamp("ms"))
        .cast(pa.timestamp("us", "Asia/Tokyo")),
        "long": pa.array(milliseconds, pa.int64()),
        "ns": pa.array(nanoseconds, pa.timestamp("ns")),
        "ns_utc": pa.array(nanoseconds, pa.timestamp("ns", "UTC")),
    }
    for name, array in arrays.items():
        write_records(tmp_path, TopicPartition(name, 0), rows(range(4), timestamp=array))
    int96 = rows(range(4), timestamp=arrays["ns"])
    put(tmp_path / "topic=int96/partition=0/x.parquet", int96, use_deprecated_int96_timestamps=True)
    source = TopicDirectory(tmp_path)
    for partition, offsets in source.partitions(ALL).items():
        frame = source.read(spark, {partition: offsets}).selectExpr("unix_micros(timestamp) as micros")
        expected = [-1_000, 0, None, 1_600_000_000_123_000]
        if partition.topic in {"ns", "ns_utc", "int96"}:
            expected = [-1, 0, None, 1_600_000_000_123_456]
        assert [row.micros for row in frame.collect()] == expected, partition


def test_what_spark_writes_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """`partitionBy("topic", "partition")`: odd topics stay text, strings are bytes, INT96 is an instant."""
    topics = ["007", "2024-01-01", "a:b/c=%", "größe"]
    moment = datetime(2024, 5, 6, 7, 8, 9, 123_000, UTC)
    written = [(topic, 1, at, "k", f"ü{at}", moment) for topic in topics for at in range(3)]
    schema = "topic string, partition int, offset long, key string, value string, timestamp timestamp"
    frame = spark.createDataFrame(written, schema).repartition(1)
    frame.sortWithinPartitions("offset").write.partitionBy("topic", "partition").parquet(str(tmp_path / "d"))
    got = read_all(spark, tmp_path / "d").toArrow()
    assert set(got.column("topic").to_pylist()) == set(topics)
    assert set(got.column("partition").to_pylist()) == {1}
    assert got.column("value").to_pylist() == [f"ü{at}".encode() for at in range(3)] * 4
    assert got.column("timestamp").to_pylist() == [moment] * 12


def test_many_small_files_of_any_size_come_in_offset_order(spark: SparkSession, tmp_path: Path) -> None:
    """Spark would read the largest file first; here 120 files of shuffled sizes come in order of offsets."""
    sizes = np.random.default_rng(7).integers(1, 200, 120)
    borders = np.concatenate([[0], np.cumsum(sizes)])
    for start, stop in pairwise(borders.tolist()):
        write_records(tmp_path, T0, rows(range(start, stop)))
    assert offsets_by_partition(read_all(spark, tmp_path)) == [list(range(borders[-1]))]


def test_small_and_large_files_mixed_come_in_offset_order(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scans that are sorted and scans that are not follow each other as their offsets do."""
    monkeypatch.setattr("sinksdk.sources.topic_directory.scans.SCAN_BYTES", 2_000)
    sizes = [10, 500, 20, 20, 20, 1_000, 5, 5]
    borders = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    for start, stop in pairwise(borders):
        value = pa.array([b"%d" % offset for offset in range(start, stop)])
        write_records(tmp_path, T0, rows(range(start, stop), value=value))
    assert offsets_by_partition(read_all(spark, tmp_path)) == [list(range(borders[-1]))]


def test_a_large_file_that_spark_splits_comes_in_offset_order(
    spark: SparkSession, tmp_path: Path, session_conf: Any
) -> None:
    """50 row groups, cut into dozens of parts by a tiny maxPartitionBytes: the parts keep their order."""
    session_conf("spark.sql.files.maxPartitionBytes", "8k")
    session_conf("spark.sql.files.openCostInBytes", "0")
    random = np.random.default_rng(7)
    values = pa.array([random.bytes(int(size)) for size in random.integers(1, 100, 5_000)], pa.binary())
    put(tmp_path / "topic=t/partition=0/x.parquet", rows(range(5_000), value=values), row_group_size=100)
    scan = spark.read.parquet(str(tmp_path / "topic=t/partition=0/x.parquet"))
    assert scan.rdd.getNumPartitions() > 20
    assert offsets_by_partition(read_all(spark, tmp_path)) == [list(range(5_000))]


def test_only_the_range_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """Start and end may lie within files, in a gap, or on a border."""
    for first in (0, 100, 200):
        write_records(tmp_path, T0, rows(range(first, first + 50)))
    source = TopicDirectory(tmp_path)
    everything = [offset for first in (0, 100, 200) for offset in range(first, first + 50)]
    for start, end in ((0, 250), (10, 240), (25, 30), (50, 100), (60, 101), (100, 150), (249, 250)):
        frame = source.read(spark, {T0: OffsetRange(start, end)})
        assert offsets_by_partition(frame) == [[offset for offset in everything if start <= offset < end]]


@pytest.mark.parametrize("ranges", [{}, {T0: OffsetRange(7, 7)}, {T1: OffsetRange(0, 0)}])
def test_a_range_without_rows_still_has_its_partition(
    spark: SparkSession, tmp_path: Path, ranges: dict[TopicPartition, OffsetRange]
) -> None:
    """The task over it runs once and finds nothing: it may have something else to do."""
    write_records(tmp_path, T0, rows([0, 1]))
    frame = TopicDirectory(tmp_path).read(spark, ranges)
    assert offsets_by_partition(frame) == [[]]
    assert offsets_by_partition(union_all([frame, frame]).coalesce(1)) == [[]]


def test_ranges_follow_each_other_and_tasks_stay_apart(spark: SparkSession, tmp_path: Path) -> None:
    """Frames united and coalesced make one Spark partition in order; two such frames united make two."""
    for partition, first in ((T0, 0), (T0, 10), (T1, 100)):
        write_records(tmp_path, partition, rows(range(first, first + 3)))
    source = TopicDirectory(tmp_path)
    ends = source.partitions(ALL)
    both = source.read(spark, {T1: ends[T1], T0: ends[T0]})
    single = [source.read(spark, {partition: ends[partition]}) for partition in (T1, T0)]
    expected = [100, 101, 102, 0, 1, 2, 10, 11, 12]
    assert offsets_by_partition(both) == [expected]
    task = union_all(single).coalesce(1)
    assert offsets_by_partition(task.union(both)) == [expected, expected]


def test_columns_that_no_file_has_are_absent(spark: SparkSession, tmp_path: Path) -> None:
    """No headers and no timestampType: no such columns; a timestamp is always there, null here."""
    write_records(tmp_path, T0, rows([0]))
    frame = read_all(spark, tmp_path)
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp"]
    assert [row.timestamp for row in frame.collect()] == [None]


def test_columns_that_some_files_have_are_null_in_the_others(spark: SparkSession, tmp_path: Path) -> None:
    """Headers came with the second file, and the value column of the third has no type."""
    headers = pa.array([[{"key": "h", "value": b"1"}]], HEADERS_TYPE)
    write_records(tmp_path, T0, rows([0]))
    write_records(tmp_path, T0, rows([1], headers=headers))
    write_records(tmp_path, T0, rows([2], value=pa.nulls(1)))
    got = read_all(spark, tmp_path).toArrow().select(["offset", "value", "headers"])
    assert got.to_pylist() == [
        {"offset": 0, "value": b"v", "headers": None},
        {"offset": 1, "value": b"v", "headers": [{"key": "h", "value": b"1"}]},
        {"offset": 2, "value": None, "headers": None},
    ]


def test_offsets_of_any_integer_type_are_longs(spark: SparkSession, tmp_path: Path) -> None:
    """Small and unsigned integers, over several files and with a filter."""
    for at, kind in enumerate((pa.int8(), pa.int16(), pa.uint8(), pa.uint16(), pa.int32(), pa.uint32())):
        table = rows([at * 10, at * 10 + 1])
        write_records(tmp_path, T0, table.set_column(0, "offset", table.column("offset").cast(kind)))
    frame = TopicDirectory(tmp_path).read(spark, {T0: OffsetRange(1, 51)})
    assert offsets_by_partition(frame) == [[1, 10, 11, 20, 21, 30, 31, 40, 41, 50]]


def test_columns_that_are_not_selected_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    """Neither from the files nor as literals: each costs time on its way to Python."""
    write_records(tmp_path, T0, rows([0], timestamp=pa.array([1], pa.timestamp("ms", "UTC"))))
    write_records(tmp_path, T0, rows([1], timestamp=pa.array([1], pa.timestamp("ms", "UTC"))))
    frame = read_all(spark, tmp_path).select("offset", "value")
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "ReadSchema: struct<value:binary,offset:bigint>" in plan
    assert "topic#" not in plan


def test_planning_starts_no_job(spark: SparkSession, tmp_path: Path) -> None:
    """Types are told and files are listed in the driver, also beyond the 32 that Spark lists by itself."""
    for at in range(40):
        write_records(tmp_path, T0, rows([at]))
    before = jobs(spark)
    frame = read_all(spark, tmp_path)
    assert jobs(spark) == before
    frame.collect()
    assert jobs(spark) == before + 1


def test_any_path_can_be_a_topic_directory(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spaces, per cent signs and characters that Spark takes for patterns; relative ones too."""
    monkeypatch.chdir(tmp_path)
    for name in ("a b%20#c", "data[1]{x,y}*?", "ü:é", "back\\slash"):
        write_records(name, TopicPartition("a:b=[x]*", 0), rows([0, 1]))
        write_records(name, TopicPartition("a:b=[x]*", 0), rows([2]))
        assert offsets_by_partition(read_all(spark, Path(name))) == [[0, 1, 2]]


def test_executors_of_a_standalone_master_read_the_directory(tmp_path: Path, standalone_master: str) -> None:
    """Executors are other processes, which see the same paths."""
    for at in range(3):
        write_records(tmp_path, T0, rows([at]))
    script = """
import sys
from sinksdk.sources import Subscription, TopicDirectory
from sinksdk.spark.session import create_session
source = TopicDirectory(sys.argv[1])
spark = create_session("reader", sys.argv[2], extra_conf={"spark.executor.memory": "512m"})
frame = source.read(spark, source.partitions(Subscription(("t",))))
print([row.offset for row in frame.collect()])
"""
    command = [sys.executable, "-c", script, str(tmp_path), standalone_master]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (run.stdout, run.stderr) == ("[0, 1, 2]\n", "")


def test_a_transaction_over_partitions_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """Only what an entry names is read."""
    write_transaction(tmp_path, {T0: rows([0, 1]), T1: rows([5])})
    write_records(tmp_path, T0, rows([2]))
    assert offsets_by_partition(read_all(spark, tmp_path)) == [[0, 1, 5]]
