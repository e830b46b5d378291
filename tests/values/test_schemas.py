"""Schemas in three languages, conversions of types, and JSON."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import sinksdk
from sinksdk import ConfigException, DataException
from sinksdk.engine.converters import JsonConverter
from sinksdk.values.declared import declared_shape
from sinksdk.values.plain import plain
from sinksdk.values.text import CONNECT_JSON, SPARK_JSON, JsonStyle, to_json

UTC = pa.timestamp("us", tz="UTC")
AVRO = '{"type": "record", "name": "R", "fields": [%s]}'


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("a INT", pa.struct([("a", pa.int32())])),
        ("INT", pa.int32()),
        ("array<string>", pa.list_(pa.string())),
        ("decimal, b decimal(3)", None),
        ('`a``b` dec(5,2) not null comment "it\'s"', pa.struct([("a`b", pa.decimal128(5, 2))])),
        ("array int, map varchar(3)", pa.struct([("array", pa.int32()), ("map", pa.string())])),
        ("s struct<>", pa.struct([("s", pa.struct([]))])),
        ('{"type": "struct", "fields": [{"field": "a", "type": "int8"}]}', pa.struct([("a", pa.int8())])),
        (AVRO % '{"name": "a", "type": ["null", "long"]}', pa.struct([("a", pa.int64())])),
        ('{"type": "long", "logicalType": "timestamp-micros"}', UTC),
    ],
)
def test_schemas_of_three_languages_have_the_expected_types(text: str, kind: pa.DataType | None) -> None:
    if kind is None:
        with pytest.raises(ConfigException):
            declared_shape(text)
    else:
        assert declared_shape(text).kind == kind


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (" ", "it is empty"),
        ("a", "it ends too early: expected a type .BOOLEAN"),
        ("a int,", "it ends too early: expected a field's name"),
        ("a foo", "found 'foo' at character 3, but expected a type"),
        ("a int b int", "found 'b' at character 7, but expected the end"),
        ("a int, a int", "two fields have the name 'a'"),
        ("a decimal(39)", "found '39' at character 11, but expected a precision of 1 to 38"),
        ("a map<int, int>", "found 'int' at character 7, but expected STRING"),
        ("a int; drop", "';' at character 6 is not part of Spark's DDL"),
        ("a " + "array<" * 200 + "int", "more than 100 deep"),
        ("{", "is not JSON"),
        ('"nope"', "'nope' is neither an Avro type nor defined before"),
        ('["int", "string"]', "cannot distinguish the types of the union .int, string."),
        (AVRO % '{"name": "a", "type": ["null", "R"]}', "contains itself"),
        (AVRO % '{"name": "a", "type": "int", "default": "x"}', "the default of field 'a' is invalid"),
        (AVRO % '{"name": "a"}', "it is not an Avro schema"),
        ('{"type": "struct", "fields": [1]}', "not valid in Connect"),
    ],
)
def test_invalid_schema_is_reported_with_its_position(text: str, says: str) -> None:
    with pytest.raises(ConfigException, match=says):
        declared_shape(text)


def test_avro_fields_without_default_or_null_are_required() -> None:
    fields = [
        {"name": "a", "type": "int"},
        {"name": "b", "type": "string", "default": "x"},
        {"name": "c", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A"]}, "default": "A"},
    ]
    converter = JsonConverter(schema=AVRO % ",".join(map(json.dumps, fields)))
    day = dt.date(1970, 1, 2)
    assert converter("t", b'{"a": 1}') == {"a": 1, "b": "x", "c": None, "e": "A"}
    assert (
        converter("t", b'{"a": 1, "c": 1}')["c"] == converter("t", b'{"a": 1, "c": "1970-01-02"}')["c"] == day
    )
    for bad in (
        b"{}",
        b'{"a": null}',
        b'{"a": 1, "e": "B"}',
        b'{"a": 1, "c": 1.5}',
        b'{"a": 1, "c": 10000000}',
    ):
        with pytest.raises(DataException):
            converter("t", bad)


DEEP: Any = {"type": "int32"}
for _ in range(200):
    DEEP = {"type": "array", "items": DEEP}
DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"}


@pytest.mark.parametrize(
    "schema",
    [
        [],
        1,
        {"type": ["int32"]},
        {"type": "struct", "fields": "abc"},
        {"type": "struct", "fields": [{"type": "int32", "field": 1}]},
        {"type": "struct", "fields": [{"type": "int32", "field": "a"}] * 2},
        {**DECIMAL, "parameters": {"scale": "99999999999"}},
        DECIMAL,
        DEEP,
        {"type": "int32", "default": "x"},
    ],
)
def test_envelopes_with_an_invalid_schema_are_bad_records(schema: Any) -> None:
    with pytest.raises(DataException):
        JsonConverter(schemas_enable=True)("t", json.dumps({"schema": schema, "payload": None}).encode())


NOON = dt.datetime(2026, 1, 2, 12, 0, 0, 500_000, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("value", "kind", "connects", "sparks"),
    [
        ({"a": None, "b": 1}, pa.struct([("a", pa.int8()), ("b", pa.int8())]), '{"a":null,"b":1}', '{"b":1}'),
        ({"a": None}, pa.struct([("a", pa.int8())]), '{"a":null}', "{}"),
        ({}, pa.struct([]), "{}", "{}"),
        (dt.date(1970, 1, 3), pa.date32(), "2", '"1970-01-03"'),
        (NOON, UTC, str(int(NOON.timestamp() * 1_000_000)), '"2026-01-02T12:00:00.500000Z"'),
        (253_402_300_800, pa.timestamp("s"), "253402300800", '"10000-01-01T00:00:00"'),
        (dt.time(1), pa.time32("ms"), "3600000", '"01:00:00"'),
        (Decimal("1.50"), pa.decimal128(5, 2), '"AJY="', "1.50"),
        (0.1, pa.float32(), "0.1", "0.1"),
        (float("nan"), pa.float64(), '"NaN"', '"NaN"'),
        ([(1, "x")], pa.map_(pa.int8(), pa.string()), '[[1,"x"]]', '{"1":"x"}'),
        ([("k", None)], pa.map_(pa.string(), pa.string()), '{"k":null}', '{"k":null}'),
        ([1, None], pa.list_(pa.int8()), "[1,null]", "[1,null]"),
        (b"\x00\xff", pa.binary(), '"AP8="', '"AP8="'),
        ('"\n\u2028', pa.string(), '"\\"\\n\u2028"', '"\\"\\n\u2028"'),
    ],
    ids=str,
)
def test_typed_values_become_json_like_connect_and_spark(
    value: Any, kind: pa.DataType, connects: str, sparks: str
) -> None:
    column = pa.array([None, value, value, None], kind)
    for style, text in ((CONNECT_JSON, connects), (SPARK_JSON, sparks)):
        assert isinstance(style, JsonStyle)
        assert to_json(column, style).to_pylist() == [None, text, text, None]
        assert to_json(column[2:3], style).to_pylist() == [text]
        json.loads(text)


def test_json_texts_in_both_styles() -> None:
    column = pa.array([{"a": None}], pa.struct([("a", pa.int8())]))
    assert sinksdk.json_texts(column).to_pylist() == ['{"a":null}']
    assert sinksdk.json_texts(column, like="spark").to_pylist() == ["{}"]


def test_timestamp_outside_pythons_years_fails_when_iterated() -> None:
    with pytest.raises(DataException, match="outside the years 1 to 9999"):
        plain(pa.array([253_402_300_800], pa.timestamp("s")))
    assert plain(pa.array([1_500], pa.timestamp("ns"))) == [
        dt.datetime.fromisoformat("1970-01-01T00:00:00.000001")
    ]
