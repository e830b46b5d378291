"""Encode typed Arrow columns as Avro, by a schema derived from their type."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final
from urllib.parse import quote_plus

import numpy as np
import pyarrow as pa

from sinksdk import DataException
from sinksdk.connectors.s3_archiver.formats.columns import Column, filled
from sinksdk.connectors.s3_archiver.formats.datums import EncodedRows, borders_of
from sinksdk.connectors.s3_archiver.formats.values import Fate, JoinedValues
from sinksdk.values.decimals import MOST_WIDE, bytes_of, is_decimal, is_wide, items_of, number_of

_NAMESPACE: Final = "io.confluent.connect.avro"
_RECORD: Final = "ConnectDefault"
_ENTRY: Final = "MapEntry"
_MOST_DIGITS_OF_64_BITS: Final = 20
_DIGITS_OF_WIDE: Final = 1_000  # Readers round to this precision: Connect's 64 would cut digits.


class TypedDatums:
    """Encode columns of one Arrow type. Raises DataException if Avro cannot express the type."""

    def __init__(self, kind: pa.DataType) -> None:
        import fastavro  # noqa: PLC0415 - slow to import, and needed for typed values only

        made = _Schemas()
        self.schema, written, self._shown = made.of(kind)
        self._written = fastavro.parse_schema(written)
        self._write = fastavro.schemaless_writer

    def encode(self, column: Column) -> JoinedValues:
        rows, lengths = len(column), np.zeros(len(column), np.int64)
        fates = np.full(rows, Fate.NULL, np.uint8)
        out = io.BytesIO()
        for row, value in enumerate(self._shown(column)):
            if value is not None:
                at = out.tell()
                self._write(out, self._written, value)
                lengths[row], fates[row] = out.tell() - at, Fate.TAKEN
        return JoinedValues(EncodedRows(memoryview(out.getvalue()), borders_of(lengths)), fates)


_Shown = Callable[[Column], list[Any]]
# The schema of a type, the schema for writing, and the conversion of values. Timestamps are written as plain
# numbers, which is faster and covers all years.
_Made = tuple[Any, Any, _Shown]

_SCALARS: Final[Mapping[pa.DataType, Any]] = {
    pa.null(): "null",
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.uint8(): "int",
    pa.uint16(): "int",
    pa.uint32(): "long",
    pa.float16(): "float",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.binary(): "bytes",
    pa.large_binary(): "bytes",
    pa.binary_view(): "bytes",
}
_TIMESTAMPS: Final = {"s": "millis", "ms": "millis", "us": "micros", "ns": "nanos"}


class _Schemas:
    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def of(self, kind: pa.DataType) -> _Made:
        if pa.types.is_dictionary(kind):
            schema, written, shown = self.of(kind.value_type)
            return schema, written, lambda column: shown(column.dictionary_decode())
        if isinstance(kind, pa.BaseExtensionType) and not is_wide(kind):
            schema, written, shown = self.of(kind.storage_type)
            return schema, written, lambda column: shown(column.storage)
        if kind in _SCALARS:
            return _SCALARS[kind], _SCALARS[kind], _listed
        for test, make in (
            (pa.types.is_struct, self._record),
            (pa.types.is_map, self._map),
            (_is_list, self._array),
            (is_decimal, _decimal),
            (pa.types.is_temporal, _moment),
        ):
            if test(kind):
                return make(kind)
        if pa.types.is_fixed_size_binary(kind):
            return "bytes", "bytes", _listed
        if pa.types.is_uint64(kind):
            digits = pa.decimal128(_MOST_DIGITS_OF_64_BITS, 0)
            schema, written, _ = _decimal(digits)
            return schema, written, lambda column: _listed(column.cast(digits))
        raise _without_avro(kind)

    def _optional(self, kind: pa.DataType) -> _Made:
        schema, written, shown = self.of(kind)
        # Any part of an Arrow column may be null.
        return (schema, written, shown) if schema == "null" else (["null", schema], ["null", written], shown)

    def _name(self, name: str) -> str:
        count = self._counts[name] = self._counts.get(name, 0) + 1
        return name if count == 1 else f"{name}{count}"

    def _record(self, kind: pa.StructType, name: str = _RECORD) -> _Made:
        # Connect uses these names for structures without a name, and for fields with illegal names.
        head = {"type": "record", "name": self._name(name), "namespace": _NAMESPACE}
        fields = [(field.name, legal_name(field.name), self._optional(field.type)) for field in kind]
        names = [name for _, name, _ in fields]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DataException(
                f"fields {', '.join(repr(own) for own, name, _ in fields if name == twice)} would all be "
                f"called '{twice}' in Avro: rename them"
            )

        def shown(column: Column) -> list[Any]:
            parts = [show(part) for (_, _, (_, _, show)), part in zip(fields, column.flatten(), strict=True)]
            rows = zip(*parts, strict=True) if parts else ((),) * len(column)
            records = [dict(zip(names, row, strict=True)) for row in rows]
            return _where_valid(column, records)

        schema, written = (
            head
            | {"fields": [{"name": name, "type": made[which], "default": None} for _, name, made in fields]}
            for which in (0, 1)
        )
        return schema, written, shown

    def _array(self, kind: Any) -> _Made:
        schema, written, show = self._optional(kind.value_type)

        def shown(column: Column) -> list[Any]:
            return _where_valid(column, _divided(show(items_of(column)), column.value_lengths()))

        return {"type": "array", "items": schema}, {"type": "array", "items": written}, shown

    def _map(self, kind: pa.MapType) -> _Made:
        entry = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        as_list = pa.list_(pa.struct([kind.key_field, kind.item_field]))
        if _SCALARS.get(kind.key_type) != "string":
            schema, written, show = self._record(entry, _ENTRY)

            def pairs(column: Column) -> list[Any]:
                entries = column.cast(as_list)
                items = pa.StructArray.from_arrays(items_of(entries).flatten(), fields=list(entry))
                return _where_valid(column, _divided(show(items), entries.value_lengths()))

            return {"type": "array", "items": schema}, {"type": "array", "items": written}, pairs
        schema, written, show = self._optional(kind.item_type)

        def shown(column: Column) -> list[Any]:
            entries = column.cast(as_list)
            keys, items = items_of(entries).flatten()
            both = list(zip(keys.to_pylist(), show(items), strict=True))
            return _where_valid(column, [dict(row) for row in _divided(both, entries.value_lengths())])

        return {"type": "map", "values": schema}, {"type": "map", "values": written}, shown


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _listed(column: Column) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return values


def _where_valid(column: Column, values: list[Any]) -> list[Any]:
    if not column.null_count:
        return values
    return [
        value if there else None for value, there in zip(values, column.is_valid().to_pylist(), strict=True)
    ]


def _divided(items: list[Any], lengths: Column) -> list[list[Any]]:
    ends = borders_of(filled(lengths.cast(pa.int64()))).tolist()
    return [items[begin:end] for begin, end in pairwise(ends)]


def _without_avro(kind: pa.DataType) -> DataException:
    return DataException(f"values of type {kind} cannot be written as Avro: cast them, or leave them out")


def _decimal(kind: pa.DataType) -> _Made:
    # Avro has no negative scales, so such numbers get scale 0 and zeros at the end.
    zeros, scale = max(-kind.scale, 0), max(kind.scale, 0)
    if zeros > MOST_WIDE:
        raise _without_avro(kind)
    precision = max(_DIGITS_OF_WIDE, scale) if is_wide(kind) else kind.precision
    schema = {"type": "bytes", "logicalType": "decimal", "precision": precision + zeros, "scale": scale}
    if not is_wide(kind):
        return schema, schema, _listed
    if not zeros:
        return schema, "bytes", lambda column: _listed(column.storage)

    def shown(column: Column) -> list[Any]:
        unscaled = _listed(column.storage)
        return [None if each is None else bytes_of(number_of(each) * 10**zeros) for each in unscaled]

    return schema, "bytes", shown


def _moment(kind: pa.DataType) -> _Made:
    if pa.types.is_date(kind):
        number, logical, exact = "int", "date", pa.date32()
    elif pa.types.is_time32(kind):
        number, logical, exact = "int", "time-millis", pa.time32("ms")
    elif pa.types.is_time64(kind):
        number, logical, exact = "long", "time-micros", pa.time64("us")
    elif pa.types.is_timestamp(kind):
        unit = _TIMESTAMPS[kind.unit]
        prefix = "" if kind.tz else "local-"
        number, logical = "long", f"{prefix}timestamp-{unit}"
        exact = pa.timestamp("ms" if kind.unit == "s" else kind.unit, kind.tz)
    else:
        raise _without_avro(kind)
    whole = pa.int32() if number == "int" else pa.int64()
    return (
        {"type": number, "logicalType": logical},
        number,
        lambda column: _listed(column.cast(exact, safe=False).cast(whole)),
    )


def legal_name(name: str) -> str:
    """Return the name that Connect's ``scrub.invalid.names`` makes of one that is illegal in Avro."""
    quoted = quote_plus(name, safe="*").replace("~", "%7E")
    if not re.match("[A-Za-z_]", quoted):
        quoted = f"x{quoted}"
    return re.sub("[^A-Za-z0-9_]", "_", quoted)
