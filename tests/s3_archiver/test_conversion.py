from __future__ import annotations

import pytest

from sinksdk import Converted
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from tests.s3_archiver.support import MINIMAL

AIVEN = {
    "name": "archive",
    "connector.class": "io.aiven.kafka.connect.s3.AivenKafkaConnectS3SinkConnector",
    "topics": "orders",
    "aws.s3.bucket.name": "bucket",
    "aws.secret.access.key": "${env:SECRET}",
    "format.output.type": "jsonl",
    "file.max.records": "500",
}
ROLE = "s3.credentials.provider.sts.role"
CLOUD = {
    "name": "archive",
    "connector.class": "S3_SINK",
    "topics": "orders",
    "s3.bucket.name": "bucket",
    "flush.size": "1000",
    "input.data.format": "JSON",
    "output.data.format": "JSON",
    "time.interval": "DAILY",
    "kafka.api.key": "key",
}


LENSES = {
    "name": "archive",
    "connector.class": "io.lenses.streamreactor.connect.aws.s3.sink.S3SinkConnector",
    "connect.s3.kcql": "insert into bucket:p select * from orders STOREAS `JSON` WITH_FLUSH_COUNT = 10",
    "connect.s3.aws.region": "eu-west-1",
    "value.converter": "json",
}


def aivens(**fields: str) -> Converted:
    return S3ArchiverConfig.converted({**AIVEN, **fields})


def lenses(fields: dict[str, str]) -> Converted:
    return S3ArchiverConfig.converted({**LENSES, **fields})


def test_aivens_keys_are_renamed_and_references_are_kept() -> None:
    made = aivens()

    assert made.problems == []
    assert (
        made.config.items()
        >= {
            "s3.bucket.name": "bucket",
            "aws.secret.access.key": "${env:SECRET}",
            "format.class": "JsonFormat",
            "s3.compression.type": "gzip",
            "flush.size": "500",
        }.items()
    )
    assert not any(key.startswith(("aws.s3.", "file.", "format.output.")) for key in made.config)


def test_timestamps_in_aivens_template_become_folders_by_time() -> None:
    made = aivens(
        **{
            "file.name.template": "{{topic}}/dt={{timestamp:unit=yyyy}}-{{timestamp:unit=MM}}/"
            "{{timestamp:unit=HH}}/{{partition}}-{{start_offset}}.gz",
            "timestamp.source": "event",
            "timestamp.timezone": "Europe/Berlin",
        }
    )

    assert made.problems == []
    assert (
        made.config.items()
        >= {
            "partitioner.class": "TimeBasedPartitioner",
            "path.format": "'dt'=yyyy-MM/HH",
            "partition.duration.ms": "3600000",
            "timestamp.extractor": "Record",
            "timezone": "Europe/Berlin",
        }.items()
    )


def test_aivens_files_end_with_each_commit_without_a_record_limit() -> None:
    raw = {key: text for key, text in AIVEN.items() if key != "file.max.records"}

    made = S3ArchiverConfig.converted({**raw, "offset.flush.interval.ms": "30000"})

    assert made.config["rotate.schedule.interval.ms"] == "30000"
    assert S3ArchiverConfig.converted(raw).config["rotate.schedule.interval.ms"] == "60000"


def test_whole_records_of_aivens_need_avro_or_parquet() -> None:
    fields = {"format.output.fields": "key,value,offset"}

    made = aivens(**fields, **{"format.output.type": "parquet", "file.compression.type": "zstd"})

    assert made.problems == []
    assert (made.config["archive.content"], made.config["parquet.codec"]) == ("record", "zstd")
    (problem,) = aivens(**fields).problems
    assert "'format.output.fields'" in problem


