"""Keys of Confluent's S3 sink that may stay in a configuration but change nothing here, each with why."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_AS_IT_IS = "the archive holds keys, values and headers byte for byte; nothing is converted"
_OTHER_PARTITIONER = "it belongs to partitioners other than the DefaultPartitioner"
_OTHER_FORMAT = "it belongs to formats other than Avro"
_IN_THE_RECORD = "every archived record holds its own key and headers; there are no extra files"
_NO_BAD_RECORDS = "nothing is converted, so no record can be bad"
_LICENCE = "there is no licence to check"

NO_EFFECT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "key.converter": _AS_IT_IS,
        "key.converter.schemas.enable": _AS_IT_IS,
        "key.converter.schema.registry.url": _AS_IT_IS,
        "value.converter": _AS_IT_IS,
        "value.converter.schemas.enable": _AS_IT_IS,
        "value.converter.schema.registry.url": _AS_IT_IS,
        "header.converter": _AS_IT_IS,
        "schema.generator.class": _AS_IT_IS,
        "schemas.cache.config": _AS_IT_IS,
        "schemas.cache.size": _AS_IT_IS,
        "enhanced.avro.schema.support": _AS_IT_IS,
        "connect.meta.data": _AS_IT_IS,
        "allow.optional.map.keys": _AS_IT_IS,
        "behavior.on.null.values": "a tombstone is archived like any record, with a null value",
        "tombstone.encoded.partition": "tombstones stay in their partition's files, with a null value",
        "report.null.values.to.dlq": "a tombstone is archived like any record, with a null value",
        "store.kafka.keys": _IN_THE_RECORD,
        "store.kafka.headers": _IN_THE_RECORD,
        "keys.format.class": _IN_THE_RECORD,
        "headers.format.class": _IN_THE_RECORD,
        "errors.deadletterqueue.topic.name": _NO_BAD_RECORDS,
        "errors.deadletterqueue.topic.replication.factor": _NO_BAD_RECORDS,
        "errors.deadletterqueue.context.headers.enable": _NO_BAD_RECORDS,
        "errors.log.include.messages": _NO_BAD_RECORDS,
        "path.format": _OTHER_PARTITIONER,
        "locale": _OTHER_PARTITIONER,
        "partition.duration.ms": _OTHER_PARTITIONER,
        "partition.field.name": _OTHER_PARTITIONER,
        "partition.field.format.path": _OTHER_PARTITIONER,
        "timestamp.extractor": _OTHER_PARTITIONER,
        "timestamp.field": _OTHER_PARTITIONER,
        "partitioner.max.open.files": _OTHER_PARTITIONER,
        "rotate.file.on.partition.change": _OTHER_PARTITIONER,
        "s3.schema.partition.affix.type": _OTHER_PARTITIONER,
        "format.bytearray.extension": _OTHER_FORMAT,
        "format.bytearray.separator": _OTHER_FORMAT,
        "json.decimal.format": _OTHER_FORMAT,
        "parquet.codec": _OTHER_FORMAT,
        "s3.compression.type": f"{_OTHER_FORMAT}; use 'avro.codec'",
        "s3.compression.level": f"{_OTHER_FORMAT}; use 'avro.codec.level'",
        "s3.elastic.buffer.enable": "part buffers always grow as they fill",
        "s3.elastic.buffer.init.capacity": "part buffers always grow as they fill",
        "s3.wan.mode": "transfer acceleration is not supported; uploads go to the ordinary endpoint",
        "s3.send.digest": "every part is sent with its CRC32, and every object is checked as a whole",
        "s3.http.send.expect.continue": "the HTTP client decides by the size of the body",
        "enable.conditional.writes": "objects are always published with If-None-Match, whatever the rotation",
        "max.files.scan.limit": "offsets come from the commits, never from the names of objects",
        "retry.backoff.ms": "use 'errors.retry.timeout' and 'errors.retry.delay.max.ms'",
        "max.write.duration.ms": "a long put costs no partition: nothing polls Kafka meanwhile",
        "shutdown.timeout.ms": "use 'task.shutdown.graceful.timeout.ms'",
        "confluent.license": _LICENCE,
        "confluent.topic": _LICENCE,
        "confluent.topic.bootstrap.servers": _LICENCE,
        "confluent.topic.replication.factor": _LICENCE,
    }
)
"""Key and the reason why it has no effect."""

DEFAULT_CREDENTIALS: Final = frozenset(
    {
        "DefaultAWSCredentialsProviderChain",
        "DefaultCredentialsProvider",
        "AwsDefaultCredentialsProvider",
    }
)
"""Class names of the AWS SDKs' default credential chain, which is ours too."""


def class_name(qualified: str) -> str:
    """``io.confluent.connect.s3.format.avro.AvroFormat`` → ``AvroFormat``."""
    return qualified.rpartition(".")[2]
