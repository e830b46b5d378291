"""Joda-Time's time zones, and the schedule that restarts at each local midnight."""

from __future__ import annotations

import datetime as dt
import json
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sinksdk import BatchPolicy
from sinksdk.support.zones import next_multiple, time_zone
from tests.helpers.needs import missing
from tests.kafka.maven import MavenError
from tests.s3_archiver.original_zones import ANSWERS, UNKNOWN, ask

ORIGINAL: dict[str, str] = json.loads(ANSWERS.read_text())
JANUARY, JULY = 1_768_000_000, 1_784_000_000
SECOND_NAMES = (
    "Zulu",
    "UCT",
    "Universal",
    "Greenwich",
    "GMT0",
    "GMT+0",
    "GMT-0",
    "US/Eastern",
    "Asia/Calcutta",
)
"""Aliases of zones, which Joda-Time prints by their canonical name."""


def offset(zone: dt.tzinfo, seconds: float) -> int:
    """Return the offset of a zone in milliseconds."""
    found = dt.datetime.fromtimestamp(seconds, zone).utcoffset()
    assert found is not None
    return found // dt.timedelta(milliseconds=1)


@pytest.mark.parametrize("name", ORIGINAL, ids=repr)
def test_time_zones_equal_joda_times(name: str) -> None:
    try:
        zone = time_zone(name)
    except ValueError:
        found = UNKNOWN
    else:
        found = f"{zone} {offset(zone, JANUARY)} {offset(zone, JULY)}"

    if name in SECOND_NAMES:
        assert found.split()[1:] == ORIGINAL[name].split()[1:]
    else:
        assert found == ORIGINAL[name]


@pytest.mark.extended
@pytest.mark.slow
def test_stored_time_zones_are_joda_times() -> None:
    try:
        answers = ask()
    except MavenError as error:
        missing("Joda-Time", f"its jar comes from Maven Central: {error}")
    assert answers == ORIGINAL


@pytest.mark.parametrize(
    ("zone", "seen", "hours", "due"),
    [
        ("UTC", "2026-11-01T10:20+00:00", 1, "2026-11-01T11:00+00:00"),
        ("UTC", "2026-11-01T11:00+00:00", 1, "2026-11-01T12:00+00:00"),
        ("UTC", "2026-11-01T23:30+00:00", 5, "2026-11-02T00:00+00:00"),
        ("UTC", "2026-11-01T23:30+00:00", 36, "2026-11-02T00:00+00:00"),
        ("+05:30", "2026-11-01T18:10+00:00", 7, "2026-11-01T18:30+00:00"),
        ("UTC-03:00", "2026-11-01T02:30+00:00", 7, "2026-11-01T03:00+00:00"),
        # This day has 25 hours; the first 24 of them end at 23:00.
        ("America/New_York", "2026-11-01T10:00-05:00", 24, "2026-11-01T23:00-05:00"),
        ("America/New_York", "2026-11-01T23:30-05:00", 24, "2026-11-02T00:00-05:00"),
        ("America/New_York", "2026-11-01T01:30-05:00", 2, "2026-11-01T03:00-05:00"),
        # This day has 23 hours.
        ("America/New_York", "2026-03-08T10:00-04:00", 24, "2026-03-09T00:00-04:00"),
        ("Australia/Lord_Howe", "2026-04-05T23:45+10:30", 24, "2026-04-06T00:00+10:30"),
        # The zone skips this midnight: the day begins at 01:00.
        ("America/Sao_Paulo", "2018-11-03T23:30-03:00", 24, "2018-11-04T01:00-02:00"),
        ("America/Sao_Paulo", "2018-11-04T01:30-02:00", 1, "2018-11-04T02:00-02:00"),
        # Midnight comes twice: the day begins with the first one.
        ("America/Havana", "2026-10-31T23:30-04:00", 24, "2026-11-01T00:00-04:00"),
        ("America/Havana", "2026-11-01T00:30-05:00", 1, "2026-11-01T01:00-05:00"),
        # The clock goes back from 24:00 to 23:00 on this day.
        ("America/Sao_Paulo", "2018-02-17T23:30-02:00", 24, "2018-02-17T23:00-03:00"),
        ("America/Sao_Paulo", "2018-02-17T23:30-03:00", 24, "2018-02-18T00:00-03:00"),
        # The clock goes back from 00:01 to 23:01 of the previous day.
        ("America/St_Johns", "2010-11-06T23:30-02:30", 24, "2010-11-07T00:00-02:30"),
        ("America/St_Johns", "2010-11-06T23:30-03:30", 24, "2010-11-07T00:00-03:30"),
        # The zone skips a day here.
        ("Pacific/Apia", "2011-12-29T23:30-10:00", 24, "2011-12-31T00:00+14:00"),
    ],
)
def test_schedule_is_due_at_the_next_multiple_or_midnight(zone: str, seen: str, hours: int, due: str) -> None:
    policy = BatchPolicy(max_wait=hours * 3_600, align_to=zone)

    found = policy.due_at(dt.datetime.fromisoformat(seen).timestamp())
    assert dt.datetime.fromtimestamp(found, dt.UTC) == dt.datetime.fromisoformat(due)


ZONES = st.sampled_from(
    [
        *(
            "UTC",
            "Europe/Berlin",
            "America/New_York",
            "America/Sao_Paulo",
            "America/Havana",
            "Asia/Kathmandu",
        ),
        *("Australia/Lord_Howe", "America/St_Johns", "America/Goose_Bay", "Asia/Beirut", "America/Asuncion"),
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.integers(631_152_000, 1_893_456_000), st.integers(1, 200_000), ZONES)
@example(1_289_097_060, 86_400, "America/St_Johns")
def test_scheduled_file_never_spans_midnight(moment: int, period: int, name: str) -> None:
    zone = ZoneInfo(name)
    due = next_multiple(moment, period, zone)

    assert moment < due <= moment + period
    # The clock goes forward here. A file that ends before the schedule is due still has the date of its first
    # record.
    local = dt.datetime.fromtimestamp(moment, zone)
    last = dt.datetime.fromtimestamp(due - 1, zone)
    assert last.date() <= local.date()


def test_batch_policy_refuses_unknown_time_zones() -> None:
    with pytest.raises(ValueError, match="no time zone is called 'Mars/Phobos'"):
        BatchPolicy(max_wait=60, align_to="Mars/Phobos")
