"""Rows of topic directory files as Spark DataFrames, in offset order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as sf

from sinksdk.records import OffsetRange, TopicPartition
from sinksdk.sources.topic_directory.footers import DataFile, Shape, TimestampEncoding
from sinksdk.sources.topic_directory.scans import scans

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession

_TYPES: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>",
}
_COORDINATES: Final = ("topic", "partition")
_OPTIONAL: Final = ("timestampType", "headers")
_GLOB: Final = str.maketrans({character: f"\\{character}" for character in r"{}[]*?\\"})


class RangeRead(NamedTuple):
    """A range and the files of its partition, in the order of their offsets."""

    partition: TopicPartition
    offsets: OffsetRange
    files: Sequence[DataFile]


def read_ranges(spark: SparkSession, reads: Sequence[RangeRead]) -> DataFrame:
    """The rows of ranges, one range after the other, in one Spark partition."""
    columns = [name for name in _TYPES if name not in _OPTIONAL or _any_has(reads, name)]
    frames = [_range(spark, read, columns) for read in reads] or [_nothing(spark, columns)]
    return union_all(frames).coalesce(1)


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


def _range(spark: SparkSession, read: RangeRead, columns: Sequence[str]) -> DataFrame:
    stored = [name for name in columns if name not in _COORDINATES]
    frames = [_scan(spark, batch, read.offsets, stored) for batch in scans(read.files, read.offsets)]
    rows = union_all(frames or [_nothing(spark, stored)])
    coordinates = {
        "topic": sf.lit(read.partition.topic).alias("topic"),
        "partition": sf.lit(read.partition.partition).cast("int").alias("partition"),
    }
    return rows.select(*(coordinates.get(name, sf.col(name)) for name in columns))


def _scan(
    spark: SparkSession, files: Sequence[DataFile], offsets: OffsetRange, columns: Sequence[str]
) -> DataFrame:
    shape = files[0].shape
    paths = [f"file:{file.path.translate(_GLOB)}" for file in files]
    rows = _reader(spark, shape).parquet(*paths)
    if files[0].first < offsets.start:
        rows = rows.where(sf.col("offset") >= offsets.start)
    if files[-1].last >= offsets.end:
        rows = rows.where(sf.col("offset") < offsets.end)
    rows = rows.select(*(_column(name, shape) for name in columns))
    if len(files) == 1:
        # Parts of one file stay in order: Spark sorts parts by size, longest first, and only the last
        # is shorter.
        return rows
    return rows.coalesce(1).sortWithinPartitions("offset")


def _reader(spark: SparkSession, shape: Shape) -> DataFrameReader:
    """A reader that is told the types: Spark then starts no job to find them out."""
    types = {name: kind for name, kind in _TYPES.items() if name in shape.columns}
    if "timestamp" in types and shape.timestamps is not TimestampEncoding.TIMESTAMP:
        types["timestamp"] = "bigint"
    return spark.read.schema(", ".join(f"{name} {kind}" for name, kind in types.items()))


def _column(name: str, shape: Shape) -> Column:
    if name not in shape.columns:
        return sf.lit(None).cast(_TYPES[name]).alias(name)
    column = sf.col(name)
    if name != "timestamp" or shape.timestamps is TimestampEncoding.TIMESTAMP:
        return column
    if shape.timestamps is TimestampEncoding.MILLISECONDS:
        return sf.timestamp_millis(column).alias(name)
    # Integers that are rounded down, also before 1970; Column's own division would make doubles of them.
    return sf.timestamp_micros(sf.expr("(timestamp - pmod(timestamp, 1000)) div 1000")).alias(name)


def _nothing(spark: SparkSession, columns: Sequence[str]) -> DataFrame:
    """No rows, in a partition that Spark does not optimise away: its task has other things to do."""
    empty = spark.range(1, numPartitions=1).where("id < 0")
    return empty.select(*(sf.lit(None).cast(_TYPES[name]).alias(name) for name in columns))
