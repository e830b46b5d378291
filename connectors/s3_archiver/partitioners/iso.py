"""Convert fields to timestamps: numbers, ISO 8601, and Arrow's timestamps."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sinksdk.connectors.s3_archiver.formats.columns import as_mask, long_scalar, null_rows
from sinksdk.connectors.s3_archiver.partitioners.path_format import (
    HOUR,
    MINUTE,
    SECOND,
    Integers,
    weeks_begin,
)
from sinksdk.values.calendar import DAY, days_of

_BOUND: Final = 2**63


def milliseconds(column: pa.Array) -> tuple[Integers, dict[int, str]]:
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


def _whole(column: pa.Array) -> tuple[Integers, dict[int, str]]:
    if pa.types.is_uint64(column.type):
        beyond = np.flatnonzero(as_mask(pc.greater(column, long_scalar(_BOUND - 1, pa.uint64()))))
        numbers = np.from_dlpack(column).astype(np.int64)
        return numbers, dict.fromkeys(beyond.tolist(), "a number that is no timestamp")
    return np.from_dlpack(column.cast(pa.int64())).view(np.int64), {}


def _fractions(column: pa.Array) -> tuple[Integers, dict[int, str]]:
    numbers = np.from_dlpack(column.cast(pa.float64()))
    good = np.abs(numbers) < _BOUND
    values = np.where(good, numbers, 0).astype(np.int64)
    return values, dict.fromkeys(np.flatnonzero(~good).tolist(), "a number that is no timestamp")


def _moments(column: pa.Array) -> tuple[Integers, dict[int, str]]:
    per, unit = {"s": (1, 1_000), "ms": (1, 1), "us": (1_000, 1), "ns": (1_000_000, 1)}[column.type.unit]
    numbers = np.from_dlpack(column.view(pa.int64())).view(np.int64)
    good = (numbers > -(_BOUND // unit)) & (numbers < _BOUND // unit)
    values = np.where(good, numbers, 0) // per * unit
    return values, dict.fromkeys(np.flatnonzero(~good).tolist(), "a moment that is no timestamp")


def _days(column: pa.Array) -> tuple[Integers, dict[int, str]]:
    if pa.types.is_date64(column.type):
        return np.from_dlpack(column.view(pa.int64())).view(np.int64), {}
    return np.from_dlpack(column.view(pa.int32())).astype(np.int64) * DAY, {}


# -- text ----------------------------------------------------------------------------------------

_FEW: Final = 16
_MOST_DIGITS: Final = 19
_UTC: Final = pa.timestamp("us", "UTC")


def _texts(column: pa.Array) -> tuple[Integers, dict[int, str]]:
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
                    wrong[row] = "a text that is no timestamp"
                else:
                    found[row] = value

    halves(0, len(column))
    return found, wrong


def _at_once(texts: pa.Array) -> Integers | None:
    longest = pc.max(pc.binary_length(texts)).as_py()
    try:
        if pc.all(pc.ascii_is_decimal(texts)).as_py():
            if longest > _MOST_DIGITS:
                return None
            return np.from_dlpack(texts.cast(pa.int64())).view(np.int64)
        # Arrow takes a space for the T, and years without a month.
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
    # A time without an offset is in UTC.
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
    tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], tuple[Integers, dict[int, str]]]], ...]
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
