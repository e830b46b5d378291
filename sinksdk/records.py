"""Records as a task receives them: slices of Arrow batches, not copied."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sinksdk.offsets import TopicPartition
from sinksdk.values.json_text import is_json
from sinksdk.values.plain import plain
from sinksdk.values.rows import is_same

NO_TIMESTAMP: Final = -1
"""Kafka's mark for "this record has no timestamp"; :attr:`SinkRecord.timestamp` shows it as None."""

HEADERS_TYPE: Final = pa.list_(
    pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
)

RECORD_COLUMNS: Final[Mapping[str, pa.DataType]] = {
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", tz="UTC"),
    "timestampType": pa.int32(),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": HEADERS_TYPE,
}
"""Columns of :attr:`SinkRecords.arrow` by name, as they are read: named as those of Spark's Kafka source,
less the coordinates that are the same in every row. Only ``offset`` never holds nulls. ``key`` and ``value``
are of other types where a converter, a transform or a DataFrame has typed them."""


class Header(NamedTuple):
    """One record header; keys may repeat within a record and their order counts."""

    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """One record with Kafka's coordinates.

    Args:
        topic: topic it was read from.
        partition: partition it was read from.
        offset: its offset there.
        key: key bytes, None where there is none; a typed key as Python's own types (dict, list, str, int …).
        value: the same for the value, None for a tombstone.
        timestamp: milliseconds since the epoch, None where Kafka has none (-1).
        timestamp_type: 0 create time, 1 log append time, -1 none.
        headers: in the order they were written, duplicates kept.
        read_from: its batch and row before conversion, if its key or value is not the bytes that were read.
    """

    topic: str
    partition: int
    offset: int
    key: Any = None
    value: Any = None
    timestamp: int | None = None
    timestamp_type: int = 0
    headers: tuple[Header, ...] = ()
    read_from: tuple[pa.RecordBatch, int] | None = field(default=None, repr=False, compare=False)

    @property
    def topic_partition(self) -> TopicPartition:
        """Where the record was read from."""
        return TopicPartition(self.topic, self.partition)

    def as_read(self) -> SinkRecord:
        """The record with its key and value as they were read, before any converter."""
        if self.read_from is None:
            return self
        batch, row = self.read_from
        return SinkRecords(self.topic_partition, batch.slice(row, 1))[0]


