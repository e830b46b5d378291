from __future__ import annotations

import pickle
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sinksdk.engine.task_run import Unread
from sinksdk.errors import OffsetOutOfRangeException, RetriableException
from sinksdk.offsets import OffsetRange, TopicPartition
from sinksdk.records import HEADERS_TYPE, RECORD_COLUMNS, SinkRecords
from sinksdk.topics import TopicDirectorySource, write_records, write_transaction
from tests.helpers.topic_files import ALL, T0, T1, put, rows


def read(
    root: Path | str,
    ranges: Mapping[TopicPartition, OffsetRange] | None = None,
    columns: Collection[str] = RECORD_COLUMNS,
) -> list[SinkRecords]:
    source = TopicDirectorySource(root)
    ranges = source.partitions(ALL) if ranges is None else ranges
    reader = pickle.loads(pickle.dumps(source.reader(ranges)))  # noqa: S301 - our own
    found = [each for each in reader.read(ranges, columns, {}) if each is not None]
    assert all(isinstance(each, SinkRecords) for each in found)
    return found


def one(root: Path | str, **options: Any) -> pa.Table:
    return pa.Table.from_batches([records.arrow for records in read(root, **options)])


def offsets(found: list[SinkRecords]) -> list[int]:
    return [offset for records in found for offset in records.arrow.column("offset").to_pylist()]


def test_records_equal_those_written(tmp_path: Path) -> None:
    columns: dict[str, Any] = {
        "key": pa.array([None, b"", bytes(range(256)), b"k"], pa.binary()),
        "value": pa.array([b"\x00" * 1_000_000, None, b"", b"\xff\xfe"], pa.binary()),
        "timestamp": pa.array([-1, 0, None, 1_700_000_000_123], pa.timestamp("ms", "UTC")),
        "timestampType": pa.array([0, 1, None, -1], pa.int32()),
        "headers": pa.array(
            [
                [{"key": "größe", "value": b"1"}, {"key": "größe", "value": None}],
                [],
                None,
                [{"key": "", "value": b""}],
            ],
            HEADERS_TYPE,
        ),
    }
    write_records(tmp_path, T0, rows([3, 5, 6, 9], **columns))
    found = read(tmp_path)
    assert {records.partition for records in found} == {T0}
    got = pa.Table.from_batches([records.arrow for records in found])
    assert got.schema.names == list(RECORD_COLUMNS)
    assert [got.schema.field(name).type for name in RECORD_COLUMNS] == list(RECORD_COLUMNS.values())
    assert got.column("offset").to_pylist() == [3, 5, 6, 9]
    for name, column in columns.items():
        assert got.column(name).to_pylist() == column.to_pylist()


def test_timestamps_of_any_type_become_milliseconds(tmp_path: Path) -> None:
    milliseconds = [-1, 0, None, 1_600_000_000_123]
    nanoseconds = [-1, 0, None, 1_600_000_000_123_456_789]
    arrays = {
        "s": pa.array([-1, 0, None, 1_600_000_000], pa.timestamp("s")),
        "ms": pa.array(milliseconds, pa.timestamp("ms")),
        "ms_utc": pa.array(milliseconds, pa.timestamp("ms", "UTC")),
        "us_zone": pa.array(milliseconds, pa.int64())
        .cast(pa.timestamp("ms"))
        .cast(pa.timestamp("us", "Asia/Tokyo")),
        "long": pa.array(milliseconds, pa.int64()),
        "ns": pa.array(nanoseconds, pa.timestamp("ns")),
        "ns_utc": pa.array(nanoseconds, pa.timestamp("ns", "UTC")),
    }
    for name, array in arrays.items():
        write_records(tmp_path, TopicPartition(name, 0), rows(range(4), timestamp=array))
    int96 = rows(range(4), timestamp=arrays["ns"])
    put(tmp_path, "topic=int96/partition=0/x.parquet", int96, use_deprecated_int96_timestamps=True)
    for records in read(tmp_path):
        expected = [-1_000, 0, None, 1_600_000_000_000] if records.partition.topic == "s" else milliseconds
        assert records.arrow.column("timestamp").cast(pa.int64()).to_pylist() == expected, records.partition


