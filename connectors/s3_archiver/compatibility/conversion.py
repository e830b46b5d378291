"""Convert configurations of other S3 sinks: Aiven's, Lenses', Confluent Cloud's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from sinksdk import Converted
from sinksdk.connectors.s3_archiver.compatibility.kcql import read_kcql
from sinksdk.connectors.s3_archiver.compatibility.verdicts import (
    AIVENS_KEYS,
    AIVENS_OLDER_KEYS,
    ENDPOINTS,
    LENSES_KEYS,
    LENSES_OLDER_KEYS,
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
_CODEC_KEYS: Final = {
    "AvroFormat": "avro.codec",
    "ParquetFormat": "parquet.codec",
    "JsonFormat": "s3.compression.type",
    "ByteArrayFormat": "s3.compression.type",
}
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
    made = Converted(dict(values))
    for key in ("rotate.interval.ms", "rotate.schedule.interval.ms"):
        if values.get(key, "").strip() == "0":
            _drop(made, key, "0 is never in Confluent's sink")
    for fits, change in _CHANGES:
        if fits(name):
            if change is not _from_cloud:  # whose keys are Confluent's
                # These had no effect in the other sink, and would have one here.
                for key in [key for key in values if any(fnmatchcase(key, each) for each in _CONFLUENTS)]:
                    _drop(made, key, "it is Confluent's, and had no effect there")
            change(made)
            made.config["connector.class"] = "s3-archiver"
            return made
    endpoints = [key for key in ENDPOINTS if values.get(key)]
    if not values.get("store.url") and len({values[key] for key in endpoints}) == 1:
        _rename(made, dict.fromkeys(endpoints, "store.url"))
    if values.get("partitioner.class", "").endswith(".TimeAndFieldBasedPartitioner"):
        made.config["partitioner.class"] = "FieldAndTimeBasedPartitioner"
        made.config["partition.field.format.path"] = "false"
        _rename(made, {"partition.field": "partition.field.name"})
        made.notes.append("'partitioner.class' is FieldAndTimeBasedPartitioner here, with the same folders")
    return made


def _rename(made: Converted, names: Mapping[str, str]) -> None:
    for old, new in names.items():
        if old in made.config:
            made.config[new] = made.config.pop(old)
            made.notes.append(f"'{old}' is '{new}' here")


def _take_older(made: Converted, names: Mapping[str, str]) -> None:
    # An exported configuration holds every key, most without a value.
    made.config = {key: text for key, text in made.config.items() if text.strip()}
    for old, new in names.items():
        if old not in made.config:
            continue
        if new in made.config:
            _drop(made, old, f"'{new}' says it")
        else:
            made.config[new] = made.config.pop(old)
            made.notes.append(f"'{old}' is an older name of '{new}' there")


def _drop(made: Converted, key: str, why: str) -> str:
    """Drop a key, and return its text in lower case."""
    text = made.config.pop(key, "")
    if text and why:
        made.notes.append(f"'{key}' is left out: {why}")
    return text.strip().lower()


def _refuse(made: Converted, key: str, text: str, why: str) -> None:
    # The kept key has a verdict that keeps the result from starting.
    made.config[key] = text
    made.problems.append(f"'{key}' {why}")


def _format(made: Converted, key: str, kind: str, names: Sequence[str]) -> None:
    # An unsupported format is kept, to be refused.
    made.config["format.class"] = _FORMATS[kind] if kind in names else kind
    if kind in names:
        made.notes.append(f"'{key}' is 'format.class' here: {_FORMATS[kind]}")
    else:
        made.problems.append(f"'{key}' is {kind or 'not set'}: take {', '.join(names)}")


def _compress(made: Converted, key: str, name: str) -> None:
    mine = _CODEC_KEYS.get(made.config["format.class"], "s3.compression.type")
    known = _CODECS[mine]
    if name in known:
        made.config[mine] = known[name]
        made.notes.append(f"'{key}' is '{mine}' here")
    else:
        _refuse(made, key, name, f"is {name}: '{mine}' has {', '.join(known.values())}")


# -- Aiven's -----------------------------------------------------------------------------------------------


def _from_aiven(made: Converted) -> None:
    _take_older(made, AIVENS_OLDER_KEYS)
    config = made.config
    if config.get("file.max.records", "").strip() == "0":
        _drop(made, "file.max.records", "0 is no limit there")
    _rename(made, AIVENS_KEYS)
    if "s3.region" not in config:
        config["s3.region"] = _AIVENS_REGION
        made.notes.append(f"'s3.region' is {_AIVENS_REGION}, Aiven's default")
    if f"{STS_ROLE}.arn" in config:
        config["s3.credentials.provider.class"] = _ASSUME
    kind = _drop(made, "format.output.type", "") or "csv"
    if kind == "json":
        made.config["format.class"] = kind  # which its verdict refuses
        made.problems.append(
            "'format.output.type' json is one array in each file, which is not written: take jsonl, which is "
            "a line for each record"
        )
    else:
        _format(made, "format.output.type", kind, _AIVENS_FORMATS)
    _aivens_fields(made)
    _compress(made, "file.compression.type", _drop(made, "file.compression.type", "") or "gzip")
    for key in [key for key in config if key.startswith(("aws.s3.backoff.", "kafka.retry."))]:
        _drop(made, key, _RETRIES)
    _aivens_folders(made)
    if "flush.size" not in config:
        config["rotate.schedule.interval.ms"] = config.get("offset.flush.interval.ms", _FLUSHED)
        made.notes.append("files end with each commit there: 'rotate.schedule.interval.ms' says so here")


def _aivens_fields(made: Converted) -> None:
    given = made.config.pop("format.output.fields", "value")
    fields = [name.strip() for name in given.split(",")]
    _drop(made, "format.output.fields.value.encoding", "values are as their converter gives them")
    envelope = _drop(made, "format.output.envelope", "") != "false"
    if fields != ["value"]:
        if made.config["format.class"] in _RECORD_CONTENT:
            made.config["archive.content"] = "record"
            made.notes.append(
                "'format.output.fields' becomes 'archive.content' record: all of a record, with key and "
                "value as bytes"
            )
        else:
            _refuse(
                made,
                "format.output.fields",
                given,
                "names more than the value: lines of JSON hold values alone; take parquet or avro, whose "
                "rows are whole records with 'archive.content' record",
            )
    elif envelope:
        made.notes.append("'format.output.envelope': a row is the value itself, without 'value' around it")


def _aivens_folders(made: Converted) -> None:
    config = made.config
    _aivens_prefix(made)
    template = config.pop("file.name.template", "")
    source = _drop(made, "timestamp.source", "") or _drop(made, "file.name.timestamp.source", "")
    zone = config.pop("timestamp.timezone", "") or config.pop("file.name.timestamp.timezone", "")
    if template:
        made.notes.append(
            "'file.name.template': files are called topic, partition and start offset, below the topic's "
            "folder"
        )
    if _KEY.search(template):
        why = "has {{key}}: one file for each key, with its latest value, has no counterpart"
        _refuse(made, "file.name.template", template, why)
        return
    folders = [
        part for part in template.strip("/").split("/")[:-1] if not re.fullmatch(r"\{\{\s*topic\s*\}\}", part)
    ]
    if folders and all(_PARTITION.fullmatch(part) for part in folders):
        made.notes.append("'file.name.template': the folder of a partition is called partition=0, not 0")
        return
    if any("{{" in _TIMESTAMP.sub("", part) for part in folders):
        why = "has folders of variables other than topic and timestamp (yyyy, MM, dd, HH)"
        _refuse(made, "file.name.template", template, why)
        return
    if folders and not any(_TIMESTAMP.search(part) for part in folders):
        why = "has folders without a timestamp: put them into 'topics.dir', above the topic's folder"
        _refuse(made, "file.name.template", template, why)
        return
    if folders:
        path = "/".join(map(_joda, folders))
        config |= {
            "partitioner.class": "TimeBasedPartitioner",
            "path.format": path,
            "partition.duration.ms": str(_HOUR if "HH" in path else 24 * _HOUR),
            "timestamp.extractor": "Record" if source == "event" else "Wallclock",
            "timezone": zone if zone not in ("", "Z") else "UTC",
        }


def _aivens_prefix(made: Converted) -> None:
    for key in ("file.prefix.template", "aws.s3.prefix"):
        prefix = made.config.pop(key, "")
        if "{{" in prefix:
            _refuse(made, key, prefix, "has variables: 'topics.dir' has none")
        elif prefix.strip("/"):
            made.config["topics.dir"] = prefix.strip("/")
            return
    made.notes.append(
        "without a prefix there, keys begin with 'topics.dir' here, which is 'topics'; it may be empty"
    )


def _joda(part: str) -> str:
    texts = enumerate(_TIMESTAMP.split(part))
    return "".join(
        text.replace("YYYY", "yyyy") if place % 2 else re.sub(r"[A-Za-z]+", r"'\g<0>'", text)
        for place, text in texts
    )


# -- Lenses' -----------------------------------------------------------------------------------------------


def _from_lenses(made: Converted) -> None:
    _take_older(made, LENSES_OLDER_KEYS)
    config = made.config
    kcql = config.pop("connect.s3.kcql", "")
    found = read_kcql(kcql)
    if found.takes_all and not (config.get("topics") or config.get("topics.regex")):
        found.problems.append("FROM *: name the topics in 'topics' or 'topics.regex'")
    config.update(found.keys)
    if "topics" in found.keys:
        config.pop("topics.regex", None)
    if found.problems:  # without the refused text the result would do something else
        config["connect.s3.kcql"] = kcql
    made.notes.append(f"'connect.s3.kcql' is, by the keys here: {found}")
    made.notes += [f"'connect.s3.kcql': {note}" for note in found.notes]
    made.problems += [f"'connect.s3.kcql': {problem}" for problem in found.problems]
    _lenses_access(made)
    if codec := _drop(made, "connect.s3.compression.codec", ""):
        name = "none" if codec == "uncompressed" else codec
        _compress(made, "connect.s3.compression.codec", name)
    level_key = _LEVEL_KEYS.get(config.get("format.class", ""))
    level = config.get("connect.s3.compression.level", "")
    if level_key and level not in ("", "-1"):
        _rename(made, {"connect.s3.compression.level": level_key})
    _lenses_files(made)
    for key in [key for key in config if key.startswith("connect.s3.") and key != "connect.s3.kcql"]:
        if any(fnmatchcase(key, name) for name in _LENSES_ELSEWHERE):
            _refuse(made, key, config[key], "holds or names keys that are not in this file: write them here")
        elif of_unknown(key):
            why = "says where, as whom or how securely files are written, and has no counterpart"
            _refuse(made, key, config[key], why)
        else:
            is_about_retries = fnmatchcase(key, "*.retry.interval") or key == "connect.s3.max.retries"
            _drop(made, key, _RETRIES if is_about_retries else "it has no counterpart")
    made.notes.append("files are called topic, partition and start offset, below the topic's folder")


def _lenses_access(made: Converted) -> None:
    config = made.config
    mode = _drop(made, "connect.s3.aws.auth.mode", "")
    has_keys = any(key in config for key in _LENSES_KEYS)
    if mode not in ("", "credentials"):
        for key in _LENSES_KEYS:
            _drop(made, key, f"'connect.s3.aws.auth.mode' is {mode}: the default chain finds the credentials")
    elif has_keys and not mode:
        made.notes.append(
            "'connect.s3.aws.auth.mode' is not set, which is Default there, and keys are not used: they are "
            "used here; take them out for the default chain"
        )
    if config.get("connect.s3.http.retry.interval") == "0":
        _drop(made, "connect.s3.http.retry.interval", "0 is the client's own there")
    # vhost.bucket true switches buckets in the host's name off, in all versions of Lenses' sink.
    _rename(made, LENSES_KEYS)
    if "s3.region" not in config:
        made.notes.append("'s3.region' is us-west-2 by default; in Lenses' sink the AWS client finds it")


def _lenses_files(made: Converted) -> None:
    config = made.config
    if _drop(made, "connect.s3.skip.null.values", "") == "true":
        config |= {"behavior.on.null.values": "ignore", "report.null.values.to.dlq": "false"}
        made.notes.append("'connect.s3.skip.null.values' is 'behavior.on.null.values' ignore here")
    is_disabled = _drop(made, "connect.s3.disable.flush.count", "") == "true"
    if _drop(made, "connect.s3.flush.count.enable", "") == "false" or is_disabled:
        _drop(made, "flush.size", "no number of records ends a file")
    padding = _drop(made, "connect.s3.padding.strategy", "")
    length = _drop(made, "connect.s3.padding.length", "")
    if padding == "noop":
        config["filename.offset.zero.pad.width"] = "0"
    elif padding == "rightpad":
        made.notes.append("'connect.s3.padding.strategy' is left out: zeros stand before offsets")
    elif padding or length:
        config["filename.offset.zero.pad.width"] = length or _LENSES_WIDTH


# -- Confluent Cloud's -------------------------------------------------------------------------------------

# Verdicts refuse the last two.
_INPUTS: Final[Mapping[str, str]] = {
    "avro": "io.confluent.connect.avro.AvroConverter",
    "json": "org.apache.kafka.connect.json.JsonConverter",
    "string": "org.apache.kafka.connect.storage.StringConverter",
    "bytes": "org.apache.kafka.connect.converters.ByteArrayConverter",
    "protobuf": "io.confluent.connect.protobuf.ProtobufConverter",
    "json_sr": "io.confluent.connect.json.JsonSchemaConverter",
}


_CLOUDS_FORMATS: Final = ("json", "avro", "parquet", "bytes")


def _from_cloud(made: Converted) -> None:
    config = made.config
    given = _drop(made, "input.data.format", "")
    kind = _drop(made, "output.data.format", "") or given
    _format(made, "output.data.format", kind, _CLOUDS_FORMATS)
    if given in _INPUTS:
        config["value.converter"] = _INPUTS[given]
        if given == "json":
            config["value.converter.schemas.enable"] = "false"
    elif given:
        _refuse(made, "input.data.format", given, f"is {given}, of which there is no converter here")
    if codec := _drop(made, "compression.codec", ""):
        _compress(made, "compression.codec", codec.rpartition("- ")[2])
    _clouds_keys_and_headers(made)
    _clouds_folders(made)
    if _drop(made, "authentication.method", "") not in ("", "access keys"):
        made.notes.append("a role is named in 's3.credentials.provider.sts.role.arn'")
    if role := config.pop("provider.integration.id", ""):
        _refuse(made, "provider.integration.id", role, f"{role} is Confluent's: name the role's ARN")


def _clouds_keys_and_headers(made: Converted) -> None:
    config = made.config
    of_keys = _drop(made, "input.key.format", "")
    for key, mine, stored in (
        ("output.keys.format", "keys.format.class", "store.kafka.keys"),
        ("output.headers.format", "headers.format.class", "store.kafka.headers"),
    ):
        if config.get(stored, "").lower() != "true":
            _drop(made, key, f"it belongs to '{stored}' true")
            continue
        # Cloud's default is Avro.
        kind = _drop(made, key, "") or "avro"
        if kind in _FORMATS:
            config[mine] = _FORMATS[kind]
            made.notes.append(f"'{key}' is '{mine}' here: {_FORMATS[kind]}")
        else:
            _refuse(made, key, kind, f"is {kind}: take avro, json, parquet or bytes")
    if config.get("store.kafka.keys", "").lower() == "true":
        of_keys = of_keys or "bytes"
        if of_keys in _INPUTS:
            config["key.converter"] = _INPUTS[of_keys]
            made.notes.append(f"'input.key.format' is 'key.converter' here: {_INPUTS[of_keys]}")
        else:
            _refuse(made, "input.key.format", of_keys, f"is {of_keys}, of which there is no converter here")


def _clouds_folders(made: Converted) -> None:
    config = made.config
    interval = _drop(made, "time.interval", "").upper() or "HOURLY"
    if interval not in _DURATIONS:
        _refuse(made, "time.interval", interval, f"is {interval}: it is HOURLY or DAILY")
    elif config.get("path.format"):
        config["partitioner.class"] = "TimeBasedPartitioner"
        config["partition.duration.ms"] = str(_DURATIONS[interval])
    else:
        config["partitioner.class"] = f"{interval.capitalize()}Partitioner"
    made.notes.append(f"'time.interval' is 'partitioner.class' here: {config.get('partitioner.class')}")
    config["timestamp.extractor"] = "RecordField" if config.get("timestamp.field") else "Record"


_CHANGES: Final[tuple[tuple[Callable[[str], bool], Callable[[Converted], None]], ...]] = (
    (lambda name: name.startswith("io.aiven.kafka.connect.s3."), _from_aiven),
    (lambda name: ".streamreactor.connect.aws.s3." in name, _from_lenses),
    (lambda name: name == "S3_SINK", _from_cloud),
)
