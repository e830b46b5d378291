"""The Gregorian calendar for all years."""

from __future__ import annotations

import random

import numpy as np

from sinksdk.values.calendar import Date, days_of


def test_dates_equal_numpys() -> None:
    near = range(-800_000, 3_000_000, 997)  # from before the year 1 to beyond 9999
    far = random.Random(1).choices(range(-(10**11), 10**11), k=5_000)  # noqa: S311 - not cryptographic
    for days in (*near, *far):
        year, month, day = Date.of(days)
        assert days_of(year, month, day) == days
        first = np.datetime64((year - 1970) * 12 + month - 1, "M").astype("datetime64[D]")
        assert first + (day - 1) == np.datetime64(days, "D")


def test_days_of_accepts_months_and_days_out_of_range() -> None:
    assert days_of(2024, 2, 30) == days_of(2024, 3, 1)
    assert days_of(2024, 14) == days_of(2025, 2)
    assert days_of(2024, 0) == days_of(2023, 12)


def test_days_of_accepts_years_beyond_64_bits() -> None:
    assert Date.of(days_of(10**30, 2, 29)) == (10**30, 2, 29)
