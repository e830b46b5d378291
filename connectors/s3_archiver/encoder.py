"""From a batch of records to the datums of ``archive.content=record``."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sinksdk import DataException, TopicPartition
from sinksdk.connectors.s3_archiver.datums import NO_ROWS, DatumBuilder, EncodedRows, filled, present_in
from sinksdk.connectors.s3_archiver.varints import BYTES, Column, Longs, borders_of, varint

__all__ = ["EncodedRows", "RecordEncoder"]

_TICKS_PER_MILLISECOND: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}
_MILLISECONDS_PER_SECOND: Final = 1_000


class RecordEncoder:
    """Encodes batches of one topic partition by :data:`~sinksdk.connectors.s3_archiver.schema.RECORD_SCHEMA`.

    The bytes are those that fastavro writes for the same records. A batch is not changed, and one
    copy of its bytes is made (a second one of headers).

    Args:
        partition: the topic partition that all records belong to.
    """

    def __init__(self, partition: TopicPartition) -> None:
        topic = partition.topic.encode()
        self._partition = partition
        self._coordinates = varint(len(topic)) + topic + varint(partition.partition)

    def encode(self, batch: pa.RecordBatch) -> EncodedRows:
        """Encode a batch with the columns of :data:`sinksdk.records.RECORD_COLUMNS`.

        Columns other than ``offset`` may be absent, which is the same as null in all rows. ``key``
        and ``value`` may be of any binary or string type. ``timestamp`` is a timestamp or
        milliseconds since the epoch, -1 (Kafka's "none") stays -1; finer ones are rounded down. Null in
        ``timestampType`` becomes 0, null ``headers`` none.

        Raises:
            DataException: a header without a key, which neither Kafka nor the schema knows.
        """
        if not batch.num_rows:
            return NO_ROWS
        datums = DatumBuilder(batch.num_rows)
        datums.constant(self._coordinates)
        datums.long(_longs(batch.column("offset")))
        timestamp = _column(batch, "timestamp")
        datums.nullable_long(_milliseconds(timestamp), present_in(timestamp))
        datums.long(_longs(_column(batch, "timestampType")))
        datums.nullable_bytes(_column(batch, "key").cast(BYTES))
        datums.nullable_bytes(_column(batch, "value").cast(BYTES))
        self._append_headers(datums, batch)
        return datums.build()

    def _append_headers(self, datums: DatumBuilder, batch: pa.RecordBatch) -> None:
        headers = _column(batch, "headers")
        if headers.null_count == batch.num_rows:
            datums.array(np.zeros(batch.num_rows, np.int64), NO_ROWS)
            return
        counts = _longs(pc.list_value_length(headers))
        items = headers.flatten()
        if not len(items):
            datums.array(counts, NO_ROWS)
            return
        # flatten() of a struct, unlike field(), shows the children of a null struct as null
        children = items.flatten()
        keys = children[items.type.get_field_index("key")]
        self._check_header_keys(keys, batch, counts)
        encoded = DatumBuilder(len(items))
        encoded.bytes(keys.cast(BYTES))
        encoded.nullable_bytes(children[items.type.get_field_index("value")].cast(BYTES))
        datums.array(counts, encoded.build())

    def _check_header_keys(self, keys: Column, batch: pa.RecordBatch, counts: Longs) -> None:
        if not keys.null_count:
            return
        first = int(np.argmin(keys.is_valid().to_numpy(zero_copy_only=False)))
        row = int(np.searchsorted(borders_of(counts), first, side="right")) - 1
        raise DataException(
            f"{self._partition}: the record at offset {batch.column('offset')[row]} has a header "
            "without a key, which cannot be archived: correct the record where it is produced, or "
            "leave the column 'headers' out"
        )


def _column(batch: pa.RecordBatch, name: str) -> Column:
    """A column by name; one of nulls if the batch does not have it."""
    index = batch.schema.get_field_index(name)
    return pa.nulls(batch.num_rows) if index < 0 else batch.column(index)


def _longs(column: Column) -> Longs:
    return filled(column if pa.types.is_int64(column.type) else column.cast(pa.int64()))


def _milliseconds(column: Column) -> Longs:
    """A column of timestamps, or of milliseconds already, as milliseconds since the epoch; 0 for null."""
    if not pa.types.is_timestamp(column.type):
        return _longs(column)
    ticks = filled(column.view(pa.int64()))
    if column.type.unit == "s":
        return ticks * _MILLISECONDS_PER_SECOND
    per_millisecond = _TICKS_PER_MILLISECOND[column.type.unit]
    return ticks if per_millisecond == 1 else ticks // per_millisecond
