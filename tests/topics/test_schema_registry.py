"""Avro with a schema registry: the real client against a registry in this process."""

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
    """A URL at which nobody listens."""
    server = RegistryServer()
    server._server.server_close()
    return server.url


def test_schemas_are_fetched_once(registry: RegistryServer) -> None:
    """Avro: the writer's schema comes from the registry, and each id is asked for once."""
    first = registry.register("flights-value", json.dumps(FLIGHT))
    second = registry.register("flights-value", json.dumps({"type": "array", "items": "long"}))
    convert = converter(registry.url)
    for _ in range(3):
        assert convert("flights", wire(first, FLIGHT, {"carrier": "UA"})) == {"carrier": "UA"}
        assert convert("flights", wire(second, {"type": "array", "items": "long"}, [1, 2])) == [1, 2]
    assert registry.requests == [f"/schemas/ids/{first}", f"/schemas/ids/{second}"]


def test_what_the_real_client_registers_is_read(registry: RegistryServer) -> None:
    """Avro: the registry of these tests is one to Confluent's own serializer, too."""
    from confluent_kafka.schema_registry.avro import AvroSerializer  # noqa: PLC0415 - slow to load
    from confluent_kafka.serialization import MessageField, SerializationContext  # noqa: PLC0415 - slow to load

    serialize = AvroSerializer(SchemaRegistryClient({"url": registry.url}), json.dumps(FLIGHT))
    data = serialize({"carrier": "UA"}, SerializationContext("flights", MessageField.VALUE))
    assert converter(registry.url)("flights", data) == {"carrier": "UA"}


def test_references_are_resolved(registry: RegistryServer) -> None:
    """Avro: schemas that are referred to are fetched as well, each once, also when they are met on two ways."""
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


def test_a_union_of_references_is_resolved(registry: RegistryServer) -> None:
    """Avro: also where the schema itself is nothing but a union of schemas it refers to."""
    registry.register("address", json.dumps(ADDRESS))
    union = registry.register("t-value", '["null", "x.Address"]', [reference("x.Address", "address")])
    data = wire(union, ["null", ADDRESS], {"city": "Bern"})
    assert converter(registry.url)("t", data) == {"city": "Bern"}


def test_a_reference_that_is_not_there(registry: RegistryServer) -> None:
    """Avro: a schema that refers to one the registry lacks is a DataException that names both."""
    schema_id = registry.register("t-value", json.dumps(PERSON), [reference("x.Address", "address", 3)])
    with pytest.raises(
        DataException, match=r"topic t, subject t-value: .* has no version 3 of subject address"
    ):
        converter(registry.url)("t", wire(schema_id, FLIGHT, {"carrier": ""}))


def test_an_id_nobody_knows(registry: RegistryServer) -> None:
    """Avro: an unknown id is a DataException that names topic, subject, registry and id; garbage asks once."""
    convert = converter(registry.url)
    for _ in range(3):
        with pytest.raises(
            DataException, match=f"subject t-value: the schema registry {registry.url} has no schema 99:"
        ):
            convert("t", wire(99, FLIGHT, {"carrier": "UA"}))
    assert registry.requests == ["/schemas/ids/99"]


def test_an_id_that_becomes_known(registry: RegistryServer) -> None:
    """Avro: an unknown id is asked for again after a while: registries are replicated with delay."""
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
def test_a_registry_that_cannot_answer_now(registry: RegistryServer, status: int) -> None:
    """Avro: no answer, 429 and 5xx are passing; the next attempt finds the schema."""
    schema_id = registry.register("t-value", json.dumps(FLIGHT))
    convert = converter(registry.url)
    registry.failing = status
    with pytest.raises(
        RetriableException, match=f"the schema registry {registry.url} (does not|cannot) return"
    ):
        convert("t", wire(schema_id, FLIGHT, {"carrier": "UA"}))
    registry.failing = None
    assert convert("t", wire(schema_id, FLIGHT, {"carrier": "UA"})) == {"carrier": "UA"}


