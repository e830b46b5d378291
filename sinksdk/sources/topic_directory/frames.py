"""Rows of topic directory files as Spark DataFrames, in offset order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from sinksdk.records import OffsetRange, TopicPartition
from sinksdk.sources.columns import SPARK_TYPES, no_rows
from sinksdk.sources.topic_directory.footers import DataFile, Shape, TimestampEncoding
from sinksdk.sources.topic_directory.scans import scans

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OPTIONAL: Final = ("timestampType", "headers")
_GLOB: Final = str.maketrans({character: f"\\{character}" for character in r"{}[]*?\\"})


class RangeRead(NamedTuple):
    """A range and the files of its partition, in the order of their offsets."""

    partition: TopicPartition
    offsets: OffsetRange
    files: Sequence[DataFile]


def read_ranges(spark: SparkSession, reads: Sequence[RangeRead]) -> DataFrame:
    """The rows of ranges, one range after the other, in one Spark partition."""
    columns = [name for name in SPARK_TYPES if name not in _OPTIONAL or _any_has(reads, name)]
    frames = [
        _scan(spark, read, files, columns) for read in reads for files in scans(read.files, read.offsets)
    ]
    frames = frames or [no_rows(spark, columns)]
    return frames[0] if len(frames) == 1 else union_all(frames).coalesce(1)


def union_all(frames: Sequence[DataFrame]) -> DataFrame:
    """The frames' rows one after the other.

    Halves instead of a chain: Spark looks through the whole plan at every union, so that a chain of a
    thousand takes seconds.
    """
    if len(frames) == 1:
        return frames[0]
    middle = len(frames) // 2
    return union_all(frames[:middle]).union(union_all(frames[middle:]))


def _any_has(reads: Sequence[RangeRead], name: str) -> bool:
    return any(name in file.shape.columns for read in reads for file in read.files)


def _scan(
    spark: SparkSession, read: RangeRead, files: Sequence[DataFile], columns: Sequence[str]
) -> DataFrame:
    """The rows of consecutive files of one shape, in one Spark partition."""
    shape = files[0].shape
    paths = [f"file:{file.path.translate(_GLOB)}" for file in files]
    # A reader that is told the types starts no job to find them out.
    rows = spark.read.schema(_schema(shape)).parquet(*paths)
    if files[0].first < read.offsets.start:
        rows = rows.where(f"offset >= {read.offsets.start}")
    if files[-1].last >= read.offsets.end:
        rows = rows.where(f"offset < {read.offsets.end}")
    rows = rows.selectExpr(*(f"{_value(name, shape, read.partition)} AS {name}" for name in columns))
    # Parts of one file are in order: Spark sorts parts by size, longest first, and only the last is
    # shorter. Parts of several files are not.
    return rows.coalesce(1) if len(files) == 1 else rows.coalesce(1).sortWithinPartitions("offset")


def _schema(shape: Shape) -> str:
    types = {name: kind for name, kind in SPARK_TYPES.items() if name in shape.columns}
    if "timestamp" in types and shape.timestamps is not TimestampEncoding.TIMESTAMP:
        types["timestamp"] = "bigint"
    return ", ".join(f"{name} {kind}" for name, kind in types.items())


def _value(name: str, shape: Shape, partition: TopicPartition) -> str:
    """A column as SQL, from what the files have."""
    if name == "topic":
        return f"CAST(X'{partition.topic.encode().hex()}' AS STRING)"
    if name == "partition":
        return f"INT({partition.partition})"
    if name not in shape.columns:
        return f"CAST(NULL AS {SPARK_TYPES[name]})"
    if name == "timestamp" and shape.timestamps is TimestampEncoding.MILLISECONDS:
        return "timestamp_millis(timestamp)"
    if name == "timestamp" and shape.timestamps is TimestampEncoding.NANOSECONDS:
        return "timestamp_micros((timestamp - pmod(timestamp, 1000)) div 1000)"  # down, also before 1970
    return name
