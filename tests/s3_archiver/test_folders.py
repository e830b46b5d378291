from __future__ import annotations

import functools
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from sinksdk import ConfigException, TopicPartition, Verdict
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.partitioners import folders as module
from sinksdk.connectors.s3_archiver.partitioners.checks import folder_problems
from sinksdk.connectors.s3_archiver.partitioners.folders import Folders, Split, TimeFolders, folders_of
from sinksdk.connectors.s3_archiver.partitioners.times import LAST, PathFormat, Zone
from sinksdk.values.json_text import JSON, json_column
from tests.s3_archiver.support import MINIMAL

TP = TopicPartition("orders", 3)
FEB = 1_709_209_845_123  # 2024-02-29T12:30:45.123Z
HOUR = 3_600_000


@pytest.fixture(autouse=True)
def _zones_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    # The offsets of a zone are computed once for all tests.
    monkeypatch.setattr(module, "Zone", zone)


zone = functools.cache(Zone)


def settings(**keys: Any) -> S3ArchiverConfig:
    base = {"name": "a", "topics": ("orders",), "s3_bucket_name": "bucket", "flush_size": 1}
    return S3ArchiverConfig.model_construct(**base, **keys)


def folders(**keys: Any) -> Folders:
    return folders_of(settings(**keys))


def by_time(pattern: str, duration: int = 60_000, **keys: Any) -> Folders:
    return folders(
        **{
            "partitioner_class": "TimeBasedPartitioner",
            "path_format": pattern,
            "partition_duration_ms": duration,
            "timestamp_extractor": "Record",
            **keys,
        }
    )


def by_field(*names: str, **keys: Any) -> Folders:
    return folders(partitioner_class="FieldPartitioner", partition_field_name=names, **keys)


def timed(timestamps: Sequence[int | None]) -> pa.RecordBatch:
    times = pa.array(timestamps, pa.int64()).cast(pa.timestamp("ms", "UTC"))
    return pa.record_batch([offsets(len(timestamps)), times], ["offset", "timestamp"])


def valued(values: pa.Array) -> pa.RecordBatch:
    times = pa.array([FEB] * len(values)).cast(pa.timestamp("ms", "UTC"))
    return pa.record_batch([offsets(len(values)), times, values], ["offset", "timestamp", "value"])


def offsets(count: int) -> pa.Array:
    return pa.array(range(100, 100 + count), pa.int64())


def texts(*values: Any) -> pa.RecordBatch:
    encoded = [
        value if isinstance(value, bytes | None) else json.dumps(value, ensure_ascii=False).encode()
        for value in values
    ]
    return valued(pa.array(encoded, pa.binary()))


def of(found: Split) -> list[str | None]:
    assert set(found.bad) == set(np.flatnonzero(found.codes < 0).tolist())
    return [None if code < 0 else found.paths[code] for code in found.codes.tolist()]


def split(made: Folders, batch: pa.RecordBatch, now: float = 0.0) -> list[str | None]:
    return of(made.split(TP, batch, now))


def reason(made: Folders, batch: pa.RecordBatch) -> str:
    (error,) = made.split(TP, batch, 0.0).bad.values()
    return str(error)


# -- the original's answers ----------------------------------------------------------------------


def answers(name: str) -> list[list[str]]:
    lines = (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines[1:]]


def cases() -> Iterator[tuple[str, str, int, list[tuple[int, str]]]]:
    groups = defaultdict(list)
    for name, pattern, duration, timestamp, path in answers("paths_by_time.tsv"):
        groups[name, pattern, int(duration)].append((int(timestamp), path))
    for (name, pattern, duration), rows in groups.items():
        yield name, pattern, duration, rows


@pytest.mark.slow
def test_folders_by_time_equal_confluents() -> None:
    # The file has 1,057 results of Confluent's TimeBasedPartitioner with Joda-Time 2.12.7.
    count = 0
    for name, pattern, duration, rows in cases():
        made = by_time(pattern, duration, timezone=name)
        for timestamp, path in rows:
            assert split(made, timed([timestamp])) == [path], (name, pattern, duration, timestamp)
        assert split(made, timed([timestamp for timestamp, _ in rows])) == [path for _, path in rows]
        count += len(rows)
    assert count == 1_057


