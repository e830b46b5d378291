from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinksdk.records import RECORD_COLUMNS
from sinksdk.spark.packed_rows import packed, unpacked

KINDS = {"topic": pa.string(), **{name: kind for name, kind in RECORD_COLUMNS.items() if name != "offset"}}
BYTES = st.none() | st.binary(max_size=9)
ROWS = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["flights", "\u0434\u0440\u0443\u0433\u043e\u0439"]),
        "timestamp": st.none() | st.integers(-(2**63), 2**63 - 1),
        "timestampType": st.sampled_from([None, 0, 1]),
        "key": BYTES,
        "value": BYTES,
        "headers": st.none()
        | st.lists(st.fixed_dictionaries({"key": st.text(max_size=3), "value": BYTES}), max_size=3),
    }
)


def batch(rows: list[dict[str, object]], names: list[str]) -> pa.RecordBatch:
    arrays = [
        pa.array([row["timestamp"] for row in rows], pa.int64()).cast(KINDS[name])
        if name == "timestamp"
        else pa.array([row[name] for row in rows], KINDS[name])
        for name in names
    ]
    return pa.RecordBatch.from_arrays(arrays, names=names)


@settings(deadline=None)  # the first call also loads modules
@given(
    rows=st.lists(ROWS, max_size=12),
    names=st.sampled_from([list(KINDS), ["topic", "value"], ["value"], ["topic", "timestamp", "headers"]]),
    places=st.lists(st.integers(0, 11), max_size=12),
    begin=st.integers(0, 5),
)
def test_packed_rows_are_unpacked_unchanged(
    rows: list[dict[str, object]], names: list[str], places: list[int], begin: int
) -> None:
    whole = batch(rows, names)
    given_rows = whole.slice(begin)
    wanted = [place for place in places if place < given_rows.num_rows]
    taken = packed(given_rows).take(pa.array(wanted, pa.int64())).slice(begin)
    columns = unpacked(taken, names)
    found = pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)
    found.validate(full=True)
    expected = given_rows.take(pa.array(wanted, pa.int64())).slice(begin)
    assert found.schema.types == expected.schema.types
    for name in names:
        column = found.column(name)
        there = expected.column(name)
        if name == "timestamp":
            column, there = column.cast(pa.int64()), there.cast(pa.int64())
        assert column.to_pylist() == there.to_pylist(), name


@pytest.mark.parametrize("size", [0, 1, 70_000])
def test_a_row_may_be_of_any_size(size: int) -> None:
    names = ["topic", "key", "value"]
    rows = [
        {"topic": "t", "key": None, "value": b"x" * size},
        {"topic": "t", "key": b"", "value": b"y" * size},
    ]
    columns = unpacked(packed(batch(rows, names)), names)
    assert columns["value"].to_pylist() == [b"x" * size, b"y" * size]
    assert columns["key"].to_pylist() == [None, b""]
