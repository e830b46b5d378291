"""``JsonFormat``: each line is a value that a JSON reader gives back."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pyarrow as pa
import pyarrow.json as pa_json
import pytest

from sinksdk import ConfigException
from sinksdk.connectors.s3_archiver.formats.json_lines import JsonLines
from sinksdk.connectors.s3_archiver.formats.values import NullBehavior
from tests.s3_archiver.format_support import FIRST, batch, encode, file_of, pieces_of, reasons

SCHEMA = '{"type":"struct","fields":[{"type":"int32","field":"a"}],"optional":false}'


def envelope(payload: str, schema: str = SCHEMA) -> bytes:
    """As Connect's JsonConverter writes it."""
    return f'{{"schema":{schema},"payload":{payload}}}'.encode()


def test_a_value_is_a_line() -> None:
    """Values: each is a line, in their order, and as it was written unless it holds a line's end."""
    values = [
        b'{"a": 1.50}',
        b"[1, 2]",
        b'"x"',
        b'{"a":\n  1.50}',
        "{'ä'}".replace("'", '"').encode(),
        b" 7 ",
    ]
    values[4] = '{"ä":"✈"}'.encode()
    encoded = encode(JsonLines(), values)
    assert not encoded.bad
    lines = [b'{"a": 1.50}', b"[1, 2]", b'"x"', b'{"a":1.50}', '{"ä":"✈"}'.encode(), b"7"]
    assert file_of(JsonLines(), [encoded.rows]) == b"".join(line + b"\n" for line in lines)


def test_files_are_read_by_others() -> None:
    """Files: Python's json line by line, and Arrow's reader, give the values back."""
    values = [{"id": n, "name": "Ünïcode\n" * (n % 3), "tags": ["a", None]} for n in range(500)]
    indents = [
        json.dumps(value, indent=n % 2 or None, ensure_ascii=n % 5 == 0).encode()
        for n, value in enumerate(values)
    ]
    data = file_of(JsonLines(), [encode(JsonLines(), indents).rows])
    assert [json.loads(line) for line in data.splitlines()] == values
    assert pa_json.read_json(pa.py_buffer(data)).to_pylist() == values


def test_an_extension_says_how_it_is_compressed() -> None:
    """Names end as Confluent's do."""
    assert JsonLines().extension == ".json"
    assert JsonLines(gzip_level=-1).extension == ".json.gz"


@pytest.mark.parametrize("level", [-1, 0, 1, 3, 6, 9])
def test_gzip_of_the_same_lines(level: int) -> None:
    """gzip: one member that holds the same lines, whatever the level; no time stands in it."""
    rows = [
        encode(JsonLines(), [b'{"n":%d}' % n for n in range(start, start + 300)]).rows for start in (0, 300)
    ]
    made = file_of(JsonLines(gzip_level=level, block_bytes=1_000), rows)
    assert gzip.decompress(made) == file_of(JsonLines(), rows)
    assert made[4:8] == bytes(4)


def test_gzip_of_nothing() -> None:
    """gzip: a file without rows is read, too."""
    assert gzip.decompress(file_of(JsonLines(gzip_level=6), [])) == b""


def test_what_gzip_holds_back() -> None:
    """gzip: what is buffered is what waits for its block; without compression nothing waits."""
    rows = encode(JsonLines(), [b'{"n":%d}' % n for n in range(100)]).rows
    content = JsonLines(gzip_level=1, block_bytes=700).begin(None, "key", None)  # type: ignore[arg-type]
    b"".join(content.header())
    assert b"".join(content.append(rows.slice(0, 10))) == b""
    assert content.buffered == rows.slice(0, 10).nbytes
    assert b"".join(content.append(rows.slice(10, 100))) != b""
    assert content.buffered < 700
    b"".join(content.finish())
    assert content.buffered == 0
    plain = JsonLines().begin(None, "key", None)  # type: ignore[arg-type]
    assert [bytes(piece) for piece in plain.append(rows)] == [bytes(rows.payload)]
    assert plain.buffered == 0


