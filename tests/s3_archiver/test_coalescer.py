from __future__ import annotations

import pyarrow as pa
import pytest

from sinksdk.connectors.s3_archiver.files.file import BatchCoalescer
from sinksdk.records import HEADERS_TYPE


def batch(start: int, rows: int, size: int = 10) -> pa.RecordBatch:
    offsets = range(start, start + rows)
    return pa.RecordBatch.from_pydict(
        {
            "offset": pa.array(offsets, pa.int64()),
            "value": pa.array([b"v" * size for _ in offsets], pa.binary()),
            "headers": pa.array([[{"key": str(n), "value": None}] for n in offsets], HEADERS_TYPE),
        }
    )


def test_small_batches_become_one() -> None:
    coalescer = BatchCoalescer(min_rows=100)
    whole = batch(0, 120)
    assert coalescer.add(whole.slice(0, 30)) == []
    assert coalescer.add(whole.slice(30, 69)) == []
    assert coalescer.rows == 99
    (combined,) = coalescer.add(whole.slice(99, 21))
    assert combined.equals(whole)
    assert coalescer.rows == 0


def test_flush_returns_the_held_rows() -> None:
    coalescer = BatchCoalescer(min_rows=100)
    coalescer.add(batch(0, 3))
    coalescer.add(batch(3, 4))
    (combined,) = coalescer.flush()
    assert combined.equals(batch(0, 7))
    assert coalescer.flush() == []


def test_a_large_batch_is_not_copied() -> None:
    coalescer = BatchCoalescer(min_rows=100)
    coalescer.add(batch(0, 5))
    big = batch(5, 100)
    before, same = coalescer.add(big)
    assert before.equals(batch(0, 5))
    assert same is big


def test_held_rows_are_limited_by_bytes() -> None:
    coalescer = BatchCoalescer(min_rows=1_000, max_bytes=10_000)
    assert coalescer.add(batch(0, 1, size=3_000)) == []
    assert coalescer.add(batch(1, 2, size=3_000)) == []
    (combined,) = coalescer.add(batch(3, 1, size=3_000))
    assert combined.equals(batch(0, 3, size=3_000))
    assert coalescer.rows == 1


@pytest.mark.parametrize("rows", [3, 100])
def test_huge_batches_are_cut(rows: int) -> None:
    huge = batch(0, rows, size=2_000)
    parts = BatchCoalescer(min_rows=100, max_bytes=5_000).add(huge)
    assert all(part.nbytes <= 5_000 for part in parts)
    assert pa.Table.from_batches(parts).combine_chunks().to_batches()[0].equals(huge)
    address = huge.column("value").buffers()[2].address
    assert {part.column("value").buffers()[2].address for part in parts} == {address}


def test_a_single_row_is_never_cut() -> None:
    parts = BatchCoalescer(min_rows=100, max_bytes=1_000).add(batch(0, 3, size=50_000))
    assert [part.num_rows for part in parts] == [1, 1, 1]


def test_batches_with_different_schemas_are_not_joined() -> None:
    coalescer = BatchCoalescer(min_rows=100)
    coalescer.add(batch(0, 3))
    without_headers = batch(3, 3).select(["offset", "value"])
    (held,) = coalescer.add(without_headers)
    assert held.equals(batch(0, 3))
    assert coalescer.flush()[0].equals(without_headers)


def test_empty_batches_are_dropped() -> None:
    coalescer = BatchCoalescer(min_rows=1)
    assert coalescer.add(batch(0, 0)) == []
    assert coalescer.flush() == []