def test_unsupported_features_of_aivens_are_problems() -> None:
    made = aivens(
        **{
            "format.output.type": "csv",
            "file.compression.type": "snappy",
            "file.prefix.template": "{{topic}}",
            "file.name.template": "{{key}}/x",
        }
    )

    assert [problem.split("'")[1] for problem in made.problems] == [
        "format.output.type",
        "file.compression.type",
        "file.prefix.template",
        "file.name.template",
        "format.class",
    ]
    refused = ("file.compression.type", "file.prefix.template", "file.name.template")
    assert [made.config[key] for key in refused] == ["snappy", "{{topic}}", "{{key}}/x"]
    assert made.config["format.class"] == "csv"
    assert S3ArchiverConfig.check(made.config)[0] is None


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ("{{topic}}/{{timestamp:unit=YYYY}}{{timestamp:unit=MM}}/{{start_offset}}", "yyyyMM"),
        ("{{topic}}/year={{ timestamp:unit=yyyy }}/{{partition}}-{{start_offset}}", "'year'=yyyy"),
        ("{{topic}}/{{partition}}/{{start_offset}}.gz", None),
        ("{{topic}}-{{partition}}-{{start_offset}}", None),
    ],
)
def test_aivens_template_variables_never_remain_in_folder_names(template: str, path: str | None) -> None:
    made = aivens(**{"file.name.template": template})

    assert made.problems == []
    assert made.config.get("path.format") == path
    assert "file.name.template" not in made.config


@pytest.mark.parametrize(
    "template",
    [
        "{{key}}",
        "{{topic}}/{{ key }}",
        "{{topic}}/{{partition}}/{{timestamp:unit=yyyy}}/{{start_offset}}",
        "{{topic}}/{{timestamp:unit=mm}}/{{start_offset}}",
        "archive/{{topic}}/{{start_offset}}",
    ],
)
def test_an_unsupported_aiven_template_is_kept_and_refused(template: str) -> None:
    made = aivens(**{"file.name.template": template})

    assert made.config["file.name.template"] == template
    assert "path.format" not in made.config
    assert [problem.split("'")[1] for problem in made.problems] == ["file.name.template"]
    assert S3ArchiverConfig.check(made.config)[0] is None


def test_aivens_newer_timestamp_keys_are_converted() -> None:
    made = aivens(
        **{
            "file.name.template": "{{topic}}/{{timestamp:unit=yyyy}}/{{start_offset}}",
            "file.name.timestamp.source": "EVENT",
            "file.name.timestamp.timezone": "+02:00",
        }
    )

    assert (made.config["timestamp.extractor"], made.config["timezone"]) == ("Record", "+02:00")


@pytest.mark.parametrize("name", ["protobuf.ProtobufConverter", "json.JsonSchemaConverter"])
def test_an_unsupported_converter_is_kept_and_refused(name: str) -> None:
    # Without the key, values would count as JSON.
    converter = {"value.converter": f"io.confluent.connect.{name}", "format.class": "JsonFormat"}
    made = S3ArchiverConfig.converted({**MINIMAL, **converter})

    assert made.config["value.converter"] == converter["value.converter"]
    assert len(made.problems) == 1


def test_another_sinks_endpoint_becomes_store_url() -> None:
    # Without the endpoint, files would go to AWS.
    made = S3ArchiverConfig.converted({**MINIMAL, "s3.endpoint": "http://minio:9000"})

    assert made.config["store.url"] == "http://minio:9000"
    assert "s3.endpoint" not in made.config


@pytest.mark.parametrize("topics", [{"topics": "a,b"}, {"topics.regex": ".*"}])
def test_kcql_from_star_uses_the_configured_topics(topics: dict[str, str]) -> None:
    kcql = {"connect.s3.kcql": "insert into b:p select * from `*` STOREAS `JSON`"}
    lenses = {"name": "l", "connector.class": "io.lenses.streamreactor.connect.aws.s3.sink.S3SinkConnector"}
    made = S3ArchiverConfig.converted({**lenses, **kcql, **topics})

    assert made.problems == []
    assert made.config.items() >= topics.items()
    without = S3ArchiverConfig.converted({**lenses, **kcql})
    assert without.config["connect.s3.kcql"] == kcql["connect.s3.kcql"]
    assert "name the topics" in without.problems[0]