# -- what is no JSON ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "no JSON"),
        (b"  ", "no JSON"),
        (b"hello", "no JSON"),
        (b"\0\0\0\0\x01\x02a", "no JSON"),
        (b"\x00\x00\x00\x01", "no JSON"),
        (b"NaN", "holds NaN"),
        (b'{"a":1', "no JSON"),
        (b'{"a":1}\n{"b":2}', "no JSON"),
        (b'{"a":"x\ny"}', "no JSON"),
        (b'{"a":"\xff"}', "no UTF-8 text (invalid start byte at byte 6)"),
        (b"\xff\xfe[", "no UTF-8 text"),
        (b"[" * 100_000, "too many levels"),
    ],
)
def test_what_is_no_json_is_a_bad_record(value: bytes, reason: str) -> None:
    """Garbage: a bad record, whose error says where it is, why, and what to do; the others are written."""
    encoded = encode(JsonLines(), [b"{}", value, b"[]"])
    assert pieces_of(encoded) == [b"{}\n", b"[]\n"]
    (said,) = reasons(encoded).values()
    assert said.startswith(f"orders-3: the record at offset {FIRST + 1} cannot be archived: its value is ")
    assert reason in said
    assert "ByteArrayFormat" in said
    assert list(encoded.bad) == [1]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(8)])
def test_what_is_no_text_is_bad_in_any_column(kind: pa.DataType) -> None:
    """Garbage: bytes that are no UTF-8 are found in columns of every type of bytes."""
    encoded = encode(JsonLines(), batch([b'{"a":1} ', b'["abc\xff"]', None], kind))
    assert sorted(encoded.bad) == [1, 2]


def test_no_error_quotes_the_value() -> None:
    """Garbage: errors end up in logs, and hold nothing of a value."""
    encoded = encode(
        JsonLines(schemas_enable=True), [b"secret", b'{"secret"', b'{"secret":"\xff"}', b'"secret"']
    )
    assert len(encoded.bad) == 4
    assert not [said for said in reasons(encoded).values() if "secret" in said]


def test_a_batch_of_garbage() -> None:
    """Garbage: a batch of nothing else has no rows."""
    encoded = encode(JsonLines(), [b"\xff"] * 5)
    assert (len(encoded.rows), sorted(encoded.bad)) == (0, list(range(5)))
    assert file_of(JsonLines(), [encoded.rows]) == b""


def test_a_byte_order_mark_is_passed_over() -> None:
    """A byte order mark before JSON does not get into the line."""
    assert pieces_of(encode(JsonLines(), [b'\xef\xbb\xbf{"a":1}'])) == [b'{"a":1}\n']


def test_a_number_of_any_length() -> None:
    """Numbers are not made, so they may have more digits than Python converts."""
    assert pieces_of(encode(JsonLines(), [b"1" * 5_000])) == [b"1" * 5_000 + b"\n"]


# -- null --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, b"null", b" null\n", envelope("null")])
def test_null_is_bad_or_left_out(value: bytes | None) -> None:
    """Null: a record without a value, or whose JSON is null, is bad or left out, as it is configured."""
    encoded = encode(JsonLines(schemas_enable=None), [value, b"{}"])
    assert list(encoded.bad) == [0]
    assert "'behavior.on.null.values' is fail" in reasons(encoded)[0]
    ignoring = encode(JsonLines(schemas_enable=None, nulls="ignore"), [value, b"{}"])
    assert ignoring.bad == {0: None}
    assert pieces_of(encoded) == pieces_of(ignoring) == [b"{}\n"]


@pytest.mark.parametrize("kind", [pa.null(), pa.binary(), pa.struct({"a": pa.int32()})])
@pytest.mark.parametrize("nulls", ["fail", "ignore"])
def test_batches_without_any_value(kind: pa.DataType, nulls: NullBehavior) -> None:
    """Null: a batch of nothing but nulls, of whatever type, has no rows."""
    encoded = encode(JsonLines(nulls=nulls), batch([None, None], kind))
    assert len(encoded.rows) == 0
    assert set(encoded.bad) == {0, 1}


