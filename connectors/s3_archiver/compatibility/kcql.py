"""Read Lenses' KCQL, as far as its S3 sink supports it, as keys of the archiver."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_NAME: Final = r"`[^`]*`|[^\s;`]+"
_STATEMENT: Final = re.compile(
    rf"insert\s+into\s+(?P<target>{_NAME})\s+select\s+(?P<what>.+?)\s+from\s+(?P<topic>{_NAME})(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_CLAUSE: Final = re.compile(
    r"\b(BATCH|PARTITIONBY|STOREAS|WITH_?PARTITIONER|WITH_FLUSH_(?:COUNT|SIZE|INTERVAL)|LIMIT|PROPERTIES|NOPARTITION)\b",
    re.IGNORECASE,
)
_PROPERTY: Final = re.compile(r"'([^']*)'\s*=\s*('[^']*'|[^,)\s]+)")

_FORMATS: Final[Mapping[str, Mapping[str, str]]] = {
    "JSON": {"format.class": "JsonFormat"},
    "AVRO": {"format.class": "AvroFormat"},
    "PARQUET": {"format.class": "ParquetFormat"},
    "TEXT": {"format.class": "ByteArrayFormat", "format.bytearray.extension": ".text"},
}
_DATES: Final = {
    "uuuu": "'year'=yyyy",
    "yyyy": "'year'=yyyy",
    "LL": "'month'=MM",
    "MM": "'month'=MM",
    "dd": "'day'=dd",
    "HH": "'hour'=HH",
    "mm": "'minute'=mm",
}
_DURATIONS: Final = {"mm": 60_000, "HH": 3_600_000}
_DAY: Final = 86_400_000
_FLUSH: Final = {"count": "flush.size", "size": "flush.bytes", "interval": "rotate.schedule.interval.ms"}
_PADDING: Final = ("padding.type", "padding.length.offset")
_KNOWN: Final = (
    *(f"flush.{name}" for name in _FLUSH),
    *("store.envelope", "partition.include.keys", *_PADDING),
)
_DEFAULTS: Final = {
    "flush.size": "50000",
    "flush.bytes": "500000000",
    "rotate.schedule.interval.ms": "3600000",
}


@dataclass
class Kcql:
    """The meaning of statements, as keys of the archiver."""

    keys: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    # FROM *: all topics that the configuration names elsewhere.
    takes_all: bool = False

    def __str__(self) -> str:
        keys = ", ".join(f"{key}={value}" for key, value in self.keys.items())
        return "; ".join(part for part in (keys, *self.problems) if part)


def read_kcql(text: str) -> Kcql:
    """Parse ``connect.s3.kcql``: statements, separated by semicolons."""
    found = Kcql()
    topics: list[str] = []
    for statement in filter(None, (part.strip() for part in text.split(";"))):
        parsed = _read(statement)
        topic = parsed.keys.pop("topics", "")
        # Statements of one bucket that differ only in their topics become one configuration.
        if topics and parsed.keys != found.keys:
            found.problems.append(
                f"statements that differ in more than their topics: '{topic}' needs a connector of its own"
            )
            continue
        found.keys = parsed.keys
        found.takes_all |= parsed.takes_all
        found.notes += [note for note in parsed.notes if note not in found.notes]
        found.problems += [problem for problem in parsed.problems if problem not in found.problems]
        topics += [topic] if topic else []
    if topics and found.takes_all:
        found.problems.append(
            "FROM * together with statements for named topics: each needs a connector of its own"
        )
    if topics:
        found.keys["topics"] = ",".join(topics)
    return found


def _read(statement: str) -> Kcql:
    match = _STATEMENT.fullmatch(statement)
    if match is None:
        return Kcql(problems=["it is not of the form INSERT INTO bucket:prefix SELECT * FROM topic"])
    found = Kcql()
    bucket, _, prefix = _bare(match["target"]).partition(":")
    found.keys["s3.bucket.name"] = bucket
    if prefix:
        found.keys["topics.dir"] = prefix.strip("/")
    if match["what"].strip() != "*":
        found.problems.append("SELECT of fields is not supported: use the transform ReplaceField")
    topic = _bare(match["topic"])
    if topic == "*":
        found.takes_all = True
    else:
        found.keys["topics"] = topic
    between, *_ = _CLAUSE.split(match["rest"])
    if between.strip():
        found.problems.append(f"'{between.strip()}' is not supported")
    clauses = _clauses(match["rest"])
    kind = _bare(clauses.get("STOREAS", "JSON")).upper()
    if kind in _FORMATS:
        found.keys.update(_FORMATS[kind])
    else:
        found.problems.append(f"STOREAS {kind} is not supported: use {', '.join(_FORMATS)}")
    properties = _properties(found, clauses.get("PROPERTIES", ""))
    _flush(found, clauses, properties)
    _width(found, properties)
    partitioner = clauses.get("WITHPARTITIONER", clauses.get("WITH_PARTITIONER", ""))
    are_named = properties.get("partition.include.keys", "true").lower() == "true"
    are_named = are_named and _bare(partitioner).lower() != "values"
    _folders(found, clauses.get("PARTITIONBY", ""), are_named=are_named)
    found.notes += [
        f"PROPERTIES {name} has no counterpart, and is left out" for name in properties if name not in _KNOWN
    ]
    if "LIMIT" in clauses:
        found.notes.append("LIMIT has no counterpart, and is left out")
    return found


def _clauses(rest: str) -> dict[str, str]:
    """Return the text behind each word, without an equals sign before it."""
    parts = _CLAUSE.split(rest)
    return {
        word.upper(): text.strip().removeprefix("=").strip()
        for word, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def _properties(found: Kcql, text: str) -> dict[str, str]:
    if rest := _PROPERTY.sub("", text).strip("(), \t\r\n"):
        found.problems.append(f"PROPERTIES {rest} cannot be parsed: write it as 'name'=value")
    return {key.lower(): _bare(value.strip("'")) for key, value in _PROPERTY.findall(text)}


def _width(found: Kcql, properties: Mapping[str, str]) -> None:
    kind, length = (properties.get(name, "").lower() for name in _PADDING)
    if kind == "noop":
        found.keys["filename.offset.zero.pad.width"] = "0"
    elif kind == "rightpad":
        found.notes.append(
            "PROPERTIES padding.type RightPad is left out: offsets are padded with leading zeros"
        )
    elif length:
        found.keys["filename.offset.zero.pad.width"] = length


def _flush(found: Kcql, clauses: Mapping[str, str], properties: Mapping[str, str]) -> None:
    # Lenses' defaults differ from the archiver's.
    found.keys.update(_DEFAULTS)
    for name, key in _FLUSH.items():
        text = properties.get(f"flush.{name}", clauses.get(f"WITH_FLUSH_{name.upper()}", "")).strip()
        if text:
            number = int(text) if text.isdecimal() else None
            if number is None:
                found.problems.append(f"FLUSH_{name.upper()} is not a whole number")
            elif number:  # 0 is the default
                found.keys[key] = str(number * 1000 if name == "interval" else number)
    if properties.get("store.envelope", "").lower() == "true":
        if found.keys.get("format.class") in ("AvroFormat", "ParquetFormat"):
            found.keys["archive.content"] = "record"
            found.notes.append(
                "store.envelope becomes 'archive.content' record, whose columns have other names"
            )
        else:
            found.problems.append("store.envelope: whole records need STOREAS AVRO or PARQUET")


def _folders(found: Kcql, text: str, *, are_named: bool) -> None:
    names, dates = _parts_of(found, text)
    unknown = [date for date in dates if date not in _DATES]
    if unknown:
        found.problems.append(f"PARTITIONBY _date.{unknown[0]}: write it in 'path.format'")
        return
    if dates:
        durations = [_DURATIONS[date] for date in dates if date in _DURATIONS]
        found.keys |= {
            "path.format": "/".join(
                _DATES[date] if are_named else _DATES[date].partition("=")[2] for date in dates
            ),
            "partition.duration.ms": str(min(durations, default=_DAY)),
            "timestamp.extractor": "Record",
            "partitioner.class": "FieldAndTimeBasedPartitioner" if names else "TimeBasedPartitioner",
        }
        found.notes.append(f"folders by time are '{found.keys['path.format']}'")
    if names:
        found.keys["partition.field.name"] = ",".join(names)
        found.keys.setdefault("partitioner.class", "FieldPartitioner")
    if names and dates and not are_named:
        found.keys["partition.field.format.path"] = "false"
    elif names and not are_named:
        found.problems.append("folders by fields alone always contain the field's name, like country=DE")


def _parts_of(found: Kcql, text: str) -> tuple[list[str], list[str]]:
    names, dates = [], []
    for part in filter(None, (_bare(part.strip()) for part in text.split(","))):
        if part.startswith("_date."):
            dates.append(part.removeprefix("_date."))
        elif part in ("_topic", "_partition"):
            found.notes.append(f"PARTITIONBY {part} is left out: it is in every file's key")
        elif part.startswith(("_key", "_header")):
            found.problems.append(
                f"PARTITIONBY {part}: folders can be named only after fields of the value, and time"
            )
        else:
            names.append(part.removeprefix("_value."))
    return names, dates


def _bare(name: str) -> str:
    return name.strip().strip("`")
