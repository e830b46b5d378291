"""The archiver's Avro encoding equals fastavro's for any records in any Arrow layout."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from property_tests.exercised import EXERCISED
from sinksdk import DataException, TopicPartition
from sinksdk.connectors.s3_archiver.files.file import BatchCoalescer
from sinksdk.connectors.s3_archiver.formats.codecs import codec
from sinksdk.connectors.s3_archiver.formats.container import ContainerWriter
from sinksdk.connectors.s3_archiver.formats.encoder import Loop, RecordEncoder, compiled_loop, plain_loop
from sinksdk.connectors.s3_archiver.formats.schema import RECORD_SCHEMA, sync_marker
from sinksdk.records import HEADERS_TYPE
from tests.helpers.needs import missing

MARKER = sync_marker("property")
SCHEMA = fastavro.parse_schema(dict(RECORD_SCHEMA))
PLAIN_SCHEMA = json.loads(
    json.dumps(RECORD_SCHEMA).replace("timestamp-millis", "none")
)  # the encoding passes any 64 bits through
RUN = settings(max_examples=200, deadline=None)
LOOPS = pytest.mark.parametrize("loop", [plain_loop, compiled_loop], ids=["plain", "compiled"])
HEADER_TYPE = HEADERS_TYPE.value_type

exercised = EXERCISED["encoding"]

Row = dict[str, Any]

longs = st.integers(-(2**63), 2**63 - 1) | st.integers(-70, 70) | st.sampled_from([-1, 8_191, 8_192, 2**48])
milliseconds = st.none() | longs
texts = st.text(max_size=12)
# Blobs are made of text, so that they can also be laid out as a string column. Their lengths include those at
# which a varint grows by a byte.
blobs = st.none() | texts.map(str.encode) | st.integers(0, 9_000).map(lambda size: b"v" * size)
header = st.fixed_dictionaries({"key": texts, "value": st.none() | st.binary(max_size=70)})
headers = st.none() | st.lists(header, max_size=3) | header.map(lambda one: [one] * 70)
row = st.fixed_dictionaries(
    {
        "offset": longs,
        "timestamp": milliseconds,
        "timestampType": st.sampled_from([None, -1, 0, 1, 2**31 - 1]),
        "key": blobs,
        "value": blobs,
        "headers": headers,
    }
)
byte_types = st.sampled_from(
    [
        *(pa.binary(), pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string()),
        pa.dictionary(pa.int8(), pa.binary()),
    ]
)
layouts = st.fixed_dictionaries(
    {
        "timestamp": st.sampled_from([pa.int64(), pa.timestamp("ms", "UTC")]),
        "timestampType": st.sampled_from([pa.int32(), pa.int64()]),
        "key": byte_types,
        "value": byte_types,
        "headers": st.sampled_from([HEADERS_TYPE, pa.large_list(HEADER_TYPE), pa.list_view(HEADER_TYPE)]),
    }
)
partitions = st.builds(TopicPartition, st.text(min_size=1, max_size=80), st.integers(0, 2**31 - 1))


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Row], pa.RecordBatch]:
    rows = draw(st.lists(row, max_size=12))
    if draw(st.booleans()) and rows:  # columns with the same value in all rows are encoded by other code
        rows = [{**rows[0], "offset": each["offset"]} for each in rows]
    layout = draw(layouts)
    dropped = draw(st.sets(st.sampled_from(sorted(layout)), max_size=2))
    columns = {"offset": pa.array([each["offset"] for each in rows], pa.int64())}
    for name, kind in layout.items():
        if name not in dropped:
            column = pa.array([each[name] for each in rows], _plain(kind)).cast(kind)
            columns[name] = draw(st.sampled_from([_as_is, _moved, _filled_nulls, _moved_items]))(column)
    start = draw(st.integers(0, len(rows)))
    stop = draw(st.integers(start, len(rows)))
    kept = [{**each, **dict.fromkeys(dropped)} for each in rows[start:stop]]
    return kept, pa.RecordBatch.from_pydict(columns).slice(start, stop - start)


def _as_is(column: pa.Array) -> pa.Array:
    return column


def _moved(column: pa.Array) -> pa.Array:
    """Return the column as a slice of a longer one: its values and validity bits begin inside buffers."""
    exercised["columns that are slices"] += 1
    return pa.concat_arrays([column[:1]] * 3 + [column]).slice(3 * len(column[:1]))


def _filled_nulls(column: pa.Array) -> pa.Array:
    """Return the column with random bytes in the values buffer under its nulls."""
    if column.type not in (pa.binary(), pa.int64()) or column.null_count in (0, len(column)):
        return column
    exercised["columns with something behind nulls"] += 1
    valid = column.is_valid().buffers()[1]
    filled = column.fill_null(column.drop_null()[0])
    return pa.Array.from_buffers(column.type, len(column), [valid, *filled.buffers()[1:]])


def _moved_items(column: pa.Array) -> pa.Array:
    """Return lists whose items, and fields of items, are slices of longer arrays."""
    if column.type != HEADERS_TYPE or not len(column.values):
        return column
    exercised["headers with children that are slices"] += 1
    items = column.values
    fields = [_moved(items.field(index)) for index in range(2)]
    items = _moved(pa.StructArray.from_arrays(fields, fields=list(HEADER_TYPE)))
    buffers = column.buffers()[:2]
    return pa.Array.from_buffers(HEADERS_TYPE, len(column), buffers, offset=column.offset, children=[items])


def _plain(kind: pa.DataType) -> pa.DataType:
    return (
        kind
        if pa.types.is_nested(kind) or pa.types.is_integer(kind) or pa.types.is_timestamp(kind)
        else pa.binary()
    )


def needed(loop: Loop | None) -> Loop:
    return loop or missing("the compiled loop", "install with a C compiler")


def as_avro(partition: TopicPartition, each: Row) -> Row:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": each["offset"],
        "timestamp": each["timestamp"],
        "timestamp_type": each["timestampType"] or 0,
        "key": each["key"],
        "value": each["value"],
        "headers": each["headers"] or [],
    }


@LOOPS
@given(partition=partitions, made=batches())
@RUN
def test_datums_equal_fastavro(
    loop: Loop | None, partition: TopicPartition, made: tuple[list[Row], pa.RecordBatch]
) -> None:
    rows, batch = made
    encoded = RecordEncoder(partition, needed(loop)).encode(batch)
    assert len(encoded) == len(rows)
    for index, each in enumerate(rows):
        expected = io.BytesIO()
        fastavro.schemaless_writer(expected, SCHEMA, as_avro(partition, each))
        assert bytes(encoded.slice(index, index + 1).payload) == expected.getvalue()


@given(partition=partitions, made=batches())
@RUN
def test_compiled_and_plain_encoder_agree(
    partition: TopicPartition, made: tuple[list[Row], pa.RecordBatch]
) -> None:
    rows, batch = made
    plain = RecordEncoder(partition, plain_loop).encode(batch)
    compiled = RecordEncoder(partition, needed(compiled_loop)).encode(batch)

    assert bytes(plain.payload) == bytes(compiled.payload)
    assert np.array_equal(plain.borders, compiled.borders)
    datums = io.BytesIO(compiled.payload)
    for each in rows:
        read = fastavro.schemaless_reader(datums, PLAIN_SCHEMA, None)
        assert read == as_avro(partition, each)
        exercised["rows"] += 1
        exercised["null or empty keys and values"] += (not each["key"]) + (not each["value"])
        exercised["headers"] += len(each["headers"] or [])
        exercised["timestamps"] += each["timestamp"] is not None
    assert datums.read() == b""


@given(
    lists=st.lists(
        st.none() | st.lists(st.sampled_from(["a", "b", "", None, "struct"]), max_size=4), max_size=9
    ),
    by=st.integers(0, 3),
)
@RUN
def test_both_encoders_report_the_first_header_without_key(
    lists: list[list[str | None] | None], by: int
) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = [
        None if each is None else [None if key == "struct" else {"key": key, "value": b"v"} for key in each]
        for each in lists
    ]
    batch = pa.RecordBatch.from_pydict(
        {"offset": pa.array(range(len(rows)), pa.int64()), "headers": pa.array(rows, kind)}
    ).slice(by)
    bad = [at for at, each in enumerate(lists) if at >= by and each and {None, "struct"} & set(each)]
    for loop in (plain_loop, needed(compiled_loop)):
        encode = RecordEncoder(TopicPartition("t", 0), loop).encode
        if bad:
            with pytest.raises(DataException, match=f"offset {bad[0]} has a header without a key"):
                encode(batch)
        else:
            assert len(encode(batch)) == batch.num_rows
    exercised["headers without a key"] += len(bad)


@given(
    partition=partitions,
    made=st.lists(batches(), max_size=4),
    block_bytes=st.integers(1, 20_000),
    min_rows=st.integers(1, 30),
    max_bytes=st.integers(1, 20_000),
)
@RUN
def test_files_equal_fastavro(
    partition: TopicPartition,
    made: list[tuple[list[Row], pa.RecordBatch]],
    block_bytes: int,
    min_rows: int,
    max_bytes: int,
) -> None:
    coalescer, encoder = BatchCoalescer(min_rows, max_bytes), RecordEncoder(partition)
    writer = ContainerWriter(RECORD_SCHEMA, codec("null"), {"topic": b"t"}, MARKER, block_bytes)
    pieces = [*writer.header()]
    ready = [batch for _, given_batch in made for batch in coalescer.add(given_batch)]
    for batch in [*ready, *coalescer.flush()]:
        pieces.extend(bytes(piece) for piece in writer.append(encoder.encode(batch)))
    pieces.extend(bytes(piece) for piece in writer.finish())

    expected = io.BytesIO()
    fastavro.writer(
        expected,
        dict(RECORD_SCHEMA),
        [as_avro(partition, each) for rows, _ in made for each in rows],
        sync_interval=block_bytes,
        metadata={"topic": "t"},
        sync_marker=MARKER,
    )
    assert b"".join(pieces) == expected.getvalue()
    assert writer.records == sum(len(rows) for rows, _ in made)
