from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pyarrow as pa
import pyarrow.json as pa_json
import pytest

from sinksdk import ConfigException
from sinksdk.connectors.s3_archiver.formats.lines import JsonLines
from sinksdk.connectors.s3_archiver.formats.values import NullBehavior
from tests.s3_archiver.format_support import batch, encode, file_of, json_batch, pieces_of, reasons


def test_each_value_is_one_line() -> None:
    values = [
        b'{"a": 1.50}',
        b"[1, 2]",
        b'"x"',
        b'{"a":\n  1.50}',
        "{'ä'}".replace("'", '"').encode(),
        b" 7 ",
    ]
    values[4] = '{"ä":"✈"}'.encode()
    encoded = encode(JsonLines(), json_batch(values))
    assert not encoded.bad
    lines = [b'{"a": 1.50}', b"[1, 2]", b'"x"', b'{"a":1.50}', '{"ä":"✈"}'.encode(), b" 7 "]
    assert file_of(JsonLines(), [encoded.rows]) == b"".join(line + b"\n" for line in lines)


def test_files_are_readable_by_json_and_pyarrow() -> None:
    values = [{"id": n, "name": "Ünïcode\n" * (n % 3), "tags": ["a", None]} for n in range(500)]
    indents = [
        json.dumps(value, indent=n % 2 or None, ensure_ascii=n % 5 == 0).encode()
        for n, value in enumerate(values)
    ]
    data = file_of(JsonLines(), [encode(JsonLines(), json_batch(indents)).rows])
    assert [json.loads(line) for line in data.splitlines()] == values
    assert pa_json.read_json(pa.py_buffer(data)).to_pylist() == values


def test_the_extension_states_the_compression() -> None:
    assert JsonLines().extension == ".json"
    assert JsonLines(gzip_level=-1).extension == ".json.gz"


@pytest.mark.parametrize("level", [-1, 0, 1, 3, 6, 9])
def test_gzip_files_contain_the_same_lines(level: int) -> None:
    # The gzip header has no timestamp, so that the same lines give the same bytes.
    rows = [
        encode(JsonLines(), json_batch([b'{"n":%d}' % n for n in range(start, start + 300)])).rows
        for start in (0, 300)
    ]
    made = file_of(JsonLines(gzip_level=level, block_bytes=1_000), rows)
    assert gzip.decompress(made) == file_of(JsonLines(), rows)
    assert made[4:8] == bytes(4)


def test_an_empty_gzip_file_is_valid() -> None:
    assert gzip.decompress(file_of(JsonLines(gzip_level=6), [])) == b""


def test_gzip_buffers_less_than_a_block() -> None:
    rows = encode(JsonLines(), json_batch([b'{"n":%d}' % n for n in range(100)])).rows
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


# -- null --------------------------------------------------------------------------------------------------


def test_null_values_are_bad_records_or_left_out() -> None:
    encoded = encode(JsonLines(), json_batch([None, b"{}"]))
    assert list(encoded.bad) == [0]
    assert "'behavior.on.null.values' is fail" in reasons(encoded)[0]
    ignoring = encode(JsonLines(nulls="ignore"), json_batch([None, b"{}"]))
    assert ignoring.bad == {0: None}
    assert pieces_of(encoded) == pieces_of(ignoring) == [b"{}\n"]


@pytest.mark.parametrize("kind", [pa.null(), pa.binary(), pa.struct({"a": pa.int32()})])
@pytest.mark.parametrize("nulls", ["fail", "ignore"])
def test_batches_of_null_values_are_encoded_without_rows(kind: pa.DataType, nulls: NullBehavior) -> None:
    encoded = encode(JsonLines(nulls=nulls), batch([None, None], kind))
    assert len(encoded.rows) == 0
    assert set(encoded.bad) == {0, 1}


# -- other values ------------------------------------------------------------------------------------------


def test_text_becomes_a_json_string() -> None:
    texts = ["x\ny", 'a"b', "", "17", "null", '{"a":1}', "hello"]
    encoded = encode(JsonLines(), batch(texts, pa.string()))
    assert [json.loads(piece) for piece in pieces_of(encoded)] == texts
    dictionary = batch(pa.array(["17"] * 2).dictionary_encode())
    assert pieces_of(encode(JsonLines(), dictionary)) == [b'"17"\n'] * 2


def test_bytes_become_base64() -> None:
    encoded = encode(JsonLines(), [b"\xff\n", b"", b"{}"])
    assert [base64.b64decode(json.loads(piece)) for piece in pieces_of(encoded)] == [b"\xff\n", b"", b"{}"]


def test_typed_values_become_json_like_connects() -> None:
    kind = pa.struct({"a": pa.int64(), "t": pa.timestamp("ms", "UTC"), "l": pa.list_(pa.string())})
    values: list[Any] = [{"a": 1, "t": 5, "l": ["x\n", None]}, {"a": None, "t": None, "l": None}]
    encoded = encode(JsonLines(), batch(values, kind))
    assert [json.loads(piece) for piece in pieces_of(encoded)] == values
    assert b"".join(pieces_of(encoded)).count(b"\n") == 2


def test_a_type_without_a_json_form_is_refused() -> None:
    with pytest.raises(ConfigException, match="cannot be written as JSON"):
        encode(JsonLines(), batch([1], pa.duration("s")))
