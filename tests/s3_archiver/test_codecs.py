from __future__ import annotations

import bz2
import gzip
import lzma
import zlib

import pyarrow as pa
import pytest

from sinksdk import ConfigException
from sinksdk.connectors.s3_archiver.formats import codecs
from sinksdk.connectors.s3_archiver.formats.codecs import CODEC_NAMES, GzipStream, codec

BLOCK = b"carrier=UA;origin=EWR;dest=IAH;" * 500


def decompressed(name: str, stored: bytes) -> bytes:
    match name:
        case "null":
            return stored
        case "deflate":
            return zlib.decompress(stored, wbits=-15)
        case "snappy":
            block: bytes = pa.Codec("snappy").decompress(stored[:-4], len(BLOCK), asbytes=True)
            assert stored[-4:] == zlib.crc32(block).to_bytes(4, "big")
            return block
        case "zstandard":
            return bytes(pa.input_stream(pa.py_buffer(stored), compression="zstd").read())
        case "bzip2":
            return bz2.decompress(stored)
        case _:
            return lzma.decompress(stored)


@pytest.mark.parametrize("name", CODEC_NAMES)
@pytest.mark.parametrize("view", [bytes, memoryview])
def test_compressed_blocks_round_trip(name: str, view: type[bytes | memoryview]) -> None:
    made = codec(name)
    stored = bytes(made.compress(view(BLOCK)))
    assert made.name == name
    assert decompressed(name, stored) == BLOCK
    assert name == "null" or len(stored) < len(BLOCK) / 10


def test_deflate_blocks_have_no_zlib_header() -> None:
    inflate = zlib.decompressobj(wbits=-15)
    assert inflate.decompress(codec("deflate").compress(BLOCK)) == BLOCK
    assert (inflate.eof, inflate.unused_data) == (True, b"")


def test_the_null_codec_does_not_copy_blocks() -> None:
    assert codec("null").compress(BLOCK) is BLOCK


@pytest.mark.parametrize(
    ("name", "level"), [("deflate", 9), ("deflate", 6), ("zstandard", 19), ("bzip2", 1), ("xz", 0)]
)
def test_each_compression_level_round_trips(name: str, level: int) -> None:
    assert decompressed(name, bytes(codec(name, level).compress(BLOCK))) == BLOCK


def test_deflate_levels_unsupported_by_isal_use_zlib() -> None:
    # isal has no level 6.
    assert codec("deflate", 6).compress(BLOCK) == zlib.compress(BLOCK, 6, wbits=-15)


def test_deflate_uses_zlib_without_isal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "isal_zlib", None)
    assert codec("deflate").compress(BLOCK) == zlib.compress(BLOCK, 1, wbits=-15)


@pytest.mark.parametrize("level", codecs.GZIP_LEVELS)
def test_gzip_blocks_form_one_member(level: int) -> None:
    stream = GzipStream(level)
    made = b"".join(
        [stream.header(), stream.compress(BLOCK), stream.compress(memoryview(BLOCK)), stream.finish()]
    )
    inflate = zlib.decompressobj(wbits=31)
    assert inflate.decompress(made) == BLOCK * 2
    assert (inflate.eof, inflate.unused_data) == (True, b"")
    assert level == 0 or len(made) < len(BLOCK) / 5


def test_gzip_uses_zlib_without_isal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "isal_zlib", None)
    stream = GzipStream()
    assert gzip.decompress(stream.header() + stream.compress(BLOCK) + stream.finish()) == BLOCK


@pytest.mark.parametrize("level", [-2, 10])
def test_unknown_gzip_levels_are_refused(level: int) -> None:
    with pytest.raises(ConfigException, match=f"gzip has no level {level}: choose one from -1"):
        GzipStream(level)


@pytest.mark.parametrize(
    ("name", "level", "message"),
    [
        ("zstd", None, "there is no Avro codec 'zstd': choose one of null, deflate, snappy, zstandard"),
        ("zstandard", 23, "has no level 23: choose one from 1 to 22"),
        ("deflate", -1, "has no level -1: choose one from 0 to 9"),
        ("snappy", 3, "'snappy' has no levels: remove level 3"),
        ("null", 0, "'null' has no levels: remove level 0"),
    ],
)
def test_unknown_codecs_and_levels_are_refused(name: str, level: int | None, message: str) -> None:
    with pytest.raises(ConfigException, match=message):
        codec(name, level)
