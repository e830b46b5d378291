"""Typed values from a converter to a task: one type for each put, and a way back to the original bytes."""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from sinksdk import (
    ConfigException,
    ConnectorConfig,
    DataException,
    Header,
    OffsetAndMetadata,
    RetriableException,
    SinkRecord,
    SinkRecords,
)
from sinksdk.engine import EngineOptions
from sinksdk.engine.converters import AvroConverter, Converter, JsonConverter, StringConverter
from sinksdk.engine.retry import RetryPolicy
from sinksdk.testing import SinkTaskHarness
from sinksdk.transforms.chain import Chain
from sinksdk.transforms.plugins import read_chain
from sinksdk.values.plain import plain
from tests.engine.sinks import P0, Letters, Sink

A = [{"name": "a", "type": "int"}]
SCHEMAS = {
    1: A,
    2: [*A, {"name": "b", "type": ["null", "string"]}],
    3: [{"name": "a", "type": "long"}],
    4: [{"name": "a", "type": "string"}],
}
PARSED = {
    number: fastavro.parse_schema({"type": "record", "name": "R", "fields": fields})
    for number, fields in SCHEMAS.items()
}


def registry(schema_id: int) -> Any:
    if schema_id not in PARSED:
        raise DataException(f"there is no schema {schema_id}")
    return PARSED[schema_id]


def avro(schema_id: int, **fields: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, PARSED[schema_id], fields)
    return struct.pack(">bI", 0, schema_id) + buffer.getvalue()


class Bytes(Sink):
    takes_bytes = True


def harness_of(
    converter: Converter | None,
    *,
    sink: type[Sink] = Sink,
    chain: Chain | None = None,
    most: int | None = None,
    transformed: bool = False,
) -> tuple[SinkTaskHarness, Letters]:
    letters = Letters()
    options = EngineOptions(
        tolerate_errors=True,
        value_converter=converter,
        chain=chain,
        max_poll_records=most,
        retry=RetryPolicy(1.0),
        is_transformed=transformed,
    )
    harness = SinkTaskHarness(sink, options=options, dead_letters=letters)
    harness.start()
    harness.assign(P0)
    return harness, letters


def records(*values: bytes | None) -> list[SinkRecord]:
    return [SinkRecord(*P0, offset=offset, value=value) for offset, value in enumerate(values)]


def puts(harness: SinkTaskHarness) -> list[SinkRecords]:
    return [call.arguments[0] for call in harness.called("put")]


def settle(harness: SinkTaskHarness) -> None:
    while harness.worker.pending:
        harness.advance(harness.worker.wait())


def test_avro_records_of_a_registry_become_structs() -> None:
    harness, _ = harness_of(AvroConverter(registry))
    harness.deliver(P0, records(avro(2, a=1, b="x"), None, avro(2, a=2)))
    (given,) = puts(harness)
    column = given.arrow.column("value")
    assert column.type == pa.struct([("a", pa.int32()), ("b", pa.string())])
    assert given.value_objects is None
    assert [record.value for record in given] == [{"a": 1, "b": "x"}, None, {"a": 2, "b": None}]
    assert given[2].as_read().value == avro(2, a=2)


def test_the_type_of_a_record_does_not_depend_on_its_batch() -> None:
    # No number is widened, and no row gets the fields of another schema as nulls, even if that would lose
    # nothing.
    harness, _ = harness_of(AvroConverter(registry))
    values = [avro(1, a=1), avro(2, a=2, b="x"), avro(3, a=3), avro(3, a=2**40), avro(1, a=4)]
    harness.deliver(P0, records(*values))
    settle(harness)
    assert [(given.arrow.column("value").type, [r.value for r in given]) for given in puts(harness)] == [
        (pa.struct([("a", pa.int32())]), [{"a": 1}]),
        (pa.struct([("a", pa.int32()), ("b", pa.string())]), [{"a": 2, "b": "x"}]),
        (pa.struct([("a", pa.int64())]), [{"a": 3}, {"a": 2**40}]),
        (pa.struct([("a", pa.int32())]), [{"a": 4}]),
    ]


