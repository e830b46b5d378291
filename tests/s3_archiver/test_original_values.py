"""Files hold what Connect and Confluent's sink write of each record, except for the listed departures."""

from __future__ import annotations

import base64
import functools
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import numpy as np
import pytest

from tests.helpers.needs import missing
from tests.kafka.maven import MavenError
from tests.s3_archiver.original_values import (
    FORMATS,
    IGNORED_DECIMALS,
    ITEM,
    SCHEMAS,
    SETUPS,
    Answer,
    Setup,
    ask,
    kept,
)
from tests.s3_archiver.values_run import outcomes, registry

_STAGES: Final = {"convert", "transform", "write"}


@pytest.fixture(scope="module")
def registry_url() -> Iterator[str]:
    with registry().running() as server:
        yield server.url


def is_bad(answer: Answer) -> bool:
    return isinstance(answer, dict) and not _STAGES.isdisjoint(answer)


def is_written(answer: Answer) -> bool:
    return isinstance(answer, dict) and not is_bad(answer) and "refused" not in answer


def is_refused(answer: Answer) -> bool:
    return isinstance(answer, dict) and "refused" in answer


def original(answer: Answer, format_name: str) -> Answer:
    return answer[format_name] if isinstance(answer, dict) and format_name in answer else answer


def comparable(answer: Answer) -> str:
    if isinstance(answer, dict) and "text" in answer:
        with suppress(ValueError):  # a text that is no JSON is compared as a text
            answer = {"json": json.loads(answer["text"], parse_constant=_no_constant)}
    return json.dumps(answer, sort_keys=True)


def _no_constant(name: str) -> Any:
    message = f"a reader of JSON refuses {name}"
    raise ValueError(message)


def is_same(setup: Setup, theirs: Answer, ours: Answer) -> bool:
    if is_bad(theirs):  # both must refuse the record at the same stage: conversion, transforms, writing
        return is_bad(ours) and theirs.keys() == ours.keys()
    if theirs == "null" and setup.writes == "key":  # Confluent's writer of keys raises a DataException
        return is_bad(ours) and "it has no key" in str(ours.get("write"))
    return comparable(theirs) == comparable(ours)


@functools.cache
def table() -> dict[str, list[Answer]]:
    return kept()


class Difference:
    def __init__(self, setup: Setup, format_name: str, place: int, ours: Answer) -> None:
        self.setup = setup
        self.format_name = format_name
        self.given = setup.inputs[place]
        self.answer = table()[setup.name][place]
        self.theirs = original(self.answer, format_name)
        self.ours = ours

    def __str__(self) -> str:
        return f"{self.setup.name} {self.format_name} {self.given!r}: {self.theirs} here {self.ours}"


# -- departures --------------------------------------------------------------------------------------------


def _says(one: Difference, *texts: str) -> bool:
    return is_bad(one.ours) and any(text in str(one.ours) for text in texts)


def _schema_of(one: Difference) -> Any:
    given = one.given or b""
    is_framed = one.setup.converter.startswith("avro") and given[:1] == b"\0"
    return SCHEMAS.get(int.from_bytes(given[1:5])) if is_framed else None


def _has_type(one: Difference, *types: Any) -> bool:
    return any(json.dumps(wanted) in json.dumps(_schema_of(one)) for wanted in types)


def _is_json_or_text_as_bytes(one: Difference) -> bool:
    if (
        one.format_name != "ByteArrayFormat"
        or one.theirs != {"write": "DataException"}
        or not is_written(one.ours)
    ):
        return False
    given = base64.b64decode(one.ours["bytes"])
    written = given.decode(errors="replace")
    if given == one.given or written == json.loads(original(one.answer, "JsonFormat").get("text", "null")):
        return True
    with suppress(ValueError):
        json.loads(written, parse_constant=_no_constant)
        return True
    return False


def _has_wide_number(one: Difference) -> bool:
    is_wide = re.search(rb"\d{19}|e400|-0\.0", one.given or b"") is not None
    return is_wide and is_written(one.theirs) and is_written(one.ours)


def _is_null_kept(one: Difference) -> bool:
    # Confluent's file has the default where ours has the null.
    has_default = b'"default":' in (one.given or b"") or one.setup.converter == "avro-nulls"
    if not one.setup.converter.endswith("-nulls") or not has_default:
        return False
    return "null" in json.dumps(one.ours) or one.ours == "null"


def _is_union_of_fields(one: Difference) -> bool:
    # Here a union is a structure with a field for each of its types; Confluent's members have no names.
    if not _has_type(one, ["int", "string"], ["null", "int", "string"]) or not is_written(one.ours):
        return False
    given = json.dumps(one.theirs).replace("member0", "int").replace("member1", "string")
    text = json.dumps(one.ours)
    for member in ('"int": 1', '"string": "x"'):
        names = '{"int": 1, "string": null}' if "1" in member else '{"int": null, "string": "x"}'
        if one.format_name == "AvroFormat":
            text = text.replace(names, member.partition(": ")[2])
    return comparable(json.loads(given)) == comparable(json.loads(text))


