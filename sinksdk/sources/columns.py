"""The columns that every source gives, those of Spark's Kafka source, and a frame without rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPARK_TYPES: Final[Mapping[str, str]] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>",
}
"""Type of each column, as SQL."""


def no_rows(spark: SparkSession, columns: Iterable[str] = SPARK_TYPES) -> DataFrame:
    """No rows, in a partition that Spark does not optimise away: its task has other things to do."""
    empty = spark.range(1, numPartitions=1).where("id < 0")
    return empty.selectExpr(*(f"CAST(NULL AS {SPARK_TYPES[name]}) AS {name}" for name in columns))