@pytest.mark.parametrize("most", [None, 2, 1])
def test_records_of_different_schemas_are_put_separately(most: int | None) -> None:
    harness, letters = harness_of(AvroConverter(registry), most=most)
    values = [avro(1, a=0), avro(3, a=1), avro(4, a="2"), None, b"bad", avro(4, a="5"), avro(1, a=6)]
    harness.deliver(P0, records(*values))
    settle(harness)
    given = puts(harness)
    assert [(r.offset, r.value and r.value["a"]) for one in given for r in one] == [
        (0, 0),
        (1, 1),
        (2, "2"),
        (3, None),
        (5, "5"),
        (6, 6),
    ]
    if most is None:
        assert [len(one) for one in given] == [1, 1, 3, 1]
    assert [letter.offset for letter in letters.records] == [4], "it is reported once"
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(7)}


def test_many_changes_of_type_cost_two_conversions_of_each_record() -> None:
    asked: list[int] = []

    class Counting(AvroConverter):
        def convert(self, topic: str, data: pa.Array) -> Any:
            asked.append(len(data))
            return super().convert(topic, data)

    harness, _ = harness_of(Counting(registry), most=200)
    harness.deliver(P0, records(*(avro(1, a=n) if n % 2 else avro(4, a=str(n)) for n in range(200))))
    settle(harness)
    assert len(puts(harness)) == 200
    assert sum(asked) == 400, "all of them once, and each of them alone"


def test_a_retry_puts_the_same_portion_again() -> None:
    harness, _ = harness_of(AvroConverter(registry))
    harness.task.faults["put"].append(RetriableException("busy"))
    harness.deliver(P0, records(avro(1, a=0), avro(4, a="1")))
    settle(harness)
    assert [[r.offset for r in one] for one in puts(harness)] == [[0], [0], [1]]
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(2)}


def test_records_of_one_offset_must_have_one_type() -> None:
    harness, _ = harness_of(AvroConverter(registry), transformed=True)
    batch = SinkRecords.of(P0, records(avro(1, a=0), avro(4, a="1")))
    doubled = SinkRecords(P0, batch.arrow.set_column(0, "offset", pa.array([0, 0], pa.int64())))
    harness.deliver(P0, doubled)
    assert (
        "the records of offset 0 have keys or values of several types" in harness.outcome(P0).failure.message
    )
    assert puts(harness) == []


def test_a_recursive_schema_gives_objects() -> None:
    branch = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
    parsed = fastavro.parse_schema(branch)
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, parsed, {"next": {"next": None}})
    harness, _ = harness_of(AvroConverter(lambda _: parsed))
    harness.deliver(P0, records(struct.pack(">bI", 0, 1) + buffer.getvalue()))
    (given,) = puts(harness)
    assert given[0].value == {"next": {"next": None}}
    assert given.value_objects == [{"next": {"next": None}}]


DDL = "a INT, s STRING NOT NULL, t TIMESTAMP"


def test_json_with_a_declared_schema_is_typed() -> None:
    harness, letters = harness_of(JsonConverter(schema=DDL))
    bad = [
        b'{"a": "1", "s": ""}',
        b'{"a": 1}',
        b"[]",
        b"{",
        b'{"a": 1.5, "s": ""}',
        b'{"s": "", "t": 5}',
        b"\xff",
    ]
    bad += [
        b'{"a": 2147483648, "s": ""}',
        b'{"s": "\\ud800"}',
        b'{"s": "", "t": "9999-12-31T23:59:59-01:00"}',
    ]
    good = [b'{"s": "x", "more": [1]}', b'{"a": 7, "s": "", "t": "2026-01-02T03:04:05Z"}']
    harness.deliver(P0, records(good[0], *bad, None, good[1]))
    (given,) = puts(harness)
    assert [(r.offset, r.value and (r.value["a"], r.value["s"])) for r in given] == [
        (0, (None, "x")),
        (len(bad) + 1, None),
        (len(bad) + 2, (7, "")),
    ]
    assert [letter.value for letter in letters.records] == bad
    assert given.arrow.column("value").type == pa.struct(
        [("a", pa.int32()), ("s", pa.string()), ("t", pa.timestamp("us", tz="UTC"))]
    )


def test_tombstones_get_the_type_of_the_declared_schema() -> None:
    harness, _ = harness_of(JsonConverter(schema="a INT"))
    harness.deliver(P0, records(None))
    assert puts(harness)[0].arrow.column("value").type == pa.struct([("a", pa.int32())])


