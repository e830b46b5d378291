"""The Gregorian calendar for all years: Python's ``datetime`` ends with the year 9999."""

from __future__ import annotations

from typing import Final, NamedTuple

# Dates are plain integers: numpy's datetime64 takes 15 times as long for one date, and overflows without an
# error beyond 64 bits.

DAY: Final = 86_400_000  # milliseconds
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
