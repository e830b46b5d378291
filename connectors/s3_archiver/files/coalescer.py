"""Small batches joined and large ones cut, to a size that is good to encode."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

MIN_ROWS: Final = 10_000
"""Rows of a batch that is worth encoding by itself, which costs 0.3 ms whatever the rows where the compiled
loop is missing, and a tenth of that where it is there."""

MAX_BYTES: Final = 8 * 1024 * 1024
"""Bytes that are held, and that a batch handed out has, at most. Several times as much is there while it is
put together, sorted by files and encoded: twice these bytes cost a worker 60 MB more, and saved no time."""


class BatchCoalescer:
    """Turns batches of one topic partition, of any size, into ones of a size that is good to encode.

    Rows stay in order and none is changed. A batch that is big enough is passed on uncopied.

    Args:
        min_rows: rows that are collected before they are passed on.
        max_bytes: bytes of memory that what is collected holds at most; a larger batch is cut in half,
            without a copy, until its parts are not larger (or one offset).
    """

    def __init__(self, min_rows: int = MIN_ROWS, max_bytes: int = MAX_BYTES) -> None:
        self.min_rows = min_rows
        self._max_bytes = max_bytes
        self._held: list[pa.RecordBatch] = []
        self._held_rows = 0
        self._held_bytes = 0

    @property
    def rows(self) -> int:
        """Number of rows collected and not passed on yet."""
        return self._held_rows

    @property
    def nbytes(self) -> int:
        """Bytes of memory that they hold."""
        return self._held_bytes

    def add(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Take a batch, and return those that are ready now: none, one or several."""
        if not batch.num_rows:
            return []
        size = batch.get_total_buffer_size()  # what it keeps in memory; a slice, all it is a slice of
        if batch.num_rows >= self.min_rows or size >= self._max_bytes:
            return [*self.flush(), *self._cut(batch)]
        ready = [] if self._goes_with_held(batch, size) else self.flush()
        self._held.append(batch)
        self._held_rows += batch.num_rows
        self._held_bytes += size
        return [*ready, *self.flush()] if self._held_rows >= self.min_rows else ready

    def flush(self) -> list[pa.RecordBatch]:
        """Return the collected records as one batch, or nothing."""
        held, self._held, self._held_rows, self._held_bytes = self._held, [], 0, 0
        return [_concatenated(held)] if held else []

    def _goes_with_held(self, batch: pa.RecordBatch, size: int) -> bool:
        if not self._held:
            return True
        return self._held_bytes + size <= self._max_bytes and batch.schema == self._held[0].schema

    def _cut(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        if batch.num_rows <= 1 or batch.nbytes <= self._max_bytes:
            return [batch]
        middle = whole_offsets(batch, batch.num_rows // 2)
        if middle == batch.num_rows:
            return [batch]
        return [*self._cut(batch.slice(0, middle)), *self._cut(batch.slice(middle))]


def whole_offsets(batch: pa.RecordBatch, rows: int) -> int:
    """The first ``rows`` rows (at least one) and those that share the last one's offset: their number."""
    offsets, least = np.from_dlpack(batch.column("offset")), max(rows, 1)
    # Of offsets that do not ascend (records of no engine) as many as were asked for.
    return max(int(np.searchsorted(offsets, offsets[least - 1], side="right")), least)


def _concatenated(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole
