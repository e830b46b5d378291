from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from sinksdk import ConfigException, DataException, RetriableException
from sinksdk.config.converters import RegistryAddress
from sinksdk.connectors.s3_archiver.archive.layout import Layout
from sinksdk.connectors.s3_archiver.files.file import SchemaFiles
from sinksdk.connectors.s3_archiver.formats.avro_value import AvroValues, schema_ids
from sinksdk.connectors.s3_archiver.formats.codecs import CODEC_NAMES
from sinksdk.connectors.s3_archiver.s3.client import Location
from sinksdk.topics.kafka.schema_registry import connect
from tests.helpers.registry_server import RegistryServer
from tests.s3_archiver.fake_s3 import FakeS3
from tests.s3_archiver.format_support import FIRST, ORDERS, batch, encode, file_of, reasons

FLIGHT: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "namespace": "air",
    "doc": "one of them",
    "fields": [
        {"name": "number", "type": "long", "doc": "of the carrier", "default": 0},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "aliases": ["when"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["LATE", "GONE"]}},
        {"name": "before", "type": ["null", "State"], "default": None},
    ],
}
PLANE = {"type": "record", "name": "Plane", "fields": [{"name": "tail", "type": "string"}]}
SCHEMAS: dict[int, Any] = {7: FLIGHT, 2**31 + 5: PLANE, 9: "string", 10: ["null", PLANE, "long"]}


class Registry:
    def __init__(self, schemas: Mapping[int, Any]) -> None:
        self.schemas = schemas
        self.requested: list[int] = []
        self.is_unavailable = False

    def __call__(self, schema_id: int) -> Any:
        self.requested.append(schema_id)
        if self.is_unavailable:
            message = "the schema registry http://registry does not answer"
            raise RetriableException(message)
        if schema_id not in self.schemas:
            raise DataException(f"the schema registry http://registry has no schema {schema_id}")
        return self.schemas[schema_id]


def framed(schema_id: int, value: Any, schema: Any = None) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema or SCHEMAS[schema_id]), value)
    return struct.pack(">bI", 0, schema_id) + out.getvalue()


def flight(number: int) -> dict[str, Any]:
    return {"number": number, "at": 1_700_000_000_000 + number, "state": "LATE", "before": None}


def files(format_: AvroValues, given: pa.RecordBatch) -> dict[object, bytes]:
    kinds = format_.kinds(ORDERS, given)
    order = np.argsort(kinds.codes, kind="stable")
    order = order[kinds.codes[order] >= 0]
    encoded = encode(format_, given.take(pa.array(order)))
    assert not encoded.bad
    borders = np.searchsorted(kinds.codes[order], np.arange(len(kinds.kinds) + 1))
    return {
        kind: file_of(format_, [encoded.rows.slice(int(begin), int(end))], kind)
        for kind, begin, end in zip(kinds.kinds, borders[:-1], borders[1:], strict=True)
    }


def read(data: bytes) -> list[Any]:
    return list(fastavro.reader(io.BytesIO(data)))


@pytest.mark.parametrize("codec_name", CODEC_NAMES)
def test_framed_values_round_trip_through_files(codec_name: str) -> None:
    values = [framed(7, flight(n)) if n % 3 else framed(2**31 + 5, {"tail": f"N{n}"}) for n in range(300)]
    made = files(AvroValues(Registry(SCHEMAS), codec_name), batch(values))
    assert list(made) == [2**31 + 5, 7]
    assert read(made[2**31 + 5]) == [{"tail": f"N{n}"} for n in range(0, 300, 3)]
    assert [row["number"] for row in read(made[7])] == [n for n in range(300) if n % 3]


@pytest.mark.parametrize(("schema_id", "values"), [(9, ["a", ""]), (10, [None, {"tail": "x"}, 5])])
def test_values_of_schemas_other_than_records_are_archived(schema_id: int, values: list[Any]) -> None:
    made = files(AvroValues(Registry(SCHEMAS)), batch([framed(schema_id, value) for value in values]))
    assert read(made[schema_id]) == values


