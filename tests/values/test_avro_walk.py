"""Walks of Avro data, in C and in Python, compared with Java's Avro."""

from __future__ import annotations

import io
import json
import random
import struct
from collections.abc import Iterator
from typing import Any, Final

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from fastavro.utils import generate_many

from sinksdk.errors import DataException
from sinksdk.values.avro_schema import AvroSchema, as_schema, parse_schema
from sinksdk.values.avro_walk import (
    MOST_DEPTH,
    Fit,
    RowLoop,
    compiled_block,
    compiled_rows,
    plain_block,
    plain_rows,
    program_of,
    repaired,
    walk,
    walk_framed,
    why_not,
)
from tests.helpers.needs import missing
from tests.kafka.maven import MavenError
from tests.values.java_avro import VERSIONS, run_java

NODE: Final[Any] = {
    "type": "record",
    "name": "A",
    "fields": [
        {"name": "i", "type": "int"},
        {"name": "s", "type": "string"},
        {"name": "u", "type": ["null", "A", "long"]},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["x", "y"]}},
        {"name": "m", "type": {"type": "map", "values": ["boolean", "double"]}},
        {"name": "r", "type": {"type": "array", "items": "bytes"}},
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "z", "type": {"type": "array", "items": {"type": "record", "name": "Z", "fields": []}}},
    ],
}
SCHEMAS: Final[dict[str, Any]] = {
    "record": NODE,
    **{name: name for name in ("null", "boolean", "int", "long", "float", "double", "bytes", "string")},
    "array": {"type": "array", "items": "int"},
    "map": {"type": "map", "values": "string"},
    "union": ["null", "string", "int"],
}
PARSED: Final[dict[str, AvroSchema]] = {name: as_schema(schema) for name, schema in SCHEMAS.items()}
LOOPS: Final = pytest.mark.parametrize("loop", [plain_rows, compiled_rows], ids=["plain", "compiled"])


def node(dice: random.Random) -> dict[str, Any]:
    made = {
        "i": dice.randrange(-70_000, 70_000),
        "s": dice.choice(["", "a", "äö", "x" * 70]),
        "u": dice.choice([None, 5, -1]),
        "e": "x",
        "m": {"k": dice.choice([True, 1.5])},
        "r": [b"1", b""],
        "f": b"abc",
        "z": [{}] * dice.choice([0, 2]),
    }
    return {**made, "u": made} if dice.random() < 0.3 else made


def datums(name: str, dice: random.Random) -> Iterator[bytes]:
    schema: Any = fastavro.parse_schema(SCHEMAS[name])
    for value in (node(dice) for _ in range(8)) if name == "record" else generate_many(schema, 8):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, value)
        yield out.getvalue()


def broken(datum: bytes, dice: random.Random) -> bytes:
    made = bytearray(datum)
    for _ in range(dice.choice([1, 1, 2])):
        kind, place = dice.random(), dice.randrange(len(made) + 1)
        if kind < 0.5 and place < len(made):
            made[place] = dice.choice([0, 1, 2, 3, 0x7F, 0x80, 0xFF, 0xFE, dice.randrange(256)])
        elif kind < 0.7:
            del made[place : place + 1]
        elif kind < 0.9:
            made.insert(place, dice.choice([0, 1, 2, 3, 0x80, 0xFF]))
        else:
            made += bytes(dice.choices([0, 0xFF, 0x80, 1, 2], k=12))
    return bytes(made)


def fuzzed(seed: int) -> dict[str, list[bytes]]:
    """Return valid and broken data, by the name of their schema."""
    dice = random.Random(seed)  # noqa: S311 - tests
    found = {}
    for name in SCHEMAS:
        good = list(datums(name, dice))
        noise = [
            bytes(dice.choices([0, 1, 2, 3, 4, 0x7F, 0x80, 0xFF, 0x61], k=dice.randrange(14)))
            for _ in range(60)
        ]
        found[name] = [*good, *(broken(each, dice) for each in good for _ in range(20)), *noise]
    return found