KINDS: Mapping[str, tuple[Any, pa.DataType]] = {
    "String": (str, pa.string()),
    "Long": (int, pa.int64()),
    "Integer": (int, pa.int32()),
    "Short": (int, pa.int16()),
    "Double": (float, pa.float64()),
    "Boolean": (lambda text: text == "true", pa.bool_()),
    "Date": (int, pa.timestamp("ms", "UTC")),
    "null": (lambda _: None, pa.null()),
}
# Values that would lead out of their folder.
BETTER = ("a/b", "..", "")


def values_at(name: str, value: Any, kind: pa.DataType) -> list[pa.RecordBatch]:
    for part in reversed(name.split(".")):
        value, kind = {part: value}, pa.struct([(part, kind)])
    return [texts(value), texts(*[value] * 40), valued(pa.array([value], kind))]


@pytest.mark.parametrize(("kind", "text", "path"), answers("paths_by_field.tsv"))
def test_folders_by_field_equal_confluents(kind: str, text: str, path: str) -> None:
    make, arrow = KINDS[kind]
    for batch in values_at("f", make(text), arrow):
        expected = None if text in BETTER and kind == "String" else path
        assert split(by_field("f"), batch) == [expected] * batch.num_rows


@pytest.mark.parametrize(("name", "kind", "text", "path"), answers("paths_by_record_field.tsv"))
def test_timestamps_in_fields_are_parsed_like_confluents(name: str, kind: str, text: str, path: str) -> None:
    make, arrow = KINDS[kind]
    made = by_time("YYYY/MM/dd/HH/mm", timestamp_extractor="RecordField", timestamp_field=name)
    for batch in values_at(name, make(text), arrow):
        expected = None if path.startswith("!") else path
        assert split(made, batch) == [expected] * batch.num_rows


# -- partitioners --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "folder"),
    [
        ("+05:30", "2026-01-10T04 +05:30 +05:30"),
        ("UTC+08:00", "2026-01-10T07 +08:00 +08:00"),
        ("-03", "2026-01-09T20 -03:00 -03:00"),
        ("Z", "2026-01-09T23 +00:00 UTC"),
    ],
)
def test_folders_by_time_use_a_fixed_utc_offset(zone: str, folder: str) -> None:
    made = by_time("YYYY-MM-dd'T'HH ZZ ZZZ", timestamp_extractor="Record", timezone=zone)

    assert split(made, timed([1_768_000_000_000])) == [folder]


def test_folders_by_kafka_partition_are_the_default() -> None:
    found = folders().split(TP, timed([1, None, 2]), 0.0)

    assert of(found) == ["partition=3"] * 3
    assert found.timestamps is None


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("HourlyPartitioner", "year=2024/month=02/day=29/hour=13"),
        ("io.confluent.connect.storage.partitioner.DailyPartitioner", "year=2024/month=02/day=29"),
    ],
)
def test_hourly_and_daily_partitioners_need_no_path_format(name: str, path: str) -> None:
    keys = {"partitioner_class": name, "timestamp_extractor": "Record", "timezone": "Europe/Berlin"}

    assert split(folders(**keys), timed([FEB])) == [path]
    assert split(folders(**keys, directory_delim="_"), timed([FEB])) == [path.replace("/", "_")]


def test_a_delimiter_at_the_end_of_the_format_is_dropped() -> None:
    assert split(by_time("YYYY/MM/"), timed([FEB])) == ["2024/02"]


def test_fields_come_before_time() -> None:
    keys = {
        "partitioner_class": "com.canelmas.kafka.connect.FieldAndTimeBasedPartitioner",
        "partition_field_name": ("b", "a.x"),
    }
    batch = texts({"a": {"x": 1}, "b": "u"}, {"a": {"x": 2}, "b": None})

    named = split(by_time("'dt'=YYYY-MM-dd", **keys), batch)
    alone = split(by_time("'dt'=YYYY-MM-dd", **keys, partition_field_format_path=False), batch)

    assert named == ["b=u/a.x=1/dt=2024-02-29", "b=null/a.x=2/dt=2024-02-29"]
    assert alone == ["u/1/dt=2024-02-29", "null/2/dt=2024-02-29"]


