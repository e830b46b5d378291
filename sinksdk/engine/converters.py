"""Convert the bytes of keys and values to typed columns or objects, as Connect's converters do.

Errors never quote the bytes, since they end up in logs.
"""

from __future__ import annotations

import codecs
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sinksdk.config.converters import ConverterSpec, RegistryAddress
from sinksdk.engine.objects import json_of
from sinksdk.errors import ConfigException, DataException
from sinksdk.values.avro import avro_builds, avro_type
from sinksdk.values.avro_schema import AvroSchema, as_schema, datum_reader
from sinksdk.values.avro_walk import FRAMING, Fit, repaired, walk_framed, why_not
from sinksdk.values.connect import connect_shape
from sinksdk.values.declared import declared_shape
from sinksdk.values.json_text import (
    JSON,
    JsonTexts,
    is_json,
    json_column,
    json_object,
    payload_text,
    read_json,
)
from sinksdk.values.plain import plain
from sinksdk.values.rows import valid_rows
from sinksdk.values.shapes import Shape, to_column, wider_shapes, without_defaults

_ENVELOPE: Final = {"schema", "payload"}
_BEFORE_SCHEMA: Final = '{"schema":'
_BEFORE_PAYLOAD: Final = ',"payload":'

# Returns an AvroSchema, or its JSON, for a schema id. Raises RetriableException while the registry is
# unavailable, DataException for an unknown id, ConfigException if this configuration cannot reach the
# registry.
SchemaOf = Callable[[int], Any]


class Converter(Protocol):
    def __call__(self, topic: str, data: bytes | None) -> Any:
        """Convert a key or value; None stays None.

        Raises:
            RetriableException: the record is not bad; the batch is retried.
            ConfigException: the record is not bad; the partition ends.
            DataException: the record is bad. Any other exception counts as this one, as in Connect.
        """
        ...


Rows: TypeAlias = Sequence[int] | npt.NDArray[np.int64]  # ascending row numbers


class Piece(NamedTuple):
    rows: Rows  # positions in the batch
    content: pa.Array | list[Any]  # without a schema, objects


@dataclass(frozen=True, slots=True)
class Converted:
    pieces: Sequence[Piece]  # one per type; rows in none of them are null
    failed: Mapping[int, Exception] = field(default_factory=dict)  # errors by row
    kind: pa.DataType = field(default_factory=pa.null)  # the type if all rows are null


class BatchConverter(ABC):
    """Convert a column of bytes; as a :class:`Converter`, convert one key or value."""

    @abstractmethod
    def convert(self, topic: str, data: pa.Array) -> Converted: ...

    def __call__(self, topic: str, data: bytes | None) -> Any:
        made = self.convert(topic, pa.array([data], pa.binary()))
        for error in made.failed.values():
            raise error
        for piece in made.pieces:
            return plain(piece.content)[0] if isinstance(piece.content, pa.Array) else piece.content[0]
        return None


def _built(
    topic: str,
    rows: Rows,
    values: Sequence[Any],
    build: Callable[[Sequence[Any]], pa.Array],
    failed: dict[int, Exception],
) -> list[Piece]:
    """Build a column; where that fails, build halves, down to the bad values."""
    good: list[int] = []

    def halves(begin: int, end: int) -> list[pa.Array]:
        try:
            column = build(values[begin:end])
        except DataException as error:
            if end - begin == 1:
                failed[int(rows[begin])] = DataException(f"topic {topic}: {error}")
                return []
        else:
            good.extend(rows[begin:end])
            return [column]
        middle = (begin + end) // 2
        return [*halves(begin, middle), *halves(middle, end)]

    columns = halves(0, len(rows)) if len(rows) else []
    if not columns:
        return []
    return [Piece(good, columns[0] if len(columns) == 1 else pa.concat_arrays(columns))]


