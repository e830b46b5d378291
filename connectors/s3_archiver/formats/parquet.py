"""Write Parquet files of whole records, or of values whose type is known."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterator
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sinksdk import ConfigException, DataException, TopicPartition
from sinksdk.connectors.s3_archiver.archive.header import FileHeader
from sinksdk.connectors.s3_archiver.formats.base import Encoded, Kinds, OneKind
from sinksdk.connectors.s3_archiver.formats.codecs import BytesLike
from sinksdk.connectors.s3_archiver.formats.columns import (
    as_mask,
    list_borders,
    long_scalar,
    texts_column,
    zero_for_null,
)
from sinksdk.connectors.s3_archiver.formats.encoder import milliseconds, without_bad_headers
from sinksdk.connectors.s3_archiver.formats.values import NO_VALUE, NullBehavior, bad_record, has_bytes
from sinksdk.values.decimals import MOST_DIGITS, is_wide
from sinksdk.values.json_text import is_json

# The most bytes of Arrow data, before encoding and compression, that a file collects in memory.
ROW_GROUP_BYTES: Final = 64 * 1024 * 1024

_EXTENSIONS: Final = {
    "none": "",
    "snappy": ".snappy",
    "gzip": ".gz",
    "brotli": ".br",
    "lz4": ".lz4",
    "zstd": ".zstd",
}
CODECS: Final = tuple(_EXTENSIONS)
# Kafka's "none" is a timestamp of -1 ms.
RECORD_TYPE: Final = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", "UTC")),
        pa.field("timestamp_type", pa.int32(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field(
            "headers",
            pa.list_(
                pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
            ),
            nullable=False,
        ),
    ]
)

_OF_RECORDS: Final = {name: name for name in RECORD_TYPE.names} | {"timestamp_type": "timestampType"}
_REPEATING: Final = ["topic", "partition", "timestamp_type", "headers.list.element.key"]
# Statistics let readers skip row groups; those of columns of bytes would be copies of values.
_COMPARED: Final = ["partition", "offset", "timestamp"]


class ParquetRows:
    __slots__ = ("batch",)

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def slice(self, start: int, stop: int) -> Self:
        return type(self)(self.batch.slice(start, stop - start))


class ParquetContent:
    def __init__(
        self, schema: pa.Schema, options: dict[str, object], header: FileHeader, row_group_bytes: int
    ) -> None:
        self._written = _Pieces()
        self._writer = pq.ParquetWriter(self._written, schema, **options)
        self._schema = schema
        self._header = header
        self._row_group_bytes = row_group_bytes
        # Arrow encodes a row group as a whole, so batches wait until the row group is big enough or the file
        # ends.
        self._waiting: list[pa.RecordBatch] = []
        self.buffered = 0

    def header(self) -> Iterator[BytesLike]:
        yield from self._written.take()

    def append(self, rows: ParquetRows) -> Iterator[BytesLike]:
        self._waiting.append(rows.batch)
        self.buffered += rows.batch.nbytes
        if self.buffered >= self._row_group_bytes:
            yield from self._row_group()

    def finish(self) -> Iterator[BytesLike]:
        if self._waiting:
            yield from self._row_group()
        said = self._header.to_metadata()
        self._writer.add_key_value_metadata({name: value.decode() for name, value in said.items()})
        self._writer.close()
        yield from self._written.take()

    def _row_group(self) -> Iterator[BytesLike]:
        rows = pa.Table.from_batches(self._waiting, self._schema)
        self._waiting, self.buffered = [], 0
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        yield from self._written.take()


class _Pieces(io.RawIOBase):
    """A file that Arrow writes to; it forgets the pieces that were taken."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def take(self) -> Iterator[bytes]:
        pieces, self._pieces = self._pieces, []
        return iter(pieces)


