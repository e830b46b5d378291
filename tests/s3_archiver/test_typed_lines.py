"""Values and keys that a converter or a transform has typed keep their type in lines of JSON."""

from __future__ import annotations

import base64
import io
import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest

from sinksdk import SinkRecord, SinkRecords
from sinksdk.engine import EngineOptions
from sinksdk.topics.kafka.schema_registry import connect
from tests.helpers.registry_server import RegistryServer
from tests.s3_archiver.support import TP, Bench, bench, config

TRANSFORMS = "org.apache.kafka.connect.transforms"
JSON_FORMAT = "io.confluent.connect.s3.format.json.JsonFormat"
TEXTS = ("17", "null", "hello", '{"a":1}', "[1]", "true", "", "ä\n", '"x"', "NaN")
NULL = None


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    server = RegistryServer()
    with server.running():
        yield server


def archived(keys: Mapping[str, str], **record: Any) -> Bench:
    settings = config({"format.class": JSON_FORMAT, "behavior.on.null.values": "ignore", **keys})
    made = bench(settings=settings, options=EngineOptions.of(settings, connect))
    made.harness.deliver(TP, SinkRecords.of(TP, [SinkRecord(*TP, offset=0, timestamp=5, **record)]))
    made.harness.revoke()
    return made


def line(made: Bench, *, of_keys: bool = False) -> str | None:
    failure = made.harness.outcome(TP).failure
    assert failure is None, failure.message
    names = [name for name in made.visible() if (".keys." in name) is of_keys]
    if not names:
        return None
    text = made.s3.data(names[0]).decode()
    assert text.endswith("\n")
    return text[:-1]


def chain(name: str, part: str, **keys: str) -> dict[str, str]:
    return {"transforms": "t", "transforms.t.type": f"{TRANSFORMS}.{name}${part}"} | {
        f"transforms.t.{key.replace('_', '.')}": value for key, value in keys.items()
    }


def framed(registry: RegistryServer, schema: Any, value: Any) -> bytes:
    text = json.dumps(schema)
    number = registry.register(f"s{abs(hash(text))}", text)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return struct.pack(">bI", 0, number) + out.getvalue()


def converters(side: str, registry: RegistryServer) -> dict[str, dict[str, str]]:
    name = f"{side}.converter"
    return {
        "json": {name: "json", f"{name}.schemas.enable": "false"},
        "envelope": {name: "json", f"{name}.schemas.enable": "true"},
        "declared": {name: "json", f"{name}.schema": "m STRING, n INT"},
        "avro": {name: "avro", f"{name}.schema.registry.url": registry.url},
        **{
            kind: {name: kind}
            for kind in ("string", "bytes", "short", "integer", "long", "float", "double", "boolean")
        },
    }


def envelope(schema: Any, payload: Any) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}).encode()


def texts(registry: RegistryServer, text: str) -> Iterator[tuple[str, bytes, str | None]]:
    yield "string", text.encode(), None
    yield "json", json.dumps(text).encode(), None
    yield "envelope", envelope({"type": "string"}, text), None
    yield "avro", framed(registry, "string", text), None
    yield "avro", framed(registry, ["null", "string"], text), None
    yield "json", json.dumps({"m": text}).encode(), "m"
    yield (
        "envelope",
        envelope({"type": "struct", "fields": [{"field": "m", "type": "string"}]}, {"m": text}),
        "m",
    )
    yield "declared", json.dumps({"m": text}).encode(), "m"
    record = {"type": "record", "name": "R", "fields": [{"name": "m", "type": "string"}]}
    yield "avro", framed(registry, record, {"m": text}), "m"


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("side", ["key", "value"])
def test_texts_become_json_strings_even_if_they_look_like_json(
    registry: RegistryServer, side: str, text: str
) -> None:
    of_keys = side == "key"
    beside = {"store.kafka.keys": "true", "keys.format.class": JSON_FORMAT} if of_keys else {}
    if of_keys:
        beside |= {"value.converter": "json", "value.converter.schemas.enable": "false"}
    for kind, data, field in texts(registry, text):
        taken = chain("ExtractField", side.title(), field=field) if field else {}
        record = {"key": data, "value": b"{}"} if of_keys else {"key": b"k", "value": data}
        made = archived({**beside, **converters(side, registry)[kind], **taken}, **record)
        found = line(made, of_keys=of_keys)
        assert found is not None, (kind, field)
        assert json.loads(found) == text, (kind, field)
        if of_keys:
            assert line(made) == "{}"


