from __future__ import annotations

import base64
import io
import json
import struct
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sinksdk import SinkRecord, SinkRecords
from sinksdk.connectors.s3_archiver.verify.check import verify
from sinksdk.engine import EngineOptions
from sinksdk.topics.kafka.schema_registry import connect
from sinksdk.values.avro_defaults import number_datum
from tests.helpers.registry_server import RegistryServer
from tests.s3_archiver.support import TP, Bench, bench, config
from tests.s3_archiver.test_bad_input import Letters

NUMBERS = (1234, 0, -1, -(10**12), 10**38 - 7, 10**40 + 1, -(10**76), 10**100 + 3)
CONNECT = {"connect.name": "org.apache.kafka.connect.data.Decimal", "connect.parameters": {"scale": "127"}}
AVRO: dict[str, tuple[dict[str, Any], int]] = {
    "valid": ({"logicalType": "decimal", "precision": 9, "scale": 2}, 2),
    "of 76 digits": ({"logicalType": "decimal", "precision": 76, "scale": 2}, 2),
    "of 77 digits": ({"logicalType": "decimal", "precision": 77, "scale": 2}, 2),
    "of 100 digits": ({"logicalType": "decimal", "precision": 100, "scale": 90}, 90),
    "of an Oracle NUMBER": ({"logicalType": "decimal", "precision": 64, "scale": 127, **CONNECT}, 127),
    "of more scale than precision": ({"logicalType": "decimal", "precision": 2, "scale": 5}, 5),
    "of a negative scale": ({"logicalType": "decimal", "precision": 9, "scale": -3}, -3),
    "in capitals": ({"logicalType": "Decimal", "precision": 6, "scale": 2}, 2),
    "without a precision": ({"logicalType": "decimal", "scale": 2}, 2),
    "without a scale": ({"logicalType": "decimal", "precision": 9}, 0),
}


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    server = RegistryServer()
    with server.running():
        yield server


def bytes_of(number: int) -> bytes:
    # The bytes are those of Java's BigInteger: two's complement, big-endian, as short as possible.
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def packed(number: int) -> str:
    return base64.b64encode(bytes_of(number)).decode()


def scaled(number: int, scale: int) -> Decimal:
    return Decimal(f"{number}E{-scale}")


def record(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "d", "type": kind}]}


def avro(registry: RegistryServer, schema: Any, *data: bytes) -> tuple[dict[str, str], list[bytes]]:
    number = registry.register("s", json.dumps(schema))
    keys = {"value.converter": "avro", "value.converter.schema.registry.url": registry.url}
    return keys, [struct.pack(">bI", 0, number) + datum for datum in data]


def datum(number: int) -> bytes:
    data = bytes_of(number)
    return number_datum(len(data)) + data


def envelopes(scale: int, *payloads: Any) -> tuple[dict[str, str], list[bytes]]:
    kind = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "version": 1}
    field = {"field": "d", **kind, "parameters": {"scale": str(scale)}}
    schema = {"type": "struct", "fields": [field]}
    keys = {"value.converter": "json", "value.converter.schemas.enable": "true"}
    return keys, [
        f'{{"schema":{json.dumps(schema)},"payload":{{"d":{payload}}}}}'.encode() for payload in payloads
    ]


def archived(keys: Mapping[str, str], values: list[bytes], letters: Letters | None = None) -> Bench:
    tolerant = {"errors.tolerance": "all", "errors.log.enable": "true"} if letters else {}
    settings = config({"format.class": "JsonFormat", **tolerant, **keys})
    made = bench(settings=settings, options=EngineOptions.of(settings, connect), dead_letters=letters)
    records = [SinkRecord(*TP, offset=n, timestamp=5, value=value) for n, value in enumerate(values)]
    made.harness.deliver(TP, SinkRecords.of(TP, records))
    made.harness.revoke()
    failure = made.harness.outcome(TP).failure
    assert failure is None, failure.message
    return made


def files(made: Bench) -> list[bytes]:
    return [made.s3.data(key) for key in made.visible() if "_sinksdk" not in key]


def lines(made: Bench) -> list[Any]:
    text = b"".join(files(made)).decode()
    return [json.loads(line, parse_float=Decimal, parse_int=Decimal) for line in text.splitlines()]


@pytest.mark.parametrize("name", AVRO)
def test_avro_decimals_are_written_like_connects(name: str, registry: RegistryServer) -> None:
    more, scale = AVRO[name]
    keys, values = avro(registry, record({"type": "bytes", **more}), *map(datum, NUMBERS))
    assert lines(archived(keys, values)) == [{"d": packed(number)} for number in NUMBERS]
    numeric = {**keys, "json.decimal.format": "NUMERIC"}
    assert lines(archived(numeric, values)) == [{"d": scaled(number, scale)} for number in NUMBERS]


