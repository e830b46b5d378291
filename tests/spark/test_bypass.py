from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from io import FileIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinksdk import ConnectException, SinkRecords, TopicPartition
from sinksdk.records import RECORD_COLUMNS
from sinksdk.spark import bypass
from sinksdk.spark.bypass import Columns, Receiver, Sender
from sinksdk.spark.transform_task import arranged, sent

P0, P1 = TopicPartition("flights", 0), TopicPartition("другой", 1)
NAMES = frozenset({"topic", "partition", *RECORD_COLUMNS})
HANDED_ON = Columns(NAMES, NAMES)


def records(partition: TopicPartition, first: int, count: int, size: int = 3) -> SinkRecords:
    """Return records of every second offset, some without key and headers."""
    offsets = range(first, first + 2 * count, 2)
    columns = {
        "offset": list(offsets),
        "timestamp": [1_700_000_000_000 + offset for offset in offsets],
        "timestampType": [offset % 3 or None for offset in offsets],
        "key": [b"k%d" % offset if offset % 4 else None for offset in offsets],
        "value": [b"%d" % offset * size for offset in offsets],
        "headers": [[{"key": "h", "value": b"%d" % offset}] if offset % 3 else None for offset in offsets],
    }
    arrays = [pa.array(columns[name], kind) for name, kind in RECORD_COLUMNS.items()]
    return SinkRecords(partition, pa.RecordBatch.from_arrays(arrays, names=list(RECORD_COLUMNS)))


def went_past(rows: pa.RecordBatch) -> bool:
    return bool(rows.num_rows) and rows.column("partition")[0].as_py() < 0


def rows_of(items: list[SinkRecords]) -> list[tuple[object, ...]]:
    return [
        (item.partition, *row.values())
        for item in items
        for row in item.arrow.to_pylist(maps_as_pydicts=None)
    ]


def through(rows: Iterator[pa.RecordBatch]) -> list[SinkRecords]:
    """Return the rows that the sink's task receives."""
    return [item for item in arranged(rows, lambda: (), lambda: True) if isinstance(item, SinkRecords)]


@pytest.fixture
def link(tmp_path: Path) -> Path:
    return tmp_path / "columns"


def opened(link: Path, columns: Columns = HANDED_ON) -> Sender:
    sender = Sender.to(link, columns)
    assert sender is not None
    return sender


@settings(max_examples=30, deadline=None)  # the first batch also loads modules
@given(
    batches=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 60)), min_size=1, max_size=12),
    lags=st.lists(st.integers(0, 6), min_size=1, max_size=12),
    step=st.integers(1, 5),
    copies=st.integers(1, 3),
    at_once=st.integers(7, 70),
    most=st.sampled_from([None, 20, 200]),
)
def test_bypassed_columns_equal_those_through_spark(  # noqa: PLR0917 - hypothesis passes them by name
    batches: list[tuple[int, int]], lags: list[int], step: int, copies: int, at_once: int, most: int | None
) -> None:
    columns = replace(HANDED_ON, most=most)

    def queried(rows: pa.RecordBatch) -> pa.RecordBatch:
        is_kept = rows.column("offset").to_numpy() // 2 % step == 0
        return rows.take(pa.array(np.repeat(np.flatnonzero(is_kept), copies)))

    given_records, first = [], 0
    for number, (count, size) in enumerate(batches):
        given_records.append(records(P0 if number < len(batches) / 2 else P1, first, count, size))
        first += 2 * count
    expected = through(queried(sent(item, Columns(), None)) for item in given_records)

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(bypass, "_SIZE", bypass._FIRST + 12_000)
        link = Path(folder) / "columns"
        receiver, sender = Receiver(link, columns), opened(link, columns)
        on_its_way: deque[pa.RecordBatch] = deque()

        def from_spark() -> Iterator[pa.RecordBatch]:
            for number, item in enumerate(given_records):
                on_its_way.append(queried(sent(item, columns, sender)))
                while len(on_its_way) > lags[number % len(lags)]:
                    rows = on_its_way.popleft()
                    for begin in range(0, rows.num_rows, at_once):
                        yield rows.slice(begin, at_once)
            yield from on_its_way

        assert rows_of(through(receiver.received(from_spark()))) == rows_of(expected)
        sender.close()
        receiver.close()


