"""Converters under Connect's names: from bytes to what a task receives."""

from __future__ import annotations

import io
import struct
import traceback

import fastavro
import pytest

from sinksdk import ConfigException, ConnectorConfig, DataException, Header, RetriableException, SinkRecord
from sinksdk.config.converters import ConverterSpec, RegistryAddress, converter_kind
from sinksdk.engine import EngineOptions
from sinksdk.engine.converters import (
    AvroConverter,
    BooleanConverter,
    JsonConverter,
    NumberConverter,
    SchemaOf,
    StringConverter,
    converter_of,
)
from sinksdk.engine.options import ErrorLimit
from sinksdk.records import SinkRecords
from sinksdk.testing import SinkTaskHarness
from tests.engine.sinks import P0, Sink


def test_the_string_converter_reads_utf8() -> None:
    assert StringConverter()("t", "Zürich".encode()) == "Zürich"
    assert StringConverter()("t", b"") == ""
    assert StringConverter()("t", None) is None


def test_the_string_converter_refuses_invalid_utf8() -> None:
    with pytest.raises(DataException, match="topic flights: the bytes are not UTF-8 text"):
        StringConverter()("flights", b"\xff\xfe")


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
    # The json converter accepts any JSON value, and unwraps Connect's envelope, which has exactly schema and
    # payload.
    assert JsonConverter()("t", data) == value


@pytest.mark.parametrize("data", [b"{", b"\xff", b"nul", b"1 2", b"[" * 100_000])
def test_the_json_converter_refuses_invalid_json(data: bytes) -> None:
    with pytest.raises(DataException, match="topic flights: the bytes are not JSON"):
        JsonConverter()("flights", data)


SCHEMA = fastavro.parse_schema(
    {"type": "record", "name": "Flight", "fields": [{"name": "carrier", "type": "string"}]}
)


def wire(schema_id: int, value: object) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, SCHEMA, value)
    return struct.pack(">bI", 0, schema_id) + buffer.getvalue()


def test_avro() -> None:
    asked = []
    converter = AvroConverter(lambda schema_id: asked.append(schema_id) or SCHEMA)
    assert converter("t", wire(4_000_000_000, {"carrier": "UA"})) == {"carrier": "UA"}
    assert converter("t", None) is None
    assert asked == [4_000_000_000]


@pytest.mark.parametrize("data", [b"", b"\x00\x00\x00\x00", b"\x01\x00\x00\x00\x01abc", b"plain text"])
def test_the_avro_converter_refuses_bytes_without_framing(data: bytes) -> None:
    converter = AvroConverter(lambda schema_id: pytest.fail("asked"))
    with pytest.raises(DataException, match="do not begin with a zero byte and a schema id"):
        converter("flights", data)


