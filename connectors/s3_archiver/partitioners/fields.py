"""Read fields of values by dotted paths, as Arrow columns."""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from sinksdk import DataException, read_json
from sinksdk.connectors.s3_archiver.formats.columns import (
    Longs,
    as_column,
    long_column,
    null_rows,
    texts_column,
)
from sinksdk.values.json_text import is_json

Path = tuple[str, ...]


class FieldReader(Protocol):
    def learn(self, values: pa.Array) -> None:
        """Fetch unknown schemas. Raises RetriableException if the schema registry is unavailable."""

    def read(self, values: pa.Array) -> list[Field]: ...


class TypedFields:
    def __init__(self, paths: Sequence[Path], of_json: JsonFields, of_bytes: FieldReader) -> None:
        self._paths = paths
        self._of_json = of_json
        self._of_bytes = of_bytes

    def learn(self, values: pa.Array) -> None:
        if _is_bytes(values.type):
            self._of_bytes.learn(values.cast(pa.binary()))

    def read(self, values: pa.Array) -> list[Field]:
        if is_json(values.type):
            return self._of_json.read_texts(values)
        if _is_bytes(values.type):
            return self._of_bytes.read(values.cast(pa.binary()))
        return [self._field(values, path) for path in self._paths]

    def _field(self, values: pa.Array, path: Path) -> Field:
        nulls, rows = null_rows(values)
        bad = dict.fromkeys(nulls.tolist(), "is null")
        column = values
        for name in path:
            kind = column.type
            if not pa.types.is_struct(kind):
                why = f"has no field '{'.'.join(path)}': it is of type {kind} where '{name}' should be"
            elif kind.get_field_index(name) < 0:
                why = f"has no field '{'.'.join(path)}'"
            else:
                column = pc.struct_field(column, [kind.get_field_index(name)])
                continue
            return Field([], bad | dict.fromkeys(rows.tolist(), why))
        if pa.types.is_string_view(column.type):
            column = column.cast(pa.string())  # Arrow has few functions for views
        if bad:
            column = column.take(long_column(rows))
        return Field([(rows, column)] if len(rows) else [], bad)