def test_the_wall_clock_is_read_once() -> None:
    found = by_time("HH/mm/ss", 1_000, timestamp_extractor="Wallclock").split(
        TP, timed([1, None]), FEB / 1_000
    )

    assert of(found) == ["12/30/45"] * 2
    assert found.timestamps is not None
    assert found.timestamps.tolist() == [FEB, FEB]


def test_paths_are_in_the_order_of_their_first_rows() -> None:
    for step in (HOUR, 1_000_000 * HOUR):
        times = [step * number for number in (5, 1, 5, 9, 1, 9, 2)]
        found = by_time("YYYYMMdd-HH", HOUR).split(TP, timed(times), 0.0)

        assert found.codes.tolist() == [0, 1, 0, 2, 1, 2, 3]
        assert len(set(found.paths)) == 4
        assert found.codes.dtype == np.int32
        assert found.timestamps is not None
        assert found.timestamps.tolist() == times


def test_a_batch_without_rows_has_no_folders() -> None:
    for made in (by_time("YYYY"), by_field("f"), folders()):
        batch = texts()
        assert split(made, batch) == []


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.large_binary(), pa.binary_view(), JSON],
)
def test_json_fields_are_read_from_bytes_and_checked_texts(kind: pa.DataType) -> None:
    texts = pa.array([b'{"f":"a"}'] * 20 + [None], pa.binary())
    values = json_column(texts) if kind == JSON else texts.cast(kind)

    assert split(by_field("f"), valued(values)) == ["f=a"] * 20 + [None]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_typed_texts_have_no_fields(kind: pa.DataType) -> None:
    # A text is a typed value without fields, even if it looks like JSON.
    assert "where 'f' should be" in reason(by_field("f"), valued(pa.array(['{"f":"a"}'], kind)))


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_text_columns_of_every_type_name_folders(kind: pa.DataType) -> None:
    names = pa.array(["a", None, "b", "a"], pa.string())
    inner = pa.StructArray.from_arrays([names.cast(kind)], ["f"])
    outer = pa.StructArray.from_arrays([inner], ["m"], mask=pa.array([False, False, True, False]))

    assert split(by_field("f"), valued(inner)) == ["f=a", "f=null", "f=b", "f=a"]
    assert split(by_field("m.f"), valued(outer)) == ["m.f=a", "m.f=null", None, "m.f=a"]
    assert "has no field 'f.x': it is of type" in reason(by_field("f.x"), valued(inner[:1]))
    assert "is of type int64" in reason(by_field("f"), valued(pa.array([1])))


@pytest.mark.parametrize(
    ("kind", "number", "path"),
    [
        (pa.timestamp("s"), 1_709_209_845, "2024-02-29 12:30:45.000"),
        (pa.timestamp("us", "Asia/Tokyo"), 1_709_209_845_123_999, "2024-02-29 12:30:45.123"),
        (pa.timestamp("ns"), -1, "1969-12-31 23:59:59.999"),
        (pa.date32(), 19_782, "2024-02-29 00:00:00.000"),
        (pa.date64(), 19_782 * 86_400_000, "2024-02-29 00:00:00.000"),
        (pa.uint64(), FEB, "2024-02-29 12:30:45.123"),
        (pa.uint64(), 2**63, None),
        (pa.timestamp("s"), 2**62, None),
        (pa.timestamp("s"), -(2**63), None),
        (pa.timestamp("ms"), 2**63 - 1, None),
        (pa.time32("ms"), 5, None),
        (pa.float64(), float("nan"), None),
        (pa.float64(), 1e30, None),
        (pa.float32(), 1_024.75, "1970-01-01 00:00:01.024"),
        (pa.bool_(), True, None),
    ],
)
def test_temporal_columns_of_every_unit_are_timestamps(kind: pa.DataType, number: Any, path: str) -> None:
    made = by_time("YYYY-MM-dd HH:mm:ss.SSS", 1, timestamp_extractor="RecordField", timestamp_field="t")
    for value in ([number], [number, None], [number] * 40):
        typed = pa.StructArray.from_arrays([pa.array(value, kind)], ["t"])
        assert split(made, valued(typed)) == [None if each is None else path for each in value]


def test_short_durations_within_one_formatted_day_share_a_folder() -> None:
    found = by_time("YYYY-MM-dd", 10).split(TP, timed(list(range(FEB, FEB + 5_000, 7))), 0.0)

    assert found.paths == ["2024-02-29"]


