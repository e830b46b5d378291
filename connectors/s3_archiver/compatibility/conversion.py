"""Convert configurations of other S3 sinks: Aiven's, Lenses', Confluent Cloud's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from sinksdk import Converted
from sinksdk.connectors.s3_archiver.compatibility.kcql import read_kcql
from sinksdk.connectors.s3_archiver.compatibility.verdicts import (
    AIVENS_DEPRECATED_KEYS,
    AIVENS_KEYS,
    ENDPOINTS,
    LENSES_DEPRECATED_KEYS,
    LENSES_KEYS,
    STS_ROLE,
    of_unknown,
)

_ASSUME: Final = "AwsAssumeRoleCredentialsProvider"
_AIVENS_REGION: Final = "us-east-1"
_AIVENS_FORMATS: Final = ("jsonl", "avro", "parquet")
_LENSES_KEYS: Final = ("connect.s3.aws.access.key", "connect.s3.aws.secret.key")
_LENSES_WIDTH: Final = "12"
# Keys that name or hold keys of other files.
_LENSES_ELSEWHERE: Final = ("connect.s3.config.profiles", "connect.s3.kcql.*")
_CONFLUENTS: Final = (
    *("flush.size", "rotate.*", "partitioner.*", "partition.*", "path.format", "timezone", "locale"),
    *("timestamp.extractor", "timestamp.field", "format.class", "format.bytearray.*", "storage.class"),
    *("topics.dir", "store.*", "directory.delim", "file.delim", "filename.*", "s3.*", "avro.codec"),
    *("parquet.codec", "schema.compatibility", "behavior.on.null.values"),
)
_FORMATS: Final = {
    "jsonl": "JsonFormat",
    "json": "JsonFormat",
    "avro": "AvroFormat",
    "parquet": "ParquetFormat",
    "bytes": "ByteArrayFormat",
}
_CODEC_KEYS: Final = {"AvroFormat": "avro.codec", "ParquetFormat": "parquet.codec"}
_CODECS: Final[Mapping[str, Mapping[str, str]]] = {
    "avro.codec": {"none": "null", "gzip": "deflate", "snappy": "snappy", "zstd": "zstandard"},
    "parquet.codec": {name: name for name in ("none", "gzip", "snappy", "zstd", "lz4", "brotli")},
    "s3.compression.type": {"none": "none", "gzip": "gzip"},
}
_LEVEL_KEYS: Final = {
    "AvroFormat": "avro.codec.level",
    "JsonFormat": "s3.compression.level",
    "ByteArrayFormat": "s3.compression.level",
}
_RETRIES: Final = "the archiver retries from memory for 'errors.retry.timeout'"
_HOUR: Final = 3_600_000
_DURATIONS: Final = {"HOURLY": _HOUR, "DAILY": 24 * _HOUR}
_FLUSHED: Final = "60000"
_TIMESTAMP: Final = re.compile(r"\{\{\s*timestamp:unit=(yyyy|YYYY|MM|dd|HH)\s*\}\}")
_KEY: Final = re.compile(r"\{\{\s*key\s*(?::[^}]*)?\}\}")
_PARTITION: Final = re.compile(r"\{\{\s*partition\s*(?::[^}]*)?\}\}")
_RECORD_CONTENT: Final = ("AvroFormat", "ParquetFormat")


def translate(values: Mapping[str, str]) -> Converted:
    """Convert a configuration of another S3 sink. Confluent's stays as it is."""
    name = values.get("connector.class", "")
    converted = Converted(dict(values))
    for key in ("rotate.interval.ms", "rotate.schedule.interval.ms"):
        if values.get(key, "").strip() == "0":
            _drop(converted, key, "0 means never in Confluent's sink")
    for is_from, change in _CHANGES:
        if is_from(name):
            if change is not _from_cloud:  # Confluent Cloud's keys are Confluent's
                # The other sink ignored these keys of Confluent's, but the archiver would apply them.
                for key in [key for key in values if any(fnmatchcase(key, each) for each in _CONFLUENTS)]:
                    _drop(converted, key, "it is a key of Confluent's sink, and had no effect there")
            change(converted)
            converted.config["connector.class"] = "s3-archiver"
            return converted
    endpoints = [key for key in ENDPOINTS if values.get(key)]
    if not values.get("store.url") and len({values[key] for key in endpoints}) == 1:
        _rename(converted, dict.fromkeys(endpoints, "store.url"))
    if values.get("partitioner.class", "").endswith(".TimeAndFieldBasedPartitioner"):
        converted.config["partitioner.class"] = "FieldAndTimeBasedPartitioner"
        converted.config["partition.field.format.path"] = "false"
        _rename(converted, {"partition.field": "partition.field.name"})
        converted.notes.append(
            "'partitioner.class' is FieldAndTimeBasedPartitioner here, with the same folders"
        )
    return converted