@pytest.mark.parametrize("seed", range(3))
def test_c_and_python_walks_return_the_same_results(seed: int) -> None:
    if compiled_rows is None:
        missing("sinksdk's compiled part", "there was no C compiler when it was installed")
    for name, values in fuzzed(seed).items():
        column = pa.array([*values, None], pa.binary())
        programs = ((0, program_of(PARSED[name])),)
        for part in (column, column[3:], column.cast(pa.large_binary())):
            one, other = compiled_rows(part, programs, False), plain_rows(part, programs, False)
            assert one.fits.tolist() == other.fits.tolist(), name
            assert one.ends.tolist() == other.ends.tolist(), name


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_data_fit_if_java_reads_them(version: str) -> None:
    cases = [(name, value) for name, values in fuzzed(1).items() for value in values]
    try:
        asked = run_java(version, [f"{json.dumps(SCHEMAS[name])}\t{value.hex()}" for name, value in cases])
    except MavenError as error:
        missing("Java's Avro", f"its jars come from Maven Central: {error}")
    for (name, value), said in zip(cases, asked, strict=True):
        (end,), (fit,) = walk(pa.array([value], pa.binary()), PARSED[name])
        assert (fit >= Fit.ENDS_EARLY) == said.startswith("!"), (name, value.hex(), said)
        if fit < Fit.ENDS_EARLY:
            its_end, _, its = said.partition("\t")
            mine = repaired(value, 0, PARSED[name])
            assert end == int(its_end), (name, value.hex())
            assert read(name, mine) == read(name, bytes.fromhex(its)), (name, value.hex())


def read(name: str, datum: bytes) -> str:
    """Return a datum's value, with unordered maps."""
    return json.dumps(PARSED[name].reader(io.BytesIO(datum)), sort_keys=True, default=repr)


@LOOPS
@pytest.mark.parametrize(
    ("name", "datum", "fit", "end"),
    [
        ("int", "02", Fit.FITS, 1),
        ("int", "0200", Fit.LONGER, 1),
        ("int", "", Fit.ENDS_EARLY, 0),
        ("int", "80", Fit.ENDS_EARLY, 0),
        ("int", "808080808001", Fit.BAD_NUMBER, 0),
        ("int", "ffffffff7f", Fit.ODD, 5),
        ("long", "80808080808080808001", Fit.FITS, 10),
        ("long", "8080808080808080808001", Fit.BAD_NUMBER, 0),
        ("boolean", "02", Fit.ODD, 1),
        ("double", "00000000000000", Fit.ENDS_EARLY, 0),
        ("bytes", "01", Fit.BAD_LENGTH, 0),
        ("bytes", "04ff", Fit.ENDS_EARLY, 0),
        ("string", "04c3a4", Fit.FITS, 3),
        ("string", "02ff", Fit.ODD, 2),
        ("string", "06eda080", Fit.ODD, 4),
        ("union", "06", Fit.BAD_BRANCH, 0),
        ("union", "01", Fit.BAD_BRANCH, 0),
        ("array", "0402040000", Fit.LONGER, 4),
        ("array", "030402040000", Fit.LONGER, 5),
        ("array", "030602040000", Fit.ODD, 5),
        ("array", "feffffffffffffffff01", Fit.BAD_LENGTH, 0),
        ("array", "ffffffffffffffffff0100", Fit.BAD_LENGTH, 0),
        ("null", "", Fit.FITS, 0),
        ("null", "00", Fit.LONGER, 0),
    ],
)
def test_walk_returns_fit_and_end(loop: RowLoop | None, name: str, datum: str, fit: Fit, end: int) -> None:
    if loop is None:
        missing("sinksdk's compiled part", "there was no C compiler when it was installed")
    column = pa.array([bytes.fromhex(datum)], pa.binary())
    found = loop(column, ((0, program_of(PARSED[name])),), False)
    assert (Fit(found.fits[0]), found.ends[0]) == (fit, end)


