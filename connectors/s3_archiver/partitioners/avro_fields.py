"""Read fields of Avro values with a schema registry, from all rows together.

fastavro would decode whole values, one after another, for the few fields that folders are made of.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sinksdk import ConfigException, RetriableException
from sinksdk.connectors.s3_archiver.formats.avro_value import (
    IS_NULL,
    NOT_FRAMED,
    RegistrySchemas,
    SchemaOf,
    borders_in,
    divided,
    schema_ids,
)
from sinksdk.connectors.s3_archiver.formats.columns import (
    Longs,
    as_column,
    long_column,
    text_column,
    texts_column,
)
from sinksdk.connectors.s3_archiver.partitioners.fields import Field, Path, at_path
from sinksdk.values.avro_schema import CONNECT_DEFAULT, datum_reader, named_types
from sinksdk.values.avro_walk import FRAMING, null_data, repaired

_MOMENTS: Final[Mapping[str, pa.DataType]] = {
    "date": pa.date32(),
    **{
        f"{prefix}timestamp-{name}": pa.timestamp(unit)
        for prefix in ("", "local-")
        for name, unit in (("millis", "ms"), ("micros", "us"), ("nanos", "ns"))
    },
}


class AvroFields:
    def __init__(self, paths: Sequence[Path], schema_of: SchemaOf) -> None:
        self._paths = paths
        self._schemas = RegistrySchemas(schema_of)

    def learn(self, values: pa.Array) -> None:
        self._schemas.learn(values)

    def read(self, values: pa.Array) -> list[Field]:
        found = [Field() for _ in self._paths]
        for number, of_schema in divided(schema_ids(values)):
            rows = np.flatnonzero(of_schema)
            why = self._problem(number)
            if why is None:
                self._read(number, rows, values, found)
                continue
            for each in found:
                each.bad |= dict.fromkeys(rows.tolist(), why)
        for each in found:
            each.end()
        return found

    def _problem(self, number: int) -> str | None:
        if number == IS_NULL:
            return "is null"
        if number == NOT_FRAMED:
            return "does not begin with a zero byte and a schema id, as 'value.converter' = avro requires"
        why = self._schemas.why_not(number)
        return why and f"has schema {number}: {why}"

    def _read(self, number: int, rows: Longs, values: pa.Array, found: Sequence[Field]) -> None:
        schema = self._schemas.known[number]
        borders, buffer = borders_in(values)
        data, places = np.frombuffer(buffer, np.uint8), borders.astype(np.int64)
        begins, ends = places[:-1] + FRAMING, places[1:]
        if schema.has_null:
            is_null = null_data(schema, data, begins[rows], ends[rows])
            for each in found:
                each.bad |= dict.fromkeys(rows[is_null].tolist(), "is null")
            rows = rows[~is_null]
        for path, each in zip(self._paths, found, strict=True):
            # A datum can only be read from front to back; fastavro reads the rows that this walk cannot.
            walk = Walk(data, schema.resolved, ends, each)
            walk.read(schema.resolved, path, rows, begins[rows])
            left = np.sort(np.concatenate([np.empty(0, np.int64), *walk.left]))
            moment = walk.moment(schema.resolved, path)
            if not len(left):
                continue
            # Without logical types, timestamps of all years fit.
            read = datum_reader(schema.resolved, is_plain=True)
            for row in left.tolist():
                try:
                    datum = repaired(values[row].as_py(), FRAMING, schema, is_framed=True)
                    value = read(io.BytesIO(datum))
                except (RetriableException, ConfigException):
                    raise
                except Exception as error:  # noqa: BLE001 - damaged data make fastavro raise errors of any type
                    each.bad[row] = f"does not match schema {number} ({type(error).__name__})"
                else:
                    each.add(row, at_path(value, path), path, moment)


_BEYOND: Final = 2**40  # a position beyond any batch
_MOST_ITEMS: Final = 10_000  # items of an array that may be skipped one by one
_LONGEST: Final = 10  # most bytes of a number
_MORE: Final = 0x80  # the bit that says that another byte follows
_FIXED: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class _Type(NamedTuple):
    name: str
    schema: Any


class Walk:
    """Decode fields of many Avro values of one schema at once, column by column."""

    def __init__(self, data: npt.NDArray[np.uint8], schema: Any, ends: Longs, found: Field) -> None:
        self._data = data
        self._ends = ends
        self._found = found
        self._named = named_types(schema)
        # Numbers of rows that have to be read in another way.
        self.left: list[Longs] = []

    def read(self, schema: Any, path: Path, rows: Longs, at: Longs, *, replaces_null: bool = False) -> None:
        """Read the field at a path, from values that begin at these positions."""
        if not len(rows):
            return
        kind = self._type(schema)
        if kind.name == "union":
            branches, at = self._long(at)
            for number, branch in enumerate(kind.schema):
                chosen = branches == number
                # This null stands for a default, which this walk cannot read.
                if replaces_null and branch == "null":
                    self.left.append(rows[chosen])
                else:
                    self.read(branch, path, rows[chosen], at[chosen])
            self.left.append(rows[(branches < 0) | (branches >= len(kind.schema))])
        elif kind.name == "record" and path:
            self._inside(kind.schema, path, rows, at)
        elif kind.name == "null":
            self._add(rows, at, pa.nulls(len(rows)))
        elif path:
            self.left.append(rows)  # not a record: the field does not exist, or the value is a map
        else:
            self._leaf(kind, rows, at)

    def _inside(self, record: Mapping[str, Any], path: Path, rows: Longs, at: Longs) -> None:
        for field in record["fields"]:
            if field["name"] == path[0]:
                self.read(field["type"], path[1:], rows, at, replaces_null=CONNECT_DEFAULT in field)
                return
            at = self._past(field["type"], at)
        self.left.append(rows)

    def _leaf(self, kind: _Type, rows: Longs, at: Longs) -> None:
        if kind.name in ("int", "long"):
            numbers, at = self._long(at)
            moment = _MOMENTS.get(kind.schema.get("logicalType", ""))
            column = long_column(numbers)
            if moment is not None:
                column = (column.cast(pa.int32(), safe=False) if pa.types.is_date(moment) else column).view(
                    moment
                )
            self._add(rows, at, column)
        elif kind.name == "enum":
            numbers, at = self._long(at)
            symbols = kind.schema["symbols"]
            good = (numbers >= 0) & (numbers < len(symbols))
            self.left.append(rows[~good])
            self._add(rows[good], at[good], texts_column(symbols).take(long_column(numbers[good])))
        elif kind.name == "boolean":
            self._add(rows, at + 1, as_column(self._byte(at), pa.uint8()).cast(pa.bool_()))
        elif kind.name in ("float", "double"):
            size = _FIXED[kind.name]
            places = np.minimum(at[:, None] + np.arange(size), len(self._data) - 1)
            numbers = self._data[places].reshape(-1).view(f"<f{size}").astype(np.float64)
            self._add(rows, at + size, as_column(numbers, pa.float64()))
        elif kind.name == "string":
            self._strings(rows, at)
        else:
            self.left.append(rows)

    def _strings(self, rows: Longs, at: Longs) -> None:
        sizes, begin = self._length(at)
        good = begin + sizes <= self._ends[rows]
        self.left.append(rows[~good])
        rows, begin, sizes = rows[good], begin[good], sizes[good]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        places = np.repeat(begin - offsets[:-1], sizes) + np.arange(offsets[-1])
        column = text_column(offsets, self._data[places])
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            self.left.append(rows)  # a text is not UTF-8
        else:
            self._add(rows, begin + sizes, column)

    def _add(self, rows: Longs, at: Longs, column: pa.Array) -> None:
        good = at <= self._ends[rows]
        if not good.all():
            self.left.append(rows[~good])
            rows, column = rows[good], column.take(long_column(np.flatnonzero(good)))
        if len(rows):
            self._found.pieces.append((rows, column))

    # -- skipping --------------------------------------------------------------------------------

    def _past(self, schema: Any, at: Longs) -> Longs:  # noqa: PLR0911 - one for each kind of type
        """Return each row's position after the value; past the end of the data if the value is malformed."""
        if not len(at):
            return at
        kind = self._type(schema)
        if kind.name in _FIXED:
            return at + _FIXED[kind.name]
        if kind.name == "fixed":
            return at + int(kind.schema["size"])
        if kind.name in ("int", "long", "enum"):
            return self._long(at)[1]
        if kind.name in ("string", "bytes"):
            sizes, at = self._length(at)
            return at + sizes
        if kind.name in ("array", "map"):
            return self._past_items(kind, at)
        if kind.name == "union":
            return self._past_union(kind.schema, at)
        for field in kind.schema["fields"]:
            at = self._past(field["type"], at)
        return at

    def _past_union(self, branches: Sequence[Any], at: Longs) -> Longs:
        numbers, at = self._long(at)
        behind = np.full(len(at), _BEYOND)
        for number, branch in enumerate(branches):
            chosen = numbers == number
            behind[chosen] = self._past(branch, at[chosen])
        return behind

    def _past_items(self, kind: _Type, at: Longs) -> Longs:
        behind = np.full(len(at), _BEYOND)
        rows = np.arange(len(at))
        while len(rows):
            counts, at = self._long(at)
            sized = counts < 0  # the block's size in bytes follows a negative count
            sizes, behind_sizes = self._length(at)
            at = np.where(sized, behind_sizes + sizes, at)
            ended = counts == 0
            behind[rows[ended]] = at[ended]
            left = np.where(sized, 0, counts)
            going = ~ended & (counts <= _MOST_ITEMS) & (at < len(self._data))
            rows, at, left = rows[going], at[going], left[going]
            size = _FIXED.get(self._type(kind.schema["items"]).name) if kind.name == "array" else None
            if size is not None:
                at, left = at + left * size, np.zeros_like(left)
            while (left > 0).any():
                more = left > 0
                items = at[more]
                if kind.name == "map":
                    items = self._past("string", items)
                at[more] = self._past(kind.schema["values" if kind.name == "map" else "items"], items)
                left = left - more
        return behind

    # -- bytes -----------------------------------------------------------------------------------

    def _byte(self, at: Longs) -> npt.NDArray[np.uint8]:
        return self._data[np.minimum(at, len(self._data) - 1)]

    def _long(self, at: Longs) -> tuple[Longs, Longs]:
        byte = self._byte(at)
        bits = (byte & 0x7F).astype(np.uint64)
        at = at + 1
        going = np.flatnonzero(byte >= _MORE)
        for place in range(1, _LONGEST):
            if not len(going):
                break
            byte = self._byte(at[going])
            bits[going] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * place)
            at[going] += 1
            going = going[byte >= _MORE]
        at[going] = _BEYOND
        signs = -(bits & np.uint64(1)).astype(np.int64)
        return (bits >> np.uint64(1)).astype(np.int64) ^ signs, at

    def _length(self, at: Longs) -> tuple[Longs, Longs]:
        """Return lengths, and the positions behind them; impossible lengths lead beyond all rows."""
        sizes, at = self._long(at)
        good = (sizes >= 0) & (sizes <= len(self._data))
        return np.where(good, sizes, 0), np.where(good, at, _BEYOND)

    # -- schemas ---------------------------------------------------------------------------------

    def _type(self, schema: Any) -> _Type:
        if isinstance(schema, list):
            return _Type("union", schema)
        if isinstance(schema, str):
            return self._type(self._named[schema]) if schema in self._named else _Type(schema, {})
        inner = schema["type"]
        if isinstance(inner, str) and inner not in self._named:
            return _Type(inner, schema)
        return self._type(inner)

    def moment(self, schema: Any, path: Path) -> pa.DataType | None:
        kind = self._type(schema)
        if kind.name == "union":
            found = (self.moment(branch, path) for branch in kind.schema)
            return next((each for each in found if each is not None), None)
        if not path:
            return _MOMENTS.get(kind.schema.get("logicalType", ""))
        inner = [each for each in kind.schema.get("fields", ()) if each["name"] == path[0]]
        return self.moment(inner[0]["type"], path[1:]) if inner else None