class _Parquet:
    columns: tuple[str, ...] | None = None

    def __init__(self, codec: str = "snappy", row_group_bytes: int = ROW_GROUP_BYTES) -> None:
        if codec != "none" and not pa.Codec.is_available("lz4_raw" if codec == "lz4" else codec):
            raise ConfigException(
                f"'parquet.codec': this build of pyarrow does not support {codec}; use one of "
                f"{', '.join(CODECS)}"
            )
        self._codec = codec
        self.extension = f"{_EXTENSIONS[codec]}.parquet"
        self._row_group_bytes = row_group_bytes

    def _file(self, schema: pa.Schema, header: FileHeader, **options: object) -> ParquetContent:
        whole = {"compression": self._codec, **options}
        return ParquetContent(schema, whole, header, self._row_group_bytes)


class RecordParquet(_Parquet, OneKind):
    def encode(self, partition: TopicPartition, batch: pa.RecordBatch) -> Encoded[ParquetRows]:
        batch, bad = without_bad_headers(partition, batch)
        columns = [_column_of(partition, batch, field) for field in RECORD_TYPE]
        return Encoded(ParquetRows(pa.RecordBatch.from_arrays(columns, schema=RECORD_TYPE)), bad)

    def begin(self, header: FileHeader, key: str, kind: object) -> ParquetContent:  # noqa: ARG002 - a signature of Format
        return self._file(RECORD_TYPE, header, use_dictionary=_REPEATING, write_statistics=_COMPARED)


class ValueParquet(_Parquet):
    columns = ("value",)

    def __init__(
        self,
        codec: str = "snappy",
        row_group_bytes: int = ROW_GROUP_BYTES,
        *,
        nulls: NullBehavior = "fail",
        gives_types: bool = True,
    ) -> None:
        super().__init__(codec, row_group_bytes)
        self._nulls: NullBehavior = nulls
        # True: the converter returns types, so that a value without fields is a bad record.
        self._gives_types = gives_types

    def learn(self, batch: pa.RecordBatch) -> None:
        column = batch.column("value")
        if not self._gives_types and has_bytes(column.type) and column.null_count < len(column):
            raise ConfigException(
                "values are bytes, but rows of a Parquet file have fields: set 'value.converter' to Avro's, "
                "with 'value.converter.schema.registry.url', or to JSON's, with 'value.converter.schema' or "
                "values in Connect's envelope; or set 'format.class' to JsonFormat for JSON values, or to "
                "ByteArrayFormat for any; or set 'archive.content' to record"
            )

    def kinds(self, partition: TopicPartition, batch: pa.RecordBatch) -> Kinds:
        values, offsets = batch.column("value"), batch.column("offset")
        kind = values.type
        problem = _problem(kind)
        codes = np.zeros(batch.num_rows, np.int32)
        if problem is None and values.null_count:
            codes[as_mask(values.is_null())] = -1
        elif problem is not None:
            codes[:] = -1
        bad: dict[int, DataException | None] = {}
        for row in np.flatnonzero(codes < 0).tolist():
            is_null = not values[row].is_valid
            why = NO_VALUE if is_null else str(problem)
            is_left_out = is_null and self._nulls == "ignore"
            bad[row] = None if is_left_out else bad_record(partition, offsets[row], why)
        return Kinds([kind] if (codes == 0).any() else [], codes, bad)

    def encode(self, partition: TopicPartition, batch: pa.RecordBatch) -> Encoded[ParquetRows]:  # noqa: ARG002 - a signature of Format
        values = batch.column("value")
        fields = [values.type.field(number) for number in range(values.type.num_fields)]
        return Encoded(
            ParquetRows(pa.RecordBatch.from_arrays(values.flatten(), schema=pa.schema(fields))), {}
        )

    def begin(self, header: FileHeader, key: str, kind: object) -> ParquetContent:  # noqa: ARG002 - a signature of Format
        if not isinstance(kind, pa.StructType):
            raise TypeError(kind)
        return self._file(pa.schema([kind.field(number) for number in range(kind.num_fields)]), header)


