"""Avro's block codecs, by the fastest maintained implementation that is installed, and gzip for lines."""

from __future__ import annotations

import bz2
import lzma
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import pyarrow as pa

from sinksdk import ConfigException

try:
    from isal import isal_zlib
except ImportError:  # there are wheels for x86-64 and ARM only
    isal_zlib = None  # type: ignore[assignment]  # asked for as such below

BytesLike: TypeAlias = bytes | memoryview
Compress: TypeAlias = Callable[[BytesLike], BytesLike]

_ISAL_LEVELS: Final = range(1, 4)
_RAW_DEFLATE: Final = -15  # zlib's window size, negative for "no zlib header and checksum"


@dataclass(frozen=True, slots=True)
class Codec:
    """Compresses blocks. Use one per file: it must not be shared between threads.

    Args:
        name: Avro's name of it, as in a file's ``avro.codec``.
        compress: turns a block's datums into the stored bytes. May return its argument.
    """

    name: str
    compress: Compress


@dataclass(frozen=True, slots=True)
class _Kind:
    make: Callable[[int], Compress]
    levels: range = range(0)
    default: int = 0


def codec(name: str, level: int | None = None) -> Codec:
    """Return a codec by Avro's name: null, deflate, snappy, zstandard, bzip2 or xz.

    Args:
        name: Avro's name of the codec.
        level: deflate 0 to 9, zstandard 1 to 22 (both 1 by default: archiving is bound by the
            compressor), bzip2 1 to 9 (9), xz 0 to 9 (6). Deflate's levels 1 to 3 are isal's where
            that is installed, the others are zlib's.

    Raises:
        ConfigException: an unknown name, or a level that the codec does not have.
    """
    kind = _KINDS.get(name)
    if kind is None:
        raise ConfigException(f"there is no Avro codec '{name}': choose one of {', '.join(_KINDS)}")
    if level is None:
        level = kind.default
    elif not kind.levels:
        raise ConfigException(f"the Avro codec '{name}' has no levels: leave level {level} out")
    elif level not in kind.levels:
        raise ConfigException(
            f"the Avro codec '{name}' has no level {level}: choose one from {kind.levels[0]} to "
            f"{kind.levels[-1]}"
        )
    return Codec(name, kind.make(level))


class GzipStream:
    """One gzip member of blocks that are compressed independently.

    Between blocks it keeps no memory, where a compressor would keep some 300 KB for each open file; this
    costs less than a hundredth of the compression.

    Args:
        level: 0 to 9; -1 for the default, which is 1: levels 1 to 3 are isal's where that is installed.

    Raises:
        ConfigException: another level.
    """

    def __init__(self, level: int = -1) -> None:
        if level not in GZIP_LEVELS:
            raise ConfigException(f"gzip has no level {level}: choose one from -1 (the default) to 9")
        self._level = 1 if level == -1 else level
        self._library: Any = _deflater(self._level)
        self._checksum = 0
        self._size = 0

    def header(self) -> bytes:
        """Return the header, without a time: the same records give the same bytes."""
        return b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"

    def compress(self, block: BytesLike) -> bytes:
        """Return a block, compressed; it ends with a byte."""
        self._checksum = zlib.crc32(block, self._checksum)
        self._size += len(block)
        compressor = self._library.compressobj(self._level, zlib.DEFLATED, _RAW_DEFLATE)
        compressed: bytes = compressor.compress(block)
        return compressed + cast("bytes", compressor.flush(self._library.Z_FULL_FLUSH))

    def finish(self) -> bytes:
        """Return the end: an empty last block, checksum and size."""
        return b"\x03\x00" + struct.pack("<II", self._checksum, self._size & 0xFFFFFFFF)


GZIP_LEVELS: Final = range(-1, 10)


def _null(_level: int) -> Compress:
    return lambda block: block


def _deflater(level: int) -> Any:
    return isal_zlib if isal_zlib is not None and level in _ISAL_LEVELS else zlib


def _deflate(level: int) -> Compress:
    library = _deflater(level)
    return lambda block: library.compress(block, level, wbits=_RAW_DEFLATE)


def _snappy(_level: int) -> Compress:
    compressor = pa.Codec("snappy")

    def compress(block: BytesLike) -> BytesLike:
        checksum = zlib.crc32(block).to_bytes(4, "big")  # Avro's addition to raw snappy
        return b"".join((compressor.compress(block, asbytes=True), checksum))

    return compress


def _zstandard(level: int) -> Compress:
    compressor = pa.Codec("zstd", compression_level=level)
    # as bytes: a view of the Buffer that it returns otherwise has a wrong length
    return lambda block: compressor.compress(block, asbytes=True)


def _bzip2(level: int) -> Compress:
    return lambda block: bz2.compress(block, level)


def _xz(level: int) -> Compress:
    return lambda block: lzma.compress(block, preset=level)


_KINDS: Final[Mapping[str, _Kind]] = {
    "null": _Kind(_null),
    "deflate": _Kind(_deflate, range(10), default=1),
    "snappy": _Kind(_snappy),
    "zstandard": _Kind(_zstandard, range(1, 23), default=1),
    "bzip2": _Kind(_bzip2, range(1, 10), default=9),
    "xz": _Kind(_xz, range(10), default=6),
}

CODEC_NAMES: Final = tuple(_KINDS)
"""The names of codecs, roughly from the fastest to the smallest files."""