def test_a_registry_that_is_not_there() -> None:
    """Avro: a registry at which nobody listens is asked again, too."""
    with pytest.raises(RetriableException, match="does not return schema 1"):
        converter(dead_url())("t", wire(1, FLIGHT, {"carrier": "UA"}))


def test_another_url_is_asked_where_one_does_not_answer(registry: RegistryServer) -> None:
    """Avro: of several URLs the next one is asked."""
    schema_id = registry.register("t-value", json.dumps(FLIGHT))
    convert = converter(dead_url(), registry.url)
    assert convert("t", wire(schema_id, FLIGHT, {"carrier": "UA"})) == {"carrier": "UA"}


def test_user_and_password(registry: RegistryServer) -> None:
    """Avro: basic authentication; a wrong password is the configuration's fault, never the record's."""
    schema_id = registry.register("t-value", json.dumps(FLIGHT))
    registry.credentials = "reader:s3cret"
    data = wire(schema_id, FLIGHT, {"carrier": "UA"})
    assert converter(registry.url, user_info="reader:s3cret")("t", data) == {"carrier": "UA"}
    assert converter(registry.url.replace("//", "//reader:s3cret@"))("t", data) == {"carrier": "UA"}
    for wrong in (None, "reader:wrong"):
        with pytest.raises(ConfigException, match="refuses to return schema 1: Unauthorized"):
            converter(registry.url, user_info=wrong)("t", data)


def test_something_that_is_no_registry(registry: RegistryServer) -> None:
    """Avro: a 404 that is not the registry's own is the configuration's fault: the path of the URL is wrong."""
    with pytest.raises(ConfigException, match="check its URL"):
        converter(f"{registry.url}/api")("t", wire(1, FLIGHT, {"carrier": "UA"}))


@pytest.mark.parametrize(
    ("schema", "more", "message"),
    [
        ('syntax = "proto3";', {"schemaType": "PROTOBUF"}, "is not Avro: PROTOBUF"),
        ('{"type": "record"}', {}, "cannot be read"),
        ("{", {}, "is no JSON"),
    ],
)
def test_schemas_that_are_not_avro(
    registry: RegistryServer, schema: str, more: dict[str, str], message: str
) -> None:
    """Avro: a schema of another kind, or one that cannot be read, is a DataException that says so."""
    schema_id = registry.register("t-value", schema, **more)
    with pytest.raises(DataException, match=message):
        converter(registry.url)("t", wire(schema_id, FLIGHT, {"carrier": "UA"}))


def test_passwords_are_not_told() -> None:
    """Avro: errors name the registry without user and password."""
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


def test_an_outage_of_the_registry_drops_nothing(registry: RegistryServer) -> None:
    """B5: while the registry is away the batch waits, tolerated or not; once it is back every record arrives."""
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


def test_an_outage_that_lasts_fails_the_partition(registry: RegistryServer) -> None:
    """errors.retry.timeout: when it is spent the partition fails; nothing is committed, skipped, or a dead letter."""
    driven, letters = harness(registry, **{"errors.retry.timeout": "2000"})
    registry.failing = 500
    driven.deliver(P0, [wire(1, FLIGHT, {"carrier": "UA"})])
    while driven.worker.pending:
        driven.advance(driven.worker.wait())
    assert "converting flights-0 at offset 0 failed" in driven.outcome(P0).failure.message
    assert (driven.committed, letters.records) == ({}, [])


def test_unknown_schemas_go_to_the_dead_letters(registry: RegistryServer) -> None:
    """Avro: records whose schema is not there, or that are no Avro at all, are dead letters as they were read."""
    schema_id = registry.register("flights-value", json.dumps(FLIGHT))
    driven, letters = harness(registry)
    bad = [wire(99, FLIGHT, {"carrier": "UA"}), b"garbage", b""]
    driven.deliver(P0, [wire(schema_id, FLIGHT, {"carrier": "UA"}), *bad])
    assert [letter.value for letter in letters.records] == bad
    driven.commit()
    assert driven.committed == {P0: OffsetAndMetadata(4)}