def _built_in_first(
    topic: str,
    rows: Rows,
    values: Sequence[Any],
    builds: Sequence[Callable[[Sequence[Any]], pa.Array]],
    failed: dict[int, Exception],
) -> list[Piece]:
    """Build columns. Values for which one way of building fails are built in the next way."""
    pieces: list[Piece] = []
    first: dict[int, Exception] = {}
    for build in builds:
        errors: dict[int, Exception] = {}
        pieces += _built(topic, rows, values, build, errors)
        first = first or errors
        left = [place for place, row in enumerate(rows) if int(row) in errors]
        rows, values = [int(rows[place]) for place in left], [values[place] for place in left]
        if not left:
            break
    failed |= {row: first[row] for row in map(int, rows)}
    return sorted(pieces, key=lambda piece: piece.rows[0])


@dataclass(frozen=True, slots=True)
class StringConverter(BatchConverter):
    encoding: str = "UTF-8"

    def convert(self, topic: str, data: pa.Array) -> Converted:
        rows = valid_rows(data)
        given = data.drop_null()
        failed: dict[int, Exception] = {}
        if codecs.lookup(self.encoding).name == "utf-8":
            with suppress(pa.ArrowInvalid):
                return Converted(
                    [Piece(rows, given.cast(pa.string()))] if len(rows) else [], kind=pa.string()
                )
        pieces = _built(topic, rows, given.to_pylist(), self._decoded, failed)
        return Converted(pieces, failed, pa.string())

    def _decoded(self, values: Sequence[bytes]) -> pa.Array:
        try:
            return pa.array([value.decode(self.encoding) for value in values], pa.string())
        except UnicodeDecodeError as error:
            why = _without_bytes(error)
        except UnicodeEncodeError:  # the encoding may allow lone surrogates, which UTF-8 does not allow
            why = "it holds a lone surrogate"
        raise DataException(f"the bytes are not {self.encoding} text: {why}")


@dataclass(frozen=True, slots=True)
class JsonConverter(BatchConverter):
    """Read JSON, with or without Connect's envelope ``{"schema": …, "payload": …}``.

    Args:
        schemas_enable: true requires the envelope, false never unwraps it; None unwraps exact envelopes.
        schema: the type of JSON without an envelope; empty: unknown.
        replaces_null: a null or missing field gets the default of its schema (KIP-581).
    """

    schemas_enable: bool | None = None
    schema: str = ""
    replaces_null: bool = True

    def convert(self, topic: str, data: pa.Array) -> Converted:
        texts = read_json(data)
        failed: dict[int, Exception] = {
            row: DataException(
                f"topic {topic}: the bytes are not JSON: {why}; correct the producer, or configure the "
                f"converter for its format"
            )
            for row, why in texts.failed.items()
        }
        if self.schema:
            shape = self._shape(declared_shape(self.schema))
            rows, objects = _parsed(topic, texts.column, _how_to_parse(shape), failed)
            return Converted(
                _built_in_first(topic, rows, objects, _builds(shape), failed), failed, shape.kind
            )
        if self.schemas_enable is False or not (self.schemas_enable or texts.maybe_envelopes.any()):
            pieces = (
                [Piece(np.arange(len(data)), texts.column)] if texts.column.null_count < len(data) else []
            )
            return Converted(pieces, failed, JSON)
        return Converted(self._unwrapped(topic, texts, failed), failed, JSON)

    def _shape(self, shape: Shape) -> Shape:
        return shape if self.replaces_null else without_defaults(shape)

    def _unwrapped(self, topic: str, texts: JsonTexts, failed: dict[int, Exception]) -> list[Piece]:
        envelopes = Envelopes(topic, is_required=self.schemas_enable is True)
        maybe = texts.maybe_envelopes
        for row, (text, may_be) in enumerate(
            zip(texts.column.storage.to_pylist(), maybe.tolist(), strict=True)
        ):
            if text is None:
                continue
            if not (may_be or self.schemas_enable):
                envelopes.add_text(row, text)
                continue
            try:
                envelopes.add(row, text)
            except DataException as error:
                failed[row] = error
        if self.schemas_enable:  # empty values and JSON's null have no envelope
            failed |= dict.fromkeys(texts.nulls, envelopes.refusal)
        pieces = []
        for shape, (rows, payloads) in envelopes.groups.items():
            if shape is None:
                pieces.append(Piece(rows, json_column(pa.array(payloads, pa.string()))))
            else:
                builds = _builds(self._shape(envelopes.shapes[shape]))
                pieces += _built_in_first(topic, rows, payloads, builds, failed)
        return sorted(pieces, key=lambda piece: piece.rows[0])


