"""The Gregorian calendar for all years: Python's ``datetime`` ends with the year 9999."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

# Plain integers: numpy's datetime64 takes 15 times as long for one date, and wraps around silently beyond 64
# bits. Milliseconds:
SECOND: Final = 1_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
# Days of 400 years, after which weekdays repeat.
CYCLE: Final = 146_097
_MARCH_OF_YEAR_0: Final = -719_468  # days from 1970-01-01


def days_of(year: int, month: int = 1, day: int = 1) -> int:
    """Return the days from 1970-01-01 to a date; months and days may be out of range."""
    # A year begins in March here, so that the leap day is its last day. The lengths of months then repeat
    # every 5 months, or 153 days.
    cycle, months = divmod(year * 12 + month - 3, 4_800)
    year, month = divmod(months, 12)
    leap_days = year // 4 - year // 100
    return _MARCH_OF_YEAR_0 + cycle * CYCLE + 365 * year + leap_days + (153 * month + 2) // 5 + day - 1


class Date(NamedTuple):
    """A date of the Gregorian calendar, also before 1582; the year before 1 is 0."""

    year: int
    month: int
    day: int

    @classmethod
    def of(cls, days: int) -> Date:
        cycle, rest = divmod(days - _MARCH_OF_YEAR_0, CYCLE)
        # Without the leap days of the years before, each year has 365 days.
        year = (rest - rest // 1_460 + rest // 36_524 - rest // 146_096) // 365
        rest -= 365 * year + year // 4 - year // 100
        month = (5 * rest + 2) // 153
        day = rest - (153 * month + 2) // 5 + 1
        years, month = divmod(month + 2, 12)
        return cls(cycle * 400 + year + years, month + 1, day)


def weekday(days: int) -> int:
    """Return 1 (Monday) to 7 (Sunday)."""
    return (days + 3) % 7 + 1


def weeks_begin(year: int) -> int:
    """Return the first day of a week year: the Monday of the week with January 4th."""
    fourth = days_of(year, 1, 4)
    return fourth - weekday(fourth) + 1


class Moment:
    def __init__(self, local: int, offset: int, zone: str) -> None:
        self.days, self.millis = divmod(local, DAY)
        self.year, self.month, self.day = Date.of(self.days)
        self.offset = offset
        self.zone = zone

    @property
    def hour(self) -> int:
        return self.millis // HOUR

    @property
    def week_year(self) -> int:
        # A week belongs to the year of its Thursday.
        return Date.of(self.days - weekday(self.days) + 4).year

    @property
    def week(self) -> int:
        return (self.days - weeks_begin(self.week_year)) // 7 + 1


MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
# By letter of a part of a time (Joda-Time's; SimpleDateFormat has some of them with the same meaning): the
# milliseconds for which the number stays the same, and its value.
NUMBERS: Final[Mapping[str, tuple[int, Callable[[Moment], int]]]] = {
    "C": (DAY, lambda at: abs(at.year) // 100),
    "Y": (DAY, lambda at: at.year if at.year > 0 else 1 - at.year),
    "y": (DAY, lambda at: at.year),
    "x": (DAY, lambda at: at.week_year),
    "M": (DAY, lambda at: at.month),
    "d": (DAY, lambda at: at.day),
    "D": (DAY, lambda at: at.days - days_of(at.year) + 1),
    "w": (DAY, lambda at: at.week),
    "e": (DAY, lambda at: weekday(at.days)),
    "H": (HOUR, lambda at: at.hour),
    "k": (HOUR, lambda at: at.hour or 24),
    "K": (HOUR, lambda at: at.hour % 12),
    "h": (HOUR, lambda at: at.hour % 12 or 12),
    "m": (MINUTE, lambda at: at.millis // MINUTE % 60),
    "s": (SECOND, lambda at: at.millis // SECOND % 60),
}

# Two apostrophes stand for one, inside and outside quoted text.
_PART: Final = re.compile(r"''|'((?:[^']|'')++)'|([A-Za-z])\2*|([^A-Za-z']+)")


def pattern_parts(pattern: str) -> Iterator[tuple[str, int]]:
    """Yield each letter of a pattern of Java or Joda-Time with its number, and each text with 0.

    Raises ValueError, with the text behind the apostrophe, for a quoted text without an end.
    """
    place = 0
    while place < len(pattern):
        found = _PART.match(pattern, place)
        if found is None:
            raise ValueError(pattern[place + 1 :])
        quoted, letter, literal = found.groups()
        if letter:
            yield letter, len(found[0])
        else:
            yield literal or (quoted or "''").replace("''", "'"), 0
        place = found.end()
