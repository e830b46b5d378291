from __future__ import annotations

import datetime as dt
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from sinksdk import TopicPartition
from sinksdk.topics.directory import write_records
from tests.helpers.tiers import extended_after
from tests.integration.archive_site import Site, client, site
from tests.integration.driving import driver_of

if TYPE_CHECKING:
    from pyspark import SparkContext

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Row = dict[str, Any]


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path) as made:
        yield made


def rows_of(random: np.random.Generator, first: int, count: int) -> list[Row]:
    offset, rows = first, []
    for number in range(count):
        offset += int(random.choice([1, 1, 1, 2, 50]))
        size = int(random.choice([0, 1, 200, 5_000, 1_000_000], p=[0.1, 0.1, 0.5, 0.27, 0.03]))
        rows.append(
            {
                "offset": offset,
                "key": None if number % 3 == 0 else b"" if number % 7 == 0 else b"key-%d" % number,
                "value": None if number % 5 == 0 else random.bytes(size),
                "timestamp": [-1, None, 0, 1_700_000_000_123, -86_400_001][number % 5],
                "headers": [
                    [],
                    None,
                    [{"key": "a", "value": b"1"}, {"key": "a", "value": b"2"}, {"key": "a", "value": None}],
                    [{"key": "größe-日本", "value": b"\x00\xff"}, {"key": "", "value": b""}],
                ][number % 4],
            }
        )
    return rows


def write(archive: Site, partition: TopicPartition, rows: Sequence[Row]) -> None:
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    table = pa.table(
        {
            "offset": pa.array(columns["offset"], pa.int64()),
            "key": pa.array(columns["key"], pa.binary()),
            "value": pa.array(columns["value"], pa.binary()),
            "timestamp": pa.array(columns["timestamp"], pa.timestamp("ms", tz="UTC")),
            "headers": pa.array(columns["headers"], HEADERS),
        }
    )
    write_records(archive.topics, partition, table)


def archived(archive: Site, topic: str, partition: int) -> list[Row]:
    s3 = client(archive.endpoint)
    prefix = f"topics/{topic}/partition={partition}/"
    keys = [item["Key"] for item in s3.list_objects_v2(Bucket=archive.bucket, Prefix=prefix)["Contents"]]
    rows: list[Row] = []
    for key in sorted(keys):
        body = s3.get_object(Bucket=archive.bucket, Key=key)["Body"].read()
        rows += fastavro.reader(io.BytesIO(body))
    names = ("offset", "key", "value", "headers")
    return [{"timestamp": milliseconds(row["timestamp"]), **{n: row[n] for n in names}} for row in rows]


def milliseconds(moment: dt.datetime | None) -> int | None:
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return None if moment is None else (moment - epoch) // dt.timedelta(milliseconds=1)


@pytest.mark.parametrize("topic", extended_after(1, ["orders", "007", "2024-01-01"]))
def test_archived_records_equal_the_source_in_every_field(
    archive: Site, spark: SparkContext, topic: str
) -> None:
    random = np.random.default_rng(len(topic))
    archive.topic = topic
    archive.configure(flush_size=60)
    produced: dict[int, list[Row]] = {}
    for partition in range(2):
        first, rows = 10 * partition, []
        for count in (1, 90, 7, 200, 2):
            chunk = rows_of(random, first, count)
            write(archive, TopicPartition(topic, partition), chunk)
            first = chunk[-1]["offset"] + 1
            rows += chunk
        produced[partition] = rows

    driver, _ = driver_of(archive, spark)
    driver.run(until_caught_up=True)

    for partition, rows in produced.items():
        expected = [{**row, "headers": row["headers"] or []} for row in rows]
        assert archived(archive, topic, partition) == expected
    code, output = archive.verify()
    assert code == 0, output


@pytest.mark.extended
def test_every_codec_is_readable_by_other_avro_readers(archive: Site, spark: SparkContext) -> None:
    rows = rows_of(np.random.default_rng(7), 0, 60)
    write(archive, TopicPartition("orders", 0), rows)
    found = []
    for codec in ("null", "deflate", "snappy", "zstandard"):
        archive.configure(name=f"archive-{codec}", avro_codec=codec, topics_dir=f"topics-{codec}")
        driver, _ = driver_of(archive, spark)
        driver.run(until_caught_up=True)
        found.append([row["value"] for row in archived_under(archive, f"topics-{codec}")])

    assert found == [[row["value"] for row in rows]] * 4


def archived_under(archive: Site, folder: str) -> list[Row]:
    s3 = client(archive.endpoint)
    listed = s3.list_objects_v2(Bucket=archive.bucket, Prefix=f"{folder}/orders/")["Contents"]
    bodies = [s3.get_object(Bucket=archive.bucket, Key=item["Key"])["Body"].read() for item in listed]
    return [row for body in bodies for row in fastavro.reader(io.BytesIO(body))]