def _builds(shape: Shape) -> list[Callable[[Sequence[Any]], pa.Array]]:
    return [partial(to_column, shape=each) for each in (shape, *wider_shapes(shape))]


def _how_to_parse(shape: Shape) -> Mapping[str, Any]:
    # Keeping all digits of decimals slows down the parsing of all other numbers.
    return {"parse_float": Decimal} if shape.has_decimals() else {}


def _parsed(
    topic: str, texts: pa.Array, how: Mapping[str, Any], failed: dict[int, Exception]
) -> tuple[list[int], list[Any]]:
    good, parsed = [], []
    for row, text in enumerate(texts.storage.to_pylist()):
        if text is None:
            continue
        try:
            parsed.append(_loaded(topic, text, how))
            good.append(row)
        except DataException as error:
            failed[row] = error
    return good, parsed


def _loaded(topic: str, text: str, how: Mapping[str, Any]) -> Any:
    try:
        return json.loads(text, **how)
    except RecursionError:
        raise DataException(f"topic {topic}: the JSON is nested too deeply") from None


class Envelopes:
    def __init__(self, topic: str, *, is_required: bool) -> None:
        self._topic = topic
        self._is_required = is_required
        # A producer writes the same schema before each payload: consecutive texts parse it once.
        self._begin = ""
        self._of_begin = ""
        self._how: dict[str, Mapping[str, Any]] = {}
        self.shapes: dict[str, Shape] = {}
        # Rows and payloads by the text of their schema; None: JSON texts without a schema.
        self.groups: dict[str | None, tuple[list[int], list[Any]]] = {}

    @property
    def refusal(self) -> DataException:
        return DataException(
            f"topic {self._topic}: the JSON is not an object with exactly 'schema' and 'payload', which "
            f"schemas.enable=true requires; set it to false for plain JSON"
        )

    def add(self, row: int, text: str) -> None:
        schema, payload = self._again(text) or self._parsed(text)
        if schema is None and payload == "null":
            return
        self._add(row, schema, payload)

    def add_text(self, row: int, text: str) -> None:
        self._add(row, None, text)

    def _add(self, row: int, schema: str | None, payload: Any) -> None:
        rows, payloads = self.groups.setdefault(schema, ([], []))
        rows.append(row)
        payloads.append(payload)

    def _again(self, text: str) -> tuple[str, Any] | None:
        if not self._begin or not text.startswith(self._begin) or not text.endswith("}"):
            return None
        try:
            return self._of_begin, json.loads(text[len(self._begin) : -1], **self._how[self._of_begin])
        except (ValueError, RecursionError):
            return None  # the text has more than a payload

    def _parsed(self, text: str) -> tuple[str | None, Any]:
        value = _loaded(self._topic, text, {})
        if not isinstance(value, dict) or value.keys() != _ENVELOPE:
            if self._is_required:
                raise self.refusal
            return None, text
        if value["schema"] is None:
            return None, payload_text(text)
        try:
            schema = json.dumps(value["schema"])
        except RecursionError:
            raise DataException(f"topic {self._topic}: the envelope's schema is nested too deeply") from None
        if schema not in self.shapes:
            try:
                self.shapes[schema] = connect_shape(value["schema"])
            except DataException as error:
                if self._is_required:
                    raise DataException(f"topic {self._topic}: {error}") from None
                return None, payload_text(text)
            self._how[schema] = _how_to_parse(self.shapes[schema])
        self._remember(text, schema)
        if self._how[schema]:
            value = _loaded(self._topic, text, self._how[schema])
        return schema, value["payload"]

    def _remember(self, text: str, schema: str) -> None:
        # Connect writes the same text before each payload.
        if not text.startswith(_BEFORE_SCHEMA):
            return
        with suppress(ValueError):  # the text contains white space, so Connect did not write it
            _, end = json.JSONDecoder().raw_decode(text, len(_BEFORE_SCHEMA))
            begin = f"{text[:end]}{_BEFORE_PAYLOAD}"
            if text.startswith(begin):
                self._begin, self._of_begin = begin, schema


