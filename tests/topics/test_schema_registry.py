from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from sinksdk import ConfigException, ConnectorConfig, DataException, OffsetAndMetadata, RetriableException
from sinksdk.config.converters import RegistryAddress
from sinksdk.engine import EngineOptions
from sinksdk.engine.converters import AvroConverter
from sinksdk.testing import SinkTaskHarness
from sinksdk.topics.kafka.schema_registry import SchemaRegistry, connect
from tests.engine.sinks import P0, Letters, Sink
from tests.helpers.registry_server import RegistryServer

FLIGHT = {"type": "record", "name": "Flight", "fields": [{"name": "carrier", "type": "string"}]}
ADDRESS = {
    "type": "record",
    "namespace": "x",
    "name": "Address",
    "fields": [{"name": "city", "type": "string"}],
}
PERSON = {
    "type": "record",
    "namespace": "x",
    "name": "Person",
    "fields": [{"name": "home", "type": "x.Address"}, {"name": "work", "type": ["null", "x.Address"]}],
}
FIRM = {
    "type": "record",
    "namespace": "x",
    "name": "Firm",
    "fields": [{"name": "seat", "type": "x.Address"}, {"name": "owner", "type": "x.Person"}],
}


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer().running() as server:
        yield server


def wire(schema_id: int, schema: Any, value: object) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), value)
    return struct.pack(">bI", 0, schema_id) + buffer.getvalue()


def reference(name: str, subject: str, version: int = 1) -> dict[str, Any]:
    return {"name": name, "subject": subject, "version": version}


def converter(*urls: str, user_info: str | None = None) -> AvroConverter:
    return AvroConverter(connect(RegistryAddress(",".join(urls), user_info)))


def dead_url() -> str:
    server = RegistryServer()
    server._server.server_close()
    return server.url


def test_each_schema_is_fetched_once(registry: RegistryServer) -> None:
    first = registry.register("flights-value", json.dumps(FLIGHT))
    second = registry.register("flights-value", json.dumps({"type": "array", "items": "long"}))
    convert = converter(registry.url)
    for _ in range(3):
        assert convert("flights", wire(first, FLIGHT, {"carrier": "UA"})) == {"carrier": "UA"}
        assert convert("flights", wire(second, {"type": "array", "items": "long"}, [1, 2])) == [1, 2]
    assert registry.requests == [f"/schemas/ids/{first}", f"/schemas/ids/{second}"]


def test_schema_of_confluents_serializer_is_read(registry: RegistryServer) -> None:
    from confluent_kafka.schema_registry.avro import AvroSerializer  # noqa: PLC0415 - slow to load
    from confluent_kafka.serialization import MessageField, SerializationContext  # noqa: PLC0415 - slow to load

    serialize = AvroSerializer(SchemaRegistryClient({"url": registry.url}), json.dumps(FLIGHT))
    data = serialize({"carrier": "UA"}, SerializationContext("flights", MessageField.VALUE))
    assert converter(registry.url)("flights", data) == {"carrier": "UA"}


def test_schema_references_are_fetched_once(registry: RegistryServer) -> None:
    registry.register("address", json.dumps(ADDRESS))
    registry.register("person", json.dumps(PERSON), [reference("x.Address", "address")])
    both = [reference("x.Person", "person"), reference("x.Address", "address")]
    firm = registry.register("firms-value", json.dumps(FIRM), both)
    value = {"seat": {"city": "Bern"}, "owner": {"home": {"city": "Chur"}, "work": None}}
    named: dict[str, Any] = {}
    for schema in (ADDRESS, PERSON):
        fastavro.parse_schema(schema, named)
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(FIRM, named), value)
    data = struct.pack(">bI", 0, firm) + buffer.getvalue()

    convert = converter(registry.url)
    assert convert("firms", data) == value
    assert convert("firms", data) == value
    assert len(registry.requests) == 3


def test_union_of_schema_references_is_resolved(registry: RegistryServer) -> None:
    registry.register("address", json.dumps(ADDRESS))
    union = registry.register("t-value", '["null", "x.Address"]', [reference("x.Address", "address")])
    data = wire(union, ["null", ADDRESS], {"city": "Bern"})
    assert converter(registry.url)("t", data) == {"city": "Bern"}


def test_missing_schema_reference_is_a_data_exception(registry: RegistryServer) -> None:
    schema_id = registry.register("t-value", json.dumps(PERSON), [reference("x.Address", "address", 3)])
    with pytest.raises(
        DataException, match=r"topic t, subject t-value: .* has no version 3 of subject address"
    ):
        converter(registry.url)("t", wire(schema_id, FLIGHT, {"carrier": ""}))


def test_unknown_schema_id_is_a_data_exception_and_requested_once(registry: RegistryServer) -> None:
    convert = converter(registry.url)
    for _ in range(3):
        with pytest.raises(
            DataException, match=f"subject t-value: the schema registry {registry.url} has no schema 99:"
        ):
            convert("t", wire(99, FLIGHT, {"carrier": "UA"}))
    assert registry.requests == ["/schemas/ids/99"]


def test_unknown_schema_id_is_requested_again_later(registry: RegistryServer) -> None:
    # Registries are replicated with delay.
    now = [0.0]
    schemas = SchemaRegistry(SchemaRegistryClient({"url": registry.url}), "r", now=lambda: now[0])
    with pytest.raises(DataException):
        schemas(1)
    registry.register("t-value", json.dumps(FLIGHT))
    with pytest.raises(DataException):
        schemas(1)
    now[0] = 30.0
    assert json.loads(schemas(1).text) == FLIGHT


