"""Walks Avro data without decoding them: which rows of a column fit their schema, and where they end."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sinksdk.errors import DataException
from sinksdk.values.avro_defaults import datum_of, number_datum
from sinksdk.values.avro_schema import CONNECT_DEFAULT, AvroSchema, named_types

# Data fit if Java's GenericDatumReader reads them, as in Confluent's AvroConverter: not all need be canonical
# (invalid UTF-8, a boolean of 2, a number of too many bits, a block with a wrong size). Readers disagree on
# these, so Confluent's sink and `repaired` write the value.
MOST_DEPTH: Final = 2_000
_MOST_ITEMS: Final = 2**31 - 9  # limit of an array or a map in Java
_MOST_EMPTY: Final = 2**20  # limit of items that take no bytes
# A registry puts a zero byte and the schema's id before each datum.
FRAMING: Final = 5


class Fit(IntEnum):
    FITS = 0
    LONGER = 1
    ODD = 2
    """Java reads the row, but it is not canonical Avro, or a null is read as a default."""
    NULL = 3
    NOT_FRAMED = 4
    UNKNOWN = 5
    ENDS_EARLY = 6
    BAD_NUMBER = 7
    BAD_LENGTH = 8
    BAD_BRANCH = 9
    BAD_SYMBOL = 10
    TOO_DEEP = 11


_WHY: Final[Mapping[Fit, str]] = {
    Fit.ENDS_EARLY: "it is too short",
    Fit.BAD_NUMBER: "a number has too many bytes",
    Fit.BAD_LENGTH: "a length is negative or too large",
    Fit.BAD_BRANCH: "a branch of a union does not exist",
    Fit.BAD_SYMBOL: "a symbol of an enum does not exist",
    Fit.TOO_DEEP: f"it has more than {MOST_DEPTH:,} levels",
}


def why_not(fit: int, place: int) -> str:
    return f"{_WHY[Fit(fit)]} (at byte {place})"


class Walked(NamedTuple):
    """A :class:`Fit` and the end, or the first invalid byte, of each row."""

    ends: npt.NDArray[np.int64]
    fits: npt.NDArray[np.uint8]


def walk(column: pa.Array, schema: AvroSchema) -> Walked:
    return WALK_ROWS(column, ((0, program_of(schema)),), False)


def walk_framed(column: pa.Array, schemas: Mapping[int, AvroSchema], *, fills_items: bool = False) -> Walked:
    """Walk values with a schema registry's framing; a row with another id is ``Fit.UNKNOWN``."""
    programs = tuple(
        (number, program_of(schema, is_framed=True, fills_items=fills_items))
        for number, schema in sorted(schemas.items())
    )
    return WALK_ROWS(column, programs, True)


def walk_block(data: bytes, rows: int, schema: AvroSchema) -> tuple[npt.NDArray[np.int64], Fit]:
    return WALK_BLOCK(data, rows, program_of(schema))


def repaired(
    value: bytes, begin: int, schema: AvroSchema, *, is_framed: bool = False, fills_items: bool = False
) -> bytes:
    """Return the canonical datum of the value that Java reads. Raises DataException.

    Args:
        fills_items: whether nulls in arrays and maps become defaults, as in JSON of Connect's JsonConverter.
    """
    made = bytearray()
    # In a registry's values of schema "bytes", the datum has no length.
    program = _program(schema, is_framed, fills_items)
    fit, place = _Walk(program.code, value, made, program.defaults).datum(begin)
    if fit >= Fit.ENDS_EARLY:
        raise DataException(why_not(fit, place))
    return bytes(made)


def null_data(
    schema: AvroSchema,
    data: npt.NDArray[np.uint8],
    begins: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
) -> npt.NDArray[np.bool_]:
    """Return which data are null as a whole: Confluent's AvroConverter returns no value, or key, for them."""
    if schema.null_branch is None:
        return np.full(len(begins), schema.resolved == "null")
    first = np.where(begins < ends, data[np.minimum(begins, len(data) - 1)], 0xFF)
    are_null: npt.NDArray[np.bool_] = first == schema.null_branch << 1
    # Only numbers of two bytes or more, which branches rarely are.
    for row in np.flatnonzero(first & 0x80).tolist():
        walk = _Walk([], data[begins[row] : ends[row]].tobytes())
        with suppress(_Misfit):
            are_null[row] = walk.branch() == schema.null_branch
    return are_null


# -- programs ----------------------------------------------------------------------------------------------


class Op(IntEnum):
    """The first number of a value in a program; the strings below describe the numbers after it."""

    NOTHING = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    FIXED = 4
    """Number of bytes."""
    BYTES = 5
    STRING = 6
    ENUM = 7
    """Number of symbols."""
    ARRAY = 8
    """Position of its items."""
    MAP = 9
    """Position of its values."""
    UNION = 10
    """Number of branches, then their positions."""
    RECORD = 11
    """Number of fields, then their positions."""
    RAW = 12
    """All remaining bytes: a registry's ``bytes`` are framed without a length."""
    ABSENT = 13
    """A null of a field with a default: the default's number."""


