"""Converters: from bytes to what a task sees, under Connect's names."""

from __future__ import annotations

import io
import struct

import fastavro
import pytest

from sinksdk import ConfigException, ConnectorConfig, DataException, Header, RetriableException, SinkRecord
from sinksdk.engine import EngineOptions
from sinksdk.engine.converters import AvroConverter, converter_named, json_converter, string_converter
from sinksdk.records import SinkRecords
from sinksdk.testing import SinkTaskHarness
from tests.engine.sinks import P0, Sink


def test_strings_are_utf8() -> None:
    """string: UTF-8 text; a null stays None, an empty value an empty text."""
    assert string_converter("t", "Zürich".encode()) == "Zürich"
    assert string_converter("t", b"") == ""
    assert string_converter("t", None) is None


def test_bytes_that_are_no_text() -> None:
    """string: bytes that are no UTF-8 are a DataException that names the topic."""
    with pytest.raises(DataException, match="topic flights: the bytes are no UTF-8 text"):
        string_converter("flights", b"\xff\xfe")


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"7", 7),
        (b'"text"', "text"),
        (b"null", None),
        (b'{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]}),
        (b'{"schema": {"type": "int32"}, "payload": 7}', 7),
        (b'{"schema": null, "payload": null}', None),
        (b'{"payload": 7}', {"payload": 7}),
        (b'{"schema": 1, "payload": 7, "more": 1}', {"schema": 1, "payload": 7, "more": 1}),
        (None, None),
    ],
)
def test_json(data: bytes | None, value: object) -> None:
    """json: any JSON value; of Connect's envelope, which has exactly schema and payload, the payload."""
    assert json_converter("t", data) == value


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"nul", b"1 2", b"[" * 100_000])
def test_bytes_that_are_no_json(data: bytes) -> None:
    """json: bytes that are no JSON are a DataException, however they are wrong."""
    with pytest.raises(DataException, match="topic flights: the bytes are no JSON"):
        json_converter("flights", data)


SCHEMA = fastavro.parse_schema(
    {"type": "record", "name": "Flight", "fields": [{"name": "carrier", "type": "string"}]}
)


def wire(schema_id: int, value: object) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, SCHEMA, value)
    return struct.pack(">bI", 0, schema_id) + buffer.getvalue()


def test_avro() -> None:
    """Avro: Confluent's framing, decoded with the writer's schema of that id; null stays None."""
    asked = []
    converter = AvroConverter(lambda schema_id: asked.append(schema_id) or SCHEMA)
    assert converter("t", wire(4_000_000_000, {"carrier": "UA"})) == {"carrier": "UA"}
    assert converter("t", None) is None
    assert asked == [4_000_000_000]


@pytest.mark.parametrize("data", [b"", b"\x00\x00\x00\x00", b"\x01\x00\x00\x00\x01abc", b"plain text"])
def test_bytes_without_avro_framing(data: bytes) -> None:
    """Avro: bytes without the zero byte and the schema id are a DataException; the registry is not asked."""
    converter = AvroConverter(lambda schema_id: pytest.fail("asked"))
    with pytest.raises(DataException, match="do not begin with a zero byte and a schema id"):
        converter("flights", data)


