from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sinksdk.errors import (
    ConfigException,
    ConnectException,
    MissingSourceTopicException,
    RetriableException,
)
from sinksdk.offsets import OffsetRange, TopicPartition
from sinksdk.records import HEADERS_TYPE
from sinksdk.topics import Subscription, TopicDirectorySource, write_records
from sinksdk.topics.directory.layout import FileStat, Unfinished
from sinksdk.topics.directory.reader import Footers
from tests.helpers.topic_files import ALL, T0, T1, ends, problem, put, rows


def age(path: Path, seconds: float) -> None:
    moment = time.time() - seconds
    os.utime(path, (moment, moment))


def test_subscription_needs_topics_or_a_regex() -> None:
    for wrong in ({}, {"topics": ("a",), "regex": "a"}, {"regex": "("}):
        with pytest.raises(ConfigException):
            Subscription(**wrong)


def test_unreadable_transactions_are_an_error(tmp_path: Path) -> None:
    # Regression: with a loop of links, uncommitted files became visible.
    write_records(tmp_path, T0, rows(range(3)))
    (tmp_path / "_transactions").symlink_to(tmp_path / "_transactions")
    with pytest.raises(ConnectException, match="_transactions cannot be read: Too many levels"):
        TopicDirectorySource(tmp_path).partitions(ALL)


def test_regex_matches_whole_names() -> None:
    assert Subscription(regex="flights").select(["flights", "flights-eu"]) == {"flights"}
    assert Subscription(regex="x").select(["a"]) == frozenset()


def test_partitions_return_the_lowest_offset_and_the_end_offset(tmp_path: Path) -> None:
    write_records(tmp_path, T0, rows([5, 6, 9]))
    write_records(tmp_path, T0, rows([20]))
    write_records(tmp_path, T1, rows([0]))
    assert ends(tmp_path) == {T0: (5, 21), T1: (0, 1)}


def test_files_are_ordered_by_their_offsets_not_by_their_names(tmp_path: Path) -> None:
    put(tmp_path, "topic=t/partition=0/z.parquet", rows([0, 1]))
    put(tmp_path, "topic=t/partition=0/a.parquet", rows([2, 3]))
    assert ends(tmp_path) == {T0: (0, 4)}


def test_numeric_topic_names_are_read_as_text(tmp_path: Path) -> None:
    names = ["007", "2024-01-01", "a-b_c", "1e5", "true", "...", "a.tmp", "a.crc"]
    for name in names:
        write_records(tmp_path, TopicPartition(name, 0), rows([0]))
    assert {partition.topic for partition in ends(tmp_path)} == set(names)


def test_two_spellings_of_one_topic_are_one_topic(tmp_path: Path) -> None:
    put(tmp_path, "topic=a%2Db/partition=0/1.parquet", rows([0]))
    put(tmp_path, "topic=a-b/partition=0/2.parquet", rows([1]))
    assert ends(tmp_path) == {TopicPartition("a-b", 0): (0, 2)}


def test_all_missing_topics_are_named(tmp_path: Path) -> None:
    write_records(tmp_path, T0, rows([0]))
    with pytest.raises(MissingSourceTopicException) as caught:
        TopicDirectorySource(tmp_path).partitions(Subscription(("b", "t", "a")))
    assert caught.value.topics == ("a", "b")
    assert str(tmp_path) in str(caught.value)
    assert "'t'" in str(caught.value)


def test_regex_without_a_match_returns_no_partitions(tmp_path: Path) -> None:
    assert TopicDirectorySource(tmp_path).partitions(Subscription(regex="x")) == {}


def test_topics_outside_the_subscription_are_not_read(tmp_path: Path) -> None:
    write_records(tmp_path, T0, rows([0]))
    put(tmp_path, "topic=u/partition=0/x.parquet", pa.table({"offset": ["text"]}))
    assert TopicDirectorySource(tmp_path).partitions(Subscription(("t",))) == {T0: (0, 1)}


def test_missing_directory_is_named(tmp_path: Path) -> None:
    assert f"{tmp_path}/none cannot be listed" in problem(tmp_path / "none")


def test_paths_may_be_relative_or_file_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    here = tmp_path / "a b"
    assert TopicDirectorySource("a b").root == here
    assert TopicDirectorySource(f"file:{tmp_path}/a%20b").root == here
    assert TopicDirectorySource(f"file://{tmp_path}/a%20b/").root == here
    for url in ("s3://bucket/x", "dbfs:/x", "abfss://c@a/x", "file://elsewhere/x"):
        with pytest.raises(ConfigException):
            TopicDirectorySource(url)