def _rename(converted: Converted, names: Mapping[str, str]) -> None:
    for old, new in names.items():
        if old in converted.config:
            converted.config[new] = converted.config.pop(old)
            converted.notes.append(f"'{old}' is '{new}' here")


def _rename_deprecated(converted: Converted, names: Mapping[str, str]) -> None:
    # An exported configuration holds every key, most of them without a value.
    converted.config = {key: text for key, text in converted.config.items() if text.strip()}
    for old, new in names.items():
        if old not in converted.config:
            continue
        if new in converted.config:
            _drop(converted, old, f"'{new}' is set")
        else:
            converted.config[new] = converted.config.pop(old)
            converted.notes.append(f"'{old}' is an older name of '{new}' there")


def _drop(converted: Converted, key: str, why: str) -> str:
    """Drop a key, and return its text in lower case."""
    text = converted.config.pop(key, "")
    if text and why:
        converted.notes.append(f"'{key}' is left out: {why}")
    return text.strip().lower()


def _refuse(converted: Converted, key: str, text: str, why: str) -> None:
    # The verdict on this key keeps the result from starting.
    converted.config[key] = text
    converted.problems.append(f"'{key}' {why}")


def _format(converted: Converted, key: str, kind: str, names: Sequence[str]) -> None:
    # An unsupported format is kept, so that its verdict refuses the result.
    converted.config["format.class"] = _FORMATS[kind] if kind in names else kind
    if kind in names:
        converted.notes.append(f"'{key}' is 'format.class' here: {_FORMATS[kind]}")
    else:
        converted.problems.append(f"'{key}' is {kind or 'not set'}: use {', '.join(names)}")


def _compress(converted: Converted, key: str, name: str) -> None:
    mine = _CODEC_KEYS.get(converted.config["format.class"], "s3.compression.type")
    known = _CODECS[mine]
    if name in known:
        converted.config[mine] = known[name]
        converted.notes.append(f"'{key}' is '{mine}' here")
    else:
        _refuse(converted, key, name, f"is {name}, but '{mine}' supports only {', '.join(known.values())}")


# -- Aiven's -----------------------------------------------------------------------------------------------


def _from_aiven(converted: Converted) -> None:
    _rename_deprecated(converted, AIVENS_DEPRECATED_KEYS)
    config = converted.config
    if config.get("file.max.records", "").strip() == "0":
        _drop(converted, "file.max.records", "0 means no limit there")
    _rename(converted, AIVENS_KEYS)
    if "s3.region" not in config:
        config["s3.region"] = _AIVENS_REGION
        converted.notes.append(f"'s3.region' is {_AIVENS_REGION}, Aiven's default")
    if f"{STS_ROLE}.arn" in config:
        config["s3.credentials.provider.class"] = _ASSUME
    kind = _drop(converted, "format.output.type", "") or "csv"
    if kind == "json":
        converted.config["format.class"] = kind  # kept, so that its verdict refuses the result
        converted.problems.append(
            "'format.output.type' json writes one array per file, which is not supported: use jsonl, which "
            "writes one line per record"
        )
    else:
        _format(converted, "format.output.type", kind, _AIVENS_FORMATS)
    _aivens_fields(converted)
    _compress(converted, "file.compression.type", _drop(converted, "file.compression.type", "") or "gzip")
    for key in [key for key in config if key.startswith(("aws.s3.backoff.", "kafka.retry."))]:
        _drop(converted, key, _RETRIES)
    _aivens_folders(converted)
    if "flush.size" not in config:
        config["rotate.schedule.interval.ms"] = config.get("offset.flush.interval.ms", _FLUSHED)
        converted.notes.append(
            "files end with each commit there: 'rotate.schedule.interval.ms' does the same here"
        )