Code: TypeAlias = list[int]
_SIMPLE: Final = {
    "null": (Op.NOTHING,),
    "boolean": (Op.BOOLEAN,),
    "int": (Op.INT,),
    "long": (Op.LONG,),
    "float": (Op.FIXED, 4),
    "double": (Op.FIXED, 8),
    "bytes": (Op.BYTES,),
    "string": (Op.STRING,),
}


def program_of(schema: AvroSchema, *, is_framed: bool = False, fills_items: bool = False) -> bytes:
    return _program(schema, is_framed, fills_items).data


@functools.lru_cache(maxsize=1024)
def _program(schema: AvroSchema, is_framed: bool, fills_items: bool) -> _Program:  # noqa: FBT001 - keys of the cache
    is_raw = is_framed and _Program.kind_of(schema.resolved) == "bytes"
    return _Program(schema.resolved, is_raw=is_raw, fills_items=fills_items)


class _Program:
    def __init__(self, resolved: Any, *, is_raw: bool = False, fills_items: bool = False) -> None:
        self._fills_items = fills_items
        self._named = named_types(resolved)
        self._empty = self._empty_names()
        self._places: dict[object, int] = {}
        self.defaults: list[bytes] = []
        """Encoded unions, by the numbers of Op.ABSENT."""
        self.code: Code = [0]
        self.code[0] = self._put((Op.RAW,)) if is_raw else self._place(resolved)
        self.data = np.array(self.code, np.int32).tobytes()

    @staticmethod
    def kind_of(schema: Any) -> str:
        return "union" if isinstance(schema, list) else schema if isinstance(schema, str) else schema["type"]

    def _place(self, schema: Any) -> int:
        if isinstance(schema, str):
            schema = self._named.get(schema, {"type": schema})
        if isinstance(schema, dict) and "name" in schema:
            key: object = schema["name"]
            if key in self._places:
                return self._places[key]
            if key in self._empty:
                return self._put((Op.NOTHING,))
            return self._named_place(key, schema)
        if isinstance(schema, list):
            branches = [self._place(branch) for branch in schema]
            return self._put((Op.UNION, len(branches), *branches))
        if schema["type"] in ("array", "map"):
            is_array = schema["type"] == "array"
            items = schema["items" if is_array else "values"]
            inner = self._nullable_place(schema, items) if self._fills_items else self._place(items)
            return self._put((Op.ARRAY if is_array else Op.MAP, inner))
        return self._put(_SIMPLE[schema["type"]])

    def _named_place(self, name: object, schema: Any) -> int:
        if schema["type"] == "enum":
            return self._put((Op.ENUM, len(schema["symbols"])))
        if schema["type"] == "fixed":
            return self._put((Op.FIXED, schema["size"]))
        fields = [each for each in schema["fields"] if not self._in(each, self._empty)]
        # The record's position is set before its fields are read, because these may refer to the record.
        place = self._places[name] = len(self.code)
        self.code += [Op.RECORD, len(fields), *[0] * len(fields)]
        for number, each in enumerate(fields):
            self.code[place + 2 + number] = self._nullable_place(each, each["type"])
        return place

    def _nullable_place(self, holder: Any, branches: Any) -> int:
        if CONNECT_DEFAULT not in holder:
            return self._place(branches)
        places = [self._place(branch) for branch in branches]
        number = 1 - branches.index("null")
        try:
            datum = datum_of(holder[CONNECT_DEFAULT], branches[number], self._named)
        except ValueError:  # a default of another type is ignored
            return self._place(branches)
        self.defaults.append(number_datum(number) + datum)
        places[1 - number] = self._put((Op.ABSENT, len(self.defaults) - 1))
        return self._put((Op.UNION, len(places), *places))

    def _put(self, value: tuple[int, ...]) -> int:
        if value not in self._places:
            self._places[value] = len(self.code)
            self.code += value
        return self._places[value]

    def _empty_names(self) -> set[str]:
        found: set[str] = set()  # types whose values take no bytes
        while True:
            more = {
                name
                for name, schema in self._named.items()
                if (schema["type"] == "fixed" and not schema["size"])
                or (schema["type"] == "record" and all(self._in(each, found) for each in schema["fields"]))
            }
            if more == found:
                return found
            found = more

    @staticmethod
    def _in(field: Any, empty: set[str]) -> bool:
        kind = field["type"]
        if isinstance(kind, dict):
            kind = kind.get("name", kind["type"])
        return isinstance(kind, str) and (kind == "null" or kind in empty)


