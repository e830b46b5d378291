"""Patterns of Java's ``SimpleDateFormat``, in UTC and in English."""

from __future__ import annotations

import datetime as dt
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sinksdk.values.calendar import (
    DAY,
    MINUTE,
    MONTHS,
    NUMBERS,
    WEEKDAYS,
    Moment,
    days_of,
    pattern_parts,
    weekday,
)

_NOON: Final = ("AM", "PM")
# As in Java, the parser is lenient: it ignores the rest of the text, and February 30 is a day of March.
# Unlike in Java, dates before 1582 are not Julian.
_LETTERS: Final = frozenset("yMdDHkKhmsSaEZX")
_OFFSETS: Final = {
    "Z": re.compile(r"([+-])(\d\d):?(\d\d)"),
    "X": re.compile(r"([+-])(\d\d)()"),
    "XX": re.compile(r"([+-])(\d\d)(\d\d)"),
    "XXX": re.compile(r"([+-])(\d\d):(\d\d)"),
}
_DIGITS: Final = re.compile(r"\d+", re.ASCII)
_SHORT: Final = 3  # number of letters up to which a name is abbreviated
_TWO_DIGITS: Final = 2


class _Piece(NamedTuple):
    text: str = ""
    letter: str = ""
    length: int = 0

    @property
    def is_number(self) -> bool:
        is_name = self.letter == "M" and self.length >= _SHORT
        return self.letter in set("yMdDHkKhmsS") and not is_name


@dataclass(frozen=True, slots=True)
class DateFormat:
    pieces: Sequence[_Piece]

    @classmethod
    def of(cls, pattern: str) -> DateFormat:
        return cls(list(_pieces(pattern)))

    def format(self, millis: int) -> str:
        at = Moment(millis, 0, "UTC")
        return "".join(piece.text or _formatted(piece, at) for piece in self.pieces)

    def parse(self, text: str) -> int | None:
        """Return the timestamp with which a text begins, or None."""
        fields: dict[str, int] = {}
        place = 0
        for piece, following in itertools.zip_longest(self.pieces, self.pieces[1:], fillvalue=_Piece()):
            found = _read(piece, text, place, fields, most=piece.length if following.is_number else None)
            if found is None:
                return None
            place = found
        return _timestamp(fields)


def _pieces(pattern: str) -> Iterator[_Piece]:
    try:
        parts = list(pattern_parts(pattern))
    except ValueError:
        raise ValueError(f"Unterminated quote in the pattern {pattern}") from None
    for text, length in parts:
        if length and text not in _LETTERS:
            known = " ".join(sorted(_LETTERS))
            raise ValueError(
                f"the letter '{text}' in the pattern {pattern} is not supported; supported are {known}"
            )
        if text == "X" and length > _SHORT:
            raise ValueError(f"invalid ISO 8601 format: length={length} in the pattern {pattern}")
        yield _Piece(letter=text, length=length) if length else _Piece(text=text)


def _formatted(piece: _Piece, at: Moment) -> str:
    letter, count = piece.letter, piece.length
    if letter in "ZX":
        return "+0000" if letter == "Z" else "Z"
    if letter == "a":
        return _NOON[at.hour // 12]
    if letter == "E" or (letter == "M" and count >= _SHORT):
        name = WEEKDAYS[weekday(at.days) - 1] if letter == "E" else MONTHS[at.month - 1]
        return name if count > _SHORT else name[:_SHORT]
    if letter == "y" and count == _TWO_DIGITS:
        return f"{at.year % 100:02}"
    number = at.millis % 1000 if letter == "S" else NUMBERS[letter][1](at)
    return f"{number:0{count}}"


def _read(piece: _Piece, text: str, place: int, fields: dict[str, int], *, most: int | None) -> int | None:
    """Read a piece into ``fields``; return the position after it, or None."""
    letter = piece.letter
    if not letter:
        return place + len(piece.text) if text.startswith(piece.text, place) else None
    if not piece.is_number and letter not in "ZX":
        names = {"M": MONTHS, "E": WEEKDAYS, "a": _NOON}[letter]
        return _read_name(letter, names, text, place, fields)
    end = len(text) if most is None else place + most  # leading blanks count as digits, as in Java
    while text[place : place + 1] in (" ", "\t"):
        place += 1
    if letter in "ZX":
        return _read_offset(piece, text, place, fields)
    return _read_number(piece, _DIGITS.match(text, place, end), fields)


def _read_number(piece: _Piece, found: re.Match[str] | None, fields: dict[str, int]) -> int | None:
    if found is None:
        return None
    number = int(found.group())
    if piece.letter == "y" and piece.length <= _TWO_DIGITS == len(found.group()):
        number = _full_year(number)
    fields[piece.letter] = number
    return found.end()


def _full_year(year: int) -> int:
    # As in Java, two digits are a year from 80 years ago to 20 years from now.
    first = dt.datetime.now(dt.UTC).year - 80
    return first + (year - first) % 100


def _read_offset(piece: _Piece, text: str, place: int, fields: dict[str, int]) -> int | None:
    kind = piece.letter * (piece.length if piece.letter == "X" else 1)
    if piece.letter == "X" and text.startswith("Z", place):
        return place + 1
    found = _OFFSETS[kind].match(text, place)
    if found is None:
        return None
    sign, hours, minutes = found.groups()
    fields["Z"] = (int(hours) * 60 + int(minutes or 0)) * (-1 if sign == "-" else 1)
    return found.end()


def _read_name(
    letter: str, names: Sequence[str], text: str, place: int, fields: dict[str, int]
) -> int | None:
    lower = text[place:].lower()
    for number, name in enumerate(names, 1):
        for written in (name, name[:_SHORT]):
            if lower.startswith(written.lower()):
                fields[letter] = number
                return place + len(written)
    return None


def _timestamp(fields: dict[str, int]) -> int:  # fields may be out of range
    year = fields.get("y", 1970)
    if "D" in fields and not fields.keys() & {"M", "d"}:
        days = days_of(year) + fields["D"] - 1
    else:
        days = days_of(year, fields.get("M", 1), fields.get("d", 1))
    if "H" in fields or "k" in fields:
        hour = fields.get("H", fields.get("k", 0) % 24)
    else:
        hour = fields.get("K", fields.get("h", 0) % 12) + 12 * (fields.get("a", 1) - 1)
    minutes = hour * 60 + fields.get("m", 0) - fields.get("Z", 0)
    return days * DAY + minutes * MINUTE + fields.get("s", 0) * 1000 + fields.get("S", 0)
