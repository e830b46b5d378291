"""Define verdicts on keys of Confluent's S3 sink, and on keys of other sinks, which are refused."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Final

from sinksdk import Verdict

_same, _differs = Verdict.same, Verdict.differs
_ignored, _unsupported = Verdict.ignored, Verdict.unsupported


def _keys(names: str, verdict: Verdict) -> dict[str, Verdict]:
    return dict.fromkeys(names.split(), verdict)


_LENSES: Final = _unsupported(
    "Lenses' sink is configured in KCQL and names files differently: 'sinksdk convert' writes the "
    "configuration of s3-archiver"
)

_AIVEN: Final = _unsupported(
    "Aiven's sink has other keys and names files differently: 'sinksdk convert' writes the configuration of "
    "s3-archiver"
)


def _renamed(key: str, remark: str = "") -> Verdict:
    return _unsupported(f"it is '{key}' here{remark}")


_BACKOFF = _unsupported("use 's3.part.retries' and 's3.retry.backoff.ms', then 'errors.retry.timeout'")
_ROLE = ", with AwsAssumeRoleCredentialsProvider as 's3.credentials.provider.class'"
_NAMES = _unsupported(
    "names of files are fixed: topic, partition and start offset below 'topics.dir' ('file.delim' and "
    "'filename.offset.zero.pad.width' can be set); folders by time are 'path.format'"
)
_CONTENT = _renamed(
    "archive.content", ": value, or record for key, value, offset, timestamp and headers together"
)

# Keys of other sinks that only have another name here: the deprecated name and the present one.
STS_ROLE: Final = "s3.credentials.provider.sts.role"
AIVENS_DEPRECATED_KEYS: Final[Mapping[str, str]] = {
    "aws_access_key_id": "aws.access.key.id",
    "aws_secret_access_key": "aws.secret.access.key",
    "aws_s3_bucket": "aws.s3.bucket.name",
    "aws_s3_endpoint": "aws.s3.endpoint",
    "aws_s3_region": "aws.s3.region",
    "aws_s3_prefix": "aws.s3.prefix",
    "output_compression": "file.compression.type",
    "output_fields": "format.output.fields",
    "aws.credential.provider": "aws.credentials.provider",
}
AIVENS_KEYS: Final[Mapping[str, str]] = {
    "aws.s3.bucket.name": "s3.bucket.name",
    "aws.s3.region": "s3.region",
    "aws.s3.endpoint": "store.url",
    "aws.s3.part.size.bytes": "s3.part.size",
    "aws.s3.sse.algorithm": "s3.ssea.name",
    "aws.sts.role.arn": f"{STS_ROLE}.arn",
    "aws.sts.role.external.id": f"{STS_ROLE}.external.id",
    "aws.sts.role.session.name": f"{STS_ROLE}.session.name",
    "aws.credentials.provider": "s3.credentials.provider.class",
    "aws.s3.backoff.max.retries": "s3.part.retries",
    "aws.s3.backoff.delay.ms": "s3.retry.backoff.ms",
    "file.max.records": "flush.size",
}
LENSES_DEPRECATED_KEYS: Final[Mapping[str, str]] = {
    "aws.access.key": "connect.s3.aws.access.key",
    "aws.secret.key": "connect.s3.aws.secret.key",
    "aws.auth.mode": "connect.s3.aws.auth.mode",
    "aws.region": "connect.s3.aws.region",
    "aws.custom.endpoint": "connect.s3.custom.endpoint",
    "aws.vhost.bucket": "connect.s3.vhost.bucket",
}
LENSES_KEYS: Final[Mapping[str, str]] = {
    "connect.s3.aws.access.key": "aws.access.key.id",
    "connect.s3.aws.secret.key": "aws.secret.access.key",
    "connect.s3.aws.region": "s3.region",
    "connect.s3.custom.endpoint": "store.url",
    "connect.s3.vhost.bucket": "s3.path.style.access.enabled",
    "connect.s3.http.max.retries": "s3.part.retries",
    "connect.s3.http.retry.interval": "s3.retry.backoff.ms",
}

_AIVENS_OWN: Final[Mapping[str, Verdict]] = {
    **{
        old: _renamed(key, _ROLE if ".sts." in old else "")
        for old, key in AIVENS_KEYS.items()
        if ".backoff." not in old
    },
    "aws.s3.prefix": _renamed("topics.dir"),
    "aws.s3.backoff.*": _BACKOFF,
    "kafka.retry.backoff.ms": _BACKOFF,
    "aws.sts.*": _unsupported("a role is assumed for an hour, at the region's own endpoint: remove it"),
    "aws.sts.role.session.duration": _unsupported("a role is assumed for an hour: remove it").when(
        {"3600": _ignored("a role is assumed for an hour")}
    ),
    "file.prefix.template": _renamed("topics.dir", ", without variables"),
    "file.name.*": _NAMES,
    "file.compression.type": _renamed(
        "s3.compression.type", " for lines of JSON, 'avro.codec' or 'parquet.codec' for the others"
    ),
    "format.output.type": _renamed("format.class", ": JsonFormat, AvroFormat or ParquetFormat"),
    "format.output.fields*": _CONTENT,
    "format.output.envelope": _CONTENT,
    "timestamp.timezone": _renamed("timezone"),
    "timestamp.source": _renamed("timestamp.extractor", ": Wallclock, or Record for event"),
}

AIVEN: Final[Mapping[str, Verdict]] = {
    **{old: _AIVENS_OWN.get(key) or _renamed(key) for old, key in AIVENS_DEPRECATED_KEYS.items()},
    "output_fields": _CONTENT,
    **_AIVENS_OWN,
}

_VHOST: Final = _renamed(
    "s3.path.style.access.enabled", ": despite its name, true puts buckets into the path there"
)

_LENSES_OWN: Final[Mapping[str, Verdict]] = {
    **{old: _renamed(key) for old, key in LENSES_KEYS.items()},
    "connect.s3.vhost.bucket": _VHOST,
    "connect.s3.kcql": _unsupported("KCQL is not supported: 'sinksdk convert' writes the equivalent keys"),
    "connect.s3.compression.codec": _renamed("avro.codec"),
    "connect.s3.skip.null.values": _renamed("behavior.on.null.values", ": ignore, where it is true"),
    "connect.s3.padding.length": _renamed("filename.offset.zero.pad.width"),
    **_keys("connect.s3.disable.flush.count connect.s3.flush.count.enable", _renamed("flush.size")),
    **_keys("connect.s3.retry.interval connect.s3.max.retries connect.s3.http.*", _BACKOFF),
    **_keys(
        "connect.s3.config.profiles connect.s3.kcql.*",
        _unsupported("it refers to settings that are not in this file: write them here as 'connect.s3.kcql'"),
    ),
    "connect.s3.*": _unsupported("it is a key of Lenses' sink: remove it"),
}

LENSES: Final[Mapping[str, Verdict]] = {
    **{old: _LENSES_OWN[key] for old, key in LENSES_DEPRECATED_KEYS.items() if key in _LENSES_OWN},
    **_LENSES_OWN,
}


CONFLUENT_CLOUD: Final[Mapping[str, Verdict]] = {
    **_keys(
        "kafka.auth.mode kafka.api.key kafka.api.secret kafka.endpoint kafka.region "
        "kafka.service.account.id kafka.max.partition.validation.disable",
        _ignored("options of 'sinksdk run' set the cluster and the credentials, not the connector"),
    ),
    "max.poll.records": _ignored("batches are archived as they are read, whatever their size"),
    "max.poll.*": _ignored("tasks are not members of a consumer group: slow ones cause no rebalance"),
    "input.data.format": _renamed("value.converter"),
    "input.key.format": _renamed("key.converter"),
    "input.header.format": _ignored("headers are not parsed"),
    "output.data.format": _renamed("format.class"),
    "output.keys.format": _renamed("keys.format.class"),
    "output.headers.format": _renamed("headers.format.class"),
    "schema.context.name": _unsupported(
        "schema ids are looked up in one context: remove it, and if keys or values are Avro, put it into the "
        "registry's URL, such as https://registry/contexts/.mine"
    ).when({"default": _ignored("it is the registry's default")}),
    "schema.registry.*": _ignored("it is 'value.converter.schema.registry.url'"),
    "compression.codec": _renamed(
        "s3.compression.type", " for lines of JSON, 'avro.codec' or 'parquet.codec' for the others"
    ),
    "time.interval": _renamed("partitioner.class", ": HourlyPartitioner or DailyPartitioner"),
    "authentication.method": _unsupported(
        "remove it: without 'aws.access.key.id' the default credential chain is used; set a role in "
        "'s3.credentials.provider.sts.role.arn'"
    ).when({"Access Keys": _ignored("keys are used if 'aws.access.key.id' is set")}),
    "provider.integration.id": _renamed("s3.credentials.provider.sts.role.arn", _ROLE),
    "auto.restart.on.user.error": _ignored("failed partitions are always opened again"),
}


_AS_IT_IS = _ignored("keys, values and headers are archived byte for byte; nothing is converted")


def _of_confluent(cases: Mapping[str, Verdict]) -> dict[str, Verdict]:
    return {
        **{f"io.confluent.*.{name}": verdict for name, verdict in cases.items()},
        # A class with one of these names in any other package is refused.
        **{f"?*.{name}": _OTHERS for name in cases},
        **cases,
    }


_OTHERS: Final = _unsupported("it is a third-party Java class, which cannot run here: use Confluent's")

FORMATS: Final = _unsupported(
    "it is a Java class that cannot run here: use AvroFormat, JsonFormat, ParquetFormat or ByteArrayFormat"
).when(
    _of_confluent(
        {
            "AvroFormat": _differs(
                "files have the producer's schema from the schema registry; Connect converts it through its "
                "own types"
            ),
            "JsonFormat": _differs("JSON values are written unchanged, not parsed and serialized again"),
            "ParquetFormat": _differs(
                "columns have the types that the converter returns, in Arrow's encoding: readers see the "
                "same fields and values"
            ),
            "ByteArrayFormat": _same(),
        }
    )
)


def formats_with(cases: Mapping[str, Verdict]) -> Verdict:
    return FORMATS.when(_of_confluent(cases))


# Names that other sinks have for store.url.
ENDPOINTS: Final = ("s3.endpoint", "s3.endpoint.url", "s3.endpoint.override", "s3.endpoint.uri")

_PATH_STYLE: Final = _renamed("s3.path.style.access.enabled").when(
    {"true": _ignored("it is 's3.path.style.access.enabled' here, and true by default")}
)

_BYTES: Final = (
    "set 'archive.content' to record and 'format.class' to AvroFormat or ParquetFormat, which archives bytes "
    "as they are"
)

# Verdicts for files of values. Some of them depend on the values of other keys.
COMPATIBILITY: Final[Mapping[str, Verdict]] = {
    "connector.class": _same().when(
        {
            "AivenKafkaConnectS3SinkConnector": _AIVEN,
            "io.aiven.kafka.connect.s3.*": _AIVEN,
            "S3_SINK": _unsupported(
                "Confluent Cloud's sink has other keys: 'sinksdk convert' writes the configuration of "
                "s3-archiver"
            ),
            "io.lenses.streamreactor.connect.aws.s3.*": _LENSES,
            "com.datamountaineer.streamreactor.connect.aws.s3.*": _LENSES,
        }
    ),
    # Files and folders.
    "topics.dir": _same("with a folder '_sinksdk' in it for the owner markers; may be empty"),
    **_keys("directory.delim file.delim filename.offset.zero.pad.width", _same()),
    "flush.size": _same(
        "counts the records of all open files of a topic partition; closing the partition ends and commits "
        "them sooner"
    ),
    "rotate.schedule.interval.ms": _same("exactly-once here, and also ends a file when no record arrives"),
    "rotate.interval.ms": _same("also the longest time until a partition is read and its files end"),
    "rotate.file.on.partition.change": _same("with 'rotate.interval.ms'; false by default, not true"),
    "timezone": _same("for folders by time and 'rotate.schedule.interval.ms'; may also be an offset"),
    "format.class": FORMATS,
    "storage.class": _unsupported("archives are on S3 only: use S3Storage").when({"S3Storage": _same()}),
    "partitioner.class": _unsupported(
        "it is a Java class that cannot run here: use DefaultPartitioner, DailyPartitioner, "
        "HourlyPartitioner, TimeBasedPartitioner, FieldPartitioner or FieldAndTimeBasedPartitioner"
    ).when(
        {
            "": _same(),
            "TimeAndFieldBasedPartitioner": _same(
                "as FieldAndTimeBasedPartitioner with 'partition.field.format.path' = false"
            ),
            "FieldAndTimeBasedPartitioner": _same(),
            **_of_confluent(
                _keys(
                    "DefaultPartitioner DailyPartitioner HourlyPartitioner TimeBasedPartitioner "
                    "FieldPartitioner",
                    _same(),
                )
            ),
        }
    ),
    "avro.codec": _same("zstandard and xz are possible too"),
    "parquet.codec": _same().when(
        _keys(
            "lz4 LZ4",
            _differs(
                "columns are LZ4_RAW, as Parquet's specification has it, and files end in '.lz4.parquet'; "
                "Confluent's are in Hadoop's framing, and end in '.lz4hadoop.parquet'"
            ),
        )
    ),
    "schema.compatibility": _ignored("each schema has its own files: a schema change ends no file").when(
        _keys(
            "BACKWARD* FORWARD* FULL*",
            _differs(
                "values are not projected to a newer schema: each schema has its own files, which readers "
                "merge (Spark's mergeSchema, DuckDB's union_by_name)"
            ),
        )
    ),
    "s3.schema.partition.affix.type": _unsupported(
        "folders do not depend on schemas: one folder holds all of a partition's records, of any schema"
    ).when({"NONE": _same()}),
    "path.format": _same(),
    "partition.duration.ms": _same(),
    "locale": _same("for months and weekdays as text; numbers are the same in all locales"),
    "timestamp.extractor": _unsupported(
        "it is a Java class that cannot run here: use Wallclock, Record or RecordField"
    ).when(
        {
            "": _same(),
            **_keys("Wallclock *$WallclockTimestampExtractor", _same("exactly-once here as well")),
            **_keys("Record *$RecordTimestampExtractor RecordField *$RecordFieldTimestampExtractor", _same()),
        }
    ),
    **_keys("timestamp.field partition.field.name partition.field.format.path", _same()),
    "partition.field": _renamed("partition.field.name"),
    "partitioner.max.open.files": _same("at this number all open files of the topic partition end"),
    **_keys("format.bytearray.extension format.bytearray.separator", _same()),
    "json.decimal.format": _same("for decimals that a converter has typed"),
    "s3.compression.type": _unsupported(
        "whole files can be compressed only with gzip: use gzip, or ParquetFormat or AvroFormat, which have "
        "'parquet.codec' and 'avro.codec'"
    ).when(_keys("none gzip NONE GZIP", _same())),
    "s3.compression.level": _same("1 by default, not 6"),
    # The connection to S3, and uploads.
    **_keys("s3.bucket.name s3.region store.url", _same()),
    "commit.interval.ms": _ignored("Kafka Connect has no such key; it is 'offset.flush.interval.ms'"),
    "s3.endpoint*": _unsupported("it is 'store.url' here, as in Confluent's sink"),
    **dict.fromkeys(ENDPOINTS, _differs("it is used as 'store.url', Confluent's name for it")),
    **_keys(
        "s3.path.style.access s3.path.style s3.force.path.style s3.pathstyle.access",
        _PATH_STYLE,
    ),
    **_keys("s3.path.style.access.enabled aws.access.key.id aws.secret.access.key", _same()),
    "s3.credentials.provider.class": _unsupported(
        "it is a Java class that cannot run here: remove it to use the default chain (environment, profile, "
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
    ),
    **_keys(
        "s3.credentials.provider.sts.role.arn s3.credentials.provider.sts.role.session.name "
        "s3.credentials.provider.sts.role.external.id s3.credentials.provider.sts.region",
        _same("with AwsAssumeRoleCredentialsProvider"),
    ),
    "s3.credentials.provider.*": _ignored("it applies only to a custom Java class"),
    "s3.part.size": _same("8 MiB by default, not 25 MiB"),
    "s3.part.retries": _same("then the archiver retries from memory for 'errors.retry.timeout'"),
    "s3.retry.backoff.ms": _differs(
        "only for retries of a commit; within a request boto3 has its own delays"
    ),
    "s3.ssea.name": _same(),
    "s3.sse.kms.key.id": _same(),
    "s3.sse.customer.key": _unsupported(
        "customer-provided keys (SSE-C) are not supported: use 's3.ssea.name' with AES256, or aws:kms and a "
        "KMS key"
    ),
    **_keys(
        "s3.acl.canned s3.object.tagging s3.object.tagging.key.value.pairs "
        "s3.object.behavior.on.tagging.error s3.proxy.url s3.proxy.user s3.proxy.password "
        "s3.wan.mode",
        _same(),
    ),
    "s3.elastic.buffer.*": _ignored("part buffers always grow as they fill"),
    "s3.send.digest": _ignored("every part is sent with its CRC32, and every object is checked as a whole"),
    "s3.http.send.expect.continue": _ignored("the HTTP client decides by the size of the body"),
    "enable.conditional.writes": _ignored(
        "objects are always published with If-None-Match, whatever the rotation"
    ),
    "max.files.scan.limit": _ignored("offsets come from the commits, never from the names of objects"),
    "retry.backoff.ms": _ignored("use 'errors.retry.timeout' and 'errors.retry.delay.max.ms'"),
    "max.write.duration.ms": _ignored(
        "a long put does not cost the task its partitions: there is no consumer group"
    ),
    "shutdown.timeout.ms": _ignored("use 'task.shutdown.graceful.timeout.ms'"),
    # Keys, values and headers.
    "behavior.on.null.values": _same().when(
        {"write": _same("with 'store.kafka.keys'; files of records hold tombstones, too")}
    ),
    "tombstone.encoded.partition": _same(),
    "report.null.values.to.dlq": _same("with a dead letter topic or 'errors.log.enable'"),
    "store.kafka.keys": _same("next to the values' files and in the same commit"),
    "store.kafka.headers": _differs(
        "header values are written as text, not parsed and serialized again; a record without headers "
        "has an empty list, whereas Confluent's sink treats it as a bad record"
    ).when({"false": _same()}),
    "keys.format.class": FORMATS,
    "headers.format.class": _unsupported("use AvroFormat, JsonFormat or ParquetFormat").when(
        _of_confluent(
            dict.fromkeys(
                ("AvroFormat", "JsonFormat", "ParquetFormat"),
                _differs(
                    "each record has a list of names and texts; Confluent's files hold the output of its "
                    "header converter"
                ),
            )
        )
    ),
    **_keys(
        "schema.generator.class schemas.cache.* schema.cache.* enhanced.avro.schema.support "
        "connect.meta.data allow.optional.map.keys value.subject.name.strategy subject.name.strategy "
        "discard.type.doc.default ignore.default.for.nullables",
        _ignored("it applies only to Java's converter; files have the producers' schemas here"),
    ),
    **_keys(
        "scrub.invalid.names generalized.sum.type.support flatten.unions",
        _unsupported("schemas keep their names and types: remove it, or set it to false").when(
            _keys("false FALSE", _same())
        ),
    ),
    "flatten.singleton.unions": _unsupported(
        "schemas keep their names and types: remove it, or set it to true"
    ).when(_keys("true TRUE", _same())),
    "value.converter": _same("bytes, string, json, avro and numbers, or Connect's class names").when(
        {
            "*ProtobufConverter": _unsupported(f"Protobuf is not supported: {_BYTES}"),
            "*JsonSchemaConverter": _unsupported(
                f"JSON Schema of a schema registry is not supported: {_BYTES}"
            ),
        }
    ),
    # Other keys.
    **_keys(
        "header.converter header.converter.*",
        _ignored("headers are not converted: they are archived as bytes, as texts, or not at all"),
    ),
    "auto.register.schemas": _ignored("nothing is written to a schema registry"),
    "errors.retry.timeout": _differs(
        "how long the archiver retries from memory (five minutes by default); then the partition is read "
        "again from its last commit"
    ).when(
        {
            "0": _differs(
                "at the first failed request to S3 a partition is read again from its last commit: remove "
                "it, so that the archiver retries from memory for five minutes"
            )
        }
    ),
    "confluent.*": _ignored("there is no licence to check"),
    **AIVEN,
    **LENSES,
    **CONFLUENT_CLOUD,
}

_KEY_ID: Final = "'aws.access.key.id' and 'aws.secret.access.key'"
_CHAIN: Final = (
    "the default chain (environment, profile, role), or 's3.credentials.provider.class' with the role, or "
    f"{_KEY_ID}"
)
_IN_THE_PATH: Final = "'s3.path.style.access.enabled'"
_WORDS_OF_PLACES: Final = tuple(
    (frozenset(words.split()), instead)
    for several, instead in (
        ("path style|pathstyle", _IN_THE_PATH),
        ("vhost|virtual", f"{_IN_THE_PATH}, which is false for buckets in the host's name"),
        ("proxy", "'s3.proxy.url'"),
        ("prefix", "'topics.dir'"),
        (
            "role|arn|sts|iam",
            f"'s3.credentials.provider.sts.role.arn'{_ROLE}",
        ),
        (
            "sse|ssea|kms|cmk|encryption|encrypted|encrypt|server side",
            "'s3.ssea.name' and 's3.sse.kms.key.id'",
        ),
        ("acl", "'s3.acl.canned'"),
        ("endpoint|url|uri|host|hostname", "'store.url'"),
        ("bucket", "'s3.bucket.name'"),
        ("region", "'s3.region'"),
        ("access key|accesskey|secretkey|secret|password", _KEY_ID),
        ("token|credential|credentials|profile|auth|authentication", _CHAIN),
    )
    for words in several.split("|")
)
_NEAR_PLACES: Final = (
    *("store.url", "s3.bucket.name", "s3.region", "topics.dir", "aws.access.key.id", "aws.secret.access.key"),
    *("s3.credentials.provider.class", "s3.ssea.name", "s3.sse.kms.key.id", "s3.acl.canned", "s3.proxy.url"),
    *("s3.proxy.user", "s3.proxy.password", "s3.credentials.provider.sts.role.arn"),
)
# Keys of clients of Kafka and of schema registries, and of other converters.
_OTHER_SYSTEMS: Final = re.compile(
    r"(?:consumer|producer|admin|kafka|schema|registry|apicurio|reporter|basic\.auth|bearer\.auth|sasl|ssl|security|metrics?|principal\.service)[._]"
    r"|.*\b(?:converter|schema\.registry)\b"
)
_WORD: Final = re.compile(r"(?:[A-Z]+(?![a-z])|[A-Z]?[a-z]+)[0-9]*")
# A "prefix" next to these words is one of object keys; a router has one of topics.
_OF_STORES: Final = frozenset(
    ("s3", "aws", "bucket", "object", "key", "file", "path", "folder", "store", "storage")
)


def of_unknown(key: str) -> Verdict | None:
    """Return the verdict on an unknown key: refused if it is about location, credentials or security."""
    # An unknown key of this kind is refused: if it were ignored, files might be written elsewhere than
    # intended.
    instead = _place_of(key)
    if instead is None:
        return None
    if instead == _IN_THE_PATH:
        return _PATH_STYLE
    return _unsupported(
        f"the key is unknown, and its name suggests that it affects the location, credentials or security of "
        f"files: use {instead}, or remove it"
    ).when({"false": _ignored("the key is unknown, and false requests nothing")})


def _place_of(key: str) -> str | None:
    """Return the key that replaces an unknown one about location, credentials or security."""
    if _OTHER_SYSTEMS.match(key):
        return None
    words = {word.lower() for word in _WORD.findall(key)}
    if key != "prefix" and not words & _OF_STORES:
        words.discard("prefix")
    near = difflib.get_close_matches(key, _NEAR_PLACES, n=1, cutoff=0.85)
    found = (instead for needed, instead in _WORDS_OF_PLACES if needed <= words)
    return next(found, f"'{near[0]}'" if near else None)


# Verdicts that differ where files hold whole records.
OF_RECORDS: Final[Mapping[str, Verdict]] = {
    "format.class": formats_with(
        dict.fromkeys(
            ("AvroFormat", "ParquetFormat"),
            _differs(
                "each row is a whole Kafka record with the bytes of its value, not the value alone (see "
                "'archive.content')"
            ),
        )
    ),
    "behavior.on.null.values": _differs("files of whole records hold tombstones, with a null value").when(
        {"write": _ignored("files of whole records hold tombstones, with a null value")}
    ),
    "tombstone.encoded.partition": _ignored("tombstones are in their partition's files, with a null value"),
    "report.null.values.to.dlq": _ignored("a tombstone is archived like any record, with a null value"),
    **_keys(
        "store.kafka.keys store.kafka.headers keys.format.class headers.format.class",
        _ignored("every archived record holds its own key and headers; there are no extra files"),
    ),
    "schema.compatibility": _ignored("the schema of the files is always the same, whatever the values are"),
    **_keys(
        "schema.generator.class schemas.cache.* schema.cache.* enhanced.avro.schema.support "
        "connect.meta.data allow.optional.map.keys value.subject.name.strategy header.converter "
        "header.converter.* scrub.invalid.names generalized.sum.type.support flatten.unions "
        "flatten.singleton.unions discard.type.doc.default ignore.default.for.nullables",
        _AS_IT_IS,
    ),
}

# Verdicts that differ where values are not read.
NOT_CONVERTED: Final[Mapping[str, Verdict]] = _keys("value.converter value.converter.*", _AS_IT_IS)

# Verdicts that differ where any record can be archived.
NO_BAD_RECORDS: Final[Mapping[str, Verdict]] = _keys(
    "errors.tolerance errors.log.enable errors.log.include.messages errors.deadletterqueue.* "
    "producer.override.*",
    _ignored("nothing is converted or parsed, so no record can be bad"),
)

OTHER_DEFAULTS: Final[Mapping[str, str]] = {
    "offset.source": "the archive begins at the first record that each topic still has; with 'group' it "
    "begins at the committed offsets of Connect's sink",
    "consumer.override.isolation.level": "records of aborted transactions are not archived (Connect's "
    "consumers read them by default)",
    "s3.part.size": "a part has 8 MiB, not 25 MiB: an open file takes less memory, and can have 78 GiB",
    "task.shutdown.graceful.timeout.ms": "a stop waits for uploads, up to 60 s (Connect: 5 s): set the "
    "stop time-out of your supervisor higher",
}
