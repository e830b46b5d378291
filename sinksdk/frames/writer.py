"""Writes micro-batches: tasks on executors write, the driver commits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sinksdk.engine.clock import SystemWallClock
from sinksdk.engine.options import TaskName
from sinksdk.frames.batches import FrameBatches, Seen, Terms
from sinksdk.frames.protocol import Share, Writing
from sinksdk.frames.task import FrameTask
from sinksdk.plugins.classes import sink_class
from sinksdk.store import Store, TakenOver, open_store
from sinksdk.support.logs import WARNINGS, configure_logging, logging_about
from sinksdk.worker.outside import open_dead_letters

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

_SEEN: Final[Seen] = {}


@dataclass(frozen=True, slots=True)
class FrameWriter:
    """Writes micro-batches with one connector, on executors and in the driver."""

    # References stay unresolved, so that executors receive no secrets.
    store_url: str
    # Prevents an executor from writing to another store.
    store_id: str
    terms: Terms
    # The driver's working directory may contain the connector.
    python_path: tuple[str, ...] = field(default=(), repr=False)

    def write(self, writing: Writing, number: int, batches: Iterator[pa.RecordBatch]) -> Share | None:
        """Run the task of a Spark partition; return None if there is nothing to commit."""
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return None
        with self._opened(task=number) as store:
            taken = self._batches(store).join(writing, number)
            if taken is None:
                return None
            connector = sink_class(self._class)
            config = connector.config_class.parse(self.terms.config)
            with open_dead_letters(config, None) as letters:
                task = self._task(number, taken, letters)
                return task.write(_after(first, batches))

    def commit(self, writing: Writing, shares: Sequence[Share]) -> None:
        with self._opened() as store:
            self._batches(store).commit(writing, shares, self._settle)

    def abort(self, writing: Writing) -> None:
        with self._opened() as store:
            self._batches(store).abort(writing, self._settle)

    @property
    def _class(self) -> str:
        return self.terms.config["connector.class"]

    def _batches(self, store: Store) -> FrameBatches:
        return FrameBatches(store, self.terms, SystemWallClock(), in_threads, _SEEN)

    def _settle(self, taken: TakenOver, number: int) -> Any:
        return self._task(number, taken).settle()

    def _task(self, number: int, taken: TakenOver, letters: Any = None) -> FrameTask:
        return FrameTask(
            sink_class(self._class),
            TaskName(self.terms.connector, number),
            taken,
            clock=SystemWallClock(),
            dead_letters=letters,
        )

    @contextmanager
    def _opened(self, **about: int) -> Iterator[Store]:
        prepare_process(self.python_path)
        with logging_about(connector=self.terms.connector, **about):
            store = open_store(self.store_url, expected_id=self.store_id)
            try:
                yield store
            finally:
                store.close()


def prepare_process(python_path: Sequence[str]) -> None:
    sys.path[:0] = [folder for folder in python_path if folder not in sys.path]
    configure_logging(WARNINGS)


def in_threads(run: Callable[[int], T], numbers: Sequence[int]) -> Sequence[T]:
    """Call ``run`` for each number in its own thread; raise the first exception once all have returned."""
    with ThreadPoolExecutor(max(1, len(numbers)), "settling") as pool:
        return [future.result() for future in [pool.submit(copy_context().run, run, n) for n in numbers]]


def _after(first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest
