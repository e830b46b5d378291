"""Keys of sinks that are configured differently: Aiven's, Lenses', Confluent's managed one. All are refused.

They are told apart from a misspelt key, and each says what takes its place here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sinksdk import Verdict

_ignored, _unsupported = Verdict.ignored, Verdict.unsupported

_LENSES: Final = _unsupported(
    "Lenses' sink is configured in KCQL and writes other files: take s3-archiver and the keys that are named "
    "below"
)

CONNECTORS: Final = Verdict.same().when(
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
    "connect.s3.retry.interval": _BACKOFF,
    "connect.s3.max.retries": _BACKOFF,
    "connect.s3.http.*": _BACKOFF,
    "connect.s3.*": _unsupported("it belongs to Lenses' sink: take it out"),
}
"""Lenses' S3 sink."""

_TOLD_TO_RUN = _ignored("where and as whom Kafka is read is told to 'sinksdk run', not to a connector")

CONFLUENT_CLOUD: Final[Mapping[str, Verdict]] = {
    "kafka.auth.mode": _TOLD_TO_RUN,
    "kafka.api.key": _TOLD_TO_RUN,
    "kafka.api.secret": _TOLD_TO_RUN,
    "kafka.endpoint": _TOLD_TO_RUN,
    "kafka.region": _TOLD_TO_RUN,
    "kafka.service.account.id": _TOLD_TO_RUN,
    "kafka.max.partition.validation.disable": _TOLD_TO_RUN,
    "max.poll.records": _ignored("batches are archived as they are read; nothing is given to 'put' twice"),
    "max.poll.*": _ignored("tasks are no members of a consumer group: nothing rebalances when they are slow"),
    "input.data.format": _ignored("nothing is converted: records of any format are archived as they are"),
    "input.key.format": _ignored("nothing is converted: records of any format are archived as they are"),
    "input.header.format": _ignored("nothing is converted: records of any format are archived as they are"),
    "output.*.format": _unsupported(
        "only Avro container files are written: take it out; keys and headers are in every record"
    ),
    "schema.context.name": _ignored("no schema registry is asked"),
    "schema.registry.*": _ignored("no schema registry is asked"),
    "compression.codec": _renamed("avro.codec"),
    "time.interval": _unsupported(
        "folders by time are not written: take 'rotate.schedule.interval.ms', and select by the record's "
        "timestamp when the archive is read"
    ),
    "authentication.method": _unsupported(
        "take it out: without 'aws.access.key.id' the default credential chain is asked, and a role is named "
        "in 's3.credentials.provider.sts.role.arn'"
    ).when({"Access Keys": _ignored("keys are used where 'aws.access.key.id' is set")}),
    "provider.integration.id": _renamed("s3.credentials.provider.sts.role.arn", _ROLE),
    "auto.restart.on.user.error": _ignored("failed partitions are always opened again"),
}
"""Confluent Cloud's managed S3 sink."""
