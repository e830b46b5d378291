"""Functions for ``records.transform`` that tests apply to records."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

READING = "carrier string, delay int"


def as_python(value: bytes) -> bytes:
    # Only this module has the function: executors get the module's code with it.
    return value + b"!"


def with_a_python_udf(records: DataFrame) -> DataFrame:
    return records.withColumn("value", f.udf(lambda value: as_python(value), "binary")("value"))  # noqa: PLW0108 - without type hints


def with_a_pandas_udf(records: DataFrame) -> DataFrame:
    def longer(values: pd.Series) -> pd.Series:
        return values + b"!"

    return records.withColumn("value", f.pandas_udf(longer, "binary")("value"))


def in_arrow(records: DataFrame) -> DataFrame:
    def odd(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.filter(pa.array([offset % 2 == 1 for offset in batch.column("offset").to_pylist()]))

    return records.mapInArrow(odd, records.schema)


def with_a_broadcast_join(records: DataFrame) -> DataFrame:
    carriers = records.sparkSession.createDataFrame(
        [("k0", "zero"), ("k1", "one")], "code string, name string"
    )
    joined = records.join(f.broadcast(carriers), records.key.cast("string") == carriers.code)
    return joined.select("topic", "partition", "offset", f.col("name").alias("value"))


def from_json(records: DataFrame) -> DataFrame:
    reading = f.from_json(records.value.cast("string"), "n int")
    return records.select("topic", "partition", "offset", "key", f.to_json(reading).alias("value")).where(
        reading.n > 10
    )


def exploded(records: DataFrame) -> DataFrame:
    return records.select("*", f.explode(f.array(f.lit(1), f.lit(2))).alias("n")).drop("n")


def with_a_lookup_of_its_own(records: DataFrame) -> DataFrame:
    return _looked_up(records, "UTC", [("k0", "a"), ("k1", "b")])


def with_another_lookup(records: DataFrame) -> DataFrame:
    return _looked_up(records, "Asia/Tokyo", [("k1", "c"), ("k2", "d")])


def _looked_up(records: DataFrame, zone: str, rows: list[tuple[str, str]]) -> DataFrame:
    session = records.sparkSession
    session.createDataFrame(rows, "code string, name string").createOrReplaceTempView("lookup")
    session.conf.set("spark.sql.session.timeZone", zone)
    records.createOrReplaceTempView("mine")
    return session.sql(
        "SELECT /*+ BROADCAST(lookup) */ mine.* EXCEPT (value), concat(name, ' ', date_format(timestamp, 'HH')) AS value "
        "FROM mine JOIN lookup ON code = string(key)"
    )


def returns_a_stream(records: DataFrame) -> DataFrame:
    return records.sparkSession.readStream.format("rate").load()


def returns_a_list(records: DataFrame) -> list[object]:
    return records.take(0)


def loses_the_offset(records: DataFrame) -> DataFrame:
    return records.drop("offset")


def aggregates(records: DataFrame) -> DataFrame:
    return records.groupBy("topic", "partition").agg(
        f.max("offset").alias("offset"), f.max("value").alias("value")
    )


def of_a_missing_column(records: DataFrame) -> DataFrame:
    return records.where(records["delay"] > 60)


def returns_nothing(records: DataFrame) -> None:
    """A function that forgot its return."""


def raises(records: DataFrame) -> DataFrame:
    message = "no such table"
    raise LookupError(message)


def other_records(records: DataFrame) -> DataFrame:
    return records.sparkSession.createDataFrame(
        [("t", 0, 1, b"v")], "topic string, partition int, offset long, value binary"
    )


def cached(records: DataFrame) -> DataFrame:
    return records.cache()


def united(records: DataFrame) -> DataFrame:
    return records.union(records)


not_a_function = "records"
