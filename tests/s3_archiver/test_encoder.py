from __future__ import annotations

import importlib.util
import io
import logging
import sys
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from sinksdk import DataException, Header, SinkRecord, SinkRecords, TopicPartition
from sinksdk.connectors.s3_archiver.formats import encoder
from sinksdk.connectors.s3_archiver.formats.datums import EncodedRows, varint
from sinksdk.connectors.s3_archiver.formats.encoder import (
    Loop,
    RecordAvro,
    RecordEncoder,
    compiled_loop,
    plain_loop,
)
from sinksdk.connectors.s3_archiver.formats.schema import RECORD_SCHEMA, sync_marker
from sinksdk.records import HEADERS_TYPE
from tests.helpers.needs import missing

FLIGHTS = TopicPartition("flights", 3)
SCHEMA = fastavro.parse_schema(dict(RECORD_SCHEMA))
LOOPS = {"plain": plain_loop, "compiled": compiled_loop}


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> Loop:
    found = LOOPS[request.param]
    if found is None:
        missing("the compiled loop", "install with a C compiler")
    return found


def datum(record: SinkRecord) -> bytes:
    row = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": record.timestamp_type,
        "key": record.key,
        "value": record.value,
        "headers": [header._asdict() for header in record.headers],
    }
    out = io.BytesIO()
    fastavro.schemaless_writer(out, SCHEMA, row)
    return out.getvalue()


def split(rows: EncodedRows) -> list[bytes]:
    return [bytes(rows.slice(row, row + 1).payload) for row in range(len(rows))]


def encode(batch: pa.RecordBatch, loop: Loop, partition: TopicPartition = FLIGHTS) -> list[bytes]:
    return split(RecordEncoder(partition, loop).encode(batch))


def record(offset: int, **fields: Any) -> SinkRecord:
    return SinkRecord(FLIGHTS.topic, FLIGHTS.partition, offset, **fields)


MIXED = [
    record(
        0, key=b"k", value=b"v", timestamp=1_700_000_000_123, headers=(Header("a", b"1"), Header("a", b"2"))
    ),
    record(5, key=None, value=b"", timestamp=None, timestamp_type=-1),
    record(70_000, key=b"", value=None, timestamp=-1, timestamp_type=1, headers=(Header("b", None),)),
    record(70_001, key=b"x" * 64, value=b"y" * 8_192, timestamp=-86_400_000, headers=(Header("", b""),)),
]


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(MIXED, id="mixed rows"),
        pytest.param([record(8)], id="one row of nothing but its offset"),
        pytest.param([record(n, key=b"k", value=b"v") for n in range(3)], id="equal in all rows"),
        pytest.param([record(n, value=None) for n in range(3)], id="all null"),
        pytest.param(
            [record(-(2**63), timestamp=2**63 - 1), record(2**63 - 1, timestamp=-(2**63))],
            id="the ends of 64 bits",
        ),
        pytest.param(
            [record(n, timestamp_type=kind) for n, kind in enumerate((-(2**31), 2**31 - 1))],
            id="the ends of 32 bits",
        ),
        pytest.param(
            [record(0), record(1, headers=tuple(Header(f"h{n}", b"%d" % n) for n in range(70)))],
            id="70 headers",
        ),
        pytest.param(
            [record(0, headers=(Header("Übergröße ✈", "é".encode()),))], id="header names beyond ASCII"
        ),
        pytest.param([record(0, value=b"z" * 1_000_000), record(1, value=b"")], id="a value of 1 MB"),
        pytest.param(
            [record(n, value=b"v" * length) for n, length in enumerate((63, 64, 8_191, 8_192, 1_048_576))],
            id="lengths where a varint grows",
        ),
    ],
)
def test_encoded_records_equal_fastavros_bytes(loop: Loop, records: list[SinkRecord]) -> None:
    assert encode(SinkRecords.of(FLIGHTS, records).arrow, loop) == [datum(r) for r in records]


@pytest.mark.parametrize("partition", [TopicPartition("Flüge-✈", 0), TopicPartition("t" * 249, 2**31 - 1)])
def test_any_topic_and_partition_are_encoded(loop: Loop, partition: TopicPartition) -> None:
    records = [SinkRecord(*partition, offset=offset, value=b"v") for offset in (1, 2)]
    assert encode(SinkRecords.of(partition, records).arrow, loop, partition) == [datum(r) for r in records]


def test_an_empty_batch_has_no_rows(loop: Loop) -> None:
    empty = RecordEncoder(FLIGHTS, loop).encode(SinkRecords.of(FLIGHTS, MIXED).arrow.slice(2, 0))
    assert (len(empty), empty.nbytes, bytes(empty.payload)) == (0, 0, b"")


