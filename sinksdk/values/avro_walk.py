"""Walks Avro datums by their schema without building them: which rows of a column fit, and where they end.

What fits is what Java's GenericDatumReader reads, as Confluent's AvroConverter uses it. It ignores what
stands behind a datum, and reads some bytes that are no canonical Avro: text that is no UTF-8, a boolean of
2, a number of too many bits, a block whose size is wrong. Confluent's sink then writes the value it has
read; so does :func:`repaired`, since readers do not agree about such bytes. Where a nullable field has a
default, Connect reads the default for its null; so does :func:`repaired` again.

The loop over rows is compiled (``_avro.c``) where a wheel brings it or a compiler was there; else
:func:`plain_rows` does the same in Python, many times slower.
"""

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

MOST_DEPTH: Final = 2_000
"""Levels of a datum at most."""
_MOST_ITEMS: Final = 2**31 - 9  # of an array or map, as in Java
_MOST_EMPTY: Final = 2**20  # items that take no bytes
FRAMING: Final = 5
"""Bytes before a datum of a schema registry: a zero byte and the schema's id."""


class Fit(IntEnum):
    """What becomes of a row."""

    FITS = 0
    """A datum, and nothing behind it."""
    LONGER = 1
    """A datum, and stray bytes behind it."""
    ODD = 2
    """Read as a value by Java, but not as canonical Avro, or a null that is read as a default: see
    :func:`repaired`."""
    NULL = 3
    NOT_FRAMED = 4
    UNKNOWN = 5
    """The schema of its id was not given."""
    ENDS_EARLY = 6
    BAD_NUMBER = 7
    BAD_LENGTH = 8
    BAD_BRANCH = 9
    BAD_SYMBOL = 10
    TOO_DEEP = 11


_WHY: Final[Mapping[Fit, str]] = {
    Fit.ENDS_EARLY: "it ends too soon",
    Fit.BAD_NUMBER: "a number has too many bytes",
    Fit.BAD_LENGTH: "a length is negative, or impossibly large",
    Fit.BAD_BRANCH: "a union does not have the branch",
    Fit.BAD_SYMBOL: "an enum does not have the symbol",
    Fit.TOO_DEEP: f"it has more than {MOST_DEPTH:,} levels",
}


def why_not(fit: int, place: int) -> str:
    """What is wrong with a datum, for messages.

    Args:
        fit: one of the :class:`Fit` from ENDS_EARLY on.
        place: the byte at which what is wrong begins.
    """
    return f"{_WHY[Fit(fit)]} (at byte {place})"


class Walked(NamedTuple):
    """A column, walked.

    Args:
        ends: for each row the number of bytes up to the end of its datum, or up to what is wrong.
        fits: a :class:`Fit` for each row.
    """

    ends: npt.NDArray[np.int64]
    fits: npt.NDArray[np.uint8]


def walk(column: pa.Array, schema: AvroSchema) -> Walked:
    """Walk a column of datums of one schema, without framing: rows that are ``Fit.FITS`` fit exactly."""
    return WALK_ROWS(column, ((0, program_of(schema)),), False)


def walk_framed(column: pa.Array, schemas: Mapping[int, AvroSchema], *, fills_items: bool = False) -> Walked:
    """Walk a column of values in a schema registry's framing.

    Args:
        schemas: by id. A row of another id is ``Fit.UNKNOWN``.
        fills_items: see :func:`repaired`.
    """
    return WALK_ROWS(column, _programs(schemas, fills_items), True)


def walk_block(data: bytes, rows: int, schema: AvroSchema) -> tuple[npt.NDArray[np.int64], Fit]:
    """Walk datums that stand one behind the other, as in a block of an Avro file.

    Returns:
        Where each one ends, as far as they fit; FITS where all do and nothing is behind them.
    """
    return WALK_BLOCK(data, rows, program_of(schema))


def repaired(
    value: bytes, begin: int, schema: AvroSchema, *, is_framed: bool = False, fills_items: bool = False
) -> bytes:
    """The canonical datum of the value that Java reads.

    Args:
        begin: where the datum begins.
        is_framed: whether it is a registry's, whose values of schema ``bytes`` are bytes without a length.
        fills_items: nulls in arrays and maps are read as the default of their type, too. Connect's
            JsonConverter puts it there where it writes JSON; Connect's lists and AvroData keep null.

    Raises:
        DataException: it does not fit the schema.
    """
    made = bytearray()
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
    """Which data of a schema are null as a whole: its type is null, or a union that has null.

    Confluent's AvroConverter returns null for them: the record has no value, or no key.

    Args:
        data: the bytes that they are in.
        begins: where each one begins.
        ends: where it ends at the latest.
    """
    if schema.null_branch is None:
        return np.full(len(begins), schema.resolved == "null")
    first = np.where(begins < ends, data[np.minimum(begins, len(data) - 1)], 0xFF)
    are_null: npt.NDArray[np.bool_] = first == schema.null_branch << 1
    for row in np.flatnonzero(first & 0x80).tolist():  # of two bytes or more, which are few: branches are not
        walk = _Walk([], data[begins[row] : ends[row]].tobytes())
        with suppress(_Misfit):
            are_null[row] = walk.branch() == schema.null_branch
    return are_null


# -- programs ----------------------------------------------------------------------------------------------


