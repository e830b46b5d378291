from __future__ import annotations

import gzip
import io
import json
import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sinksdk import RetriableException, SinkRecord, SinkRecords
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.s3.client import Location
from sinksdk.connectors.s3_archiver.verify.check import Report, verify
from tests.engine.sinks import Letters
from tests.helpers.registry_server import RegistryServer
from tests.s3_archiver.support import MINIMAL, TP, Bench, bench, config, read

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}
JSON = {"format.class": "io.confluent.connect.s3.format.json.JsonFormat"}

DECLARED = {"value.converter": "json", "value.converter.schema": "n BIGINT, s STRING"}


def deliver(made: Bench, *values: bytes | None) -> None:
    first = made.harness.position(TP)
    given = [
        SinkRecord(*TP, offset=first + number, key=b"k", value=value) for number, value in enumerate(values)
    ]
    made.harness.deliver(TP, SinkRecords.of(TP, given))


def framed(schema_id: int, number: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), {"n": number})
    return struct.pack(">bI", 0, schema_id) + out.getvalue()


def test_json_lines_are_archived() -> None:
    made = bench(settings=config({**JSON, "flush.size": "2"}))
    deliver(made, b'{"n": 1}', b'{"n":\n2}', b"3")
    made.harness.revoke()
    folder = "topics/orders/partition=0/orders+0+"
    assert made.visible() == [f"{folder}0000000000.json", f"{folder}0000000002.json"]
    assert b"".join(made.s3.data(key) for key in made.visible()) == b'{"n": 1}\n{"n":2}\n3\n'
    assert made.committed() == 3


def test_gzip_of_json_lines() -> None:
    made = bench(settings=config({**JSON, "s3.compression.type": "gzip"}))
    deliver(made, b"[1]", b"[2]")
    made.harness.revoke()
    (key,) = made.visible()
    assert key.endswith(".json.gz")
    assert gzip.decompress(made.s3.data(key)) == b"[1]\n[2]\n"


def test_ignored_null_values_are_left_out() -> None:
    made = bench(settings=config({**JSON, "behavior.on.null.values": "ignore"}))
    deliver(made, b"[1]", None, b"[2]", None)
    made.harness.revoke()
    assert made.s3.data(made.visible()[0]) == b"[1]\n[2]\n"
    assert made.committed() == 4


def test_bytes_are_archived() -> None:
    keys = {"format.class": "ByteArrayFormat", "format.bytearray.extension": ".log"}
    made = bench(settings=config({**keys, "format.bytearray.separator": ";"}))
    deliver(made, b"a", b"\xff")
    made.harness.revoke()
    (key,) = made.visible()
    assert (key.rpartition("+")[2], made.s3.data(key)) == ("0000000000.log", b"a;\xff;")


BYTES = {"format.class": "ByteArrayFormat"}
PARQUET = {"format.class": "io.confluent.connect.s3.format.parquet.ParquetFormat"}
TYPED = {**PARQUET, **DECLARED}


def archived(keys: Mapping[str, str], *offsets: int) -> tuple[Bench, S3ArchiverConfig]:
    settings = config({**keys, "flush.size": "2"})
    made = bench(settings=settings)
    given = SinkRecords.of(TP, [SinkRecord(*TP, offset=n, value=b'{"n": %d}' % n) for n in offsets])
    made.harness.deliver(TP, given)
    made.harness.revoke()
    return made, settings


def verified(made: Bench, settings: S3ArchiverConfig) -> Report:
    return verify(settings, made.s3, lambda: made.harness.committed)


every_format = pytest.mark.parametrize(
    "keys",
    [
        JSON,
        {**JSON, "s3.compression.type": "gzip"},
        BYTES,
        {**BYTES, "format.bytearray.extension": ".log", "s3.compression.type": "gzip"},
        {**BYTES, "format.bytearray.separator": "--"},
        {**BYTES, "format.bytearray.separator": ""},
        TYPED,
        {**TYPED, "parquet.codec": "zstd"},
        {**PARQUET, "archive.content": "record"},
    ],
    ids=str,
)