def envelope(schema: Any, payload: Any) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":")).encode()


def test_an_envelope_is_typed_by_its_schema() -> None:
    price = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "20"}}
    schema = {
        "type": "struct",
        "fields": [
            {"field": "n", "type": "int32", "default": 7},
            {"field": "p", "optional": True, **price},
        ],
    }
    digits = b'{"schema":%b,"payload":{"p":1.00000000000000000001}}' % json.dumps(schema).encode()
    harness, letters = harness_of(JsonConverter(schemas_enable=True))
    required = {"type": "string", "optional": False}
    harness.deliver(
        P0,
        records(
            digits,
            digits,
            envelope(required, None),
            envelope({"type": "int7"}, 1),
            envelope(schema, {"n": "7"}),
        ),
    )
    (given,) = puts(harness)
    assert [r.value for r in given] == [{"n": 7, "p": Decimal("1.00000000000000000001")}] * 2
    assert [letter.offset for letter in letters.records] == [2, 3, 4]


def test_fields_after_the_payload_of_a_cached_envelope_are_checked() -> None:
    schema = {"type": "int32"}
    begin = envelope(schema, 1)[:-2]
    harness, letters = harness_of(JsonConverter(schemas_enable=True))
    more = begin + b'1,"payload":2}'  # in JSON the last field of a name counts
    harness.deliver(P0, records(begin + b"1}", more, begin + b'1,"x":2}', begin + b"1} ", begin + b"1}}"))
    assert [(r.offset, r.value) for one in puts(harness) for r in one] == [(0, 1), (1, 2), (3, 1)]
    assert [letter.offset for letter in letters.records] == [2, 4]


# -- bytes -------------------------------------------------------------------------------------------------


def typed(values: Sequence[Any], kind: pa.DataType) -> SinkRecords:
    rows = [SinkRecord(*P0, offset=offset, value=value) for offset, value in enumerate(values)]
    return SinkRecords.of(P0, rows, value_type=kind)


ROW = pa.struct([("a", pa.int64()), ("f", pa.float64()), ("t", pa.timestamp("us", tz="UTC"))])


def test_values_typed_by_spark_are_json_for_a_sink_of_bytes() -> None:
    # The value is Spark's to_json of the column; the original column is kept for dead letters.
    harness, _ = harness_of(None, sink=Bytes)
    harness.deliver(P0, typed([{"a": 1, "f": float("nan"), "t": 0}, None, {"a": 2}], ROW))
    (given,) = puts(harness)
    assert given.arrow.column("value").to_pylist() == [
        b'{"a":1,"f":"NaN","t":"1970-01-01T00:00:00Z"}',
        None,
        b'{"a":2}',
    ]
    assert given.arrow.column("value").type == pa.binary()


def test_values_typed_by_spark_stay_typed_for_other_sinks() -> None:
    harness, _ = harness_of(None)
    batch = typed([{"a": 1}], ROW)
    harness.deliver(P0, batch)
    assert puts(harness)[0].arrow.column("value").equals(batch.arrow.column("value"))
    own = batch.arrow.column("value").field("a").buffers()[1]
    assert puts(harness)[0].arrow.column("value").field("a").buffers()[1].address == own.address


def test_a_type_without_json_fails_the_partition_of_a_sink_of_bytes() -> None:
    harness, letters = harness_of(None, sink=Bytes)
    harness.deliver(P0, typed([5], pa.duration("us")))
    assert "type duration[us] cannot be written as JSON: cast them" in harness.outcome(P0).failure.message
    assert letters.records == []


def test_a_converter_reads_values_typed_by_spark_as_json() -> None:
    for converter, value in ((StringConverter(), '{"a":1}'), (JsonConverter(), {"a": 1})):
        harness, _ = harness_of(converter)
        harness.deliver(P0, typed([{"a": 1}], ROW))
        assert [r.value for r in puts(harness)[0]] == [value]


