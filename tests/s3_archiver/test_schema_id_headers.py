"""Values whose schema id is in a record header, as Confluent Platform 8's producers write them."""

from __future__ import annotations

import io
import json
import uuid
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest

from sinksdk import Header, SinkRecord, SinkRecords
from sinksdk.engine import EngineOptions
from sinksdk.topics.kafka.schema_registry import connect
from tests.helpers.registry_server import RegistryServer
from tests.s3_archiver.support import TP, bench, config

ORDER = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
KEYS = {"errors.tolerance": "all", "errors.deadletterqueue.max.share": "1", "flush.size": "1000"}
REGISTRY = {"value.converter": "io.confluent.connect.avro.AvroConverter"}


def guid_header(name: str, guid: str) -> Header:
    return Header(name, b"\x01" + uuid.UUID(guid).bytes)


def archived(registry: RegistryServer, keys: dict[str, str], records: list[dict[str, Any]]) -> Any:
    url = {"value.converter.schema.registry.url": registry.url}
    settings = config({**KEYS, **REGISTRY, **url, **keys})
    made = bench(settings=settings, options=EngineOptions.of(settings, connect))
    rows = [
        SinkRecord(*TP, offset=offset, **{"key": b"k", "timestamp": 1, **record})
        for offset, record in enumerate(records)
    ]
    made.harness.deliver(TP, SinkRecords.of(TP, rows))
    made.harness.revoke()
    assert made.committed() == len(rows)
    return made


def read(made: Any) -> list[Any]:
    found: list[Any] = []
    for key in sorted(made.visible()):
        data = io.BytesIO(made.s3.data(key))
        if "_sinksdk" in key or ".keys." in key:
            continue
        if key.endswith(".avro"):
            found += list(fastavro.reader(data))
        elif key.endswith(".parquet"):
            found += pq.read_table(data).to_pylist()
        else:
            found += [json.loads(line) for line in data.read().splitlines()]
    return found


@pytest.mark.parametrize("name", ["AvroFormat", "JsonFormat", "ParquetFormat"])
def test_the_schema_id_is_read_from_a_header(name: str) -> None:
    registry = RegistryServer()
    with registry.running():
        number = registry.register("v", json.dumps(ORDER))
        guid = guid_header("__value_schema_id", registry.guid(number))
        as_id = b"\0" + number.to_bytes(4)
        records: list[dict[str, Any]] = [
            {"value": b"\x02", "headers": (guid,)},
            {"value": b"\x04", "headers": (Header("x", b""), Header("__value_schema_id", as_id))},
            {"value": as_id + b"\x06"},
            {"value": b"\x08", "headers": (Header("__value_schema_id", b"?"), guid)},
            {"value": b"\x0a", "headers": (Header("__value_schema_id", b"?"),)},
            {"value": b"\x0c", "headers": (guid_header("__value_schema_id", str(uuid.UUID(int=7))),)},
        ]
        made = archived(registry, {"format.class": name}, records)
    assert sorted(row["a"] for row in read(made)) == [1, 2, 3, 4]
    assert len([path for path in registry.requests if "guids" in path]) == 2
    if name == "AvroFormat":
        kept = {key.rpartition("/")[2] for key in made.visible() if key.endswith(".avsc")}
        assert kept == {"1.avsc", f"{registry.guid(number)}.avsc"}


def test_the_schema_id_of_keys_is_read_from_its_own_header() -> None:
    registry = RegistryServer()
    with registry.running():
        header = guid_header("__key_schema_id", registry.guid(registry.register("k", json.dumps(ORDER))))
        keys = {
            "format.class": "ByteArrayFormat",
            "value.converter": "bytes",
            "store.kafka.keys": "true",
            "keys.format.class": "AvroFormat",
            "key.converter": "avro",
            "key.converter.schema.registry.url": registry.url,
        }
        made = archived(registry, keys, [{"key": b"\x02", "value": b"v", "headers": (header,)}])
    (name,) = [key for key in made.visible() if ".keys." in key]
    assert list(fastavro.reader(io.BytesIO(made.s3.data(name)))) == [{"a": 1}]


def test_schema_id_headers_are_ignored_if_configured() -> None:
    registry = RegistryServer()
    with registry.running():
        number = registry.register("v", json.dumps(ORDER))
        header = guid_header("__value_schema_id", registry.guid(number))
        package = "io.confluent.kafka.serializers.schema.id"
        keys = {"value.converter.schema.id.deserializer": f"{package}.PrefixSchemaIdDeserializer"}
        records = [
            {"value": b"\x02", "headers": (header,)},
            {"value": b"\0" + number.to_bytes(4) + b"\x04", "headers": (header,)},
        ]
        made = archived(registry, {"format.class": "AvroFormat", **keys}, records)
    assert read(made) == [{"a": 2}]


def test_whole_records_hold_values_without_framing_unchanged() -> None:
    registry = RegistryServer()
    with registry.running():
        header = guid_header("__value_schema_id", registry.guid(registry.register("v", json.dumps(ORDER))))
        made = archived(registry, {}, [{"value": b"\x02", "headers": (header,)}])
    (row,) = read(made)
    assert row["value"] == b"\x02"
