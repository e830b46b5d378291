from __future__ import annotations

import gzip

import pyarrow as pa
import pytest

from sinksdk import ConfigException
from sinksdk.connectors.s3_archiver.formats.lines import RawBytes
from tests.s3_archiver.format_support import FIRST, batch, encode, file_of, reasons


def test_each_value_is_followed_by_the_separator() -> None:
    values = [b"a\nb", b"", b"\xff\x00", b"v" * 100_000]
    assert file_of(RawBytes(), [encode(RawBytes(), values).rows]) == b"".join(v + b"\n" for v in values)
    other = RawBytes(separator="-ä-")
    assert file_of(other, [encode(other, values).rows]) == b"".join(v + "-ä-".encode() for v in values)
    none = RawBytes(separator="")
    assert file_of(none, [encode(none, values).rows]) == b"".join(values)


def test_file_names_have_the_configured_extension() -> None:
    assert RawBytes().extension == ".bin"
    assert RawBytes(".log", gzip_level=6).extension == ".log.gz"


def test_gzip_files_contain_the_same_values() -> None:
    made = RawBytes(gzip_level=6, block_bytes=100)
    rows = encode(made, [b"%d" % n for n in range(1_000)]).rows
    assert gzip.decompress(file_of(made, [rows])) == file_of(RawBytes(), [rows])


def test_null_values_are_bad_records_or_left_out() -> None:
    encoded = encode(RawBytes(), [b"a", None, b"b"])
    assert (
        f"orders-3: the record at offset {FIRST + 1} cannot be archived: it has no value"
        in reasons(encoded)[1]
    )
    ignoring = encode(RawBytes(nulls="ignore"), [b"a", None, b"b"])
    assert ignoring.bad == {1: None}
    for found in (encoded, ignoring):
        assert file_of(RawBytes(), [found.rows]) == b"a\nb\n"


@pytest.mark.parametrize("kind", [pa.large_binary(), pa.string(), pa.binary_view(), pa.binary(2)])
def test_every_binary_and_text_column_is_archived(kind: pa.DataType) -> None:
    column = pa.array([b"ab", b"cd"], pa.binary()).cast(kind)
    assert file_of(RawBytes(), [encode(RawBytes(), batch(column)).rows]) == b"ab\ncd\n"


def test_typed_values_are_refused() -> None:
    with pytest.raises(ConfigException, match=r"struct<a: int32> are not bytes.*'value.converter' to bytes"):
        encode(RawBytes(), batch([{"a": 1}], pa.struct({"a": pa.int32()})))
