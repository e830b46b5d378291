"""Records as a task receives them: slices of Arrow batches, without copies."""

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
from sinksdk.values.rows import column_of, is_same, rows_to_take

NO_TIMESTAMP: Final = -1
"""Kafka's marker for a record without a timestamp; :attr:`SinkRecord.timestamp` is None for it."""

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
"""Columns of :attr:`SinkRecords.arrow`, with the types in which they are read.

The names are those of Spark's Kafka source, without ``topic`` and ``partition``, which are the same in all
rows. Only ``offset`` never contains nulls. ``key`` and ``value`` have other types after a converter, a
transform or a DataFrame has typed them.
"""


class Header(NamedTuple):
    """One record header. A record may have several headers with the same key, and their order matters."""

    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """One record with its Kafka coordinates.

    Args:
        topic: topic it was read from.
        partition: partition it was read from.
        offset: its offset in the partition.
        key: key as bytes, None if there is none; a typed key as a Python object (dict, list, str, int …).
        value: the same for the value; None for a tombstone.
        timestamp: milliseconds since the epoch, None if there is none (Kafka's -1).
        timestamp_type: 0 create time, 1 log append time, -1 none.
        headers: in the order in which they were written, duplicates kept.
        read_from: batch and row before conversion, if the key or the value was converted.
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
        """Topic and partition of the record."""
        return TopicPartition(self.topic, self.partition)

    def as_read(self) -> SinkRecord:
        """Return the record with its key and value as they were read, before any converter."""
        if self.read_from is None:
            return self
        batch, row = self.read_from
        return SinkRecords(self.topic_partition, batch.slice(row, 1))[0]


def _view_taken(column: pa.Array, taken: pa.Array, read: pa.Array) -> pa.Array | None:
    """Return ``taken`` as rows of ``read`` if ``column`` shares the memory of ``read``; else None."""
    if column.type == read.type:
        return taken if is_same(column, read) else None
    # A JSON column shares the bytes that were read; its converter may have set other rows to null.
    if is_json(column.type) and not taken.null_count and is_same(column.storage, read, but_nulls=True):
        return taken.storage.cast(read.type)
    return None


@dataclass(frozen=True, slots=True, eq=False)
class SinkRecords(Sequence[SinkRecord]):
    """Records of ONE topic partition, offsets ascending, over ONE Arrow RecordBatch. Read-only.

    A transform (``records.sql``, ``records.transform``) may turn one record into several: they share an
    offset and are in the same batch. A task that ends a file or a request between two records uses
    :meth:`whole_offsets`, because a commit cannot divide an offset.

    Iterating creates a :class:`SinkRecord` per row; :attr:`arrow` is faster, because it creates no Python
    object per record. Slicing copies nothing.

    Args:
        partition: the topic partition of all rows.
        arrow: columns as in :data:`RECORD_COLUMNS`, without those that the source does not have or the
            connector did not request (``SinkConnector.columns``). ``key`` and ``value`` may be of any type,
            the same in all rows: bytes, or the type that a converter, a transform or a DataFrame gives.
        key_objects: one Python object per row if the keys have no schema (JSON, a converter of your own);
            None, as in ordinary batches, if the keys are in ``arrow``.
        value_objects: the same for the values.
        read: the same rows as they were read, if ``arrow`` has other columns; for dead letters.
    """

    partition: TopicPartition
    arrow: pa.RecordBatch
    key_objects: Sequence[Any] | None = None
    value_objects: Sequence[Any] | None = None
    read: pa.RecordBatch | None = field(default=None, repr=False)

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """The offset of each row, as a read-only view."""
        # Arrow's to_numpy would import pandas.
        return np.from_dlpack(self.arrow.column("offset")).view(np.int64)

    @property
    def first_offset(self) -> int:
        """Offset of the first record. Raises IndexError if the batch is empty."""
        return self._offset_at(0)

    @property
    def next_offset(self) -> int:
        """Offset of the last record + 1. Raises IndexError if the batch is empty."""
        return self._offset_at(-1) + 1

    def _offset_at(self, index: int) -> int:
        if not len(self):
            raise IndexError(f"{self.partition}: a batch without records has no offsets")
        offset: int = self.arrow.column("offset")[index].as_py()
        return offset

    def whole_offsets(self, rows: int) -> int:
        """Round a number of rows up, so that a batch cut there divides no offset.

        The result is larger than ``rows`` only if a transform has turned one record into several, which share
        an offset. It is at least 1 row, unless the batch is empty, and at most the batch's length.
        """
        if rows >= len(self):
            return len(self)
        offsets = self.offsets
        return int(np.searchsorted(offsets, offsets[max(rows, 1) - 1], side="right"))

    def take(self, rows: Sequence[int] | npt.NDArray[np.integer[Any]]) -> SinkRecords:
        """Return the given rows in the given order. Raises IndexError for a row that does not exist."""
        places = rows_to_take(np.asarray(rows, np.int64))
        if places.null_count:
            raise IndexError(f"{self.partition}: rows to take must not be negative")
        taken = self.arrow.take(places)
        return SinkRecords(
            self.partition,
            taken,
            None if self.key_objects is None else [self.key_objects[row] for row in rows],
            None if self.value_objects is None else [self.value_objects[row] for row in rows],
            None if self.read is None else self._read_taken(self.read, taken, places),
        )

    def _read_taken(self, read: pa.RecordBatch, taken: pa.RecordBatch, places: pa.Array) -> pa.RecordBatch:
        columns = []  # columns that ``arrow`` shares are not taken twice
        for name, column in zip(read.schema.names, read.columns, strict=True):
            own = column_of(self.arrow, name)
            found = None if own is None else _view_taken(own, taken.column(name), column)
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
                raise ValueError("records can only be sliced in order, with a step of 1")
            return SinkRecords(
                self.partition,
                self.arrow.slice(start, max(stop - start, 0)),
                None if self.key_objects is None else self.key_objects[start:stop],
                None if self.value_objects is None else self.value_objects[start:stop],
                None if self.read is None else self.read.slice(start, max(stop - start, 0)),
            )
        row = range(len(self))[index]
        return next(iter(self[row : row + 1]))

    def __iter__(self) -> Iterator[SinkRecord]:
        offsets = self.arrow.column("offset").to_pylist()
        none = [None] * len(offsets)
        timestamps = self._integers("timestamp") or none
        types = self._integers("timestampType") or [0] * len(offsets)
        keys = self.key_objects if self.key_objects is not None else self._column("key") or none
        values = self.value_objects if self.value_objects is not None else self._column("value") or none
        headers = self._column("headers") or none
        read = self.arrow if self.read is None else self.read
        objects = (self.key_objects, self.value_objects, self.read)
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
        column = column_of(self.arrow, name)
        if column is None:
            return None
        return column.to_pylist() if column.type in (pa.binary(), HEADERS_TYPE) else plain(column)

    def _is_typed(self) -> bool:
        kinds = {field.type for field in self.arrow.schema if field.name in ("key", "value")}
        return not kinds <= {pa.binary()}

    def _integers(self, name: str) -> list[int | None] | None:
        # Timestamps must not become datetimes, which end in the year 9999.
        column = column_of(self.arrow, name)
        integers: list[int | None] | None = None if column is None else column.cast(pa.int64()).to_pylist()
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
        """Build a batch from records: for tests, and for sources that have no Arrow batches.

        Args:
            key_type: type of the keys; bytes by default.
            value_type: type of the values; bytes by default.

        Raises:
            ValueError: a record belongs to another topic partition, or offsets do not ascend.
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