@every_format
def test_files_of_values_are_verified(keys: dict[str, str]) -> None:
    made, settings = archived(keys, *range(7))
    (found,) = verified(made, settings).partitions
    assert (found.files, found.records, found.first, found.last) == (4, 7, 0, 6)
    assert (found.gaps, found.overlaps, found.problems) == (0, 0, [])
    del made.s3.objects[Location("bucket", made.visible()[1])]
    assert len(verified(made, settings).problems) == 1


@every_format
def test_gaps_of_the_topic_are_counted_between_values(keys: dict[str, str]) -> None:
    (found,) = verified(*archived(keys, 5, 6, 9, 20, 22)).partitions
    assert (found.first, found.last, found.gaps, found.problems) == (5, 22, 2 + 10 + 1, [])


@every_format
@pytest.mark.parametrize("index", [1, 3], ids=["in between", "at the end"])
def test_a_damaged_file_of_values_is_found(keys: dict[str, str], index: int) -> None:
    # In one of the cases, S3 stores no checksum.
    made, settings = archived(keys, *range(8))
    shorter, _ = archived(keys, 2 * index)
    location = Location("bucket", made.visible()[index])
    copy = replace(made.s3.objects[location], data=shorter.s3.data(shorter.visible()[0]), crc32=None)
    made.s3.objects[location] = copy
    is_countable = keys.get("format.bytearray.separator") != ""
    assert bool(verified(made, settings).problems) == is_countable


def test_values_that_contain_the_separator_are_counted_by_the_commit() -> None:
    # The file does not show how many values it has, but the commit does.
    made = bench(settings=config(BYTES))
    deliver(made, b"a\nb", b"c")
    made.harness.revoke()
    (found,) = verified(made, config(BYTES)).partitions
    assert (found.records, found.gaps, found.problems) == (2, 0, [])


def test_ignored_null_values_are_gaps() -> None:
    keys = {**JSON, "behavior.on.null.values": "ignore"}
    made = bench(settings=config(keys))
    deliver(made, b"1", None, b"2")
    made.harness.revoke()
    (found,) = verified(made, config(keys)).partitions
    assert (found.records, found.last, found.gaps, found.problems) == (2, 2, 1, [])


def test_damaged_gzip_is_found_without_a_checksum() -> None:
    for keys in (JSON, BYTES):
        made, settings = archived({**keys, "s3.compression.type": "gzip"}, *range(4))
        location = Location("bucket", made.visible()[0])
        made.s3.objects[location] = replace(
            made.s3.objects[location], data=made.s3.data(location.key)[:-5], crc32=None
        )
        assert any("its gzip data are truncated" in problem for problem in verified(made, settings).problems)


def test_a_duplicate_offset_in_parquet_is_found() -> None:
    keys = {**PARQUET, "archive.content": "record"}
    made, settings = archived(keys, 0, 1)
    (key,) = made.visible()
    table = pq.read_table(io.BytesIO(made.s3.data(key)))
    metadata = pq.read_metadata(io.BytesIO(made.s3.data(key))).metadata
    table = table.set_column(2, "offset", pa.array([1, 1], pa.int64())).replace_schema_metadata(
        {name: text for name, text in metadata.items() if name.startswith(b"sinksdk.")}
    )
    out = io.BytesIO()
    pq.write_table(table, out)
    location = Location("bucket", key)
    made.s3.objects[location] = replace(made.s3.objects[location], data=out.getvalue(), crc32=None)
    (problem, *_) = verified(made, settings).problems
    assert "it holds offset 1 twice" in problem


def avro(registry: str) -> dict[str, Any]:
    return {
        "format.class": "AvroFormat",
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": registry,
    }