@pytest.mark.parametrize("body", [b"", b"\x08ab", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"])
def test_the_avro_converter_refuses_an_invalid_datum(body: bytes) -> None:
    converter = AvroConverter(lambda schema_id: SCHEMA)
    with pytest.raises(DataException, match="topic flights: the bytes are not a datum of schema 7"):
        converter("flights", struct.pack(">bI", 0, 7) + body)


def test_an_unreachable_registry_raises_a_retriable_exception() -> None:
    def unavailable(schema_id: int) -> object:
        raise RetriableException("503")

    with pytest.raises(RetriableException):
        AvroConverter(unavailable)("t", wire(1, {"carrier": "UA"}))


CONNECT = "org.apache.kafka.connect"


@pytest.mark.parametrize(
    ("names", "converter"),
    [
        (("bytes", f"{CONNECT}.converters.ByteArrayConverter"), None),
        (("string", f"{CONNECT}.storage.StringConverter"), StringConverter()),
        (("json", f"{CONNECT}.json.JsonConverter"), JsonConverter()),
        (("short", f"{CONNECT}.converters.ShortConverter"), NumberConverter("short")),
        (("integer", f"{CONNECT}.converters.IntegerConverter"), NumberConverter("integer")),
        (("long", f"{CONNECT}.converters.LongConverter"), NumberConverter("long")),
        (("float", f"{CONNECT}.converters.FloatConverter"), NumberConverter("float")),
        (("double", f"{CONNECT}.converters.DoubleConverter"), NumberConverter("double")),
        (("boolean", f"{CONNECT}.converters.BooleanConverter"), BooleanConverter()),
    ],
)
def test_converters_have_short_names_and_those_of_connect(names: tuple[str, str], converter: object) -> None:
    # Converters have short names (bytes, string, json …), and Connect's class names.
    for name in names:
        assert converter_of(ConverterSpec(converter_kind(name))) == converter


@pytest.mark.parametrize("name", ["avro", "io.confluent.connect.avro.AvroConverter"])
def test_the_avro_converter_uses_the_configured_registry(name: str) -> None:
    address = RegistryAddress("http://registry:8081")
    addresses: list[RegistryAddress] = []

    def connect(given: RegistryAddress) -> SchemaOf:
        addresses.append(given)
        return lambda schema_id: pytest.fail("asked")

    converter = converter_of(ConverterSpec(converter_kind(name), is_key=True, registry=address), connect)
    assert isinstance(converter, AvroConverter)
    assert converter("t", None) is None
    assert addresses == [address]


def test_the_avro_converter_requires_a_registry() -> None:
    with pytest.raises(ConfigException, match="the Avro converter needs a schema registry"):
        converter_of(ConverterSpec("avro", registry=RegistryAddress("http://registry:8081")))


def test_an_unknown_converter_is_refused() -> None:
    with pytest.raises(ConfigException, match="unknown converter 'protobuf': use one of bytes, "):
        converter_kind("protobuf")


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        ("short", b"\xff\xfe", -2),
        ("integer", b"\x00\x00\x01\x00", 256),
        ("long", b"\x80" + bytes(7), -(2**63)),
        ("float", b"\x3f\x80\x00\x00", 1.0),
        ("double", b"\xbf\xf0" + bytes(6), -1.0),
        ("boolean", b"\x00", False),
        ("boolean", b"\x01", True),
    ],
)
def test_number_converters_read_big_endian_bytes(kind: str, data: bytes, value: object) -> None:
    converter = converter_of(ConverterSpec(kind))
    assert converter is not None
    assert converter("t", data) == value
    assert converter("t", None) is None


@pytest.mark.parametrize("kind", ["short", "integer", "long", "float", "double", "boolean"])
@pytest.mark.parametrize("size", [0, 3, 5, 9])
def test_number_converters_refuse_other_lengths(kind: str, size: int) -> None:
    converter = converter_of(ConverterSpec(kind))
    assert converter is not None
    with pytest.raises(
        DataException, match=f"topic flights: cannot deserialize a {kind} from {size} bytes: expected "
    ):
        converter("flights", bytes(size))


def test_a_boolean_is_0_or_1() -> None:
    with pytest.raises(DataException, match="cannot deserialize a boolean"):
        BooleanConverter()("t", b"\x02")


PLAIN = b'{"a": 1}'
ENVELOPE = b'{"schema": null, "payload": {"a": 1}}'


@pytest.mark.parametrize(
    ("schemas_enable", "data", "value"),
    [
        (True, ENVELOPE, {"a": 1}),
        (True, b'{"payload": null, "schema": {"type": "string", "optional": true}}', None),
        (False, ENVELOPE, {"schema": None, "payload": {"a": 1}}),
        (False, PLAIN, {"a": 1}),
        (None, ENVELOPE, {"a": 1}),
        (None, PLAIN, {"a": 1}),
        (True, None, None),
        (False, None, None),
    ],
)
def test_the_json_converter_unwraps_only_envelopes(
    schemas_enable: bool | None, data: bytes | None, value: object
) -> None:
    assert JsonConverter(schemas_enable)("t", data) == value


@pytest.mark.parametrize(
    "data", [PLAIN, b"7", b"null", b"[]", b'{"payload": 1}', b'{"schema": 1, "payload": 1, "more": 1}']
)
def test_schemas_enable_requires_an_envelope(data: bytes) -> None:
    with pytest.raises(
        DataException, match=r"topic flights: the JSON is not an object with exactly .*set it to false"
    ):
        JsonConverter(schemas_enable=True)("flights", data)


def test_the_string_converter_reads_the_configured_encoding() -> None:
    assert StringConverter("ISO-8859-1")("t", b"Z\xfcrich") == "Zürich"