@pytest.mark.parametrize("name", AVRO)
def test_decimals_in_fixed_arrays_maps_and_unions_are_converted(name: str, registry: RegistryServer) -> None:
    more, scale = AVRO[name]
    one = {"type": "fixed", "name": "F", "size": 40, **more}
    kind = {"type": "array", "items": ["null", {"type": "map", "values": ["null", one]}]}
    number = 10**90 + 7
    data = b"\4\0\2" + b"\4" + b"\2a\2" + number.to_bytes(40, "big", signed=True) + b"\2b\0" + b"\0\0"
    keys, values = avro(registry, record(kind), data)
    expected = [{"d": [None, {"a": scaled(number, scale), "b": None}]}]
    assert lines(archived({**keys, "json.decimal.format": "NUMERIC"}, values)) == expected


@pytest.mark.parametrize("scale", [0, 2, 38, 39, 76, 77, 127, -2, -50])
def test_decimals_in_envelopes_may_have_any_precision_and_scale(scale: int) -> None:
    for payloads in ([f'"{packed(number)}"' for number in NUMBERS], [scaled(n, scale) for n in NUMBERS]):
        keys, values = envelopes(scale, *payloads)
        assert lines(archived(keys, values)) == [{"d": packed(number)} for number in NUMBERS]
        numeric = {**keys, "json.decimal.format": "NUMERIC"}
        assert lines(archived(numeric, values)) == [{"d": scaled(number, scale)} for number in NUMBERS]


@pytest.mark.parametrize("payload", ['"!"', "true", "0.001", "1e999999999", "1e-999999999", "1e5000"])
def test_a_payload_that_does_not_match_its_decimal_schema_is_a_bad_record(payload: str) -> None:
    # Writing one of these decimals would need all memory.
    letters = Letters()
    keys, values = envelopes(2, '"BNI="', payload, f'"{packed(10**90)}"')
    made = archived({**keys, "errors.deadletterqueue.topic.name": "letters"}, values, letters)
    assert [record.offset for record in letters.records] == [1]
    assert lines(made) == [{"d": "BNI="}, {"d": packed(10**90)}]