@dataclass(frozen=True, slots=True)
class NumberConverter(BatchConverter):
    """Read big-endian numbers, as Kafka's serializers write them."""

    kind: str

    def convert(self, topic: str, data: pa.Array) -> Converted:
        (_, kind), failed = _NUMBERS[self.kind], dict[int, Exception]()
        rows = valid_rows(data)
        pieces = _built(topic, rows, data.drop_null().to_pylist(), self._unpacked, failed)
        return Converted(pieces, failed, kind)

    def _unpacked(self, values: Sequence[bytes]) -> pa.Array:
        how, kind = _NUMBERS[self.kind]
        size = np.dtype(how).itemsize
        for value in values:
            if len(value) != size:
                raise DataException(
                    f"cannot deserialize a {self.kind} from {len(value)} bytes: expected {size}"
                )
        return pa.array(np.frombuffer(b"".join(values), how).astype(how[1:]), kind)


@dataclass(frozen=True, slots=True)
class BooleanConverter(BatchConverter):
    def convert(self, topic: str, data: pa.Array) -> Converted:
        failed: dict[int, Exception] = {}
        rows = valid_rows(data)
        pieces = _built(topic, rows, data.drop_null().to_pylist(), _booleans, failed)
        return Converted(pieces, failed, pa.bool_())


def _booleans(values: Sequence[bytes]) -> pa.Array:
    for value in values:
        if value not in (b"\x00", b"\x01"):
            raise DataException(
                f"cannot deserialize a boolean from {len(value)} bytes: expected one byte, 0 or 1"
            )
    return pa.array([value == b"\x01" for value in values], pa.bool_())


class AvroConverter(BatchConverter):
    """Read Confluent's wire format: a zero byte, a four-byte schema id, an Avro datum.

    Args:
        gives_json: values of schemas without an Arrow type (recursive ones) become JSON texts, else objects.
        fills_items: nulls in arrays and maps get the default of their structure, as from Connect's
            JsonConverter; else only fields get it.
    """

    def __init__(
        self,
        schema_of: SchemaOf,
        *,
        is_key: bool = False,
        gives_json: bool = False,
        fills_items: bool = False,
    ) -> None:
        self._schema_of = schema_of
        self._gives_json = gives_json
        self._fills_items = fills_items
        self._part = "key" if is_key else "value"
        self._readers: dict[int, _AvroReader] = {}

    def convert(self, topic: str, data: pa.Array) -> Converted:
        failed: dict[int, Exception] = {}
        groups: dict[int, tuple[list[int], list[bytes]]] = {}
        for row, value in enumerate(data.to_pylist()):
            if value is None:
                continue
            # Bytes after the datum are ignored, as by Confluent's AvroConverter.
            if len(value) < FRAMING or value[0] != 0:
                failed[row] = DataException(
                    f"topic {topic}: the bytes do not begin with a zero byte and a schema id"
                )
                continue
            rows, values = groups.setdefault(int.from_bytes(value[1:FRAMING]), ([], []))
            rows.append(row)
            values.append(value)
        pieces: list[Piece] = []
        for schema_id, (rows, values) in groups.items():
            try:
                reader = self._reader(topic, schema_id)
            except DataException as error:
                failed |= dict.fromkeys(rows, error)
                continue
            what = f"topic {topic}: the bytes are not a datum of schema {schema_id}"
            good, decoded = reader.decoded(schema_id, rows, values, what, failed)
            if reader.kind is None:
                content = _as_json_texts(decoded) if self._gives_json else decoded
                pieces += [Piece(good, content)] if good else []
            else:
                pieces += _built_in_first(topic, good, decoded, avro_builds(reader.kind), failed)
        return Converted(sorted(pieces, key=lambda piece: piece.rows[0]), failed)

    def _reader(self, topic: str, schema_id: int) -> _AvroReader:
        if schema_id not in self._readers:
            try:
                schema = as_schema(self._schema_of(schema_id))
            except DataException as error:
                raise DataException(f"topic {topic}, subject {topic}-{self._part}: {error}") from error
            self._readers[schema_id] = _AvroReader(
                schema, gives_json=self._gives_json, fills_items=self._fills_items
            )
        return self._readers[schema_id]


