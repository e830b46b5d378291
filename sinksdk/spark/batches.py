"""A task's input: its reader's batches, read ahead."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing

from sinksdk.engine.worker import Unread
from sinksdk.errors import ConnectException
from sinksdk.records import OffsetRange, SinkRecords, TopicPartition
from sinksdk.spark.generation_spec import GenerationSpec, unpacked

_AHEAD = 2  # batches: one being read while one is being delivered
_LONGEST = 5.0  # seconds for a reader to close
_PATIENCE = 0.05  # seconds without a batch until the task gets None

Batches = Iterable[SinkRecords | Unread | None]
Ranges = Mapping[TopicPartition, OffsetRange]

Read = Callable[[Ranges, Mapping[str, str]], AbstractContextManager[Batches]]
"""Gives the batches of ranges while the block runs; the second argument: client properties that the connector
overrides."""


def reading(spec: GenerationSpec, task: int) -> Read:
    """Reads with the task's reader, ahead of the task."""
    reader = unpacked(spec.readers[task])

    def read(ranges: Ranges, overrides: Mapping[str, str]) -> AbstractContextManager[Batches]:
        return closing(ReadAhead(reader.read(ranges, spec.columns, overrides)))

    return read


class InputError(RuntimeError):
    """Reading the input failed; the cause says how."""


class ReadAhead:
    """Reads batches in a separate thread: the next one is read while this one is delivered.

    So the task sees a close request even while the source is slow.
    """

    def __init__(self, batches: Generator[SinkRecords | Unread | None]) -> None:
        self._queue: queue.Queue[SinkRecords | Unread | BaseException | None] = queue.Queue(_AHEAD)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(batches,), name="input", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[SinkRecords | Unread | None]:
        """Batches; None when none arrived for a while.

        Raises:
            ConnectException: what the reader raised.
            InputError: reading failed otherwise.
        """
        while True:
            try:
                item = self._queue.get(timeout=_PATIENCE)
            except queue.Empty:
                yield None
                continue
            if item is None:
                return
            if isinstance(item, ConnectException):
                raise item
            if isinstance(item, BaseException):
                raise InputError(f"the task's input could not be read: {item!r}") from item
            yield item

    def close(self) -> None:
        """Read no more; a batch being read meanwhile is dropped.

        If the reader hangs, its thread is abandoned: everything read is committed by now.
        """
        self._stopped.set()
        self._thread.join(_LONGEST)

    def _read(self, batches: Generator[SinkRecords | Unread | None]) -> None:
        try:
            with closing(batches):
                for batch in batches:
                    if self._stopped.is_set() or (batch is not None and not self._put(batch)):
                        return
            self._put(None)
        except BaseException as error:  # noqa: BLE001 - raised in the task's thread
            self._put(error)

    def _put(self, item: SinkRecords | Unread | BaseException | None) -> bool:
        while not self._stopped.is_set():
            try:
                self._queue.put(item, timeout=_PATIENCE)
            except queue.Full:
                continue
            return True
        return False