class Op(IntEnum):
    """What a value's first number says of it, and what the next ones are."""

    NOTHING = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    FIXED = 4
    """Bytes."""
    BYTES = 5
    STRING = 6
    ENUM = 7
    """Number of symbols."""
    ARRAY = 8
    """Place of its items."""
    MAP = 9
    """Place of its values."""
    UNION = 10
    """Number of its branches, places of each."""
    RECORD = 11
    """Number of its fields, places of each."""
    RAW = 12
    """All that is left: a registry's ``bytes`` are framed without a length."""
    ABSENT = 13
    """A null of a field that has a default: the default's number."""


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
    """The schema as ``_avro.c`` reads it: a number for the first value's place, then value after value."""
    return np.array(_program(schema, is_framed, fills_items).code, np.int32).tobytes()


@functools.lru_cache(maxsize=1024)
def _program(schema: AvroSchema, is_framed: bool, fills_items: bool) -> _Program:  # noqa: FBT001 - keys of the cache
    is_raw = is_framed and _Program.kind_of(schema.resolved) == "bytes"
    return _Program(schema.resolved, is_raw=is_raw, fills_items=fills_items)


def _programs(schemas: Mapping[int, AvroSchema], fills_items: bool) -> tuple[tuple[int, bytes], ...]:  # noqa: FBT001
    return tuple((number, _framed_program(schemas[number], fills_items)) for number in sorted(schemas))


@functools.lru_cache(maxsize=1024)
def _framed_program(schema: AvroSchema, fills_items: bool) -> bytes:  # noqa: FBT001 - a key of the cache
    return program_of(schema, is_framed=True, fills_items=fills_items)


class _Program:
    """Of one resolved schema.

    Args:
        is_raw: all bytes are the value.
        fills_items: see :func:`repaired`.
    """

    def __init__(self, resolved: Any, *, is_raw: bool = False, fills_items: bool = False) -> None:
        self._fills_items = fills_items
        self._named = named_types(resolved)
        self._empty = self._empty_names()
        self._places: dict[object, int] = {}
        self.defaults: list[bytes] = []
        """Data of whole unions, by the numbers of Op.ABSENT."""
        self.code: Code = [0]
        self.code[0] = self._put((Op.RAW,)) if is_raw else self._place(resolved)

    @staticmethod
    def kind_of(schema: Any) -> str:
        """The type's name; of a union ``union``."""
        return "union" if isinstance(schema, list) else schema if isinstance(schema, str) else schema["type"]

    def _place(self, schema: Any) -> int:
        """Where a value of a schema is in the program."""
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
        place = self._places[name] = len(self.code)  # before its fields, which may use it
        self.code += [Op.RECORD, len(fields), *[0] * len(fields)]
        for number, each in enumerate(fields):
            self.code[place + 2 + number] = self._nullable_place(each, each["type"])
        return place

    def _nullable_place(self, holder: Any, branches: Any) -> int:
        """Where a value is in the program whose null has the default that a field, array or map holds."""
        if CONNECT_DEFAULT not in holder:
            return self._place(branches)
        places = [self._place(branch) for branch in branches]
        number = 1 - branches.index("null")
        try:
            datum = datum_of(holder[CONNECT_DEFAULT], branches[number], self._named)
        except ValueError:  # it is of another type: there is none
            return self._place(branches)
        self.defaults.append(number_datum(number) + datum)
        places[1 - number] = self._put((Op.ABSENT, len(self.defaults) - 1))
        return self._put((Op.UNION, len(places), *places))

    def _put(self, value: tuple[int, ...]) -> int:
        """A value that is there already is not put twice."""
        if value not in self._places:
            self._places[value] = len(self.code)
            self.code += value
        return self._places[value]

    def _empty_names(self) -> set[str]:
        """The names of types whose values take no bytes, whatever they are."""
        found: set[str] = set()
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
    """The bytes are no datum."""

    def __init__(self, fit: Fit, place: int) -> None:
        super().__init__(fit, place)
        self.fit = fit
        self.place = place


_Steps: TypeAlias = Iterator[tuple[int, int]]


class _Walk:
    """Of one value.

    Args:
        made: takes the canonical datum; None where it is not wanted.
        defaults: what ``made`` takes for Op.ABSENT.
    """

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
        """Whether a datum begins there, and where it ends, or what is wrong begins."""
        self._at = begin
        try:
            open_values = [self._steps(self._code[0], 1)]
            while open_values:  # datums are deeper than Python's stack
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
        """The number of a union's branch that begins here. Raises _Misfit."""
        return self._number(_OF_INT)

    def _steps(self, node: int, depth: int) -> _Steps:
        """Read a value. What is yielded is to be read before the rest."""
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
    """What ``_avro.c`` does, without a compiler."""
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
    """What ``_avro.c`` does, without a compiler."""
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


# -- with one ----------------------------------------------------------------------------------------------

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
        """The loop of ``_avro.c``."""
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
        """The loop of ``_avro.c``."""
        ends, done, fit = _avro.block((((0, program),), pa.allocate_buffer, rows, data))
        return np.frombuffer(ends, np.int64, done), Fit(fit)


_WIDTHS: Final = {
    **dict.fromkeys((pa.binary().id, pa.string().id), 4),
    **dict.fromkeys((pa.large_binary().id, pa.large_string().id), 8),
}

WALK_ROWS: Final[RowLoop] = compiled_rows or plain_rows
"""The better one of those that are there."""
WALK_BLOCK: Final[BlockLoop] = compiled_block or plain_block
