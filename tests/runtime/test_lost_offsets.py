from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sinksdk import OffsetAndMetadata, OffsetRange, TopicPartition, UnpublishableException
from sinksdk.control.herder import Herder
from sinksdk.metrics.prometheus import exposition
from sinksdk.store import Store
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sinks import P0, Source, Task, driver


class Retention(Source):
    begin = 0

    def partitions(self, subscription: Any) -> dict[TopicPartition, OffsetRange]:
        return {
            p: OffsetRange(self.begin, found.end) for p, found in super().partitions(subscription).items()
        }


class Vanishing(Task):
    has_vanished = False

    def open(self, partitions: Any) -> None:
        self.context.prepared({partition: [self.token()] for partition in partitions})

    def token(self) -> str:
        return f"upload-{self.context.generation()}"

    def pre_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Any:
        return {p: OffsetAndMetadata(at.offset, publish=[self.token()]) for p, at in offsets.items()}

    def publish(self, partition: TopicPartition, tokens: Any) -> None:
        if not type(self).has_vanished:
            type(self).has_vanished = True
            message = "the upload is gone"
            raise UnpublishableException(message, offset=0, discard=tokens)

    def discard(self, partition: TopicPartition, tokens: Any) -> None: ...


def value(store: Store, name: str) -> float:
    lines = exposition(Herder(store), "")[0].decode().splitlines()
    (found,) = [line for line in lines if line.startswith(f"sinksdk_partition_{name}{{")]
    return float(found.split()[-1])


def test_lost_and_skipped_offsets_are_counted_once() -> None:
    store, source = MemoryStore(), Retention({P0: 10})

    def run(begin: int, end: int) -> None:
        source.begin, source.ends[P0] = begin, end
        made, _, _ = driver(source, store=store, **{"on.data.loss": "skip"})
        made.run(until_caught_up=True)

    run(0, 10)
    assert value(store, "lost_offsets_total") == 0
    run(25, 40)
    assert value(store, "lost_offsets_total") == 15
    run(30, 50)
    run(60, 70)

    assert value(store, "lost_offsets_total") == 25
    (info,) = Herder(store).info("c").partitions
    assert info.lost_offsets == 25
    assert 'name="sinksdk.lost_offsets"' not in exposition(Herder(store), "")[0].decode()


def test_a_withdrawn_commit_is_counted() -> None:
    # The records are read again, and only this metric shows that.
    Vanishing.has_vanished = False
    made, running, _ = driver(Source({P0: 10}), Vanishing)
    made.run(until_caught_up=True)

    assert value(running.store, "withdrawn_commits_total") == 1
    assert value(running.store, "lost_offsets_total") == 0
    (info,) = Herder(running.store).info("c").partitions
    assert (info.committed, info.withdrawn_commits) == (10, 1)