def _aivens_fields(converted: Converted) -> None:
    given = converted.config.pop("format.output.fields", "value")
    fields = [name.strip() for name in given.split(",")]
    _drop(
        converted, "format.output.fields.value.encoding", "values are written as their converter returns them"
    )
    envelope = _drop(converted, "format.output.envelope", "") != "false"
    if fields != ["value"]:
        if converted.config["format.class"] in _RECORD_CONTENT:
            converted.config["archive.content"] = "record"
            converted.notes.append(
                "'format.output.fields' becomes 'archive.content' record: the whole record, with key and "
                "value as bytes"
            )
        else:
            _refuse(
                converted,
                "format.output.fields",
                given,
                "names more than the value, but lines of JSON hold only values: use parquet or avro, whose "
                "rows are whole records with 'archive.content' record",
            )
    elif envelope:
        converted.notes.append(
            "'format.output.envelope': a row is the value itself, without 'value' around it"
        )


def _aivens_folders(converted: Converted) -> None:
    config = converted.config
    _aivens_prefix(converted)
    template = config.pop("file.name.template", "")
    source = _drop(converted, "timestamp.source", "") or _drop(converted, "file.name.timestamp.source", "")
    zone = config.pop("timestamp.timezone", "") or config.pop("file.name.timestamp.timezone", "")
    if template:
        converted.notes.append(
            "'file.name.template': file names are topic, partition and start offset, below the topic's folder"
        )
    if _KEY.search(template):
        why = "has {{key}}: one file for each key, with its latest value, has no counterpart"
        _refuse(converted, "file.name.template", template, why)
        return
    folders = [
        part for part in template.strip("/").split("/")[:-1] if not re.fullmatch(r"\{\{\s*topic\s*\}\}", part)
    ]
    if folders and all(_PARTITION.fullmatch(part) for part in folders):
        converted.notes.append("'file.name.template': the folder of a partition is called partition=0, not 0")
        return
    if any("{{" in _TIMESTAMP.sub("", part) for part in folders):
        why = "has folders with variables other than topic and timestamp (yyyy, MM, dd, HH)"
        _refuse(converted, "file.name.template", template, why)
    elif folders and not any(_TIMESTAMP.search(part) for part in folders):
        why = "has folders without a timestamp: put them into 'topics.dir', above the topic's folder"
        _refuse(converted, "file.name.template", template, why)
    elif folders:
        path = "/".join(map(_joda, folders))
        config |= {
            "partitioner.class": "TimeBasedPartitioner",
            "path.format": path,
            "partition.duration.ms": str(_HOUR if "HH" in path else 24 * _HOUR),
            "timestamp.extractor": "Record" if source == "event" else "Wallclock",
            "timezone": zone if zone not in ("", "Z") else "UTC",
        }


def _aivens_prefix(converted: Converted) -> None:
    for key in ("file.prefix.template", "aws.s3.prefix"):
        prefix = converted.config.pop(key, "")
        if "{{" in prefix:
            _refuse(converted, key, prefix, "has variables, which 'topics.dir' does not support")
        elif prefix.strip("/"):
            converted.config["topics.dir"] = prefix.strip("/")
            return
    converted.notes.append(
        "no prefix is set there; keys here begin with 'topics.dir', which is 'topics' by default and may be "
        "empty"
    )


def _joda(part: str) -> str:
    texts = enumerate(_TIMESTAMP.split(part))
    return "".join(
        text.replace("YYYY", "yyyy") if place % 2 else re.sub(r"[A-Za-z]+", r"'\g<0>'", text)
        for place, text in texts
    )


# -- Lenses' -----------------------------------------------------------------------------------------------