def _is_bytes(kind: pa.DataType) -> bool:
    tests = (pa.types.is_null, pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    return any(test(kind) for test in tests)


# -- JSON ----------------------------------------------------------------------------------------

_FEW: Final = 16
# Number of values that are read one by one if they have no common type: a search for the bad ones would take
# longer.
_SMALL: Final = 512
_KINDS: Final[Mapping[type, pa.DataType]] = {
    str: pa.string(),
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
}
_ENVELOPE: Final = {"schema", "payload"}
_BEGINS_AS_ENVELOPE: Final = r'^\s*\{\s*"(?:schema|payload)"\s*:'
_MISSING: Final = object()
_EXACT: Final = 2**53


class JsonFields:
    def __init__(
        self, paths: Sequence[Path], *, schemas_enable: bool | None = False, fractions: Collection[Path] = ()
    ) -> None:
        self._paths = paths
        # Whether values have Connect's envelope: True requires it, False takes values as they are, None
        # unwraps exact envelopes.
        self._schemas_enable = schemas_enable
        # Fields in which 2 and 2.0 count as the same number.
        self._fractions = fractions
        starts = {path[:length] for path in paths for length in range(1, len(path))}
        self._is_tree = not starts & set(paths)  # no path leads through another path's field

    def learn(self, values: pa.Array) -> None: ...

    def read(self, values: pa.Array) -> list[Field]:
        texts = read_json(values)
        bad = {row: f"is not JSON ({why})" for row, why in texts.failed.items()}
        return self._read(texts.column, bad)

    def read_texts(self, values: pa.Array) -> list[Field]:
        return self._read(values, {})

    def _read(self, values: pa.Array, bad: Mapping[int, str]) -> list[Field]:
        missing, rows = null_rows(values)
        reasons = {row: bad.get(row, "is null") for row in missing.tolist()}
        found = [Field(bad=reasons) for _ in self._paths]
        texts = (values if len(rows) == len(values) else values.drop_null()).storage
        self._halves(rows, texts.cast(pa.binary()), found)
        for each in found:
            each.end()
        return found

    def _halves(self, rows: Longs, values: pa.Array, found: list[Field]) -> None:
        if not len(rows):
            return
        if len(rows) <= _FEW or not self._is_tree:
            self._one_by_one(rows, values, found)
            return
        # pyarrow.json costs a quarter of Python's json, but reads no field of several types and no bad
        # JSON: such rows are searched for in halves.
        columns = self._columns(values)
        if columns is None and len(rows) <= _SMALL:
            self._one_by_one(rows, values, found)
            return
        if columns is None:
            middle = len(rows) // 2
            self._halves(rows[:middle], values[:middle], found)
            self._halves(rows[middle:], values[middle:], found)
            return
        # A null may stand for a null or for a missing field, and its parent may not be an object.
        nulls = [null_rows(column)[0] for column in columns]
        again = nulls[0] if len(nulls) == 1 else np.unique(np.concatenate(nulls))
        if not len(again):
            for each, column in zip(found, columns, strict=True):
                each.pieces.append((rows, column))
            return
        kept = np.ones(len(rows), bool)
        kept[again] = False
        places = long_column(np.flatnonzero(kept))
        for each, column in zip(found, columns, strict=True):
            each.pieces.append((rows[kept], column.take(places)))
        self._one_by_one(rows[again], values.take(long_column(again)), found)

    def _columns(self, values: pa.Array) -> list[pa.Array] | None:
        """Return the fields as columns; None if the values have no common type."""
        outer = self._outer(values)
        if outer is None:
            return None
        leaves = self._kinds(values)
        if leaves is None:
            return None
        nested: dict[str, Any] = {}
        for path, leaf in zip(self._paths, leaves, strict=True):
            inner = nested
            for name in (*outer, *path)[:-1]:
                inner = inner.setdefault(name, {})
            inner[path[-1]] = leaf
        # Each value is wrapped into an object: no value can then end within another one, and the number of
        # rows is right only if each row is one value.
        lines = pa.ListArray.from_arrays(as_column(np.array([0, len(values)], np.int32), pa.int32()), values)
        try:
            joined = pc.binary_join(lines, _between())[0].as_buffer()
            text = b"".join((b'{"v":', joined, b"}"))
            table = pyarrow.json.read_json(
                pa.BufferReader(text),
                read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
                parse_options=pyarrow.json.ParseOptions(
                    explicit_schema=pa.schema([("v", _struct(nested))]), unexpected_field_behavior="ignore"
                ),
            )
            if table.num_rows != len(values):
                return None
            (chunk,) = table.combine_chunks().column("v").chunks
            columns = [pc.struct_field(chunk, [*outer, *path]) for path in self._paths]
            for column in columns:
                column.validate(full=True)  # a text may not be UTF-8
                if pa.types.is_floating(column.type) and not _is_exact(column):
                    return None
        except (pa.ArrowException, UnicodeDecodeError, OverflowError):
            return None
        return columns

    def _outer(self, values: pa.Array) -> Path | None:
        if self._schemas_enable is not None:
            return ("payload",) if self._schemas_enable else ()
        enveloped = pc.sum(pc.match_substring_regex(values, _BEGINS_AS_ENVELOPE)).as_py() or 0
        return () if not enveloped else ("payload",) if enveloped == len(values) else None

    def _kinds(self, values: pa.Array) -> list[pa.DataType] | None:
        kinds: list[pa.DataType | None] = [None] * len(self._paths)
        for row in range(0, len(values), max(len(values) // _FEW, 1)):
            try:
                value = self._parsed(values[row].as_py())
            except DataException:
                return None
            for number, path in enumerate(self._paths):
                kinds[number] = kinds[number] or _KINDS.get(type(at_path(value, path)))
            if None not in kinds:
                break
        found = [kind or pa.string() for kind in kinds]
        with_points = {path for path, kind in zip(self._paths, found, strict=True) if kind == pa.float64()}
        return found if with_points <= set(self._fractions) else None

    def _one_by_one(self, rows: Longs, values: pa.Array, found: list[Field]) -> None:
        for row, data in zip(rows.tolist(), values.to_pylist(), strict=True):
            try:
                value = self._parsed(data)
            except DataException as error:
                for each in found:
                    each.bad[row] = str(error)
                continue
            for each, path in zip(found, self._paths, strict=True):
                each.add(row, at_path(value, path), path)

    def _parsed(self, data: bytes) -> Any:
        """Parse a value. Raises DataException with a reason that continues "its value"."""
        try:
            value = json.loads(data)
        except RecursionError:
            raise DataException("is JSON with too many levels") from None
        if self._schemas_enable is False:
            return value
        if isinstance(value, dict) and value.keys() == _ENVELOPE:
            return value["payload"]
        if self._schemas_enable:
            raise DataException(
                "is not an object of exactly 'schema' and 'payload', which 'value.converter.schemas.enable' "
                "= true requires"
            )
        return value


@functools.cache
def _between() -> pa.Scalar:
    return texts_column(['}\n{"v":']).cast(pa.binary())[0]


def _is_exact(column: pa.Array) -> bool:
    # Larger whole numbers may have been rounded.
    largest = pc.max(pc.abs(column)).as_py()
    return largest is None or largest < _EXACT


def _struct(names: Mapping[str, Any]) -> pa.DataType:
    return pa.struct(
        [(name, _struct(inner) if isinstance(inner, dict) else inner) for name, inner in names.items()]
    )


def at_path(value: Any, path: Path) -> Any:
    for name in path:
        if value is None:
            return None
        if not isinstance(value, dict) or name not in value:
            return _MISSING
        value = value[name]
    return value


class Field:
    def __init__(
        self, pieces: Sequence[tuple[Longs, pa.Array]] = (), bad: Mapping[int, str] | None = None
    ) -> None:
        # Row numbers, ascending, with the values of these rows: a column of any type.
        self.pieces = list(pieces)
        # Rows without the field, with a reason that continues "its value".
        self.bad = dict(bad or {})
        self._single: dict[pa.DataType, tuple[list[int], list[Any]]] = {}

    def add(self, row: int, value: Any, path: Path, moment: pa.DataType | None = None) -> None:
        name = ".".join(path)
        if value is _MISSING:
            self.bad[row] = f"has no field '{name}'"
            return
        kind = pa.null() if value is None else _KINDS.get(type(value))
        if moment is not None and kind == pa.int64():
            kind = moment
        if kind is None:
            self.bad[row] = f"has {_WORDS.get(type(value), type(value).__name__)} as '{name}'"
            return
        if kind == pa.int64() and not -(2**63) <= value < 2**63:
            kind, value = pa.string(), str(value)
        elif kind == pa.string():
            try:
                value.encode()
            except UnicodeEncodeError:
                self.bad[row] = f"has an unpaired surrogate in '{name}'"
                return
        rows, values = self._single.setdefault(kind, ([], []))
        rows.append(row)
        values.append(value)

    def end(self) -> None:
        """Make pieces of single values."""
        self.pieces += [
            (np.array(rows, np.int64), _column(values, kind)) for kind, (rows, values) in self._single.items()
        ]


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_null(kind):
        return pa.nulls(len(values))
    if pa.types.is_string(kind):
        return texts_column(values)
    if pa.types.is_boolean(kind):
        return as_column(np.array(values, np.uint8), pa.uint8()).cast(kind)
    size = kind.bit_width // 8
    return as_column(np.array(values, f"{'f' if pa.types.is_floating(kind) else 'i'}{size}"), kind)


_WORDS: Final[Mapping[type, str]] = {dict: "an object", list: "an array", bytes: "bytes"}