@pytest.mark.parametrize("body", [b"", b"\x08ab", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"])
def test_bytes_that_are_no_datum(body: bytes) -> None:
    """Avro: a body that is no datum of its schema is a DataException that names topic and schema."""
    converter = AvroConverter(lambda schema_id: SCHEMA)
    with pytest.raises(DataException, match="topic flights: no datum of schema 7"):
        converter("flights", struct.pack(">bI", 0, 7) + body)


def test_a_registry_that_cannot_be_reached() -> None:
    """Avro: what the registry raises, RetriableException, passes through."""

    def unavailable(schema_id: int) -> object:
        raise RetriableException("503")

    with pytest.raises(RetriableException):
        AvroConverter(unavailable)("t", wire(1, {"carrier": "UA"}))


@pytest.mark.parametrize(
    ("name", "converter"),
    [
        ("bytes", None),
        ("org.apache.kafka.connect.converters.ByteArrayConverter", None),
        ("string", string_converter),
        ("org.apache.kafka.connect.storage.StringConverter", string_converter),
        ("json", json_converter),
        ("org.apache.kafka.connect.json.JsonConverter", json_converter),
    ],
)
def test_converters_have_short_names_and_connects(name: str, converter: object) -> None:
    """Converters are called bytes, string, json, or by Connect's class names."""
    assert converter_named(name) is converter


def test_a_converter_nobody_knows() -> None:
    """An unknown converter is a ConfigException that lists those there are."""
    with pytest.raises(ConfigException, match="no converter is called 'protobuf'; there are bytes, "):
        converter_named("protobuf")


def test_options_come_from_the_configuration() -> None:
    """EngineOptions.of: milliseconds become seconds, -1 becomes no limit, names become converters."""
    options = EngineOptions.of(
        ConnectorConfig.parse(
            {
                "name": "c",
                "topics": "t",
                "offset.flush.interval.ms": "1500",
                "errors.retry.timeout": "-1",
                "errors.retry.delay.max.ms": "250",
                "errors.tolerance": "all",
                "errors.log.enable": "true",
                "key.converter": "string",
                "value.converter": "json",
            }
        )
    )
    assert options.commit_interval == 1.5
    assert (options.retry.timeout, options.retry.max_delay) == (None, 0.25)
    assert (options.tolerate_errors, options.log_errors) == (True, True)
    assert (options.key_converter, options.value_converter) == (string_converter, json_converter)


# -- what the task sees ------------------------------------------------------------------------------


def converted(options: EngineOptions, *records: SinkRecord) -> SinkRecords:
    harness = SinkTaskHarness(Sink, options=options)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, records)
    (call,) = harness.called("put")
    return call.arguments[0]


def test_bytes_stay_arrow() -> None:
    """Without converters the task gets the very batch that was read: no record is touched."""
    harness = SinkTaskHarness(Sink)
    harness.start()
    harness.assign(P0)
    batch = SinkRecords.of(P0, [SinkRecord(*P0, offset=0, value=b"x")])
    harness.deliver(P0, batch)
    assert harness.called("put")[0].arguments[0] is batch


def test_keys_and_values_are_converted() -> None:
    """Converters: keys and values are what they made of them; everything else is as it was, slices included."""
    records = converted(
        EngineOptions(key_converter=string_converter, value_converter=json_converter),
        SinkRecord(*P0, offset=0, key=b"UA", value=b"[1]", timestamp=5, headers=(Header("h", b"raw"),)),
        SinkRecord(*P0, offset=9, key=None, value=None),
    )
    first, second = records
    assert (first.key, first.value, first.timestamp, first.headers) == ("UA", [1], 5, (Header("h", b"raw"),))
    assert (second.offset, second.key, second.value) == (9, None, None)
    assert [record.offset for record in records[1:]] == [9]
    assert records[1:][0].value is None
    assert records.arrow.column("value").to_pylist() == [b"[1]", None]


def test_only_keys_are_converted() -> None:
    """Converters: with one of the two converted the other stays bytes."""
    (record,) = converted(
        EngineOptions(key_converter=string_converter), SinkRecord(*P0, offset=0, key=b"UA", value=b"\xff")
    )
    assert (record.key, record.value) == ("UA", b"\xff")


def test_rows_left_out_do_not_shift_the_others() -> None:
    """Converters: rows that cannot be converted are left out of batch, keys and values alike."""
    records = converted(
        EngineOptions(tolerate_errors=True, value_converter=json_converter),
        *(
            SinkRecord(*P0, offset=i, value=b"%d" % i if i % 2 else b"{", headers=(Header(str(i), None),))
            for i in range(6)
        ),
    )
    assert [(r.offset, r.value, r.headers[0].key) for r in records] == [(1, 1, "1"), (3, 3, "3"), (5, 5, "5")]
    assert (records.first_offset, records.next_offset) == (1, 6)