def test_temporary_and_hidden_names_are_skipped(tmp_path: Path) -> None:
    write_records(tmp_path, T0, rows([0]))
    folder = tmp_path / "topic=t/partition=0"
    hidden = ["_x.parquet", ".x.parquet", "x.parquet.crc", "x.parquet.tmp", "x.parquet._COPYING_"]
    for name in (*hidden, "_temporary/0/x.parquet"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"half")
    (tmp_path / "_SUCCESS").touch()
    assert ends(tmp_path) == {T0: (0, 1)}


def test_other_names_are_skipped_with_one_warning_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_records(tmp_path, T0, rows([0]))
    (tmp_path / "topic=t/partition=0/data.csv").touch()
    (tmp_path / "README").touch()
    source = TopicDirectorySource(tmp_path)
    for _ in range(2):
        assert source.partitions(ALL) == {T0: (0, 1)}
    assert sorted(record.getMessage() for record in caplog.records) == [
        f"{tmp_path}/README is skipped: it is not a folder named topic=<topic>",
        f"{tmp_path}/topic=t/partition=0/data.csv is skipped: it is not a file named *.parquet",
    ]


@pytest.mark.parametrize(
    "name", ["x", "-1", "01", "", "٣", "__HIVE_DEFAULT_PARTITION__", "2147483648", "9" * 200]
)
def test_a_partition_folder_without_a_number_is_an_error(tmp_path: Path, name: str) -> None:
    put(tmp_path, f"topic=t/partition={name}/x.parquet", rows([0]))
    assert f"partition={name} does not have a partition number" in problem(tmp_path)


def test_the_largest_partition_of_kafka_is_read(tmp_path: Path) -> None:
    put(tmp_path, "topic=t/partition=2147483647/x.parquet", rows([0]))
    assert ends(tmp_path) == {TopicPartition("t", 2**31 - 1): (0, 1)}


def test_partition_without_rows_ends_at_0(tmp_path: Path) -> None:
    put(tmp_path, "topic=t/partition=0/x.parquet", rows([]))
    (tmp_path / "topic=t/partition=1").mkdir()
    assert ends(tmp_path) == {T0: (0, 0), T1: (0, 0)}


def test_recent_file_without_a_footer_is_retriable(tmp_path: Path) -> None:
    # Files with later offsets must wait for this file.
    path = tmp_path / "topic=t/partition=0/x.parquet"
    path.parent.mkdir(parents=True)
    source = TopicDirectorySource(tmp_path)
    for content in (b"", b"PAR1 and half a page"):
        path.write_bytes(content)
        with pytest.raises(RetriableException, match="may still be written"):
            source.partitions(ALL)
    pq.write_table(rows([0]), path)
    assert source.partitions(ALL) == {T0: (0, 1)}


@pytest.mark.parametrize("content", [b"", b"PAR1 and half a page", b"a,b,c\n1,2,3\n"])
def test_old_file_without_a_footer_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "topic=t/partition=0/x.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    age(path, 60)
    message = problem(tmp_path)
    assert f"t-0: {path} is not a readable Parquet file" in message
    assert "move it away" in message


def test_broken_file_with_a_future_modification_time_fails_after_the_patience() -> None:
    now = 1_000.0
    unfinished = Unfinished(10, lambda: now)
    stat = FileStat("/x", 1, int(5_000e9))
    assert isinstance(unfinished.judge(stat, "x"), RetriableException)
    now = 1_009.0
    assert isinstance(unfinished.judge(stat, "x"), RetriableException)
    grown = FileStat("/x", 2, int(5_001e9))
    now = 1_011.0
    assert isinstance(unfinished.judge(grown, "x"), RetriableException)
    now = 1_021.0
    assert not isinstance(unfinished.judge(grown, "x"), RetriableException)


