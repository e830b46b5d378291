from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sinksdk import (
    BatchPolicy,
    OffsetAndMetadata,
    OffsetRange,
    SinkRecords,
    SinkTask,
    TopicPartition,
)
from sinksdk.model.plan import RangePlan
from sinksdk.store import committed_offsets
from sinksdk.store.records import GenerationPlan
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sinks import P0, Connector, Finished, InProcess, Source, driver

SIZE = 500  # records per file


class Files(SinkTask):
    size = SIZE
    read = 0
    written: list[int]
    partition = P0

    def open(self, partitions: Any) -> None:
        self._offsets: list[int] = []
        self._committed = 0

    def put(self, records: SinkRecords) -> None:
        type(self).read += len(records)
        self._offsets += [record.offset for record in records]
        while len(self._offsets) >= self.size:
            self.written.append(self.size)
            self._committed = self._offsets[self.size - 1] + 1
            del self._offsets[: self.size]

    def pre_commit(self, offsets: Any) -> dict[TopicPartition, OffsetAndMetadata]:
        committed, self._committed = self._committed, 0
        if not self._offsets:
            return dict(offsets)
        return {self.partition: OffsetAndMetadata(committed)} if committed else {}


class Whole(Connector):
    def batch_policy(self, config: Any) -> BatchPolicy:
        return BatchPolicy(max_records=SIZE, max_wait=None)


class Growing(Source):
    def partitions(self, subscription: Any) -> dict[TopicPartition, OffsetRange]:
        self.ends[P0] += 170
        return super().partitions(subscription)


class Gapped(InProcess):
    every = 2
    close: Any = None

    def batches(self, planned: RangePlan) -> list[Sequence[int]]:
        return [[offset for offset in range(planned.start, planned.end) if offset % self.every == 0]]

    def launch(self, plan: GenerationPlan) -> Finished:
        finished = super().launch(plan)
        if len(Files.written) >= 5:
            self.close()
        return finished


@pytest.mark.parametrize("every", [1, 2, 10])
def test_a_file_takes_few_jobs_and_few_records_are_read_twice(every: int) -> None:
    # A partition is read only when it has a file.
    Files.read, Files.written, Files.partition = 0, [], P0
    store = MemoryStore()
    settings = {"generation.max.records": 1_000_000}
    made, _, _ = driver(Growing({P0: 0}), Files, connector=Whole(), store=store, **settings)
    launcher = Gapped(store, Files)
    launcher.every, launcher.close = every, made.close
    made.launcher = launcher
    made.run()

    files = len(Files.written)
    assert len(launcher.plans) <= files + 2
    assert Files.read <= 1.5 * files * SIZE
    assert committed_offsets(store, "c")[P0].offset >= (files * SIZE - 1) * every + 1