def _is_map_of_pairs(one: Difference) -> bool:
    # In Confluent's file this is a list of entries, in ours a map.
    if one.format_name != "ParquetFormat" or not (is_written(one.theirs) and is_written(one.ours)):
        return False
    entries = re.sub(r'\{"key": ([^{}]*), "value": ([^{}]*)\}', r"[\1, \2]", json.dumps(one.theirs))
    return entries != json.dumps(one.theirs) and comparable(json.loads(entries)) == comparable(one.ours)


def _is_same_float(one: Difference) -> bool:
    if one.setup.chain != "cast-float32" or one.format_name != "JsonFormat" or not is_written(one.ours):
        return False
    theirs, ours = (np.float32(float(answer["text"])) for answer in (one.theirs, one.ours))
    return bool(theirs == ours)


def _is_of_logical_type(one: Difference) -> bool:
    given = one.given or b""
    return b"connect.data." in given or _has_type(one, *_LOGICAL_TYPES)


def _is_filled_item(one: Difference) -> bool:
    # The two results differ by a null and its default in a value that a transform made.
    if one.setup.chain == "none" or not _has_type(one, ITEM):
        return False
    return json.dumps(one.theirs).replace("5", "null") == json.dumps(one.ours).replace("5", "null")


def _is_ignored_decimal(one: Difference) -> bool:
    # In Confluent's Parquet file this is bytes, in ours a decimal or a bad record.
    if one.format_name != "ParquetFormat" or not _has_type(one, *IGNORED_DECIMALS):
        return False
    return "$decimal" in str(one.ours) or _says(one, "of a scale outside of 0 to 76")


_LOGICAL_TYPES: Final = ("decimal", "Decimal", "date", "time-millis", "timestamp-millis")
# The name of a record type that contains itself.
_NODE: Final = "Node"


# Intended differences from Confluent's files, each with a predicate of the two results.
DEPARTURES: Final[Mapping[str, Callable[[Difference], bool]]] = {
    "a configuration is refused at the start where Confluent's sink could write none of its records": (
        lambda one: is_refused(one.ours) and not is_ever_written(one.setup, one.format_name)
    ),
    "values without a schema are no Avro; Confluent's sink writes records called Anything": (
        lambda one: is_anything(one.theirs) and not is_written(one.ours)
    ),
    "ByteArrayFormat is refused with converters that give more than bytes": (
        lambda one: one.format_name == "ByteArrayFormat" and is_refused(one.ours)
    ),
    "ByteArrayFormat writes texts, and behind transforms other values as JSON, which are bad records there": (
        _is_json_or_text_as_bytes
    ),
    "JSON with more behind its first value is bad; Connect drops what is behind": (
        lambda one: _says(one, "text follows its first JSON value")
    ),
    "what is no UTF-8 is bad; Connect replaces it": lambda one: _says(one, "UTF-8", "utf-8"),
    "a payload that does not fit its schema is bad; Connect cuts numbers, and makes 0 of texts": (
        lambda one: _says(one, "does not fit type")
    ),
    "a timestamp beyond the year 9999 is bad": lambda one: _says(one, "outside the years"),
    "numbers that Java's types do not hold stay as they are": _has_wide_number,
    "names that Avro does not allow are replaced; Confluent's sink fails": (
        lambda one: one.theirs == {"write": "SchemaParseException"} and is_written(one.ours)
    ),
    "a structure may have a default; Connect cannot read the schema": (
        lambda one: (
            one.theirs == {"convert": "SchemaBuilderException"} and b'"default":{' in (one.given or b"")
        )
    ),
    "AvroFormat copies datums of a registry, and so finds bad ones when it writes them": (
        lambda one: (
            one.setup.converter.startswith("avro")
            and one.format_name == "AvroFormat"
            and one.theirs == {"convert": "DataException"}
            and is_bad(one.ours)
        )
    ),
    "a list of structures is JSON; Confluent's sink fails": (
        lambda one: one.theirs == {"write": "InvalidDefinitionException"} and is_written(one.ours)
    ),
    "replace.null.with.default=false and ignore.default.for.nullables hold in the file, too; Confluent's formats put "
    "the default there": (_is_null_kept),
    "a union is a structure with a field for each type, as in Connect's JSON; Confluent's sink makes a union of it "
    "again, whose members Parquet calls by their numbers": _is_union_of_fields,
    "maps whose keys are no texts are maps of Parquet; there they are lists": _is_map_of_pairs,
    "floats have the shortest text that is read as them; Java before 19 writes longer ones": _is_same_float,
    "Avro's times in microseconds have their type; in Connect they are numbers": (
        lambda one: _has_type(one, "time-micros", "timestamp-micros")
    ),
    "an Avro schema that contains itself has no type: its values are those of JSON": (
        lambda one: _has_type(one, _NODE)
    ),
    "the null of an Avro schema is a null value; Confluent's converter returns nothing, which stops a worker": (
        lambda one: _schema_of(one) in ("null", ["null", "string"]) and (one.given or b"")[5:] in (b"", b"\0")
    ),
    "what Cast and MaskField make of Connect's logical types is written; Confluent's sink fails": (
        lambda one: (
            is_bad(one.theirs) and "write" in one.theirs and is_written(one.ours) and _is_of_logical_type(one)
        )
    ),
    "an optional structure is a row of Parquet; Confluent's sink fails": (
        lambda one: (
            one.format_name == "ParquetFormat"
            and one.theirs == {"write": "IllegalArgumentException"}
            and is_written(one.ours)
        )
    ),
    "nulls of items have their default before transforms, which may take the items out of a structure, put them in "
    "one or make keys of another format of them; Confluent's JsonFormat writes it in structures": _is_filled_item,
    "a decimal that Avro's library ignores is one in Parquet, or bad; Confluent's file holds its bytes": (
        _is_ignored_decimal
    ),
    "columns do not say what must not be null: a field of no structure may be": (
        lambda one: one.setup.chain == "extract-hoist" and one.theirs == {"transform": "DataException"}
    ),
}


