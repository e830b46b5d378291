"""Zombies on a real broker: open transactions of frozen tasks stay invisible once their successors run.

First with threads, then with processes on Spark that are frozen by SIGSTOP and woken.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from sinksdk.source import SourceConnectorConfig
from sinksdk.topics.kafka import KafkaClient, KafkaTarget, ensure_offsets_topic
from tests.helpers.memory_store import MemoryStore
from tests.helpers.tiers import extended_after
from tests.integration.freezing import everything_of, executor_of, wake
from tests.integration.held_site import (
    HeldSite,
    Transaction,
    all_of,
    expect_each_once,
    held_site,
    output_of,
    says_fenced,
)
from tests.integration.held_source import SHARES
from tests.kafka.topics import consume, consume_decided, create_topic, unused_name
from tests.runtime.running_sources import Running, eventually
from tests.runtime.zombies import Zombies, committed

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("before", "after"), extended_after(1, [(3, 2), (1, 1)]))
def test_fencing_hides_the_open_transaction_of_a_frozen_task(bootstrap: str, before: int, after: int) -> None:
    # See KIP-618.
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
    values = [record.value or b"" for record in consume_decided(bootstrap, topic)]
    assert sorted(value for value in values if value.startswith(b"old")) == sorted(
        b"old-%d %d" % (task, number) for task in range(before) for number in range(2)
    )
    for task in range(after):
        mine = [int(value.split()[1]) for value in values if value.startswith(b"new-%d " % task)]
        assert mine == list(range(len(mine)))


class KafkaZombies:
    """A topic filled by tasks that are frozen during a transaction.

    Args:
        site: with their drivers.
        bootstrap: of the broker.
        topic: receives numbers.
    """

    def __init__(self, site: HeldSite, bootstrap: str, topic: str) -> None:
        self.site = site
        self._bootstrap = bootstrap
        self._topic = topic

    def values(self, isolation: str = "read_committed") -> list[bytes]:
        return [record.value or b"" for record in consume(self._bootstrap, self._topic, isolation=isolation)]

    def run_until_open(self, driver: subprocess.Popen[str]) -> Mapping[int, Transaction]:
        held = self.site.run_until_held(driver)
        sent = frozenset[bytes]().union(*(transaction.values for transaction in held.values()))
        self.site.wait(lambda: sent <= set(self.values("read_uncommitted")), driver, "records are in the log")
        self.expect_unseen(held)
        return held

    def expect_unseen(self, held: Mapping[int, Transaction]) -> None:
        seen = set(self.values())
        for transaction in held.values():
            assert not transaction.values & seen


@pytest.fixture
def zombies(bootstrap: str, tmp_path: Path) -> Iterator[KafkaZombies]:
    # The broker would time out their transactions only after ten minutes.
    topic = create_topic(bootstrap, unused_name("frozen"), SHARES)
    settings = {
        "group.id": topic,
        "offsets.storage.topic": f"{topic}-offsets",
        "offset.storage.partitions": 2,
        "producer.override.transaction.timeout.ms": 600_000,
    }
    with held_site(tmp_path, ["--bootstrap-servers", bootstrap], topic, **settings) as site:
        yield KafkaZombies(site, bootstrap, topic)


@pytest.mark.nightly
@pytest.mark.spark
def test_fencing_of_executors_frozen_with_open_transactions(zombies: KafkaZombies) -> None:
    site = zombies.site
    driver = site.start("local-cluster[4,1,1024]")
    held = zombies.run_until_open(driver)
    logs = [output_of(transaction.worker) for transaction in held.values()]
    frozen = site.freeze(all_of([executor_of(driver, transaction.worker) for transaction in held.values()]))
    site.release()

    site.reconfigure(tasks=2)
    site.await_successors(driver, held, frozen)
    zombies.expect_unseen(held)
    wake([transaction.worker for transaction in held.values()])
    site.await_ends(driver, held)
    wake(frozen)  # Spark may now kill the tasks, which it has tried to do since their job was cancelled

    for task, log in zip(held, logs, strict=True):
        site.wait(lambda: says_fenced(task, log.read_text()), driver, f"task {task} was refused")  # noqa: B023 - called before the next round
    zombies.expect_unseen(held)
    site.finish(driver)
    expect_each_once(zombies.values())


@pytest.mark.nightly
@pytest.mark.spark
def test_fencing_of_a_driver_frozen_with_its_tasks(zombies: KafkaZombies) -> None:
    site = zombies.site
    first = site.start("local[3]")
    held = zombies.run_until_open(first)
    frozen = site.freeze(everything_of(first))
    site.release()

    site.configure(tasks=2)
    second = site.start("local[2]")
    site.await_successors(second, held, frozen)
    zombies.expect_unseen(held)
    wake([transaction.worker for transaction in held.values()])
    site.await_ends(second, held)
    wake(frozen)

    site.expect_replaced(first)
    for task in held:
        assert says_fenced(task, site.printed(first)), site.printed(first)
    site.finish(second)
    zombies.expect_unseen(held)
    expect_each_once(zombies.values())
