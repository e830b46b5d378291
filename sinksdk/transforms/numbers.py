"""Numbers with Java's fixed widths and text forms."""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import numpy as np
import pyarrow as pa

Number = int | float | Decimal

_DECIMAL: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?", re.ASCII)
_HEXADECIMAL: Final = re.compile(r"[+-]?0[xX]([0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?\d+[fFdD]?")
_SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf}
_WHOLE: Final = re.compile(r"[+-]?\d+")
_LEAST_PLAIN, _LEAST_SCIENTIFIC = 1e-3, 1e7
_INT, _LONG = 32, 64  # numbers of bits
# The bound is beyond all integer types: int() refuses infinity.
_BEYOND: Final = 1e30


def wrapped(number: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return (number + half) % (1 << bits) - half


def to_whole(number: Number, bits: int) -> int:
    """Convert to a whole number of this many bits, as Java's ``byteValue`` and similar methods do."""
    if isinstance(number, float):
        if math.isnan(number):
            return 0
        # Java first clamps floating point to the range of int, or of long for 64 bits.
        limit = 1 << ((_LONG if bits == _LONG else _INT) - 1)
        number = min(max(int(max(min(number, _BEYOND), -_BEYOND)), -limit), limit - 1)
    return wrapped(int(number), bits)


def to_single(number: Number) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(float(number)))


def parsed_whole(text: str, bits: int) -> int | None:
    """Parse as Java's ``parseLong`` and its like; None if the text is not a whole number of so many bits."""
    if not _WHOLE.fullmatch(text):
        return None
    number = int(text)
    return number if wrapped(number, bits) == number else None


def parsed_float(text: str) -> float | None:
    """Parse as Java's ``parseDouble``; None if the text is not a number."""
    text = text.strip()
    if (unsigned := re.sub(r"^[+-]", "", text)) in _SPECIAL:
        return -_SPECIAL[unsigned] if text.startswith("-") else _SPECIAL[unsigned]
    if _HEXADECIMAL.fullmatch(text):
        return float.fromhex(text.rstrip("fFdD") if "p" in text.lower() else text)
    return float(text.rstrip("fFdD")) if _DECIMAL.fullmatch(text) else None


def parsed_decimal(text: str) -> Decimal | None:
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def to_text(number: float | np.floating[Any]) -> str:
    """Format as Java's ``Double.toString`` and ``Float.toString``."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 or _LEAST_PLAIN <= abs(float(number)) < _LEAST_SCIENTIFIC:
        return np.format_float_positional(number, unique=True, trim="0")
    mantissa, _, exponent = np.format_float_scientific(number, unique=True, trim="0").partition("e")
    return f"{mantissa}E{int(exponent)}"


def to_type(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, int | Decimal) and not isinstance(value, bool) and pa.types.is_integer(kind):
        return wrapped(int(value), kind.bit_width)
    return value