def _column_of(partition: TopicPartition, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    rows = batch.num_rows
    if field.name == "topic":
        return pa.repeat(texts_column([partition.topic])[0].cast(field.type), rows)
    if field.name == "partition":
        return pa.repeat(long_scalar(partition.partition, field.type), rows)
    index = batch.schema.get_field_index(_OF_RECORDS[field.name])
    column = pa.nulls(rows, field.type) if index < 0 else batch.column(index)
    if field.name == "headers" and not pa.types.is_struct(column.type.value_type):
        column = pa.nulls(rows, field.type)  # empty lists whose items were created without a type
    if column.type != field.type:
        if field.name == "timestamp" and pa.types.is_timestamp(column.type):
            column = milliseconds(column)
        column = column.cast(field.type)
    if not field.nullable and column.null_count and field.name == "headers":  # null becomes an empty list
        column = pa.ListArray.from_arrays(list_borders(column), column.flatten(), type=column.type)
    elif not field.nullable:
        column = zero_for_null(column)
    return column


@functools.lru_cache(maxsize=64)
def _problem(kind: pa.DataType) -> str | None:
    """Return why values of a type cannot be rows of a Parquet file."""
    if is_json(kind):
        return (
            "its value has no schema for a Parquet file: it is JSON without a schema, or its Avro schema "
            "contains itself. For JSON set 'value.converter.schema', or produce values in Connect's "
            "envelope; for Avro set 'format.class' to AvroFormat or JsonFormat"
        )
    if not pa.types.is_struct(kind):
        return (
            f"its value is of type {kind}, but a row of a Parquet file is a structure: set a converter that "
            f"returns one ('value.converter' avro, or json with a schema), wrap the value with the transform "
            f"HoistField$Value, set 'format.class' to JsonFormat or AvroFormat, or archive whole records "
            f"('archive.content' record)"
        )
    empty = _path_of(kind, "", lambda part: pa.types.is_struct(part) and not part.num_fields)
    if empty is not None:
        return (
            f"its field '{empty}' is a structure without fields, which Parquet does not support"
            if empty
            else ("its value is a structure without fields, which Parquet does not support")
        )
    wide = _path_of(kind, "", is_wide)
    if wide is not None:
        return (
            f"its field '{wide}' is a decimal of more than {MOST_DIGITS} digits, or of a scale outside of 0 "
            f"to {MOST_DIGITS}, which Arrow does not write to Parquet: set 'format.class' to JsonFormat or "
            f"AvroFormat, or archive whole records ('archive.content' record)"
        )
    for field in kind:
        if (why := _refusal(field)) is not None:
            return (
                f"its field '{field.name}' is of type {field.type}, which Parquet does not support ({why}): "
                f"cast or remove it where the values get their types"
            )
    return None


def _refusal(field: pa.Field) -> str | None:
    """Return Arrow's reason for refusing a column."""
    schema = pa.schema([field.with_nullable(True)])
    try:
        with pq.ParquetWriter(_Pieces(), schema) as writer:
            writer.write_table(pa.table([pa.nulls(1, field.type)], schema))
    except (pa.ArrowException, OSError) as error:
        return str(error)
    return None


def _path_of(kind: pa.DataType, path: str, test: Callable[[pa.DataType], bool]) -> str | None:
    """Return the path of the first part of a type that meets a test; empty for the type itself."""
    if test(kind):
        return path
    if pa.types.is_struct(kind):
        inner = [
            (kind.field(i).type, f"{path}.{kind.field(i).name}".lstrip(".")) for i in range(kind.num_fields)
        ]
    elif pa.types.is_map(kind):
        inner = [(kind.key_type, path), (kind.item_type, path)]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        inner = [(kind.value_type, path)]
    else:
        return None
    return next((found for one, name in inner if (found := _path_of(one, name, test)) is not None), None)