@pytest.mark.parametrize("text", ["17", "null", "hello"])
def test_texts_in_transformed_values_remain_json_strings(registry: RegistryServer, text: str) -> None:
    for kind, data, field in texts(registry, text):
        hoisted = archived(
            {**converters("value", registry)[kind], **chain("HoistField", "Value", field="f")}, value=data
        )
        expected = {"m": text} | ({"n": None} if kind == "declared" else {}) if field else text
        assert json.loads(line(hoisted) or "") == {"f": expected}
    for kind, data, spec in (
        ("json", b"17", "string"),
        ("json", b'{"m":17}', "m:string"),
        ("long", struct.pack(">q", 17), "string"),
        ("avro", framed(registry, "int", 17), "string"),
    ):
        cast = archived(
            {**converters("value", registry)[kind], **chain("Cast", "Value", spec=spec)}, value=data
        )
        assert json.loads(line(cast) or "") == ({"m": "17"} if ":" in spec else "17")


def test_keys_created_from_values_keep_their_types(registry: RegistryServer) -> None:
    keys = {
        **converters("value", registry)["json"],
        "store.kafka.keys": "true",
        "keys.format.class": JSON_FORMAT,
        "transforms": "a,b",
        "transforms.a.type": f"{TRANSFORMS}.ValueToKey",
        "transforms.a.fields": "m",
        "transforms.b.type": f"{TRANSFORMS}.ExtractField$Key",
        "transforms.b.field": "m",
    }
    assert line(archived(keys, value=b'{"m":"17"}'), of_keys=True) == '"17"'
    keys["transforms"] = "a"
    assert line(archived(keys, value=b'{"m":"17"}'), of_keys=True) == '{"m":"17"}'


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        ("bytes", b"17", base64.b64encode(b"17").decode()),
        ("bytes", b"null", base64.b64encode(b"null").decode()),
        ("short", struct.pack(">h", -3), -3),
        ("integer", struct.pack(">i", 7), 7),
        ("long", struct.pack(">q", 2**53 + 1), 2**53 + 1),
        ("float", struct.pack(">f", 0.1), 0.1),
        ("double", struct.pack(">d", 1e300), 1e300),
        ("double", struct.pack(">d", float("nan")), "NaN"),
        ("boolean", b"\x01", True),
        ("json", b"17", 17),
        ("json", b'"17"', "17"),
        ("json", b"[null]", [None]),
    ],
)
@pytest.mark.parametrize("side", ["key", "value"])
def test_scalars_are_written_by_their_converter(
    registry: RegistryServer, side: str, kind: str, data: bytes, expected: Any
) -> None:
    of_keys = side == "key"
    keys = converters(side, registry)[kind]
    if of_keys:
        keys |= {"store.kafka.keys": "true", "keys.format.class": JSON_FORMAT, "value.converter": "json"}
    record = {"key": data, "value": b"{}"} if of_keys else {"value": data}
    assert json.loads(line(archived(keys, **record), of_keys=of_keys) or "") == expected
    hoisted = archived({**keys, **chain("HoistField", side.title(), field="f")}, **record)
    assert json.loads(line(hoisted, of_keys=of_keys) or "") == {"f": expected}


@pytest.mark.parametrize(
    ("kind", "data"),
    [("json", b'{"m":null}'), ("json", b"{}"), ("declared", b'{"n":1}')],
)
def test_a_null_returned_by_a_transform_is_a_null_value(
    registry: RegistryServer, kind: str, data: bytes
) -> None:
    made = archived(
        {**converters("value", registry)[kind], **chain("ExtractField", "Value", field="m")}, value=data
    )
    assert line(made) is NULL
    assert made.committed() == 1


# -- JSON --------------------------------------------------------------------------------------------------

JSON = {"value.converter": "json", "value.converter.schemas.enable": "false"}
BAD = (
    b'{"a":2,,}',
    b"{a:1}",
    b'{"a":1}{"a":2}',
    b'{"a":NaN}',
    b'{"a":"\\x"}',
    b'{"a":"\xff"}',
    b"hello",
    b'{"a":1',
)
GOOD = (b'{"a":1}', b' { "a" : 1.50 } ', b'{"a":"\\u00e9"}', b'{"a":[{}]}', '{"a":"ä"}'.encode())


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"partitioner.class": "FieldPartitioner", "partition.field.name": "a"},
        {"partitioner.class": "DailyPartitioner", "timestamp.extractor": "Record"},
        {"s3.compression.type": "gzip"},
        {"store.kafka.keys": "true", "key.converter": "string"},
        chain("InsertField", "Value", static_field="s", static_value="v"),
        chain("HoistField", "Value", field="h"),
        {"format.class": "AvroFormat", "value.converter.schema": "a STRING"},
        {"format.class": "ParquetFormat", "value.converter.schema": "a STRING"},
    ],
    ids=str,
)
def test_invalid_json_is_bad_under_every_configuration(keys: dict[str, str]) -> None:
    for value in BAD:
        made = archived({**JSON, **keys}, key=b"k", value=value)
        failure = made.harness.outcome(TP).failure
        assert failure is not None, value
        assert "failed in VALUE_CONVERTER" in failure.message
        assert "the bytes are not JSON" in failure.message
        assert made.visible() == []