def test_lenses_keys_are_converted_together_with_kcql() -> None:
    made = S3ArchiverConfig.converted(
        {
            "name": "archive",
            "connector.class": "io.lenses.streamreactor.connect.aws.s3.sink.S3SinkConnector",
            "topics": "ignored",
            "connect.s3.kcql": "insert into bucket:p select * from t STOREAS `AVRO`",
            "connect.s3.aws.access.key": "id",
            "connect.s3.aws.secret.key": "secret",
            "connect.s3.vhost.bucket": "true",
            "connect.s3.compression.codec": "ZSTD",
            "connect.s3.error.policy": "RETRY",
        }
    )

    assert made.problems == []
    assert (
        made.config.items()
        >= {
            "connector.class": "s3-archiver",
            "topics": "t",
            "aws.access.key.id": "id",
            "aws.secret.access.key": "secret",
            "s3.path.style.access.enabled": "true",
            "avro.codec": "zstandard",
        }.items()
    )
    assert not any(key.startswith("connect.s3.") for key in made.config)


def test_confluent_cloud_formats_become_class_names() -> None:
    made = S3ArchiverConfig.converted(CLOUD)

    assert made.problems == []
    assert (
        made.config.items()
        >= {
            "format.class": "JsonFormat",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "partitioner.class": "DailyPartitioner",
            "timestamp.extractor": "Record",
        }.items()
    )
    assert "kafka.api.key" not in made.config


def test_confluent_cloud_path_format_and_timestamp_field_are_converted() -> None:
    made = S3ArchiverConfig.converted(
        {**CLOUD, "path.format": "'y'=YYYY", "timestamp.field": "at", "compression.codec": "JSON - GZIP"}
    )

    assert (
        made.config.items()
        >= {
            "partitioner.class": "TimeBasedPartitioner",
            "partition.duration.ms": "86400000",
            "timestamp.extractor": "RecordField",
            "s3.compression.type": "gzip",
        }.items()
    )


def test_confluent_cloud_key_and_header_files_are_converted() -> None:
    made = S3ArchiverConfig.converted(
        {**CLOUD, "store.kafka.keys": "true", "store.kafka.headers": "true", "output.keys.format": "BYTES"}
    )

    assert made.problems == []
    assert (
        made.config.items()
        >= {
            "store.kafka.keys": "true",
            "keys.format.class": "ByteArrayFormat",
            "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
            "store.kafka.headers": "true",
            "headers.format.class": "AvroFormat",
        }.items()
    )
    assert not any(key.startswith("output.") for key in made.config)


def test_confluent_cloud_formats_of_unused_key_and_header_files_are_dropped() -> None:
    made = S3ArchiverConfig.converted({**CLOUD, "output.keys.format": "JSON"})

    assert "keys.format.class" not in made.config
    assert "'output.keys.format' is left out: it applies only with 'store.kafka.keys' true" in made.notes


def test_unknown_confluent_cloud_key_formats_are_problems() -> None:
    made = S3ArchiverConfig.converted(
        {**CLOUD, "store.kafka.keys": "true", "output.keys.format": "ORC", "input.key.format": "PROTOBUF"}
    )

    assert made.problems == ["'output.keys.format' is orc: use avro, json, parquet or bytes"]
    assert made.config["output.keys.format"] == "orc"
    assert any("ProtobufConverter" in problem for problem in S3ArchiverConfig.check(made.config)[1])


def test_the_former_partitioner_name_creates_the_same_folders() -> None:
    raw = {
        "name": "archive",
        "topics": "orders",
        "s3.bucket.name": "bucket",
        "flush.size": "10",
        "format.class": "JsonFormat",
        "partitioner.class": "com.canelmas.kafka.connect.TimeAndFieldBasedPartitioner",
        "partition.field": "shop",
        "path.format": "YYYY",
        "partition.duration.ms": "3600000",
    }

    for config in (raw, S3ArchiverConfig.converted(raw).config):
        parsed = S3ArchiverConfig.parse(config)
        assert parsed.partitioner_class.endswith("FieldAndTimeBasedPartitioner")
        assert parsed.partition_field_name == ("shop",)
        assert parsed.partition_field_format_path is False


