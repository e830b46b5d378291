"""Folders of whole batches are those of their records one by one, computed with ``datetime`` and ``json``."""

from __future__ import annotations

import datetime as dt
import functools
import json
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.partitioners import fields
from sinksdk.connectors.s3_archiver.partitioners.fields import JsonFields
from sinksdk.connectors.s3_archiver.partitioners.folders import (
    TimeFolders,
    ValueFolders,
    _distinct,
    folders_of,
)
from sinksdk.connectors.s3_archiver.partitioners.times import (
    PathFormat,
    Zone,
    milliseconds,
    milliseconds_of,
)
from sinksdk.values.calendar import Date, days_of
from tests.s3_archiver.test_folders import TP, of, texts, timed

zone = functools.cache(Zone)
ZONES = (
    *("UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Asia/Kathmandu"),
    *("Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "America/St_Johns"),
)
SECOND = 1_000
HOUR = 3_600 * SECOND
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - local times

FORMATS: Mapping[str, Callable[[dt.datetime], str]] = {
    "YYYY/MM/dd/HH": lambda at: f"{at.year:04}/{at:%m/%d/%H}",
    "'y'=yy/'it''s'=D": lambda at: f"y={at:%y}/it's={at.timetuple().tm_yday}",
    "xxxx-'W'ww-e": lambda at: "{:04}-W{:02}-{}".format(*at.isocalendar()),
    "d MMM EEEE hh a": lambda at: f"{at.day} {at:%b %A %I %p}",
    "mm:ss.SSSS k": lambda at: f"{at:%M:%S.%f}"[:9] + f"0 {at.hour or 24}",
    "K EEE MMMM G C": lambda at: f"{at.hour % 12} {at:%a %B} AD {at.year // 100}",
}


def reference(timestamp: int, name: str, duration: int, pattern: str) -> str:
    utc = EPOCH.replace(tzinfo=dt.UTC) + dt.timedelta(milliseconds=timestamp)
    local = (utc.astimezone(ZoneInfo(name)).replace(tzinfo=None) - EPOCH) // dt.timedelta(milliseconds=1)
    bucket = abs(local) // duration * duration * (1 if local > 0 else -1)
    there = (EPOCH + dt.timedelta(milliseconds=bucket)).replace(tzinfo=ZoneInfo(name))
    # The result goes through UTC and back: a local time that the zone skips becomes a later one.
    return FORMATS[pattern](there.astimezone(dt.UTC).astimezone(ZoneInfo(name)))


@st.composite
def timestamps(draw: st.DrawFn) -> list[int]:
    center = draw(
        st.integers(-5_000_000_000_000, 5_000_000_000_000) | st.integers(-62 * 10**12, 253 * 10**12)
    )
    width = draw(st.sampled_from([HOUR, 24 * HOUR, 400 * 24 * HOUR, 10**12]))
    times = draw(st.lists(st.integers(center - width, center + width), min_size=1, max_size=50))
    return [min(max(each, -62_000_000_000_000), 253_300_000_000_000) for each in times]


DURATIONS = st.sampled_from(
    [1, 10, SECOND, 60 * SECOND, 15 * 60 * SECOND, HOUR, 24 * HOUR, 7 * 24 * HOUR]
) | (st.integers(1, 40 * 24 * HOUR))


@settings(max_examples=100, deadline=None)
@given(timestamps(), st.sampled_from(ZONES), DURATIONS, st.sampled_from(sorted(FORMATS)))
# The zone skipped midnight of this day.
@example([1_541_301_300_000], "America/Sao_Paulo", 24 * HOUR, "YYYY/MM/dd/HH")
@example([1_325_239_200_000], "Pacific/Apia", 24 * HOUR, "YYYY/MM/dd/HH")  # the zone skipped this day
# The zone skipped half an hour here.
@example([1_728_144_000_000], "Australia/Lord_Howe", HOUR, "mm:ss.SSSS k")
def test_time_folders_equal_datetimes(times: list[int], name: str, duration: int, pattern: str) -> None:
    made = ValueFolders(
        names=(),
        are_named=True,
        time=TimeFolders(PathFormat(pattern), duration, zone(name)),
        extractor="Record",
        timestamp_field="",
        reader=None,
        delimiter="/",
        room=lambda *_: 1_000,
    )
    expected = [None if each == -1 else reference(each, name, duration, pattern) for each in times]

    assert of(made.split(TP, timed(times), 0.0)) == expected


@settings(max_examples=100, deadline=None)
@given(st.integers(-3_000_000, 3_000_000))
def test_dates_round_trip_through_day_numbers(days: int) -> None:
    assert days_of(*Date.of(days)) == days
    if -719_162 <= days <= 2_932_896:
        day = dt.date(1970, 1, 1) + dt.timedelta(days)
        assert Date.of(days) == (day.year, day.month, day.day)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 60) | st.integers(-(2**62), 2**62), min_size=1, max_size=60))
