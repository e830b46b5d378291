"""Zombies on a real broker: what a frozen task had open is never seen once its successors run; no Spark."""

from __future__ import annotations

import pytest

from sinksdk.source import SourceConnectorConfig
from sinksdk.sources.kafka import KafkaClient
from sinksdk.store import MemoryStore
from sinksdk.writers.kafka import KafkaTarget, ensure_offsets_topic
from tests.kafka.topics import consume, create_topic, unused_name
from tests.runtime.running_sources import Running, eventually
from tests.runtime.zombies import Zombies, committed

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("before", "after"), [(3, 2), (1, 1)])
def test_a_frozen_transaction_is_never_visible(bootstrap: str, before: int, after: int) -> None:
    """KIP-618: fenced by the round, or by its only successor; a read_committed reader sees none of it."""
    topic = unused_name("zombies")
    create_topic(bootstrap, topic)
    settings = {
        "topic": topic,
        "group.id": topic,
        "offsets.storage.topic": f"{topic}-offsets",
        "offset.storage.partitions": "2",
    }
    client = KafkaClient(bootstrap)
    ensure_offsets_topic(SourceConnectorConfig.parse({"name": "c", **settings}), client)
    store, target = MemoryStore(), KafkaTarget(client)
    running = Running(store, target, **settings)
    running.connector.shares = [{"share": f"new-{task}"} for task in range(after)]
    with Zombies(store, target, before, settings) as zombies, running:
        eventually(
            lambda: all(committed(target, f"new-{task}", settings) for task in range(after)), seconds=60
        )
        assert running.target.fenced == list(range(before if before > 1 else 0))
        zombies.thaw()

    assert running.error is None
    assert [type(end).__name__ for end in zombies.ended] == ["FencedException"] * before
    assert [committed(target, f"old-{task}", settings) for task in range(before)] == [2] * before
    values = [record.value or b"" for record in consume(bootstrap, topic)]
    assert sorted(value for value in values if value.startswith(b"old")) == sorted(
        b"old-%d %d" % (task, number) for task in range(before) for number in range(2)
    )
    for task in range(after):
        mine = [int(value.split()[1]) for value in values if value.startswith(b"new-%d " % task)]
        assert mine == list(range(len(mine)))