@pytest.mark.parametrize(("start", "stop"), [(0, 2), (1, 3), (2, 4), (3, 4)])
def test_slices_of_a_batch_are_encoded(loop: Loop, start: int, stop: int) -> None:
    batch = SinkRecords.of(FLIGHTS, MIXED).arrow.slice(start, stop - start)
    assert encode(batch, loop) == [datum(r) for r in MIXED[start:stop]]


def test_slicing_encoded_rows_copies_nothing(loop: Loop) -> None:
    rows = RecordEncoder(FLIGHTS, loop).encode(SinkRecords.of(FLIGHTS, MIXED).arrow)
    inner = rows.slice(1, 4).slice(1, 2)
    assert inner.data is rows.data
    assert bytes(inner.payload) == datum(MIXED[2])
    assert inner.nbytes == len(datum(MIXED[2]))
    assert len(rows.slice(3, 3)) == 0


def test_missing_columns_are_encoded_as_null(loop: Loop) -> None:
    batch = pa.RecordBatch.from_pydict({"offset": pa.array([7, 9], pa.int64())})
    assert encode(batch, loop) == [datum(record(7)), datum(record(9))]


def test_null_typed_columns_are_encoded_as_null(loop: Loop) -> None:
    names = ("timestamp", "timestampType", "key", "value", "headers")
    batch = pa.RecordBatch.from_pydict({"offset": [7], **{name: pa.nulls(1) for name in names}})
    assert encode(batch, loop) == [datum(record(7))]


@pytest.mark.parametrize(
    "kind",
    [
        pa.large_binary(),
        pa.binary_view(),
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int32(), pa.binary()),
    ],
    ids=str,
)
def test_every_binary_type_of_key_and_value_is_encoded(loop: Loop, kind: pa.DataType) -> None:
    texts = [b"no", b"abc", None, b"", b"longer than an inlined view"]
    plain = pa.array(texts, pa.binary())
    column = (plain.dictionary_encode() if pa.types.is_dictionary(kind) else plain.cast(kind)).slice(1)
    batch = pa.RecordBatch.from_pydict({"offset": list(range(4)), "key": column, "value": column})
    assert encode(batch, loop) == [datum(record(n, key=text, value=text)) for n, text in enumerate(texts[1:])]


def test_value_bytes_under_a_null_are_not_written(loop: Loop) -> None:
    # In Arrow, a null may have bytes.
    buffers = [pa.py_buffer(b"\x01"), pa.array([0, 1, 3], pa.int32()).buffers()[1], pa.py_buffer(b"abc")]
    values = pa.Array.from_buffers(pa.binary(), 2, buffers)
    batch = pa.RecordBatch.from_pydict({"offset": [0, 1], "value": values})
    assert encode(batch, loop) == [datum(record(0, value=b"a")), datum(record(1))]


@pytest.mark.parametrize(
    ("kind", "stored", "milliseconds"),
    [
        (pa.int64(), [1_700_000_000_123, -1, None], [1_700_000_000_123, -1, None]),
        (pa.timestamp("ms", "UTC"), [0, -1, None], [0, -1, None]),
        (pa.timestamp("us", "UTC"), [1_999, -1, -1_000, None], [1, -1, -1, None]),
        (pa.timestamp("us"), [1_700_000_000_123_456], [1_700_000_000_123]),
        (pa.timestamp("ns", "Europe/Berlin"), [1_999_999, -1], [1, -1]),
        (pa.timestamp("s"), [1_700_000_000, -1], [1_700_000_000_000, -1_000]),
    ],
    ids=str,
)
def test_timestamps_of_every_type_are_encoded_as_milliseconds(
    loop: Loop, kind: pa.DataType, stored: list[int | None], milliseconds: list[int | None]
) -> None:
    column = pa.array(stored, pa.int64()).cast(kind)
    batch = pa.RecordBatch.from_pydict({"offset": list(range(len(stored))), "timestamp": column})
    assert encode(batch, loop) == [datum(record(n, timestamp=ms)) for n, ms in enumerate(milliseconds)]


@pytest.mark.parametrize("outer", [pa.list_, pa.large_list])
def test_headers_of_other_list_layouts_are_encoded(loop: Loop, outer: Any) -> None:
    item = pa.struct([("value", pa.string()), ("key", pa.large_string())])
    rows: list[list[dict[str, str | None]] | None] = [
        [],
        None,
        [{"key": "a", "value": "1"}, {"key": "b", "value": None}],
    ]
    batch = pa.RecordBatch.from_pydict({"offset": [0, 1, 2], "headers": pa.array(rows, outer(item))})
    headers = (Header("a", b"1"), Header("b", None))
    assert encode(batch, loop) == [datum(record(0)), datum(record(1)), datum(record(2, headers=headers))]