def test_confluents_keys_in_an_aiven_configuration_are_dropped() -> None:
    # Aiven's files end with each commit, whatever flush.size says.
    without_count = {key: value for key, value in AIVEN.items() if key != "file.max.records"}
    made = S3ArchiverConfig.converted(
        {**without_count, "flush.size": "1", "partitioner.class": "HourlyPartitioner", "topics.dir": "raw"}
    )

    assert not {"flush.size", "partitioner.class", "topics.dir"} & made.config.keys()
    assert made.config["rotate.schedule.interval.ms"] == "60000"
    assert "'flush.size' is left out: it is a key of Confluent's sink, and had no effect there" in made.notes
    assert made.problems == []


@pytest.mark.parametrize("prefix", ["connect.s3.", ""], ids=["newer", "older"])
def test_lenses_endpoint_and_credentials_are_converted_from_old_and_new_names(prefix: str) -> None:
    endpoint = f"{prefix}custom.endpoint" if prefix else "aws.custom.endpoint"
    vhost = f"{prefix}vhost.bucket" if prefix else "aws.vhost.bucket"
    without_region = {key: text for key, text in LENSES.items() if key != "connect.s3.aws.region"}
    made = S3ArchiverConfig.converted(
        {
            **without_region,
            endpoint: "http://minio:9000",
            vhost: "true",
            f"{prefix}aws.access.key": "id",
            f"{prefix}aws.secret.key": "${env:SECRET}",
            f"{prefix}aws.region": "eu-north-1",
            f"{prefix}aws.auth.mode": "Credentials",
        }
    )

    assert made.problems == []
    assert (
        made.config.items()
        >= {
            "store.url": "http://minio:9000",
            "aws.access.key.id": "id",
            "aws.secret.access.key": "${env:SECRET}",
            "s3.region": "eu-north-1",
            "s3.path.style.access.enabled": "true",
        }.items()
    )
    assert not [key for key in made.config if key.startswith(("connect.s3.", "aws.custom", "aws.auth"))]


def test_a_newer_key_overrides_the_deprecated_one() -> None:
    made = aivens(aws_s3_bucket="older", aws_s3_region="eu-north-1", **{"aws.s3.region": ""})

    assert made.config["s3.bucket.name"] == "bucket"
    assert made.config["s3.region"] == "eu-north-1"
    assert "'aws_s3_bucket' is left out: 'aws.s3.bucket.name' is set" in made.notes


def test_aivens_deprecated_keys_are_converted_like_the_newer_ones() -> None:
    made = S3ArchiverConfig.converted(
        {
            "name": "archive",
            "connector.class": AIVEN["connector.class"],
            "topics": "orders",
            "aws_s3_bucket": "bucket",
            "aws_s3_endpoint": "http://minio:9000",
            "aws_s3_prefix": "raw/",
            "aws_s3_region": "eu-west-1",
            "aws_access_key_id": "id",
            "aws_secret_access_key": "secret",
            "output_compression": "none",
            "output_fields": "value",
            "aws.credential.provider": "com.amazonaws.auth.DefaultAWSCredentialsProviderChain",
            "format.output.type": "jsonl",
            "value.converter": "json",
        }
    )

    assert made.problems == []
    assert (
        made.config.items()
        >= {
            "s3.bucket.name": "bucket",
            "store.url": "http://minio:9000",
            "topics.dir": "raw",
            "s3.region": "eu-west-1",
            "aws.access.key.id": "id",
            "aws.secret.access.key": "secret",
            "s3.compression.type": "none",
        }.items()
    )
    assert not [key for key in made.config if "_" in key]
    (problem,) = aivens(output_fields="key,value").problems
    assert problem.startswith("'format.output.fields' names more than the value")


def test_aivens_default_region_is_set_explicitly() -> None:
    assert aivens().config["s3.region"] == "us-east-1"
    assert aivens(**{"aws.s3.region": "eu-west-1"}).config["s3.region"] == "eu-west-1"


@pytest.mark.parametrize("text", ["0", "", " 0 "])
def test_aivens_files_with_a_record_limit_of_0_end_with_each_commit(text: str) -> None:
    made = aivens(**{"file.max.records": text})

    assert made.problems == []
    assert "flush.size" not in made.config
    assert made.config["rotate.schedule.interval.ms"] == "60000"
    keyless = {key: text for key, text in made.config.items() if key != "aws.secret.access.key"}
    assert S3ArchiverConfig.check({**keyless, "value.converter": "json"})[1] == []


def test_keys_without_a_value_are_ignored() -> None:
    # Exported configurations hold every key.
    made = aivens(**{"aws.sts.role.arn": "", "aws.s3.endpoint": "", "file.compression.type": ""})

    assert made.problems == []
    assert not {"s3.credentials.provider.class", "store.url", f"{ROLE}.arn"} & made.config.keys()


@pytest.mark.parametrize(
    ("given", "key", "text"),
    [
        ({"aws.s3.backoff.max.retries": "5"}, "s3.part.retries", "5"),
        ({"aws.s3.backoff.delay.ms": "100"}, "s3.retry.backoff.ms", "100"),
    ],
)
def test_aivens_retry_settings_are_converted(given: dict[str, str], key: str, text: str) -> None:
    assert aivens(**given).config[key] == text


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"connect.s3.skip.null.values": "true"},
            {"behavior.on.null.values": "ignore", "report.null.values.to.dlq": "false"},
        ),
        ({"connect.s3.skip.null.values": "false"}, {"behavior.on.null.values": None}),
        ({"connect.s3.http.max.retries": "7"}, {"s3.part.retries": "7"}),
        ({"connect.s3.http.retry.interval": "500"}, {"s3.retry.backoff.ms": "500"}),
        ({"connect.s3.http.retry.interval": "0"}, {"s3.retry.backoff.ms": None}),
        ({"connect.s3.disable.flush.count": "true"}, {"flush.size": None}),
        ({"connect.s3.flush.count.enable": "false"}, {"flush.size": None}),
        ({"connect.s3.flush.count.enable": "true"}, {"flush.size": "10"}),
        ({"connect.s3.padding.length": "16"}, {"filename.offset.zero.pad.width": "16"}),
        ({"connect.s3.padding.strategy": "NoOp"}, {"filename.offset.zero.pad.width": "0"}),
        ({"connect.s3.padding.strategy": "LeftPad"}, {"filename.offset.zero.pad.width": "12"}),
        ({"connect.s3.vhost.bucket": "false"}, {"s3.path.style.access.enabled": "false"}),
        (
            {
                "connect.s3.aws.auth.mode": "Default",
                "connect.s3.aws.access.key": "id",
                "connect.s3.aws.secret.key": "s",
            },
            {"aws.access.key.id": None, "aws.secret.access.key": None},
        ),
    ],
    ids=str,
)
def test_lenses_settings_are_converted(given: dict[str, str], expected: dict[str, str | None]) -> None:
    # Regression: without these settings, the first record without a value failed its partition.
    made = lenses(given)

    assert made.problems == []
    assert {key: made.config.get(key) for key in expected} == expected
    assert S3ArchiverConfig.check(made.config)[1] == []


@pytest.mark.parametrize(
    "key",
    [
        "connect.s3.config.profiles",
        "connect.s3.kcql.builder.bucket",
        "connect.s3.aws.session.token",
        "connect.s3.sse.kms.key",
    ],
)
def test_unsupported_lenses_keys_about_location_or_credentials_are_kept(key: str) -> None:
    made = lenses({key: "x"})

    assert made.config[key] == "x"
    assert [problem.split("'")[1] for problem in made.problems] == [key]
    assert S3ArchiverConfig.check(made.config)[0] is None


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("aws.endpoint", "store.url"),
        ("s3.service.endpoint", "store.url"),
        ("aws.custom.endpoint", "store.url"),
        ("s3.serviceEndpoint", "store.url"),
        ("minio.url", "store.url"),
        ("stroe.url", "store.url"),
        ("aws.access.key", "aws.access.key.id"),
        ("aws.accessKey", "aws.access.key.id"),
        ("s3.access_key", "aws.access.key.id"),
        ("aws.secret.key", "aws.secret.access.key"),
        ("aws.session.token", "default chain"),
        ("s3.credentials", "default chain"),
        ("aws.role", "s3.credentials.provider.sts.role.arn"),
        ("aws.iam.role.arn", "s3.credentials.provider.sts.role.arn"),
        ("aws.region", "s3.region"),
        ("s3.regoin", "s3.region"),
        ("s3.bucket", "s3.bucket.name"),
        ("s3.prefix", "topics.dir"),
        ("s3.bucket.prefix", "topics.dir"),
        ("s3.sse.enabled", "s3.ssea.name"),
        ("s3.enableSse", "s3.ssea.name"),
        ("s3.kmsKeyId", "s3.ssea.name"),
        ("s3.encryption", "s3.ssea.name"),
        ("s3.server.side.encryption", "s3.ssea.name"),
        ("s3.acl", "s3.acl.canned"),
        ("s3.proxy.host", "s3.proxy.url"),
        ("aws.vhost.bucket", "s3.path.style.access.enabled"),
        ("s3.virtual.host.style", "s3.path.style.access.enabled"),
    ],
)
def test_an_unknown_key_about_location_or_credentials_is_refused(key: str, instead: str) -> None:
    # These keys name the endpoint or credentials: without them, files would go to AWS or be written by
    # another user.
    raw = {**MINIMAL, "connector.class": "io.confluent.connect.s3.S3SinkConnector", key: "true"}
    made = S3ArchiverConfig.converted(raw)

    (problem,) = made.problems
    assert problem.startswith(f"'{key}' is unsupported: ")
    assert instead in problem
    assert made.config[key] == "true"
    assert S3ArchiverConfig.check(raw) == (None, [problem])
    assert S3ArchiverConfig.check({**raw, key: ""})[1] == []


@pytest.mark.parametrize(
    "key",
    [
        "avro.converter.schema.registry.url",
        "kafka.endpoint.url",
        "principal.service.password",
        "value.schema.registry.url",
        "prefix.add.prefix",
        "task.max",
        "flush.siz",
    ],
)
def test_other_unknown_keys_are_dropped(key: str) -> None:
    made = S3ArchiverConfig.converted({**MINIMAL, key: "x"})

    assert made.problems == []
    assert key not in made.config


def test_an_unknown_security_key_set_to_false_is_accepted() -> None:
    assert S3ArchiverConfig.check({**MINIMAL, "s3.kms.enabled": "false"})[1] == []


@pytest.mark.parametrize("key", ["aws.s3.path.style.access.enabled", "s3.path_style", "s3.force.path.style"])
def test_path_style_access_is_the_default_under_any_key_name(key: str) -> None:
    for text in ("true", "TRUE", "True"):
        (option,) = S3ArchiverConfig.judge({key: text})
        assert option.verdict.meaning == "ignored"
    (problem,) = S3ArchiverConfig.check({**MINIMAL, key: "false"})[1]
    assert "'s3.path.style.access.enabled'" in problem


@pytest.mark.parametrize("key", ["rotate.interval.ms", "rotate.schedule.interval.ms"])
def test_intervals_of_0_mean_never_as_in_confluents_sink(key: str) -> None:
    # In Confluent's sink these intervals are effective only if they exceed 0.
    made = S3ArchiverConfig.converted({**MINIMAL, key: "0"})

    assert key not in made.config
    assert S3ArchiverConfig.check(made.config)[1] == []


def test_two_different_endpoints_are_refused() -> None:
    both = {**MINIMAL, "s3.endpoint": "http://a:9000", "s3.endpoint.url": "http://b:9000"}
    made = S3ArchiverConfig.converted(both)

    (problem,) = made.problems
    assert problem.startswith("'s3.endpoint.url' is unsupported: 's3.endpoint' names another endpoint")
    assert S3ArchiverConfig.check(both) == (None, [problem])
    same = S3ArchiverConfig.converted({**both, "s3.endpoint.url": "http://a:9000"})
    assert (same.problems, same.config["store.url"]) == ([], "http://a:9000")