HEADERS = pa.array([[{"key": "h", "value": b"1"}]], HEADERS_TYPE)
GOOD_COLUMNS: dict[str, list[Any]] = {
    "offset": [pa.array([1], kind) for kind in (pa.int8(), pa.int32(), pa.uint32(), pa.int64())],
    "value": [
        pa.array(["x"]),
        pa.array(["x"], pa.large_string()),
        pa.array(["x"]).dictionary_encode(),
        pa.array([b"x"], pa.large_binary()),
        pa.nulls(1),
    ],
    "timestamp": [pa.array([1], kind) for kind in (pa.timestamp("s"), pa.timestamp("ns", "UTC"), pa.int64())],
    "timestampType": [pa.array([0], pa.int8()), pa.nulls(1)],
    "headers": [HEADERS, pa.nulls(1, HEADERS_TYPE)],
    "other": [pa.array([{"a": 1}])],
}
BAD_COLUMNS: dict[str, list[Any]] = {
    "offset": [pa.array([1], pa.uint64()), pa.array([1.0]), pa.array(["1"]), pa.nulls(1)],
    "key": [pa.array([1]), pa.array([[b"x"]])],
    "value": [pa.array([1.5]), pa.array([{"a": 1}])],
    "timestamp": [pa.array(["2024-01-01"]), pa.array([1], pa.int32()), pa.array([1], pa.date32())],
    "timestampType": [pa.array(["CreateTime"])],
    "headers": [
        pa.array(["h"]),
        pa.array([[b"h"]]),
        pa.array([[{"key": "h"}]]),
        pa.array([[{"key": "h", "value": "text"}]]),
        pa.array([[{"key": b"h", "value": b"1"}]]),
        pa.array([[{"key": "h", "value": b"1", "more": 1}]]),
        pa.array([[("h", b"1")]], pa.map_(pa.string(), pa.binary())),
    ],
}


@pytest.mark.parametrize(
    ("name", "column"), [(name, column) for name, columns in GOOD_COLUMNS.items() for column in columns]
)
def test_columns_of_compatible_types_are_accepted(tmp_path: Path, name: str, column: Any) -> None:
    put(tmp_path, "topic=t/partition=0/x.parquet", rows([1], **{name: column}))
    assert ends(tmp_path) == {T0: (1, 2)}


@pytest.mark.parametrize(
    ("name", "column"), [(name, column) for name, columns in BAD_COLUMNS.items() for column in columns]
)
def test_column_of_a_wrong_type_is_named_with_the_right_one(tmp_path: Path, name: str, column: Any) -> None:
    path = put(tmp_path, "topic=t/partition=0/x.parquet", rows([1], **{name: column}))
    message = problem(tmp_path)
    assert f"t-0: column '{name}' of {path} is of type " in message
    assert "but must be" in message


@pytest.mark.parametrize("name", ["offset", "key", "value"])
def test_missing_column_is_named(tmp_path: Path, name: str) -> None:
    table = rows([1]).rename_columns({name: name.title()})
    path = put(tmp_path, "topic=t/partition=0/x.parquet", table)
    assert f"{path} has no column '{name}' (it has " in problem(tmp_path)


def test_overlapping_files_are_named(tmp_path: Path) -> None:
    one = put(tmp_path, "topic=t/partition=0/a.parquet", rows([0, 5]))
    two = put(tmp_path, "topic=t/partition=0/b.parquet", rows([5, 6]))
    message = problem(tmp_path)
    assert f"{one} has offsets 0 to 5 and {two} 5 to 6: they overlap" in message


def test_copied_file_overlaps_the_original(tmp_path: Path) -> None:
    path = write_records(tmp_path, T0, rows([0, 1]))
    path.with_name("copy.parquet").write_bytes(path.read_bytes())
    assert "they overlap" in problem(tmp_path)


def test_new_file_below_the_end_is_an_error_at_every_poll(tmp_path: Path) -> None:
    source = TopicDirectorySource(tmp_path)
    write_records(tmp_path, T0, rows(range(10)))
    write_records(tmp_path, T0, rows(range(20, 30)))
    source.partitions(ALL)
    late = write_records(tmp_path, T0, rows(range(10, 20)))
    for _ in range(2):
        with pytest.raises(ConnectException, match=f"go backwards: the new file {late}"):
            source.partitions(ALL)


def test_files_may_be_merged(tmp_path: Path) -> None:
    source = TopicDirectorySource(tmp_path)
    small = [write_records(tmp_path, T0, rows([first, first + 1])) for first in (0, 2)]
    source.partitions(ALL)
    write_records(tmp_path, T0, rows(range(4)))
    for path in small:
        path.unlink()
    assert source.partitions(ALL) == {T0: (0, 4)}