# -- without a compiler ------------------------------------------------------------------------------------


class _Misfit(Exception):
    def __init__(self, fit: Fit, place: int) -> None:
        super().__init__(fit, place)
        self.fit = fit
        self.place = place


_Steps: TypeAlias = Iterator[tuple[int, int]]


class _Walk:
    def __init__(
        self, code: Code, data: bytes, made: bytearray | None = None, defaults: Sequence[bytes] = ()
    ) -> None:
        self._code = code
        self._data = data
        self._made = made
        self._defaults = defaults
        self._at = 0
        self._is_odd = False

    def datum(self, begin: int) -> tuple[Fit, int]:
        self._at = begin
        try:
            open_values = [self._steps(self._code[0], 1)]
            while open_values:  # a loop, not recursion, because data may be deeper than Python's stack
                following = next(open_values[-1], None)
                if following is None:
                    open_values.pop()
                else:
                    open_values.append(self._steps(*following))
        except _Misfit as misfit:
            return misfit.fit, misfit.place
        if self._is_odd:
            return Fit.ODD, self._at
        return Fit.LONGER if self._at < len(self._data) else Fit.FITS, self._at

    def branch(self) -> int:
        return self._number(_OF_INT)

    def _steps(self, node: int, depth: int) -> _Steps:
        if depth > MOST_DEPTH:
            raise _Misfit(Fit.TOO_DEEP, self._at)
        code, first = self._code, self._at
        op = Op(code[node])
        if op in (Op.ENUM, Op.UNION):
            number = self._number(_OF_INT, is_copied=False)
            if not 0 <= number < code[node + 1]:
                raise _Misfit(Fit.BAD_SYMBOL if op is Op.ENUM else Fit.BAD_BRANCH, first)
            branch = code[node + 2 + number] if op is Op.UNION else None
            if branch is not None and code[branch] == Op.ABSENT:
                self._is_odd = True
                if self._made is not None:
                    self._made += self._defaults[code[branch + 1]]
                return
            self._put_number(number)
            if branch is not None:
                yield branch, depth + 1
        elif op is Op.RECORD:
            for place in code[node + 2 : node + 2 + code[node + 1]]:
                yield place, depth + 1
        elif op in (Op.ARRAY, Op.MAP):
            yield from self._items(op, code[node + 1], depth)
        else:
            self._scalar(op, node, first)

    def _scalar(self, op: Op, node: int, first: int) -> None:
        if op in (Op.INT, Op.LONG):
            self._number(_OF_INT if op is Op.INT else _OF_LONG)
        elif op is Op.FIXED:
            self._take(self._code[node + 1], first)
        elif op is Op.BYTES:
            self._take(self._length(first), first)
        elif op in _READ:
            _READ[op](self)

    def _items(self, op: Op, inner: int, depth: int) -> _Steps:
        is_empty = op is Op.ARRAY and self._code[inner] == Op.NOTHING
        most, total = _MOST_EMPTY if is_empty else _MOST_ITEMS, 0
        while True:
            first = self._at
            count = size = self._number(_OF_LONG, is_copied=False)
            if count < 0:
                size, count = self._number(_OF_LONG, is_copied=False), -count
                begin: int | None = self._at
            else:
                begin = None
            total += count
            if total > most:
                raise _Misfit(Fit.BAD_LENGTH, first)
            self._put_number(count)
            if not count:
                return
            for _ in range(0 if is_empty else count):
                if op is Op.MAP:
                    self._text()
                yield inner, depth + 1
            if begin is not None and size != self._at - begin:
                self._is_odd = True

    def _raw(self) -> None:
        self._is_odd = True
        size = len(self._data) - self._at
        self._put_number(size)
        self._take(size, self._at)

    def _boolean(self) -> None:
        if self._at >= len(self._data):
            raise _Misfit(Fit.ENDS_EARLY, self._at)
        byte = self._data[self._at]
        self._is_odd |= byte > 1
        self._at += 1
        self._put(bytes([byte == 1]))

    def _text(self) -> None:
        first = self._at
        size = self._length(first, is_copied=False)
        text = self._data[self._at : self._at + size]
        if len(text) < size:
            raise _Misfit(Fit.ENDS_EARLY, first)
        self._at += size
        try:
            text.decode()
        except UnicodeDecodeError:
            self._is_odd = True
            text = text.decode(errors="replace").encode()
        self._put_number(len(text))
        self._put(text)

    def _length(self, first: int, *, is_copied: bool = True) -> int:
        size = self._number(_OF_LONG, is_copied=is_copied)
        if size < 0:
            raise _Misfit(Fit.BAD_LENGTH, first)
        return size

    def _take(self, size: int, first: int) -> None:
        if size > len(self._data) - self._at:
            raise _Misfit(Fit.ENDS_EARLY, first)
        self._put(self._data[self._at : self._at + size])
        self._at += size

    def _number(self, kind: _Number, *, is_copied: bool = True) -> int:
        first = self._at
        bits = 0
        for place in range(kind.longest):
            if self._at >= len(self._data):
                raise _Misfit(Fit.ENDS_EARLY, first)
            byte = self._data[self._at]
            self._at += 1
            bits |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:  # noqa: PLR2004 - no other byte follows
                self._is_odd |= bits >= 1 << kind.bits
                bits &= (1 << kind.bits) - 1
                number = (bits >> 1) ^ -(bits & 1)
                if is_copied:
                    self._put_number(number)
                return number
        raise _Misfit(Fit.BAD_NUMBER, first)

    def _put_number(self, number: int) -> None:
        if self._made is not None:
            self._made += number_datum(number)

    def _put(self, data: bytes) -> None:
        if self._made is not None:
            self._made += data