def test_distinct_keys_are_in_the_order_of_their_first_rows(keys: list[int]) -> None:
    first, codes = _distinct(pa.array(keys, pa.int64()).to_numpy())
    places = {key: number for number, key in enumerate(dict.fromkeys(keys))}

    assert codes.tolist() == [places[key] for key in keys]
    assert [keys[row] for row in first.tolist()] == list(places)


# -- fields --------------------------------------------------------------------------------------

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["a", "b", "ü x", "", "..", "a/b", "1", 'q"\\', "\ud800", "\u2028"])
    | st.text(max_size=3)
)
OBJECTS = st.dictionaries(
    st.sampled_from(["f", "g", "v", "payload", "schema"]),
    LEAVES | st.dictionaries(st.sampled_from(["x", "f"]), LEAVES, max_size=2) | st.lists(LEAVES, max_size=2),
    max_size=3,
)
ODD = st.sampled_from(
    [
        None,
        b"",
        b"{",
        b"}",
        b" ",
        b"1",
        b"null",
        b'"x"',
        b'{"f":1}{"f":2}',
        b'{"f":1,"f":2}',
        b'{"f":1}}\n{"v":{"f":2}',
        b'{"f":\n"a"}',
        b"\xff",
    ]
)
MOSTLY = st.sampled_from([{"f": "a", "g": 1}, {"f": "b", "g": 2}, {"f": "a", "g": 3, "h": [1, {"f": 2}]}])


def encoded(value: Any) -> bytes | None:
    return value if isinstance(value, bytes | None) else json.dumps(value).encode()


def plain(data: bytes | None, path: tuple[str, ...], *, enveloped: bool | None) -> str | None:  # noqa: PLR0911
    try:
        value = json.loads(data or b"")
    except ValueError:
        return None
    if value is None:
        return None
    if enveloped is not False and isinstance(value, dict) and value.keys() == {"schema", "payload"}:
        value = value["payload"]
    elif enveloped:
        return None
    for name in path:
        if value is not None and (not isinstance(value, dict) or name not in value):
            return None
        value = None if value is None else value[name]
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        is_good = (
            value not in ("", ".", "..")
            and "/" not in value
            and all(ord(c) >= 32 and c != "\x7f" for c in value)
        )
        return value if is_good and value.encode(errors="replace").decode() == value else None
    return str(value) if isinstance(value, int) else None


@settings(max_examples=150, deadline=None)
@given(
    st.lists(MOSTLY | OBJECTS, min_size=1, max_size=60) | st.lists(MOSTLY | OBJECTS | ODD, max_size=60),
    st.sampled_from([("f",), ("g",), ("f.x", "g"), ("f", "f.x")]),
    st.sampled_from([False, None]),
    st.sampled_from([0, 512]),
)
def test_json_folders_of_a_batch_equal_those_of_single_records(
    values: list[Any], names: tuple[str, ...], enveloped: bool | None, small: int
) -> None:
    config = S3ArchiverConfig.model_construct(
        name="a",
        topics=("orders",),
        s3_bucket_name="bucket",
        partitioner_class="FieldPartitioner",
        partition_field_name=names,
        value_converter="json",
        value_converter_schemas_enable=enveloped,
    )
    expected: list[str | None] = []
    for value in values:
        parts = [plain(encoded(value), tuple(name.split(".")), enveloped=enveloped) for name in names]
        expected.append(
            None if None in parts else "/".join(f"{n}={part}" for n, part in zip(names, parts, strict=True))
        )

    with mock.patch.object(fields, "_SMALL", small):
        assert of(folders_of(config).split(TP, texts(*map(encoded, values)), 0.0)) == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(MOSTLY | OBJECTS | st.just({"payload": 1}), min_size=20, max_size=60))
