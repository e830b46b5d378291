"""The expected verdict on every key of every collected configuration, decided by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_SINK: Final = "connector.class name tasks.max topics flush.size s3.bucket.name s3.region storage.class"


@dataclass(frozen=True)
class Expected:
    """Keys by verdict, separated by blanks.

    Args:
        same: keys besides those that every Confluent file here has.
        starts: whether the configuration would start.
        basic: the keys that every Confluent file here has.
    """

    same: str = ""
    differs: str = ""
    ignored: str = ""
    unsupported: str = ""
    unknown: str = ""
    starts: bool = True
    basic: str = _SINK

    def verdicts(self) -> dict[str, str]:
        groups = {
            "same": f"{self.basic} {self.same}",
            "differs": self.differs,
            "ignored": self.ignored,
            "unsupported": self.unsupported,
            "unknown": self.unknown,
        }
        return {key: verdict for verdict, keys in groups.items() for key in keys.split()}


_BY_REGEX = _SINK.replace(" topics ", " topics.regex ")
_COLLECTED = _SINK.replace(" tasks.max", "")
_COLLECTED_BY_REGEX = _COLLECTED.replace(" topics ", " topics.regex ")
_BY_TIME = "partitioner.class path.format partition.duration.ms locale timezone"
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
        "task.shutdown.graceful.timeout.ms "
        "consumer.override.auto.offset.reset consumer.override.isolation.level "
        "consumer.override.fetch.max.bytes consumer.override.max.poll.records "
        "producer.override.compression.type",
        differs="format.class",
        ignored="consumer.override.max.poll.interval.ms consumer.override.session.timeout.ms "
        "consumer.override.partition.assignment.strategy "
        "admin.override.request.timeout.ms tasks.max.enforce exactly.once.support offset.flush.timeout.ms "
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
        ignored="kafka.auth.mode kafka.api.key kafka.api.secret authentication.method "
        "path.format schema.context.name max.poll.interval.ms",
        unsupported="connector.class input.data.format output.data.format time.interval compression.codec",
        starts=False,
    ),
    "daily_by_record_time": Expected(
        same="avro.codec timezone partitioner.class locale timestamp.extractor timestamp.field "
        "rotate.interval.ms rotate.file.on.partition.change value.converter "
        "value.converter.schema.registry.url",
        differs="format.class value.converter.enhanced.avro.schema.support",
    ),
    "dead_letters": Expected(
        same="avro.codec errors.retry.delay.max.ms errors.tolerance errors.log.enable "
        "errors.log.include.messages errors.deadletterqueue.topic.name "
        "errors.deadletterqueue.topic.replication.factor errors.deadletterqueue.context.headers.enable "
        "behavior.on.null.values value.converter.schema.registry.url report.null.values.to.dlq",
        differs="format.class errors.retry.timeout",
        unsupported="value.converter",
        starts=False,
    ),
    "debezium": Expected(
        basic=_BY_REGEX,
        same="partitioner.class transforms transforms.source.type transforms.source.offset.field "
        "transforms.source.predicate transforms.source.negate predicates predicates.isTombstone.type "
        "key.converter key.converter.schema.registry.url value.converter value.converter.schema.registry.url "
        "behavior.on.null.values",
        differs="format.class",
        ignored="transforms.unwrap.drop.tombstones transforms.unwrap.delete.handling.mode "
        "transforms.unwrap.add.fields transforms.route.regex transforms.route.replacement",
        unsupported="transforms.unwrap.type transforms.route.type",
        starts=False,
    ),
    "every_default": Expected(
        same="partitioner.class topics.regex errors.retry.delay.max.ms s3.part.size "
        "s3.credentials.provider.class "
        "aws.access.key.id aws.secret.access.key s3.ssea.name s3.sse.kms.key.id s3.acl.canned s3.wan.mode "
        "s3.part.retries s3.object.tagging s3.object.tagging.key.value.pairs "
        "s3.object.behavior.on.tagging.error s3.proxy.url s3.proxy.user s3.proxy.password "
        "s3.path.style.access.enabled s3.schema.partition.affix.type rotate.interval.ms "
        "rotate.schedule.interval.ms filename.offset.zero.pad.width avro.codec topics.dir store.url "
        "directory.delim file.delim timezone transforms predicates value.converter "
        "value.converter.schema.registry.url errors.tolerance errors.log.enable "
        "errors.log.include.messages errors.deadletterqueue.topic.name "
        "errors.deadletterqueue.topic.replication.factor errors.deadletterqueue.context.headers.enable "
        "behavior.on.null.values store.kafka.keys store.kafka.headers",
        differs="format.class errors.retry.timeout s3.retry.backoff.ms",
        ignored="key.converter header.converter config.action.reload "
        "s3.sse.customer.key s3.compression.type s3.compression.level s3.send.digest "
        "s3.http.send.expect.continue s3.elastic.buffer.enable s3.elastic.buffer.init.capacity "
        "tombstone.encoded.partition report.null.values.to.dlq "
        "keys.format.class headers.format.class format.bytearray.extension "
        "format.bytearray.separator json.decimal.format retry.backoff.ms shutdown.timeout.ms "
        "schemas.cache.config schema.compatibility enhanced.avro.schema.support connect.meta.data "
        "allow.optional.map.keys parquet.codec partition.field.name partition.duration.ms path.format "
        "locale timestamp.extractor timestamp.field rotate.file.on.partition.change "
        "enable.conditional.writes max.write.duration.ms",
    ),
    "fields_parquet": Expected(
        same="parquet.codec partitioner.class partition.field.name value.converter "
        "value.converter.schema.registry.url value.converter.schema.registry.basic.auth.user.info "
        "value.converter.basic.auth.credentials.source",
        differs="format.class schema.compatibility",
        ignored="partition.field.format.path schemas.cache.config",
    ),
    "flat_map": Expected(
        same="partitioner.class topics.dir s3.part.size", differs="format.class", ignored="_comment"
    ),
    "hourly_json": Expected(
        same="timezone rotate.schedule.interval.ms consumer.override.auto.offset.reset s3.compression.type "
        "s3.compression.level partitioner.class path.format partition.duration.ms locale "
        "timestamp.extractor rotate.interval.ms value.converter value.converter.schemas.enable "
        "json.decimal.format",
        differs="format.class",
        ignored="key.converter schema.compatibility",
    ),
    "keys_headers_tombstones": Expected(
        same="partitioner.class directory.delim value.converter key.converter store.kafka.keys "
        "behavior.on.null.values tombstone.encoded.partition",
        differs="format.class keys.format.class store.kafka.headers headers.format.class",
        ignored="enable.conditional.writes",
    ),
    "minio": Expected(
        same="store.url s3.path.style.access.enabled aws.access.key.id aws.secret.access.key topics.dir "
        "avro.codec value.converter value.converter.schemas.enable",
        differs="format.class",
        ignored="key.converter key.converter.schemas.enable",
        starts=False,  # JSON without a schema cannot be written as Avro
    ),
    "misspelt": Expected(
        same="partitioner.class",
        differs="format.class",
        unknown="avro.codek rotate.shedule.interval.ms task.max",
    ),
    "protobuf": Expected(
        same="partitioner.class value.converter.schema.registry.url",
        differs="format.class",
        ignored="key.converter "
        "value.converter.enhanced.protobuf.schema.support value.converter.auto.register.schemas "
        "value.subject.name.strategy header.converter",
        unsupported="value.converter",
        starts=False,
    ),
    "proxy": Expected(
        same="avro.codec s3.proxy.url s3.proxy.user s3.proxy.password",
        differs="format.class",
        ignored="s3.http.send.expect.continue",
    ),
    "quickstart": Expected(
        same="partitioner.class s3.part.size", differs="format.class", ignored="schema.compatibility"
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
        "consumer.override.auto.offset.reset aws.access.key.id aws.secret.access.key value.converter",
        differs="format.class",
        ignored="key.converter",
    ),
    "tenants_by_regex": Expected(
        basic=_BY_REGEX,
        same="partitioner.class topics.dir avro.codec rotate.schedule.interval.ms timezone s3.part.retries "
        "value.converter",
        differs="format.class s3.retry.backoff.ms",
        ignored="retry.backoff.ms key.converter",
    ),
    # -- found in public repositories, issues and documentation, names replaced --
    "e01": Expected(
        basic=_COLLECTED_BY_REGEX,
        same="partitioner.class topics.dir locale timezone behavior.on.null.values",
        differs="format.class",
        ignored="schema.compatibility key.converter",
    ),
    "e02": Expected(
        basic=_COLLECTED,
        same=f"{_BY_TIME} timestamp.extractor",
        differs="format.class",
    ),
    "e04": Expected(
        basic=_COLLECTED,
        same="partitioner.class s3.part.size",
        differs="format.class",
        ignored="schema.compatibility",
    ),
    "e05": Expected(
        basic=_COLLECTED,
        same=f"{_BY_TIME} timestamp.extractor rotate.interval.ms",
        differs="format.class",
    ),
    "e07": Expected(
        basic=_COLLECTED,
        same="value.converter value.converter.schema.registry.url topics.dir "
        "rotate.schedule.interval.ms s3.part.size timezone parquet.codec "
        "s3.credentials.provider.class",
        differs="format.class",
        ignored="key.converter auto.register.schemas schema.registry.url",
    ),
    "e08": Expected(
        basic=_COLLECTED,
        same="value.converter value.converter.schema.registry.url s3.part.size",
        differs="format.class",
        ignored="key.converter schema.compatibility",
    ),
    "e10": Expected(
        basic=_COLLECTED,
        differs="format.class",
        ignored="schema.compatibility schema.generator.class",
    ),
    "e11": Expected(
        basic=_COLLECTED_BY_REGEX,
        same="store.url",
        differs="format.class",
    ),
    "e13": Expected(
        basic=_COLLECTED,
        same="partitioner.class store.url s3.part.size",
        differs="format.class",
        ignored="schema.compatibility schema.generator.class",
    ),
    "e14": Expected(
        basic=_COLLECTED,
        same="s3.object.tagging s3.ssea.name topics.dir",
        differs="format.class schema.compatibility",
    ),
    "e16": Expected(
        basic=_COLLECTED,
        same="partitioner.class value.converter value.converter.schemas.enable "
        "partition.field.name store.url topics.dir",
        differs="format.class",
        ignored="key.converter",
    ),
    "e17": Expected(
        basic=_COLLECTED,
        same=f"{_BY_TIME} key.converter key.converter.schemas.enable value.converter "
        "value.converter.schemas.enable s3.path.style.access.enabled store.url "
        "rotate.schedule.interval.ms transforms transforms.DebeziumRecord.type store.kafka.keys",
        differs="format.class",
        ignored="schema.compatibility s3.http.send.expect.continue keys.format.class",
        starts=False,
    ),
    "e19": Expected(
        basic=_COLLECTED,
        same="value.converter value.converter.schema.registry.url store.kafka.keys",
        differs="format.class keys.format.class store.kafka.headers headers.format.class",
        ignored="schema.compatibility enhanced.avro.schema.support "
        "value.converter.value.subject.name.strategy",
    ),
    "e20": Expected(
        basic=_COLLECTED,
        same="partitioner.class partition.field.name rotate.schedule.interval.ms timezone "
        "parquet.codec transforms transforms.RenameField.type "
        "transforms.insertStaticField1.type transforms.RenameField.renames "
        "transforms.insertStaticField1.static.field "
        "transforms.insertStaticField1.static.value",
        differs="format.class",
        ignored="schema.compatibility",
        starts=False,
    ),
    "e22": Expected(
        basic=_COLLECTED,
        same=f"{_BY_TIME} timestamp.extractor topics.dir rotate.interval.ms",
        differs="format.class",
        ignored="schema.compatibility",
    ),
    "e23": Expected(
        basic=_COLLECTED,
        same="store.url s3.part.size",
        differs="format.class s3.credentials.provider.class",
        ignored="schema.compatibility",
    ),
    "e25": Expected(
        basic=_COLLECTED,
        same="store.url rotate.schedule.interval.ms timezone",
        differs="format.class s3.credentials.provider.class",
        ignored="schema.compatibility",
        unknown="avro.converter.enhanced.avro.schema.support avro.converter.schema.cache.size",
    ),
    "e26": Expected(
        basic="",
        same="topics s3.bucket.name s3.part.size s3.wan.mode topics.dir "
        "rotate.schedule.interval.ms flush.size timezone s3.schema.partition.affix.type "
        "s3.object.tagging tasks.max name",
        differs="behavior.on.null.values",
        ignored="subject.name.strategy path.format rotate.interval.ms "
        "tombstone.encoded.partition enhanced.avro.schema.support locale "
        "schema.compatibility store.kafka.keys value.converter.connect.meta.data "
        "store.kafka.headers",
        unsupported="connector.class output.data.format input.data.format time.interval output.keys.format "
        "output.headers.format",
        starts=False,
    ),
    "i01": Expected(
        basic=_COLLECTED,
        same="path.format partition.duration.ms locale timezone s3.part.size avro.codec "
        "topics.dir value.converter value.converter.schema.registry.url",
        differs="format.class",
        ignored="enhanced.avro.schema.support schema.compatibility key.converter",
        unsupported="partitioner.class",
        starts=False,
    ),
    "i03": Expected(
        basic=_COLLECTED_BY_REGEX,
        same=f"{_BY_TIME} timestamp.extractor timestamp.field key.converter "
        "key.converter.schemas.enable value.converter value.converter.schemas.enable "
        "transforms transforms.createKey.fields transforms.createKey.type "
        "rotate.interval.ms rotate.schedule.interval.ms s3.compression.type topics.dir",
        differs="format.class",
        ignored="schema.compatibility",
        unknown="prefix.add.prefix prefix.remove.regex",
    ),
    "i05": Expected(
        basic=_COLLECTED,
        same=f"{_BY_TIME} timestamp.extractor timestamp.field",
        differs="format.class",
        ignored="schema.generator.class",
    ),
    "i06": Expected(
        basic=_COLLECTED,
        same=f"{_BY_TIME} topics.dir s3.part.size",
        differs="format.class",
        ignored="schema.generator.class key.converter",
    ),
    "i08": Expected(
        basic=_COLLECTED,
        same=f"{_BY_TIME} store.kafka.keys behavior.on.null.values tombstone.encoded.partition",
        differs="format.class",
        ignored="time.interval",
    ),
    "i09": Expected(
        basic=_COLLECTED,
        same="store.url",
        ignored="rotate.interval.ms",
        unsupported="format.class",
        starts=False,
    ),
    "i11": Expected(
        basic=_COLLECTED,
        same=f"{_BY_TIME} tasks.max topics.dir s3.object.tagging s3.part.retries "
        "rotate.interval.ms value.converter value.converter.schema.registry.url",
        differs="format.class schema.compatibility",
        ignored="key.converter",
    ),
    "i12": Expected(
        basic=_COLLECTED,
        same=f"{_BY_TIME} tasks.max s3.part.size rotate.interval.ms "
        "errors.deadletterqueue.context.headers.enable value.converter "
        "value.converter.schema.registry.url",
        differs="format.class",
        ignored="s3.elastic.buffer.enable key.converter",
    ),
    "l01": Expected(
        basic="",
        same="tasks.max topics name",
        unsupported="connector.class connect.s3.aws.client connect.s3.kcql",
        starts=False,
    ),
    "l02": Expected(
        basic="",
        same="tasks.max topics name",
        unsupported="connector.class connect.s3.kcql connect.s3.aws.region connect.s3.aws.auth.mode",
        starts=False,
    ),
    "r02": Expected(
        basic=_COLLECTED,
        same="partitioner.class store.url aws.access.key.id aws.secret.access.key "
        "s3.credentials.provider.class rotate.schedule.interval.ms timezone",
        differs="format.class",
        ignored="s3.endpoint path.format locale",
    ),
    "r03": Expected(
        basic=_COLLECTED_BY_REGEX,
        same=f"{_BY_TIME} rotate.interval.ms",
        differs="format.class",
    ),
    "r05": Expected(
        basic=_COLLECTED,
        same="partitioner.class value.converter value.converter.schemas.enable behavior.on.null.values",
        differs="format.class",
        ignored="key.converter key.converter.schemas.enable schema.compatibility",
    ),
    "r06": Expected(
        basic=_COLLECTED,
        same="s3.object.tagging s3.ssea.name topics.dir",
        differs="format.class schema.compatibility",
    ),
    "r08": Expected(
        basic=_COLLECTED,
        same=f"{_BY_TIME} value.converter value.converter.schemas.enable s3.part.size",
        differs="format.class",
        ignored="key.converter schema.compatibility",
    ),
    "r09": Expected(
        basic=_COLLECTED,
        same="partitioner.class topics.dir value.converter value.converter.schemas.enable",
        differs="format.class",
        ignored="schema.compatibility key.converter",
    ),
    "r11": Expected(
        basic="",
        same="aws.access.key.id aws.secret.access.key topics flush.size name",
        unsupported="connector.class aws.s3.bucket.name aws.s3.endpoint aws.s3.region "
        "format.output.type file.compression.type file.name.template",
        starts=False,
    ),
    "r13": Expected(
        basic="",
        same="aws.access.key.id aws.secret.access.key topics flush.size name",
        unsupported="connector.class aws.s3.bucket.name aws.s3.endpoint aws.s3.region "
        "format.output.type file.compression.type file.name.template",
        starts=False,
    ),
    "r15": Expected(
        basic=_COLLECTED,
        same="partitioner.class store.url aws.access.key.id aws.secret.access.key",
        differs="format.class",
        ignored="schema.compatibility",
    ),
    "r16": Expected(
        basic=_COLLECTED,
        same=f"{_BY_TIME} timestamp.extractor timestamp.field value.converter "
        "value.converter.schema.registry.url store.url s3.path.style.access.enabled "
        "rotate.interval.ms parquet.codec",
        differs="format.class",
        ignored="key.converter commit.interval.ms schema.compatibility",
    ),
    "r18": Expected(
        basic=_COLLECTED,
        same="store.url",
        differs="format.class",
        ignored="rotate.interval.ms schema.compatibility",
    ),
    "r19": Expected(
        basic=_COLLECTED,
        same="value.converter value.converter.schemas.enable",
        differs="format.class",
        ignored="schema.compatibility key.converter",
    ),
    "r21": Expected(
        basic=_COLLECTED,
        same=f"{_BY_TIME} timestamp.extractor store.url aws.access.key.id aws.secret.access.key "
        "value.converter value.converter.schemas.enable rotate.interval.ms "
        "errors.tolerance errors.log.enable errors.log.include.messages",
        differs="format.class",
        ignored="key.converter key.converter.schemas.enable",
    ),
    "r22": Expected(
        basic=_COLLECTED,
        same=f"{_BY_TIME} timestamp.extractor timestamp.field",
        differs="format.class",
        ignored="schema.generator.class",
    ),
    "r24": Expected(
        basic="",
        starts=False,
    ),
    "r25": Expected(
        basic=_COLLECTED,
        same="partitioner.class value.converter value.converter.schemas.enable s3.part.size",
        differs="format.class",
        ignored="schema.compatibility key.converter",
    ),
    "r27": Expected(
        basic=_COLLECTED,
        same="partitioner.class locale timezone",
        differs="format.class",
    ),
    "r28": Expected(
        basic=_COLLECTED,
        same="store.url topics.dir timezone",
        differs="format.class s3.credentials.provider.class",
        ignored="rotate.interval.ms path.format locale timestamp.extractor timestamp.field",
    ),
    "r30": Expected(
        basic=_COLLECTED_BY_REGEX,
        same=f"{_BY_TIME} timestamp.extractor value.converter value.converter.schemas.enable "
        "topics.dir rotate.schedule.interval.ms behavior.on.null.values",
        differs="format.class",
        ignored="key.converter key.converter.schemas.enable",
    ),
    "r31": Expected(
        basic="",
        same="aws.access.key.id aws.secret.access.key topics name",
        ignored="key.converter value.converter value.converter.schema.registry.url",
        unsupported="connector.class aws.s3.bucket.name aws.s3.endpoint aws.s3.region "
        "format.output.type file.compression.type format.output.fields",
        starts=False,
    ),
    "r33": Expected(
        basic=_COLLECTED_BY_REGEX,
        same=f"{_BY_TIME} timestamp.extractor rotate.interval.ms rotate.schedule.interval.ms "
        "transforms transforms.dropTombstones.type transforms.dropTombstones.behavior",
        differs="format.class",
        ignored="schema.compatibility",
    ),
    "r34": Expected(
        basic=_COLLECTED,
        same=f"{_BY_TIME} value.converter value.converter.schemas.enable",
        differs="format.class",
        ignored="key.converter",
    ),
    "r36": Expected(
        basic=_COLLECTED,
        same="partitioner.class timestamp.extractor rotate.interval.ms timezone topics.dir "
        "store.url value.converter value.converter.schemas.enable locale",
        differs="format.class",
        ignored="timestamp.field key.converter path.format aws.s3.path.style.access.enabled",
    ),
    "r37": Expected(
        basic=_COLLECTED,
        same=f"{_BY_TIME} timestamp.extractor timestamp.field s3.ssea.name "
        "rotate.interval.ms rotate.schedule.interval.ms topics.dir errors.tolerance "
        "errors.log.enable errors.log.include.messages errors.deadletterqueue.topic.name "
        "errors.deadletterqueue.topic.replication.factor",
        differs="format.class",
        ignored="schema.compatibility",
        unsupported="s3.compression.type",
        starts=False,
    ),
    "r39": Expected(
        basic=_COLLECTED,
        same="partitioner.class rotate.schedule.interval.ms timezone locale topics.dir "
        "s3.part.size store.url",
        differs="format.class",
        ignored="partition.duration.ms schema.generator.class key.converter",
    ),
    "r40": Expected(
        basic=_COLLECTED,
        same=f"{_BY_TIME} timestamp.extractor rotate.schedule.interval.ms rotate.interval.ms "
        "s3.compression.type topics.dir partition.field",
        differs="format.class",
        ignored="schema.compatibility",
    ),
}

# Configurations of other sinks, which start after ``sinksdk convert``.
CONVERTED: Final = frozenset({"e26", "l01", "l02", "r11", "r13", "r31"})

# Configurations that do not start, converted or not, and why.
REFUSED: Final = {
    "e17": "a transform of one's own in Java",
    "e20": "fields are renamed, and nothing says by which converter values have fields: it is the worker's",
    "i01": "a partitioner of one's own in Java",
    "i09": "a format of RADAR-base, in Java",
    "r24": "there is no such class in Kafka Connect either",
    "r37": "Confluent's sink compresses lines with gzip only, too",
}
