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
_NO_TIME = _ignored("it belongs to folders by time, and 'partitioner.class' makes none")
_NO_FIELDS = _ignored("it belongs to folders by fields, and 'partitioner.class' makes none")
_FIXED_TIME = _ignored("folders of this partitioner are fixed: with TimeBasedPartitioner it counts")
_NOT_THE_FORMAT = _ignored("it belongs to other formats than those that are written")
_NO_KEYS = _ignored("files hold values, and no keys")
_AVRO_RECORD: Final = Verdict.differs(
    "values are records with the fields and types that their converter or transforms give; each field may be "
    "null, and the record is called ConnectDefault, as Connect calls structures without a name"
)
_JSON_TEXT: Final = _same("each value is a text of JSON, in quotes")


def _avro(what: str, whose: str = "its") -> dict[str, Verdict]:
    why = f"each value is {what}; Connect's schema is {whose} union with null"
    return {"AvroFormat": Verdict.differs(why)}


# By the converter's kind, for values without a registry's schema.
_OF_CONVERTERS: Final[Mapping[str, Mapping[str, Verdict]]] = {
    "string": {**_avro("a string of Avro by itself"), "JsonFormat": _JSON_TEXT},
    "bytes": _avro("bytes of Avro by themselves", "their"),
    "json": {"AvroFormat": _AVRO_RECORD},
    **dict.fromkeys(
        ("short", "integer", "long", "float", "double", "boolean"),
        _avro("a number or boolean of Avro by itself"),
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
        made = self.partitioner
        return made is not None and (made.has_fields or (made.has_time and self.extractor == "RecordField"))


def has_rule(key: str, *books: Mapping[str, Verdict]) -> bool:
    """Return whether there is a verdict on a key, by itself or by a pattern."""
    return any(key in book or any(fnmatchcase(key, name) for name in book if "*" in name) for book in books)


def rules_for(values: Mapping[str, object], known: Collection[str]) -> Mapping[str, Verdict]:
    made = Contents.of(values)
    rules: dict[str, Verdict] = dict(COMPATIBILITY)
    if not made.holds_values:
        rules.update(OF_RECORDS)
    elif made.format == "ByteArrayFormat" or (made.format == "JsonFormat" and not _have_schemas(values)):
        rules["schema.compatibility"] = _NO_LINES_SCHEMA
    if not _text(values, "transforms"):  # transforms need converted keys and values
        rules.update(_of_nothing_converted(made, values))
    own = [key for name in _formats(made, values) for key in _KEYS_OF_FORMATS.get(name, "").split()]
    others = [key for keys in _KEYS_OF_FORMATS.values() for key in keys.split() if key not in own]
    rules.update(dict.fromkeys(others, _NOT_THE_FORMAT))
    rules.update(_without_effect(made))
    if made.holds_values:
        rules.update(_of_nothing_beside(values))
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


def _of_nothing_beside(values: Mapping[str, object]) -> Mapping[str, Verdict]:
    behavior = _text(values, "behavior.on.null.values").lower()
    belongs = {
        "keys.format.class": ("'store.kafka.keys' = true", _is_true(values, "store.kafka.keys")),
        "headers.format.class": ("'store.kafka.headers' = true", _is_true(values, "store.kafka.headers")),
        "report.null.values.to.dlq": ("'behavior.on.null.values' ignore", behavior == "ignore"),
        "tombstone.encoded.partition": ("'behavior.on.null.values' write", behavior == "write"),
    }
    return {key: _ignored(f"it belongs to {to}") for key, (to, is_set) in belongs.items() if not is_set}


def _have_schemas(values: Mapping[str, object]) -> bool:
    is_text = _text(values, "value.converter").rpartition(".")[2] in _TEXTS
    return not is_text or _is_true(values, "value.converter.schemas.enable")


def _is_true(values: Mapping[str, object], key: str) -> bool:
    return _text(values, key).lower() == "true"


def _of_nothing_converted(made: Contents, values: Mapping[str, object]) -> Mapping[str, Verdict]:
    if made.holds_values and _is_true(values, "store.kafka.keys"):
        return {}
    found = dict.fromkeys(("key.converter", "key.converter.*"), _NO_KEYS)
    if not made.holds_values:
        found = dict.fromkeys(found, NOT_CONVERTED["value.converter"])
        if not made.reads_fields:
            found |= NOT_CONVERTED
        if made.partitioner is not None and made.partitioner.is_default:
            found |= NO_BAD_RECORDS
    return found


# Other people's providers that return the configured key.
_OF_KEYS: Final = (
    *("AwsAccessKeyCredentialsProvider", "AWSStaticCredentialsProvider", "StaticCredentialsProvider"),
    *("BasicAWSCredentialsProvider", "SimpleAWSCredentialsProvider"),
)
_KEYS_MISSING: Final = _unsupported(
    "it hands on a key: set 'aws.access.key.id' and 'aws.secret.access.key', or take it out, for the default "
    "chain"
)


def _of_other_sinks(values: Mapping[str, object]) -> Mapping[str, Verdict]:
    found: dict[str, Verdict] = {}
    if _text(values, "partitioner.class").endswith(OLDER_PARTITIONER[0]):
        found["partition.field"] = _same("as 'partition.field.name'")
    if kcql := _text(values, "connect.s3.kcql"):
        found["connect.s3.kcql"] = _unsupported(f"KCQL is not read: take {read_kcql(kcql)}")
    if _text(values, "store.url"):
        found |= dict.fromkeys(("s3.endpoint*", *ENDPOINTS), _ignored("'store.url' says it"))
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
        found["time.interval"] = _ignored("it is Confluent Cloud's; 'partitioner.class' says it")
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


def _formats(made: Contents, values: Mapping[str, object]) -> set[str]:
    found = {made.format}
    for part in ("keys", "headers"):
        if made.holds_values and _is_true(values, f"store.kafka.{part}"):
            found.add(_text(values, f"{part}.format.class").rpartition(".")[2] or "AvroFormat")
    return found


def _without_effect(made: Contents) -> Mapping[str, Verdict]:
    kind = made.partitioner
    found: dict[str, Verdict] = {}
    if kind is None:
        return found
    if not kind.has_time:
        found |= _each(
            _NO_TIME, "path.format partition.duration.ms locale timestamp.extractor timestamp.field"
        )
        found["rotate.interval.ms"] = _ignored(
            "it belongs to folders by time; with others Confluent's sink ignores it as well. Files end by "
            "'flush.size', 'flush.bytes' and 'rotate.schedule.interval.ms'"
        ).when({"-1": _same()})
    elif kind.pattern is not None:
        found |= _each(_FIXED_TIME, "path.format partition.duration.ms")
    if not made.rotates_by_record:
        found["rotate.file.on.partition.change"] = _ignored("it belongs to 'rotate.interval.ms'")
    if kind.has_time and made.extractor != "RecordField":
        found["timestamp.field"] = _ignored("it belongs to 'timestamp.extractor' RecordField")
    if not kind.has_fields:
        found |= _each(_NO_FIELDS, "partition.field.name partition.field.format.path")
    elif not kind.has_time:
        found["partition.field.format.path"] = _ignored("folders of FieldPartitioner always name the field")
    return found


def _each(verdict: Verdict, keys: str) -> dict[str, Verdict]:
    return dict.fromkeys(keys.split(), verdict)


# -- defaults ----------------------------------------------------------------------------------------------

_RECORDS_NOTE: Final = (
    "a file's records are whole Kafka records with the value's bytes as they are; Confluent's files hold the "
    "converted value alone, so readers have to be changed"
)
_TURNS_NOTE: Final = (
    "files of several folders are open at a time and end together, not whenever the next record is of "
    "another folder: the same folders, fewer files"
)


def other_defaults_for(values: Mapping[str, object]) -> Mapping[str, str]:
    """Return keys whose default is not Confluent's, each with what that changes."""
    made = Contents.of(values)
    notes = {} if made.holds_values else {"archive.content": _RECORDS_NOTE}
    if made.rotates_by_record:
        notes["rotate.file.on.partition.change"] = _TURNS_NOTE
    return {**notes, **OTHER_DEFAULTS}