def group_of(one: Difference) -> str | None:
    """Return the departure that a difference belongs to, or None if it is a defect."""
    return next((reason for reason, holds in DEPARTURES.items() if holds(one)), None)


def is_ever_written(setup: Setup, format_name: str) -> bool:
    answers = (original(answer, format_name) for answer in table()[setup.name])
    return any(is_written(answer) and not is_anything(answer) for answer in answers)


def is_anything(answer: Answer) -> bool:
    text = json.dumps(answer)
    return all(f'"{name}":' in text for name in _FIELDS_OF_ANYTHING)


_FIELDS_OF_ANYTHING: Final = ("array", "boolean", "bytes", "double", "float", "int", "long", "map", "string")


# -- tests -------------------------------------------------------------------------------------------------

_PAIRS: Final = tuple(itertools.product(SETUPS, FORMATS))
# A prime number, so that all setups and formats occur.
_SAMPLE: Final = 23


def differences(
    setup: Setup, format_name: str, registry_url: str, *, is_named: bool = True
) -> Iterator[Difference]:
    for place, ours in enumerate(outcomes(setup, format_name, registry_url, is_named=is_named)):
        found = Difference(setup, format_name, place, ours)
        if not is_same(setup, found.theirs, ours):
            yield found


def explained(pairs: Iterable[tuple[Setup, str]], registry_url: str) -> set[str]:
    found, defects = set[str](), []
    for setup, format_name in pairs:
        for one in differences(setup, format_name, registry_url):
            reason = group_of(one)
            if reason is None:
                defects.append(str(one))
            else:
                found.add(reason)
    assert not defects, "\n".join([f"{len(defects)} records:", *defects[:20]])
    return found


def test_values_and_keys_equal_confluents_or_are_a_listed_difference(registry_url: str) -> None:
    assert explained(_PAIRS[::_SAMPLE], registry_url)


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_all_values_and_keys_equal_confluents_or_are_a_listed_difference(registry_url: str) -> None:
    assert explained(_PAIRS, registry_url) == DEPARTURES.keys()


@pytest.mark.parametrize(("format_name", "converter"), [("JsonFormat", "json"), ("ByteArrayFormat", "bytes")])
def test_values_without_a_converter_are_read_by_the_format(
    format_name: str, converter: str, registry_url: str
) -> None:
    setup = Setup(converter, "none", "value", "value")
    found = differences(setup, format_name, registry_url, is_named=False)
    for one in (one for one in found if group_of(one) is None):
        envelope = json.loads(one.given or b"")
        assert json.loads(one.ours["text"]) == envelope["payload"], str(one)


def test_the_recorded_values_cover_every_setup() -> None:
    assert {setup.name: len(setup.inputs) for setup in SETUPS} == {
        name: len(answers) for name, answers in table().items()
    }


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_recorded_values_equal_kafkas_and_confluents() -> None:
    try:
        asked = ask(SETUPS)
    except MavenError as error:
        missing("Kafka Connect", f"its jars come from Maven Central: {error}")
    assert dict(zip((setup.name for setup in SETUPS), asked, strict=True)) == kept()