_READ: Final = {Op.BOOLEAN: _Walk._boolean, Op.STRING: _Walk._text, Op.RAW: _Walk._raw}  # noqa: SLF001 - its own


class _Number(NamedTuple):
    longest: int
    bits: int


_OF_INT: Final = _Number(5, 32)
_OF_LONG: Final = _Number(10, 64)

Programs: TypeAlias = tuple[tuple[int, bytes], ...]


def plain_rows(column: pa.Array, programs: Programs, is_framed: bool) -> Walked:  # noqa: FBT001 - a loop
    codes = {number: np.frombuffer(program, np.int32).tolist() for number, program in programs}
    values = column.cast(pa.large_binary()).to_pylist()
    found = [_walked(value, codes, is_framed=is_framed) for value in values]
    ends, fits = np.array([end for _, end in found], np.int64), np.array([fit for fit, _ in found], np.uint8)
    return Walked(ends, fits)


def _walked(value: bytes | None, codes: Mapping[int, Code], *, is_framed: bool) -> tuple[Fit, int]:
    if value is None:
        return Fit.NULL, 0
    if not is_framed:
        return _Walk(codes[0], value).datum(0)
    if len(value) < FRAMING or value[0]:
        return Fit.NOT_FRAMED, 0
    code = codes.get(int.from_bytes(value[1:FRAMING]))
    return (Fit.UNKNOWN, 0) if code is None else _Walk(code, value).datum(FRAMING)


def plain_block(data: bytes, rows: int, program: bytes) -> tuple[npt.NDArray[np.int64], Fit]:
    code = np.frombuffer(program, np.int32).tolist()
    ends: list[int] = []
    is_odd, at = False, 0
    for _ in range(rows):
        fit, at = _Walk(code, data).datum(at)
        if fit >= Fit.ENDS_EARLY:
            return np.array(ends, np.int64), fit
        is_odd |= fit is Fit.ODD
        ends.append(at)
    return np.array(ends, np.int64), (Fit.ODD if is_odd else Fit.LONGER if at < len(data) else Fit.FITS)


RowLoop: TypeAlias = Callable[[pa.Array, Programs, bool], Walked]
BlockLoop: TypeAlias = Callable[[bytes, int, bytes], tuple[npt.NDArray[np.int64], Fit]]

compiled_rows: RowLoop | None
compiled_block: BlockLoop | None
try:
    from sinksdk.values import _avro
except ImportError:
    compiled_rows = compiled_block = None
else:

    def compiled_rows(column: pa.Array, programs: Programs, is_framed: bool) -> Walked:  # noqa: FBT001 - a loop
        width = _WIDTHS.get(column.type.id)
        if width is None:
            column, width = column.cast(pa.large_binary()), 8
        valid, offsets, data = column.buffers()
        has_nulls = valid is not None and column.null_count
        rows = len(column)
        ends, fits = _avro.rows(
            (
                programs,
                is_framed,
                pa.allocate_buffer,
                rows,
                column.offset,
                width,
                valid if has_nulls else None,
                offsets,
                data if data is not None and data.size else b"\0",
            )
        )
        return Walked(np.frombuffer(ends, np.int64, rows), np.frombuffer(fits, np.uint8, rows))

    def compiled_block(data: bytes, rows: int, program: bytes) -> tuple[npt.NDArray[np.int64], Fit]:
        ends, done, fit = _avro.block((((0, program),), pa.allocate_buffer, rows, data))
        return np.frombuffer(ends, np.int64, done), Fit(fit)


_WIDTHS: Final = {
    **dict.fromkeys((pa.binary().id, pa.string().id), 4),
    **dict.fromkeys((pa.large_binary().id, pa.large_string().id), 8),
}

WALK_ROWS: Final[RowLoop] = compiled_rows or plain_rows
WALK_BLOCK: Final[BlockLoop] = compiled_block or plain_block
