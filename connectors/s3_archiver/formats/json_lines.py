"""``JsonFormat``: one value a line, as JSON.

Values that are JSON already are written as they are. They are not parsed: what is looked at is how they begin
and end, whether they are UTF-8, and whether they hold a line's end; those are written without space between
their parts. What is no object, array or text by its ends is parsed, so that values of another format are bad
records, and do not spoil a file.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sinksdk import TopicPartition, json_texts
from sinksdk.connectors.s3_archiver.columns import flag_column, long_column, null_scalar
from sinksdk.connectors.s3_archiver.datums import Column, EncodedRows
from sinksdk.connectors.s3_archiver.formats import Encoded
from sinksdk.connectors.s3_archiver.formats.lines import (
    GZIP_EXTENSION,
    GzipContent,
    PlainContent,
    begin_lines,
)
from sinksdk.connectors.s3_archiver.formats.values import (
    VALUE_COLUMNS,
    Fate,
    JoinedValues,
    NullBehavior,
    ValueKind,
    ValueLoop,
    encoded,
    has_bytes,
    join_values,
    minified,
    nothing_joined,
    value_column,
    with_texts,
)
from sinksdk.connectors.s3_archiver.layout import FileHeader

Reading: TypeAlias = Literal["json", "string", "bytes"]
"""What bytes are by their converter: JSON, text, or anything."""

_END: Final = b"\n"
_ENVELOPE: Final = {"schema", "payload"}
_BEFORE_SCHEMA: Final = b'{"schema":'
_BEFORE_PAYLOAD: Final = ',"payload":'
_DO: Final = (
    "correct what produces it, or archive bytes of any kind: with 'format.class' ByteArrayFormat, or with "
    "'archive.content' record"
)


class JsonLines:
    """Files of lines, each a value as JSON.

    Args:
        reading: what values are that are bytes or text: JSON as it stands, text that becomes a JSON text, or
            bytes that become base64. Typed values become what Connect's JsonConverter makes of them.
        schemas_enable: of JSON, whether it is in Connect's envelope, of which the payload is archived; None
            unwraps exactly the objects that are an envelope.
        nulls: what becomes of a record without a value, or whose JSON is null.
        gzip_level: -1 to 9; None without compression.
        block_bytes: of a compressed block; None for the default.
        loop: over rows; None for the better one of those that are there.
    """

    # Seven attributes: what the configuration says, and how the last envelope began.

    def __init__(
        self,
        reading: Reading = "json",
        *,
        schemas_enable: bool | None = False,
        nulls: NullBehavior = "fail",
        gzip_level: int | None = None,
        block_bytes: int | None = None,
        loop: ValueLoop | None = None,
    ) -> None:
        self._reading = reading
        self._schemas_enable = schemas_enable
        self._nulls: NullBehavior = nulls
        self._gzip_level = gzip_level
        self._block_bytes = block_bytes
        self._loop = loop
        self._begin = b""

    @property
    def extension(self) -> str:
        """See :class:`~sinksdk.connectors.s3_archiver.formats.Format`."""
        return ".json" + ("" if self._gzip_level is None else GZIP_EXTENSION)

    @property
    def columns(self) -> tuple[str, ...]:
        """Offset and value."""
        return VALUE_COLUMNS

    def learn(self, batch: pa.RecordBatch) -> None:
        """Nothing is asked."""

    def kinds(self, partition: TopicPartition, batch: pa.RecordBatch) -> None:
        """All lines are alike."""

    def encode(self, partition: TopicPartition, batch: pa.RecordBatch) -> Encoded[EncodedRows]:
        """See :class:`~sinksdk.connectors.s3_archiver.formats.Format`.

        Raises:
            ConfigException: values have a type of which there is no JSON.
        """
        column = value_column(batch)
        whys: dict[int, str] = {}
        if not has_bytes(column.type):
            joined = self._joined(json_texts(column))
        elif self._reading == "json":
            joined = self._as_json(column, whys)
        elif self._reading == "string":
            column = _only_text(column, np.arange(len(column)), whys)
            joined = self._joined(json_texts(column.cast(pa.large_string())))
        else:
            joined = self._joined(json_texts(column.cast(pa.large_binary())))
        if whys:
            fates = joined.fates.copy()
            fates[list(whys)] = Fate.OTHER
            joined = JoinedValues(joined.rows, fates)
        return encoded(partition, batch, joined, self._nulls, lambda row, _: f"{whys[row]}; {_DO}")

    def begin(self, header: FileHeader, key: str, kind: object) -> PlainContent | GzipContent:  # noqa: ARG002 - of the protocol
        """See :class:`~sinksdk.connectors.s3_archiver.formats.Format`."""
        return begin_lines(self._gzip_level, self._block_bytes)

    def _joined(self, texts: Column) -> JoinedValues:
        return join_values(texts, ValueKind.PLAIN, after=_END, loop=self._loop)

    # -- values that are JSON ------------------------------------------------------------------------------

    def _as_json(self, column: Column, whys: dict[int, str]) -> JoinedValues:
        joined = self._lines(column)
        wide = np.flatnonzero(joined.fates == Fate.WIDE)
        if len(wide):
            checked = _only_text(column, wide, whys)
            if whys:
                joined = self._lines(checked)
        texts: dict[int, bytes | None] = {}
        for row in np.flatnonzero(joined.fates > Fate.NULL).tolist():
            try:
                text = self._parsed(column[row].as_buffer().to_pybytes())
            except (ValueError, RecursionError) as error:
                whys[row] = _why(error)
            else:
                texts[row] = text and text + _END
        return with_texts(joined, texts)

    def _lines(self, column: Column) -> JoinedValues:
        if self._schemas_enable is False:
            return join_values(column, ValueKind.JSON, after=_END, loop=self._loop)
        self._learn(column)
        if self._begin:
            return join_values(column, ValueKind.PAYLOAD, self._begin, _END, self._loop)
        if self._schemas_enable is None:
            return join_values(column, ValueKind.MAYBE_ENVELOPE, after=_END, loop=self._loop)
        return nothing_joined(column)

    def _learn(self, column: Column) -> None:
        """What stands before the payload of the batch's first value, if it is written as Connect does it.

        A producer writes the same schema before each payload.
        """
        first = next((value for value in column if value.is_valid), None)
        value = b"" if first is None else first.as_buffer().to_pybytes()
        if self._begin and value.startswith(self._begin):
            return
        self._begin = b""
        if not value.startswith(_BEFORE_SCHEMA):
            return
        with suppress(ValueError, RecursionError):
            text = value.decode()
            _, end = _DECODER.raw_decode(text, len(_BEFORE_SCHEMA))
            begin = f"{text[:end]}{_BEFORE_PAYLOAD}"
            if text.startswith(begin) and json.loads(text).keys() == _ENVELOPE:
                self._begin = begin.encode()

    def _parsed(self, value: bytes) -> bytes | None:
        """The line of any value; None if it is null. Raises ValueError: it is no JSON, or has no envelope."""
        text = value.decode("utf-8-sig")
        found = _DECODER.decode(text)
        if self._schemas_enable is not False:
            if isinstance(found, dict) and found.keys() == _ENVELOPE:
                text = _payload(text)
                found = _DECODER.decode(text)
            elif self._schemas_enable:
                message = (
                    "its value is no object of exactly 'schema' and 'payload', as "
                    "'value.converter.schemas.enable' true requires: set that to false for plain JSON"
                )
                raise ValueError(message)
        return None if found is None else _one_line(text)


def _one_line(text: str) -> bytes:
    line = minified(text.encode())
    if line is None:  # a parser and minified() know the same JSON
        raise AssertionError
    return line


def _only_text(column: Column, rows: Any, whys: dict[int, str]) -> Column:
    """A column with null where one of these rows is not UTF-8."""
    if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        return column
    some = column if len(rows) == len(column) else column.take(long_column(rows))
    with suppress(pa.ArrowInvalid):
        some.cast(pa.string() if pa.types.is_binary(column.type) else pa.large_string())
        return column
    are_bad = np.zeros(len(column), np.bool_)
    for row, value in zip(rows.tolist(), some, strict=True):
        try:
            if value.is_valid:
                value.as_buffer().to_pybytes().decode()
        except UnicodeDecodeError as error:
            whys[row], are_bad[row] = _why(error), True
    return pc.if_else(flag_column(are_bad), null_scalar(column.type), column)


def _why(error: Exception) -> str:
    """Without the bytes, which would end up in logs."""
    if isinstance(error, UnicodeDecodeError):
        return f"its value is no UTF-8 text ({error.reason} at byte {error.start})"
    if isinstance(error, json.JSONDecodeError):
        return f"its value is no JSON ({error})"
    return str(error) if isinstance(error, ValueError) else "its value is JSON of too many levels"


def _refuse(constant: str) -> Any:
    raise ValueError(f"its value is no JSON: it holds {constant}, which only Python takes for a number")


def _nothing(_: str) -> int:
    return 0


# Numbers are not made: only whether there is JSON counts, and Python makes none of more than 4,300 digits.
_DECODER: Final = json.JSONDecoder(parse_int=_nothing, parse_float=_nothing, parse_constant=_refuse)
_SPACE: Final = " \t\n\r"


def _payload(text: str) -> str:
    """The text of an envelope's payload."""
    found, at = "", text.index("{") + 1
    while True:
        name, at = _DECODER.raw_decode(text, _after_space(text, at))
        begin = _after_space(text, _after_space(text, at) + 1)  # a colon
        _, at = _DECODER.raw_decode(text, begin)
        if name == "payload":
            found = text[begin:at]
        at = _after_space(text, at)
        if text[at] == "}":
            return found
        at += 1  # a comma


def _after_space(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at
