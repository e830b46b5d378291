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


def test_a_subscription_is_names_or_an_expression() -> None:
    """Neither or both, or a broken expression, is a configuration error."""
    for wrong in ({}, {"topics": ("a",), "regex": "a"}, {"regex": "("}):
        with pytest.raises(ConfigException):
            Subscription(**wrong)


def test_transactions_that_cannot_be_looked_at_are_not_taken_for_none(tmp_path: Path) -> None:
    """Regression: where they were a loop of links, all files counted, uncommitted ones too."""
    write_records(tmp_path, T0, rows(range(3)))
    (tmp_path / "_transactions").symlink_to(tmp_path / "_transactions")
    with pytest.raises(ConnectException, match="_transactions cannot be read: Too many levels"):
        TopicDirectorySource(tmp_path).partitions(ALL)


def test_a_subscription_by_expression_matches_whole_names_and_may_match_nothing() -> None:
    """`flights` does not match `flights-eu`; matching nothing is no error."""
    assert Subscription(regex="flights").select(["flights", "flights-eu"]) == {"flights"}
    assert Subscription(regex="x").select(["a"]) == frozenset()


def test_partitions_tell_begin_and_end_of_each_partition(tmp_path: Path) -> None:
    """The begin is the lowest offset of all files, the end one above the highest, gaps included."""
    write_records(tmp_path, T0, rows([5, 6, 9]))
    write_records(tmp_path, T0, rows([20]))
    write_records(tmp_path, T1, rows([0]))
    assert ends(tmp_path) == {T0: (5, 21), T1: (0, 1)}


def test_files_are_ordered_by_their_offsets_not_by_their_names(tmp_path: Path) -> None:
    """A file `a` with higher offsets than a file `z` is fine."""
    put(tmp_path, "topic=t/partition=0/z.parquet", rows([0, 1]))
    put(tmp_path, "topic=t/partition=0/a.parquet", rows([2, 3]))
    assert ends(tmp_path) == {T0: (0, 4)}


def test_topics_are_text_whatever_they_look_like(tmp_path: Path) -> None:
    """`007`, a date, and names of temporary files come back as they were."""
    names = ["007", "2024-01-01", "a-b_c", "1e5", "true", "...", "a.tmp", "a.crc"]
    for name in names:
        write_records(tmp_path, TopicPartition(name, 0), rows([0]))
    assert {partition.topic for partition in ends(tmp_path)} == set(names)


def test_two_spellings_of_one_topic_are_one_topic(tmp_path: Path) -> None:
    """`a%2Db` and `a-b` both name the topic `a-b`."""
    put(tmp_path, "topic=a%2Db/partition=0/1.parquet", rows([0]))
    put(tmp_path, "topic=a-b/partition=0/2.parquet", rows([1]))
    assert ends(tmp_path) == {TopicPartition("a-b", 0): (0, 2)}


def test_all_missing_topics_are_named_at_once(tmp_path: Path) -> None:
    """The exception lists every missing topic, and the message the directory and the topics there."""
    write_records(tmp_path, T0, rows([0]))
    with pytest.raises(MissingSourceTopicException) as caught:
        TopicDirectorySource(tmp_path).partitions(Subscription(("b", "t", "a")))
    assert caught.value.topics == ("a", "b")
    assert str(tmp_path) in str(caught.value)
    assert "'t'" in str(caught.value)


def test_an_expression_that_matches_nothing_gives_no_partitions(tmp_path: Path) -> None:
    """Topics may come later: that is no error."""
    assert TopicDirectorySource(tmp_path).partitions(Subscription(regex="x")) == {}


def test_only_subscribed_topics_are_looked_at(tmp_path: Path) -> None:
    """A broken file of another topic does not matter."""
    write_records(tmp_path, T0, rows([0]))
    put(tmp_path, "topic=u/partition=0/x.parquet", pa.table({"offset": ["text"]}))
    assert TopicDirectorySource(tmp_path).partitions(Subscription(("t",))) == {T0: (0, 1)}


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The message gives the path and says what to do."""
    assert f"{tmp_path}/none cannot be listed" in problem(tmp_path / "none")


def test_paths_may_be_relative_or_file_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both end as the same absolute path; other file systems are refused."""
    monkeypatch.chdir(tmp_path)
    here = tmp_path / "a b"
    assert TopicDirectorySource("a b").root == here
    assert TopicDirectorySource(f"file:{tmp_path}/a%20b").root == here
    assert TopicDirectorySource(f"file://{tmp_path}/a%20b/").root == here
    for url in ("s3://bucket/x", "dbfs:/x", "abfss://c@a/x", "file://elsewhere/x"):
        with pytest.raises(ConfigException):
            TopicDirectorySource(url)