def test_parquet_holds_decimals_of_76_digits_and_refuses_larger_ones(
    registry: RegistryServer, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = (1234, 10**40, 10**75, 10**76, -(10**90))
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
    of_avro = avro(
        registry, record({"type": "array", "items": kind}), *(b"\2" + datum(n) + b"\0" for n in numbers)
    )
    for keys, values in (of_avro, envelopes(2, *(f'"{packed(number)}"' for number in numbers))):
        caplog.clear()
        letters = Letters()
        parquet = {"format.class": "ParquetFormat", "errors.deadletterqueue.topic.name": "letters"}
        made = archived({**keys, **parquet}, values, letters)
        tables = [pq.read_table(io.BytesIO(data)) for data in files(made)]
        rows = [row["d"] for table in tables for row in table.to_pylist()]
        found = [row[0] if isinstance(row, list) else row for row in rows]
        assert found == [scaled(number, 2) for number in numbers[:3]]
        assert [record.offset for record in letters.records] == [3, 4]
        message = "its field 'd' is a decimal of more than 76 digits, or of a scale outside of 0 to 76"
        assert [line.count(message) for line in caplog.messages] == [1, 1]
        assert "contains itself" not in caplog.text


@pytest.mark.parametrize("scale", [2, 127, -2, -50])
def test_avro_files_hold_decimals_of_any_precision(scale: int) -> None:
    keys, values = envelopes(scale, *(f'"{packed(number)}"' for number in NUMBERS))
    made = archived({**keys, "format.class": "AvroFormat"}, values)
    rows: list[Any] = [row for data in files(made) for row in fastavro.reader(io.BytesIO(data))]
    assert [row["d"] for row in rows] == [scaled(number, scale) for number in NUMBERS]


@pytest.mark.parametrize("format_class", ["AvroFormat", "ParquetFormat"])
def test_only_the_record_with_an_unsupported_scale_is_bad(format_class: str) -> None:
    (keys, [good]), (_, [odd]) = envelopes(2, '"BNI="'), envelopes(-5_000, '"BNI="')
    letters = Letters()
    more = {"format.class": format_class, "errors.deadletterqueue.topic.name": "letters"}
    made = archived({**keys, **more}, [good, odd, good], letters)
    assert [record.offset for record in letters.records] == [1]
    assert len(files(made)) >= 1


TRANSFORMS: dict[str, tuple[dict[str, str], Any]] = {
    "HoistField": ({"field": "h"}, lambda number: {"h": {"d": number}}),
    "InsertField": ({"static.field": "s", "static.value": "v"}, lambda number: {"d": number, "s": "v"}),
    "ReplaceField": ({"renames": "d:e"}, lambda number: {"e": number}),
    "Flatten": ({}, lambda number: {"d": number}),
    "MaskField": ({"fields": "d"}, lambda _: {"d": Decimal(0)}),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_accept_decimals_of_any_precision(name: str) -> None:
    more, expected = TRANSFORMS[name]
    keys, values = envelopes(127, f'"{packed(10**90)}"', f'"{packed(-3)}"')
    chain = {"transforms": "t", "transforms.t.type": f"org.apache.kafka.connect.transforms.{name}$Value"}
    chain |= {f"transforms.t.{key}": value for key, value in more.items()}
    made = archived({**keys, **chain, "json.decimal.format": "NUMERIC"}, values)
    assert lines(made) == [expected(scaled(10**90, 127)), expected(scaled(-3, 127))]


def test_tasks_receive_decimals_of_any_precision(registry: RegistryServer) -> None:
    from sinksdk.engine.converters import AvroConverter  # noqa: PLC0415 - one test needs it
    from sinksdk.values.avro_schema import as_schema  # noqa: PLC0415 - the same

    schema = as_schema(record({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 127}))
    converter = AvroConverter(lambda _: schema)
    value = bytes(5) + datum(10**90)
    assert converter("t", value) == {"d": scaled(10**90, 127)}
    (piece,) = converter.convert("t", pa.array([value])).pieces
    assert isinstance(piece.content, pa.Array)
    assert piece.content.to_pylist() == [{"d": scaled(10**90, 127)}]
    assert piece.content.type == pa.concat_arrays([piece.content, piece.content]).type


ONE = {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 127}
NESTED: dict[str, tuple[Any, Any]] = {
    "array": ({"type": "array", "items": ONE}, []),
    "map": ({"type": "map", "values": ONE}, {}),
    "array of records": ({"type": "array", "items": record(ONE)}, []),
}


def changed_by(name: str, **keys: str) -> dict[str, str]:
    kind = f"org.apache.kafka.connect.transforms.{name}$Value"
    return {"transforms": "t", "transforms.t.type": kind, **{f"transforms.t.{k}": v for k, v in keys.items()}}


@pytest.mark.parametrize("format_class", ["JsonFormat", "AvroFormat"])
@pytest.mark.parametrize("name", NESTED)
def test_lists_and_maps_of_wide_decimals_may_be_null_in_all_records(
    name: str, format_class: str, registry: RegistryServer
) -> None:
    # Arrow cannot create an empty array of an extension type inside another type.
    schema = {"type": "record", "name": "Outer", "fields": [{"name": "f", "type": ["null", NESTED[name][0]]}]}
    keys, values = avro(registry, schema, b"\0", b"\0")
    more = {"format.class": format_class, **changed_by("HoistField", field="h")}
    (data,) = files(archived({**keys, **more}, values))
    rows = (
        [json.loads(line) for line in data.splitlines()]
        if format_class == "JsonFormat"
        else list(fastavro.reader(io.BytesIO(data)))
    )
    assert rows == [{"h": {"f": None}}] * 2


@pytest.mark.parametrize("name", NESTED)
def test_mask_field_accepts_lists_and_maps_of_wide_decimals(name: str, registry: RegistryServer) -> None:
    kind, empty = NESTED[name]
    schema = {"type": "record", "name": "Outer", "fields": [{"name": "f", "type": ["null", kind]}]}
    one = (b"\2a" if name == "map" else b"") + datum(10**90)
    for data, expected in (
        ([b"\0", b"\2\2" + one + b"\0"], [{"f": None}, {"f": empty}]),
        ([b"\0"], [{"f": None}]),
    ):
        keys, values = avro(registry, schema, *data)
        assert lines(archived({**keys, **changed_by("MaskField", fields="f")}, values)) == expected


@pytest.mark.parametrize("scale", ["1e400", "-1e400", "3000000000", "-1e12", "99999999999999999999"])
def test_a_scale_beyond_32_bits_is_truncated_like_in_java(scale: str, registry: RegistryServer) -> None:
    # Java's Number.intValue gives the scale; Avro's library ignores integers of more than 64 bits.
    expected = {"1e400": 2**31 - 1, "3000000000": 3_000_000_000 - 2**32, "99999999999999999999": 0}
    text = json.dumps(record({**ONE, "scale": "?"})).replace('"?"', scale)
    number = registry.register("s", text)
    keys = {"value.converter": "avro", "value.converter.schema.registry.url": registry.url}
    made = archived({**keys, "json.decimal.format": "NUMERIC"}, [struct.pack(">bI", 0, number) + datum(1234)])
    assert lines(made) == [{"d": scaled(1234, expected.get(scale, -(2**31)))}]


@pytest.mark.parametrize(
    ("scale", "number"), [(0, 10**3_999), (2**31 - 1, 1), (-(2**31), 1)], ids=["digits", "small", "large"]
)
def test_verify_reads_lines_with_decimals_of_any_precision(scale: int, number: int) -> None:
    keys, values = envelopes(scale, f'"{packed(number)}"')
    made = archived({**keys, "json.decimal.format": "NUMERIC"}, values)
    assert verify(config(), made.s3, lambda: made.harness.committed).problems == []


def test_a_decimal_without_bytes_is_a_bad_record(registry: RegistryServer) -> None:
    # Java's BigInteger refuses empty bytes.
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    of_avro = avro(registry, record(kind), datum(1234), b"\0", datum(0))
    for keys, values in (of_avro, envelopes(2, '"BNI="', '""', '"AA=="')):
        letters = Letters()
        made = archived({**keys, "errors.deadletterqueue.topic.name": "letters"}, values, letters)
        assert [each.offset for each in letters.records] == [1]
        assert lines(made) == [{"d": "BNI="}, {"d": "AA=="}]