def test_framed_avro_values_are_copied() -> None:
    with RegistryServer().running() as server:
        first = server.register("orders-value", json.dumps(SCHEMA))
        second = server.register("orders-value", json.dumps({**SCHEMA, "doc": "another"}))
        made = bench(settings=config(avro(server.url)))
        deliver(made, *(framed((first, second)[n % 2], n) for n in range(10)))
        made.harness.revoke()
    files = [key for key in made.visible() if key.endswith(".avro")]
    assert [[row["n"] for row in fastavro.reader(io.BytesIO(made.s3.data(key)))] for key in files] == [
        [0, 2, 4, 6, 8],
        [1, 3, 5, 7, 9],
    ]
    schemas = [key for key in made.visible() if key.endswith(".avsc")]
    assert schemas == [f"topics/_sinksdk/schemas/{number}.avsc" for number in (first, second)]
    assert len(server.requests) == 2
    report = verify(config(avro(server.url)), made.s3, lambda: made.harness.committed)
    assert (report.partitions[0].records, report.problems) == (10, [])


def test_no_record_is_accepted_while_the_registry_is_unavailable() -> None:
    with RegistryServer().running() as server:
        schema_id = server.register("orders-value", json.dumps(SCHEMA))
        made = bench(settings=config(avro(server.url)))
        server.failing = 503
        task: Any = made.harness.task
        given = SinkRecords.of(TP, [SinkRecord(*TP, offset=n, value=framed(schema_id, n)) for n in range(3)])
        with pytest.raises(RetriableException, match="cannot return schema"):
            task.put(given)
        server.failing = None
        made.harness.deliver(TP, given)
        made.harness.revoke()
    (key,) = [key for key in made.visible() if key.endswith(".avro")]
    assert [row["n"] for row in fastavro.reader(io.BytesIO(made.s3.data(key)))] == [0, 1, 2]


@pytest.mark.parametrize(
    ("keys", "takes_bytes", "kind"),
    [
        ({}, True, "bytes"),
        ({"value.converter": "json"}, True, "bytes"),
        ({**JSON}, False, "json"),
        ({**JSON, "value.converter": "json", "value.converter.schemas.enable": "true"}, False, "json"),
        ({**JSON, "value.converter": "string"}, False, "string"),
        ({**JSON, "value.converter": "bytes"}, False, "bytes"),
        ({**JSON, **avro("http://r:1"), **JSON}, False, "avro"),
        ({**JSON, "value.converter": "long"}, False, "long"),
        ({**JSON, "value.converter": "json", "value.converter.schema": "a INT"}, False, "json"),
        (
            {**JSON, "value.converter": "string", "value.converter.converter.encoding": "latin-1"},
            False,
            "string",
        ),
        (avro("http://r:1"), True, "bytes"),
        ({"format.class": "AvroFormat", "value.converter": "json"}, False, "json"),
        ({"format.class": "AvroFormat"}, False, "bytes"),
        ({"format.class": "ByteArrayFormat"}, True, "bytes"),
        ({**JSON, "archive.content": "value"}, False, "json"),
        (
            {"format.class": "AvroFormat", "archive.content": "record", "value.converter": "json"},
            True,
            "bytes",
        ),
    ],
    ids=str,
)
def test_the_engine_or_the_format_converts_values(
    keys: dict[str, str], *, takes_bytes: bool, kind: str
) -> None:
    settings = config(keys)
    assert (settings.takes_bytes, settings.converter_spec(is_key=False).kind) == (takes_bytes, kind)


def test_transforms_receive_converted_values() -> None:
    chain = {
        "transforms": "a",
        "transforms.a.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "transforms.a.exclude": "x",
    }
    for keys, kind, takes_bytes in (
        ({**JSON, "value.converter": "json"}, "json", False),
        (avro("http://r:1"), "avro", False),
    ):
        settings = config({**keys, **chain})
        assert settings.converter_spec(is_key=False).kind == kind
        assert settings.takes_bytes is takes_bytes


