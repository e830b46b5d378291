"""A task's input: Arrow batches as Spark hands them over, read ahead, cut at partitions' borders.

The first row of a task's input is a control row that says which task it is, so that nothing depends
on how Spark numbers partitions. Every other row carries the position of its range in the task's plan;
topic and partition themselves are not sent.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from sinksdk.records import SinkRecords, TopicPartition

RANGE: Final = "range"
"""Column: position of the row's range in its task's plan; ``-1 - task`` in the control row."""

_TIMESTAMPS = pa.timestamp("ms", tz="UTC")
_AHEAD = 2  # batches: one being read while one is being delivered
_PATIENCE = 0.1  # seconds until the reader of the input is told that nothing came


class InputError(RuntimeError):
    """Reading the input failed; the cause says how."""


class ReadAhead:
    """Reads an iterator in a thread of its own: the next batch comes while this one is delivered.

    ``next()`` on Spark's input blocks in the JVM; with a thread in between, the task sees meanwhile
    that it shall close.

    Args:
        batches: Spark's input.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._queue: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(_AHEAD)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(batches,), name="input", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[pa.RecordBatch | None]:
        """Batches as they come, None whenever none came for a while.

        Raises:
            InputError: reading failed.
        """
        while True:
            try:
                item = self._queue.get(timeout=_PATIENCE)
            except queue.Empty:
                yield None
                continue
            if item is None:
                return
            if isinstance(item, BaseException):
                message = "the task's input could not be read"
                raise InputError(message) from item
            yield item

    def stop(self) -> None:
        """Read no more; a batch being read meanwhile is dropped."""
        self._stopped.set()

    def _read(self, batches: Iterator[pa.RecordBatch]) -> None:
        try:
            for batch in batches:
                if not self._put(batch):
                    return
            self._put(None)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the task's thread must hear of it
            self._put(error)

    def _put(self, item: pa.RecordBatch | BaseException | None) -> bool:
        while not self._stopped.is_set():
            try:
                self._queue.put(item, timeout=_PATIENCE)
            except queue.Full:
                continue
            return True
        return False


def task_number(batch: pa.RecordBatch) -> int:
    """Which task this input belongs to, from its control row."""
    return -1 - int(batch.column(RANGE)[0].as_py())


def by_partition(
    batches: Iterator[pa.RecordBatch | None], partitions: Sequence[TopicPartition]
) -> Iterator[SinkRecords | None]:
    """Cut batches where one partition's rows end and the next one's begin; control rows are dropped.

    Args:
        batches: a task's input.
        partitions: of the task's ranges, in the plan's order.
    """
    for batch in batches:
        if batch is None:
            yield None
            continue
        ranges = batch.column(RANGE).to_numpy()
        borders = [0, *(np.flatnonzero(np.diff(ranges)) + 1).tolist(), len(ranges)]
        columns = _columns(batch)
        for start, stop in itertools.pairwise(borders):
            if start < stop and ranges[start] >= 0:
                yield SinkRecords(partitions[ranges[start]], columns.slice(start, stop - start))


def _columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The record's own columns; milliseconds become timestamps without being touched."""
    names = [name for name in batch.schema.names if name != RANGE]
    arrays = [batch.column(name) for name in names]
    if "timestamp" in names:
        at = names.index("timestamp")
        arrays[at] = arrays[at].view(_TIMESTAMPS)
    return pa.RecordBatch.from_arrays(arrays, names=names)