def test_strings_and_dictionaries_become_bytes(tmp_path: Path) -> None:
    texts = ["ü", None, "", "ü"]
    kinds = {
        "string": pa.array(texts, pa.string()),
        "large": pa.array(texts, pa.large_string()),
        "dictionary": pa.array(texts, pa.string()).dictionary_encode(),
        "bytes": pa.array([text.encode() if text is not None else None for text in texts], pa.large_binary()),
    }
    for name, array in kinds.items():
        write_records(tmp_path, TopicPartition(name, 0), rows(range(4), key=array, value=array))
    for records in read(tmp_path):
        for column in ("key", "value"):
            assert records.arrow.column(column).to_pylist() == ["ü".encode(), None, b"", "ü".encode()]


def test_headers_of_any_list_type_become_pairs(tmp_path: Path) -> None:
    fields = [pa.field("value", pa.large_binary()), pa.field("key", pa.large_string())]
    kind = pa.large_list(pa.struct(fields))
    headers = pa.array(
        [None, [{"key": "a", "value": None}], [], [{"key": "b", "value": b"1"}, {"key": "c", "value": b""}]],
        kind,
    )
    write_records(tmp_path, T0, rows(range(4), headers=headers))
    (found,) = read(tmp_path, {T0: OffsetRange(1, 4)})
    assert found.arrow.column("headers").to_pylist() == headers.to_pylist()[1:]


def test_files_of_spark_are_read(tmp_path: Path) -> None:
    moment = datetime(2024, 5, 6, 7, 8, 9, 123_000, UTC)
    table = pa.table(
        {
            "offset": pa.array(range(3), pa.int64()),
            "key": ["k"] * 3,
            "value": [f"ü{at}" for at in range(3)],
            "timestamp": pa.array([moment] * 3, pa.timestamp("us", "UTC")),
        }
    )
    topics = ["007", "2024-01-01", "a-b.c"]
    for folder in ("007", "2024-01-01", "a%2Db.c", "a%3Ab%2Fc%3D%25", "größe"):
        put(
            tmp_path,
            f"topic={folder}/partition=1/part-00000-x.c000.snappy.parquet",
            table,
            use_deprecated_int96_timestamps=True,
        )
    found = read(tmp_path)
    assert {records.partition for records in found} == {TopicPartition(topic, 1) for topic in topics}
    for records in found:
        assert records.arrow.column("value").to_pylist() == [f"ü{at}".encode() for at in range(3)]
        assert records.arrow.column("timestamp").to_pylist() == [moment] * 3


def test_many_small_files_are_joined_in_offset_order(tmp_path: Path) -> None:
    sizes = np.random.default_rng(7).integers(1, 200, 120)
    borders = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    for start, stop in pairwise(borders):
        write_records(tmp_path, T0, rows(range(start, stop)))
    found = read(tmp_path)
    assert offsets(found) == list(range(borders[-1]))
    assert len(found) == 2


def test_batch_is_limited_in_bytes(tmp_path: Path) -> None:
    values = [b"x" * 1_000_000] * 40 + [b"y" * 40_000_000] + [b"z"] * 3
    write_records(tmp_path, T0, rows(range(44), value=pa.array(values, pa.binary())))
    found = read(tmp_path)
    assert offsets(found) == list(range(44))
    assert max(records.arrow.nbytes for records in found if len(records) > 1) < 60_000_000
    assert len(found) > 2


def test_a_file_is_read_piece_by_piece(tmp_path: Path) -> None:
    # Regression: a row group of 60 MB was fetched ahead and stayed in memory.
    random = np.random.default_rng(7)
    values = pa.array([random.bytes(1_000) for _ in range(60_000)], pa.binary())
    write_records(tmp_path, T0, rows(range(60_000), value=values))
    source = TopicDirectorySource(tmp_path)
    ranges = source.partitions(ALL)
    del values
    before = pa.total_allocated_bytes()
    most = max(
        pa.total_allocated_bytes() - before
        for records in source.reader(ranges).read(ranges, RECORD_COLUMNS, {})
        if records is not None
    )
    assert 0 < most < 30_000_000