# -- envelopes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schemas_enable", [True, None])
def test_envelopes_are_unwrapped(*, schemas_enable: bool | None) -> None:
    """Envelopes: the payload is the line, its numbers as they were written, whoever wrote the envelope."""
    other = SCHEMA.replace("int32", "int64")
    values = [
        *(envelope('{"a":1}'), envelope('{"a": 2.50}'), envelope('{"a":3}', other), envelope("[4]", "null")),
        *(b'{ "payload" : {"a":5} , "schema":null}', envelope('"6"'), envelope("7"), envelope('{"a":"ä"}')),
    ]
    encoded = encode(JsonLines(schemas_enable=schemas_enable), values)
    assert not encoded.bad
    lines = ['{"a":1}', '{"a":2.50}', '{"a":3}', "[4]", '{"a":5}', '"6"', "7", '{"a":"ä"}']
    assert pieces_of(encoded) == [f"{line}\n".encode() for line in lines]


@pytest.mark.parametrize(
    "value", [b'{"a":1}', b"[1]", b'{"schema":{},"payload":{"a":1},"more":{}}', b'{"schema":{}}']
)
def test_what_is_no_envelope(value: bytes) -> None:
    """Envelopes: what is none is bad where they are required, and a line where they are not."""
    for first in (value, envelope('{"a":1}')):
        encoded = encode(JsonLines(schemas_enable=True), [first, value])
        assert "'value.converter.schemas.enable' true requires" in reasons(encoded)[1]
        assert pieces_of(encode(JsonLines(schemas_enable=None), [first, value]))[1] == value + b"\n"


def test_envelopes_stay_where_they_are_no_envelopes() -> None:
    """Envelopes: with ``schemas.enable`` false they are objects like others."""
    value = envelope('{"a":1}')
    assert pieces_of(encode(JsonLines(schemas_enable=False), [value])) == [value + b"\n"]


def test_a_schema_changes_within_a_batch_and_between() -> None:
    """Envelopes: how one begins is remembered, and learned anew."""
    lines = JsonLines(schemas_enable=True)
    for schema in (SCHEMA, SCHEMA.replace("int32", "int64"), '{"type":"string"}'):
        encoded = encode(
            lines, [envelope('{"a":1}', schema), envelope('{"a":1}'), envelope('{"a":1}', schema)]
        )
        assert pieces_of(encoded) == [b'{"a":1}\n'] * 3


# -- other values ------------------------------------------------------------------------------------------


def test_text_becomes_json_text() -> None:
    """The string converter's values are JSON texts; bytes that are no text are bad."""
    encoded = encode(JsonLines("string"), [b'a"b\n', b"\xff", "ä".encode(), b"", None])
    assert [json.loads(piece) for piece in pieces_of(encoded)] == ['a"b\n', "ä", ""]
    assert sorted(encoded.bad) == [1, 4]
    assert "no UTF-8 text" in reasons(encoded)[1]
    typed = encode(JsonLines("string"), batch(["x\ny"], pa.string()))
    assert pieces_of(typed) == [b'"x\\ny"\n']


def test_bytes_become_base64() -> None:
    """The bytes converter's values are what Jackson writes of them."""
    encoded = encode(JsonLines("bytes"), [b"\xff\n", b""])
    assert [base64.b64decode(json.loads(piece)) for piece in pieces_of(encoded)] == [b"\xff\n", b""]


def test_typed_values_become_connects_json() -> None:
    """Typed columns are written as Connect's JsonConverter does, each in a line."""
    kind = pa.struct({"a": pa.int64(), "t": pa.timestamp("ms", "UTC"), "l": pa.list_(pa.string())})
    values: list[Any] = [{"a": 1, "t": 5, "l": ["x\n", None]}, {"a": None, "t": None, "l": None}]
    encoded = encode(JsonLines(), batch(values, kind))
    assert [json.loads(piece) for piece in pieces_of(encoded)] == values
    assert b"".join(pieces_of(encoded)).count(b"\n") == 2


def test_columns_of_text_that_is_json() -> None:
    """Text that is JSON, as a DataFrame's ``to_json`` gives it, is a line like bytes are."""
    assert pieces_of(encode(JsonLines(), batch(['{"ä":1}', "x"], pa.string()))) == ['{"ä":1}\n'.encode()]
    encoded = batch(pa.array([b"{}", b"{}"]).dictionary_encode())
    assert pieces_of(encode(JsonLines(), encoded)) == [b"{}\n"] * 2


def test_a_type_without_json() -> None:
    """A type of which there is no JSON is the configuration's fault, not a record's."""
    with pytest.raises(ConfigException, match="cannot be written as JSON"):
        encode(JsonLines(), batch([1], pa.duration("s")))