def test_dead_letters_of_typed_records_have_bytes() -> None:
    class Refusing(Sink):
        def put(self, given: SinkRecords) -> None:
            for record in given[1:]:
                self.context.errant_record_reporter().report(record, ValueError("refused"))

    harness, letters = harness_of(None, sink=Refusing)
    harness.deliver(P0, typed([{"a": 1}, {"a": 2}], ROW))
    harness_2, letters_2 = harness_of(AvroConverter(registry), sink=Refusing)
    harness_2.deliver(P0, records(avro(1, a=1), avro(1, a=2)))
    assert [letter.value for letter in letters.records] == [b'{"a":2}']
    assert [letter.value for letter in letters_2.records] == [avro(1, a=2)]


def test_a_sink_of_bytes_gets_unchanged_values_as_read() -> None:
    # Records that a chain changes become JSON as Connect writes it; the others stay Avro.
    steps, problems = read_chain(
        ["mask"],
        ["h"],
        {
            "transforms.mask.type": "MaskField$Value",
            "transforms.mask.fields": "b",
            "transforms.mask.predicate": "h",
            "predicates.h.type": "HasHeaderKey",
            "predicates.h.name": "secret",
        },
    )
    assert steps is not None, problems
    harness, _ = harness_of(AvroConverter(registry), sink=Bytes, chain=steps)
    rows = records(avro(2, a=1, b="x"), avro(2, a=2, b="y"), None, b"bad", avro(2, a=3))
    harness.deliver(
        P0, [SinkRecord(*P0, 0, value=rows[0].value, headers=(Header("secret", None),)), *rows[1:]]
    )
    (given,) = puts(harness)
    assert given.arrow.column("value").to_pylist() == [
        b'{"a":1,"b":""}',
        avro(2, a=2, b="y"),
        None,
        avro(2, a=3),
    ]


def test_a_sink_of_bytes_without_transforms_gets_values_as_read() -> None:
    harness, letters = harness_of(AvroConverter(registry), sink=Bytes)
    harness.deliver(P0, records(avro(1, a=1), b"bad", avro(4, a="x")))
    settle(harness)
    assert [r.value for one in puts(harness) for r in one] == [avro(1, a=1), avro(4, a="x")]
    assert [letter.offset for letter in letters.records] == [1]


def test_transforms_follow_connects_rules_for_values_with_a_schema() -> None:
    # As in Connect with an Avro schema, Cast ignores a missing field and does not add it.
    steps, problems = read_chain(
        ["cast"], [], {"transforms.cast.type": "Cast$Value", "transforms.cast.spec": "a:string,zz:int8"}
    )
    assert steps is not None, problems
    harness, _ = harness_of(AvroConverter(registry), chain=steps)
    harness.deliver(P0, records(avro(1, a=1)))
    assert [r.value for r in puts(harness)[0]] == [{"a": "1"}]


def test_transforms_handle_values_typed_by_spark() -> None:
    # After records.sql transforms need no converter, and bytes are what Spark's to_json would write.
    keys = {"transforms": "m", "transforms.m.type": "MaskField$Value", "transforms.m.fields": "a"}
    raw = {"name": "c", "topics": "t", "records.sql": "SELECT * FROM records", **keys}
    chain = ConnectorConfig.parse(raw).chain()
    for sink, value in ((Sink, {"a": 0, "f": None, "t": None}), (Bytes, b'{"a":0}')):
        harness, _ = harness_of(None, sink=sink, chain=chain, transformed=True)
        harness.deliver(P0, typed([{"a": 1}], ROW))
        assert [r.value for r in puts(harness)[0]] == [value]


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (
            {"value.converter.schema": "a INT"},
            "'value.converter.schema' applies only with 'value.converter' json",
        ),
        (
            {"value.converter": "json", "value.converter.schema": "a IN"},
            "found 'IN' at character 3, but expected a type",
        ),
        (
            {
                "key.converter": "json",
                "key.converter.schema": "a INT",
                "key.converter.schemas.enable": "true",
            },
            "'key.converter.schema': with 'key.converter.schemas.enable' true each record has its own",
        ),
        (
            {"value.converter": "json", "value.converter.schema": '{"type": "recrd"}'},
            "'recrd' is neither an Avro type",
        ),
    ],
)
def test_schemas_are_checked_at_start(keys: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigException, match=re.escape(says)):
        ConnectorConfig.parse({"name": "c", "topics": "t", **keys})


def test_plain_integers_with_nulls_stay_integers() -> None:
    assert plain(pa.array([1, None])) == [1, None]
