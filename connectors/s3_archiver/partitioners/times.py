"""Format local times by ``path.format``, in Joda-Time's letters, and read fields as timestamps."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sinksdk import ConfigException
from sinksdk.config import time_zone
from sinksdk.connectors.s3_archiver.formats.columns import Longs, as_mask, long_scalar, null_rows
from sinksdk.values.calendar import (
    CYCLE,
    DAY,
    HOUR,
    MINUTE,
    MONTHS,
    NUMBERS,
    SECOND,
    WEEKDAYS,
    Date,
    Moment,
    days_of,
    pattern_parts,
    weekday,
    weeks_begin,
)

# The last timestamp that can be formatted, in the year 292278994; the first one is as far from zero.
LAST: Final = 2**63 - 1 - 4 * DAY

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


# -- formats -------------------------------------------------------------------------------------

_TWO_DIGITS: Final = "Yyx"
_WHOLE: Final = 3  # number of letters from which on months are text, and zones are names
_LONG: Final = 4  # number of letters from which on text is not abbreviated

Piece = Callable[[Moment], str]


class PathFormat:
    """Format times by a pattern of Joda-Time's letters."""

    def __init__(self, pattern: str, locale: str = "") -> None:
        self._pattern = pattern
        self._is_english = locale.replace("_", "-").partition("-")[0].lower() in ("", "en", "us", "root")
        self._locale = locale
        # Milliseconds, counted from midnight, within which the text never changes.
        self.unit = DAY
        # Whether the text depends on more than the local time, such as an offset.
        self.has_offset = False
        self._pieces = list(self._read())
        if not pattern.strip():
            raise ConfigException(
                "it is empty: set the format of folders, such as 'year'=YYYY/'month'=MM/'day'=dd"
            )

    def __call__(self, at: Moment) -> str:
        return "".join([piece if isinstance(piece, str) else piece(at) for piece in self._pieces])

    def _read(self) -> Iterator[str | Piece]:
        try:
            for text, length in pattern_parts(self._pattern):
                yield self._piece(text, length) if length else text
        except ValueError as error:
            raise ConfigException(
                f"the apostrophe before {str(error)!r} is not closed: write text as 'text'"
            ) from error

    def _piece(self, letter: str, length: int) -> Piece:
        if (letter == "M" and length >= _WHOLE) or letter in "EaG":
            return self._text(letter, length)
        if letter in NUMBERS:
            unit, number = NUMBERS[letter]
            self.unit = min(self.unit, unit)
            if letter in _TWO_DIGITS and length == 2:  # noqa: PLR2004 - as Joda has it: the century is left out
                return lambda at: f"{abs(number(at)) % 100:02}"
            return lambda at: f"{'-' * (number(at) < 0)}{abs(number(at)):0{length}}"
        if letter == "S":
            self.unit = 1
            return lambda at: f"{at.millis % SECOND:03}".ljust(length, "0")[:length]
        if letter == "Z":
            self.has_offset = True
            return (
                (lambda at: at.zone)
                if length >= _WHOLE
                else lambda at: _offset(at.offset, ":" * (length - 1))
            )
        raise ConfigException(
            f"{letter * length!r} has no meaning: put text between apostrophes ('date'=YYYY-MM-dd), and use "
            f"the letters C Y x w e E y D M d a K h H k m s S Z for parts of the time"
            if letter != "z"
            else f"{letter * length!r}, a zone's name in words, is not supported: use Z (+0100), ZZ (+01:00) "
            f"or ZZZ (Europe/Berlin)"
        )

    def _text(self, letter: str, length: int) -> Piece:
        if not self._is_english:
            raise ConfigException(
                f"{letter * length!r} is text, which is available only in English, not in 'locale' "
                f"{self._locale}: use numbers (MM for the month, e for the weekday, HH for the hour), or "
                f"locale=en"
            )
        cut = None if length >= _LONG else 3
        if letter == "M":
            return lambda at: MONTHS[at.month - 1][:cut]
        if letter == "E":
            return lambda at: WEEKDAYS[weekday(at.days) - 1][:cut]
        if letter == "G":
            return lambda at: "AD" if at.year > 0 else "BC"
        self.unit = min(self.unit, HOUR)
        return lambda at: "AM" if at.hour < 12 else "PM"  # noqa: PLR2004 - noon