def test_descending_row_groups_are_an_error(tmp_path: Path) -> None:
    put(tmp_path, "topic=t/partition=0/x.parquet", rows([3, 4, 1, 2]), row_group_size=2)
    assert "offsets go backwards within" in problem(tmp_path)
    assert "1 comes after 4" in problem(tmp_path)


def test_more_rows_than_offsets_are_an_error(tmp_path: Path) -> None:
    put(tmp_path, "topic=t/partition=0/x.parquet", rows([1, 2, 2]))
    assert "3 rows with offsets 1 to 2, so some are duplicates" in problem(tmp_path)


@pytest.mark.parametrize("statistics", [True, False])
def test_null_and_negative_offsets_are_errors(tmp_path: Path, *, statistics: bool) -> None:
    path = put(tmp_path, "topic=t/partition=0/x.parquet", rows([1, None]), write_statistics=statistics)
    assert f"{path} has 1 rows whose column 'offset' is null" in problem(tmp_path)
    put(tmp_path, "topic=t/partition=0/x.parquet", rows([None]), write_statistics=statistics)
    assert "is null" in problem(tmp_path)
    put(tmp_path, "topic=t/partition=0/x.parquet", rows([-1, 0]), write_statistics=statistics)
    assert f"{path} has the negative offset -1" in problem(tmp_path)


def test_files_without_statistics_are_read_for_their_offsets(tmp_path: Path) -> None:
    options: dict[str, Any] = {"write_statistics": False, "row_group_size": 2}
    put(tmp_path, "topic=t/partition=0/x.parquet", rows([1, 2, 5, 7]), **options)
    assert ends(tmp_path) == {T0: (1, 8)}
    put(tmp_path, "topic=t/partition=0/x.parquet", rows([5, 7, 1, 2]), **options)
    assert "go backwards within" in problem(tmp_path)


def test_footer_is_read_once_while_its_file_is_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    real = pq.ParquetFile

    def counted(path: str) -> pq.ParquetFile:
        opened.append(path)
        return real(path)

    monkeypatch.setattr("sinksdk.topics.directory.reader.pq.ParquetFile", counted)
    source = TopicDirectorySource(tmp_path)
    first = write_records(tmp_path, T0, rows([0]))
    for _ in range(3):
        source.partitions(ALL)
    second = write_records(tmp_path, T0, rows([1]))
    source.partitions(ALL)
    assert opened == [str(first), str(second)]
    second.unlink()
    put(tmp_path, second.relative_to(tmp_path).as_posix(), rows([1, 2, 3]))
    assert source.partitions(ALL) == {T0: (0, 4)}


def test_file_removed_during_a_poll_is_skipped(tmp_path: Path) -> None:
    footers = Footers(Unfinished(10))
    assert footers.read(FileStat(str(tmp_path / "gone.parquet"), 1, 1), T0) is None


def test_file_missing_between_others_is_an_error(tmp_path: Path) -> None:
    # Regression: the offsets of such a file were committed, although they were not read.
    partition = TopicPartition("t", 0)
    for first in (0, 100, 200):
        table = pa.table({"offset": range(first, first + 100), "key": [b"k"] * 100, "value": [b"v"] * 100})
        middle = write_records(tmp_path, partition, table) if first == 100 else None
        if middle is None:
            write_records(tmp_path, partition, table)
        else:
            kept = middle
    source = TopicDirectorySource(tmp_path, unfinished_patience=0.0)
    source.partitions(Subscription(("t",)))
    kept.unlink()

    with pytest.raises(ConnectException, match="was removed, but not the files before it"):
        source.partitions(Subscription(("t",)))
    with pytest.raises(RetriableException):
        TopicDirectorySource.partitions(_patient(source), Subscription(("t",)))


def _patient(source: TopicDirectorySource) -> TopicDirectorySource:
    source._patience = 60.0
    source._missed_since.clear()
    return source


def test_the_oldest_files_may_be_removed(tmp_path: Path) -> None:
    partition = TopicPartition("t", 0)
    files = [
        write_records(tmp_path, partition, pa.table({"offset": [n], "key": [b"k"], "value": [b"v"]}))
        for n in range(3)
    ]
    source = TopicDirectorySource(tmp_path)
    source.partitions(Subscription(("t",)))
    files[0].unlink()

    assert source.partitions(Subscription(("t",))) == {partition: OffsetRange(1, 3)}