def _from_lenses(converted: Converted) -> None:
    _rename_deprecated(converted, LENSES_DEPRECATED_KEYS)
    config = converted.config
    kcql = config.pop("connect.s3.kcql", "")
    found = read_kcql(kcql)
    if found.takes_all and not (config.get("topics") or config.get("topics.regex")):
        found.problems.append("FROM *: name the topics in 'topics' or 'topics.regex'")
    config.update(found.keys)
    if "topics" in found.keys:
        config.pop("topics.regex", None)
    if found.problems:  # kept: without the refused text the result would write other data
        config["connect.s3.kcql"] = kcql
    converted.notes.append(f"'connect.s3.kcql' becomes these keys: {found}")
    converted.notes += [f"'connect.s3.kcql': {note}" for note in found.notes]
    converted.problems += [f"'connect.s3.kcql': {problem}" for problem in found.problems]
    _lenses_access(converted)
    if codec := _drop(converted, "connect.s3.compression.codec", ""):
        name = "none" if codec == "uncompressed" else codec
        _compress(converted, "connect.s3.compression.codec", name)
    level_key = _LEVEL_KEYS.get(config.get("format.class", ""))
    level = config.get("connect.s3.compression.level", "")
    if level_key and level not in ("", "-1"):
        _rename(converted, {"connect.s3.compression.level": level_key})
    _lenses_files(converted)
    for key in [key for key in config if key.startswith("connect.s3.") and key != "connect.s3.kcql"]:
        if any(fnmatchcase(key, name) for name in _LENSES_ELSEWHERE):
            _refuse(converted, key, config[key], "refers to keys that are not in this file: write them here")
        elif of_unknown(key):
            why = "affects the location, credentials or security of files, and has no counterpart"
            _refuse(converted, key, config[key], why)
        else:
            is_about_retries = fnmatchcase(key, "*.retry.interval") or key == "connect.s3.max.retries"
            _drop(converted, key, _RETRIES if is_about_retries else "it has no counterpart")
    converted.notes.append("file names are topic, partition and start offset, below the topic's folder")


def _lenses_access(converted: Converted) -> None:
    config = converted.config
    mode = _drop(converted, "connect.s3.aws.auth.mode", "")
    has_keys = any(key in config for key in _LENSES_KEYS)
    if mode not in ("", "credentials"):
        for key in _LENSES_KEYS:
            _drop(
                converted,
                key,
                f"'connect.s3.aws.auth.mode' is {mode}: the default chain finds the credentials",
            )
    elif has_keys and not mode:
        converted.notes.append(
            "'connect.s3.aws.auth.mode' is not set, so Lenses' sink does not use the access key; it is used "
            "here: remove it to use the default chain"
        )
    if config.get("connect.s3.http.retry.interval") == "0":
        _drop(converted, "connect.s3.http.retry.interval", "0 means the client's default there")
    # In all versions of Lenses' sink, vhost.bucket=true means path-style addresses.
    _rename(converted, LENSES_KEYS)
    if "s3.region" not in config:
        converted.notes.append(
            "'s3.region' is us-west-2 by default; Lenses' sink leaves it to the AWS client"
        )


def _lenses_files(converted: Converted) -> None:
    config = converted.config
    if _drop(converted, "connect.s3.skip.null.values", "") == "true":
        config |= {"behavior.on.null.values": "ignore", "report.null.values.to.dlq": "false"}
        converted.notes.append("'connect.s3.skip.null.values' is 'behavior.on.null.values' ignore here")
    is_disabled = _drop(converted, "connect.s3.disable.flush.count", "") == "true"
    if _drop(converted, "connect.s3.flush.count.enable", "") == "false" or is_disabled:
        _drop(converted, "flush.size", "files have no record limit there")
    padding = _drop(converted, "connect.s3.padding.strategy", "")
    length = _drop(converted, "connect.s3.padding.length", "")
    if padding == "noop":
        config["filename.offset.zero.pad.width"] = "0"
    elif padding == "rightpad":
        converted.notes.append(
            "'connect.s3.padding.strategy' is left out: offsets are padded with leading zeros"
        )
    elif padding or length:
        config["filename.offset.zero.pad.width"] = length or _LENSES_WIDTH


# -- Confluent Cloud's -------------------------------------------------------------------------------------

# Verdicts refuse the last two inputs.
_INPUTS: Final[Mapping[str, str]] = {
    "avro": "io.confluent.connect.avro.AvroConverter",
    "json": "org.apache.kafka.connect.json.JsonConverter",
    "string": "org.apache.kafka.connect.storage.StringConverter",
    "bytes": "org.apache.kafka.connect.converters.ByteArrayConverter",
    "protobuf": "io.confluent.connect.protobuf.ProtobufConverter",
    "json_sr": "io.confluent.connect.json.JsonSchemaConverter",
}


_CLOUDS_FORMATS: Final = ("json", "avro", "parquet", "bytes")


def _from_cloud(converted: Converted) -> None:
    config = converted.config
    given = _drop(converted, "input.data.format", "")
    kind = _drop(converted, "output.data.format", "") or given
    _format(converted, "output.data.format", kind, _CLOUDS_FORMATS)
    if given in _INPUTS:
        config["value.converter"] = _INPUTS[given]
        if given == "json":
            config["value.converter.schemas.enable"] = "false"
    elif given:
        _refuse(converted, "input.data.format", given, f"is {given}, for which there is no converter here")
    if codec := _drop(converted, "compression.codec", ""):
        _compress(converted, "compression.codec", codec.rpartition("- ")[2])
    _clouds_keys_and_headers(converted)
    _clouds_folders(converted)
    if _drop(converted, "authentication.method", "") not in ("", "access keys"):
        converted.notes.append("set a role in 's3.credentials.provider.sts.role.arn'")
    if role := config.pop("provider.integration.id", ""):
        _refuse(
            converted,
            "provider.integration.id",
            role,
            f"{role} is known only to Confluent Cloud: set the role's ARN",
        )


def _clouds_keys_and_headers(converted: Converted) -> None:
    config = converted.config
    of_keys = _drop(converted, "input.key.format", "")
    for key, mine, stored in (
        ("output.keys.format", "keys.format.class", "store.kafka.keys"),
        ("output.headers.format", "headers.format.class", "store.kafka.headers"),
    ):
        if config.get(stored, "").lower() != "true":
            _drop(converted, key, f"it applies only with '{stored}' true")
            continue
        # Cloud's default is Avro.
        kind = _drop(converted, key, "") or "avro"
        if kind in _FORMATS:
            config[mine] = _FORMATS[kind]
            converted.notes.append(f"'{key}' is '{mine}' here: {_FORMATS[kind]}")
        else:
            _refuse(converted, key, kind, f"is {kind}: use avro, json, parquet or bytes")
    if config.get("store.kafka.keys", "").lower() == "true":
        of_keys = of_keys or "bytes"
        if of_keys in _INPUTS:
            config["key.converter"] = _INPUTS[of_keys]
            converted.notes.append(f"'input.key.format' is 'key.converter' here: {_INPUTS[of_keys]}")
        else:
            _refuse(
                converted, "input.key.format", of_keys, f"is {of_keys}, for which there is no converter here"
            )


def _clouds_folders(converted: Converted) -> None:
    config = converted.config
    interval = _drop(converted, "time.interval", "").upper() or "HOURLY"
    if interval not in _DURATIONS:
        _refuse(converted, "time.interval", interval, f"is {interval}: it must be HOURLY or DAILY")
    elif config.get("path.format"):
        config["partitioner.class"] = "TimeBasedPartitioner"
        config["partition.duration.ms"] = str(_DURATIONS[interval])
    else:
        config["partitioner.class"] = f"{interval.capitalize()}Partitioner"
    converted.notes.append(f"'time.interval' is 'partitioner.class' here: {config.get('partitioner.class')}")
    config["timestamp.extractor"] = "RecordField" if config.get("timestamp.field") else "Record"


_CHANGES: Final[tuple[tuple[Callable[[str], bool], Callable[[Converted], None]], ...]] = (
    (lambda name: name.startswith("io.aiven.kafka.connect.s3."), _from_aiven),
    (lambda name: ".streamreactor.connect.aws.s3." in name, _from_lenses),
    (lambda name: name == "S3_SINK", _from_cloud),
)