@LOOPS
@pytest.mark.parametrize(("levels", "fit"), [(MOST_DEPTH // 2 - 2, Fit.FITS), (MOST_DEPTH, Fit.TOO_DEEP)])
def test_data_may_have_2000_levels(loop: RowLoop | None, levels: int, fit: Fit) -> None:
    if loop is None:
        missing("sinksdk's compiled part", "there was no C compiler when it was installed")
    schema = as_schema({"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]})
    column = pa.array([b"\x02" * levels + b"\x00"], pa.binary())
    assert loop(column, ((0, program_of(schema)),), False).fits.tolist() == [fit]


def test_types_without_bytes_are_not_walked() -> None:
    # A walk through a hundred levels of two empty records each would never end.
    kind: Any = {"type": "record", "name": "N0", "fields": []}
    for level in range(1, 100):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"N{level - 1}"}]
        kind = {"type": "record", "name": f"N{level}", "fields": fields}
    assert walk(pa.array([b"", b"x"], pa.binary()), as_schema(kind)).fits.tolist() == [Fit.FITS, Fit.LONGER]


def test_framed_values_are_walked_by_schema_id() -> None:
    values = [
        None,
        b"",
        b"\x01\0\0\0\7\2",
        struct.pack(">bI", 0, 7) + b"\2",
        struct.pack(">bI", 0, 2**32 - 1) + b"abc",
        struct.pack(">bI", 0, 8) + b"\2",
    ]
    schemas = {7: PARSED["int"], 2**32 - 1: PARSED["bytes"]}
    found = walk_framed(pa.array(values, pa.binary()), schemas)
    assert found.fits.tolist() == [
        *(Fit.NULL, Fit.NOT_FRAMED, Fit.NOT_FRAMED),
        *(Fit.FITS, Fit.ODD, Fit.UNKNOWN),
    ]
    assert found.ends.tolist() == [0, 0, 0, 6, 8, 0]
    assert repaired(values[4] or b"", 5, PARSED["bytes"], is_framed=True) == b"\6abc"


@pytest.mark.parametrize(
    ("name", "given", "canonical"),
    [
        ("string", b"\4\xffa", "\ufffda".encode().join([b"\x08", b""])),
        ("boolean", b"\2", b"\0"),
        ("array", b"\3\6\2\4\0", b"\4\2\4\0"),
        ("int", b"\xff\xff\xff\xff\x7f", b"\xff\xff\xff\xff\x0f"),
        ("int", b"\2rest", b"\2"),
    ],
)
def test_repaired_is_the_datum_that_java_reads(name: str, given: bytes, canonical: bytes) -> None:
    assert repaired(given, 0, PARSED[name]) == canonical


@LOOPS
@pytest.mark.parametrize("kind", ["array", "map"])
def test_fills_items_replaces_nulls_in_arrays_and_maps(kind: str, loop: RowLoop | None) -> None:
    # Connect's JsonConverter replaces them; AvroData, and so Avro and Parquet files, keep null.
    item = ["null", {"type": "int", "connect.default": 5}]
    schema = parse_schema(json.dumps({"type": kind, "items": item, "values": item}), replaces_nulls=True)
    name = b"\2k" if kind == "map" else b""
    given = b"\2" + name + b"\0" + b"\0"
    assert repaired(given, 0, schema) == given
    filled = b"\2" + name + b"\2\x0a" + b"\0"
    assert repaired(given, 0, schema, fills_items=True) == filled
    if loop is not None:
        for fills_items, fit in ((False, Fit.FITS), (True, Fit.ODD)):
            program = program_of(schema, is_framed=True, fills_items=fills_items)
            found = loop(pa.array([bytes(5) + given]), ((0, program),), True)
            assert found.fits.tolist() == [fit]


def test_repaired_refuses_data_that_do_not_fit() -> None:
    with pytest.raises(DataException, match="it is too short"):
        repaired(b"\4a", 0, PARSED["string"])
    assert {why_not(fit, 3) for fit in Fit if fit >= Fit.ENDS_EARLY}


@pytest.mark.parametrize("loop", [plain_block, compiled_block], ids=["plain", "compiled"])
def test_walk_block_returns_ends_and_the_first_misfit(loop: Any) -> None:
    if loop is None:
        missing("sinksdk's compiled part", "there was no C compiler when it was installed")
    program = program_of(PARSED["string"])
    for data, rows, ends, fit in (
        (b"\2a\0\4bc", 3, [2, 3, 6], Fit.FITS),
        (b"\2a\0\4bc", 2, [2, 3], Fit.LONGER),
        (b"\2a\0\4b", 3, [2, 3], Fit.ENDS_EARLY),
        (b"\2\xff\0", 2, [2, 3], Fit.ODD),
        (b"", 0, [], Fit.FITS),
    ):
        found, how = loop(data, rows, program)
        assert (found.tolist(), how) == (ends, fit)


def test_invalid_programs_are_refused() -> None:
    # The C loop must never read outside a program or a buffer.
    if compiled_rows is None:
        missing("sinksdk's compiled part", "there was no C compiler when it was installed")
    column = pa.array([b"\2"], pa.binary())
    dice = random.Random(5)  # noqa: S311 - tests
    sound = np.frombuffer(program_of(PARSED["record"]), np.int32)
    for code in ([], [1], [2, 0], [1, 99], [1, 8, 7], [1, 11, 5, 1], [1, 10, -1], [1, 8, 2]):
        with pytest.raises(ValueError, match="not sound"):
            compiled_rows(column, ((0, np.array(code, np.int32).tobytes()),), False)
    for _ in range(500):
        code = sound.copy()
        code[dice.randrange(len(code))] = dice.randrange(-3, 40)
        try:
            compiled_rows(column, ((0, code.tobytes()),), False)
        except ValueError:
            continue
