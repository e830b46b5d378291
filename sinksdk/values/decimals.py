"""Decimals: Arrow's types, and Connect's, which have unlimited precision and scale."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sinksdk.errors import DataException

MOST_SHORT: Final = 38
# The most digits of a decimal256, and so of a decimal in a Parquet file.
MOST_DIGITS: Final = 76
# Python refuses to convert longer numbers to text, which takes quadratic time.
MOST_WIDE: Final = 4_000
_TOO_WIDE: Final = 10**MOST_WIDE


class WideDecimal(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no type of it
    """Decimals that Arrow has no type for: of more than 76 digits, or of a scale outside 0 to 76."""

    def __init__(self, scale: int) -> None:
        self.scale = scale
        # The extension type stores the unscaled number in the bytes of Java's BigInteger.toByteArray.
        super().__init__(pa.binary(), f"sinksdk.decimal({scale})")  # equal types must have equal names

    def __arrow_ext_serialize__(self) -> bytes:
        return str(self.scale).encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, _: pa.DataType, serialized: bytes) -> WideDecimal:
        return cls(int(serialized))

    def __arrow_ext_scalar_class__(self) -> type[pa.ExtensionScalar]:
        return _WideScalar

    def __hash__(self) -> int:
        return hash((type(self), self.scale))


class _WideScalar(pa.ExtensionScalar):  # type: ignore[misc]
    def as_py(self, **_: Any) -> Decimal | None:
        unscaled = None if self.value is None else self.value.as_py()
        return None if unscaled is None else scaled(number_of(unscaled), self.type.scale)


def is_wide(kind: pa.DataType) -> bool:
    return isinstance(kind, WideDecimal)


def is_decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind)) or is_wide(kind)


def items_of(lists: pa.Array) -> pa.Array:
    # If all lists are null, flatten() would build an empty array, which fails for nested extension types.
    return lists.flatten() if lists.null_count < len(lists) else lists.values[:0]


def decimal_type(scale: int, precision: int = MOST_SHORT) -> pa.DataType:
    precision = max(precision, scale)  # Parquet requires a precision of at least the scale
    if precision <= MOST_SHORT and abs(scale) <= MOST_SHORT:
        return pa.decimal128(precision, scale)
    if 0 <= scale <= MOST_DIGITS:
        return pa.decimal256(min(precision, MOST_DIGITS), scale)
    return WideDecimal(scale)


def number_of(unscaled: bytes) -> int:
    if not unscaled:
        raise ValueError(unscaled)
    return int.from_bytes(unscaled, "big", signed=True)


def bytes_of(number: int) -> bytes:
    # As Java's BigInteger.toByteArray: two's complement, big-endian, as short as possible.
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


def scaled(number: int, scale: int) -> Decimal:
    # Decimal.scaleb would round to 28 digits.
    return Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale))


def unscaled(value: Decimal, scale: int) -> int:
    """Return the unscaled number. Raises ValueError for more digits after the point."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(value)  # noqa: TRY004 - not a number, or infinite
    if not any(digits):
        return 0
    number, shift = int("".join(map(str, digits))), exponent + scale
    if abs(shift) > MOST_WIDE:  # a number like 1e999999999 would fill the memory
        raise ValueError(value)
    made: int
    made, rest = (number * 10**shift, 0) if shift >= 0 else divmod(number, 10**-shift)
    if rest:
        raise ValueError(value)
    return -made if sign else made


def decimal_column(numbers: Sequence[int | None], kind: pa.DataType) -> pa.Array:
    if is_wide(kind):
        if any(number is not None and abs(number) >= _TOO_WIDE for number in numbers):
            raise DataException(f"a decimal has more than {MOST_WIDE} digits")
        storage = pa.array([None if number is None else bytes_of(number) for number in numbers], pa.binary())
        return pa.ExtensionArray.from_storage(kind, storage)
    size, most = kind.byte_width, 10**kind.precision
    if any(number is not None and not -most < number < most for number in numbers):
        raise DataException(f"a decimal has more digits than {kind}")
    data = b"".join([(number or 0).to_bytes(size, "little", signed=True) for number in numbers])
    is_there = np.array([number is not None for number in numbers], np.bool_)
    valid = None if is_there.all() else pa.py_buffer(np.packbits(is_there, bitorder="little").data)
    return pa.Array.from_buffers(kind, len(numbers), [valid, pa.py_buffer(data)])


@functools.lru_cache(maxsize=1024)
def levels(kind: pa.DataType) -> tuple[pa.DataType, ...]:
    """Return a type, followed by the types with wider decimals for values that do not fit."""
    found = [kind]
    while (wider := _widened(found[-1])) != found[-1]:
        found.append(wider)
    return tuple(found)


def _widened(kind: pa.DataType) -> pa.DataType:
    if is_decimal(kind):
        is_widest = is_wide(kind) or kind.precision == MOST_DIGITS or not 0 <= kind.scale <= MOST_DIGITS
        return WideDecimal(kind.scale) if is_widest else pa.decimal256(MOST_DIGITS, kind.scale)
    return with_leaves(kind, _widened)


def with_leaves(kind: pa.DataType, of: Any) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(of(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(of(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(of(kind.key_type), of(kind.item_type))
    return kind


@functools.lru_cache(maxsize=1024)
def packed_type(kind: pa.DataType) -> pa.DataType:
    return pa.binary() if is_decimal(kind) else with_leaves(kind, packed_type)


def unpacked(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    if is_decimal(kind):
        packed = column.to_pylist()
        return decimal_column([None if each is None else number_of(each) for each in packed], kind)
    mask = column.is_null() if column.null_count else None
    if pa.types.is_struct(kind):
        parts = [unpacked(part, field.type) for part, field in zip(column.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if pa.types.is_list(kind):
        items = unpacked(column.values, kind.value_type)
        return pa.ListArray.from_arrays(column.offsets, items, type=kind, mask=mask)
    keys, items = unpacked(column.keys, kind.key_type), unpacked(column.items, kind.item_type)
    return pa.MapArray.from_arrays(column.offsets, keys, items, type=kind, mask=mask)
