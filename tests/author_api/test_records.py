"""Kafka's coordinates, and records as slices of Arrow batches."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from sinksdk import (
    ConfigException,
    ConnectException,
    FencedException,
    Header,
    MissingSourceTopicException,
    OffsetAndMetadata,
    OffsetRange,
    RetriableException,
    SinkRecord,
    SinkRecords,
    Token,
    TopicPartition,
)
from sinksdk.offsets import as_token
from sinksdk.records import HEADERS_TYPE, RECORD_COLUMNS

TP = TopicPartition("flights", 3)

RECORDS = [
    SinkRecord(*TP, offset=5, key=b"UA", value=b"one", timestamp=1_700_000_000_123, timestamp_type=1),
    SinkRecord(
        *TP,
        offset=6,
        headers=(Header("a", b"1"), Header("ä ☂", None), Header("a", b"")),
        timestamp=0,
    ),
    SinkRecord(*TP, offset=90, key=b"", value=b"\x00\xff"),
]


@pytest.fixture
def batch() -> SinkRecords:
    return SinkRecords.of(TP, RECORDS)


# -- coordinates -------------------------------------------------------------------------------------


def test_topic_partition_prints_and_sorts_as_in_kafka() -> None:
    assert str(TP) == "flights-3"
    assert TP == ("flights", 3)
    assert sorted([TopicPartition("b", 0), TopicPartition("a", 10), TopicPartition("a", 2)]) == [
        ("a", 2),
        ("a", 10),
        ("b", 0),
    ]


def test_offset_range_is_half_open() -> None:
    assert str(OffsetRange(3, 10)) == "[3, 10)"


def test_publish_accepts_token_ids() -> None:
    token = Token("a", {"size": 1})
    assert OffsetAndMetadata(1, publish=[token, "b"]).tokens == (token, Token("b"))
    assert as_token("b") == Token("b")
    assert as_token(token) is token


def test_tokens_are_hashable() -> None:
    assert len({Token("a", {"x": [1]}), Token("a", {"x": [1]}), Token("b")}) == 2
    assert str(Token("a", {"x": 1})) == "a"


# -- batches -----------------------------------------------------------------------------------------


def test_iterating_returns_the_records(batch: SinkRecords) -> None:
    assert list(batch) == RECORDS
    assert [record.topic_partition for record in batch] == [TP] * 3


def test_batch_is_a_sequence(batch: SinkRecords) -> None:
    assert len(batch) == 3
    assert batch[0] == RECORDS[0]
    assert batch[-1] == RECORDS[2]
    assert list(batch[1:]) == RECORDS[1:]
    assert list(batch[-2:-1]) == RECORDS[1:2]
    assert list(batch[2:1]) == []
    assert list(reversed(batch)) == RECORDS[::-1]
    assert RECORDS[1] in batch
    assert batch.index(RECORDS[2]) == 2
    with pytest.raises(IndexError):
        batch[3]
    with pytest.raises(ValueError, match="step of 1"):
        batch[::2]


def test_slice_shares_memory(batch: SinkRecords) -> None:
    whole, part = batch.arrow.column("offset"), batch[1:].arrow.column("offset")
    assert [buffer and buffer.address for buffer in whole.buffers()] == [
        buffer and buffer.address for buffer in part.buffers()
    ]


def test_first_and_next_offset(batch: SinkRecords) -> None:
    assert (batch.first_offset, batch.next_offset) == (5, 91)
    assert (batch[1:2].first_offset, batch[1:2].next_offset) == (6, 7)
    for name in ("first_offset", "next_offset"):
        with pytest.raises(IndexError, match="flights-3: a batch without records has no offsets"):
            getattr(batch[:0], name)


def test_absent_columns_have_defaults() -> None:
    arrow = pa.RecordBatch.from_arrays([pa.array([7], pa.int64())], names=["offset"])
    assert list(SinkRecords(TP, arrow)) == [SinkRecord(*TP, offset=7)]


def test_null_columns_have_defaults() -> None:
    arrays = [
        pa.array([7], pa.int64()),
        *(pa.nulls(1, kind) for name, kind in RECORD_COLUMNS.items() if name != "offset"),
    ]
    assert list(SinkRecords(TP, pa.RecordBatch.from_arrays(arrays, names=list(RECORD_COLUMNS)))) == [
        SinkRecord(*TP, offset=7)
    ]


def test_timestamp_minus_one_is_none() -> None:
    millis = [-1, 0, -2, 253_402_300_800_000, 2**62]
    arrow = pa.RecordBatch.from_arrays(
        [
            pa.array(range(5), pa.int64()),
            pa.array(millis, pa.int64()).cast(pa.timestamp("ms", tz="UTC")),
        ],
        names=["offset", "timestamp"],
    )
    assert [record.timestamp for record in SinkRecords(TP, arrow)] == [None, *millis[1:]]


def test_records_show_key_and_value_objects() -> None:
    batch = SinkRecords.of(TP, RECORDS)
    converted = SinkRecords(TP, batch.arrow, key_objects=[1, None, 0], value_objects=[{}, "", None])
    assert [(record.key, record.value) for record in converted] == [(1, {}), (None, ""), (0, None)]
    assert [(record.key, record.value) for record in converted[2:]] == [(0, None)]
    assert converted.arrow is batch.arrow


def test_of_refuses_other_partitions_and_unordered_offsets() -> None:
    with pytest.raises(ValueError, match="a record of flights-4 in a batch of flights-3"):
        SinkRecords.of(TP, [SinkRecord("flights", 4, 0)])
    for offsets in ((1, 1), (2, 1)):
        with pytest.raises(ValueError, match="offsets must ascend"):
            SinkRecords.of(TP, [SinkRecord(*TP, offset=offset) for offset in offsets])


def test_arrow_has_the_record_columns(batch: SinkRecords) -> None:
    assert dict(zip(batch.arrow.schema.names, batch.arrow.schema.types, strict=True)) == dict(RECORD_COLUMNS)
    assert SinkRecords.of(TP, []).arrow.schema == batch.arrow.schema
    assert RECORD_COLUMNS["headers"] == HEADERS_TYPE


def test_records_and_tokens_are_frozen(batch: SinkRecords) -> None:
    for value, name in (
        (batch, "arrow"),
        (batch[0], "value"),
        (Token("a"), "id"),
        (OffsetAndMetadata(1), "offset"),
    ):
        with pytest.raises(AttributeError):
            setattr(value, name, None)


# -- what travels ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [TP, OffsetRange(1, 2), Token("a", {"x": 1}), OffsetAndMetadata(1, "m", (Token("a"),)), RECORDS[1]],
    ids=str,
)
def test_records_and_tokens_can_be_pickled(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301 - our own


def test_batches_can_be_pickled(batch: SinkRecords) -> None:
    assert list(pickle.loads(pickle.dumps(batch[1:]))) == RECORDS[1:]  # noqa: S301 - our own


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (ConnectException("x"), {}),
        (FencedException("x"), {}),
        (RetriableException("busy", retry_after=2.5), {"retry_after": 2.5}),
        (RetriableException(), {"retry_after": None}),
        (ConfigException(["one", "two"]), {"problems": ("one", "two")}),
        (ConfigException("one"), {"problems": ("one",)}),
        (MissingSourceTopicException(["b", "a"]), {"topics": ("a", "b")}),
        (MissingSourceTopicException(["a"], "gone"), {"topics": ("a",)}),
    ],
    ids=repr,
)
def test_errors_can_be_pickled(error: Exception, kept: dict[str, object]) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert {name: getattr(again, name) for name in kept} == kept


def test_missing_topic_message_says_what_to_do() -> None:
    assert str(MissingSourceTopicException(["b", "a"])) == (
        "the source has no topic 'a', 'b': create it, or remove it from the connector's 'topics'"
    )


def test_typed_batches_keep_types_and_read_columns() -> None:
    kind = pa.struct([("n", pa.int64()), ("m", pa.map_(pa.string(), pa.int8()))])
    records = [SinkRecord(*TP, offset=n, key=n, value={"n": n, "m": {"k": n}}) for n in range(3)]
    batch = SinkRecords.of(TP, records, key_type=pa.int32(), value_type=kind)
    assert list(batch) == records
    assert list(batch[1:]) == records[1:]
    assert list(batch.take([2, 0])) == [records[2], records[0]]
    assert list(batch.take([])) == []
    with pytest.raises(IndexError, match="negative"):
        batch.take([-1])
    assert batch[1].as_read() == records[1]
