"""Time zones by Joda-Time's names, and the schedule that restarts at each local midnight."""

from __future__ import annotations

import datetime as dt
import functools
import re
from contextlib import suppress
from typing import Final
from zoneinfo import ZoneInfo

UTC: Final = "UTC"
# Confluent's sinks pass `timezone` to Joda-Time's DateTimeZone.forID, which also accepts fractions of a
# second; they are refused here.
_NAMES: Final = {"UT": UTC, "Z": UTC, "GMT": "Etc/GMT"}
_OF_THE_MACHINE: Final = re.compile(
    r"posix/.*|right/.*|posixrules|localtime|Factory"
)  # not zones, or zones that differ between machines
_OFFSET: Final = re.compile(
    r"(?:UTC|GMT|UT)?(?P<sign>[+-])(?P<hours>[01]\d|2[0-3])"
    r"(?:(?P<colon>:?)(?P<minutes>[0-5]\d)(?:(?P=colon)(?P<seconds>[0-5]\d))?)?",
    re.ASCII,
)


@functools.lru_cache(maxsize=64)
def time_zone(name: str) -> dt.tzinfo:
    if found := _OFFSET.fullmatch(name):
        hours, minutes, seconds = (int(found[part] or 0) for part in ("hours", "minutes", "seconds"))
        return _fixed(found["sign"], hours, minutes, seconds)
    if not _OF_THE_MACHINE.fullmatch(name):
        with suppress(LookupError, OSError, ValueError):
            return ZoneInfo(_NAMES.get(name, name))
    raise ValueError(f"no time zone is called '{name}'")


def _fixed(sign: str, hours: int, minutes: int, seconds: int) -> dt.tzinfo:
    offset = dt.timedelta(hours=hours, minutes=minutes, seconds=seconds)
    if not offset:
        return ZoneInfo(UTC)
    name = f"{sign}{hours:02}:{minutes:02}" + (f":{seconds:02}" if seconds else "")
    return dt.timezone(-offset if sign == "-" else offset, name)


def next_multiple(moment: float, seconds: float, zone: dt.tzinfo) -> float:
    """Return the next multiple of a period since local midnight, or the next local midnight if sooner."""
    day = dt.datetime.fromtimestamp(moment, zone).date()
    # The next multiple is the one at which Confluent's rotate.schedule.interval.ms is due
    # (DateTimeUtils.getNextTimeAdjustedByDay). A day may have 23 or 25 hours.
    begin = _midnights(day, zone)[0]
    # If the clock goes back over midnight, a date has two midnights, of which the first may be over.
    coming = (at for days in (1, 2) for at in _midnights(day + dt.timedelta(days=days), zone) if at > moment)
    return min(begin + ((moment - begin) // seconds + 1) * seconds, *coming)


def _midnights(day: dt.date, zone: dt.tzinfo) -> list[float]:
    # A date begins twice if the clock goes back over midnight.
    local = dt.datetime.combine(day, dt.time(), zone)
    first, second = local, local.replace(fold=1)
    if first.utcoffset() == second.utcoffset():
        return [first.timestamp()]
    if first.timestamp() < second.timestamp():
        return [first.timestamp(), second.timestamp()]
    # The clock skips this midnight: the date begins at the time to which the clock is put forward.
    before, behind = int(second.timestamp()) - 1, int(first.timestamp())
    while behind - before > 1:
        middle = (before + behind) // 2
        if dt.datetime.fromtimestamp(middle, zone).utcoffset() == first.utcoffset():
            before = middle
        else:
            behind = middle
    return [float(behind)]