@pytest.mark.parametrize("duration", [10, 60_000, HOUR, 24 * HOUR])
def test_clock_changes_in_a_batch_do_not_change_folders(duration: int) -> None:
    for name in ("Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe"):
        made = by_time("YYYY-MM-dd HH", duration, timezone=name)
        for change in (1_729_990_800_000, 1_541_300_400_000, 1_728_142_200_000):
            times = list(range(change - 26 * HOUR, change + 26 * HOUR, 17 * 60_000 + 1))
            assert split(made, timed(times)) == [split(made, timed([one]))[0] for one in times]


def test_skipped_local_times_are_in_confluents_folder() -> None:
    # This bucket would begin in a half hour that the zone skips. It begins after that instead, even if that
    # is in the next folder's hour.
    class Odd(Zone):
        def _offset_at(self, seconds: int) -> int:
            return 1_800 if seconds >= 8_700 else 0

    made = TimeFolders(PathFormat("HH"), 30 * 60_000, Odd("UTC"))
    level = made.level(np.array([8_700_000, 9_000_000, 8_699_999], np.int64), {})

    assert [level.texts[code] for code in level.codes] == ["03", "03", "02"]


def test_only_whole_numbers_name_folders() -> None:
    batch = texts({"f": 1.5}, *[{"f": 2}] * 40, {"f": 3.0})

    assert split(by_field("f"), batch) == [None, *["f=2"] * 40, None]


# -- bad records ---------------------------------------------------------------------------------


def test_path_formats_contain_offsets_and_zone_names() -> None:
    twice = [1_729_989_000_000, 1_729_992_600_000]  # 02:30 in Berlin, before and after the clocks go back
    for name, times, path in (
        ("Europe/Berlin", twice, "02 +0100 +01:00 Europe/Berlin"),
        ("Asia/Kathmandu", [FEB], "18 +0545 +05:45 Asia/Kathmandu"),
        ("America/St_Johns", [FEB], "09 -0330 -03:30 America/St_Johns"),
    ):
        assert split(by_time("HH Z ZZ ZZZ", HOUR, timezone=name), timed(times)) == [path] * len(times)


def test_an_error_names_topic_partition_and_offset() -> None:
    found = by_field("f").split(TP, texts(*[{"f": 1}] * 30, {"g": 1}, *[{"f": 2}] * 30), 0.0)

    assert list(found.bad) == [30]
    assert str(found.bad[30]) == (
        "topic orders, partition 3, offset 130: the record has no folder: its value has no field 'f' "
        "('partition.field.name'); correct the producer of such records, or skip them with "
        "'errors.tolerance' = all"
    )
    assert of(found) == ["f=1"] * 30 + [None] + ["f=2"] * 30


@pytest.mark.parametrize("timestamps", [[FEB, -1, FEB], [FEB, None, FEB]])
def test_a_record_without_a_timestamp_has_no_folder(timestamps: list[int | None]) -> None:
    # Kafka's -1 is not a timestamp in 1969.
    made = by_time("YYYY")

    assert split(made, timed(timestamps)) == ["2024", None, "2024"]
    assert split(made, timed(timestamps).select(["offset"])) == [None] * 3
    assert "has no timestamp" in reason(made, timed([-1]))


