"""Records that a task must not return, because they would fail every reader of the topic."""

from __future__ import annotations

from typing import Any

import pytest

from sinksdk import DataException, Header
from sinksdk.engine.transactions import checked_position
from sinksdk.source import SourceRecord

TASK = "connector files, task 3"


def record(**fields: Any) -> SourceRecord:
    """Return a valid record, apart from these fields."""
    good: dict[str, Any] = {"source_partition": {"file": "a"}, "source_offset": {"line": 1}}
    return SourceRecord(**{**good, "topic": "lines", "value": b"text", **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"key": b"", "value": None},
        {"topic": "a/b ä"},
        {"partition": 0, "timestamp": 0},
        {"partition": 2**31 - 1, "timestamp": (2**63 - 1) // 1000},
        {"headers": (Header("a", b"1"), Header("a", None))},
        {"headers": [Header("ä", b"")]},
    ],
)
def test_records_readable_by_every_reader_are_accepted(fields: dict[str, Any]) -> None:
    assert checked_position(record(**fields), TASK).offset == {"line": 1}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"topic": None}, "a record for topic None: its topic must be a non-empty string"),
        ({"topic": b"lines"}, "a record for topic b'lines': its topic must be a non-empty string"),
        ({"topic": ""}, "a record for topic '': its topic must be a non-empty string"),
        ({"topic": "a\0b"}, r"a record for topic 'a\x00b': its topic must be"),
        ({"topic": "\udcff"}, r"a record for topic '\udcff': its topic must be"),
        ({"key": "text"}, "its key is of type str; encode it to bytes"),
        ({"value": bytearray(b"x")}, "its value is of type bytearray; encode it to bytes"),
        ({"partition": -1}, "its partition is -1; give it an int from 0 to 2147483647, or None"),
        ({"partition": 2**31}, "its partition is 2147483648;"),
        ({"partition": True}, "its partition is True;"),
        ({"partition": 1.0}, "its partition is 1.0;"),
        ({"partition": "1"}, "its partition is '1';"),
        ({"timestamp": -1}, "its timestamp is -1; give it milliseconds since the epoch as an int, or None"),
        ({"timestamp": 2**63 - 1}, "its timestamp is 9223372036854775807;"),
        ({"timestamp": 1.5}, "its timestamp is 1.5;"),
        ({"timestamp": True}, "its timestamp is True;"),
        ({"headers": None}, "its headers are of type NoneType; give it a tuple of Header"),
        ({"headers": {"a": b"1"}}, "its headers are of type dict; give it a tuple of Header"),
        ({"headers": (("a", b"1"),)}, "one of its headers is a tuple; give it a tuple of Header"),
        ({"headers": (Header("\udcff", b"1"),)}, r"a header's key is '\udcff'; it must be a string"),
        ({"headers": (Header("a", "1"),)}, "the value of its header 'a' is of type str; encode it to bytes"),
        ({"source_offset": [1]}, "a source offset must be a mapping of names to values, not a list"),
    ],
)
def test_records_unreadable_by_some_reader_fail_the_task(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataException) as error:
        checked_position(record(**fields), TASK)
    assert str(error.value).startswith(f"{TASK}: a record for topic ")
    assert problem in str(error.value)
