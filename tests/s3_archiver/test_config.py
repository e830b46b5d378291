from __future__ import annotations

import pickle
from typing import Any

import pytest

from sinksdk import ConfigException, Meaning, TopicPartition
from sinksdk.connectors.s3_archiver import S3ArchiverConnector
from sinksdk.connectors.s3_archiver.archive.layout import FileName
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.files.settings import Limits
from sinksdk.connectors.s3_archiver.s3.settings import MIB
from tests.s3_archiver.support import MINIMAL

CONFLUENT = {
    "name": "s3-sink",
    "connector.class": "io.confluent.connect.s3.S3SinkConnector",
    "tasks.max": "4",
    "topics": "orders,payments",
    "s3.region": "eu-central-1",
    "s3.bucket.name": "archive",
    "s3.part.size": "26214400",
    "flush.size": "100000",
    "rotate.schedule.interval.ms": "600000",
    "timezone": "Europe/Berlin",
    "storage.class": "io.confluent.connect.s3.storage.S3Storage",
    "format.class": "io.confluent.connect.s3.format.avro.AvroFormat",
    "partitioner.class": "io.confluent.connect.storage.partitioner.DefaultPartitioner",
    "schema.compatibility": "NONE",
    "avro.codec": "snappy",
    "s3.credentials.provider.class": "com.amazonaws.auth.DefaultAWSCredentialsProviderChain",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "io.confluent.connect.avro.AvroConverter",
    "value.converter.schema.registry.url": "http://registry:8081",
}


HOURLY = {"partitioner.class": "HourlyPartitioner"}
HOIST = {
    "transforms": "wrap",
    "transforms.wrap.type": "org.apache.kafka.connect.transforms.HoistField$Value",
    "transforms.wrap.field": "value",
}
WITHOUT_SIZE = {key: value for key, value in MINIMAL.items() if key != "flush.size"}


def checked(**raw: str) -> list[str]:
    return S3ArchiverConfig.check({**MINIMAL, **raw})[1]


def test_a_confluent_configuration_is_accepted_unchanged() -> None:
    config = S3ArchiverConfig.parse(CONFLUENT)

    assert Meaning.UNKNOWN not in {option.verdict.meaning for option in S3ArchiverConfig.judge(CONFLUENT)}
    assert (config.flush_size, config.s3_part_size, config.avro_codec) == (100_000, 25 * MIB, "snappy")
    assert config.topics == ("orders", "payments")


def test_defaults_equal_confluents() -> None:
    config = S3ArchiverConfig.parse(MINIMAL)

    assert config.s3_region == "us-west-2"
    assert config.topics_dir == "topics"
    assert config.avro_codec == "null"
    assert config.s3_path_style_access is True
    key = config.layout().file(FileName(TopicPartition("orders", 3), 42, "partition=3"))
    assert key == "topics/orders/partition=3/orders+3+0000000042.avro"


def test_every_problem_is_reported_at_once() -> None:
    found = checked(
        **{
            "format.class": "org.example.XmlFormat",
            "partitioner.class": "org.example.OwnPartitioner",
            "aws.access.key.id": "key",
            "timezone": "Mars/Olympus",
            "store.url": "minio:9000",
            "transforms": "route",
        }
    )

    for key in (
        "format.class",
        "partitioner.class",
        "aws.access.key.id",
        "timezone",
        "store.url",
        "transforms.route.type",
    ):
        assert any(f"'{key}'" in problem for problem in found), key
    assert len(found) == 6


def test_an_unknown_time_zone_is_refused() -> None:
    raw = {key: text for key, text in MINIMAL.items() if key != "flush.size"}
    keys = {**raw, "rotate.schedule.interval.ms": "60000", "timezone": "Mars/Olympus"}
    (problem,) = S3ArchiverConfig.check(keys)[1]

    assert problem.startswith("'timezone': no time zone is called 'Mars/Olympus': use Area/City")


def test_required_keys_are_named() -> None:
    _, found = S3ArchiverConfig.check({"name": "archive", "topics": "orders"})

    assert found[0] == "'s3.bucket.name' is required and not set"
    assert found[1].startswith("'flush.size' is required and not set")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"rotate.schedule.interval.ms": "60000"}, (None, 60.0, "UTC")),
        ({"rotate.interval.ms": "5000", **HOURLY}, (None, 5.0, None)),
        ({"rotate.interval.ms": "5000", "rotate.schedule.interval.ms": "60000", **HOURLY}, (None, 5.0, None)),
        (
            {"rotate.interval.ms": "90000", "rotate.schedule.interval.ms": "60000", **HOURLY},
            (None, 60.0, "UTC"),
        ),
        ({"rotate.interval.ms": "5000", "flush.size": "7", **HOURLY}, (7, 5.0, None)),
        ({"rotate.interval.ms": "5000", "flush.size": "7"}, (7, None, None)),
    ],
)
def test_a_partition_is_read_at_least_every_rotate_interval(
    fields: dict[str, str], expected: tuple[Any, ...]
) -> None:
    config = S3ArchiverConfig.parse({**WITHOUT_SIZE, **fields})

    policy = config.policy()

    assert (policy.max_records, policy.max_wait, policy.align_to) == expected