def test_years_have_as_many_digits_as_they_need() -> None:
    expected = {
        568_971_820_800_000: "20000-01/20000/99",
        FEB: "2024-02/2024/24",
        -62_135_596_900_000: "0000-12/0001/00",
        -99_999_999_999_999: "-1199-02/1200/99",
    }
    made = by_time("yyyy-MM/YYYY/xx")
    for times in ([each] for each in expected):
        assert split(made, timed(times)) == [expected[each] for each in times]
    assert split(made, timed(list(expected))) == list(expected.values())
    assert split(by_time("YYYY"), timed([LAST, LAST + 1, -LAST - 1, FEB])) == [
        "292278994",
        None,
        None,
        "2024",
    ]
    assert "is outside of the years" in reason(by_time("YYYY"), timed([LAST + 1]))


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (None, "is null"),
        (b"{", "is not JSON"),
        (b"\xff{}", "is not JSON"),
        (b"", "is null"),
        (b" null ", "is null"),
        (b'{"f":1}{"f":2}', "is not JSON"),
        (b'{"f":"a"}}\n{"v":{"f":"b"}', "is not JSON"),
        ([1], "has no field 'f'"),
        ({}, "has no field 'f'"),
        ({"f": 1.0}, "a value of type double"),
        ({"f": {}}, "an object"),
        ({"f": [1]}, "an array"),
        ({"f": "."}, "'.'"),
        ({"f": "a\nb"}, "control characters"),
        (b'{"f":"\\ud800"}', "unpaired surrogate"),
        ({"f": "x" * 2_048}, "S3's 1,024 bytes"),
        ({"f": "é" * 490}, "S3's 1,024 bytes"),
    ],
)
@pytest.mark.parametrize("around", [0, 20])
def test_a_value_that_cannot_name_a_folder_is_a_bad_record(value: Any, what: str, around: int) -> None:
    good = {"f": "ok"}
    batch = texts(*[good] * around, value, *[good] * around)
    found = by_field("f").split(TP, batch, 0.0)

    assert of(found) == ["f=ok"] * around + [None] + ["f=ok"] * around
    assert what in str(found.bad[around])
    assert f"offset {100 + around}:" in str(found.bad[around])


def test_keys_do_not_exceed_s3s_limit() -> None:
    # A key has at most 1,024 bytes, including prefix, topic and the file's name.
    rest = len("topics/orders/" + "/orders+3+0000000100" + ".snappy.parquet")
    fits = "x" * (1_024 - rest - len("f="))
    batch = texts({"f": fits}, {"f": fits + "x"}, {"f": "a"}, {"f": fits})

    assert split(by_field("f"), batch) == [f"f={fits}", None, "f=a", f"f={fits}"]


@pytest.mark.parametrize(
    ("keys", "longest"),
    [
        ({"store_kafka_keys": True}, "/orders+3+0000000100.keys.snappy.parquet"),
        ({"store_kafka_headers": True}, "/orders+3+0000000100.headers.snappy.parquet"),
        ({"records_sql": "SELECT * FROM records"}, "/orders+3+0000000100+2147483647.snappy.parquet"),
        ({"format_bytearray_extension": ".a-long-extension"}, "/orders+3+0000000100.a-long-extension.gz"),
    ],
)
def test_the_longest_key_of_a_record_fits_s3(keys: dict[str, Any], longest: str) -> None:
    made = by_field("f", **{"format_class": "JsonFormat", **keys})
    fits = "x" * (1_024 - len(f"topics/orders/f={longest}"))

    assert split(made, texts({"f": fits}, {"f": fits + "x"})) == [f"f={fits}", None]


def test_a_value_with_the_configured_delimiter_is_a_bad_record() -> None:
    assert split(by_field("f", directory_delim="|"), texts({"f": "a|b"}, {"f": "a-b"})) == [None, "f=a-b"]


def test_one_bad_field_makes_a_bad_record() -> None:
    found = by_field("f", "g").split(TP, texts({"f": 1}, {"g": 1}, {"f": 1, "g": 1}), 0.0)

    assert of(found) == [None, None, "f=1/g=1"]
    assert found.paths == ["f=1/g=1"]


# -- configuration -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ({"path_format": "'year'=YYYY/bogus"}, "'b' has no meaning"),
        ({"path_format": "year=YYYY"}, "'r' has no meaning"),
        ({"path_format": "YYYY/'month"}, "apostrophe before 'month' is not closed"),
        ({"path_format": " "}, "it is empty"),
        ({"path_format": "/"}, "it is empty"),
        ({"path_format": "YYYY-zzz"}, "'zzz', a zone's name in words, is not supported"),
        ({"path_format": "YYYY-MMM", "locale": "de-DE"}, "'MMM' is text"),
        ({"partition_duration_ms": 0}, "'partition.duration.ms' must be at least 1"),
        ({"partition_duration_ms": -1}, "'partition.duration.ms' must be at least 1"),
        ({"timestamp_extractor": "com.example.Mine"}, "'timestamp.extractor' is 'com.example.Mine'"),
        ({"timestamp_field": "a..b"}, "'timestamp.field': 'a..b' is not a field's name"),
        ({"partitioner_class": "FieldPartitioner"}, "'partition.field.name' is empty"),
        ({"partitioner_class": "FieldAndTimeBasedPartitioner"}, "'partition.field.name' is empty"),
        ({"partitioner_class": "com.example.MachineAwarePartitioner"}, "use one of DefaultPartitioner"),
    ],
)
def test_folder_settings_are_checked_before_the_start(keys: dict[str, Any], what: str) -> None:
    good = {
        "partitioner_class": "TimeBasedPartitioner",
        "path_format": "YYYY",
        "partition_duration_ms": HOUR,
        "timestamp_extractor": "Record",
    }
    assert folder_problems(settings(**good)) == []

    (problem,) = folder_problems(settings(**{**good, **keys}))

    assert what in problem
    with pytest.raises(ConfigException, match="'"):
        folders(**{**good, **keys})