def test_typed_values_become_avro() -> None:
    keys = {"format.class": "AvroFormat", **DECLARED, "errors.tolerance": "all"}
    made = bench(settings=config(keys))
    deliver(made, b'{"n":1,"s":"a"}', b"no JSON", b'{"n":2}')
    made.harness.revoke()
    (key,) = made.visible()
    assert list(fastavro.reader(io.BytesIO(made.s3.data(key)))) == [{"n": 1, "s": "a"}, {"n": 2, "s": None}]
    assert made.committed() == 3


def test_typed_values_become_json() -> None:
    made = bench(settings=config({**JSON, **DECLARED}))
    deliver(made, b'{"s":"a","n":1,"more":0}')
    made.harness.revoke()
    assert made.s3.data(made.visible()[0]) == b'{"n":1,"s":"a"}\n'


def test_bad_records_fail_their_partition_or_are_skipped(caplog: pytest.LogCaptureFixture) -> None:
    made = bench(settings=config({**JSON, "errors.tolerance": "all"}))
    deliver(made, b"[1]", b"\xff", b"{", b"[2]")
    made.harness.revoke()
    assert (made.s3.data(made.visible()[0]), made.committed()) == (b"[1]\n[2]\n", 4)
    failing = bench(settings=config(JSON))
    deliver(failing, b"[1]", b"\xff")
    assert "orders-0 at offset 1 failed in VALUE_CONVERTER" in caplog.text
    assert "the bytes are not JSON: it is not UTF-8 (invalid start byte at byte 0)" in caplog.text
    failing.harness.revoke()
    assert failing.visible() == []


def problems(**keys: str) -> list[str]:
    return S3ArchiverConfig.check(
        {**MINIMAL, **{key.replace("_", "."): value for key, value in keys.items()}}
    )[1]


@pytest.mark.parametrize(
    ("keys", "expected_text"),
    [
        ({"format_class": "OrcFormat"}, "use AvroFormat, JsonFormat"),
        (
            {"format_class": "JsonFormat", "archive_content": "record"},
            "JsonFormat cannot hold whole records",
        ),
        ({"format_class": "JsonFormat", "s3_compression_level": "10"}, "gzip has 0 to 9"),
        ({"format_class": "JsonFormat", "value_converter": "com.example.Mine"}, "'value.converter'"),
        (
            {"format_class": "AvroFormat", "value_converter": "avro"},
            "'value.converter.schema.registry.url' is required",
        ),
        (
            {"format_class": "ByteArrayFormat", "value_converter": "json"},
            "ByteArrayFormat writes unconverted bytes",
        ),
        ({"format_class": "JsonFormat", "behavior_on_null_values": "write"}, "needs 'store.kafka.keys'"),
    ],
)
def test_unsupported_formats_and_converters_are_refused(keys: dict[str, str], expected_text: str) -> None:
    found = [problem for problem in problems(**keys) if expected_text in problem]
    assert len(found) == 1


def test_typed_values_become_parquet() -> None:
    made = bench(settings=config({**PARQUET, **DECLARED, "parquet.codec": "ZSTD", "errors.tolerance": "all"}))
    deliver(made, b'{"n":1,"s":"a"}', b"no JSON", b'{"n":2}')
    made.harness.revoke()
    (key,) = made.visible()
    assert key.endswith("+0000000000.zstd.parquet")
    assert pq.read_table(io.BytesIO(made.s3.data(key))).to_pylist() == [
        {"n": 1, "s": "a"},
        {"n": 2, "s": None},
    ]
    assert made.committed() == 3


def test_whole_records_become_parquet() -> None:
    made = bench(
        settings=config({**PARQUET, "archive.content": "record", "value.converter": "com.example.X"})
    )
    deliver(made, b"\xff", None)
    made.harness.revoke()
    (key,) = made.visible()
    rows = pq.read_table(io.BytesIO(made.s3.data(key))).to_pylist()
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
        (0, b"k", b"\xff"),
        (1, b"k", None),
    ]


