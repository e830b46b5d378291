"""``connect.default``: the null of a nullable Avro field is read as its default."""

from __future__ import annotations

import io
import json
from typing import Any, Final

import fastavro
import pyarrow as pa
import pytest

from sinksdk.values.avro_defaults import datum_of
from sinksdk.values.avro_schema import AvroSchema, as_schema, named_types, parse_schema
from sinksdk.values.avro_walk import (
    Fit,
    compiled_rows,
    plain_rows,
    program_of,
    repaired,
    walk,
)
from tests.helpers.needs import missing

INNER: Final = {"type": "record", "name": "In", "fields": [{"name": "n", "type": "int"}]}
KINDS: Final[list[tuple[Any, Any, Any]]] = [
    ("boolean", True, True),
    ("int", -7, -7),
    ("long", 2**62, 2**62),
    ("float", 0.5, 0.5),
    ("double", 3, 3.0),
    ("string", "ä", "ä"),
    ("bytes", "\u00ff\u0000", b"\xff\0"),
    ({"type": "fixed", "name": "F", "size": 2}, "ab", b"ab"),
    ({"type": "enum", "name": "E", "symbols": ["X", "Y"]}, "Y", "Y"),
    ({"type": "array", "items": "int"}, [1, 2], [1, 2]),
    ({"type": "array", "items": "int"}, [], []),
    ({"type": "map", "values": ["null", "int"]}, {"a": 1, "b": None}, {"a": 1, "b": None}),
    (INNER, {"n": 3}, {"n": 3}),
]


def nullable(kind: Any, default: Any, *, is_null_first: bool = False) -> AvroSchema:
    """Return a record with a nullable field, as AvroData writes the schema of one with a default."""
    typed = {**({"type": kind} if isinstance(kind, str) else kind), "connect.default": default}
    branches: list[Any] = ["null", typed] if is_null_first else [typed, "null"]
    fields = [{"name": "a", "type": branches}, {"name": "z", "type": "string"}]
    return parse_schema(json.dumps({"type": "record", "name": "R", "fields": fields}), replaces_nulls=True)


@pytest.mark.parametrize("is_null_first", [True, False])
@pytest.mark.parametrize(("kind", "default", "value"), KINDS)
def test_null_is_read_as_the_default(kind: Any, default: Any, value: Any, *, is_null_first: bool) -> None:
    schema = nullable(kind, default, is_null_first=is_null_first)
    null, good = (0, 2) if is_null_first else (2, 0)
    given = bytes([null]) + b"\x02z"

    for loop in (plain_rows, compiled_rows):
        if loop is None:
            missing("sinksdk's compiled part", "there was no C compiler when it was installed")
        assert loop(pa.array([given]), ((0, program_of(schema)),), False).fits.tolist() == [Fit.ODD]
    written = repaired(given, 0, schema)
    assert written[0] == good
    assert schema.reader(io.BytesIO(written)) == {"a": value, "z": "z"}
    assert walk(pa.array([written]), schema).fits.tolist() == [Fit.FITS]


def test_null_is_kept_without_replaces_nulls() -> None:
    text = nullable("int", 7).text
    assert walk(pa.array([b"\x02\x02z"]), parse_schema(text)).fits.tolist() == [Fit.FITS]
    assert as_schema(json.loads(text)).resolved["fields"][0].keys() == {"name", "type"}


@pytest.mark.parametrize(("kind", "default"), [("int", "7"), ("int", 2**40), ("string", 1), (INNER, {})])
def test_default_of_another_type_is_ignored(kind: Any, default: Any) -> None:
    assert walk(pa.array([b"\x02\x02z"]), nullable(kind, default)).fits.tolist() == [Fit.FITS]


def test_default_of_a_named_type_applies_to_all_its_fields() -> None:
    inner = {**INNER, "connect.default": {"n": 3}}
    outer = {"type": "record", "name": "Out", "fields": [{"name": "b", "type": ["null", "In"]}]}
    fields = [{"name": "a", "type": [inner, "null"]}, {"name": "o", "type": outer}]
    schema = parse_schema(json.dumps({"type": "record", "name": "R", "fields": fields}), replaces_nulls=True)

    assert schema.reader(io.BytesIO(repaired(b"\x02\x00", 0, schema))) == {
        "a": {"n": 3},
        "o": {"b": {"n": 3}},
    }


@pytest.mark.parametrize(("kind", "default", "value"), KINDS)
def test_encoded_defaults_equal_fastavros(kind: Any, default: Any, value: Any) -> None:
    schema, expected = as_schema(kind), io.BytesIO()
    fastavro.schemaless_writer(expected, fastavro.parse_schema(kind), value)
    assert datum_of(default, schema.resolved, named_types(schema.resolved)) == expected.getvalue()