def test_files_have_the_producers_schema() -> None:
    made = files(AvroValues(Registry(SCHEMAS)), batch([framed(7, flight(1))]))[7]
    metadata = fastavro.reader(io.BytesIO(made)).metadata
    schema = json.loads(metadata["avro.schema"])
    assert schema == FLIGHT
    assert metadata["sinksdk.start_offset"] == str(FIRST)


def test_schema_references_are_resolved_into_the_files_schema() -> None:
    with RegistryServer().running() as server:
        server.register("plane-value", json.dumps(PLANE))
        whole = {"type": "record", "name": "Trip", "fields": [{"name": "plane", "type": "Plane"}]}
        reference = {"name": "Plane", "subject": "plane-value", "version": 1}
        schema_id = server.register("trip-value", json.dumps(whole), [reference])
        resolved = {"type": "record", "name": "Trip", "fields": [{"name": "plane", "type": PLANE}]}
        value = framed(schema_id, {"plane": {"tail": "N1"}}, resolved)
        made = files(AvroValues(connect(RegistryAddress(server.url))), batch([value]))
    assert read(made[schema_id]) == [{"plane": {"tail": "N1"}}]


def test_each_schema_is_requested_once() -> None:
    registry = Registry(SCHEMAS)
    format_ = AvroValues(registry)
    for _ in range(3):
        files(format_, batch([framed(7, flight(1)), framed(9, "a"), framed(7, flight(2))]))
    assert registry.requested == [7, 9]


# -- bad records -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [b"", b"\0", b"\0\0\0\0", b"\x01\0\0\0\x07x", b'{"a":1}', b"\xff" * 100_000]
)
def test_values_without_framing_are_bad_records(value: bytes) -> None:
    given = batch([framed(7, flight(1)), value, framed(7, flight(2))])
    kinds = AvroValues(Registry(SCHEMAS)).kinds(ORDERS, given)
    assert kinds.codes.tolist() == [0, -1, 0]
    message = str(kinds.bad[1])
    assert message.startswith(
        f"orders-3: the record at offset {FIRST + 1} cannot be archived: its value does not begin"
    )
    assert "ByteArrayFormat" in message
    encoded = encode(AvroValues(Registry(SCHEMAS)), given)
    assert (list(encoded.bad), len(encoded.rows)) == ([1], 2)
    assert reasons(encoded)[1] == message


@pytest.mark.parametrize("schema_id", [0, 8, 2**32 - 1])
def test_values_with_unknown_schema_ids_are_bad_records(schema_id: int) -> None:
    registry = Registry(SCHEMAS)
    value = struct.pack(">bI", 0, schema_id) + b"datum"
    kinds = AvroValues(registry).kinds(ORDERS, batch([value, framed(7, flight(1)), value]))
    assert (kinds.kinds, kinds.codes.tolist(), registry.requested) == ([7], [-1, 0, -1], [schema_id, 7])
    for row in (0, 2):
        message = str(kinds.bad[row])
        assert f"offset {FIRST + row} " in message
        assert f"has no schema {schema_id}; correct the producer" in message


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "record", "name": "my-record", "fields": []},
        {"type": "record", "name": "R", "fields": [{"name": "my-record", "type": "int"}]},
        {"type": "array", "items": {"type": "map", "values": {"type": "fixed", "name": "1f", "size": 1}}},
        [
            "null",
            {
                "type": "record",
                "name": "R",
                "fields": [{"name": "a", "type": {"type": "record", "name": "a$", "fields": []}}],
            },
        ],
    ],
    ids=["record", "field", "fixed", "nested"],
)
def test_schemas_with_illegal_avro_names_make_bad_records(schema: Any) -> None:
    # Java refuses such schemas, and so does Confluent's converter.
    value = struct.pack(">bI", 0, 3) + b"datum"
    kinds = AvroValues(Registry({3: schema})).kinds(ORDERS, batch([value]))
    assert kinds.codes.tolist() == [-1]
    assert "it contains the name '" in str(kinds.bad[0])
    assert "not legal in Avro" in str(kinds.bad[0])


