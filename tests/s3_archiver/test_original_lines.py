"""Lines of JSON are those of Kafka's own converters and of JsonFormat, but for five groups of values."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest

from sinksdk import SinkRecord, SinkRecords
from tests.kafka.maven import MavenError
from tests.needs import missing
from tests.s3_archiver.original_lines import CASES, Case, ask, kept
from tests.s3_archiver.support import TP, bench, config

BAD = None
"""No line: the record is bad."""

PAYLOAD = "an envelope's payload is written as it stands, not as its schema would have it"
BROKEN = "objects and arrays are not parsed: what is broken inside is written as it stands"
BEHIND = "what has more behind its first value is bad, not cut off"
UNICODE = "what is no Unicode is bad or stays as it is written, and is not replaced"
NUMBERS = "numbers that Java's types do not hold stay as they are"


def line_of(case: Case) -> str | None:
    """What the archiver writes."""
    keys = {"format.class": "JsonFormat", "value.converter": case.converter, "errors.tolerance": "all"}
    if case.converter == "json":
        keys["value.converter.schemas.enable"] = json.dumps(case.schemas)
    made = bench(settings=config(keys))
    made.harness.deliver(TP, SinkRecords.of(TP, [SinkRecord(*TP, offset=0, value=case.value)]))
    made.harness.revoke()
    if not made.visible():
        return BAD
    (data,) = (made.s3.data(key) for key in made.visible())
    line = data.decode()
    assert line.count("\n") == 1
    assert line.endswith("\n")
    return line[:-1]


def read(text: str) -> Any:
    """As readers read it: whole numbers whole, others as doubles. Raises ValueError for what is no JSON."""
    return json.loads(text, parse_constant=_refuse)


def is_same(line: str | None, answer: str) -> bool:
    """Whether both are bad, or the same value."""
    if line is BAD or answer.startswith("!"):
        return line is BAD and answer.startswith("!")
    try:
        return bool(read(line) == read(answer))
    except ValueError:
        return False


def group_of(case: Case, line: str | None, answer: str) -> str:
    """Which group a difference belongs to, each of which is told by what it says."""
    value = (case.value or b"").decode(errors="surrogateescape")
    if case.schemas:
        assert line is not BAD
        assert read(line) == json.loads(value)["payload"]
        return PAYLOAD
    if not value.isascii() and not _is_unicode(value):
        assert line is BAD
        return UNICODE
    if re.search(r"\\ud8", value):
        assert line == value
        return UNICODE
    if line is BAD:
        _, end = json.JSONDecoder().raw_decode(value)
        assert value[end:].strip(" ")
        return BEHIND
    assert line == value
    try:
        json.loads(value, parse_constant=_refuse)
    except ValueError:
        return BROKEN
    assert re.search(r"\d{19}|e400", value)
    return NUMBERS


def _is_unicode(value: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def test_every_line_is_the_originals_or_in_a_group_of_differences() -> None:
    """Counted, so that a change of what is the same is seen."""
    answers = kept()
    lines = [(case, line_of(case), answer) for case, answer in answers]
    groups = Counter(
        group_of(case, line, answer) for case, line, answer in lines if not is_same(line, answer)
    )

    assert len(answers) == 260
    assert len(answers) - sum(groups.values()) == 215
    assert groups == {PAYLOAD: 15, BROKEN: 17, BEHIND: 2, UNICODE: 4, NUMBERS: 7}


def test_the_kept_answers_are_of_these_cases() -> None:
    """None was left out, none was written by hand."""
    assert [case for case, _ in kept()] == list(CASES)


@pytest.mark.slow
def test_lines_are_those_of_kafka() -> None:
    """Asked anew, they are the same."""
    try:
        asked = ask(CASES)
    except MavenError as error:
        missing("Kafka Connect", f"its jars come from Maven Central: {error}")
    assert asked == [answer for _, answer in kept()]