def test_settings_of_other_partitioners_are_not_checked() -> None:
    # Exported configurations hold the keys of all partitioners.
    assert (
        folder_problems(settings(path_format="bogus", timestamp_extractor="bogus", timestamp_field="")) == []
    )


@pytest.mark.parametrize(
    "name", ["Record", "io.confluent.connect.TimeBasedPartitioner$RecordTimestampExtractor"]
)
def test_extractors_are_accepted_by_class_name(name: str) -> None:
    assert split(by_time("YYYY", timestamp_extractor=name), timed([FEB])) == ["2024"]


class Unjudged(S3ArchiverConfig):
    # All keys are accepted, whatever their verdicts are.
    compatibility: ClassVar[Mapping[str, Verdict]] = {}


def test_keys_of_folders_are_read_from_a_configuration() -> None:
    keys = {
        **MINIMAL,
        "partitioner.class": "io.confluent.connect.storage.partitioner.FieldAndTimeBasedPartitioner",
        "partition.field.name": "country, meta.shop",
        "path.format": "'dt'=YYYY-MM-dd",
        "partition.duration.ms": "3600000",
        "timezone": "Asia/Kolkata",
        "locale": "en-US",
        "timestamp.extractor": "RecordField",
        "timestamp.field": "",
        "rotate.interval.ms": "60000",
        "rotate.file.on.partition.change": "true",
    }
    config = Unjudged.parse(keys)
    batch = texts({"country": "IN", "meta": {"shop": 7}, "timestamp": "2024-02-29T20:00:00Z"})

    assert split(folders_of(config), batch) == ["country=IN/meta.shop=7/dt=2024-03-01"]
    assert config.partitioner_buffer_bytes == 256 * 1024 * 1024
    for key, value in {
        "path.format": "year=YYYY",
        "partition.field.name": "",
        "rotate.interval.ms": "0",
        "partitioner.max.open.files": "0",
        "timezone": "Mars/Olympus",
    }.items():
        (problem,) = Unjudged.check({**keys, key: value})[1]
        assert f"'{key}'" in problem


# -- what no record of a configuration could have ----------------------------------------------------

FIELD = {"partitioner.class": "FieldPartitioner", "partition.field.name": "country"}
BY_FIELD_OF_TIME = {
    "partitioner.class": "DailyPartitioner",
    "timestamp.extractor": "RecordField",
    "timestamp.field": "at",
}


@pytest.mark.parametrize("kind", ["JsonFormat", "AvroFormat"])
@pytest.mark.parametrize("folders_by", [FIELD, BY_FIELD_OF_TIME], ids=["field", "time"])
@pytest.mark.parametrize(
    "converter",
    [
        "org.apache.kafka.connect.storage.StringConverter",
        "org.apache.kafka.connect.converters.LongConverter",
        "double",
        "boolean",
    ],
)
def test_folders_by_fields_of_values_without_fields_are_refused(
    kind: str, folders_by: dict[str, str], converter: str
) -> None:
    keys = {**MINIMAL, **folders_by, "format.class": kind, "value.converter": converter}
    (problem,) = S3ArchiverConfig.check(keys)[1]

    assert problem.startswith("'value.converter': ")
    assert ("'partition.field.name'" if folders_by is FIELD else "'timestamp.field'") in problem