def test_untyped_values_fail_a_partition_of_parquet(caplog: pytest.LogCaptureFixture) -> None:
    # The configuration is wrong, not the records: none becomes a dead letter.
    made = bench(settings=config({**PARQUET, "errors.tolerance": "all"}))
    deliver(made, b"{}")
    assert "set 'value.converter' to Avro's" in caplog.text
    made.harness.revoke()
    assert (made.visible(), made.committed()) == ([], None)


def test_json_lines_are_archived_by_field_and_hour() -> None:
    keys = {
        **JSON,
        "partitioner.class": "FieldAndTimeBasedPartitioner",
        "partition.field.name": "c",
        "path.format": "'hour'=HH",
        "partition.duration.ms": "3600000",
        "timestamp.extractor": "RecordField",
        "timestamp.field": "at",
    }
    made = bench(settings=config(keys))
    deliver(made, b'{"c":"UA","at":0}', b'{"c":"AA","at":"1970-01-01T01:30:00Z"}', b'{"c":"UA","at":5}')
    made.harness.revoke()
    assert {key: made.s3.data(key) for key in made.visible()} == {
        "topics/orders/c=UA/hour=00/orders+0+0000000000.json": b'{"c":"UA","at":0}\n{"c":"UA","at":5}\n',
        "topics/orders/c=AA/hour=01/orders+0+0000000001.json": b'{"c":"AA","at":"1970-01-01T01:30:00Z"}\n',
    }


def test_record_time_ends_files_without_flush_size() -> None:
    keys = {
        **JSON,
        "flush.size": None,
        "partitioner.class": "HourlyPartitioner",
        "timestamp.extractor": "RecordField",
        "timestamp.field": "at",
        "rotate.interval.ms": "1000",
    }
    made = bench(settings=config(keys))
    deliver(made, b'{"at":0}', b'{"at":999}', b'{"at":1000}', b'{"at":1}')
    made.harness.revoke()
    folder = "topics/orders/year=1970/month=01/day=01/hour=00/orders+0+"
    assert made.visible() == [f"{folder}0000000000.json", f"{folder}0000000002.json"]


@pytest.mark.parametrize(
    ("converter", "transform", "value", "row"),
    [
        ("long", {"type": "Cast$Value", "spec": "string"}, bytes(8), "0"),
        ("bytes", {"type": "HoistField$Value", "field": "raw"}, b"\xff", {"raw": b"\xff"}),
    ],
)
def test_texts_and_bytes_from_transforms_are_typed(
    converter: str, transform: dict[str, str], value: bytes, row: object
) -> None:
    keys = {"format.class": "AvroFormat", "value.converter": converter, "transforms": "t"}
    keys |= {f"transforms.t.{name}": text for name, text in transform.items()}
    made = bench(settings=config(keys))
    made.harness.deliver(TP, SinkRecords.of(TP, [SinkRecord(*TP, offset=0, value=value)]))
    made.harness.revoke()
    (name,) = made.visible()
    assert read(made.s3.data(name)) == [row]


def test_a_value_without_fields_is_a_bad_record_for_parquet() -> None:
    keys = {
        "format.class": "ParquetFormat",
        "value.converter": "json",
        "value.converter.schemas.enable": "true",
        "errors.tolerance": "all",
        "transforms": "t",
        "transforms.t.type": "ExtractField$Value",
        "transforms.t.field": "a",
    }
    letters = Letters()
    text = b'{"schema":{"type":"struct","fields":[{"field":"a","type":"string"}]},"payload":{"a":"x"}}'
    made = bench(settings=config(keys), dead_letters=letters)
    made.harness.deliver(TP, SinkRecords.of(TP, [SinkRecord(*TP, offset=0, value=text)]))
    made.harness.revoke()
    assert made.committed() == 1
    assert [letter.offset for letter in letters.records] == [0]