def test_null_values_are_bad_records_or_left_out() -> None:
    given = batch([None, framed(7, flight(1))])
    failing, ignoring = AvroValues(Registry(SCHEMAS)), AvroValues(Registry(SCHEMAS), nulls="ignore")
    assert "'behavior.on.null.values' is fail" in str(failing.kinds(ORDERS, given).bad[0])
    assert ignoring.kinds(ORDERS, given).bad == encode(ignoring, given).bad == {0: None}
    for format_ in (failing, ignoring):
        assert format_.kinds(ORDERS, given).codes.tolist() == [-1, 0]
        assert format_.kinds(ORDERS, batch([None, None])).kinds == []


def test_no_record_is_bad_while_the_registry_is_unavailable() -> None:
    # The engine calls put again with the same batch.
    registry = Registry(SCHEMAS)
    format_ = AvroValues(registry)
    given = batch([framed(7, flight(1)), framed(9, "a")])
    registry.is_unavailable = True
    with pytest.raises(RetriableException, match="does not answer"):
        format_.learn(given)
    registry.is_unavailable = False
    format_.learn(given)
    assert len(files(format_, given)) == 2


def test_a_learned_batch_causes_no_further_registry_requests() -> None:
    registry = Registry(SCHEMAS)
    format_ = AvroValues(registry)
    given = batch([framed(7, flight(1)), struct.pack(">bI", 0, 8) + b"datum", b"garbage", None])
    format_.learn(given)
    registry.is_unavailable = True
    assert format_.kinds(ORDERS, given).codes.tolist() == [0, -1, -1, -1]
    assert registry.requested == [7, 8]


def test_framed_values_without_a_registry_are_refused() -> None:
    with pytest.raises(ConfigException, match=r"'value.converter.schema.registry.url'"):
        AvroValues(None).learn(batch([framed(7, flight(1))]))


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_schema_ids_are_read_from_every_binary_column_type(kind: pa.DataType) -> None:
    values = [
        b"x",
        struct.pack(">bI", 0, 2**32 - 1),
        None,
        b"\0\0\0\0",
        b"",
        struct.pack(">bI", 1, 5),
        b"\0\0\0\1\0x",
    ]
    column = pa.array(values, pa.binary()).cast(kind).slice(1)
    assert schema_ids(column).tolist() == [2**32 - 1, -2, -1, -1, -1, 256]
    assert schema_ids(pa.nulls(2, kind)).tolist() == [-2, -2]
    assert schema_ids(pa.array([b""], kind)).tolist() == [-1]


# -- schemas beside the data -------------------------------------------------------------------------------

BUCKET = "bucket"
LAYOUT = Layout("topics")


def kept(s3: FakeS3, schema_id: int) -> Any:
    with s3.read(Location(BUCKET, f"topics/_sinksdk/schemas/{schema_id}.avsc")) as content:
        return json.loads(content.read())


@pytest.mark.parametrize("knows_conditions", [True, False])
def test_schemas_are_stored_before_a_file_needs_them(*, knows_conditions: bool) -> None:
    s3 = FakeS3(BUCKET, knows_conditions=knows_conditions)
    for _ in range(2):  # the schema is shared by two tasks
        format_ = AvroValues(Registry(SCHEMAS), keep_schema=SchemaFiles(s3, BUCKET, LAYOUT))
        format_.learn(batch([framed(7, flight(1)), framed(9, "a")]))
    value = framed(7, flight(5))
    found = fastavro.schemaless_reader(io.BytesIO(value[5:]), fastavro.parse_schema(kept(s3, 7)), None)
    assert found["number"] == 5
    assert kept(s3, 9) == "string"
    assert len(s3.objects) == 2


def test_an_existing_schema_file_is_not_overwritten(caplog: pytest.LogCaptureFixture) -> None:
    # Two registries may give one id to different schemas.
    s3 = FakeS3(BUCKET)
    files_ = SchemaFiles(s3, BUCKET, LAYOUT)
    files_(7, b'{ "type": "string" }')
    files_(7, b'{"type": "string"}')
    assert not caplog.records
    files_(7, b'"long"')
    assert kept(s3, 7) == {"type": "string"}
    assert "used with two registries" in caplog.text


def test_a_schema_file_is_not_parsed_as_an_owner_marker() -> None:
    key = LAYOUT.schema(7)
    assert (LAYOUT.topic_of_marker(key), LAYOUT.parse(key)) == (None, None)
