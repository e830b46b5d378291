"""Lines of JSON equal those of Kafka's converters and Confluent's JsonFormat, except for six groups of values."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest

from sinksdk import SinkRecord, SinkRecords
from tests.helpers.needs import missing
from tests.kafka.maven import MavenError
from tests.s3_archiver.original_lines import CASES, Case, ask, kept
from tests.s3_archiver.support import TP, bench, config

BAD, NULL = "!DataException", "!null"

BEHIND = "what has more behind its first value is bad, not cut off"
UNICODE = "what is no Unicode is bad or stays as it is written, and is not replaced"
NUMBERS = "numbers that Java's types do not hold stay as they are"
TYPES = "what is not of the type that its schema says is bad; Java cuts it to size"
SCALES = "decimals of another scale than their schema's get that scale; Java fails at them"
LISTS = "lists of structures are written; Confluent's sink fails at them"


def line_of(case: Case) -> str:
    keys = {
        "format.class": "JsonFormat",
        "value.converter": case.converter,
        "behavior.on.null.values": "ignore",
        "flush.size": "1",
    }
    if case.converter == "json":
        keys["value.converter.schemas.enable"] = json.dumps(case.schemas)
    made = bench(settings=config(keys))
    made.harness.deliver(TP, SinkRecords.of(TP, [SinkRecord(*TP, offset=0, value=case.value)]))
    made.harness.revoke()
    failure = made.harness.outcome(TP).failure
    if failure is not None:
        assert "failed in VALUE_CONVERTER" in failure.message
        return BAD
    if not made.visible():
        assert made.committed() == 1
        return NULL
    (data,) = (made.s3.data(key) for key in made.visible())
    line = data.decode()
    assert line.count("\n") == 1
    assert line.endswith("\n")
    return line[:-1]


def read(text: str) -> Any:
    # The lines are parsed as by a reader: whole numbers stay whole, others are doubles.
    return json.loads(text, parse_constant=_refuse)


def is_same(line: str, answer: str) -> bool:
    if line.startswith("!") or answer.startswith("!"):
        return line == answer
    return bool(read(line) == read(answer))


def group_of(case: Case, line: str, answer: str) -> str:  # noqa: PLR0911 - a group each
    if answer == "!InvalidDefinitionException":
        assert read(line) == json.loads(case.value or b"")["payload"]
        return LISTS
    value = (case.value or b"").decode(errors="surrogateescape")
    if case.schemas and answer == BAD:
        assert "Decimal" in value
        return SCALES
    if case.schemas:
        assert line == BAD
        assert read(answer) != json.loads(value)["payload"]
        return TYPES
    if not value.isascii() and not _is_unicode(value):
        assert line == BAD
        return UNICODE
    if re.search(r"\\ud8", value):
        assert line == value
        return UNICODE
    if line == BAD:
        _, end = json.JSONDecoder().raw_decode(value)
        assert value[end:].strip(" ")
        return BEHIND
    assert re.search(r"\d{19}|e400", value)
    return NUMBERS


def _is_unicode(value: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def test_every_line_equals_kafkas_or_is_a_listed_difference() -> None:
    answers = kept()
    lines = [(case, line_of(case), answer) for case, answer in answers]
    groups = Counter(
        group_of(case, line, answer) for case, line, answer in lines if not is_same(line, answer)
    )

    assert len(answers) == 260
    assert len(answers) - sum(groups.values()) == 239
    assert groups == {BEHIND: 4, UNICODE: 4, NUMBERS: 7, TYPES: 4, SCALES: 1, LISTS: 1}


def test_the_recorded_lines_cover_every_case() -> None:
    assert [case for case, _ in kept()] == list(CASES)


@pytest.mark.extended
@pytest.mark.slow
def test_the_recorded_lines_equal_kafkas() -> None:
    try:
        asked = ask(CASES)
    except MavenError as error:
        missing("Kafka Connect", f"its jars come from Maven Central: {error}")
    assert asked == [answer for _, answer in kept()]