@pytest.mark.parametrize("status", [0, 429, 500, 503])
def test_registry_outage_is_retriable(registry: RegistryServer, status: int) -> None:
    schema_id = registry.register("t-value", json.dumps(FLIGHT))
    convert = converter(registry.url)
    registry.failing = status
    with pytest.raises(
        RetriableException, match=f"the schema registry {registry.url} (does not|cannot) return"
    ):
        convert("t", wire(schema_id, FLIGHT, {"carrier": "UA"}))
    registry.failing = None
    assert convert("t", wire(schema_id, FLIGHT, {"carrier": "UA"})) == {"carrier": "UA"}


def test_unreachable_registry_is_retriable() -> None:
    with pytest.raises(RetriableException, match="does not return schema 1"):
        converter(dead_url())("t", wire(1, FLIGHT, {"carrier": "UA"}))


def test_next_registry_url_is_used_when_one_is_unreachable(registry: RegistryServer) -> None:
    schema_id = registry.register("t-value", json.dumps(FLIGHT))
    convert = converter(dead_url(), registry.url)
    assert convert("t", wire(schema_id, FLIGHT, {"carrier": "UA"})) == {"carrier": "UA"}


def test_wrong_registry_password_is_a_config_exception(registry: RegistryServer) -> None:
    schema_id = registry.register("t-value", json.dumps(FLIGHT))
    registry.credentials = "reader:s3cret"
    data = wire(schema_id, FLIGHT, {"carrier": "UA"})
    assert converter(registry.url, user_info="reader:s3cret")("t", data) == {"carrier": "UA"}
    assert converter(registry.url.replace("//", "//reader:s3cret@"))("t", data) == {"carrier": "UA"}
    for wrong in (None, "reader:wrong"):
        with pytest.raises(ConfigException, match="refuses to return schema 1: Unauthorized"):
            converter(registry.url, user_info=wrong)("t", data)


def test_url_of_another_server_than_a_registry_is_a_config_exception(registry: RegistryServer) -> None:
    with pytest.raises(ConfigException, match="check its URL"):
        converter(f"{registry.url}/api")("t", wire(1, FLIGHT, {"carrier": "UA"}))


@pytest.mark.parametrize(
    ("schema", "more", "message"),
    [
        ('syntax = "proto3";', {"schemaType": "PROTOBUF"}, "is not Avro: PROTOBUF"),
        ('{"type": "record"}', {}, "cannot be read"),
        ("{", {}, "is not JSON"),
    ],
)
def test_schema_that_is_not_avro_is_a_data_exception(
    registry: RegistryServer, schema: str, more: dict[str, str], message: str
) -> None:
    schema_id = registry.register("t-value", schema, **more)
    with pytest.raises(DataException, match=message):
        converter(registry.url)("t", wire(schema_id, FLIGHT, {"carrier": "UA"}))


def test_registry_errors_do_not_show_passwords() -> None:
    address = RegistryAddress("http://reader:s3cret@127.0.0.1:1, https://b", "reader:s3cret")
    assert str(address) == "http://127.0.0.1:1, https://b"
    assert "s3cret" not in repr(address)
    with pytest.raises(ConfigException) as caught:
        connect(address)
    assert "s3cret" not in str(caught.value)


# -- with the engine ---------------------------------------------------------------------------------


def harness(registry: RegistryServer, **more: str) -> tuple[SinkTaskHarness, Letters]:
    raw = {
        "name": "c",
        "topics": "flights",
        "errors.tolerance": "all",
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": registry.url,
        **more,
    }
    letters = Letters()
    config = ConnectorConfig.parse(raw)
    driven = SinkTaskHarness(Sink, config, options=EngineOptions.of(config, connect), dead_letters=letters)
    driven.start()
    driven.assign(P0)
    return driven, letters


def test_registry_outage_drops_no_record(registry: RegistryServer) -> None:
    schema_id = registry.register("flights-value", json.dumps(FLIGHT))
    driven, letters = harness(registry)
    data = wire(schema_id, FLIGHT, {"carrier": "UA"})
    registry.failing = 503
    driven.deliver(P0, [data, data])
    for _ in range(3):
        driven.advance(driven.worker.wait())
    assert driven.called("put") == []
    registry.failing = None
    while driven.worker.pending:
        driven.advance(driven.worker.wait())
    driven.commit()
    assert [record.value for record in driven.called("put")[0].arguments[0]] == [{"carrier": "UA"}] * 2
    assert driven.committed == {P0: OffsetAndMetadata(2)}
    assert letters.records == []


def test_long_registry_outage_fails_the_partition(registry: RegistryServer) -> None:
    driven, letters = harness(registry, **{"errors.retry.timeout": "2000"})
    registry.failing = 500
    driven.deliver(P0, [wire(1, FLIGHT, {"carrier": "UA"})])
    while driven.worker.pending:
        driven.advance(driven.worker.wait())
    assert "converting flights-0 at offset 0 failed" in driven.outcome(P0).failure.message
    assert (driven.committed, letters.records) == ({}, [])


def test_records_with_unknown_schemas_are_dead_letters(registry: RegistryServer) -> None:
    schema_id = registry.register("flights-value", json.dumps(FLIGHT))
    driven, letters = harness(registry)
    bad = [wire(99, FLIGHT, {"carrier": "UA"}), b"garbage", b""]
    driven.deliver(P0, [wire(schema_id, FLIGHT, {"carrier": "UA"}), *bad])
    assert [letter.value for letter in letters.records] == bad
    driven.commit()
    assert driven.committed == {P0: OffsetAndMetadata(4)}