def test_temporary_and_hidden_names_are_not_looked_at(tmp_path: Path) -> None:
    """What writers leave or prepare is no data, even where it is broken."""
    write_records(tmp_path, T0, rows([0]))
    folder = tmp_path / "topic=t/partition=0"
    hidden = ["_x.parquet", ".x.parquet", "x.parquet.crc", "x.parquet.tmp", "x.parquet._COPYING_"]
    for name in (*hidden, "_temporary/0/x.parquet"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"half")
    (tmp_path / "_SUCCESS").touch()
    assert ends(tmp_path) == {T0: (0, 1)}


def test_other_names_are_left_out_with_one_warning_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file not named *.parquet is not data, but nobody should have to guess why."""
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
    """The folder is named with what it should be called."""
    put(tmp_path, f"topic=t/partition={name}/x.parquet", rows([0]))
    assert f"partition={name} does not have a partition number" in problem(tmp_path)


def test_the_largest_partition_of_kafka_is_read(tmp_path: Path) -> None:
    """Its numbers have 31 bits."""
    put(tmp_path, "topic=t/partition=2147483647/x.parquet", rows([0]))
    assert ends(tmp_path) == {TopicPartition("t", 2**31 - 1): (0, 1)}


def test_empty_files_and_folders_hold_nothing(tmp_path: Path) -> None:
    """A partition without rows is there and ends where it begins, at 0."""
    put(tmp_path, "topic=t/partition=0/x.parquet", rows([]))
    (tmp_path / "topic=t/partition=1").mkdir()
    assert ends(tmp_path) == {T0: (0, 0), T1: (0, 0)}


def test_a_fresh_file_without_footer_may_still_be_growing(tmp_path: Path) -> None:
    """Offsets beyond it must wait, so the whole look is retriable; once it is whole, it counts."""
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
def test_an_old_file_without_footer_is_no_parquet(tmp_path: Path, content: bytes) -> None:
    """Nothing has changed for a while: the file is broken, and the message says which and what to do."""
    path = tmp_path / "topic=t/partition=0/x.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    age(path, 60)
    message = problem(tmp_path)
    assert f"t-0: {path} is not a readable Parquet file" in message
    assert "move it away" in message


def test_a_file_from_the_future_is_given_up_by_our_own_clock() -> None:
    """A wrong clock on the writer's host does not make a broken file wait for ever."""
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
def test_columns_people_write_are_accepted(tmp_path: Path, name: str, column: Any) -> None:
    """Strings for bytes, small integers for offsets, timestamps of any unit, columns without a type."""
    put(tmp_path, "topic=t/partition=0/x.parquet", rows([1], **{name: column}))
    assert ends(tmp_path) == {T0: (1, 2)}


@pytest.mark.parametrize(
    ("name", "column"), [(name, column) for name, columns in BAD_COLUMNS.items() for column in columns]
)
def test_a_column_of_a_wrong_type_is_named_with_what_it_must_be(
    tmp_path: Path, name: str, column: Any
) -> None:
    """Partition, column, file, the type it has and the one it must have."""
    path = put(tmp_path, "topic=t/partition=0/x.parquet", rows([1], **{name: column}))
    message = problem(tmp_path)
    assert f"t-0: column '{name}' of {path} is of type " in message
    assert "but must be" in message


@pytest.mark.parametrize("name", ["offset", "key", "value"])
def test_a_required_column_that_is_missing_is_named(tmp_path: Path, name: str) -> None:
    """The message lists the columns there are, so that a misspelt one is seen."""
    table = rows([1]).rename_columns({name: name.title()})
    path = put(tmp_path, "topic=t/partition=0/x.parquet", table)
    assert f"{path} has no column '{name}' (it has " in problem(tmp_path)


def test_files_that_overlap_are_both_named(tmp_path: Path) -> None:
    """Two files with the same offset would archive a record twice."""
    one = put(tmp_path, "topic=t/partition=0/a.parquet", rows([0, 5]))
    two = put(tmp_path, "topic=t/partition=0/b.parquet", rows([5, 6]))
    message = problem(tmp_path)
    assert f"{one} has offsets 0 to 5 and {two} 5 to 6: they overlap" in message


def test_a_file_that_was_copied_overlaps_itself(tmp_path: Path) -> None:
    """The same range under two names."""
    path = write_records(tmp_path, T0, rows([0, 1]))
    path.with_name("copy.parquet").write_bytes(path.read_bytes())
    assert "they overlap" in problem(tmp_path)


def test_a_new_file_with_offsets_below_the_end_goes_backwards(tmp_path: Path) -> None:
    """What was read up to 29 would never come back to 10 to 19: that is said, on every look."""
    source = TopicDirectorySource(tmp_path)
    write_records(tmp_path, T0, rows(range(10)))
    write_records(tmp_path, T0, rows(range(20, 30)))
    source.partitions(ALL)
    late = write_records(tmp_path, T0, rows(range(10, 20)))
    for _ in range(2):
        with pytest.raises(ConnectException, match=f"go backwards: the new file {late}"):
            source.partitions(ALL)


def test_files_may_be_rewritten_into_others(tmp_path: Path) -> None:
    """Two small files become one large one with the same records: nothing went backwards."""
    source = TopicDirectorySource(tmp_path)
    small = [write_records(tmp_path, T0, rows([first, first + 1])) for first in (0, 2)]
    source.partitions(ALL)
    write_records(tmp_path, T0, rows(range(4)))
    for path in small:
        path.unlink()
    assert source.partitions(ALL) == {T0: (0, 4)}


def test_row_groups_that_go_backwards_are_an_error(tmp_path: Path) -> None:
    """Statistics tell it without reading rows."""
    put(tmp_path, "topic=t/partition=0/x.parquet", rows([3, 4, 1, 2]), row_group_size=2)
    assert "offsets go backwards within" in problem(tmp_path)
    assert "1 comes after 4" in problem(tmp_path)


def test_more_rows_than_offsets_are_an_error(tmp_path: Path) -> None:
    """Three rows with offsets 1 to 2: one of them is there twice."""
    put(tmp_path, "topic=t/partition=0/x.parquet", rows([1, 2, 2]))
    assert "3 rows with offsets 1 to 2, so some are duplicates" in problem(tmp_path)


@pytest.mark.parametrize("statistics", [True, False])
def test_null_and_negative_offsets_are_errors(tmp_path: Path, *, statistics: bool) -> None:
    """Both are said with the file, with statistics and without."""
    path = put(tmp_path, "topic=t/partition=0/x.parquet", rows([1, None]), write_statistics=statistics)
    assert f"{path} has 1 rows whose column 'offset' is null" in problem(tmp_path)
    put(tmp_path, "topic=t/partition=0/x.parquet", rows([None]), write_statistics=statistics)
    assert "is null" in problem(tmp_path)
    put(tmp_path, "topic=t/partition=0/x.parquet", rows([-1, 0]), write_statistics=statistics)
    assert f"{path} has the negative offset -1" in problem(tmp_path)


def test_files_without_statistics_are_read_for_their_offsets(tmp_path: Path) -> None:
    """Begin, end and the order of row groups are the same as with statistics."""
    options: dict[str, Any] = {"write_statistics": False, "row_group_size": 2}
    put(tmp_path, "topic=t/partition=0/x.parquet", rows([1, 2, 5, 7]), **options)
    assert ends(tmp_path) == {T0: (1, 8)}
    put(tmp_path, "topic=t/partition=0/x.parquet", rows([5, 7, 1, 2]), **options)
    assert "go backwards within" in problem(tmp_path)


def test_a_footer_is_read_once_for_as_long_as_its_file_stays_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking again opens only what is new or changed."""
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


def test_a_file_removed_while_looking_holds_nothing(tmp_path: Path) -> None:
    """Retention may remove it between the listing and the opening."""
    footers = Footers(Unfinished(10))
    assert footers.read(FileStat(str(tmp_path / "gone.parquet"), 1, 1), T0) is None


def test_records_that_vanish_from_the_middle_are_not_taken_for_a_gap(tmp_path: Path) -> None:
    """Regression: a file missing between two others was passed over, and its offsets committed unread."""
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
    """Retention takes files from the beginning: the partition begins later then, and that is all."""
    partition = TopicPartition("t", 0)
    files = [
        write_records(tmp_path, partition, pa.table({"offset": [n], "key": [b"k"], "value": [b"v"]}))
        for n in range(3)
    ]
    source = TopicDirectorySource(tmp_path)
    source.partitions(Subscription(("t",)))
    files[0].unlink()

    assert source.partitions(Subscription(("t",))) == {partition: OffsetRange(1, 3)}