def test_json_is_written_unchanged() -> None:
    for value in GOOD:
        assert line(archived(JSON, value=value)) == value.decode()
        untouched = {
            **JSON,
            **chain("InsertHeader", "Value"),
            "transforms.t.type": f"{TRANSFORMS}.InsertHeader",
        }
        untouched |= {"transforms.t.header": "h", "transforms.t.value.literal": "v"}
        assert line(archived(untouched, value=value)) == value.decode()


@pytest.mark.parametrize("data", [b"", b" ", b"\n\t", b"null", None])
def test_empty_json_is_null(data: bytes | None) -> None:
    # See KAFKA-10477.
    assert line(archived(JSON, value=data)) is NULL
    keys = {**JSON, "store.kafka.keys": "true", "keys.format.class": JSON_FORMAT, "key.converter": "json"}
    failure = archived(keys, key=data, value=b"{}").harness.outcome(TP).failure
    assert failure is not None
    assert "it has no key (null)" in failure.message


# -- decimals, defaults, schemas that contain themselves ---------------------------------------------------


@pytest.mark.parametrize(
    ("digits", "packed", "number"),
    [("12.34", "BNI=", "12.34"), ("-0.01", "/w==", "-0.01"), ("1.28", "AIA=", "1.28")],
)
def test_decimals_are_written_by_json_decimal_format(
    registry: RegistryServer, digits: str, packed: str, number: str
) -> None:
    from decimal import Decimal  # noqa: PLC0415 - one test needs it

    kind = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    record = {"type": "record", "name": "D", "fields": [{"name": "d", "type": kind}]}
    connects = {
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "2"},
    }
    schema = {"type": "struct", "fields": [{"field": "d", **connects}]}
    for kind_of, data in (
        ("avro", framed(registry, record, {"d": Decimal(digits)})),
        ("envelope", envelope(schema, {"d": packed})),
        ("envelope", envelope(schema, {"d": float(digits)})),
    ):
        keys = converters("value", registry)[kind_of]
        assert line(archived(keys, value=data)) == f'{{"d":"{packed}"}}'
        assert line(archived({**keys, "json.decimal.format": "base64"}, value=data)) == f'{{"d":"{packed}"}}'
        assert line(archived({**keys, "json.decimal.format": "NUMERIC"}, value=data)) == f'{{"d":{number}}}'
        hoisted = archived({**keys, **chain("HoistField", "Value", field="f")}, value=data)
        assert line(hoisted) == f'{{"f":{{"d":"{packed}"}}}}'


DEFAULTS = {
    "type": "struct",
    "fields": [
        {"field": "o", "type": "string", "optional": True, "default": "x"},
        {"field": "r", "type": "int32", "default": 5},
    ],
}


def test_null_fields_get_their_default_if_configured(registry: RegistryServer) -> None:
    # See KIP-581.
    keys = converters("value", registry)["envelope"]
    kept = {**keys, "value.converter.replace.null.with.default": "false"}
    assert line(archived(keys, value=envelope(DEFAULTS, {"o": None}))) == '{"o":"x","r":5}'
    assert line(archived(kept, value=envelope(DEFAULTS, {"o": None, "r": 1}))) == '{"o":null,"r":1}'
    failure = archived(kept, value=envelope(DEFAULTS, {"o": "y"})).harness.outcome(TP).failure
    assert failure is not None
    assert "field 'r' is required, but null or missing" in failure.message
    taken = chain("ExtractField", "Value", field="o")
    assert line(archived({**keys, **taken}, value=envelope(DEFAULTS, {"o": None}))) == '"x"'
    assert line(archived({**kept, **taken}, value=envelope(DEFAULTS, {"o": None, "r": 1}))) is NULL


def only_file(made: Bench) -> bytes:
    (name,) = (name for name in made.visible() if "_sinksdk" not in name)
    return made.s3.data(name)


ITEM = ["null", {"type": "int", "connect.default": 5}]


