"""Rows of Kafka partitions as Spark DataFrames: Spark's own batch source, with explicit ranges."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from sinksdk.records import OffsetRange, TopicPartition
from sinksdk.sources.columns import no_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Value = TypeVar("Value")

_SPARKS_OWN: Final = frozenset(
    {
        "auto.offset.reset",
        "enable.auto.commit",
        "interceptor.classes",
        "key.deserializer",
        "value.deserializer",
        "group.id",
    }
)
"""Client properties that Spark sets itself, and refuses or warns of."""
_DEFAULTS: Final[Mapping[str, str]] = {
    # Connect's and the Java client's 500 make Spark go to the client's queue for every 500 records.
    "max.poll.records": "10000",
    # A fetch at the log's end is answered after so long, and what Spark asks meanwhile waits behind it: with
    # Kafka's 500 ms every partition would take half a second, however little is in it.
    "fetch.max.wait.ms": "10",
    # A reader that calls a deleted topic into being again would hide that it is missing.
    "allow.auto.create.topics": "false",
}


def read_ranges(
    spark: SparkSession, ranges: Mapping[TopicPartition, OffsetRange], properties: Mapping[str, str]
) -> DataFrame:
    """The rows of ranges in one Spark partition, each range's rows together and in offset order."""
    wanted = {p: offsets for p, offsets in ranges.items() if offsets.start < offsets.end}
    if not wanted:
        return no_rows(spark)
    options = {
        "assign": json.dumps({topic: list(found) for topic, found in _by_topic(wanted).items()}),
        "startingOffsets": _offsets({p: offsets.start for p, offsets in wanted.items()}),
        "endingOffsets": _offsets({p: offsets.end for p, offsets in wanted.items()}),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
    }
    kafka = {**_DEFAULTS, **properties}
    options |= {f"kafka.{key}": value for key, value in kafka.items() if key not in _SPARKS_OWN}
    return spark.read.format("kafka").options(**options).load().coalesce(1)


def _offsets(offsets: Mapping[TopicPartition, int]) -> str:
    return json.dumps(
        {
            topic: {str(p): offset for p, offset in found.items()}
            for topic, found in _by_topic(offsets).items()
        }
    )


def _by_topic(values: Mapping[TopicPartition, Value]) -> dict[str, dict[int, Value]]:
    topics: dict[str, dict[int, Value]] = {}
    for partition, value in sorted(values.items()):
        topics.setdefault(partition.topic, {})[partition.partition] = value
    return topics