@pytest.mark.parametrize("fields", [{}, {"flush.bytes": "1000000"}, {"rotate.interval.ms": "5000"}])
def test_flush_size_is_required_without_another_read_trigger(fields: dict[str, str]) -> None:
    # The planner knows offsets and time, not bytes; without folders by time there is no interval.
    _, found = S3ArchiverConfig.check({**WITHOUT_SIZE, **fields})

    assert [problem.split(":")[0] for problem in found] == ["'flush.size' is required and not set"]


def test_rotate_interval_sets_no_file_schedule() -> None:
    config = S3ArchiverConfig.parse({**WITHOUT_SIZE, **HOURLY, "rotate.interval.ms": "5000"})

    assert config.schedule() is None
    assert config.limits().interval == 5_000


def test_limits_follow_from_the_configuration() -> None:
    config = S3ArchiverConfig.parse(
        {
            **MINIMAL,
            "partitioner.max.open.files": "7",
            "partitioner.buffer.bytes": "20000000",
            "flush.bytes": "9",
        }
    )

    assert config.limits() == Limits(records=100, bytes=9, files=7, buffered=20_000_000)
    assert S3ArchiverConfig.parse(MINIMAL).limits().files == 1_000


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        ("archive.content", "value only", "'record' or 'value'"),
        ("format.class", "org.radarbase.connect.s3.RadarBaseAvroFormat", "use AvroFormat"),
        ("format.class", "org.radarbase.connect.s3.AvroFormat", "third-party"),
        ("storage.class", "io.confluent.connect.hdfs.storage.HdfsStorage", "use S3Storage"),
        ("partitioner.class", "OwnPartitioner", "use DefaultPartitioner"),
        ("s3.credentials.provider.class", "com.example.Provider", "AWS_ROLE_ARN"),
        ("s3.credentials.provider.class", "x.AwsAssumeRoleCredentialsProvider", "must both be set"),
        ("s3.credentials.provider.sts.role.arn", "arn:aws:iam::1:role/x", "must both be set"),
        ("s3.proxy.url", "proxy:3128", "http://proxy.example:3128"),
        ("s3.proxy.user", "me", "'s3.proxy.password'"),
        ("s3.wan.mode", "true", "s3.path.style.access.enabled"),
        ("s3.sse.customer.key", "secret", "s3.ssea.name"),
        ("aws.secret.access.key", "secret", "both be set, or neither"),
        ("s3.sse.kms.key.id", "key", "aws:kms"),
        ("flush.bytes", "0", "at least 1"),
        ("rotate.schedule.interval.ms", "0", "at least 1"),
        ("avro.codec.level", "3", "no levels"),
        ("topics.dir", "/topics/", "slashes"),
        ("s3.object.tagging.key.value.pairs", "team", "name:value"),
        ("s3.object.tagging.key.value.pairs", ",".join(f"k{n}:v" for n in range(8)), "S3 allows 10"),
        ("s3.part.size", "1048576", "greater than or equal to 5242880"),
        ("avro.codec", "lzo", "zstandard"),
    ],
)
def test_unsupported_settings_are_refused_with_a_remedy(key: str, value: str, hint: str) -> None:
    found = checked(**{key: value})

    assert len(found) == 1
    assert f"'{key}'" in found[0]
    assert hint in found[0]