SECRET = b"hunter2"


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("string", SECRET + b"\xfe"),
        ("json", SECRET),
        ("json", b'{"a": "' + SECRET + b'", b}'),
        ("json", b'"' + SECRET + b"\xfe"),
        ("long", SECRET),
        ("boolean", SECRET),
        ("avro", SECRET),
        ("avro", struct.pack(">bI", 0, 7) + b"\x7e" + SECRET),
        ("avro", struct.pack(">bI", 0, 7) + b"\x80" + SECRET),
    ],
)
def test_errors_do_not_quote_the_bytes(kind: str, data: bytes) -> None:
    address = RegistryAddress("http://registry:8081")
    converter = converter_of(ConverterSpec(kind, registry=address), lambda address: lambda schema_id: SCHEMA)
    assert converter is not None
    with pytest.raises(DataException) as caught:
        converter("t", data)
    told = "".join(traceback.format_exception(caught.value, chain=True))
    # The traces are compared without the lines of source code in them.
    errors = "".join(line for line in told.splitlines() if not line.startswith(" "))
    assert "hunter" not in errors
    assert "0xfe" not in errors


def test_options_come_from_the_configuration() -> None:
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
                "errors.log.include.messages": "true",
                "errors.deadletterqueue.context.headers.enable": "true",
                "errors.deadletterqueue.max.consecutive": "7",
                "errors.deadletterqueue.max.share": "0.25",
                "key.converter": "string",
                "value.converter": "json",
            }
        )
    )
    assert options.commit_interval == 1.5
    assert (options.retry.timeout, options.retry.max_delay) == (None, 0.25)
    assert (options.tolerate_errors, options.log_errors, options.log_messages) == (True, True, True)
    assert options.context_headers
    assert options.error_limit == ErrorLimit(7, 0.25)
    assert (options.key_converter, options.value_converter) == (StringConverter(), JsonConverter())


def test_the_defaults_are_connects() -> None:
    # By default nothing is tolerated, logged or put into headers, as in Connect.
    options = EngineOptions.of(ConnectorConfig.parse({"name": "c", "topics": "t"}))
    assert options == EngineOptions()
    flags = (options.tolerate_errors, options.log_errors, options.log_messages, options.context_headers)
    assert flags == (False,) * 4


def test_max_consecutive_of_minus_one_means_no_limit() -> None:
    raw = {"name": "c", "topics": "t", "errors.deadletterqueue.max.consecutive": "-1"}
    assert EngineOptions.of(ConnectorConfig.parse(raw)).error_limit.max_consecutive is None


# -- what the task sees ------------------------------------------------------------------------------


def converted(options: EngineOptions, *records: SinkRecord) -> SinkRecords:
    harness = SinkTaskHarness(Sink, options=options)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, records)
    (call,) = harness.called("put")
    return call.arguments[0]


def test_bytes_stay_arrow() -> None:
    harness = SinkTaskHarness(Sink)
    harness.start()
    harness.assign(P0)
    batch = SinkRecords.of(P0, [SinkRecord(*P0, offset=0, value=b"x")])
    harness.deliver(P0, batch)
    assert harness.called("put")[0].arguments[0] is batch


def test_keys_and_values_are_converted() -> None:
    records = converted(
        EngineOptions(key_converter=StringConverter(), value_converter=JsonConverter()),
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
    (record,) = converted(
        EngineOptions(key_converter=StringConverter()), SinkRecord(*P0, offset=0, key=b"UA", value=b"\xff")
    )
    assert (record.key, record.value) == ("UA", b"\xff")


def test_skipped_records_do_not_shift_the_others() -> None:
    records = converted(
        EngineOptions(tolerate_errors=True, value_converter=JsonConverter()),
        *(
            SinkRecord(*P0, offset=i, value=b"%d" % i if i % 2 else b"{", headers=(Header(str(i), None),))
            for i in range(6)
        ),
    )
    assert [(r.offset, r.value, r.headers[0].key) for r in records] == [(1, 1, "1"), (3, 3, "3"), (5, 5, "5")]
    assert (records.first_offset, records.next_offset) == (1, 6)
