"""Verdicts on keys of Confluent's S3 sink, and of sinks that are configured differently, which are refused.

Keys of Aiven's, Lenses' and Confluent Cloud's sinks are distinguished from misspelt keys, and each verdict
names the replacement.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sinksdk import Verdict

_same, _differs = Verdict.same, Verdict.differs
_ignored, _unsupported = Verdict.ignored, Verdict.unsupported


def _keys(names: str, verdict: Verdict) -> dict[str, Verdict]:
    """The same verdict on several keys."""
    return dict.fromkeys(names.split(), verdict)


_LENSES: Final = _unsupported(
    "Lenses' sink is configured in KCQL and writes other files: take s3-archiver and the keys that are named "
    "below"
)

CONNECTORS: Final = _same().when(
    {
        "AivenKafkaConnectS3SinkConnector": _unsupported(
            "Aiven's sink has other keys and other files: take s3-archiver and the keys that are named below"
        ),
        "S3_SINK": _unsupported(
            "Confluent Cloud's sink writes folders by time and runs without workers of yours: take "
            "s3-archiver and the keys that are named below"
        ),
        "io.lenses.streamreactor.connect.aws.s3.*": _LENSES,
        "com.datamountaineer.streamreactor.connect.aws.s3.*": _LENSES,
    }
)
"""``connector.class``."""


def _renamed(key: str, remark: str = "") -> Verdict:
    return _unsupported(f"it is '{key}' here{remark}")


_BACKOFF = _unsupported("use 's3.part.retries' and 's3.retry.backoff.ms', then 'errors.retry.timeout'")
_ROLE = ", with AwsAssumeRoleCredentialsProvider as 's3.credentials.provider.class'"
_NAMES = _unsupported(
    "names of files are fixed: topic, partition and start offset below 'topics.dir' "
    "('file.delim' and 'filename.offset.zero.pad.width' can be set)"
)
_WHOLE_RECORDS = _unsupported("key, value, offset, timestamp and headers are always archived: take it out")

AIVEN: Final[Mapping[str, Verdict]] = {
    "aws.s3.bucket.name": _renamed("s3.bucket.name"),
    "aws.s3.region": _renamed("s3.region"),
    "aws.s3.endpoint": _renamed("store.url"),
    "aws.s3.prefix": _renamed("topics.dir"),
    "aws.s3.part.size.bytes": _renamed("s3.part.size"),
    "aws.s3.sse.algorithm": _renamed("s3.ssea.name"),
    "aws.s3.backoff.*": _BACKOFF,
    "kafka.retry.backoff.ms": _BACKOFF,
    "aws.credentials.provider": _renamed("s3.credentials.provider.class"),
    "aws.sts.role.arn": _renamed("s3.credentials.provider.sts.role.arn", _ROLE),
    "aws.sts.role.external.id": _renamed("s3.credentials.provider.sts.role.external.id", _ROLE),
    "aws.sts.role.session.name": _renamed("s3.credentials.provider.sts.role.session.name", _ROLE),
    "aws.sts.*": _unsupported("a role is assumed for an hour, at the region's own endpoint: take it out"),
    "file.prefix.template": _renamed("topics.dir", ", without variables"),
    "file.name.*": _NAMES,
    "file.max.records": _renamed("flush.size"),
    "file.compression.type": _renamed("avro.codec", ": blocks are compressed, not whole files"),
    "format.output.type": _unsupported("only Avro container files are written: take it out"),
    "format.output.fields*": _WHOLE_RECORDS,
    "format.output.envelope": _WHOLE_RECORDS,
    "timestamp.timezone": _NAMES,
    "timestamp.source": _NAMES,
}
"""Aiven's S3 sink."""

LENSES: Final[Mapping[str, Verdict]] = {
    "connect.s3.kcql": _unsupported(
        "KCQL is not read: the bucket is 's3.bucket.name', the prefix 'topics.dir', what is selected from "
        "'topics', FLUSH_COUNT 'flush.size', FLUSH_SIZE 'flush.bytes', FLUSH_INTERVAL (seconds there) "
        "'rotate.schedule.interval.ms', STOREAS `AVRO` 'format.class' = AvroFormat; PARTITIONBY has no "
        "counterpart"
    ),
    "connect.s3.aws.access.key": _renamed("aws.access.key.id"),
    "connect.s3.aws.secret.key": _renamed("aws.secret.access.key"),
    "connect.s3.aws.region": _renamed("s3.region"),
    "connect.s3.custom.endpoint": _renamed("store.url"),
    "connect.s3.vhost.bucket": _renamed("s3.path.style.access.enabled", ", the other way round"),
    "connect.s3.compression.codec": _renamed("avro.codec"),
    **_keys("connect.s3.retry.interval connect.s3.max.retries connect.s3.http.*", _BACKOFF),
    "connect.s3.*": _unsupported("it belongs to Lenses' sink: take it out"),
}
"""Lenses' S3 sink."""

