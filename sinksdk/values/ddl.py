"""Parses schemas in Spark's DDL without Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa

from sinksdk.errors import ConfigException
from sinksdk.values.shapes import Shape, list_of, map_of, struct_of

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_]\w*|`(?:[^`]|``)+`)|(?P<number>\d+)|(?P<text>(?:'(?:[^'\\]|\\.)*')+|(?:\"(?:[^\"\\]|\\.)*\")+)"
    r"|(?P<mark>[<>(),:]))"
)
_UTC: Final = "UTC"
_SCALARS: Final[Mapping[str, pa.DataType]] = {
    "BOOLEAN": pa.bool_(),
    **dict.fromkeys(("TINYINT", "BYTE"), pa.int8()),
    **dict.fromkeys(("SMALLINT", "SHORT"), pa.int16()),
    **dict.fromkeys(("INT", "INTEGER"), pa.int32()),
    **dict.fromkeys(("BIGINT", "LONG"), pa.int64()),
    **dict.fromkeys(("FLOAT", "REAL"), pa.float32()),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_LTZ"), pa.timestamp("us", tz=_UTC)),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}
_TYPES: Final = (
    "BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p, s), STRING, BINARY, DATE, TIMESTAMP, "
    "TIMESTAMP_NTZ, ARRAY<…>, MAP<STRING, …>, STRUCT<…>"
)
_DECIMALS: Final = ("DECIMAL", "DEC", "NUMERIC")
_SIZED: Final = ("VARCHAR", "CHAR", "CHARACTER")

_MOST_DIGITS: Final = 38
_MOST_DEPTH: Final = 100


def parse_ddl(text: str) -> Shape:
    return _Parser(text).schema()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, int]] = []
        self._next = 0
        self._depth = 0
        place = 0
        while text[place:].strip():
            found = _TOKEN.match(text, place)
            if found is None:
                begin = place + len(text[place:]) - len(text[place:].lstrip())
                raise ConfigException(f"'{text[begin]}' at character {begin + 1} is not part of Spark's DDL")
            place = found.end()
            token = found.group().strip()
            self._tokens.append((token, place - len(token)))

    def schema(self) -> Shape:
        if not self._tokens:
            raise ConfigException("it is empty: name fields, as in 'carrier STRING, dep_delay DOUBLE'")
        first, second = self._peek(), self._peek(1)
        is_one = first.upper() in (*_DECIMALS, "ARRAY", "MAP", "STRUCT") and second in ("<", "(")
        is_one = is_one or (len(self._tokens) == 1 and first.upper() in (*_SCALARS, *_DECIMALS))
        shape = self._type() if is_one else self._fields()
        if self._next < len(self._tokens):
            raise self._wrong("the end")
        return shape

    def _peek(self, ahead: int = 0) -> str:
        place = self._next + ahead
        return self._tokens[place][0] if place < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._next += 1
        return token

    def _takes(self, word: str) -> bool:
        if self._peek().upper() != word:
            return False
        self._next += 1
        return True

    def _must(self, mark: str) -> None:
        if not self._takes(mark):
            raise self._wrong(f"'{mark}'")

    def _wrong(self, wanted: str) -> ConfigException:
        if self._next >= len(self._tokens):
            return ConfigException(f"it ends too early: expected {wanted}")
        token, place = self._tokens[self._next]
        return ConfigException(f"found '{token}' at character {place + 1}, but expected {wanted}")

    def _fields(self) -> Shape:
        fields: dict[str, Shape] = {}
        while True:
            name = self._name()
            if name in fields:
                raise ConfigException(f"two fields have the name '{name}'")
            self._takes(":")  # Spark's DDL allows a colon here
            fields[name] = self._field()
            if not self._takes(","):
                return struct_of(fields)

    def _name(self) -> str:
        token = self._peek()
        if not re.match(r"[A-Za-z_`]", token):
            raise self._wrong("a field's name")
        self._next += 1
        return token[1:-1].replace("``", "`") if token.startswith("`") else token

    def _field(self) -> Shape:
        shape = self._type()
        is_required = self._takes("NOT")
        if is_required:
            self._must("NULL")
        if self._takes("COMMENT") and not self._take().startswith(("'", '"')):
            self._next -= 1
            raise self._wrong("a comment in quotes")
        return replace(shape, is_optional=False) if is_required else shape

    def _type(self) -> Shape:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise ConfigException(f"types are nested more than {_MOST_DEPTH} deep")
        try:
            return self._any_type()
        finally:
            self._depth -= 1

    def _any_type(self) -> Shape:
        word = self._peek().upper()
        if word in _SCALARS:
            self._next += 1
            return Shape(_SCALARS[word])
        if word in _DECIMALS:
            self._next += 1
            return Shape(self._decimal())
        if word in _SIZED:
            self._next += 1
            self._must("(")
            self._number()
            self._must(")")
            return Shape(pa.string())
        if word in ("ARRAY", "MAP", "STRUCT"):
            self._next += 1
            return self._nested(word)
        raise self._wrong(f"a type ({_TYPES})")

    def _nested(self, word: str) -> Shape:
        self._must("<")
        if word == "STRUCT":
            shape = struct_of({}) if self._peek() == ">" else self._fields()
        elif word == "ARRAY":
            shape = list_of(self._type())
        else:
            place = self._next
            key = self._type()
            if key.kind != pa.string():
                self._next = place
                raise self._wrong("STRING (keys of JSON objects are texts)")
            self._must(",")
            shape = map_of(self._type())
        self._must(">")
        return shape

    def _decimal(self) -> pa.DataType:
        precision, scale = 10, 0  # the defaults in Spark
        if self._takes("("):
            place = self._next
            precision = self._number()
            scale = self._number() if self._takes(",") else 0
            if not 1 <= precision <= _MOST_DIGITS or scale > precision:
                self._next = place
                raise self._wrong(f"a precision of 1 to {_MOST_DIGITS} that is at least the scale")
            self._must(")")
        return pa.decimal128(precision, scale)

    def _number(self) -> int:
        if not self._peek().isdigit():
            raise self._wrong("a number")
        return int(self._take())