def _offset(offset: int, colon: str) -> str:
    hours, minutes = divmod(abs(offset) // MINUTE, 60)
    return f"{'-' if offset < 0 else '+'}{hours:02}{colon}{minutes:02}"


# -- zones ---------------------------------------------------------------------------------------

# No zone changes its offset before this time.
_NO_ZONES: Final = days_of(1800) * DAY
# From this time on daylight saving time follows fixed rules, so all changes repeat every 400 years.
_ONLY_RULES: Final = days_of(2100) * DAY
_AGAIN: Final = _ONLY_RULES + CYCLE * DAY


class Spans(NamedTuple):
    """Periods between two changes of a time zone's offset."""

    begins: int | Longs
    # Milliseconds to add for the local time.
    offsets: int | Longs


class Zone:
    def __init__(self, name: str) -> None:
        self._zone = time_zone(name)
        self.name = str(self._zone)
        self._from = self._to = 0  # the range whose changes are known, in milliseconds
        # Times at which the offset changes, and the offsets: before the first change, then from each change
        # on.
        self._changes: Longs = np.empty(0, np.int64)
        self._offsets: Longs = np.empty(0, np.int64)

    def spans(self, timestamps: Longs, margin: int = 0) -> Spans:
        """Return the span of each timestamp, or one that all share with a margin in milliseconds."""
        first, last = int(timestamps.min()), int(timestamps.max())
        if first < _NO_ZONES or last >= _AGAIN:
            timestamps = np.maximum(timestamps, _NO_ZONES)
            later = timestamps >= _AGAIN
            timestamps[later] = _ONLY_RULES + (timestamps[later] - _ONLY_RULES) % (_AGAIN - _ONLY_RULES)
            first, last = int(timestamps.min()), int(timestamps.max())
        first, last = max(first - margin, _NO_ZONES), min(last + margin, _AGAIN)
        self._learn_changes(first, last)
        begin, end = np.searchsorted(self._changes, [first, last], "right").tolist()
        begins = np.concatenate(([_NO_ZONES], self._changes))
        if begin == end:
            return Spans(int(begins[begin]), int(self._offsets[begin]))
        found = np.searchsorted(self._changes, timestamps, "right")
        return Spans(begins[found], self._offsets[found])

    def offset(self, timestamp: int) -> int:
        offset = self.spans(np.array([timestamp])).offsets
        return offset if isinstance(offset, int) else int(offset[0])

    def moment(self, local: int) -> Moment:
        # For a local time that a clock change skips, the result is the one of Joda-Time.
        estimate = self.offset(local)
        offset = self.offset(local - estimate)
        # Joda-Time uses the offset before the change. West of Greenwich, ``estimate`` is that offset.
        if estimate != offset and estimate < 0 and self.offset(local - offset) != offset:
            offset = estimate
        offset_there = self.offset(local - offset)
        return Moment(local - offset + offset_there, offset_there, self.name)

    def _learn_changes(self, first: int, last: int) -> None:
        if self._from <= first and last < self._to:
            return
        begin, end = days_of(_year_of(first)) * DAY, days_of(_year_of(last) + 1) * DAY
        if self._from == self._to:
            self._from = self._to = begin
            self._offsets = np.array([self._offset_at(begin // SECOND) * SECOND], np.int64)
        if begin < self._from:
            changes, offsets = self._found(begin, self._from)
            self._changes = np.concatenate((changes, self._changes))
            self._offsets = np.concatenate((offsets[:-1], self._offsets))
            self._from = begin
        if end > self._to:
            changes, offsets = self._found(self._to, end)
            self._changes = np.concatenate((self._changes, changes))
            self._offsets = np.concatenate((self._offsets, offsets[1:]))
            self._to = end

    def _found(self, begin: int, end: int) -> tuple[Longs, Longs]:
        # Python's zones convert one datetime at a time, so they are queried once for each day (a year takes
        # less than 1 ms), and for seconds only within a day in which the offset changes.
        at, last = begin // SECOND, end // SECOND
        changes: list[int] = []
        offsets = [self._offset_at(at)]
        while at < last:
            then = at + DAY // SECOND
            while self._offset_at(then) != offsets[-1]:
                at = self._change(at, then, offsets[-1])
                changes.append(at)
                offsets.append(self._offset_at(at))
            at = then
        return np.array(changes, np.int64) * SECOND, np.array(offsets, np.int64) * SECOND

    def _change(self, before: int, behind: int, offset: int) -> int:
        while behind - before > 1:
            middle = (before + behind) // 2
            if self._offset_at(middle) == offset:
                before = middle
            else:
                behind = middle
        return behind

    def _offset_at(self, seconds: int) -> int:
        offset = (_EPOCH + dt.timedelta(seconds=seconds)).astimezone(self._zone).utcoffset()
        return 0 if offset is None else offset.days * 86_400 + offset.seconds


def _year_of(timestamp: int) -> int:
    return Date.of(timestamp // DAY).year


_BOUND: Final = 2**63


def milliseconds(column: pa.Array) -> tuple[Longs, dict[int, str]]:
    """Return epoch milliseconds and, by row, why a value cannot be converted."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    found = np.zeros(len(column), np.int64)
    nulls, rows = null_rows(column)
    wrong = dict.fromkeys(nulls.tolist(), "null")
    if not len(rows):
        return found, wrong
    column = column.drop_null() if wrong else column
    for test, read in _READERS:
        if test(kind):
            values, problems = read(column)
            found[rows] = values
            return found, wrong | {int(rows[place]): what for place, what in problems.items()}
    return found, wrong | dict.fromkeys(rows.tolist(), f"a value of type {kind}")


def _whole(column: pa.Array) -> tuple[Longs, dict[int, str]]:
    if pa.types.is_uint64(column.type):
        beyond = np.flatnonzero(as_mask(pc.greater(column, long_scalar(_BOUND - 1, pa.uint64()))))
        numbers = np.from_dlpack(column).astype(np.int64)
        return numbers, dict.fromkeys(beyond.tolist(), "a number that is not a timestamp")
    return np.from_dlpack(column.cast(pa.int64())).view(np.int64), {}


def _fractions(column: pa.Array) -> tuple[Longs, dict[int, str]]:
    numbers = np.from_dlpack(column.cast(pa.float64()))
    good = np.abs(numbers) < _BOUND
    values = np.where(good, numbers, 0).astype(np.int64)
    return values, dict.fromkeys(np.flatnonzero(~good).tolist(), "a number that is not a timestamp")


def _moments(column: pa.Array) -> tuple[Longs, dict[int, str]]:
    per, unit = {"s": (1, 1_000), "ms": (1, 1), "us": (1_000, 1), "ns": (1_000_000, 1)}[column.type.unit]
    numbers = np.from_dlpack(column.view(pa.int64())).view(np.int64)
    good = (numbers > -(_BOUND // unit)) & (numbers < _BOUND // unit)
    values = np.where(good, numbers, 0) // per * unit
    return values, dict.fromkeys(np.flatnonzero(~good).tolist(), "a timestamp out of range")


def _days(column: pa.Array) -> tuple[Longs, dict[int, str]]:
    if pa.types.is_date64(column.type):
        return np.from_dlpack(column.view(pa.int64())).view(np.int64), {}
    return np.from_dlpack(column.view(pa.int32())).astype(np.int64) * DAY, {}


# -- text ----------------------------------------------------------------------------------------

_FEW: Final = 16
_MOST_DIGITS: Final = 19
_UTC: Final = pa.timestamp("us", "UTC")


def _texts(column: pa.Array) -> tuple[Longs, dict[int, str]]:
    column = column.cast(pa.string())
    found, wrong = np.zeros(len(column), np.int64), dict[int, str]()

    def halves(begin: int, end: int) -> None:
        part = column[begin:end]
        values = _at_once(part) if end - begin > _FEW else None
        if values is not None:
            found[begin:end] = values
        elif end - begin > _FEW:
            middle = (begin + end) // 2
            halves(begin, middle)
            halves(middle, end)
        else:
            for row, text in enumerate(part.to_pylist(), begin):
                value = milliseconds_of(text)
                if value is None:
                    wrong[row] = "a text that is not a timestamp"
                else:
                    found[row] = value

    halves(0, len(column))
    return found, wrong


def _at_once(texts: pa.Array) -> Longs | None:
    longest = pc.max(pc.binary_length(texts)).as_py()
    try:
        if pc.all(pc.ascii_is_decimal(texts)).as_py():
            if longest > _MOST_DIGITS:
                return None
            return np.from_dlpack(texts.cast(pa.int64())).view(np.int64)
        # Arrow also accepts a space for the T, and years without a month.
        if not pc.all(pc.match_like(texts, "____-__-__T__:__:__%")).as_py():
            return None
        moments = texts.cast(_UTC)
    except pa.ArrowInvalid:
        return None
    return np.from_dlpack(moments.view(pa.int64())).view(np.int64) // 1_000


_ISO: Final = re.compile(
    r"""(?:(?P<year>[+-]?\d{1,9})
        (?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2}))?|-(?P<ordinal>\d{1,3})|-W(?P<week>\d{1,2})(?:-(?P<weekday>\d))?)?)?
    (?:T(?:(?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2}))?)?(?:[.,](?P<fraction>\d{1,9}))?)?
        (?:(?P<zulu>[Zz])|(?P<sign>[+-])(?P<hours>\d\d)(?::?(?P<minutes>\d\d)(?::?(?P<seconds>\d\d))?)?)?)?""",
    re.VERBOSE | re.ASCII,
)
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)


def milliseconds_of(text: str) -> int | None:
    """Return the milliseconds of a number, or of ISO 8601 as Joda-Time reads it."""
    if _NUMBER.fullmatch(text) and -_BOUND <= int(text) < _BOUND:
        return int(text)
    match = _ISO.fullmatch(text) if text else None
    if match is None:
        return None
    days = _date(match)
    numbers = {
        name: int(match[name] or 0) for name in ("hour", "minute", "second", "hours", "minutes", "seconds")
    }
    if days is None or any(number >= _LIMITS[name] for name, number in numbers.items()):
        return None
    unit = SECOND if match["second"] else MINUTE if match["minute"] else HOUR
    fraction = int((match["fraction"] or "0").ljust(9, "0")) * unit // 10**9
    time = numbers["hour"] * HOUR + numbers["minute"] * MINUTE + numbers["second"] * SECOND + fraction
    # A time without an offset is taken as UTC.
    offset = numbers["hours"] * HOUR + numbers["minutes"] * MINUTE + numbers["seconds"] * SECOND
    return days * DAY + time - (-offset if match["sign"] == "-" else offset)


_LIMITS: Final = {"hour": 24, "minute": 60, "second": 60, "hours": 24, "minutes": 60, "seconds": 60}


def _date(match: re.Match[str]) -> int | None:
    if match["year"] is None:
        return 0 if match["hour"] else None
    year = int(match["year"])
    first, behind = days_of(year), days_of(year + 1)
    if match["ordinal"]:
        day = first + int(match["ordinal"]) - 1
    elif match["week"]:
        first, behind = weeks_begin(year), weeks_begin(year + 1)
        weekday = int(match["weekday"] or 1)
        if not 1 <= weekday <= 7:  # noqa: PLR2004 - Monday to Sunday
            return None
        day = first + 7 * (int(match["week"]) - 1) + weekday - 1
    else:
        month = int(match["month"] or 1)
        if not 1 <= month <= 12:  # noqa: PLR2004 - January to December
            return None
        first, behind = days_of(year, month), days_of(year + month // 12, month % 12 + 1)
        day = first + int(match["day"] or 1) - 1
    return day if first <= day < behind else None


_READERS: Final[
    tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], tuple[Longs, dict[int, str]]]], ...]
] = (
    (pa.types.is_integer, _whole),
    (pa.types.is_floating, _fractions),
    (pa.types.is_timestamp, _moments),
    (pa.types.is_date, _days),
    (
        lambda kind: (
            pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
        ),
        _texts,
    ),
)
