"""Run Kafka Connect's side: one worker with one of the two sinks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.kafka_connect.side import Run
from benchmarks.kafka_connect.topics import Cluster, Topic, committed
from benchmarks.kafka_connect.worker import Worker

_PATIENCE = 180.0  # seconds for one topic


@dataclass(frozen=True)
class Peer:
    """A sink that is alone in its worker."""

    name: str
    worker: Worker
    cluster: Cluster
    config: Callable[[str, str, str], Mapping[str, str]]

    @property
    def pid(self) -> int:
        return self.worker.pid

    def archive(self, topic: Topic, codec: str, *, rebalance_at: int | None = None) -> Run:
        # A rebalance is the restart of one task.
        connector = f"peer-{time.time_ns()}"
        self.worker.forget()
        self.worker.start(connector, self.config(connector, topic.name, codec))
        if rebalance_at is not None:
            self._await(connector, lambda: self._read() >= rebalance_at, pause=0.02)
            self.worker.restart_task(connector, 0)
        group = self.cluster.group(f"connect-{connector}")
        self._await(connector, lambda: committed(group, topic) >= topic.records, pause=0.5)
        active = [consumed for consumed in self.worker.consumed() if consumed.records]
        self.worker.delete(connector)
        return Run(max(c.last for c in active) - min(c.first for c in active), sum(c.records for c in active))

    def _read(self) -> int:
        return sum(consumed.records for consumed in self.worker.consumed())

    def _await(self, connector: str, is_done: Callable[[], bool], *, pause: float) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not is_done():
            self.worker.check(connector)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{connector}: {self.worker.log.read_text()[-3000:]}")
            time.sleep(pause)
