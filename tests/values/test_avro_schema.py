"""Avro schemas of registries, parsed like Java's Avro, and headers of files."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from sinksdk.errors import DataException
from sinksdk.values import avro
from sinksdk.values.avro import avro_type
from sinksdk.values.avro_schema import CONNECT_DECIMAL, as_schema, named_types, parse_schema
from tests.helpers.needs import missing
from tests.kafka.maven import MavenError
from tests.values.java_avro import VERSIONS, run_java, shown, stored_results


def resolved_types(schema: str) -> str:
    """Return a schema in the format of Java's results."""
    try:
        resolved = parse_schema(schema).resolved
    except DataException:
        return "!"
    # AvroData has this logical type, Avro does not.
    return shown(resolved, named_types(resolved)).replace(f"~{CONNECT_DECIMAL}", "")


@pytest.mark.parametrize("result", stored_results(), ids=lambda result: result.schema[:80])
def test_schemas_resolve_as_in_java(result: Any) -> None:
    java = ["!" if each.startswith("!") else each.replace("~uuid", "") for each in result.types]
    assert resolved_types(result.schema) in java
    if "!" in java and set(java) != {"!"}:
        assert resolved_types(result.schema) != "!"


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_stored_results_equal_those_of_javas_avro(version: str) -> None:
    results = stored_results()
    try:
        current = run_java(version, [result.schema for result in results])
    except MavenError as error:
        missing("Java's Avro", f"its jars come from Maven Central: {error}")
    assert current == [result.types[VERSIONS.index(version)] for result in results]


def record(kind: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "namespace": "x", "fields": [{"name": "f", "type": kind, **more}]}


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}


@pytest.mark.parametrize(
    "schema",
    [
        record("string"),
        record(["null", "string"], default="x", doc="the default is of the second branch"),
        record({**ENUM, "default": "A"}, aliases=["g"]),
        record({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2, "x": [1]}),
        {**record("int"), "namespace": "com.acme.Outer$"},
        {"type": "record", "name": "größe", "fields": []},
    ],
    ids=["plain", "second-branch", "enum", "decimal", "dollar", "letters"],
)
def test_avro_file_header_equals_the_registrys_schema(schema: Any) -> None:
    text = json.dumps(schema, indent=1)
    assert parse_schema(text).readable == text
    fastavro.parse_schema(schema)


@pytest.mark.parametrize(
    ("schema", "readable"),
    [
        (record("string", default=None), record("string")),
        (record("int", default=1.0), record("int")),
        (record(["string", "int"], default=[]), record(["string", "int"])),
        (record({**ENUM, "default": "C"}, default=5), record(ENUM)),
        (record({"type": "array", "items": "int"}, default={}), record({"type": "array", "items": "int"})),
        (
            record({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 5}),
            record({"type": "bytes", "precision": 2, "scale": 5}),
        ),
        (
            record({"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal", "precision": 40}),
            record({"type": "fixed", "name": "F", "size": 1, "precision": 40}),
        ),
        (
            {"type": "record", "name": "A", "fields": [{"name": "n", "type": ["null", ".A"]}]},
            {"type": "record", "name": "A", "fields": [{"name": "n", "type": ["null", "A"]}]},
        ),
    ],
    ids=["null", "float", "union", "enum", "array", "decimal", "fixed", "dot"],
)
def test_avro_file_header_omits_parts_that_other_readers_refuse(schema: Any, readable: Any) -> None:
    found = parse_schema(json.dumps(schema))
    assert json.loads(found.readable) == readable
    assert json.loads(found.text) == schema
    fastavro.parse_schema(json.loads(found.readable))


def test_references_are_expanded_at_their_first_use() -> None:
    address = {"type": "record", "name": "Address", "fields": [{"name": "at", "type": "x.At"}]}
    at = {
        "type": "record",
        "name": "x.At",
        "fields": [{"name": "e", "type": ENUM}, {"name": "back", "type": ["null", "At"]}],
    }
    kinds: dict[str, Any] = {"home": "Address", "work": "Address", "state": "x.E"}
    root = {
        "type": "record",
        "name": "Person",
        "fields": [{"name": name, "type": kind} for name, kind in kinds.items()],
    }
    found = parse_schema(json.dumps(root), [at, address])
    parsed: Any = fastavro.parse_schema(json.loads(found.readable))
    out = io.BytesIO()
    place = {"at": {"e": "B", "back": None}}
    fastavro.schemaless_writer(out, parsed, {"home": place, "work": place, "state": "A"})
    out.seek(0)
    assert found.reader(out) == {"home": place, "work": place, "state": "A"}
    assert set(named_types(found.resolved)) == {"Person", "Address", "x.At", "x.E"}