def test_headers_under_a_null_are_not_written(loop: Loop) -> None:
    # In Arrow, a null list may have items.
    items = pa.array([{"key": name, "value": b"v"} for name in "abc"], HEADERS_TYPE.value_type)
    headers = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3], pa.int32()), items, mask=pa.array([False, True, False])
    )
    batch = pa.RecordBatch.from_arrays([pa.array([0, 1, 2]), headers], names=["offset", "headers"])
    kept = [(Header("a", b"v"),), (), (Header("c", b"v"),)]
    assert encode(batch, loop) == [datum(record(n, headers=each)) for n, each in enumerate(kept)]


@pytest.mark.parametrize("bad", [{"key": None, "value": b"v"}, None])
def test_a_header_without_a_key_is_refused(loop: Loop, bad: dict[str, bytes | None] | None) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = [None, [], [{"key": "a", "value": b"1"}], [{"key": "b", "value": b"2"}, bad], []]
    batch = pa.RecordBatch.from_pydict({"offset": [10, 20, 30, 40, 50], "headers": pa.array(rows, kind)})
    with pytest.raises(DataException, match=r"flights-3: the record at offset 40 has a header without a key"):
        RecordEncoder(FLIGHTS, loop).encode(batch)


@pytest.mark.parametrize("value", [0, -1, 1, 63, 64, -64, -65, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)])
def test_varints_equal_avros(value: int) -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, {"type": "long"}, value)
    assert varint(value) == out.getvalue()


def test_the_record_schema_equals_the_documented_one() -> None:
    # Archived files depend on this schema, so it must never change.
    nullable_bytes = ["null", "bytes"]
    header = [("key", "string"), ("value", nullable_bytes)]
    fields = {field["name"]: field["type"] for field in RECORD_SCHEMA["fields"]}
    headers = fields.pop("headers")
    assert list(fields.items()) == [
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "long"),
        ("timestamp", ["null", {"type": "long", "logicalType": "timestamp-millis"}]),
        ("timestamp_type", "int"),
        ("key", nullable_bytes),
        ("value", nullable_bytes),
    ]
    assert headers["type"] == "array"
    assert [(field["name"], field["type"]) for field in headers["items"]["fields"]] == header


def test_sync_marker_depends_on_the_object_key_alone() -> None:
    assert sync_marker("topics/flights/a.avro").hex() == "c8d03d2e249b55d44be23371250b8304"
    assert sync_marker("topics/flights/b.avro") != sync_marker("topics/flights/a.avro")


# -- compiled and plain ---------------------------------------------------------------------------------

HEADER_TYPE = HEADERS_TYPE.value_type


def moved(column: pa.Array, by: int) -> pa.Array:
    return pa.concat_arrays([column[:1]] * by + [column]).slice(by)


def unaligned(column: pa.Array) -> pa.Array:
    # The buffers are at odd addresses, as in a message from a socket.
    buffers = [each and pa.py_buffer(b"x" + each.to_pybytes()).slice(1) for each in column.buffers()]
    return pa.Array.from_buffers(column.type, len(column), buffers, offset=column.offset)


