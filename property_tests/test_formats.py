"""Files hold exactly the given values, wherever batches are cut."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import struct
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from property_tests.exercised import EXERCISED
from sinksdk import read_json
from sinksdk.connectors.s3_archiver.formats.avro_value import AvroValues, schema_ids
from sinksdk.connectors.s3_archiver.formats.base import Format
from sinksdk.connectors.s3_archiver.formats.lines import JsonLines, RawBytes
from sinksdk.connectors.s3_archiver.formats.values import Fate, ValueKind, compiled_values, plain_values
from sinksdk.values.json_text import Verdict, compiled_scan, plain_scan
from tests.helpers.needs import missing
from tests.s3_archiver.format_support import ORDERS, batch, encode, file_of, json_batch, pieces_of

RUN = settings(max_examples=200, deadline=None)
exercised = EXERCISED["formats"]

ENVELOPE = b'{"schema":{},"payload":'
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "n", "type": "long"}, {"name": "s", "type": ["null", "string"]}],
}

jsons = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
written = st.builds(
    lambda value, indent, is_ascii: json.dumps(value, indent=indent, ensure_ascii=is_ascii).encode(
        errors="surrogatepass"
    ),
    jsons,
    st.sampled_from([None, 0, 1, "\t"]),
    st.booleans(),
)
almost = st.lists(
    st.sampled_from(
        [
            b"{",
            b"}",
            b"[",
            b"]",
            b'"',
            b",",
            b":",
            b"\\",
            b"\n",
            b"\r",
            b" ",
            b"a",
            b"1",
            b"\xff",
            b"\x80",
            b"\xe2\x9c",
            "ä✈".encode(),
            ("ä" * 17).encode(),
            b"schema",
        ]
    ),
    max_size=12,
).map(b"".join)
anything = written | almost | st.binary(max_size=12)
enveloped = anything.map(lambda payload: ENVELOPE + payload + b"}") | almost.map(lambda rest: ENVELOPE + rest)
framed = st.binary(max_size=8).map(lambda datum: b"\0\0\0\0\x01" + datum) | st.binary(max_size=7)
values = st.lists(st.none() | anything | enveloped | framed, max_size=12)


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    given_values = draw(values)
    kind = draw(st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()]))
    column = pa.array(given_values, pa.binary()).cast(kind)
    start = draw(st.integers(0, len(column)))
    return column.slice(start, draw(st.integers(0, len(column))))


@pytest.mark.parametrize("kind", ValueKind)
@given(column=columns())
@RUN
def test_compiled_and_plain_loop_agree(kind: ValueKind, column: pa.Array) -> None:
    if compiled_values is None:
        missing("the compiled loop", "install with a C compiler")
    before = bytes(5) if kind is ValueKind.FRAMED else b""
    if kind is ValueKind.JSON:  # this format gets only JSON that the converter has checked
        column = read_json(column.cast(pa.binary())).column.storage
    known = column.cast(pa.large_binary())
    ours, plain = compiled_values(known, kind, before, b"\n"), plain_values(known, kind, before, b"\n")
    assert ours.fates.tolist() == plain.fates.tolist()
    assert ours.rows.borders.tolist() == plain.rows.borders.tolist()
    assert bytes(ours.rows.payload) == bytes(plain.rows.payload)
    for fate in ours.fates.tolist():
        exercised[f"{kind.name}: {Fate(fate).name}"] += 1


@given(column=columns())
@RUN
def test_compiled_and_plain_json_scan_agree(column: pa.Array) -> None:
    if compiled_scan is None:
        missing("the compiled scan", "install with a C compiler")
    known = column.cast(pa.large_binary())
    ours = compiled_scan(known)
    assert ours.tolist() == plain_scan(known).tolist()
    for verdict in ours.tolist():
        exercised[f"scan: {Verdict(verdict).name}"] += 1


@given(documents=st.lists(written, min_size=1, max_size=8))
@RUN
def test_json_lines_parse_to_the_same_values(documents: list[bytes]) -> None:
    texts = read_json(pa.array(documents, pa.binary()))
    assert list(texts.failed) == [row for row, document in enumerate(documents) if not _is_text(document)]
    expected = [value for value in map(json.loads, filter(_is_text, documents)) if value is not None]
    lines = b"".join(pieces_of(encode(JsonLines(nulls="ignore"), batch(texts.column)))).decode().split("\n")
    assert lines.pop() == ""
    assert list(map(json.loads, lines)) == expected
    exercised["JSON read back"] += len(lines)


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(column=columns())
@RUN
def test_a_row_is_one_line_of_json_or_bad_or_null(column: pa.Array) -> None:
    values = column.cast(pa.binary())
    texts = read_json(values)
    lines = pieces_of(encode(JsonLines(nulls="ignore"), batch(texts.column)))
    assert len(lines) == len(texts.rows)
    for line in lines:
        assert line.endswith(b"\n")
        assert not {*b"\r\n"} & {*line[:-1]}
        json.loads(line, parse_constant=_refuse)
    for row in texts.failed:
        exercised["bad JSON"] += 1
        with pytest.raises((ValueError, RecursionError)):
            json.loads(values[row].as_py().decode("utf-8-sig"), parse_constant=_refuse)


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


# -- batches cut anywhere ----------------------------------------------------------------------------------


def _avro(number: int, text: str | None) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), {"n": number, "s": text})
    return struct.pack(">bI", 0, 1) + out.getvalue()


FORMATS: dict[str, Callable[[], Format[Any]]] = {
    "json": JsonLines,
    "json.gz": lambda: JsonLines(gzip_level=1, block_bytes=64),
    "bin": RawBytes,
    "bin.gz": lambda: RawBytes(gzip_level=6, block_bytes=64),
    "avro": lambda: AvroValues(lambda _: fastavro.parse_schema(SCHEMA), "deflate", block_bytes=64),
}


@pytest.mark.parametrize("name", FORMATS)
@given(
    rows=st.lists(
        st.tuples(st.integers(-(2**40), 2**40), st.none() | st.text(max_size=40)), min_size=1, max_size=30
    ),
    data=st.data(),
)
@RUN
def test_a_file_is_the_same_however_batches_are_cut(
    name: str, rows: list[tuple[int, str | None]], data: Any
) -> None:
    if name == "avro":
        given_values = [_avro(*row) for row in rows]
    else:
        given_values = [json.dumps(row, indent=row[0] % 2 or None).encode() for row in rows]
    format_ = FORMATS[name]()
    batch_of = json_batch if name.startswith("json") else batch
    format_.kinds(ORDERS, batch_of(given_values))
    whole = file_of(format_, [encode(format_, batch_of(given_values)).rows], 1)
    places = st.lists(st.integers(0, len(rows)), max_size=4).map(sorted)
    pieces = []
    for begin, end in itertools.pairwise([0, *data.draw(places), len(rows)]):
        encoded = encode(format_, batch_of(given_values[begin:end])).rows
        middle = data.draw(st.integers(0, end - begin))
        pieces += [encoded.slice(0, middle), encoded.slice(middle, end - begin)]
    assert file_of(format_, pieces, 1) == whole
    exercised[f"{name}: cuts"] += len(pieces)
    if name == "avro":
        assert list(fastavro.reader(io.BytesIO(whole))) == [{"n": n, "s": text} for n, text in rows]
    elif name.startswith("json"):
        lines = gzip.decompress(whole) if name.endswith("gz") else whole
        assert [json.loads(line) for line in lines.decode().split("\n")[:-1]] == [list(row) for row in rows]


@given(column=columns())
@RUN
def test_schema_ids_follow_the_framing(column: pa.Array) -> None:
    expected = [
        -2 if value is None else -1 if len(value) < 5 or value[0] else struct.unpack(">I", value[1:5])[0]
        for value in column.to_pylist()
    ]
    assert schema_ids(column).tolist() == expected