def test_name_may_be_used_before_its_definition() -> None:
    # Java 1.12 accepts this; for other readers the header contains the definition first.
    fields = [{"name": "a", "type": "E"}, {"name": "b", "type": ENUM}]
    found = parse_schema(json.dumps({"type": "record", "name": "x.R", "fields": fields}))
    fastavro.parse_schema(json.loads(found.readable))
    assert found.reader(io.BytesIO(b"\x02\x00")) == {"a": "B", "b": "A"}


@pytest.mark.parametrize("wrap", [lambda kind: kind, lambda kind: ["null", kind]], ids=["record", "union"])
def test_enum_symbols_beyond_ascii_are_read(wrap: Any) -> None:
    schema = as_schema(wrap(record({"type": "enum", "name": "E", "symbols": ["größe", "höhe"]})))
    branch = b"\x02" if isinstance(schema.resolved, list) else b""
    assert schema.reader(io.BytesIO(branch + b"\x02")) == {"f": "höhe"}


@pytest.mark.parametrize(
    ("wrap", "data", "expected"),
    [
        (lambda kind: kind, b"\x02", "höhe"),
        (lambda kind: {"type": "array", "items": kind}, b"\x02\x02\x00", ["höhe"]),
        (lambda kind: {"type": "map", "values": kind}, b"\x02\x02a\x02\x00", {"a": "höhe"}),
        (lambda kind: {"type": "array", "items": record(kind)}, b"\x02\x02\x00", [{"f": "höhe"}]),
    ],
    ids=["enum", "array", "map", "array-of-records"],
)
def test_enum_symbols_beyond_ascii_are_read_outside_records(wrap: Any, data: bytes, expected: Any) -> None:
    # If a schema is no record's, fastavro parses it again for each datum.
    schema = as_schema(wrap({"type": "enum", "name": "E", "symbols": ["größe", "höhe"]}))
    assert schema.reader(io.BytesIO(data)) == expected


@pytest.mark.parametrize(
    "text",
    [
        '/* of "a" */ "string"',
        '"string" // of a',
        '{"type": "string", /* a\n "b */ "doc": "no // comment, \\"/* no */"}',
        '// first\r\n"string"',
    ],
)
def test_comments_are_accepted_as_in_java(text: str) -> None:
    found = parse_schema(text)
    assert found.resolved == "string"
    assert found.text == text
    readable = json.loads(found.readable)
    assert readable == "string" or readable["doc"] == 'no // comment, "/* no */'


@pytest.mark.parametrize("text", ['/ * */ "string"', '/* "string"', '# a\n"string"', '// "string"'])
def test_invalid_comments_are_refused(text: str) -> None:
    with pytest.raises(DataException, match="not JSON"):
        parse_schema(text)


def test_invalid_schema_is_refused_with_a_reason() -> None:
    for text, why in (("{", "not JSON"), ('{"type": "record"}', "has no name"), ("[" * 100_000, "levels")):
        with pytest.raises(DataException, match=why):
            parse_schema(text)


def record_of(name: str, *types: Any) -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields}


def arrow_type(schema: Any) -> pa.DataType | None:
    return avro_type(parse_schema(json.dumps(schema)).resolved)


@pytest.mark.parametrize(("records", "is_typed"), [(49, True), (50, False)])
def test_a_reference_by_name_is_a_level_of_an_arrow_type(*, records: int, is_typed: bool) -> None:
    # Each record has a field of the record before it, so the last one has two levels for each record.
    links = [record_of("R0", "int"), *(record_of(f"R{n}", f"R{n - 1}") for n in range(1, records))]

    assert (arrow_type(record_of("All", *links)) is not None) == is_typed


def test_enumerations_and_branches_count_as_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro, "_MOST_TYPES", 20)
    enums = [{"type": "enum", "name": f"E{number}", "symbols": ["A"]} for number in range(25)]

    assert arrow_type(record_of("Few", *enums[:15])) is not None
    assert arrow_type(record_of("Many", *enums)) is None
    assert arrow_type(record_of("Unions", enums[:8], enums[8:16], "int")) is None
