"""Write ``AvroFormat`` files of values: framed values are copied, typed columns are encoded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sinksdk import ConfigException, DataException, TopicPartition
from sinksdk.connectors.s3_archiver.archive.header import FileHeader
from sinksdk.connectors.s3_archiver.formats.avro_typed import TypedDatums
from sinksdk.connectors.s3_archiver.formats.base import Encoded, KeepSchema, Kinds
from sinksdk.connectors.s3_archiver.formats.codecs import BytesLike, codec
from sinksdk.connectors.s3_archiver.formats.columns import (
    Column,
    Flags,
    Longs,
    as_mask,
    flag_column,
    null_scalar,
)
from sinksdk.connectors.s3_archiver.formats.container import BLOCK_BYTES, ContainerWriter
from sinksdk.connectors.s3_archiver.formats.datums import BYTES, EncodedRows, borders_of
from sinksdk.connectors.s3_archiver.formats.schema import sync_marker
from sinksdk.connectors.s3_archiver.formats.values import (
    NO_VALUE,
    VALUE_COLUMNS,
    Fate,
    JoinedValues,
    NullBehavior,
    ValueKind,
    bad_record,
    encoded,
    has_bytes,
    join_values,
    value_column,
)
from sinksdk.values.avro_schema import AvroSchema, as_schema
from sinksdk.values.avro_walk import Fit, Walked, null_data, repaired, walk_framed, why_not
from sinksdk.values.framing import name_of
from sinksdk.values.json_text import is_json

# Returns a writer's schema, an AvroSchema or its JSON. Raises DataException for an id that the registry
# does not have, RetriableException while the registry is unavailable.
SchemaOf: TypeAlias = Callable[[int], Any]

_FRAMING: Final = bytes(5)  # a zero byte, and four bytes for the id
NOT_FRAMED: Final = -1
IS_NULL: Final = -2
_IS_TYPED: Final = -3
_MOST_REFUSED: Final = 10_000  # refused ids and types that are remembered: invalid data may have many
_DO: Final = "correct the producer, its schema, or 'value.converter.schema.registry.url'"
_NO_FRAMING: Final = (
    "its value does not begin with a zero byte and a four-byte schema id of a schema registry, and no header "
    "has the id: correct the producer, or archive any bytes with 'format.class' ByteArrayFormat or "
    "'archive.content' record"
)
_NO_SCHEMA: Final = (
    "values are bytes, and AvroFormat needs a schema: set 'value.converter' to Avro's, with "
    "'value.converter.schema.registry.url', or to another converter with types; or 'format.class' to "
    "JsonFormat for JSON values, or to ByteArrayFormat for any; or 'archive.content' to record"
)


_ONLY_JSON: Final = (
    "its value is JSON without a schema, but Avro needs one: set 'value.converter.schema', or produce values "
    "in Connect's envelope, or set 'format.class' to JsonFormat"
)


class AvroValues:
    """Write files of values with their producers' schemas."""

    extension = ".avro"
    columns = VALUE_COLUMNS

    def __init__(
        self,
        schema_of: SchemaOf | None,
        codec_name: str = "null",
        level: int | None = None,
        *,
        nulls: NullBehavior = "fail",
        plain: bool = False,
        keep_schema: KeepSchema | None = None,
        block_bytes: int | None = None,
    ) -> None:
        self._schemas = None if schema_of is None else RegistrySchemas(schema_of, keep_schema)
        self._codec = codec_name, level
        self._nulls: NullBehavior = nulls
        # Whether bytes and texts are whole values, not framed ones.
        self._plain = plain
        self._block_bytes = block_bytes or BLOCK_BYTES
        # The encoder of each type, or why Avro cannot express the type.
        self._typed: dict[pa.DataType, TypedDatums | str] = {}

    def learn(self, batch: pa.RecordBatch) -> None:
        column = value_column(batch)
        if not self._is_framed(column):
            return
        if self._schemas is not None:
            self._schemas.learn(column)
        elif column.null_count < len(column):
            raise ConfigException(_NO_SCHEMA)

    def with_nulls(self, batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
        """Return a learned batch with null for each framed value that is the null of its schema."""
        index = batch.schema.get_field_index(name)
        nullable = {number: schema for number, schema in self._known().items() if schema.has_null}
        if index < 0 or not nullable or not self._is_framed(batch.column(index)):
            return batch
        column = batch.column(index)
        is_null = _are_null(column, nullable)
        if not is_null.any():
            return batch
        column = pc.if_else(flag_column(is_null), null_scalar(column.type), column)
        return batch.set_column(index, name, column)

    def kinds(self, partition: TopicPartition, batch: pa.RecordBatch) -> Kinds:
        column = value_column(batch)
        kinds: list[object] = []
        codes = np.full(len(column), -1, np.int32)
        # Each schema id and each type has files of its own, because a file has one schema.
        reasons: dict[int, str | None] = {}
        if self._is_framed(column):
            found = divided(schema_ids(column))
        else:
            found = divided(np.where(as_mask(column.is_valid()), _IS_TYPED, IS_NULL))
        for number, rows in found:
            why = self._problem(number, column.type)
            if why is not None or number == IS_NULL:
                reasons |= dict.fromkeys(np.flatnonzero(rows).tolist(), why)
            else:
                codes[rows] = len(kinds)
                kinds.append(column.type if number == _IS_TYPED else number)
        offsets = batch.column("offset")
        return Kinds(
            kinds,
            codes,
            {
                row: None if why is None else bad_record(partition, offsets[row], why)
                for row, why in reasons.items()
            },
        )

    def encode(self, partition: TopicPartition, batch: pa.RecordBatch) -> Encoded[EncodedRows]:
        column = value_column(batch)
        if not self._is_framed(column):
            joined = self._datums(column.type).encode(column)
            return encoded(partition, batch, joined, self._nulls, lambda _row, _fate: _NO_FRAMING)
        # Each datum is checked against its schema, because readers could not find the datum after one that
        # does not fit.
        walked = self._walked(column)
        if not walked.fits.any():
            joined = join_values(column, ValueKind.FRAMED, _FRAMING)
            return Encoded(joined.rows, {})
        joined, reasons = self._mended(column, walked)
        return encoded(partition, batch, joined, self._nulls, lambda row, _: reasons.get(row, _NO_FRAMING))

    def begin(self, header: FileHeader, key: str, kind: object) -> ContainerWriter:
        is_type = isinstance(kind, pa.DataType)
        schema = json.dumps(self._datums(kind).schema) if is_type else self._known()[int(str(kind))].readable
        return ContainerWriter(
            schema, codec(*self._codec), header.to_metadata(), sync_marker(key), self._block_bytes
        )

    def _walked(self, column: Column) -> Walked:
        walked = walk_framed(column, self._known())
        unknown = np.flatnonzero(walked.fits == Fit.UNKNOWN)
        if len(unknown):
            for schema_id in np.unique(schema_ids(column)[unknown]).tolist():
                self._problem(schema_id, column.type)
            walked = walk_framed(column, self._known())
        return walked

    def _mended(self, column: Column, walked: Walked) -> tuple[JoinedValues, dict[int, str]]:
        """Return the data of a column, and why rows do not fit."""
        ends, fits = walked
        is_plain: Flags = (fits == Fit.FITS) | (fits == Fit.NULL)
        plain = pc.if_else(flag_column(is_plain), column, null_scalar(column.type))
        joined = join_values(plain, ValueKind.FRAMED, _FRAMING)
        texts: dict[int, bytes] = {}
        reasons: dict[int, str] = {}
        for row in np.flatnonzero(~is_plain).tolist():
            fit, value = fits[row], column[row].as_buffer().to_pybytes()
            schema_id = int.from_bytes(value[1 : len(_FRAMING)])
            if fit == Fit.LONGER:
                texts[row] = value[len(_FRAMING) : ends[row]]
            elif fit == Fit.ODD:
                texts[row] = repaired(value, len(_FRAMING), self._known()[schema_id], is_framed=True)
            elif fit == Fit.UNKNOWN:
                reasons[row] = self._problem(schema_id, column.type) or ""
            elif fit >= Fit.ENDS_EARLY:
                what = f"its value does not match its schema, {name_of(schema_id)} of the registry"
                reasons[row] = f"{what}: {why_not(fit, ends[row])}; {_DO}"
        joined = _with_data(joined, texts)
        fates = joined.fates.copy()
        fates[(fits == Fit.NOT_FRAMED) | (fits >= Fit.UNKNOWN)] = Fate.OTHER
        return JoinedValues(joined.rows, fates), reasons

    def _is_framed(self, column: Column) -> bool:
        return not self._plain and has_bytes(column.type)

    def _known(self) -> Mapping[int, AvroSchema]:
        return {} if self._schemas is None else self._schemas.known

    def _problem(self, number: int, kind: pa.DataType) -> str | None:
        """Return why rows of a schema id, or typed values, cannot be archived."""
        if number == IS_NULL:
            return NO_VALUE if self._nulls == "fail" else None
        if number == NOT_FRAMED:
            return _NO_FRAMING
        if number == _IS_TYPED:
            found = _ONLY_JSON if is_json(kind) else self._datums_or_why(kind)
            return found if isinstance(found, str) else None
        if self._schemas is None:
            raise ConfigException(_NO_SCHEMA)
        why = self._schemas.why_not(number)
        return why and f"{why}; {_DO}"

    def _datums(self, kind: pa.DataType) -> TypedDatums:
        found = self._datums_or_why(kind)
        if isinstance(found, str):
            raise DataException(found)
        return found

    def _datums_or_why(self, kind: pa.DataType) -> TypedDatums | str:
        if kind not in self._typed:
            if len(self._typed) >= _MOST_REFUSED:
                self._typed.clear()
            try:
                self._typed[kind] = TypedDatums(kind)
            except DataException as error:
                self._typed[kind] = str(error)
        return self._typed[kind]


class RegistrySchemas:
    """The schemas of a registry, by id. Each is fetched once."""

    def __init__(self, schema_of: SchemaOf, keep: KeepSchema | None = None) -> None:
        self._schema_of = schema_of
        self._keep = keep
        self.known: dict[int, AvroSchema] = {}
        self._refused: dict[int, str] = {}

    def learn(self, values: Column) -> None:
        """Fetch unknown schemas of a column, also those that the registry has refused before."""
        for number, _ in divided(schema_ids(values)):
            if number >= 0 and number not in self.known:
                self._fetch(number)

    def why_not(self, number: int) -> str | None:
        """Return why the registry has refused an id; None if its schema is known."""
        if number not in self.known and number not in self._refused:
            self._fetch(number)
        return None if number in self.known else self._refused[number]

    def _fetch(self, number: int) -> None:
        try:
            schema = as_schema(self._schema_of(number))
        except DataException as error:
            if len(self._refused) >= _MOST_REFUSED:
                self._refused.clear()
            self._refused[number] = str(error)
            return
        # Each schema is stored in the bucket before a file needs it.
        if self._keep is not None:
            self._keep(name_of(number), schema.text.encode())
        self.known[number] = schema


def _with_data(joined: JoinedValues, mended: Mapping[int, bytes]) -> JoinedValues:
    data, borders = joined.rows.data, joined.rows.borders
    lengths, fates = np.diff(borders), joined.fates.copy()
    pieces: list[BytesLike] = []
    at = 0
    for row, datum in sorted(mended.items()):
        pieces += [data[at : int(borders[row])], datum]
        at, lengths[row], fates[row] = int(borders[row]), len(datum), Fate.TAKEN
    whole = b"".join([*pieces, data[at : int(borders[-1])]])
    return JoinedValues(EncodedRows(memoryview(whole), borders_of(lengths)), fates)


def divided(numbers: Longs) -> Iterator[tuple[int, Flags]]:
    """Yield each distinct number with its rows, in the order of first rows."""
    left = np.ones(len(numbers), np.bool_)
    while left.any():
        number = int(numbers[left.argmax()])
        rows = numbers == number
        left &= ~rows
        yield number, rows


def _are_null(column: Column, schemas: Mapping[int, AvroSchema]) -> Flags:
    is_null = np.zeros(len(column), np.bool_)
    ids = schema_ids(column)
    for number, rows in divided(ids) if (ids >= 0).any() else ():
        if number in schemas:
            begins, data = borders_in(column)
            octets = np.frombuffer(data, np.uint8)
            places = np.flatnonzero(rows)
            is_null[places] = null_data(
                schemas[number],
                octets,
                begins[places].astype(np.int64) + len(_FRAMING),
                begins[places + 1].astype(np.int64),
            )
    return is_null


def borders_in(column: Column) -> tuple[npt.NDArray[Any], pa.Buffer]:
    if column.type.id not in (pa.binary().id, BYTES.id):
        column = column.cast(BYTES)
    _, borders, data = column.buffers()
    kind = np.int32 if column.type.id == pa.binary().id else np.int64
    return np.frombuffer(borders, kind)[column.offset : column.offset + len(column) + 1], data


def schema_ids(column: Column) -> Longs:
    """Return the schema id of each value; -1 if it is not framed, -2 if it is null."""
    found: Longs = np.full(len(column), IS_NULL, np.int64)
    if column.null_count == len(column):
        return found
    begins, data = borders_in(column)
    is_framed = np.diff(begins) >= len(_FRAMING)
    if column.null_count:
        is_framed &= as_mask(column.is_valid())
    at = begins[:-1] if is_framed.all() else begins[:-1][is_framed]
    found[as_mask(column.is_valid()) if column.null_count else slice(None)] = NOT_FRAMED
    if len(at):
        octets = np.frombuffer(data, np.uint8)
        # the integer that begins at each byte
        numbers = np.ndarray(len(octets) - 3, ">u4", data, strides=(1,))
        ids = numbers[at + 1].astype(np.int64)
        ids[octets[at] != 0] = NOT_FRAMED
        found[slice(None) if len(at) == len(found) else is_framed] = ids
    return found