LONGS = pa.array([3, None, -1, 2**40, None, 0, -(2**63), 8], pa.int64())
INTS = pa.array([1, 0, None, -1, 2**31 - 1, None, 7, 8], pa.int32())
TEXTS = pa.array([b"a", None, b"", b"b" * 64, b"c", None, None, b"d" * 9_000], pa.binary())
ITEMS = pa.StructArray.from_arrays(
    [moved(pa.array(["k", "", "ä", "l" * 70]), 3), moved(pa.array([b"1", None, b"", b"2"], pa.binary()), 5)],
    fields=list(HEADER_TYPE),
)
ENDS = pa.array([0, 0, 1, 1, 2, 2, 4, 4, 4], pa.int32())
LISTS = pa.ListArray.from_arrays(ENDS, moved(ITEMS, 2))
NO_ITEMS = pa.array([[], None, []] + [[]] * 5, HEADERS_TYPE)
PAIRS = [[{"key": f"k{row}", "value": None}, {"key": "", "value": b"v"}] for row in range(8)]


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param({}, id="nothing but offsets"),
        pytest.param({"offset": LONGS}, id="offsets that are null"),
        pytest.param({"offset": INTS}, id="offsets of 32 bits"),
        pytest.param({"timestamp": LONGS, "timestampType": INTS}, id="numbers with nulls"),
        pytest.param({"timestamp": INTS, "timestampType": LONGS}, id="numbers of other widths"),
        pytest.param({"timestamp": pa.nulls(8, pa.int64()), "key": pa.nulls(8, pa.binary())}, id="all null"),
        pytest.param({"key": TEXTS, "value": TEXTS.cast(pa.large_binary())}, id="32 and 64 bits of offsets"),
        pytest.param(
            {"key": TEXTS.dictionary_encode(), "value": TEXTS.cast(pa.binary_view())}, id="cast first"
        ),
        pytest.param({"value": pa.array([b"x"] * 8, pa.binary(1))}, id="bytes of one length"),
        pytest.param({"key": pa.array([b""] * 8), "value": pa.array([None, b""] * 4)}, id="no bytes at all"),
        pytest.param({"headers": LISTS}, id="headers whose children are slices"),
        pytest.param({"headers": moved(LISTS, 1)}, id="headers that are a slice"),
        pytest.param({"headers": LISTS.cast(pa.large_list(HEADER_TYPE))}, id="headers in large lists"),
        pytest.param(
            {"headers": pa.array(PAIRS, pa.list_(HEADER_TYPE, 2))}, id="headers in lists of one length"
        ),
        pytest.param({"headers": pa.array(PAIRS, pa.list_view(HEADER_TYPE))}, id="headers in views of lists"),
        pytest.param({"headers": NO_ITEMS}, id="lists without headers"),
        pytest.param({"headers": pa.array([[], None] * 4)}, id="lists of type null without headers"),
        pytest.param({"headers": pa.nulls(8)}, id="headers of type null"),
        pytest.param({"timestamp": unaligned(LONGS), "key": unaligned(TEXTS)}, id="buffers at odd addresses"),
        pytest.param(
            {
                name: moved(column, 9)
                for name, column in (("timestamp", LONGS), ("key", TEXTS), ("headers", LISTS))
            },
            id="bits that begin within a byte",
        ),
    ],
)
@pytest.mark.parametrize("rows", [slice(0, 8), slice(3, 8), slice(1, 2), slice(7, 8)], ids=str)
def test_compiled_and_plain_loops_encode_the_same_bytes(columns: dict[str, pa.Array], rows: slice) -> None:
    if compiled_loop is None:
        missing("the compiled loop", "install with a C compiler")
    every = {"offset": pa.array(range(8)), **columns}
    batch = pa.RecordBatch.from_pydict(every).slice(rows.start, rows.stop - rows.start)
    plain, compiled = (RecordEncoder(FLIGHTS, each).encode(batch) for each in (plain_loop, compiled_loop))

    assert bytes(plain.payload) == bytes(compiled.payload)
    assert plain.borders.tolist() == compiled.borders.tolist()
    assert split(compiled) == [
        datum(
            record(
                row["offset"] or 0,
                timestamp=row.get("timestamp"),
                timestamp_type=row.get("timestampType") or 0,
                key=row.get("key"),
                value=row.get("value"),
                headers=tuple(Header(each["key"], each["value"]) for each in row.get("headers") or ()),
            )
        )
        for row in batch.to_pylist()
    ]


KEY, HEADERS, HEADER_KEY = 3, 5, 7  # indexes of these columns in the compiled loop


def ends(*given: int) -> bytes:
    return np.array(given, np.int32).tobytes()


