"""Compress Avro blocks and gzip streams with the fastest installed implementation."""

from __future__ import annotations

import bz2
import lzma
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias, cast

import pyarrow as pa

from sinksdk import ConfigException

try:
    from isal import isal_zlib
except ImportError:  # wheels exist only for x86-64 and ARM
    isal_zlib = None  # type: ignore[assignment]  # _deflater uses zlib then

BytesLike: TypeAlias = bytes | memoryview
Compress: TypeAlias = Callable[[BytesLike], BytesLike]

_ISAL_LEVELS: Final = range(1, 4)
_RAW_DEFLATE: Final = -15  # zlib's window size, negative for "no zlib header and checksum"


@dataclass(frozen=True, slots=True)
class Codec:
    """Compress blocks. Threads must not share a codec."""

    name: str
    compress: Compress


@dataclass(frozen=True, slots=True)
class _Kind:
    make: Callable[[int], Compress]
    levels: range = range(0)
    default: int = 0


def codec(name: str, level: int | None = None) -> Codec:
    kind = _KINDS.get(name)
    if kind is None:
        raise ConfigException(f"there is no Avro codec '{name}': choose one of {', '.join(_KINDS)}")
    if level is None:
        level = kind.default
    elif not kind.levels:
        raise ConfigException(f"the Avro codec '{name}' has no levels: remove level {level}")
    elif level not in kind.levels:
        raise ConfigException(
            f"the Avro codec '{name}' has no level {level}: choose one from {kind.levels[0]} to "
            f"{kind.levels[-1]}"
        )
    return Codec(name, kind.make(level))


class GzipStream:
    """Compress blocks independently into one gzip member. Level -1 is the default, 1."""

    def __init__(self, level: int = -1) -> None:
        if level not in GZIP_LEVELS:
            raise ConfigException(f"gzip has no level {level}: choose one from -1 (the default) to 9")
        self._level = 1 if level == -1 else level
        self._library: Any = _deflater(self._level)
        self._checksum = 0
        self._size = 0

    def header(self) -> bytes:
        # The header has no time, so that the same records give the same bytes.
        return b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"

    def compress(self, block: BytesLike) -> bytes:
        self._checksum = zlib.crc32(block, self._checksum)
        self._size += len(block)
        # If a compressor were kept between blocks, each open file would take some 300 KB; a new compressor
        # per block costs less than 1 % of the compression.
        compressor = self._library.compressobj(self._level, zlib.DEFLATED, _RAW_DEFLATE)
        compressed: bytes = compressor.compress(block)
        return compressed + cast("bytes", compressor.flush(self._library.Z_FULL_FLUSH))

    def finish(self) -> bytes:
        # An empty last block, the checksum and the size.
        return b"\x03\x00" + struct.pack("<II", self._checksum, self._size & 0xFFFFFFFF)


GZIP_LEVELS: Final = range(-1, 10)


def _deflater(level: int) -> Any:
    # isal is faster, but has only the levels 1 to 3.
    return isal_zlib if isal_zlib is not None and level in _ISAL_LEVELS else zlib


def _snappy(_level: int) -> Compress:
    compressor = pa.Codec("snappy")

    def compress(block: BytesLike) -> BytesLike:
        checksum = zlib.crc32(block).to_bytes(4, "big")  # Avro appends a checksum to raw snappy
        return b"".join((compressor.compress(block, asbytes=True), checksum))

    return compress


_KINDS: Final[Mapping[str, _Kind]] = {
    "null": _Kind(lambda _: lambda block: block),
    # The default is level 1, because the compressor limits the speed of archiving.
    "deflate": _Kind(
        lambda level: partial(_deflater(level).compress, level=level, wbits=_RAW_DEFLATE),
        range(10),
        default=1,
    ),
    "snappy": _Kind(_snappy),
    # Arrow returns bytes here: a view of the Buffer that it returns otherwise has a wrong length.
    "zstandard": _Kind(
        lambda level: partial(pa.Codec("zstd", compression_level=level).compress, asbytes=True),
        range(1, 23),
        default=1,
    ),
    "bzip2": _Kind(lambda level: partial(bz2.compress, compresslevel=level), range(1, 10), default=9),
    "xz": _Kind(lambda level: partial(lzma.compress, preset=level), range(10), default=6),
}

# Ordered roughly from the fastest codec to the smallest files.
CODEC_NAMES: Final = tuple(_KINDS)
