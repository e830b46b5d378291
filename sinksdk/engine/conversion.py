"""Convert and transform read records to those that a task gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sinksdk.engine.converters import BatchConverter, Converted, Converter, Piece, as_texts, with_objects
from sinksdk.engine.encoding import BytesRead, as_bytes, as_json
from sinksdk.engine.errant import Stage, WorkerErrantRecordReporter
from sinksdk.engine.options import EngineOptions
from sinksdk.errors import ConfigException, RetriableException
from sinksdk.records import SinkRecord, SinkRecords
from sinksdk.task import SinkTask
from sinksdk.transforms.chain import Chain, TransformFailed, TypesDiffer, in_order, rows_left
from sinksdk.transforms.parts import PARTS, Content, Part, are_alike, joined, with_content
from sinksdk.values.framing import HEADERS, framed_by_headers
from sinksdk.values.rows import Flags, rows_to_take
from sinksdk.values.text import CONNECT_JSON, SPARK_JSON, JsonStyle, to_bytes


class Divided(Exception):
    """Each part of a batch is converted alone, so that no row depends on values of another type."""

    def __init__(self, lengths: Sequence[int]) -> None:
        super().__init__(f"in parts of {', '.join(map(str, lengths))} records")
        self.lengths = lengths


class Conversion:
    """Converts and transforms to columns, or to objects for a task that takes neither bytes nor JSON."""

    def __init__(
        self, options: EngineOptions, reporter: WorkerErrantRecordReporter, *, task: Callable[[], SinkTask]
    ) -> None:
        self._converters: Mapping[Part, Converter | None] = {
            "key": options.key_converter,
            "value": options.value_converter,
        }
        self._with_framing = options.with_framing
        self._chain = options.chain
        self._task = task
        self._reporter = reporter

    def __call__(self, records: SinkRecords) -> SinkRecords:
        """Return the batch as the task gets it.

        Raises:
            Divided: its parts must be converted one after the other.
            ConnectException: a record failed and ``errors.tolerance`` is none.
        """
        records = self._framed(records)
        offsets = records.offsets
        failed: list[_Failed] = []
        task = self._task()
        keeps_json = self._chain is None and task.takes_json and not task.takes_bytes
        json_of = task.json_of if keeps_json else None
        converted, untyped = self._converted(records, failed, keeps_json=keeps_json, json_of=json_of)
        by_content = self._chain is not None and self._chain.has_authors
        read = None
        if task.takes_bytes:
            read = BytesRead(converted, by_content=by_content)
        elif task.takes_json and not keeps_json:
            read = BytesRead(converted, by_content=by_content, read_again=self._read_again)
        transformed = converted
        if self._chain is not None:
            try:
                transformed = self._transformed(self._chain, converted, untyped, failed)
            except TypesDiffer as differ:
                raise _divided(offsets, differ.offsets) from None
        letters = []
        # From here on nothing retries the batch, so each record is reported only once.
        for stage, record, error, failed_in, where in sorted(failed, key=lambda each: each.record.offset):
            letters.append(self._reporter.report_from(stage, record, error, failed_in, where))
        for letter in letters:
            letter.result()  # a task that keeps its own offsets skips the failed records in ``put``
        if task.takes_bytes and read is not None:
            return as_bytes(transformed, read, self._style)
        return as_json(transformed, read) if task.takes_json else transformed

    def _framed(self, records: SinkRecords) -> SinkRecords:
        # The id of a schema may be in a header.
        place = records.arrow.schema.get_field_index("headers")
        for part in self._with_framing if place >= 0 else ():
            index = records.arrow.schema.get_field_index(part)
            values = None if index < 0 else records.arrow.column(index)
            if values is not None and (
                pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)
            ):
                framed = framed_by_headers(values, records.arrow.column(place), HEADERS[part])
                if framed is not values:
                    records = with_content(records, part, framed)
        return records

    def _style(self, part: Part) -> JsonStyle:
        return SPARK_JSON if self._converters[part] is None else CONNECT_JSON

    def _read_again(self, part: Part, topic: str, data: pa.Array) -> Content:
        converter = self._converters[part]
        return (
            _content(converter.convert(topic, data), len(data))
            if isinstance(converter, BatchConverter)
            else [None] * len(data)
        )

    def _converted(
        self,
        records: SinkRecords,
        failed: list[_Failed],
        *,
        keeps_json: bool = False,
        json_of: Callable[[pa.Array], pa.Array] | None = None,
    ) -> tuple[SinkRecords, Untyped]:
        if self._converters["key"] is None and self._converters["value"] is None:
            return records, {}
        made = {part: self._part(part, records, keeps_json=keeps_json) for part in PARTS}
        if json_of is not None and made["value"] is not None:
            made["value"] = _as_one_type(made["value"], json_of)
        errors: dict[int, _Failed] = {}
        offsets = records.offsets
        read = records.arrow if records.read is None else records.read
        for part in PARTS:
            converted, stage = made[part], _STAGES[part]
            for row, error in (converted.failed if converted else {}).items():
                if row not in errors:
                    # The record has no objects of key and value, whose creation would take most of the time
                    # for a bad record.
                    record = SinkRecord(*records.partition, offset=int(offsets[row]), read_from=(read, row))
                    errors[row] = _Failed(stage, record, error, self._converters[part])
        _check_one_type(offsets, [one for one in made.values() if one is not None])
        failed += errors.values()
        untyped: dict[Part, Flags] = {}
        for part, converted in made.items():
            if converted is not None:
                records = with_content(records, part, _content(converted, len(records)))
                if self._chain is not None and (flags := _untyped(converted, len(records))) is not None:
                    untyped[part] = flags
        if not errors:
            return records, untyped
        rows = np.delete(np.arange(len(records)), list(errors))
        return records.take(rows), {part: flags[rows] for part, flags in untyped.items()}

    def _part(self, part: Part, records: SinkRecords, *, keeps_json: bool) -> Converted | None:
        converter = self._converters[part]
        index = records.arrow.schema.get_field_index(part)
        if converter is None or index < 0:
            return None
        # Values that Spark has typed are read as the JSON that Spark writes.
        data = to_bytes(records.arrow.column(index), SPARK_JSON)
        topic = records.partition.topic
        if not isinstance(converter, BatchConverter):
            return _one_by_one(converter, topic, data.to_pylist())
        converted = converter.convert(topic, data)
        return converted if keeps_json else with_objects(converted)

    def _transformed(
        self, chain: Chain, records: SinkRecords, untyped: Untyped, failed: list[_Failed]
    ) -> SinkRecords:
        # Connect's HoistField makes a map of a tombstone, which has no schema, and a structure of a typed
        # null: they are transformed separately.
        codes = sum((flags.astype(np.int8) << bit for bit, flags in enumerate(untyped.values())), _NO_CODES)
        pieces, rows = [], []
        for code in np.unique(codes) if untyped else ():
            chosen = np.flatnonzero(codes == code)
            given = records.take(chosen)
            for bit, part in enumerate(untyped):
                if code >> bit & 1:
                    given = with_content(given, part, [None] * len(given))
            made = self._joined(self._pieces(chain, given, failed), given)
            pieces.append(made)
            rows.append(chosen[rows_left(made.offsets, given.offsets)])
        if len(pieces) <= 1:
            return pieces[0] if pieces else self._joined(self._pieces(chain, records, failed), records)
        if not are_alike(pieces):
            raise TypesDiffer(records.offsets[1:][np.diff(codes) != 0])
        return in_order(pieces, rows)

    def _joined(self, pieces: Sequence[SinkRecords], given: SinkRecords) -> SinkRecords:
        filled = [piece for piece in pieces if len(piece)]
        if not are_alike(filled):  # an author's transform may read a whole batch
            raise TypesDiffer(np.array([piece.first_offset for piece in filled[1:]], np.int64))
        return joined(filled) if filled else given[:0]

    def _pieces(self, chain: Chain, records: SinkRecords, failed: list[_Failed]) -> list[SinkRecords]:
        """Apply the chain; where it fails, apply it to halves, down to the bad records."""
        try:
            return [chain(records)]
        except TransformFailed as failure:
            if len(records) == 1:
                failed.append(
                    _Failed("TRANSFORMATION", records[0], failure.error, failure.failed, failure.where)
                )
                return []
        if chain.has_authors:  # the author's transforms may have changed objects in place
            read = records.arrow if records.read is None else records.read
            records, _ = self._converted(SinkRecords(records.partition, read), [])
        half = len(records) // 2
        pieces: list[SinkRecords] = []
        offsets: list[npt.NDArray[np.int64]] = []
        for part in (records[:half], records[half:]):
            try:
                pieces += self._pieces(chain, part, failed)
            # Collected, because each division converts all remaining rows again.
            except TypesDiffer as differ:
                offsets.append(differ.offsets)
        if offsets:
            raise TypesDiffer(np.concatenate(offsets))
        return pieces


# Keys and values that Spark has typed, but that have neither a value nor a type.
Untyped: TypeAlias = Mapping[Part, Flags]

_NO_CODES: Final = np.zeros(1, np.int8)
_OBJECTS: Final = pa.binary()  # objects may have any type but null


class _Failed(NamedTuple):
    stage: Stage
    record: SinkRecord
    error: Exception
    failed_in: object
    where: str = ""


_STAGES: Final[Mapping[Part, Stage]] = {"key": "KEY_CONVERTER", "value": "VALUE_CONVERTER"}


def _one_by_one(converter: Converter, topic: str, data: Sequence[bytes | None]) -> Converted:
    rows, objects, failed = [], [], dict[int, Exception]()
    for row, value in enumerate(data):
        try:
            objects.append(converter(topic, value))
            rows.append(row)
        except (RetriableException, ConfigException):
            raise  # the record is not bad: during an outage the whole topic would go to the dead letters
        except Exception as error:  # noqa: BLE001 - a converter may raise anything; Connect tolerates it
            failed[row] = error
    return Converted([Piece(rows, objects)] if rows else [], failed)


# -- several types in one batch ----------------------------------------------------------------------------


def _kind(piece: Piece) -> pa.DataType | None:
    return piece.content.type if isinstance(piece.content, pa.Array) else None


def _joined_kind(one: pa.DataType | None, other: pa.DataType | None) -> tuple[bool, pa.DataType | None]:
    """Return whether one batch can hold both types, and the type of that batch; None stands for objects."""
    # A row must not depend on its neighbours: numbers are not widened (``1`` would become ``1.0``).
    if one is None or other is None:
        return one is other, None
    for kind, that in ((one, other), (other, one)):
        if that == kind or pa.types.is_null(that):
            return True, kind
    return False, None


def _check_one_type(offsets: npt.NDArray[np.int64], parts: Sequence[Converted]) -> None:
    begins = sorted({begin for part in parts for begin in _begins(part)})
    if begins:
        raise _divided(offsets, offsets[begins])


def _divided(offsets: npt.NDArray[np.int64], begins: npt.NDArray[np.int64]) -> Divided:
    # Records of one offset stay together.
    borders = sorted({0, len(offsets), *np.searchsorted(offsets, begins).tolist()})
    if len(borders) == 2:  # noqa: PLR2004 - begin and end
        raise ConfigException(
            f"the records of offset {offsets[0]} have keys or values of several types: a transform that "
            f"splits a record must give all its records the same type"
        )
    return Divided(np.diff(borders).tolist())


def _begins(converted: Converted) -> Iterator[int]:
    """Yield the rows whose type differs from that of the rows before."""
    pieces = converted.pieces
    kind = _kind(pieces[0]) if pieces else None
    if len(pieces) < 2 or _all_join(pieces):  # noqa: PLR2004 - of two pieces
        return
    owner = sorted((row, number) for number, piece in enumerate(pieces) for row in piece.rows)
    seen: set[int] = {owner[0][1]}
    for row, number in owner:
        if number in seen:
            continue
        fits, both = _joined_kind(kind, _kind(pieces[number]))
        if fits:
            seen.add(number)
            kind = both
        else:
            yield row
            seen, kind = {number}, _kind(pieces[number])


def _as_one_type(converted: Converted, json_of: Callable[[pa.Array], pa.Array]) -> Converted:
    pieces = converted.pieces
    if len(pieces) < 2 or None in map(_kind, pieces) or _all_join(pieces):  # noqa: PLR2004 - of two pieces
        return converted
    return as_texts(converted, json_of)


def _all_join(pieces: Sequence[Piece]) -> bool:
    kind = _kind(pieces[0])
    for piece in pieces[1:]:
        fits, kind = _joined_kind(kind, _kind(piece))
        if not fits:
            return False
    return True


def _content(converted: Converted, length: int) -> Content:
    pieces = converted.pieces
    if not pieces:
        return pa.nulls(length, converted.kind)
    kind = _kind(pieces[0])
    if kind is None:
        objects: list[Any] = [None] * length
        for piece in pieces:
            for row, value in zip(piece.rows, piece.content, strict=True):
                objects[row] = value
        return objects
    for piece in pieces[1:]:
        _, kind = _joined_kind(kind, _kind(piece))
    columns = [_of_type(piece.content, kind) for piece in pieces]
    whole = columns[0] if len(columns) == 1 else pa.concat_arrays(columns)
    if len(pieces) == 1 and len(whole) == length:
        return whole
    places = np.full(length, -1)
    places[np.concatenate([np.asarray(piece.rows, np.int64) for piece in pieces])] = np.arange(len(whole))
    return whole.take(rows_to_take(places))


def _untyped(converted: Converted, length: int) -> Flags | None:
    """Return the rows that have neither a value nor a type; None: there are none."""
    pieces = [piece for piece in converted.pieces if not pa.types.is_null(_kind(piece) or _OBJECTS)]
    # A converter that returns one type gives nulls this type, too.
    if not pieces or _kind(pieces[0]) is None or not pa.types.is_null(converted.kind):
        return None
    flags = np.ones(length, np.bool_)
    for piece in pieces:
        flags[piece.rows] = False
    flags[list(converted.failed)] = False
    return flags if flags.any() else None


def _of_type(column: Any, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else pa.nulls(len(column), kind)
