"""What becomes of every key of every corpus file: decided one by one, not generated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_SINK: Final = "connector.class name tasks.max topics flush.size s3.bucket.name s3.region storage.class"


@dataclass(frozen=True)
class Expected:
    """Keys by verdict, separated by blanks.

    Args:
        same: besides those that every Confluent file here has.
        starts: whether it would start.
        basic: those that every Confluent file here has.
    """

    same: str = ""
    differs: str = ""
    ignored: str = ""
    unsupported: str = ""
    unknown: str = ""
    starts: bool = True
    basic: str = _SINK

    def verdicts(self) -> dict[str, str]:
        """Verdict of each key."""
        groups = {
            "same": f"{self.basic} {self.same}",
            "differs": self.differs,
            "ignored": self.ignored,
            "unsupported": self.unsupported,
            "unknown": self.unknown,
        }
        return {key: verdict for verdict, keys in groups.items() for key in keys.split()}


_AVRO = "format.class partitioner.class"
_BY_REGEX = _SINK.replace(" topics ", " topics.regex ")
_ROLE = "s3.credentials.provider.sts.role"

EXPECTED: Final = {
    "accelerated": Expected(
        same="partitioner.class s3.wan.mode s3.path.style.access.enabled",
        differs="format.class s3.credentials.provider.class",
    ),
    "aiven": Expected(
        basic="name topics tasks.max",
        same="aws.access.key.id aws.secret.access.key",
        ignored="key.converter value.converter",
        unsupported="connector.class aws.s3.bucket.name aws.s3.region aws.s3.endpoint aws.s3.part.size.bytes "
        "aws.s3.sse.algorithm aws.sts.role.arn aws.sts.role.session.name aws.s3.backoff.max.retries "
        "file.prefix.template file.name.template file.max.records file.compression.type format.output.type "
        "format.output.fields format.output.fields.value.encoding format.output.envelope "
        "kafka.retry.backoff.ms",
        starts=False,
    ),
    "assumed_role": Expected(
        same=f"partitioner.class s3.credentials.provider.class {_ROLE}.arn "
        f"{_ROLE}.session.name {_ROLE}.external.id "
        "s3.acl.canned",
        differs="format.class",
    ),
    "client_overrides": Expected(
        same="partitioner.class avro.codec s3.part.size offset.flush.interval.ms "
        "task.shutdown.graceful.timeout.ms consumer.override.auto.offset.reset "
        "consumer.override.isolation.level consumer.override.fetch.max.bytes "
        "consumer.override.max.poll.records producer.override.compression.type",
        differs="format.class",
        ignored="consumer.override.max.poll.interval.ms consumer.override.session.timeout.ms "
        "consumer.override.partition.assignment.strategy admin.override.request.timeout.ms "
        "tasks.max.enforce exactly.once.support offset.flush.timeout.ms "
        "connector.client.config.override.policy max.write.duration.ms shutdown.timeout.ms",
    ),
    "compatibility_full": Expected(
        same="partitioner.class avro.codec",
        differs="format.class schema.compatibility",
        ignored="enhanced.avro.schema.support connect.meta.data allow.optional.map.keys "
        "schemas.cache.config schema.generator.class s3.elastic.buffer.enable "
        "s3.elastic.buffer.init.capacity s3.send.digest confluent.license "
        "confluent.topic.bootstrap.servers confluent.topic.replication.factor",
    ),
    "confluent_cloud": Expected(
        basic="name topics tasks.max flush.size s3.bucket.name s3.region",
        same="aws.access.key.id aws.secret.access.key topics.dir",
        ignored="kafka.auth.mode kafka.api.key kafka.api.secret input.data.format authentication.method "
        "path.format schema.context.name max.poll.interval.ms",
        unsupported="connector.class output.data.format time.interval compression.codec",
        starts=False,
    ),
    "daily_by_record_time": Expected(
        same="avro.codec timezone value.converter value.converter.schema.registry.url",
        differs="format.class",
        ignored="rotate.interval.ms locale timestamp.extractor timestamp.field "
        "rotate.file.on.partition.change value.converter.enhanced.avro.schema.support",
        unsupported="partitioner.class",
        starts=False,
    ),
    "dead_letters": Expected(
        same="avro.codec errors.retry.delay.max.ms errors.tolerance errors.log.enable "
        "errors.log.include.messages errors.deadletterqueue.topic.name "
        "errors.deadletterqueue.topic.replication.factor "
        "errors.deadletterqueue.context.headers.enable behavior.on.null.values value.converter "
        "value.converter.schema.registry.url",
        differs="format.class errors.retry.timeout",
        ignored="report.null.values.to.dlq",
        starts=False,
    ),
    "debezium": Expected(
        basic=_BY_REGEX,
        same="partitioner.class transforms transforms.source.type transforms.source.offset.field "
        "transforms.source.predicate transforms.source.negate predicates "
        "predicates.isTombstone.type key.converter key.converter.schema.registry.url "
        "value.converter value.converter.schema.registry.url behavior.on.null.values",
        differs="format.class",
        ignored="transforms.unwrap.drop.tombstones transforms.unwrap.delete.handling.mode "
        "transforms.unwrap.add.fields transforms.route.regex transforms.route.replacement",
        unsupported="transforms.unwrap.type transforms.route.type",
        starts=False,
    ),
    "every_default": Expected(
        same="partitioner.class topics.regex errors.retry.delay.max.ms s3.part.size "
        "s3.credentials.provider.class aws.access.key.id aws.secret.access.key s3.ssea.name "
        "s3.sse.kms.key.id s3.acl.canned s3.wan.mode s3.part.retries s3.object.tagging "
        "s3.object.tagging.key.value.pairs s3.object.behavior.on.tagging.error s3.proxy.url "
        "s3.proxy.user s3.proxy.password s3.path.style.access.enabled "
        "s3.schema.partition.affix.type rotate.interval.ms rotate.schedule.interval.ms "
        "filename.offset.zero.pad.width avro.codec topics.dir store.url directory.delim file.delim "
        "timezone transforms predicates value.converter value.converter.schema.registry.url "
        "errors.tolerance errors.log.enable errors.log.include.messages "
        "errors.deadletterqueue.topic.name errors.deadletterqueue.topic.replication.factor "
        "errors.deadletterqueue.context.headers.enable s3.compression.type s3.compression.level "
        "behavior.on.null.values store.kafka.keys store.kafka.headers format.bytearray.extension "
        "format.bytearray.separator",
        differs="format.class errors.retry.timeout s3.retry.backoff.ms schema.compatibility",
        ignored="key.converter header.converter config.action.reload s3.sse.customer.key s3.send.digest "
        "s3.http.send.expect.continue s3.elastic.buffer.enable s3.elastic.buffer.init.capacity "
        "tombstone.encoded.partition report.null.values.to.dlq keys.format.class "
        "headers.format.class json.decimal.format retry.backoff.ms shutdown.timeout.ms "
        "schemas.cache.config enhanced.avro.schema.support connect.meta.data "
        "allow.optional.map.keys parquet.codec partition.field.name partition.duration.ms "
        "path.format locale timestamp.extractor timestamp.field rotate.file.on.partition.change "
        "enable.conditional.writes max.write.duration.ms",
    ),
    "fields_parquet": Expected(
        same="value.converter value.converter.schema.registry.url "
        "value.converter.basic.auth.credentials.source",
        differs="schema.compatibility",
        ignored="parquet.codec partition.field.name partition.field.format.path "
        "value.converter.schema.registry.basic.auth.user.info schemas.cache.config",
        unsupported=_AVRO,
        starts=False,
    ),
    "flat_map": Expected(
        same="partitioner.class topics.dir s3.part.size", differs="format.class", ignored="_comment"
    ),
    "hourly_json": Expected(
        same="timezone rotate.schedule.interval.ms consumer.override.auto.offset.reset "
        "s3.compression.type s3.compression.level value.converter value.converter.schemas.enable",
        differs="format.class schema.compatibility",
        ignored="rotate.interval.ms path.format partition.duration.ms locale timestamp.extractor "
        "key.converter json.decimal.format",
        unsupported="partitioner.class",
        starts=False,
    ),
    "keys_headers_tombstones": Expected(
        same="partitioner.class directory.delim value.converter",
        differs="format.class",
        ignored="keys.format.class headers.format.class tombstone.encoded.partition key.converter "
        "enable.conditional.writes",
        unsupported="store.kafka.keys store.kafka.headers behavior.on.null.values",
        starts=False,
    ),
    "minio": Expected(
        same="store.url s3.path.style.access.enabled aws.access.key.id aws.secret.access.key topics.dir "
        "avro.codec value.converter value.converter.schemas.enable",
        differs="format.class",
        ignored="key.converter key.converter.schemas.enable",
    ),
    "misspelt": Expected(
        same="partitioner.class",
        differs="format.class",
        unknown="avro.codek rotate.shedule.interval.ms s3.bucket.prefix task.max",
    ),
    "protobuf": Expected(
        same="partitioner.class value.converter value.converter.schema.registry.url",
        differs="format.class",
        ignored="key.converter value.converter.enhanced.protobuf.schema.support "
        "value.converter.auto.register.schemas value.subject.name.strategy header.converter",
        starts=False,
    ),
    "proxy": Expected(
        same="avro.codec s3.proxy.url s3.proxy.user s3.proxy.password",
        differs="format.class",
        ignored="s3.http.send.expect.continue",
    ),
    "quickstart": Expected(
        same="partitioner.class s3.part.size",
        differs="format.class schema.compatibility",
    ),
    "raw_bytes": Expected(
        same="s3.schema.partition.affix.type format.class format.bytearray.extension "
        "format.bytearray.separator s3.compression.type value.converter",
        ignored="key.converter s3.credentials.provider.vault.path",
        unsupported="partitioner.class s3.credentials.provider.class",
        starts=False,
    ),
    "rest_answer": Expected(
        same="partitioner.class avro.codec s3.object.tagging s3.object.tagging.key.value.pairs "
        "s3.object.behavior.on.tagging.error s3.credentials.provider.class",
        differs="format.class",
    ),
    "secrets_from_files": Expected(
        same="partitioner.class aws.access.key.id aws.secret.access.key value.converter "
        "value.converter.schema.registry.url value.converter.basic.auth.credentials.source "
        "value.converter.basic.auth.user.info",
        differs="format.class",
        ignored="config.action.reload config.providers config.providers.file.class key.converter",
    ),
    "snappy_on_schedule": Expected(
        same="partitioner.class avro.codec rotate.schedule.interval.ms timezone s3.part.size "
        "value.converter value.converter.schema.registry.url",
        differs="format.class schema.compatibility",
        ignored="key.converter",
    ),
    "sse_customer_key": Expected(
        same="partitioner.class s3.ssea.name",
        differs="format.class",
        unsupported="s3.sse.customer.key",
        starts=False,
    ),
    "sse_kms": Expected(
        same="partitioner.class s3.ssea.name s3.sse.kms.key.id s3.acl.canned s3.part.size file.delim "
        "filename.offset.zero.pad.width",
        differs="format.class",
    ),
    "strimzi": Expected(
        same="partitioner.class avro.codec rotate.interval.ms s3.path.style.access.enabled "
        "consumer.override.auto.offset.reset aws.access.key.id aws.secret.access.key "
        "value.converter",
        differs="format.class",
        ignored="key.converter",
    ),
    "tenants_by_regex": Expected(
        basic=_BY_REGEX,
        same="partitioner.class topics.dir avro.codec rotate.schedule.interval.ms timezone "
        "s3.part.retries value.converter",
        differs="format.class s3.retry.backoff.ms",
        ignored="retry.backoff.ms key.converter",
    ),
}
