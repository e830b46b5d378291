"""A write: prepared on the driver, written by tasks on executors, committed on the driver."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sinksdk.connector import ConnectorIdentity
from sinksdk.control import registry
from sinksdk.engine.clock import SystemWallClock
from sinksdk.engine.options import TaskName
from sinksdk.errors import ConfigException
from sinksdk.frames.batches import FrameBatches, Terms
from sinksdk.frames.options import FrameOptions, read_options
from sinksdk.frames.protocol import Share, Writing
from sinksdk.frames.rows import check_columns
from sinksdk.frames.task import FrameTask
from sinksdk.settings.plugins import sink_class
from sinksdk.spark.outside import open_dead_letters
from sinksdk.store import Store, TakenOver, identify, newest_plan, open_store
from sinksdk.store.records import ConnectorRecord
from sinksdk.support.logs import WARNINGS, configure_logging, logging_about

if TYPE_CHECKING:
    import pyarrow as pa

# More than twelve imports: this module puts the parts of a write together.


@dataclass(frozen=True, slots=True)
class FrameWriter:
    """Writes micro-batches with one connector. Pickled to executors; holds no secret.

    Args:
        store_url: references unresolved.
        store_id: an executor that reaches another store must not write to it.
        python_path: the driver's working folder, where a connector may be, too.
    """

    store_url: str
    store_id: str
    terms: Terms
    python_path: tuple[str, ...] = field(default=(), repr=False)

    def write(self, writing: Writing, number: int, batches: Iterator[pa.RecordBatch]) -> Share | None:
        """Run the task of a Spark partition, on an executor.

        Returns:
            What the driver is to commit; None: no row, or the micro-batch is committed already.

        Raises:
            FencedException: another query has taken the connector over.
            ConnectException: the task has failed; Spark runs it again.
        """
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
        """Commit and publish a micro-batch, on the driver. Raises as :meth:`FrameBatches.commit`."""
        with self._opened() as store:
            self._batches(store).commit(writing, shares, self._settle)

    def abort(self, writing: Writing) -> None:
        """Discard what a micro-batch has prepared, on the driver."""
        with self._opened() as store:
            self._batches(store).abort(writing, self._settle)

    @property
    def _class(self) -> str:
        return self.terms.config["connector.class"]

    def _batches(self, store: Store) -> FrameBatches:
        return FrameBatches(store, self.terms, SystemWallClock())

    def _settle(self, taken: TakenOver) -> Any:
        return self._task(0, taken).settle()

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
    """Make this process import and log as the driver does."""
    sys.path[:0] = [folder for folder in python_path if folder not in sys.path]
    configure_logging(WARNINGS)


def prepare_writer(options: Mapping[str, str], columns: pa.Schema) -> FrameWriter:
    """Check everything that can be checked before Spark runs, and start the connector.

    Raises:
        ConfigException: every problem at once.
        ConnectException: store or destination cannot be used.
    """
    found = read_options(options)
    check_columns(columns, _become_bytes(found))
    store = open_store(found.store_url, create=True)
    try:
        with logging_about(connector=found.config.name):
            record = _register(store, found)
            store_id = identify(store)
            identity = ConnectorIdentity(store_id, found.config.name, record.incarnation)
            configs = _started(identity, tuple(sorted(found.raw.items())))
    finally:
        store.close()
    terms = Terms(found.config.name, found.topic, found.raw, configs)
    return FrameWriter(found.store_url, store_id, terms, (str(Path.cwd()),))


def _become_bytes(found: FrameOptions) -> Sequence[str]:
    """Keys and values that the task, or a converter, gets as bytes."""
    takes_bytes = sink_class(found.raw["connector.class"]).task_class.takes_bytes
    kinds = {name: found.config.converter_spec(is_key=name == "key").kind for name in ("key", "value")}
    return [name for name, kind in kinds.items() if takes_bytes or kind != "bytes"]


def _register(store: Store, found: FrameOptions) -> ConnectorRecord:
    """The connector's record, with this configuration; no driver of sinksdk's own runs it."""
    name = found.config.name
    _, plan = newest_plan(store, name)
    is_driven = plan is not None and plan.frames is None

    def changed(record: ConnectorRecord) -> ConnectorRecord:
        if is_driven or record.target_state != "STOPPED":
            raise ConfigException(
                f"connector {name} in store {store.url} reads topics, by 'sinksdk run' or a server (target "
                f"state {record.target_state}): give this DataFrame another 'name'"
            )
        if record.config == found.raw:
            return record
        return record.model_copy(update={"config": dict(found.raw), "version": record.version + 1})

    return registry.change(
        store, name, changed, otherwise=lambda: registry.created(found.raw, target_state="STOPPED")
    )


@functools.lru_cache(maxsize=16)
def _started(identity: ConnectorIdentity, raw: tuple[tuple[str, str], ...]) -> Sequence[Mapping[str, str]]:
    """Start a connector, once in this process, and stop it; returns its task configurations."""
    made = sink_class(dict(raw)["connector.class"])()
    made.identity = identity
    config = made.config_class.parse(dict(raw))
    try:
        made.start(config)
        return [dict(one) for one in made.task_configs(config.tasks_max)] or [{}]
    finally:
        made.stop()


def _after(first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest
