"""Judge the keys of one configuration, by the values of its other keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import Final, NamedTuple, Self

from sinksdk import Verdict
from sinksdk.connectors.s3_archiver.compatibility.kcql import read_kcql
from sinksdk.connectors.s3_archiver.compatibility.verdicts import (
    COMPATIBILITY,
    ENDPOINTS,
    NO_BAD_RECORDS,
    NOT_CONVERTED,
    OF_RECORDS,
    OTHER_DEFAULTS,
    formats_with,
    of_unknown,
)
from sinksdk.connectors.s3_archiver.formats.settings import holds_values
from sinksdk.connectors.s3_archiver.partitioners.settings import OLDER_PARTITIONER, Partitioner, partitioner

_same, _ignored, _unsupported = Verdict.same, Verdict.ignored, Verdict.unsupported

_BOOLEANS: Final = ("true", "false")
_NO_TIME = _ignored("it applies only to folders by time, and 'partitioner.class' creates none")
_NO_FIELDS = _ignored("it applies only to folders by fields, and 'partitioner.class' creates none")
_FIXED_TIME = _ignored("folders of this partitioner are fixed; it applies only with TimeBasedPartitioner")
_NO_ROTATION = _ignored(
    "it applies only to folders by time; without them Confluent's sink ignores it as well. Files end by "
    "'flush.size', 'flush.bytes' and 'rotate.schedule.interval.ms'"
).when({"-1": _same()})
_ONLY_ROTATING = _ignored("it applies only with 'rotate.interval.ms'")
_ONLY_BY_FIELD = _ignored("it applies only with 'timestamp.extractor' RecordField")
_ALWAYS_NAMED = _ignored("folders of FieldPartitioner always contain the field's name")
_NOT_THE_FORMAT = _ignored("it applies only to other formats")
_NO_KEYS = _ignored("files hold values, and no keys")
_AVRO_RECORD: Final = Verdict.differs(
    "values are records with the fields and types that their converter or transforms return; each field may "
    "be null, and the record is named ConnectDefault, Connect's name for structures without a name"
)
_JSON_TEXT: Final = _same("each value is a JSON string, in quotes")


def _avro(what: str, member: str) -> dict[str, Verdict]:
    why = f"the schema is {what}; Connect's is a union of {member} and null"
    return {"AvroFormat": Verdict.differs(why)}


# Verdicts by kind of converter, for values without a registry's schema.
_OF_CONVERTERS: Final[Mapping[str, Mapping[str, Verdict]]] = {
    "string": {**_avro("an Avro string", "string"), "JsonFormat": _JSON_TEXT},
    "bytes": _avro("Avro bytes", "bytes"),
    "json": {"AvroFormat": _AVRO_RECORD},
    **dict.fromkeys(
        ("short", "integer", "long", "float", "double", "boolean"),
        _avro("an Avro number or boolean", "it"),
    ),
}
_OF_TRANSFORMS: Final[Mapping[str, Verdict]] = {"AvroFormat": _AVRO_RECORD}
_TRANSFORMS: Final = ("transforms", "records.sql", "records.transform")
_KINDS: Final = {
    "ByteArrayConverter": "bytes",
    **{f"{kind.capitalize()}Converter": kind for kind in (*_OF_CONVERTERS, "avro")},
}
# Converters whose values have no schema, except in an envelope.
_TEXTS: Final = ("", "JsonConverter", "json", "StringConverter", "string", "ByteArrayConverter", "bytes")
_NO_LINES_SCHEMA = _ignored("these values have no schema")


class Contents(NamedTuple):
    """The parts of a configuration that verdicts depend on."""

    holds_values: bool
    format: str
    partitioner: Partitioner | None
    extractor: str
    rotates: bool

    @classmethod
    def of(cls, values: Mapping[str, object]) -> Self:
        kind, extractor = _text(values, "format.class"), _text(values, "timestamp.extractor") or "Wallclock"
        return cls(
            holds_values(kind, _text(values, "archive.content")),
            kind.rpartition(".")[2] or "AvroFormat",
            partitioner(
                _text(values, "partitioner.class").replace(*OLDER_PARTITIONER) or "DefaultPartitioner"
            ),
            extractor.rpartition("$")[2].removesuffix("TimestampExtractor") or extractor,
            _text(values, "rotate.interval.ms") not in ("", "-1"),
        )

    @property
    def rotates_by_record(self) -> bool:
        return self.rotates and self.partitioner is not None and self.partitioner.has_time

    @property
    def reads_fields(self) -> bool:
        kind = self.partitioner
        return kind is not None and (kind.has_fields or (kind.has_time and self.extractor == "RecordField"))


def has_rule(key: str, *books: Mapping[str, Verdict]) -> bool:
    """Return whether there is a verdict on a key, by itself or by a pattern."""
    return any(key in book or any(fnmatchcase(key, name) for name in book if "*" in name) for book in books)


def rules_for(values: Mapping[str, object], known: Collection[str]) -> Mapping[str, Verdict]:
    contents = Contents.of(values)
    rules: dict[str, Verdict] = dict(COMPATIBILITY)
    if not contents.holds_values:
        rules.update(OF_RECORDS)
    elif contents.format == "ByteArrayFormat" or (
        contents.format == "JsonFormat" and not _have_schemas(values)
    ):
        rules["schema.compatibility"] = _NO_LINES_SCHEMA
    if not _text(values, "transforms"):  # with transforms, keys and values are converted first
        rules.update(_without_conversion(contents, values))
    own = [key for name in _formats(contents, values) for key in _KEYS_OF_FORMATS.get(name, "").split()]
    others = [key for keys in _KEYS_OF_FORMATS.values() for key in keys.split() if key not in own]
    rules.update(dict.fromkeys(others, _NOT_THE_FORMAT))
    rules.update(_without_effect(contents))
    if contents.holds_values:
        rules.update(_without_views(values))
        rules["format.class"] = _of_converted(values, "value.converter")
        if _is_true(values, "store.kafka.keys"):
            rules["keys.format.class"] = _of_converted(values, "key.converter")
    rules.update(_of_other_sinks(values))
    unknown = [key for key in values if key not in known and not has_rule(key, rules)]
    rules.update({key: verdict for key in unknown if (verdict := of_unknown(key))})
    rules.update(_of_booleans(rules, values))
    return rules


def _of_booleans(rules: Mapping[str, Verdict], values: Mapping[str, object]) -> Mapping[str, Verdict]:
    # Connect reads booleans in any case of letters.
    given = {key: _text(values, key).lower() for key in values if key in rules}
    return {
        key: rules[key].cases[text]
        for key, text in given.items()
        if text in _BOOLEANS and text in rules[key].cases
    }


def _of_converted(values: Mapping[str, object], side: str) -> Verdict:
    if any(_text(values, key) for key in _TRANSFORMS):
        return formats_with(_OF_TRANSFORMS)
    name = _text(values, side) or ("" if side == "value.converter" else "bytes")
    kind = _KINDS.get(name.rpartition(".")[2], name)
    return formats_with(_OF_CONVERTERS.get(kind, _OF_TRANSFORMS if not kind else {}))


def _without_views(values: Mapping[str, object]) -> Mapping[str, Verdict]:
    behavior = _text(values, "behavior.on.null.values").lower()
    conditions = {
        "keys.format.class": ("'store.kafka.keys' = true", _is_true(values, "store.kafka.keys")),
        "headers.format.class": ("'store.kafka.headers' = true", _is_true(values, "store.kafka.headers")),
        "report.null.values.to.dlq": ("'behavior.on.null.values' ignore", behavior == "ignore"),
        "tombstone.encoded.partition": ("'behavior.on.null.values' write", behavior == "write"),
    }
    return {
        key: _ignored(f"it applies only with {condition}")
        for key, (condition, is_met) in conditions.items()
        if not is_met
    }


def _have_schemas(values: Mapping[str, object]) -> bool:
    is_text = _text(values, "value.converter").rpartition(".")[2] in _TEXTS
    return not is_text or _is_true(values, "value.converter.schemas.enable")


def _is_true(values: Mapping[str, object], key: str) -> bool:
    return _text(values, key).lower() == "true"


def _without_conversion(contents: Contents, values: Mapping[str, object]) -> Mapping[str, Verdict]:
    if contents.holds_values and _is_true(values, "store.kafka.keys"):
        return {}
    found = dict.fromkeys(("key.converter", "key.converter.*"), _NO_KEYS)
    if not contents.holds_values:
        found = dict.fromkeys(found, NOT_CONVERTED["value.converter"])
        if not contents.reads_fields:
            found |= NOT_CONVERTED
        if contents.partitioner is not None and contents.partitioner.is_default:
            found |= NO_BAD_RECORDS
    return found


# Credentials providers of other packages that return the configured key.
_OF_KEYS: Final = (
    *("AwsAccessKeyCredentialsProvider", "AWSStaticCredentialsProvider", "StaticCredentialsProvider"),
    *("BasicAWSCredentialsProvider", "SimpleAWSCredentialsProvider"),
)
_KEYS_MISSING: Final = _unsupported(
    "it provides an access key: set 'aws.access.key.id' and 'aws.secret.access.key', or remove it to use the "
    "default chain"
)


def _of_other_sinks(values: Mapping[str, object]) -> Mapping[str, Verdict]:
    found: dict[str, Verdict] = {}
    if _text(values, "partitioner.class").endswith(OLDER_PARTITIONER[0]):
        found["partition.field"] = _same("as 'partition.field.name'")
    if kcql := _text(values, "connect.s3.kcql"):
        found["connect.s3.kcql"] = _unsupported(f"KCQL is not supported: use {read_kcql(kcql)}")
    if _text(values, "store.url"):
        found |= dict.fromkeys(("s3.endpoint*", *ENDPOINTS), _ignored("'store.url' is used"))
    elif given := [key for key in ENDPOINTS if _text(values, key)]:
        found |= {
            key: _unsupported(f"'{given[0]}' names another endpoint: keep one of them, as 'store.url'")
            for key in given
            if _text(values, key) != _text(values, given[0])
        }
    provider = _text(values, "s3.credentials.provider.class").rpartition(".")[2]
    if provider in _OF_KEYS:
        has_keys = _text(values, "aws.access.key.id") and _text(values, "aws.secret.access.key")
        found["s3.credentials.provider.class"] = (
            _same("'aws.access.key.id' and 'aws.secret.access.key' are used") if has_keys else _KEYS_MISSING
        )
    if _text(values, "partitioner.class"):
        found["time.interval"] = _ignored("it is a key of Confluent Cloud; 'partitioner.class' is used")
    return found


def _text(values: Mapping[str, object], key: str) -> str:
    return str(values.get(key, "")).strip()


_KEYS_OF_FORMATS: Final[Mapping[str, str]] = {
    "AvroFormat": "avro.codec avro.codec.level",
    "ParquetFormat": "parquet.codec",
    "JsonFormat": "s3.compression.type s3.compression.level json.decimal.format",
    "ByteArrayFormat": "s3.compression.type s3.compression.level format.bytearray.extension "
    "format.bytearray.separator",
}


def _formats(contents: Contents, values: Mapping[str, object]) -> set[str]:
    found = {contents.format}
    for part in ("keys", "headers"):
        if contents.holds_values and _is_true(values, f"store.kafka.{part}"):
            found.add(_text(values, f"{part}.format.class").rpartition(".")[2] or "AvroFormat")
    return found


def _without_effect(contents: Contents) -> Mapping[str, Verdict]:
    kind = contents.partitioner
    if kind is None:
        return {}
    by_field = kind.has_time and contents.extractor == "RecordField"
    conditions = (
        (kind.has_time, "path.format partition.duration.ms locale timestamp.extractor", _NO_TIME),
        (kind.has_time, "rotate.interval.ms", _NO_ROTATION),
        (not kind.has_time or kind.pattern is None, "path.format partition.duration.ms", _FIXED_TIME),
        (contents.rotates_by_record, "rotate.file.on.partition.change", _ONLY_ROTATING),
        (by_field, "timestamp.field", _ONLY_BY_FIELD if kind.has_time else _NO_TIME),
        (kind.has_fields, "partition.field.name partition.field.format.path", _NO_FIELDS),
        (kind.has_time or not kind.has_fields, "partition.field.format.path", _ALWAYS_NAMED),
    )
    return {key: why for applies, keys, why in conditions if not applies for key in keys.split()}


# -- defaults ----------------------------------------------------------------------------------------------

_RECORDS_NOTE: Final = (
    "a file's records are whole Kafka records with the value's bytes unchanged; Confluent's files hold only "
    "the converted value, so readers have to be changed"
)
_TURNS_NOTE: Final = (
    "files of several folders are open at a time and end together, whereas Confluent's sink ends the file "
    "when the next record is of another folder: the folders are the same, with fewer files"
)


def other_defaults_for(values: Mapping[str, object]) -> Mapping[str, str]:
    """Return keys whose default is not Confluent's, each with the effect."""
    contents = Contents.of(values)
    notes = {} if contents.holds_values else {"archive.content": _RECORDS_NOTE}
    if contents.rotates_by_record:
        notes["rotate.file.on.partition.change"] = _TURNS_NOTE
    return {**notes, **OTHER_DEFAULTS}