def row_numbers(rows: Sequence[int] | npt.NDArray[np.integer[Any]]) -> pa.Array:
    """Numbers of rows, as Arrow takes them.

    ``pa.array`` would import pandas where that is installed, at 40 MB and half a second.
    """
    numbers = np.ascontiguousarray(rows, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def _view_taken(column: pa.Array, taken: pa.Array, read: pa.Array) -> pa.Array | None:
    """Rows taken of a column as those of what was read, where both are over the same memory; else None."""
    if column.type == read.type:
        return taken if is_same(column, read) else None
    # Of JSON the nulls need not be those that were read.
    if is_json(column.type) and not taken.null_count and is_same(column.storage, read, but_nulls=True):
        return taken.storage.cast(read.type)
    return None


@dataclass(frozen=True, slots=True, eq=False)
class SinkRecords(Sequence[SinkRecord]):
    """Records of ONE topic partition, offsets ascending, over ONE Arrow RecordBatch. Read-only.

    A transform (``records.sql``, ``records.transform``) may make several records of one: they share an offset
    and stand in one batch. A task that ends a file or a request between two records does it at
    :meth:`whole_offsets`, since a commit cannot divide an offset.

    Iterating makes a :class:`SinkRecord` per row; for speed, use :attr:`arrow`, which makes no Python object
    per record. Slicing copies nothing.

    Args:
        partition: the topic partition all rows belong to.
        arrow: columns as in :data:`RECORD_COLUMNS`; those the source does not have, or the
            connector did not ask for (``SinkConnector.columns``), are absent. ``key`` and ``value`` may be of
            any type, the same in all rows: bytes, or what a converter, a transform or a DataFrame gives.
        keys: keys as objects by row, where no schema is known of them (JSON, a converter of one's own).
        values: the same for values.
        read: the same rows as they were read, if ``arrow`` has other columns; for dead letters.
    """

    partition: TopicPartition
    arrow: pa.RecordBatch
    keys: Sequence[Any] | None = None
    values: Sequence[Any] | None = None
    read: pa.RecordBatch | None = field(default=None, repr=False)

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """The offset of each row, not copied: read-only."""
        # Arrow's own to_numpy would import pandas, too.
        return np.from_dlpack(self.arrow.column("offset")).view(np.int64)

    @property
    def first_offset(self) -> int:
        """Offset of the first record. Raises IndexError when there is none."""
        return self._offset_at(0)

    @property
    def next_offset(self) -> int:
        """Offset of the last record + 1. Raises IndexError when there is none."""
        return self._offset_at(-1) + 1

    def _offset_at(self, index: int) -> int:
        if not len(self):
            raise IndexError(f"{self.partition}: a batch without records has no offsets")
        offset: int = self.arrow.column("offset")[index].as_py()
        return offset

    def whole_offsets(self, rows: int) -> int:
        """The first ``rows`` rows (at least one) and those that share the last one's offset: their number.

        Without a transform that multiplies records it is ``rows`` itself, or all where there are fewer.
        """
        if rows >= len(self):
            return len(self)
        offsets = self.offsets
        return int(np.searchsorted(offsets, offsets[max(rows, 1) - 1], side="right"))

    def take(self, rows: Sequence[int] | npt.NDArray[np.integer[Any]]) -> SinkRecords:
        """Some of the records, by row, in the order given: for transforms that drop records."""
        places = row_numbers(rows)
        taken = self.arrow.take(places)
        return SinkRecords(
            self.partition,
            taken,
            None if self.keys is None else [self.keys[row] for row in rows],
            None if self.values is None else [self.values[row] for row in rows],
            None if self.read is None else self._read_taken(self.read, taken, places),
        )

    def _read_taken(self, read: pa.RecordBatch, taken: pa.RecordBatch, places: pa.Array) -> pa.RecordBatch:
        """Rows of what was read. Columns that are in ``arrow``, too, are not taken twice."""
        columns = []
        for name, column in zip(read.schema.names, read.columns, strict=True):
            index = self.arrow.schema.get_field_index(name)
            found = None if index < 0 else _view_taken(self.arrow.column(index), taken.column(index), column)
            columns.append(column.take(places) if found is None else found)
        return pa.RecordBatch.from_arrays(columns, schema=read.schema)

    def __len__(self) -> int:
        rows: int = self.arrow.num_rows
        return rows

    @overload
    def __getitem__(self, index: int) -> SinkRecord: ...
    @overload
    def __getitem__(self, index: slice) -> SinkRecords: ...
    def __getitem__(self, index: int | slice) -> SinkRecord | SinkRecords:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                message = "records can only be sliced in order, with a step of 1"
                raise ValueError(message)
            return SinkRecords(
                self.partition,
                self.arrow.slice(start, max(stop - start, 0)),
                None if self.keys is None else self.keys[start:stop],
                None if self.values is None else self.values[start:stop],
                None if self.read is None else self.read.slice(start, max(stop - start, 0)),
            )
        row = range(len(self))[index]
        return next(iter(self[row : row + 1]))

    def __iter__(self) -> Iterator[SinkRecord]:
        offsets = self.arrow.column("offset").to_pylist()
        none = [None] * len(offsets)
        timestamps = self._integers("timestamp") or none
        types = self._integers("timestampType") or [0] * len(offsets)
        keys = self.keys if self.keys is not None else self._column("key") or none
        values = self.values if self.values is not None else self._column("value") or none
        headers = self._column("headers") or none
        read = self.arrow if self.read is None else self.read
        objects = (self.keys, self.values, self.read)
        is_converted = any(one is not None for one in objects) or self._is_typed()
        sources = ((read, row) for row in range(len(offsets))) if is_converted else none
        topic, partition = self.partition
        for offset, timestamp, kind, key, value, items, source in zip(
            offsets, timestamps, types, keys, values, headers, sources, strict=True
        ):
            yield SinkRecord(
                topic=topic,
                partition=partition,
                offset=offset,
                key=key,
                value=value,
                timestamp=None if timestamp == NO_TIMESTAMP else timestamp,
                timestamp_type=0 if kind is None else kind,
                headers=tuple(Header(item["key"], item["value"]) for item in items or ()),
                read_from=source,
            )

    def _column(self, name: str) -> list[Any] | None:
        index = self.arrow.schema.get_field_index(name)
        if index < 0:
            return None
        column = self.arrow.column(index)
        return column.to_pylist() if column.type in (pa.binary(), HEADERS_TYPE) else plain(column)

    def _is_typed(self) -> bool:
        kinds = {field.type for field in self.arrow.schema if field.name in ("key", "value")}
        return not kinds <= {pa.binary()}

    def _integers(self, name: str) -> list[int | None] | None:
        """A column as plain integers: timestamps must not become datetimes, which end in year 9999."""
        index = self.arrow.schema.get_field_index(name)
        if index < 0:
            return None
        column = self.arrow.column(index)
        integers: list[int | None] = column.cast(
            pa.int32() if pa.types.is_int32(column.type) else pa.int64()
        ).to_pylist()
        return integers

    @classmethod
    def of(
        cls,
        partition: TopicPartition,
        records: Sequence[SinkRecord],
        *,
        key_type: pa.DataType | None = None,
        value_type: pa.DataType | None = None,
    ) -> SinkRecords:
        """Build a batch from records: for tests and for sources that have nothing faster.

        Args:
            key_type: of the keys; bytes by default.
            value_type: of the values; bytes by default.

        Raises:
            ValueError: a record of another topic partition, or offsets that do not ascend.
        """
        for record in records:
            if record.topic_partition != partition:
                raise ValueError(f"a record of {record.topic_partition} in a batch of {partition}")
        offsets = [record.offset for record in records]
        if any(later <= earlier for earlier, later in itertools.pairwise(offsets)):
            raise ValueError(f"{partition}: offsets must ascend, got {offsets}")
        rows = {
            "offset": offsets,
            "timestamp": [r.timestamp for r in records],
            "timestampType": [r.timestamp_type for r in records],
            "key": [r.key for r in records],
            "value": [r.value for r in records],
            "headers": [[{"key": h.key, "value": h.value} for h in r.headers] or None for r in records],
        }
        types = {**RECORD_COLUMNS, "key": key_type or pa.binary(), "value": value_type or pa.binary()}
        arrays = [pa.array(rows[name], kind) for name, kind in types.items()]
        return cls(partition, pa.RecordBatch.from_arrays(arrays, names=list(types)))