_TOLD_TO_RUN = _ignored("options of 'sinksdk run' set the cluster and the credentials, not the connector")

CONFLUENT_CLOUD: Final[Mapping[str, Verdict]] = {
    **_keys(
        "kafka.auth.mode kafka.api.key kafka.api.secret kafka.endpoint kafka.region "
        "kafka.service.account.id kafka.max.partition.validation.disable",
        _TOLD_TO_RUN,
    ),
    "max.poll.records": _ignored("batches are archived as they are read; nothing is given to 'put' twice"),
    "max.poll.*": _ignored("tasks are no members of a consumer group: nothing rebalances when they are slow"),
    "input.data.format": _ignored("nothing is converted: records of any format are archived as they are"),
    "input.key.format": _ignored("nothing is converted: records of any format are archived as they are"),
    "input.header.format": _ignored("nothing is converted: records of any format are archived as they are"),
    "output.*.format": _unsupported(
        "only Avro container files are written: take it out; keys and headers are in every record"
    ),
    "schema.context.name": _ignored("the archiver uses no schema registry"),
    "schema.registry.*": _ignored("the archiver uses no schema registry"),
    "compression.codec": _renamed("avro.codec"),
    "time.interval": _unsupported(
        "folders by time are not written: take 'rotate.schedule.interval.ms', and select by the record's "
        "timestamp when the archive is read"
    ),
    "authentication.method": _unsupported(
        "take it out: without 'aws.access.key.id' the default credential chain is used, and a role is named "
        "in 's3.credentials.provider.sts.role.arn'"
    ).when({"Access Keys": _ignored("keys are used where 'aws.access.key.id' is set")}),
    "provider.integration.id": _renamed("s3.credentials.provider.sts.role.arn", _ROLE),
    "auto.restart.on.user.error": _ignored("failed partitions are always opened again"),
}
"""Confluent Cloud's managed S3 sink."""


_AS_IT_IS = _ignored("keys, values and headers are archived byte for byte; nothing is converted")
_OTHER_PARTITIONER = _ignored("it belongs to partitioners other than the DefaultPartitioner")
_OTHER_FORMAT = _ignored("it belongs to formats other than Avro")
_IN_THE_RECORD = _ignored("every archived record holds its own key and headers; there are no extra files")
_NO_BAD_RECORDS = _ignored("nothing is converted, so no record can be bad")
_ONE_SCHEMA = _ignored("the schema of the files is always the same, whatever the values are")
_GROWING = _ignored("part buffers always grow as they fill")
_LICENCE = _ignored("there is no licence to check")
_ELSEWHERE = "select by the record's timestamp when the archive is read"

FORMATS: Final = _unsupported(
    "there is no such format: take AvroFormat, JsonFormat, ParquetFormat or ByteArrayFormat"
).when(
    {
        "AvroFormat": _differs(
            "values have their producer's schema, as the schema registry has it; Connect's would have passed "
            "through its own types"
        ),
        "JsonFormat": _differs(
            "a value that is JSON already is written as it stands, not parsed and written anew"
        ),
        "ParquetFormat": _unsupported(
            "Parquet files are not written: take AvroFormat, and convert with Spark or Athena where needed"
        ),
        "ByteArrayFormat": _same(),
    }
)
"""``format.class``, with which files hold values."""

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
        **_keys(
            "DefaultAWSCredentialsProviderChain DefaultCredentialsProvider AwsDefaultCredentialsProvider",
            _same("boto3's default chain"),
        ),
        "AwsAssumeRoleCredentialsProvider": _same(),
        "EnvironmentVariableCredentialsProvider": _differs(
            "the default chain, which uses the environment first"
        ),
        **_keys(
            "WebIdentityTokenCredentialsProvider WebIdentityTokenFileCredentialsProvider",
            _differs("the default chain, which reads the web identity"),
        ),
    }
)

_FILES: Final[Mapping[str, Verdict]] = {
    "topics.dir": _same("with a folder '_sinksdk' in it for the owner markers"),
    **_keys("directory.delim file.delim filename.offset.zero.pad.width", _same()),
    "flush.size": _same("when a partition is closed, its file ends sooner and is committed"),
    "rotate.schedule.interval.ms": _same("exactly-once here, and also ends a file when no record arrives"),
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
    **_keys("store.kafka.keys store.kafka.headers keys.format.class headers.format.class", _IN_THE_RECORD),
    "s3.schema.partition.affix.type": _unsupported(
        "values are not looked into: one folder holds all of a partition's records, whatever their schema"
    ).when({"NONE": _same()}),
    **_keys(
        "path.format locale partition.* timestamp.extractor timestamp.field "
        "partitioner.max.open.files rotate.file.on.partition.change",
        _OTHER_PARTITIONER,
    ),
    **_keys("format.bytearray.* json.decimal.format parquet.codec", _OTHER_FORMAT),
    "s3.compression.type": _ignored("it belongs to formats other than Avro; use 'avro.codec'"),
    "s3.compression.level": _ignored("it belongs to formats other than Avro; use 'avro.codec.level'"),
}

