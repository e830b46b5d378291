"""Conversion of a transform's rows to a task's input."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinksdk import ConnectException, OffsetOutOfRangeException, SinkRecords, TopicPartition
from sinksdk.engine.task_run import Unread
from sinksdk.records import RECORD_COLUMNS
from sinksdk.spark.bypass import Columns
from sinksdk.spark.transform_task import _end_of, _TaskChannel, arranged, sent
from tests.engine.sinks import rows

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)

Row = tuple[TopicPartition, int]


def batch_of(*found: Row) -> pa.RecordBatch:
    """Return a batch as Spark does: the coordinates of the rows, with each row's number as its value."""
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array([partition.topic for partition, _ in found], pa.string()),
            "partition": pa.array([partition.partition for partition, _ in found], pa.int32()),
            "offset": pa.array([offset for _, offset in found], pa.int64()),
            "value": pa.array([b"%d" % offset for _, offset in found], pa.binary()),
        }
    )


def ended() -> bool:
    return True


def cut() -> bool:
    return False


def nothing() -> Iterable[Unread]:
    return ()


def shown(items: Iterable[SinkRecords | Unread]) -> list[tuple[str, list[int]] | str]:
    """Return partition and offsets of each batch, and unread ranges."""
    return [
        f"unread {item.partition}"
        if isinstance(item, Unread)
        else (str(item.partition), item.offsets.tolist())
        for item in items
    ]


def test_rows_are_split_by_partition() -> None:
    found = arranged([batch_of((P0, 1), (P0, 2), (P1, 1)), batch_of((P1, 4))], nothing, ended)
    assert shown(found) == [("flights-0", [1, 2]), ("flights-1", [1]), ("flights-1", [4])]


def test_partitions_of_several_topics_are_split() -> None:
    other = TopicPartition("trains", 0)
    found = arranged([batch_of((P0, 1), (other, 2), (other, 2))], nothing, ended)
    assert shown(found) == [("flights-0", [1]), ("trains-0", [2, 2])]


def test_rows_of_an_offset_are_joined_over_batches() -> None:
    batches = [batch_of((P0, 0), (P0, 5)), batch_of((P0, 5), (P0, 5)), batch_of((P0, 5), (P0, 9))]
    assert shown(arranged(batches, nothing, ended)) == [
        ("flights-0", [0]),
        ("flights-0", [5, 5, 5, 5]),
        ("flights-0", [9]),
    ]


@given(
    offsets=st.lists(st.integers(0, 9), max_size=40).map(sorted),
    borders=st.lists(st.integers(0, 40), max_size=12).map(sorted),
)
def test_however_rows_are_divided_no_batch_ends_within_an_offset(
    offsets: list[int], borders: list[int]
) -> None:
    found: list[Row] = [(P0, offset) for offset in offsets]
    edges = [0, *borders, len(found)]
    batches = [batch_of(*found[begin:end]) for begin, end in itertools.pairwise(edges)]
    given_batches = list(arranged(batches, nothing, ended))
    assert [int(offset) for item in given_batches for offset in item.offsets] == offsets  # type: ignore[union-attr]
    for before, after in itertools.pairwise(given_batches):
        assert isinstance(before, SinkRecords)
        assert isinstance(after, SinkRecords)
        assert before.next_offset <= after.first_offset


def test_a_cut_stream_yields_no_last_batch() -> None:
    # Regression: an Arrow stream that is cut between two batches looks like one that has ended.
    items = arranged([batch_of((P0, 1), (P0, 2)), batch_of((P0, 3))], nothing, cut)
    assert shown([next(items)]) == [("flights-0", [1, 2])]
    with pytest.raises(ConnectException, match="may be incomplete"):
        next(items)


def test_unread_ranges_come_after_their_rows() -> None:
    lost = [Unread(p, OffsetOutOfRangeException("gone")) for p in (P0, P1)]
    third = TopicPartition("flights", 2)
    items = arranged([batch_of((P0, 1)), batch_of((third, 1))], lambda: lost, ended)
    assert shown(items) == [
        ("flights-0", [1]),
        "unread flights-0",
        ("flights-2", [1]),
        "unread flights-1",
    ]


def test_unread_ranges_wait_for_rows_in_flight() -> None:
    # The reading worker is ahead of its rows.
    items = arranged(
        [batch_of((P0, 1)), batch_of((P1, 1)), batch_of((P1, 2))],
        lambda: [Unread(P1, OffsetOutOfRangeException("gone"))],
        ended,
    )
    assert shown(items) == [
        ("flights-0", [1]),
        ("flights-1", [1]),
        ("flights-1", [2]),
        "unread flights-1",
    ]


def test_a_failure_of_the_reading_worker_is_raised_unchanged() -> None:
    items = arranged([batch_of((P0, 1))], lambda: [ConnectException("no such broker")], cut)  # type: ignore[list-item]
    with pytest.raises(ConnectException, match="no such broker"):
        list(items)


@pytest.mark.parametrize("name", ["topic", "partition", "offset"])
def test_a_row_without_coordinates_is_refused(name: str) -> None:
    # An outer join can produce such rows.
    batch = batch_of((P0, 1))
    index = batch.schema.get_field_index(name)
    batch = batch.set_column(index, name, pa.nulls(1, batch.schema.field(name).type))
    with pytest.raises(ConnectException, match=f"a row whose {name} is null"):
        list(arranged([batch], nothing, ended))


@pytest.mark.parametrize("partition", [P0, TopicPartition("другой", 7)])
def test_records_are_unchanged_after_spark(partition: TopicPartition) -> None:
    count = 4
    arrow = pa.RecordBatch.from_arrays(
        [
            pa.array([3, 5, 6, 9], pa.int64()),
            pa.array([-1, -86_400_000, 0, 1_700_000_000_123], pa.int64()).cast(RECORD_COLUMNS["timestamp"]),
            pa.array([0, 1, None, 0], pa.int32()),
            pa.array([b"k", None, b"", b"\xff"], pa.binary()),
            pa.array([None, b"", b"v", b"\x00"], pa.binary()),
            pa.array(
                [[{"key": "h", "value": None}], None, [], [{"key": "", "value": b"x"}]],
                RECORD_COLUMNS["headers"],
            ),
        ],
        names=list(RECORD_COLUMNS),
    )
    (back,) = arranged([sent(SinkRecords(partition, arrow), Columns(), None)], nothing, ended)
    assert isinstance(back, SinkRecords)
    assert (back.partition, len(back)) == (partition, count)
    assert back.arrow.equals(arrow)


def test_columns_that_a_source_does_not_have_are_null() -> None:
    batch = rows(P0, 1, 2)
    found = sent(SinkRecords(P0, batch.arrow.select(["offset", "value"])), Columns(), None)
    assert found.column("headers").null_count == 2
    assert found.column("value").to_pylist() == [b"1", b"2"]


def test_a_timestamp_beyond_sparks_range_is_refused() -> None:
    # The query may return nanoseconds instead of milliseconds.
    arrow = rows(P0, 7).arrow
    index = arrow.schema.get_field_index("timestamp")
    late = pa.array([1_700_000_000_000_000_000], pa.int64()).cast(RECORD_COLUMNS["timestamp"])
    with pytest.raises(
        ConnectException, match=r"flights-0, offsets 7 to 7: cannot transform a timestamp beyond Spark's"
    ):
        sent(SinkRecords(P0, arrow.set_column(index, "timestamp", late)), Columns(), None)


@pytest.mark.parametrize(
    ("after", "is_end"),
    [
        (b"\xff\xff\xff\xfc", True),
        (b"\xff\xff\xff\xfcmore", True),
        (b"\xff\xff", True),
        (b"", False),
        (b"\x00\x00\x00\x07", False),
    ],
)
def test_the_end_of_the_input_is_sparks_marker(after: bytes, *, is_end: bool) -> None:
    # The check reads nothing from the stream, because pyspark reads it afterwards. The marker may arrive in
    # two parts.
    stream = io.BufferedReader(io.BytesIO(after))  # type: ignore[arg-type]
    assert _end_of(stream)() is is_end
    assert stream.read() == after


def test_unordered_partitions_are_refused_before_delivery() -> None:
    # The batch is refused, because a commit within it would skip rows.
    items = arranged([batch_of((P0, 5), (P1, 3), (P0, 7))], nothing, ended)
    with pytest.raises(ConnectException, match=r"rows of flights-0 after those of another .*offset 7"):
        next(items)


@pytest.mark.parametrize("headers", [[None], [{"key": None, "value": b"x"}]])
def test_a_header_without_a_key_is_refused(headers: list[object]) -> None:
    kind = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
    batch = batch_of((P0, 1)).append_column("headers", pa.array([headers], kind))
    with pytest.raises(ConnectException, match="a header that is null or has no key"):
        list(arranged([batch], nothing, ended))


def test_a_half_written_message_is_not_received(tmp_path: Path) -> None:
    channel = _TaskChannel(tmp_path, "1")
    channel.send(Unread(P0, OffsetOutOfRangeException("gone")))
    whole = (tmp_path / "sinksdk-1-messages").read_bytes()
    for cut_at in range(1, len(whole)):
        (tmp_path / "sinksdk-1-messages").write_bytes(whole + whole[:cut_at])
        assert len(channel.received()) == 1


def test_the_workers_of_a_task_exchange_messages(tmp_path: Path) -> None:
    one, other = _TaskChannel(tmp_path, "1"), _TaskChannel(tmp_path, "2")
    assert one.received() == []
    one.send(Unread(P0, OffsetOutOfRangeException("gone")))
    one.send(ConnectException("failed"))
    (unread, failure) = _TaskChannel(tmp_path, "1").received()
    assert isinstance(unread, Unread)
    assert (unread.partition, str(unread.error), str(failure)) == (P0, "gone", "failed")
    assert other.received() == []

    one.stop()
    assert _TaskChannel(tmp_path, "1").is_stopped()
    assert not other.is_stopped()
    one.remove()
    assert list(tmp_path.iterdir()) == []
