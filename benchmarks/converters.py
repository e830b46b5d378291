"""Measure converters and iteration over their results: ``python -m benchmarks.converters [records]``."""

from __future__ import annotations

import io
import json
import struct
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import fastavro

from sinksdk.engine import EngineOptions
from sinksdk.engine.converters import AvroConverter, Converter, JsonConverter, StringConverter
from sinksdk.offsets import TopicPartition
from sinksdk.records import SinkRecord, SinkRecords
from sinksdk.task import SinkTask
from sinksdk.testing import SinkTaskHarness

PARTITION = TopicPartition("flights", 0)
DDL = (
    "year INT, carrier STRING, flight BIGINT, origin STRING, dep_delay DOUBLE, air_time DOUBLE, "
    "cancelled BOOLEAN"
)
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "year", "type": "int"},
        {"name": "carrier", "type": "string"},
        {"name": "flight", "type": "long"},
        {"name": "origin", "type": ["null", "string"]},
        {"name": "dep_delay", "type": ["null", "double"]},
        {"name": "air_time", "type": ["null", "double"]},
        {"name": "cancelled", "type": "boolean"},
    ],
}
ENVELOPE = {
    "type": "struct",
    "optional": False,
    "fields": [
        {"type": "int32", "optional": False, "field": "year"},
        {"type": "string", "optional": False, "field": "carrier"},
        {"type": "int64", "optional": False, "field": "flight"},
        {"type": "string", "optional": True, "field": "origin"},
        {"type": "double", "optional": True, "field": "dep_delay"},
        {"type": "double", "optional": True, "field": "air_time"},
        {"type": "boolean", "optional": False, "field": "cancelled"},
    ],
}


def flights(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {
            "year": 2013,
            "carrier": ("UA", "AA", "B6")[number % 3],
            "flight": number,
            "origin": None if number % 7 == 0 else "JFK",
            "dep_delay": None if number % 11 == 0 else number % 90 / 4,
            "air_time": number % 400 + 0.5,
            "cancelled": number % 50 == 0,
        }


def avro(row: dict[str, Any], parsed: Any) -> bytes:
    buffer = io.BytesIO(struct.pack(">bI", 0, 1))
    buffer.seek(0, io.SEEK_END)
    fastavro.schemaless_writer(buffer, parsed, row)
    return buffer.getvalue()


def batches(values: list[bytes], size: int = 500) -> list[SinkRecords]:
    # A put gets 500 records by default.
    found = []
    for begin in range(0, len(values), size):
        some = values[begin : begin + size]
        rows = [SinkRecord(*PARTITION, offset=begin + row, value=value) for row, value in enumerate(some)]
        found.append(SinkRecords.of(PARTITION, rows))
    return found


class Columns(SinkTask):
    """Works on columns."""

    def put(self, records: SinkRecords) -> None:
        records.arrow.column("value")


class Rows(SinkTask):
    """Works on records."""

    def put(self, records: SinkRecords) -> None:
        for record in records:
            record.value  # noqa: B018 - reading the value is measured


class Bytes(Columns):
    """Works on bytes."""

    takes_bytes = True


def cost(task: type[SinkTask], converter: Converter | None, given: list[SinkRecords]) -> float:
    best = float("inf")
    for _ in range(3):
        harness = SinkTaskHarness(task, options=EngineOptions(value_converter=converter))
        harness.start()
        harness.assign(PARTITION)
        begun = time.process_time()
        for batch in given:
            harness.deliver(PARTITION, batch)
        best = min(best, time.process_time() - begun)
    return best / sum(map(len, given)) * 1_000_000


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    rows = list(flights(count))
    parsed = fastavro.parse_schema(SCHEMA)
    plain = batches([json.dumps(row).encode() for row in rows])
    begin = json.dumps(ENVELOPE, separators=(",", ":"))
    told = batches([f'{{"schema":{begin},"payload":{json.dumps(row)}}}'.encode() for row in rows])
    binary = batches([avro(row, parsed) for row in rows])
    cases: list[tuple[str, Callable[[], Converter | None], list[SinkRecords]]] = [
        ("bytes", lambda: None, plain),
        ("string", StringConverter, plain),
        ("json", lambda: JsonConverter(schemas_enable=False), plain),
        ("json, value.converter.schema", typed_json, plain),
        ("json, envelope", lambda: JsonConverter(schemas_enable=True), told),
        ("avro", lambda: AvroConverter(lambda _: parsed), binary),
    ]
    lines = [
        (name, *(f"{cost(task, make(), given):.2f}" for task in (Columns, Rows)))
        for name, make, given in cases
    ]
    for line in [("converter", "columns", "iterated"), *lines]:
        print(f"{line[0]:<32}{line[1]:>10}{line[2]:>10}")


def typed_json() -> Converter:
    # A separate function: older versions have no typed JSON.
    return JsonConverter(schemas_enable=False, schema=DDL)


if __name__ == "__main__":
    main()
