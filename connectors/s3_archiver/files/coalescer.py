"""Small batches joined and large ones cut, to a size that is good to encode."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

MIN_ROWS: Final = 10_000
"""Rows of a batch that is worth encoding by itself: each batch costs 0.3 ms without the compiled loop, and
0.03 ms with it."""

MAX_BYTES: Final = 8 * 1024 * 1024
"""The most bytes that are collected, and that a returned batch has. Several times as much is in memory while
a batch is joined, sorted by files and encoded: twice these bytes cost 60 MB more, and saved no time."""


class BatchCoalescer:
    """Joins and cuts the batches of one topic partition to a size that is good to encode.

    Rows stay in order and unchanged. A batch that is big enough is passed on uncopied.

    Args:
        min_rows: rows that are collected before they are passed on.
        max_bytes: the most bytes that are collected; a larger batch is cut in half, without a copy, until its
            parts are not larger (or one offset).
    """

    def __init__(self, min_rows: int = MIN_ROWS, max_bytes: int = MAX_BYTES) -> None:
        self.min_rows = min_rows
        self._max_bytes = max_bytes
        self._held: list[pa.RecordBatch] = []
        self._held_rows = 0
        self._held_bytes = 0

    @property
    def rows(self) -> int:
        return self._held_rows

    @property
    def nbytes(self) -> int:
        return self._held_bytes

    def add(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Take a batch; return the batches that are ready: none, one or several."""
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
    """Return ``rows`` (at least 1), or more to include all rows of the last one's offset."""
    offsets, least = np.from_dlpack(batch.column("offset")), max(rows, 1)
    # Offsets that do not ascend are not the engine's: then the requested number counts.
    return max(int(np.searchsorted(offsets, offsets[least - 1], side="right")), least)


def _concatenated(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole
