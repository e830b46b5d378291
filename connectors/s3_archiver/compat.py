"""What the keys of Confluent's S3 sink mean here. Those of its relatives are in :mod:`relatives`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sinksdk import Verdict
from sinksdk.connectors.s3_archiver.relatives import AIVEN, CONFLUENT_CLOUD, CONNECTORS, LENSES

_same, _differs = Verdict.same, Verdict.differs
_ignored, _unsupported = Verdict.ignored, Verdict.unsupported

_AS_IT_IS = _ignored("keys, values and headers are archived byte for byte; nothing is converted")
_OTHER_PARTITIONER = _ignored("it belongs to partitioners other than the DefaultPartitioner")
_OTHER_FORMAT = _ignored("it belongs to formats other than Avro")
_IN_THE_RECORD = _ignored("every archived record holds its own key and headers; there are no extra files")
_NO_BAD_RECORDS = _ignored("nothing is converted, so no record can be bad")
_ONE_SCHEMA = _ignored("the schema of the files is always the same, whatever the values are")
_GROWING = _ignored("part buffers always grow as they fill")
_LICENCE = _ignored("there is no licence to check")
_ELSEWHERE = "select by the record's timestamp when the archive is read"

FORMATS: Final = _unsupported("only Avro container files are written: take AvroFormat").when(
    {
        "AvroFormat": _differs(
            "Avro files, but each Avro record is a whole Kafka record with the value's bytes in it, not the "
            "value alone: 'archive.content'"
        ),
        "JsonFormat": _unsupported(
            "JSON files are not written: take AvroFormat; a value's JSON text is archived as it is"
        ),
        "ParquetFormat": _unsupported(
            "Parquet files are not written: take AvroFormat, and convert with Spark or Athena where needed"
        ),
        "ByteArrayFormat": _unsupported(
            "raw files are not written: take AvroFormat; a value's bytes are archived as they are"
        ),
    }
)

PARTITIONERS: Final = _unsupported("folders are by Kafka partition only: take DefaultPartitioner").when(
    {
        "DefaultPartitioner": _same(),
        "FieldPartitioner": _unsupported(
            "values are not looked into: take DefaultPartitioner, and partition by fields behind the archive"
        ),
        **{
            name: _unsupported(
                f"folders by time are not written: take DefaultPartitioner and "
                f"'rotate.schedule.interval.ms', and {_ELSEWHERE}"
            )
            for name in ("TimeBasedPartitioner", "HourlyPartitioner", "DailyPartitioner")
        },
    }
)

CREDENTIALS: Final = _unsupported(
    "it is a Java class: take it out, and let the default chain find the credentials (environment, profile, "
    "AWS_ROLE_ARN with a web identity, instance role)"
).when(
    {
        "": _same(),
        "DefaultAWSCredentialsProviderChain": _same("boto3's default chain"),
        "DefaultCredentialsProvider": _same("boto3's default chain"),
        "AwsDefaultCredentialsProvider": _same("boto3's default chain"),
        "AwsAssumeRoleCredentialsProvider": _same(),
        "EnvironmentVariableCredentialsProvider": _differs(
            "the default chain, which asks the environment first"
        ),
        "WebIdentityTokenCredentialsProvider": _differs("the default chain, which reads the web identity"),
        "WebIdentityTokenFileCredentialsProvider": _differs(
            "the default chain, which reads the web identity"
        ),
    }
)

_FILES: Final[Mapping[str, Verdict]] = {
    "topics.dir": _same("with a folder '_sinksdk' in it for the owner markers"),
    "directory.delim": _same(),
    "file.delim": _same(),
    "filename.offset.zero.pad.width": _same(),
    "flush.size": _same("when a partition is closed, its file ends sooner and is committed"),
    "rotate.schedule.interval.ms": _same("exactly-once here, and heeded also when no record comes"),
    "rotate.interval.ms": _ignored(
        "it belongs to partitioners by time; with others Confluent's sink ignores it as well. Files end by "
        "'flush.size', 'flush.bytes' and 'rotate.schedule.interval.ms'"
    ).when({"-1": _same()}),
    "timezone": _same("for 'rotate.schedule.interval.ms'"),
    "format.class": FORMATS,
    "storage.class": _unsupported("archives are on S3 only: take S3Storage").when({"S3Storage": _same()}),
    "partitioner.class": PARTITIONERS,
    "avro.codec": _same("zstandard and xz are possible too"),
    "schema.compatibility": _ONE_SCHEMA,
    "behavior.on.null.values": _ignored("a tombstone is archived like any record, with a null value").when(
        {"ignore": _differs("tombstones are archived, with a null value: skip them when the archive is read")}
    ),
    "tombstone.encoded.partition": _ignored("tombstones are in their partition's files, with a null value"),
    "report.null.values.to.dlq": _ignored("a tombstone is archived like any record, with a null value"),
    "store.kafka.keys": _IN_THE_RECORD,
    "store.kafka.headers": _IN_THE_RECORD,
    "keys.format.class": _IN_THE_RECORD,
    "headers.format.class": _IN_THE_RECORD,
    "s3.schema.partition.affix.type": _unsupported(
        "values are not looked into: one folder holds all of a partition's records, whatever their schema"
    ).when({"NONE": _same()}),
    "path.format": _OTHER_PARTITIONER,
    "locale": _OTHER_PARTITIONER,
    "partition.*": _OTHER_PARTITIONER,
    "timestamp.extractor": _OTHER_PARTITIONER,
    "timestamp.field": _OTHER_PARTITIONER,
    "partitioner.max.open.files": _OTHER_PARTITIONER,
    "rotate.file.on.partition.change": _OTHER_PARTITIONER,
    "format.bytearray.*": _OTHER_FORMAT,
    "json.decimal.format": _OTHER_FORMAT,
    "parquet.codec": _OTHER_FORMAT,
    "s3.compression.type": _ignored("it belongs to formats other than Avro; use 'avro.codec'"),
    "s3.compression.level": _ignored("it belongs to formats other than Avro; use 'avro.codec.level'"),
}

_S3: Final[Mapping[str, Verdict]] = {
    "s3.bucket.name": _same(),
    "s3.region": _same(),
    "store.url": _same(),
    "s3.endpoint*": _unsupported("it is 'store.url' here, as in Confluent's sink"),
    "s3.path.style.access.enabled": _same(),
    "aws.access.key.id": _same(),
    "aws.secret.access.key": _same(),
    "s3.credentials.provider.class": CREDENTIALS,
    "s3.credentials.provider.sts.role.arn": _same("with AwsAssumeRoleCredentialsProvider"),
    "s3.credentials.provider.sts.role.session.name": _same("with AwsAssumeRoleCredentialsProvider"),
    "s3.credentials.provider.sts.role.external.id": _same("with AwsAssumeRoleCredentialsProvider"),
    "s3.credentials.provider.sts.region": _same("with AwsAssumeRoleCredentialsProvider"),
    "s3.credentials.provider.*": _ignored("it is for a Java class of your own"),
    "s3.part.size": _same("8 MiB by default, not 25 MiB"),
    "s3.part.retries": _same("then it is tried further for 'errors.retry.timeout'"),
    "s3.retry.backoff.ms": _differs(
        "only for retries of a commit; within a request boto3 has its own delays"
    ),
    "s3.ssea.name": _same(),
    "s3.sse.kms.key.id": _same(),
    "s3.sse.customer.key": _unsupported(
        "keys of your own (SSE-C) are not sent: take 's3.ssea.name' with AES256, or aws:kms and a KMS key"
    ),
    "s3.acl.canned": _same(),
    "s3.object.tagging": _same(),
    "s3.object.tagging.key.value.pairs": _same(),
    "s3.object.behavior.on.tagging.error": _same(),
    "s3.proxy.url": _same(),
    "s3.proxy.user": _same(),
    "s3.proxy.password": _same(),
    "s3.wan.mode": _same(),
    "s3.elastic.buffer.*": _GROWING,
    "s3.send.digest": _ignored("every part goes with its CRC32, and every object is checked as a whole"),
    "s3.http.send.expect.continue": _ignored("the HTTP client decides by the size of the body"),
    "enable.conditional.writes": _ignored(
        "objects are always published with If-None-Match, whatever the rotation"
    ),
    "max.files.scan.limit": _ignored("offsets come from the commits, never from the names of objects"),
    "retry.backoff.ms": _ignored("use 'errors.retry.timeout' and 'errors.retry.delay.max.ms'"),
    "max.write.duration.ms": _ignored("a long put costs no partition: nothing polls Kafka meanwhile"),
    "shutdown.timeout.ms": _ignored("use 'task.shutdown.graceful.timeout.ms'"),
}

_RECORDS: Final[Mapping[str, Verdict]] = {
    "key.converter": _AS_IT_IS,
    "key.converter.*": _AS_IT_IS,
    "value.converter": _AS_IT_IS,
    "value.converter.*": _AS_IT_IS,
    "header.converter": _AS_IT_IS,
    "header.converter.*": _AS_IT_IS,
    "schema.generator.class": _AS_IT_IS,
    "schemas.cache.*": _AS_IT_IS,
    "schema.cache.*": _AS_IT_IS,
    "enhanced.avro.schema.support": _AS_IT_IS,
    "connect.meta.data": _AS_IT_IS,
    "allow.optional.map.keys": _AS_IT_IS,
    "value.subject.name.strategy": _AS_IT_IS,
    "errors.tolerance": _NO_BAD_RECORDS,
    "errors.log.enable": _NO_BAD_RECORDS,
    "errors.log.include.messages": _NO_BAD_RECORDS,
    "errors.deadletterqueue.*": _NO_BAD_RECORDS,
    "producer.override.*": _NO_BAD_RECORDS,
    "errors.retry.timeout": _differs(
        "how long S3 is asked again from memory (five minutes by default); then the partition starts again "
        "at its last commit"
    ).when(
        {
            "0": _differs(
                "at the first trouble with S3 a partition starts again at its last commit: take it out, and "
                "S3 is asked again from memory for five minutes"
            )
        }
    ),
    "confluent.*": _LICENCE,
}

COMPATIBILITY: Final[Mapping[str, Verdict]] = MappingProxyType(
    {"connector.class": CONNECTORS, **_FILES, **_S3, **_RECORDS, **AIVEN, **LENSES, **CONFLUENT_CLOUD}
)
"""Verdicts by key or pattern."""

OTHER_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "archive.content": "a file's records are whole Kafka records with the value's bytes as they are; "
        "Confluent's files hold the converted value alone, so readers have to be changed",
        "offset.source": "the archive begins at the first record that each topic still has; with 'group' it "
        "begins where Connect's sink has got to",
        "consumer.override.isolation.level": "records of aborted transactions are not archived (Connect's "
        "consumers read them, unless told otherwise)",
        "s3.part.size": "a part has 8 MiB, not 25 MiB: an open file takes less memory, and can have 78 GiB",
        "task.shutdown.graceful.timeout.ms": "a stop waits for uploads, up to 60 s (Connect: 5 s): let "
        "whatever stops the process wait longer",
    }
)
"""Keys whose default is not Confluent's, each with what that changes."""
