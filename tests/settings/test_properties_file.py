"""Java's properties files."""

from __future__ import annotations

import pytest

from sinksdk import ConfigException
from sinksdk.settings.properties import Property, read_properties


def pairs(text: str) -> dict[str, str]:
    return {found.key: found.value for found in read_properties(text, "x.properties")}


def test_comment_is_not_continued_by_a_backslash() -> None:
    assert pairs("# where: C:\\\nsecurity.protocol=SSL\n  ! too \\\nb=1") == {
        "security.protocol": "SSL",
        "b": "1",
    }


def test_odd_number_of_backslashes_continues_a_line() -> None:
    assert pairs("a=C:\\\\\nb=x\\\\\\\n  # y\nc=1 \\\r\n\t 2\\\n\nd=end\\") == {
        "a": "C:\\",
        "b": "x\\# y",
        "c": "1 2",
        "d": "end",
    }


def test_escapes_are_decoded() -> None:
    text = r"""
a=h\:9092
b=a\\b
c=\t\n\r\f\u00e9\ud83d\ude00\q\"
d\=e\ f\:=g
"""
    assert pairs(f"{text}h=\\  x\\ ") == {
        "a": "h:9092",
        "b": "a\\b",
        "c": '\t\n\r\fé😀q"',
        "d=e f:": "g",
        "h": "  x ",
    }


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("a=b", Property(1, "a", "b", "=")),
        (" a : =b ", Property(1, "a", "=b", ":")),
        ("a b = c", Property(1, "a", "b = c", "")),
        ("a\tb", Property(1, "a", "b", "")),
        ("a", Property(1, "a", "", "")),
        ("=b", Property(1, "", "b", "=")),
        ("a=\u2028b\x0bc\x85", Property(1, "a", "\u2028b\x0bc\x85", "=")),
    ],
)
def test_key_ends_at_the_first_separator(line: str, found: Property) -> None:
    assert list(read_properties(line, "x.properties")) == [found]


def test_properties_have_line_numbers() -> None:
    assert [found.line for found in read_properties("# c\n\na=1\\\n2\r\nb=2\rc=3", "x")] == [3, 5, 6]


def test_invalid_escape_is_reported_with_its_line() -> None:
    with pytest.raises(ConfigException, match=r"^x\.properties: line 2: '\\u' must be followed by four"):
        pairs("a=1\nb=C:\\users")
