"""What stands in a file for a record depends on that record alone: not on its neighbours, nor on batches."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest

from sinksdk import SinkRecord, SinkRecords
from sinksdk.engine import EngineOptions
from sinksdk.topics.kafka.schema_registry import connect
from tests.registry_server import RegistryServer
from tests.s3_archiver.support import TP, bench, config

WHOLE = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
REAL = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "double"}]}
SMALL = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "float"}]}
NEWER = {
    "type": "record",
    "name": "R",
    "fields": [*REAL["fields"], {"name": "m", "type": "int", "default": 7}],
}
OTHER = {"type": "record", "name": "Other", "fields": [{"name": "x", "type": "string"}]}
WRITTEN: list[tuple[Any, dict[str, Any]]] = [
    (WHOLE, {"n": 1}),
    (REAL, {"n": 2.5}),
    (SMALL, {"n": 1.1}),
    (NEWER, {"n": 3.0, "m": 8}),
    (OTHER, {"x": "a"}),
    (WHOLE, {"n": 4}),
    (REAL, {"n": 5.0}),
]
TOLERANT = {"errors.tolerance": "all", "errors.deadletterqueue.max.share": "1", "flush.size": "1000"}


def framed(schema_id: int, schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return struct.pack(">bI", 0, schema_id) + out.getvalue()


def archived(keys: dict[str, str], values: list[bytes], at_once: int, registry: RegistryServer) -> Any:
    """Names and bytes of the files, of batches of so many records."""
    converter = {"value.converter": "avro", "value.converter.schema.registry.url": registry.url}
    settings = config({**TOLERANT, **converter, **keys})
    made = bench(settings=settings, options=EngineOptions.of(settings, connect))
    records = [
        SinkRecord(*TP, offset=offset, value=value, key=b"k", timestamp=1)
        for offset, value in enumerate(values)
    ]
    for begin in range(0, len(records), at_once):
        made.harness.deliver(TP, SinkRecords.of(TP, records[begin : begin + at_once]))
    made.harness.revoke()
    assert made.committed() == len(records)
    return {key.rpartition("/")[2]: made.s3.data(key) for key in made.visible() if "_sinksdk" not in key}


@pytest.mark.parametrize("at_once", [1, 2, 7])
def test_a_line_is_what_it_would_be_alone(at_once: int) -> None:
    """JSON lines: schemas of one topic share a file; no number is widened, no field of another schema is null."""
    registry = RegistryServer()
    with registry.running():
        values = [
            framed(registry.register("v", json.dumps(schema)), schema, value) for schema, value in WRITTEN
        ]
        found = archived({"format.class": "JsonFormat"}, values, at_once, registry)
    assert found == {
        "orders+0+0000000000.json": b'{"n":1}\n{"n":2.5}\n{"n":1.1}\n{"n":3.0,"m":8}\n{"x":"a"}\n{"n":4}\n{"n":5.0}\n'
    }


@pytest.mark.parametrize("at_once", [1, 2, 7])
def test_a_row_of_parquet_is_what_it_would_be_alone(at_once: int) -> None:
    """Parquet: each type has files of its own, side by side in one commit, whatever the batches were."""
    registry = RegistryServer()
    with registry.running():
        values = [
            framed(registry.register("v", json.dumps(schema)), schema, value) for schema, value in WRITTEN
        ]
        found = archived({"format.class": "ParquetFormat"}, values, at_once, registry)
    rows = {name[9:19]: pq.read_table(io.BytesIO(data)).to_pylist() for name, data in found.items()}
    assert rows == {
        "0000000000": [{"n": 1}, {"n": 4}],
        "0000000001": [{"n": 2.5}, {"n": 5.0}],
        "0000000002": [{"n": pytest.approx(1.1)}],
        "0000000003": [{"n": 3.0, "m": 8}],
        "0000000004": [{"x": "a"}],
    }


@pytest.mark.parametrize("keys", [{}, {"store.kafka.keys": "true", "key.converter": "string"}])
def test_a_datum_that_does_not_fit_leaves_its_neighbours_intact(keys: dict[str, str]) -> None:
    """Avro: bytes that are too few make a bad record, bytes that are too many are cut off; the others stay."""
    registry = RegistryServer()
    with registry.running():
        number = registry.register("v", json.dumps(OTHER))
        good = [framed(number, OTHER, {"x": text}) for text in ("a", "b", "c", "d")]
        values = [good[0], good[1][:-1], good[1] + b"stray", good[2], good[3][:5] + b"\x03", good[3]]
        found = archived({"format.class": "AvroFormat", **keys}, values, 10, registry)
    data = found["orders+0+0000000000.avro"]
    assert [row["x"] for row in fastavro.reader(io.BytesIO(data))] == ["a", "b", "c", "d"]