def test_envelope_payloads_of_a_batch_equal_those_of_single_records(values: list[Any]) -> None:
    data = [json.dumps({"schema": {}, "payload": value}).encode() for value in values]
    data[3] = json.dumps(values[3]).encode()
    for enveloped in (True, None):
        (found,) = JsonFields([("f",)], schemas_enable=enveloped).read(pa.array(data, pa.binary()))
        rows = {int(row) for rows, _ in found.pieces for row in rows}
        assert rows | set(found.bad) == set(range(len(data)))
        if enveloped:
            is_envelope = values[3].keys() == {"schema", "payload"}
            assert is_envelope or "not an object of exactly" in found.bad[3]


TEXTS = (
    st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 30)).map(lambda at: at.isoformat() + "Z")  # noqa: DTZ001
    | st.integers(-(10**14), 10**19).map(str)
    | st.sampled_from(
        [
            "2024-02-29",
            "2024-02-30T00:00:00Z",
            "2024-02-29 12:34:56",
            "2024-02-29 12:34:56Z",
            "",
            "x",
            "2024-2-9T1:2:3+0530",
        ]
    )
    | st.from_regex(r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d{1,9})?(Z|[+-]\d\d:\d\d)?\Z")
)


@settings(max_examples=100, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=60) | TEXTS.map(lambda text: [text] * 40))
def test_timestamp_texts_of_a_batch_are_parsed_like_single_texts(values: list[str]) -> None:
    found, wrong = milliseconds(pa.array(values, pa.string()))
    alone = [milliseconds_of(value) for value in values]

    assert set(wrong) == {row for row, value in enumerate(alone) if value is None}
    assert [value for row, value in enumerate(found.tolist()) if row not in wrong] == [
        value for value in alone if value is not None
    ]


@settings(max_examples=100, deadline=None)
@given(st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30)), st.integers(-1_439, 1_439))  # noqa: DTZ001
def test_iso_8601_texts_are_parsed_like_datetime(at: dt.datetime, minutes: int) -> None:
    at = at.replace(microsecond=at.microsecond // 1_000 * 1_000)
    there = at.replace(tzinfo=dt.timezone(dt.timedelta(minutes=minutes)))
    epoch = EPOCH.replace(tzinfo=dt.UTC)

    assert milliseconds_of(there.isoformat()) == (there - epoch) // dt.timedelta(milliseconds=1)
    assert milliseconds_of(at.isoformat()) == (at - EPOCH) // dt.timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-060T12", "2024-02-29T12:00:00"),
        ("2024-W09-4", "2024-02-29T00:00:00"),
        ("2024-W09", "2024-02-26T00:00:00"),
        ("T12:30", "1970-01-01T12:30:00"),
        ("2024-02T06:30.5", "2024-02-01T06:30:30"),
        ("2024-02-29T12:34:56,75z", "2024-02-29T12:34:56.750"),
        ("-0001-01-01", None),
        ("20000-01-01", None),
        ("2024-02-29T24:00", "wrong"),
        ("2024-13-01", "wrong"),
        ("2024-00", "wrong"),
        ("2024-W54", "wrong"),
        ("2023-366", "wrong"),
        ("2024-02-29T12:34:60Z", "wrong"),
        ("2024-02-29T12:34:56+25:00", "wrong"),
        ("T", "wrong"),
        ("12:30", "wrong"),
        ("٢٠٢٤-01-01", "wrong"),
    ],
)
def test_iso_8601_forms_are_parsed_like_joda(text: str, expected: str | None) -> None:
    found = milliseconds_of(text)

    if expected == "wrong":
        assert found is None
    elif expected is None:
        assert found == days_of(int(text[:-6]), 1, 1) * 24 * HOUR
    else:
        assert found == (dt.datetime.fromisoformat(expected) - EPOCH) // dt.timedelta(milliseconds=1)
