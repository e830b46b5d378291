"""A connector that version 62c36d0 ran, killed at every point of a commit, is continued by this version.

tests/fixtures/store_62c36d0 has that version's store, topic directory and S3 objects. S3 chooses upload ids:
uploads are created again with the same metadata and parts, and the store's texts get the new ids, endpoint
and bucket.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow.parquet as pq
import pytest

import sinksdk
from sinksdk.control.herder import Herder
from sinksdk.control.shown import ConnectorInfo
from sinksdk.store import open_store
from sinksdk.store.reports import ConnectorHistory
from tests.helpers.older_store import CONNECTOR, in_s3, restore_s3, restore_store, restore_topics
from tests.integration.archive_site import Site, client, site
from tests.integration.test_byte_for_byte import milliseconds

if TYPE_CHECKING:
    from pyspark import SparkContext

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.slow]

PARTITIONS, END, LATER = range(5), 290, 350
GENERATION = 10


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path) as made:
        restore_store(made.store_file, restore_s3(client(made.endpoint), made.endpoint, made.bucket))
        restore_topics(made.topics)
        made.configure(flush_size=40, tasks_max=5)
        yield made


def run(archive: Site, spark: SparkContext) -> dict[int, int]:
    summary = sinksdk.run(
        archive.config, source=archive.topics, store=archive.store, spark=spark, until_caught_up=True
    )
    return {partition.partition: records for partition, records in summary.partitions.items() if records}


def seen(archive: Site) -> tuple[ConnectorInfo, ConnectorHistory]:
    with closing(open_store(archive.store)) as store:
        herder = Herder(store)
        return herder.info(CONNECTOR), herder.history(CONNECTOR)


def objects(archive: Site) -> dict[str, bytes]:
    s3 = client(archive.endpoint)
    listed = s3.list_objects_v2(Bucket=archive.bucket)["Contents"]
    return {
        item["Key"]: s3.get_object(Bucket=archive.bucket, Key=item["Key"])["Body"].read() for item in listed
    }


def archived(archive: Site, partition: int) -> list[tuple[Any, ...]]:
    bodies = [body for key, body in objects(archive).items() if f"/partition={partition}/" in key]
    rows = [row for body in bodies for row in fastavro.reader(io.BytesIO(body))]
    return [(row["offset"], row["key"], row["value"], milliseconds(row["timestamp"])) for row in rows]


def produced(archive: Site, partition: int) -> list[tuple[Any, ...]]:
    files = sorted((archive.topics / "topic=orders" / f"partition={partition}").glob("*.parquet"))
    rows = [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]
    return [(row["offset"], row["key"], row["value"], milliseconds(row["timestamp"])) for row in rows]


def assert_complete(archive: Site, end: int) -> None:
    for partition in PARTITIONS:
        rows = archived(archive, partition)
        assert rows == produced(archive, partition)
        assert [row[0] for row in rows] == list(range(end))
    committed = sinksdk.committed_offsets(archive.store, CONNECTOR)
    assert {p.partition: (o.offset, o.tokens) for p, o in committed.items()} == dict.fromkeys(
        PARTITIONS, (end, ())
    )
    assert archive.uploads() == []
    code, output = archive.verify()
    assert code == 0, output


def test_an_older_versions_connector_is_completed_and_continued(archive: Site, spark: SparkContext) -> None:
    kept = in_s3()
    before, past = seen(archive)
    assert len(archive.uploads()) == len(kept["uploads"]) == 7

    assert run(archive, spark) == {1: 60, 4: 190}

    assert_complete(archive, END)
    found = objects(archive)
    older = {item["key"]: item["body"] for item in kept["objects"]}
    assert {key: found[key] for key in older} == older
    published = [
        upload
        for upload in kept["uploads"]
        if "partition=2" in upload["key"] or "partition=3" in upload["key"]
    ]
    assert [found[upload["key"]] for upload in published] == [
        b"".join(upload["parts"]) for upload in published
    ]

    after, history = seen(archive)
    assert before.generation == GENERATION < after.generation
    assert [p.partition.partition for p in before.partitions if p.error] == [4]
    assert [p.partition.partition for p in after.partitions if p.error] == []
    assert {p.partition.partition: (p.committed, p.end, p.lag) for p in after.partitions} == dict.fromkeys(
        PARTITIONS, (END, END, 0)
    )
    assert history.failures == past.failures
    new = [bucket for bucket in history.buckets if bucket not in past.buckets]
    assert sum(bucket.records for bucket in new) == 60 + 190
    # The last four files were complete, and only had to be published.
    assert sum(bucket.files for bucket in new) == 2 + 5 + 4

    archive.produce(len(PARTITIONS), LATER - END, size=12, first=END)

    assert run(archive, spark) == dict.fromkeys(PARTITIONS, LATER - END)

    assert_complete(archive, LATER)
    assert seen(archive)[0].generation > after.generation