@pytest.mark.parametrize(
    ("kind", "value", "filled"),
    [
        ({"type": "array", "items": ITEM}, [None, 1], [5, 1]),
        ({"type": "map", "values": ITEM}, {"k": None}, {"k": 5}),
        ({"type": "array", "items": {"type": "map", "values": ITEM}}, [{"k": None}, {}], [{"k": 5}, {}]),
        (["null", {"type": "array", "items": ITEM}], [None], [5]),
    ],
    ids=["array", "map", "nested", "optional"],
)
def test_nulls_in_arrays_and_maps_get_their_default_only_in_json_lines(
    registry: RegistryServer, kind: Any, value: Any, filled: Any
) -> None:
    # Connect's JsonConverter writes the default of the items' type; AvroData keeps null.
    record = {"type": "record", "name": "D", "fields": [{"name": "d", "type": kind}]}
    data = framed(registry, record, {"d": value})
    keys = converters("value", registry)["avro"]
    assert json.loads(line(archived(keys, value=data)) or "") == {"d": filled}
    kept = {**keys, "value.converter.ignore.default.for.nullables": "true"}
    assert json.loads(line(archived(kept, value=data)) or "") == {"d": value}
    in_avro = archived({**keys, "format.class": "AvroFormat"}, value=data)
    assert list(fastavro.reader(io.BytesIO(only_file(in_avro)))) == [{"d": value}]
    in_parquet = archived({**keys, "format.class": "ParquetFormat"}, value=data)
    (row,) = pq.read_table(io.BytesIO(only_file(in_parquet))).to_pylist(maps_as_pydicts="strict")
    assert row == {"d": value}


def test_a_top_level_array_keeps_its_nulls(registry: RegistryServer) -> None:
    data = framed(registry, {"type": "array", "items": ITEM}, [None, 1])
    assert line(archived(converters("value", registry)["avro"], value=data)) == "[null,1]"


def test_value_converter_schema_accepts_connects_schema_json(registry: RegistryServer) -> None:
    # See KIP-1054.
    keys = converters("value", registry)["envelope"]
    given = {**keys, "value.converter.schema.content": json.dumps(DEFAULTS)}
    assert line(archived(given, value=b'{"r":1}')) == '{"o":"x","r":1}'
    problems = type(config(keys)).check(
        {**config_of(keys), "value.converter.schema.content": '{"type":"int32"}'}
    )[1]
    assert [problem for problem in problems if "it must be a struct" in problem]


def config_of(keys: Mapping[str, str]) -> dict[str, str]:
    return {
        "name": "a",
        "topics": "t",
        "s3.bucket.name": "bucket",
        "flush.size": "1",
        "format.class": JSON_FORMAT,
        **keys,
    }


def test_values_of_recursive_avro_schemas_become_json(registry: RegistryServer) -> None:
    moment = {"type": "long", "logicalType": "timestamp-millis"}
    cost = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    node = {
        "type": "record",
        "name": "N",
        "namespace": "a.b",
        "fields": [
            {"name": "v", "type": "int"},
            {"name": "at", "type": moment},
            {"name": "raw", "type": "bytes"},
            {"name": "u", "type": ["null", "int", "string", "N"]},
            {"name": "next", "type": ["null", "N"]},
            {"name": "all", "type": {"type": "map", "values": "N"}},
            {"name": "cost", "type": cost},
        ],
    }
    from decimal import Decimal  # noqa: PLC0415 - one test needs it

    leaf = {"v": 2, "at": 6, "raw": b"\xff", "u": None, "next": None, "all": {}, "cost": Decimal("0.01")}
    value = {**leaf, "v": 1, "u": "17", "next": leaf, "all": {"k": leaf}}
    line_of_leaf = {**leaf, "raw": "/w==", "cost": "AQ=="}
    expected = {**line_of_leaf, "v": 1, "next": line_of_leaf, "all": {"k": line_of_leaf}}
    expected["u"] = {"int": None, "string": "17", "N": None}
    keys = converters("value", registry)["avro"]
    data = framed(registry, node, value)
    assert json.loads(line(archived(keys, value=data)) or "") == expected
    hoisted = archived({**keys, **chain("HoistField", "Value", field="f")}, value=data)
    assert json.loads(line(hoisted) or "") == {"f": expected}
    failure = archived({**keys, "format.class": "ParquetFormat"}, value=data).harness.outcome(TP).failure
    assert failure is not None
    assert "its Avro schema contains itself" in failure.message
    assert "set 'format.class' to AvroFormat or JsonFormat" in failure.message