def test_repeated_values_count_with_their_decoded_size(tmp_path: Path) -> None:
    # Regression: ten encoded values of 100 KB were one batch of 200 MB.
    values = [bytes([number]) * 100_000 for number in range(10)] * 200
    write_records(tmp_path, T0, rows(range(2_000), value=pa.array(values, pa.binary())))
    found = read(tmp_path)
    assert offsets(found) == list(range(2_000))
    assert max(records.arrow.nbytes for records in found) < 20_000_000


def test_rows_that_grow_are_split(tmp_path: Path) -> None:
    values = [b"x"] * 5_000 + [b"y" * 500_000] * 100
    write_records(tmp_path, T0, rows(range(5_100), value=pa.array(values, pa.binary())))
    found = read(tmp_path)
    assert offsets(found) == list(range(5_100))
    assert max(len(records) for records in found if records.arrow.nbytes > 30_000_000) < 5_000


def test_reader_yields_none_while_joining_small_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A task that is to close does not wait for 10,000 rows.
    monkeypatch.setattr("sinksdk.topics.directory.reader._PATIENCE", 0.0)
    for at in range(5):
        write_records(tmp_path, T0, rows([at]))
    source = TopicDirectorySource(tmp_path)
    ranges = source.partitions(ALL)
    found = list(source.reader(ranges).read(ranges, RECORD_COLUMNS, {}))
    assert found[:5] == [None] * 5
    assert offsets([found[-1]]) == list(range(5))


