"""Random schemas and values, thousands of each kind, as producers write them and as tasks see them."""

from __future__ import annotations

import io
import json
import random
import struct
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from sinksdk.engine.converters import AvroConverter, BatchConverter, JsonConverter
from sinksdk.values.plain import plain
from sinksdk.values.text import CONNECT_JSON, SPARK_JSON, to_json
from tests.values.generated import Avro, Case, Json

SCHEMAS = 150
VALUES = 10  # values of each type


def seen(converter: BatchConverter, data: list[bytes]) -> tuple[pa.DataType, list[Any]]:
    """Return a converted batch; the converter converts each value alone, too."""
    made = converter.convert("t", pa.array([None, *data, None], pa.binary()))
    assert not made.failed, made.failed
    (piece,) = made.pieces
    assert list(piece.rows) == list(range(1, len(data) + 1))
    assert isinstance(piece.content, pa.Array)
    piece.content.validate(full=True)
    objects = plain(piece.content)
    assert [plain(piece.content[row : row + 1])[0] for row in range(len(data))] == objects, "slices"
    for style in (CONNECT_JSON, SPARK_JSON):
        texts = to_json(piece.content, style).to_pylist()
        assert [text is None for text in texts] == [value is None for value in objects]
        for text in texts:
            json.loads(text or "null")
    return piece.content.type, objects


def check(converter: BatchConverter, cases: list[Case], data: list[bytes]) -> int:
    _, objects = seen(converter, data)
    for case, found in zip(cases, objects, strict=True):
        assert found == case.seen
        assert types_of(found) == types_of(case.seen)
    return len(cases)


def types_of(value: Any) -> Any:
    """Return a value's types, because in Python 1 equals True, and a datetime is a date."""
    if isinstance(value, dict):
        return {key: types_of(item) for key, item in value.items()}
    return [types_of(item) for item in value] if isinstance(value, list) else type(value)


@pytest.mark.parametrize("seed", range(4))
def test_avro_round_trip(seed: int) -> None:
    # Connect's unions of several types are structures with a field per type.
    compared = 0
    for number in range(SCHEMAS):
        avro = Avro(random.Random(f"{seed} {number}"))  # noqa: S311 - no secret
        schema = avro.schema()
        parsed = fastavro.parse_schema(schema)
        cases = [avro.case(schema) for _ in range(VALUES)]
        data = []
        for case in cases:
            buffer = io.BytesIO()
            fastavro.schemaless_writer(buffer, parsed, case.written)
            datum = buffer.getvalue()
            if kind_of(schema) == "bytes":  # Confluent's serializer writes these without their length
                datum = datum[1:] if len(datum) < 65 else datum[2:]
            data.append(struct.pack(">bI", 0, number) + datum)
        compared += check(AvroConverter(lambda _, parsed=parsed: parsed), cases, data)
    assert compared == SCHEMAS * VALUES


def kind_of(schema: Any) -> Any:
    return kind_of(schema["type"]) if isinstance(schema, dict) else schema


@pytest.mark.parametrize("seed", range(4))
def test_envelope_round_trip(seed: int) -> None:
    compared = 0
    for number in range(SCHEMAS):
        draw = Json(random.Random(f"{seed} {number}"))  # noqa: S311 - no secret
        schema = draw.connect()
        cases = [draw.connect_case(schema) for _ in range(VALUES)]
        spaces = (", ", ": ") if number % 2 else (",", ":")
        data = [
            json.dumps({"schema": schema, "payload": case.written}, separators=spaces).encode()
            for case in cases
        ]
        compared += check(JsonConverter(schemas_enable=True), cases, data)
    assert compared == SCHEMAS * VALUES


def test_ddl_round_trip() -> None:
    compared = 0
    for number in range(SCHEMAS):
        draw = Json(random.Random(number))  # noqa: S311 - no secret
        kinds = {f"c{column}": draw.ddl() for column in range(3)}
        ddl = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
        fields = [{"name": name, "type": described(kind)} for name, kind in kinds.items()]
        cases = [draw.ddl_case({"type": "struct", "fields": fields}) for _ in range(VALUES)]
        cases = [case for case in cases if case.written is not None]
        data = [json.dumps(case.written, ensure_ascii=number % 2 == 0).encode() for case in cases]
        compared += check(JsonConverter(schema=ddl), cases, data)
    assert compared > SCHEMAS * VALUES * 0.7


def described(kind: str) -> Any:
    """Return a type of the generated DDL in Spark's JSON of types, parsed independently of sinksdk."""
    head, _, rest = kind.partition("<")
    head, inner = head.lower(), rest[:-1]
    match head:
        case "array":
            return {"type": "array", "elementType": described(inner)}
        case "map":
            return {"type": "map", "valueType": described(inner.partition(", ")[2])}
        case "struct":
            parts, depth, begin = [], 0, 0
            for place, mark in enumerate(f"{inner},"):
                depth += {"<": 1, ">": -1, "(": 1, ")": -1}.get(mark, 0)
                if mark == "," and not depth:
                    parts.append(inner[begin:place].strip())
                    begin = place + 1
            pairs = (part.split(": ", 1) for part in parts)
            return {"type": "struct", "fields": [{"name": n, "type": described(k)} for n, k in pairs]}
    return {"int": "integer", "bigint": "long", "smallint": "short", "tinyint": "byte"}.get(head, head)