@pytest.mark.parametrize(
    ("place", "column"),
    [
        pytest.param(0, (8, 0, 8, None, bytes(63), None), id="too few numbers"),
        pytest.param(0, (8, 1, 8, None, bytes(64), None), id="too few after the first"),
        pytest.param(0, (8, 0, 8, b"", bytes(64), None), id="too few bits"),
        pytest.param(0, (8, 0, 8, None, None, None), id="no numbers"),
        pytest.param(0, (7, 0, 8, None, bytes(64), None), id="too few rows"),
        pytest.param(0, (8, -1, 8, None, bytes(64), None), id="a slice that begins before its buffer"),
        pytest.param(0, (8, 2**63 - 1, 8, None, bytes(64), None), id="a slice that begins nowhere"),
        pytest.param(0, (8, 0, 2, None, bytes(64), None), id="numbers of 16 bits"),
        pytest.param(KEY, (8, 0, 4, None, ends(*[0] * 8), b""), id="too few offsets"),
        pytest.param(KEY, (8, 0, 4, None, ends(*[0] * 8, 4), b"abc"), id="too few bytes"),
        pytest.param(KEY, (8, 0, 4, None, ends(*[0] * 8, 4), None), id="no bytes"),
        pytest.param(KEY, (8, 0, 4, None, ends(-1, *[0] * 8), b"abc"), id="bytes before the first"),
        pytest.param(KEY, (8, 0, 4, None, ends(0, 2, 1, *[3] * 6), b"abc"), id="bytes backwards"),
        pytest.param(KEY, (8, 0, 4, None, ends(0, 9, *[3] * 7), b"abc"), id="bytes beyond the last"),
        pytest.param(KEY, (8, 0, 4, None, ends(2, 0, *[3] * 7), b"abc"), id="bytes before where they begin"),
        pytest.param(KEY, (8, 0, 4, b"\xfd", ends(0, 3, 0, *[3] * 6), b"abc"), id="bytes again after a null"),
        pytest.param(HEADERS, (8, 0, 4, None, ends(0, 9, *[1] * 7), None), id="headers beyond the last"),
        pytest.param(
            HEADERS, (8, 0, 4, b"\xfd", ends(0, 1, 0, *[1] * 6), None), id="headers again after a null"
        ),
        pytest.param(HEADERS, (8, 0, 4, None, ends(0, 1, 0, *[1] * 6), None), id="headers backwards"),
        pytest.param(HEADERS, (8, 0, 4, None, ends(*[0] * 8, 2), None), id="headers that are not there"),
        pytest.param(HEADERS, (8, 0, 4, None, ends(*[-1] * 8, 1), None), id="headers before the first"),
        pytest.param(HEADER_KEY, (1, 0, 4, None, ends(0, 2), b"k"), id="a header's key beyond the last"),
    ],
)
def test_columns_with_too_few_rows_are_refused(place: int, column: tuple[Any, ...]) -> None:
    # The loop neither reads nor writes outside of the buffers.
    if compiled_loop is None:
        missing("the compiled loop", "install with a C compiler")
    parts: list[Any] = [None] * 9
    parts[HEADERS] = (8, 0, 4, None, ends(0, *[1] * 8), None)
    parts[6:] = (1, 0, 0, None, None, None), (1, 0, 4, None, ends(0, 1), b"k"), None
    assert isinstance(encoder._datums.encode((b"", 8, bytearray, tuple(parts))), tuple)
    parts[place] = column
    with pytest.raises(ValueError, match="column"):
        encoder._datums.encode((b"", 8, bytearray, tuple(parts)))


@pytest.mark.parametrize("made", [b"no buffer that can be written", bytearray(3), None])
def test_a_failed_memory_allocation_raises_an_error(monkeypatch: pytest.MonkeyPatch, made: object) -> None:
    if compiled_loop is None:
        missing("the compiled loop", "install with a C compiler")

    def allocate(size: int) -> object:
        if made is None:
            raise MemoryError
        return made

    monkeypatch.setattr(encoder.pa, "allocate_buffer", allocate)
    with pytest.raises((MemoryError, ValueError, BufferError)):
        RecordEncoder(FLIGHTS, compiled_loop).encode(SinkRecords.of(FLIGHTS, MIXED).arrow)


def test_the_plain_loop_is_used_and_logged_once_without_the_compiled_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "sinksdk.connectors.s3_archiver.formats._datums", None)
    monkeypatch.delattr("sinksdk.connectors.s3_archiver.formats._datums", raising=False)
    spec = importlib.util.spec_from_file_location("encoder_without", encoder.__file__)
    assert spec is not None
    assert spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "encoder_without", again)
    with caplog.at_level(logging.INFO):
        spec.loader.exec_module(again)
        rows = again.RecordEncoder(FLIGHTS).encode(SinkRecords.of(FLIGHTS, MIXED).arrow)

    assert again.compiled_loop is None
    assert again.LOOP is again.plain_loop
    assert split(rows) == [datum(each) for each in MIXED]
    (logged,) = caplog.records
    assert logged.levelno == logging.INFO
    assert "C compiler" in logged.getMessage()


def test_records_with_a_header_without_a_key_are_bad_and_others_are_written() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array(
        [[], [{"key": None, "value": b"v"}], None, [{"key": "a", "value": None}], [None]], kind
    )
    batch = pa.RecordBatch.from_arrays([pa.array(range(5), pa.int64()), headers], names=["offset", "headers"])

    found = RecordAvro("null").encode(FLIGHTS, batch)

    assert list(found.bad) == [1, 4]
    assert "flights-3: the record at offset 4 has a header without a key" in str(found.bad[4])
    assert split(found.rows) == encode(batch.take(pa.array([0, 2, 3])), plain_loop)