class _AvroReader:
    def __init__(self, schema: AvroSchema, *, gives_json: bool, fills_items: bool) -> None:
        self._schema = schema
        self.kind = avro_type(schema.resolved)
        is_bare = self.kind is not None and not pa.types.is_struct(self.kind)
        self._fills_items = fills_items and not is_bare  # Jackson fills in only the defaults of structures
        if self.kind is not None or gives_json:
            # Arrow fills in the branches that an object lacks, JSON does not.
            self._read = datum_reader(
                schema.resolved, is_plain=True, names_branches=True, fills_branches=self.kind is None
            )
        else:
            self._read = schema.reader

    def decoded(
        self, schema_id: int, rows: list[int], values: list[bytes], what: str, failed: dict[int, Exception]
    ) -> tuple[list[int], list[Any]]:
        walked = walk_framed(
            pa.array(values, pa.binary()), {schema_id: self._schema}, fills_items=self._fills_items
        )
        good, decoded = [], []
        fits = zip(rows, values, walked.fits.tolist(), walked.ends.tolist(), strict=True)
        for row, value, fit, place in fits:
            if fit >= Fit.ENDS_EARLY:
                failed[row] = DataException(f"{what}: {why_not(fit, place)}")
                continue
            if fit == Fit.ODD:
                datum = io.BytesIO(
                    repaired(value, FRAMING, self._schema, is_framed=True, fills_items=self._fills_items)
                )
            else:
                datum = io.BytesIO(value)
                datum.seek(FRAMING)
            try:
                decoded.append(self._read(datum))
                good.append(row)
            except (ValueError, ArithmeticError) as error:  # the error of a logical type may quote the bytes
                failed[row] = DataException(f"{what}: {type(error).__name__}")
        return good, decoded


def _as_json_texts(objects: Sequence[Any]) -> pa.Array:
    texts = [None if value is None else json_of(value) for value in objects]
    return json_column(pa.array(texts, pa.string()))


def _without_bytes(error: UnicodeDecodeError) -> str:
    return f"{error.reason} at byte {error.start}"


def as_texts(converted: Converted, json_of: Callable[[pa.Array], pa.Array]) -> Converted:
    texts = [Piece(piece.rows, json_column(json_of(piece.content))) for piece in converted.pieces]
    return Converted(texts, converted.failed, JSON)


def with_objects(converted: Converted) -> Converted:
    pieces, failed = [], dict(converted.failed)
    for piece in converted.pieces:
        if not (isinstance(piece.content, pa.Array) and is_json(piece.content.type)):
            pieces.append(piece)
            continue
        rows, objects = [], []
        for row, text in zip(piece.rows, piece.content.storage.to_pylist(), strict=True):
            if text is None:
                continue
            try:
                objects.append(json_object(text))
                rows.append(row)
            except DataException as error:
                failed[row] = error
        pieces += [Piece(rows, objects)] if rows else []
    return Converted(pieces, failed, pa.null() if is_json(converted.kind) else converted.kind)


_NUMBERS: Final[Mapping[str, tuple[str, pa.DataType]]] = {
    "short": (">i2", pa.int16()),
    "integer": (">i4", pa.int32()),
    "long": (">i8", pa.int64()),
    "float": (">f4", pa.float32()),
    "double": (">f8", pa.float64()),
}


def converter_of(
    spec: ConverterSpec, registry: Callable[[RegistryAddress], SchemaOf] | None = None
) -> Converter | None:
    """Return the configured converter; None: bytes stay as they are."""
    if spec.kind == "bytes":
        return None
    if spec.kind == "string":
        return StringConverter(spec.encoding)
    if spec.kind == "json":
        return JsonConverter(spec.schemas_enable, spec.schema, spec.replaces_null)
    if spec.kind == "boolean":
        return BooleanConverter()
    if spec.kind in _NUMBERS:
        return NumberConverter(spec.kind)
    if registry is None or spec.registry is None:
        raise ConfigException(
            "the Avro converter needs a schema registry: set its URL, and pass a function that connects to it"
        )
    return AvroConverter(
        registry(spec.registry), is_key=spec.is_key, gives_json=spec.gives_json, fills_items=spec.fills_items
    )