def test_only_row_groups_of_the_range_are_read(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    values = pa.array([random.bytes(int(size)) for size in random.integers(1, 100, 5_000)], pa.binary())
    put(tmp_path, "topic=t/partition=0/x.parquet", rows(range(5_000), value=values), row_group_size=100)
    assert offsets(read(tmp_path)) == list(range(5_000))
    assert offsets(read(tmp_path, {T0: OffsetRange(150, 350)})) == list(range(150, 350))


def test_only_the_range_is_read(tmp_path: Path) -> None:
    for first in (0, 100, 200):
        write_records(tmp_path, T0, rows(range(first, first + 50)))
    everything = [offset for first in (0, 100, 200) for offset in range(first, first + 50)]
    for start, end in ((0, 250), (10, 240), (25, 30), (50, 100), (60, 101), (100, 150), (249, 250)):
        expected = [offset for offset in everything if start <= offset < end]
        assert offsets(read(tmp_path, {T0: OffsetRange(start, end)})) == expected


@pytest.mark.parametrize("ranges", [{}, {T0: OffsetRange(2, 2)}, {T1: OffsetRange(0, 0)}])
def test_range_without_rows_returns_no_batch(
    tmp_path: Path, ranges: dict[TopicPartition, OffsetRange]
) -> None:
    write_records(tmp_path, T0, rows([0, 1]))
    assert read(tmp_path, ranges) == []


def test_ranges_are_read_in_the_requested_order(tmp_path: Path) -> None:
    for partition, first in ((T0, 0), (T0, 10), (T1, 100)):
        write_records(tmp_path, partition, rows(range(first, first + 3)))
    ends = TopicDirectorySource(tmp_path).partitions(ALL)
    found = read(tmp_path, {T1: ends[T1], T0: ends[T0]})
    assert [records.partition for records in found] == [T1, T0]
    assert offsets(found) == [100, 101, 102, 0, 1, 2, 10, 11, 12]


def test_columns_missing_in_all_files_are_omitted(tmp_path: Path) -> None:
    write_records(tmp_path, T0, rows([0]))
    got = one(tmp_path)
    assert got.schema.names == ["offset", "timestamp", "key", "value"]
    assert got.column("timestamp").to_pylist() == [None]


def test_columns_missing_in_some_files_are_null_there(tmp_path: Path) -> None:
    headers = pa.array([[{"key": "h", "value": b"1"}]], HEADERS_TYPE)
    write_records(tmp_path, T0, rows([0]))
    write_records(tmp_path, T0, rows([1], headers=headers))
    write_records(tmp_path, T0, rows([2], value=pa.nulls(1)))
    got = one(tmp_path).select(["offset", "value", "headers"])
    assert got.to_pylist() == [
        {"offset": 0, "value": b"v", "headers": None},
        {"offset": 1, "value": b"v", "headers": [{"key": "h", "value": b"1"}]},
        {"offset": 2, "value": None, "headers": None},
    ]


def test_offsets_of_any_integer_type_become_longs(tmp_path: Path) -> None:
    for at, kind in enumerate((pa.int8(), pa.int16(), pa.uint8(), pa.uint16(), pa.int32(), pa.uint32())):
        table = rows([at * 10, at * 10 + 1])
        write_records(tmp_path, T0, table.set_column(0, "offset", table.column("offset").cast(kind)))
    assert offsets(read(tmp_path, {T0: OffsetRange(1, 51)})) == [1, 10, 11, 20, 21, 30, 31, 40, 41, 50]


def test_unrequested_columns_are_not_read(tmp_path: Path) -> None:
    write_records(tmp_path, T0, rows([0], timestamp=pa.array([1], pa.timestamp("ms", "UTC"))))
    assert one(tmp_path, columns=["value"]).schema.names == ["offset", "value"]


def test_any_path_can_be_a_topic_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a b%20#c", "data[1]{x,y}*?", "ü:é", "back\\slash"):
        write_records(name, TopicPartition("a.b-c", 0), rows([0, 1]))
        write_records(name, TopicPartition("a.b-c", 0), rows([2]))
        assert offsets(read(name)) == [0, 1, 2]


def test_a_transaction_over_partitions_is_read(tmp_path: Path) -> None:
    write_transaction(tmp_path, {T0: rows([0, 1]), T1: rows([5])})
    write_records(tmp_path, T0, rows([2]))
    assert offsets(read(tmp_path)) == [0, 1, 5]


def test_range_whose_file_was_removed_is_out_of_range(tmp_path: Path) -> None:
    # A removed file must not count as a gap.
    write_records(tmp_path, T0, rows([5, 6]))
    source = TopicDirectorySource(tmp_path)
    for start, end in ((4, 6), (5, 8)):
        with pytest.raises(OffsetOutOfRangeException, match=r"now has only \[5, 7\)"):
            source.reader({T0: OffsetRange(start, end)})


def test_file_removed_during_reading_is_retriable(tmp_path: Path) -> None:
    first = write_records(tmp_path, T0, rows([0, 1]))
    write_records(tmp_path, T0, rows([2]))
    source = TopicDirectorySource(tmp_path)
    ranges = source.partitions(ALL)
    reader = source.reader(ranges)
    first.unlink()
    (found,) = reader.read(ranges, RECORD_COLUMNS, {})
    assert isinstance(found, Unread)
    assert isinstance(found.error, RetriableException)
    assert "was removed after the range was planned" in str(found.error)


def test_unreadable_file_ends_only_its_range(tmp_path: Path) -> None:
    write_records(tmp_path, T0, rows([0, 1]))
    broken = write_records(tmp_path, T0, rows(range(2, 50_000), value=pa.array([b"x" * 99] * 49_998)))
    write_records(tmp_path, T1, rows([7]))
    source = TopicDirectorySource(tmp_path)
    ranges = source.partitions(ALL)
    reader = source.reader(ranges)
    data = bytearray(broken.read_bytes())
    data[100 : len(data) // 2] = bytes(len(data) // 2 - 100)  # the footer stays intact
    broken.write_bytes(data)
    *found, last = reader.read(ranges, RECORD_COLUMNS, {})
    (unread,) = [each for each in found if isinstance(each, Unread)]
    assert unread.partition == T0
    assert str(broken) in str(unread.error)
    assert isinstance(last, SinkRecords)
    assert offsets([last]) == [7]