_S3: Final[Mapping[str, Verdict]] = {
    **_keys("s3.bucket.name s3.region store.url", _same()),
    "s3.endpoint*": _unsupported("it is 'store.url' here, as in Confluent's sink"),
    **_keys("s3.path.style.access.enabled aws.access.key.id aws.secret.access.key", _same()),
    "s3.credentials.provider.class": CREDENTIALS,
    **_keys(
        "s3.credentials.provider.sts.role.arn s3.credentials.provider.sts.role.session.name "
        "s3.credentials.provider.sts.role.external.id s3.credentials.provider.sts.region",
        _same("with AwsAssumeRoleCredentialsProvider"),
    ),
    "s3.credentials.provider.*": _ignored("it is for a Java class of your own"),
    "s3.part.size": _same("8 MiB by default, not 25 MiB"),
    "s3.part.retries": _same("then the archiver retries from memory for 'errors.retry.timeout'"),
    "s3.retry.backoff.ms": _differs(
        "only for retries of a commit; within a request boto3 has its own delays"
    ),
    "s3.ssea.name": _same(),
    "s3.sse.kms.key.id": _same(),
    "s3.sse.customer.key": _unsupported(
        "keys of your own (SSE-C) are not sent: take 's3.ssea.name' with AES256, or aws:kms and a KMS key"
    ),
    **_keys(
        "s3.acl.canned s3.object.tagging s3.object.tagging.key.value.pairs "
        "s3.object.behavior.on.tagging.error s3.proxy.url s3.proxy.user s3.proxy.password "
        "s3.wan.mode",
        _same(),
    ),
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
    **_keys(
        "key.converter key.converter.* value.converter value.converter.* header.converter "
        "header.converter.* schema.generator.class schemas.cache.* schema.cache.* "
        "enhanced.avro.schema.support connect.meta.data allow.optional.map.keys "
        "value.subject.name.strategy",
        _AS_IT_IS,
    ),
    **_keys(
        "errors.tolerance errors.log.enable errors.log.include.messages errors.deadletterqueue.* "
        "producer.override.*",
        _NO_BAD_RECORDS,
    ),
    "errors.retry.timeout": _differs(
        "how long the archiver retries from memory (five minutes by default); then the partition starts "
        "again at its last commit"
    ).when(
        {
            "0": _differs(
                "at the first failed request to S3 a partition starts again at its last commit: take it out, "
                "and the archiver retries from memory for five minutes"
            )
        }
    ),
    "confluent.*": _LICENCE,
}

COMPATIBILITY: Final[Mapping[str, Verdict]] = MappingProxyType(
    {"connector.class": CONNECTORS, **_FILES, **_S3, **_RECORDS, **AIVEN, **LENSES, **CONFLUENT_CLOUD}
)
"""Verdicts by key or pattern."""

OF_VALUES: Final[Mapping[str, Verdict]] = MappingProxyType(
    {
        "behavior.on.null.values": _same().when(
            {"write": _unsupported("take fail or ignore, or 'archive.content' record, which holds them")}
        ),
        "report.null.values.to.dlq": _ignored("a bad record goes to the dead letters, whatever makes it bad"),
        **_keys(
            "store.kafka.keys store.kafka.headers",
            _unsupported("take 'archive.content' record, where each record holds its key and headers").when(
                {"false": _same()}
            ),
        ),
        "format.bytearray.*": _same(),
        **_keys(
            "s3.compression.type s3.compression.level", _same("for JSON and bytes, as in Confluent's sink")
        ),
        "schema.compatibility": _differs("each schema of a registry has its own files, which need not fit"),
    }
)
"""Verdicts by key or pattern where files hold values; they come before the others."""

OTHER_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "archive.content": "a file's records are whole Kafka records with the value's bytes as they are; "
        "Confluent's files hold the converted value alone, so readers have to be changed",
        "offset.source": "the archive begins at the first record that each topic still has; with 'group' it "
        "begins at the committed offsets of Connect's sink",
        "consumer.override.isolation.level": "records of aborted transactions are not archived (Connect's "
        "consumers read them by default)",
        "s3.part.size": "a part has 8 MiB, not 25 MiB: an open file takes less memory, and can have 78 GiB",
        "task.shutdown.graceful.timeout.ms": "a stop waits for uploads, up to 60 s (Connect: 5 s): set the "
        "stop time-out of your supervisor higher",
    }
)
"""Keys whose default is not Confluent's, each with what that changes."""
