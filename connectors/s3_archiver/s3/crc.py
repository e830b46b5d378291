"""Computes the CRC32 of joined pieces from those of the pieces."""

from __future__ import annotations

import base64
from functools import lru_cache

# CRCs are polynomials over GF(2), reflected: the highest bit is the coefficient of x^0.
_POLYNOMIAL = 0xEDB88320
_ONE = 0x80000000
_X_TO_THE_8TH = _ONE >> 8


def combine(first: int, second: int, second_length: int) -> int:
    return _multiply(_shift(second_length), first) ^ second


def encode(crc: int) -> str:
    """Return a CRC32 as S3 writes it: base64 of four bytes, big endian."""
    return base64.b64encode(crc.to_bytes(4, "big")).decode("ascii")


@lru_cache(maxsize=64)  # cached, because all parts of an upload but the last have the same length
def _shift(length: int) -> int:
    # Each following byte multiplies a CRC by x^8.
    result, square = _ONE, _X_TO_THE_8TH
    while length:
        if length & 1:
            result = _multiply(result, square)
        square = _multiply(square, square)
        length >>= 1
    return result


def _multiply(left: int, right: int) -> int:
    product = 0
    while left:
        if left & _ONE:
            product ^= right
        left = (left << 1) & 0xFFFFFFFF
        right = (right >> 1) ^ (_POLYNOMIAL if right & 1 else 0)
    return product