@pytest.mark.parametrize(
    "keys",
    [
        {"format.class": "JsonFormat", "value.converter": "json"},
        {"format.class": "JsonFormat", "value.converter": "bytes"},
        {"format.class": "JsonFormat"},
        {"format.class": "ByteArrayFormat", "value.converter": "string"},
        {"archive.content": "record", "value.converter": "string"},
        {"format.class": "JsonFormat", "value.converter": "string", "records.sql": "SELECT * FROM records"},
        {
            "format.class": "JsonFormat",
            "value.converter": "string",
            "transforms": "h",
            "transforms.h.type": "org.apache.kafka.connect.transforms.HoistField$Value",
            "transforms.h.field": "country",
        },
    ],
    ids=str,
)
def test_folders_by_fields_of_values_that_may_have_fields_are_accepted(keys: dict[str, str]) -> None:
    assert S3ArchiverConfig.check({**MINIMAL, **FIELD, **keys})[1] == []


JSON_VALUES = {"format.class": "JsonFormat", "value.converter": "json"}
WRITES_TOMBSTONES = {
    "behavior.on.null.values": "write",
    "store.kafka.keys": "true",
    "key.converter": "string",
}
LONGEST = "partition=2147483647/{0}+2147483647+9223372036854775807"


def folder_that_fits(topic: str, end: str) -> str:
    return "d" * (1_024 - len(f"/{topic}/" + LONGEST.format(topic) + end))


@pytest.mark.parametrize(
    ("keys", "end"),
    [
        (JSON_VALUES, ".json"),
        ({**JSON_VALUES, "s3.compression.type": "gzip"}, ".json.gz"),
        ({}, ".avro"),
        ({**JSON_VALUES, "store.kafka.headers": "true"}, ".headers.avro"),
        ({**JSON_VALUES, "records.sql": "SELECT * FROM records"}, "+2147483647.json"),
        (
            {
                "format.class": "ByteArrayFormat",
                "value.converter": "bytes",
                "format.bytearray.extension": ".e",
            },
            ".e",
        ),
    ],
)
def test_a_prefix_and_topic_with_too_long_keys_are_refused(keys: dict[str, str], end: str) -> None:
    # Without this check, the partition would fail at the first record whose key is too long.
    topic = "t" * 249
    fits = {**MINIMAL, **keys, "topics": f"orders,{topic}", "topics.dir": folder_that_fits(topic, end)}

    assert S3ArchiverConfig.check(fits)[1] == []
    (problem,) = S3ArchiverConfig.check({**fits, "topics.dir": fits["topics.dir"] + "d"})[1]
    assert problem.startswith("'topics.dir': ")
    assert "can have 1,025 bytes, but S3 allows 1,024" in problem
    assert topic in problem
    assert "shorten it by 1" in problem


@pytest.mark.parametrize(
    ("key", "keys"),
    [
        (
            "tombstone.encoded.partition",
            {**JSON_VALUES, **WRITES_TOMBSTONES, "tombstone.encoded.partition": "x" * 1_000},
        ),
        ("directory.delim", {"directory.delim": "D" * 340}),
        ("file.delim", {"file.delim": "F" * 480}),
        (
            "format.bytearray.extension",
            {
                "format.class": "ByteArrayFormat",
                "value.converter": "bytes",
                "format.bytearray.extension": "." + "e" * 1_000,
            },
        ),
        (
            "path.format",
            {
                "partitioner.class": "TimeBasedPartitioner",
                "path.format": f"'{'p' * 1_000}'/yyyy",
                "partition.duration.ms": "3600000",
            },
        ),
        (
            "partition.field.name",
            {**JSON_VALUES, "partitioner.class": "FieldPartitioner", "partition.field.name": "f" * 1_000},
        ),
    ],
)
@pytest.mark.parametrize("topics", [{"topics": "orders"}, {"topics": "", "topics.regex": ".*"}], ids=str)
def test_the_setting_that_makes_keys_too_long_is_named(
    key: str, keys: dict[str, str], topics: dict[str, str]
) -> None:
    raw = {name: text for name, text in {**MINIMAL, **keys, **topics}.items() if text}
    (problem,) = S3ArchiverConfig.check(raw)[1]

    assert problem.startswith(f"'{key}': ")
    assert "S3 allows 1,024" in problem


def test_a_topic_with_the_delimiter_of_folders_in_its_name_is_refused() -> None:
    (problem,) = S3ArchiverConfig.check({**MINIMAL, "topics": "a-b", "directory.delim": "-"})[1]

    assert problem.startswith("'directory.delim': ")
