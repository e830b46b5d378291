"""Configure the connectors that Kafka Connect runs."""

from __future__ import annotations

from pathlib import Path

from benchmarks.kafka_connect.topics import Cluster

TASKS = 2
FLUSH_SIZE = 50_000
_LEVEL = "1"  # of the codecs that have levels, as the archiver's
_ICEBERGS_NAMES = {"null": "uncompressed", "zstandard": "zstd"}


def lean(name: str, topic: str, codec: str, endpoint: str) -> dict[str, str]:
    # The sink of this folder writes whole records, as the archiver does, with as little code as possible.
    return {
        "name": name,
        "connector.class": "sinksdk.benchmarks.LeanS3Sink",
        "topics": topic,
        "tasks.max": str(TASKS),
        "s3.bucket.name": "bucket",
        "store.url": endpoint,
        "topics.dir": name,
        "flush.size": str(FLUSH_SIZE),
        "avro.codec": codec,
    }


def iceberg(
    name: str, topic: str, codec: str, endpoint: str, *, folder: Path, cluster: Cluster
) -> dict[str, str]:
    # Each Avro file holds one task's records until the next commit of all tasks.
    control = f"control-{name}"
    cluster.create(control, partitions=1)
    properties = {
        "write.format.default": "avro",
        "write.avro.compression-codec": _ICEBERGS_NAMES[codec],
        "write.avro.compression-level": _LEVEL,
    }
    catalogue = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:{folder / name}.sqlite",
        "warehouse": f"s3://bucket/{name}",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": endpoint,
        "s3.path-style-access": "true",
        "s3.access-key-id": "key",
        "s3.secret-access-key": "secret",
        "client.region": "us-east-1",
    }
    return {
        "name": name,
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": topic,
        "tasks.max": str(TASKS),
        "iceberg.tables": "archive.records",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.control.topic": control,
        "iceberg.control.commit.interval-ms": "5000",
        "iceberg.kafka.bootstrap.servers": cluster.bootstrap,
        **{f"iceberg.catalog.{key}": value for key, value in catalogue.items()},
        **{f"iceberg.tables.auto-create-props.{key}": value for key, value in properties.items()},
        # Iceberg's sink takes only structures: the value's bytes become a field, the coordinates other
        # fields.
        "transforms": "hoist,place",
        "transforms.hoist.type": "org.apache.kafka.connect.transforms.HoistField$Value",
        "transforms.hoist.field": "value",
        "transforms.place.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        "transforms.place.topic.field": "topic",
        "transforms.place.partition.field": "partition",
        "transforms.place.offset.field": "offset",
        "transforms.place.timestamp.field": "timestamp",
    }