def test_secrets_are_hidden_in_messages_and_representations() -> None:
    config = S3ArchiverConfig.parse(
        {**MINIMAL, "aws.access.key.id": "AKIA", "aws.secret.access.key": "hunter2"}
    )

    assert "hunter2" not in repr(config)
    assert "hunter2" not in str(config.model_dump())
    with pytest.raises(ConfigException) as caught:
        S3ArchiverConfig.parse({**MINIMAL, "aws.secret.access.key": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_converters_are_ignored_for_whole_records() -> None:
    config = S3ArchiverConfig.parse({**CONFLUENT, "archive.content": "record"})

    assert (config.key_converter, config.value_converter) == ("bytes", "bytes")


@pytest.mark.parametrize(
    ("fields", "engines", "takes_bytes"),
    [
        ({}, "bytes", True),
        ({"format.class": "JsonFormat"}, "avro", False),
        ({"format.class": "JsonFormat", "value.converter": "json"}, "json", False),
        ({"format.class": "ParquetFormat"}, "avro", False),
        ({"format.class": "ParquetFormat", "archive.content": "record"}, "bytes", True),
        (HOIST, "avro", False),
        ({"format.class": "JsonFormat", "value.converter": "json", **HOIST}, "json", False),
    ],
)
def test_the_engine_converts_only_values_that_the_format_does_not_copy(
    fields: dict[str, str], engines: str, takes_bytes: bool
) -> None:
    config = S3ArchiverConfig.parse({**CONFLUENT, **fields})

    assert config.converter_spec(is_key=False).kind == engines
    assert config.takes_bytes is takes_bytes


@pytest.mark.parametrize(
    "fields",
    [
        {
            "format.class": "ParquetFormat",
            "value.converter": "json",
            "value.converter.schemas.enable": "false",
        },
        {"format.class": "AvroFormat", "value.converter": "json", "value.converter.schemas.enable": "false"},
        {"format.class": "ParquetFormat", "value.converter": "string"},
        {"format.class": "ParquetFormat", "value.converter": "long"},
        {"format.class": "ByteArrayFormat", "value.converter": "json"},
    ],
)
def test_a_converter_without_schemas_is_refused_for_formats_with_schemas(fields: dict[str, str]) -> None:
    # An inferred schema would depend on where batches begin and end.
    (problem,) = checked(**fields)

    assert problem.startswith("'value.converter': ")


def test_folders_by_fields_of_mixed_avro_and_json_records_are_refused() -> None:
    # Transforms change some of the values, which then are JSON.
    keys = {**CONFLUENT, **HOIST, "partitioner.class": "FieldPartitioner", "partition.field.name": "value"}

    (problem,) = S3ArchiverConfig.check({**keys, "archive.content": "record"})[1]

    assert "whole records changed by 'transforms'" in problem
    assert S3ArchiverConfig.check(keys)[1] == []


@pytest.mark.parametrize("key", ["s3.compression.type", "parquet.codec", "behavior.on.null.values"])
def test_enumerated_settings_ignore_case_and_may_be_empty(key: str) -> None:
    values = {"s3.compression.type": "GZIP", "parquet.codec": "GZIP", "behavior.on.null.values": "IGNORE"}
    kinds = {"parquet.codec": "ParquetFormat"}
    format_class = {"format.class": kinds.get(key, "JsonFormat")}

    assert checked(**format_class, **{key: values[key]}) == []
    assert checked(**format_class, **{key: ""}) == []


def test_an_unset_converter_is_accepted() -> None:
    assert checked(**{"format.class": "ParquetFormat"}) == []


def test_the_dead_letter_topic_is_ignored_where_no_record_can_be_bad() -> None:
    raw = {
        **CONFLUENT,
        "archive.content": "record",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "orders",
    }

    assert S3ArchiverConfig.parse(raw).dead_letter_topic == ""


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (100, None, None)),
        ({"rotate.schedule.interval.ms": "60000"}, (100, 60.0, "UTC")),
        ({"rotate.schedule.interval.ms": "60000", "timezone": "Asia/Tokyo"}, (100, 60.0, "Asia/Tokyo")),
    ],
)
def test_the_batch_policy_follows_from_the_rotation(
    fields: dict[str, str], expected: tuple[Any, ...]
) -> None:
    config = S3ArchiverConfig.parse({**MINIMAL, **fields})

    policy = S3ArchiverConnector().batch_policy(config)

    assert (policy.max_records, policy.max_wait, policy.align_to) == expected


def test_an_empty_time_zone_means_utc() -> None:
    # Exported configurations have Confluent's default, which is empty.
    assert S3ArchiverConfig.parse({**MINIMAL, "timezone": ""}).timezone == "UTC"


def test_encryption_acl_and_storage_class_are_set_when_an_upload_is_created() -> None:
    config = S3ArchiverConfig.parse(
        {
            **MINIMAL,
            "s3.ssea.name": "aws:kms",
            "s3.sse.kms.key.id": "alias/archive",
            "s3.acl.canned": "bucket-owner-full-control",
            "s3.storage.class": "STANDARD_IA",
        }
    )

    assert config.creation_options() == {
        "ServerSideEncryption": "aws:kms",
        "SSEKMSKeyId": "alias/archive",
        "ACL": "bucket-owner-full-control",
        "StorageClass": "STANDARD_IA",
    }
    assert S3ArchiverConfig.parse(MINIMAL).creation_options() == {}


def test_tags_are_parsed_as_name_value_pairs() -> None:
    config = S3ArchiverConfig.parse(
        {**MINIMAL, "s3.object.tagging.key.value.pairs": "team:data, url:https://example.org"}
    )

    assert config.tags() == {"team": "data", "url": "https://example.org"}


def test_the_configuration_survives_pickling() -> None:
    config = S3ArchiverConfig.parse(MINIMAL)

    copy = pickle.loads(pickle.dumps(config))  # noqa: S301 - our own bytes
    assert copy == config
