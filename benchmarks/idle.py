"""Measure the CPU share of idle connectors in one process: ``python -m benchmarks.idle``."""

from __future__ import annotations

import logging
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from benchmarks.table import Row, show
from sinksdk import ConnectorConfig, TopicPartition
from sinksdk.control.herder import Herder
from sinksdk.control.info import connector_info
from sinksdk.runtime.connect_worker import ConnectWorker
from sinksdk.runtime.driver import ConnectorDriver
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.idle import Openers
from sinksdk.runtime.worker_connector import WorkerConnector
from sinksdk.store import Store, open_store
from sinksdk.store.records import ConnectorRecord
from sinksdk.topics.directory import TopicDirectorySource, write_records
from tests.runtime.running_sinks import Connector, InProcess, Task

CONNECTORS: Final = 40
PARTITIONS: Final = 4
FILES: Final = 300
_SETTLED: Final = 10.0  # seconds from the last commit to the first measurement
_MEASURED: Final = 20.0  # seconds


def make_topic(root: Path, files: int, partitions: int = PARTITIONS) -> None:
    for number in range(partitions):
        for offset in range(files):
            rows = pa.table({"offset": [offset], "key": [b"k"], "value": [b"v"]})
            write_records(root, TopicPartition("t", number), rows)


def _worker(store: Store, root: Path, name: str) -> WorkerConnector:
    def driver(environment: Environment) -> ConnectorDriver:
        record = environment.record
        assert record is not None
        return ConnectorDriver(
            environment,
            source=TopicDirectorySource(root),
            connector=Connector(),
            config=ConnectorConfig.parse(record.config),
            raw=record.config,
            launcher=InProcess(store, Task, name),
        )

    def nothing(_record: ConnectorRecord) -> Any:
        raise AssertionError

    return WorkerConnector(Environment(store), name, driver, Openers(nothing), stays=True)


@contextmanager
def idling(store: Store, root: Path, connectors: int) -> Iterator[None]:
    names = [f"c{number}" for number in range(connectors)]
    for name in names:
        raw = {"name": name, "topics": "t", "connector.class": "tests.runtime.running_sinks:Connector"}
        Herder(store).configure(name, raw)
    worker = ConnectWorker(store, lambda name: _worker(store, root, name))
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        _await(lambda: all(_is_caught_up(store, name) for name in names))
        yield
    finally:
        worker.close()
        thread.join()


def _is_caught_up(store: Store, name: str) -> bool:
    found = connector_info(store, name, time.time())
    return bool(found.partitions) and found.state == "RUNNING" and found.lag == 0


def _await(is_so: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < give_up, "it does not come to rest"
        time.sleep(1.0)


def idle_rows(
    name: str,
    make: Callable[[Path], Store],
    files: int,
    target: float | None = 5.0,
    connectors: int = CONNECTORS,
) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "topics"
        make_topic(root, files)
        store = make(Path(folder))
        with idling(store, root, connectors):
            time.sleep(_SETTLED)
            began, cpu = time.perf_counter(), time.process_time()
            time.sleep(_MEASURED)
            share = 100 * (time.process_time() - cpu) / (time.perf_counter() - began)
        store.close()
        what = f"{name}: {connectors} idle connectors, {PARTITIONS} partitions of {files} files each"
        if target is None:
            yield Row(what, f"{share:.1f} % of a core")
        else:
            yield Row.limit(what, f"{share:.1f} % of a core", is_met=share <= target, target=f"{target:g} %")


def sqlite(folder: Path) -> Store:
    return open_store(f"sqlite:///{folder}/store.db", create=True)


def measure(connectors: int = CONNECTORS) -> list[Row]:
    return [row for files in (3, FILES) for row in idle_rows("SQLite", sqlite, files, connectors=connectors)]


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    show(measure(*map(int, sys.argv[1:])))