def test_a_batch_that_does_not_fit_goes_through_spark(link: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Neither worker waits for the other: batches whose rows the query drops are never taken from the file.
    monkeypatch.setattr(bypass, "_SIZE", bypass._FIRST + 15_000)
    receiver, sender = Receiver(link, HANDED_ON), opened(link)
    first = [sent(records(P0, 1000 + 120 * number, 10, 100), HANDED_ON, sender) for number in range(6)]
    assert [went_past(rows) for rows in first] == [True, True, False, False, False, False]

    list(receiver.received(iter(first[1:])))
    assert went_past(sent(records(P0, 2200, 10, 100), HANDED_ON, sender)), "the first has been passed over"
    assert not went_past(sent(records(P0, 3400, 10, 100), HANDED_ON, sender))
    assert not went_past(sent(records(P0, 4000, 10, 100_000), HANDED_ON, sender)), "it never fits"
    sender.close()
    receiver.close()


def test_the_file_has_at_most_255_batches(link: Path) -> None:
    # A single byte holds the number of batches taken.
    receiver, sender = Receiver(link, HANDED_ON), opened(link)
    batches = [records(P0, 10 * number, 1) for number in range(600)]
    rows = [sent(item, HANDED_ON, sender) for item in batches]
    assert [went_past(each) for each in rows].count(True) == 255
    assert rows_of(through(receiver.received(iter(rows)))) == rows_of(batches)
    again = [records(P0, 10_000 + 10 * number, 1) for number in range(600)]
    for item in again:
        rows = [sent(item, HANDED_ON, sender)]
        assert went_past(rows[0])
        assert rows_of(through(receiver.received(iter(rows)))) == rows_of([item])
    sender.close()
    receiver.close()


def test_columns_that_the_query_reads_or_computes_come_from_spark(link: Path) -> None:
    columns = Columns(NAMES - {"value", "offset"}, NAMES - {"value"})
    receiver, sender = Receiver(link, columns), opened(link, columns)
    item = SinkRecords(P0, records(P0, 0, 3).arrow.drop_columns(["headers", "timestampType"]))
    rows = sent(item, columns, sender)
    assert rows.column("value").to_pylist() == item.arrow.column("value").to_pylist()
    computed = rows.set_column(rows.schema.get_field_index("value"), "value", pa.array([{"n": 1}] * 3))
    (back,) = receiver.received([computed])
    assert back.column("value").to_pylist() == [{"n": 1}] * 3
    assert back.column("key").to_pylist() == item.arrow.column("key").to_pylist()
    assert back.column("headers").null_count == back.column("timestampType").null_count == 3
    assert set(back.column("partition").to_pylist()) == {0}
    sender.close()
    receiver.close()


@pytest.mark.parametrize(
    "columns",
    [
        Columns(),
        Columns(NAMES - {"partition"}, NAMES),
        Columns(NAMES, NAMES - {"partition"}),
        Columns(NAMES, NAMES - {"offset"}),
    ],
)
def test_nothing_bypasses_spark_if_the_query_uses_the_partition(columns: Columns) -> None:
    # The batch's place in the file is passed in the column of the partition number, which the query reads.
    assert columns.bypassing == ()


def test_a_row_of_another_offset_is_refused(link: Path) -> None:
    receiver, sender = Receiver(link, HANDED_ON), opened(link)
    rows = sent(records(P0, 10, 4), HANDED_ON, sender)
    moved = rows.set_column(rows.schema.get_field_index("offset"), "offset", pa.array([10, 12, 13, 99]))
    with pytest.raises(ConnectException, match="flights-0: the transform returns rows with changed offsets"):
        list(receiver.received([moved]))
    sender.close()
    receiver.close()


def test_few_rows_do_not_keep_their_batch_in_memory(link: Path) -> None:
    receiver, sender = Receiver(link, HANDED_ON), opened(link)
    rows = sent(records(P0, 0, 1000, 100), HANDED_ON, sender)
    (few,) = receiver.received([rows.slice(500, 3)])
    (most,) = receiver.received([rows.slice(1, 998)])
    assert few.get_total_buffer_size() < 10_000 < most.get_total_buffer_size()
    assert few.column("value").to_pylist() == most.column("value").to_pylist()[499:502]
    sender.close()
    receiver.close()


def test_rows_without_coordinates_pass_unchanged(link: Path) -> None:
    # A later check refuses such rows.
    receiver = Receiver(link, HANDED_ON)
    rows = sent(records(P0, 1, 2), HANDED_ON, None)
    lost = rows.set_column(rows.schema.get_field_index("partition"), "partition", pa.nulls(2, pa.int32()))
    assert list(receiver.received([lost])) == [lost]
    receiver.close()


def test_a_full_disk_sends_batches_through_spark(link: Path) -> None:
    class Full(FileIO):
        def write(self, data: bytes) -> int:  # type: ignore[override] # Buffer is of Python 3.12
            if memoryview(data).nbytes > 5_000:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(data)

    receiver = Receiver(link, HANDED_ON)
    sender = Sender(Full(link, "r+"), HANDED_ON)
    batches = [records(P0, 100 * number, 5, 1000 if number == 1 else 1) for number in range(3)]
    rows = [sent(item, HANDED_ON, sender) for item in batches]
    assert [went_past(each) for each in rows] == [True, False, True]
    assert rows_of(through(receiver.received(iter(rows)))) == rows_of(batches)
    sender.close()
    receiver.close()


def test_the_file_ends_with_the_process_that_created_it(link: Path) -> None:
    program = (
        "import sys, time, pathlib\n"
        "from sinksdk.spark.bypass import Columns, Receiver\n"
        "names = frozenset({'partition', 'offset', 'value'})\n"
        "receiver = Receiver(pathlib.Path(sys.argv[1]), Columns(names, names))\n"
        "print('made', flush=True)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(link)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"made\n"
    sender = opened(link)
    assert [path.name for path in link.parent.iterdir()] == [link.name]
    assert link.stat().st_nlink == 0
    sender.close()

    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert Sender.to(link, HANDED_ON) is None
    assert not link.exists()


def test_without_proc_all_columns_go_through_spark(link: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bypass, "_OPEN_FILES", link)
    receiver = Receiver(link, HANDED_ON)
    assert Sender.to(link, HANDED_ON) is None
    batches = [records(P0, 100 * number, 5) for number in range(3)]
    rows = [sent(item, HANDED_ON, None) for item in batches]
    assert rows_of(through(receiver.received(iter(rows)))) == rows_of(batches)
    receiver.close()


@pytest.mark.parametrize("size", [1, 3, 40, 1_000])
def test_large_packed_rows_are_counted_several_times(link: Path, size: int) -> None:
    # Large rows count several times, so that Spark's batches are limited in bytes.
    most = 100
    columns = replace(HANDED_ON, most=most)
    receiver, item = Receiver(link, columns), records(P0, 0, 20, size)
    rows = sent(item, columns, None)
    sizes = np.array([len(each or b"") for each in rows.column(HANDED_ON.carrier).to_pylist()])
    assert rows.num_rows == 20 or size > 3
    for begin in range(rows.num_rows):
        for count in (1, 7, rows.num_rows):
            piece = sizes[begin : begin + count]
            alone = int(piece.max())  # a batch may end between the copies of a row
            assert piece.sum() <= most * len(piece) + alone

    def kept(offsets: list[int]) -> pa.RecordBatch:
        return rows.filter(pa.array(np.isin(rows.column("offset").to_numpy(), offsets)))

    for offsets in ([], [4], [0, 2, 38], list(range(0, 40, 2))):
        (expected,) = [item.arrow.filter(pa.array(np.isin(item.offsets, offsets)))]
        found = through(receiver.received([kept(offsets).slice(0, 30), kept(offsets).slice(30)]))
        assert [row for each in found for row in each.arrow.to_pylist()] == expected.to_pylist()
    receiver.close()


def test_rows_in_the_file_have_no_copies(link: Path) -> None:
    columns = replace(HANDED_ON, most=10)
    receiver, sender = Receiver(link, columns), opened(link, columns)
    assert sent(records(P0, 0, 20, 100), columns, sender).num_rows == 20
    sender.close()
    receiver.close()


def test_the_file_reuses_the_space_of_taken_batches(link: Path) -> None:
    # A page that is new to the process takes longer to write than a used one.
    receiver, sender = Receiver(link, HANDED_ON), opened(link)
    sizes = []
    for number in range(40):
        item = records(P0, 100 * number, 20, 100)
        rows = sent(item, HANDED_ON, sender)
        assert rows_of(through(receiver.received([rows]))) == rows_of([item])
        sizes.append(link.stat().st_size)
    assert max(sizes) < bypass._FIRST + 4 * 10_000, "of forty batches, about three"
    sender.close()
    receiver.close()
