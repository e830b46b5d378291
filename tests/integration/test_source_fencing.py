"""Tasks frozen by SIGSTOP in the middle of a commit, replaced, and continued: nothing of it becomes visible.

The target is a topic directory; ``tests/kafka/test_source_fencing.py`` does the same on Kafka.
"""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

from sinksdk import OffsetRange, TopicPartition
from sinksdk.topics import Subscription, TopicDirectorySource
from tests.integration.freezing import Pids, everything_of, executor_of, python_workers_of, wake
from tests.integration.held_site import (
    FROZEN,
    HeldSite,
    Transaction,
    all_of,
    expect_each_once,
    held_site,
    output_of,
    says_fenced,
)
from tests.integration.held_source import SHARES

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.slow]

TOPIC = "numbers"
SPREAD = 400  # files of a held transaction: writing so many takes long enough to freeze the task in between


@pytest.fixture
def site(tmp_path: Path) -> Iterator[HeldSite]:
    with held_site(tmp_path, ["--topic-directory", str(tmp_path / "topics")], TOPIC, spread=SPREAD) as made:
        yield made


def files_of(site: HeldSite, share: int) -> Collection[Path]:
    first = SHARES + share * SPREAD
    folders = (site.folder / f"topics/topic={TOPIC}/partition={first + at}" for at in range(SPREAD))
    return [path for folder in folders for path in folder.glob("*.parquet")]


def freeze_in_commit(
    site: HeldSite, driver: subprocess.Popen[str], held: Mapping[int, Transaction], pids: Pids
) -> list[int]:
    # Each worker is frozen at its own first file, because one might write all files before another begins.
    waiting = set(FROZEN)

    def are_all_in_mid_commit() -> bool:
        for share in [share for share in waiting if files_of(site, share)]:
            site.freeze(lambda: [held[share].worker])  # noqa: B023 - called before the next round
            waiting.remove(share)
        return not waiting

    site.release()
    site.wait(are_all_in_mid_commit, driver, "files were on disk")
    frozen = site.freeze(pids)
    for share in FROZEN:
        assert 0 < len(files_of(site, share)) < SPREAD
    return frozen


def available(site: HeldSite) -> dict[TopicPartition, OffsetRange]:
    there = TopicDirectorySource(str(site.folder / "topics")).partitions(Subscription([TOPIC]))
    return {partition: offsets for partition, offsets in there.items() if offsets.end}


def expect_nothing_seen(site: HeldSite) -> None:
    assert {partition.partition for partition in available(site)} == set(range(SHARES))


def expect_all_in_the_topic(site: HeldSite) -> None:
    expect_nothing_seen(site)
    ranges = available(site)
    found = TopicDirectorySource(str(site.folder / "topics")).reader(ranges).read(ranges, ["value"], {})
    batches = [records.arrow for records in found if records is not None]
    expect_each_once([value for batch in batches for value in batch.column("value").to_pylist()])


@pytest.mark.nightly
def test_executors_frozen_in_a_commit_are_fenced(site: HeldSite) -> None:
    # Three tasks become two: the driver fences the task numbers that stay and the one that does not.
    driver = site.start("local-cluster[4,1,1024]")
    held = site.run_until_held(driver)
    executors = [executor_of(driver, transaction.worker) for transaction in held.values()]
    logs = [output_of(transaction.worker) for transaction in held.values()]
    frozen = freeze_in_commit(site, driver, held, all_of(executors))
    expect_nothing_seen(site)

    site.reconfigure(tasks=2)
    site.await_successors(driver, held, frozen)
    expect_nothing_seen(site)
    wake([transaction.worker for transaction in held.values()])
    site.await_ends(driver, held)
    wake(frozen)  # Spark may now kill the tasks, which it has tried to do since their job was cancelled

    for task, log in zip(held, logs, strict=True):
        site.wait(lambda: says_fenced(task, log.read_text()), driver, f"task {task} was refused")  # noqa: B023 - called before the next round
    site.finish(driver)
    expect_all_in_the_topic(site)


def test_python_workers_frozen_in_a_commit_are_fenced(site: HeldSite) -> None:
    # Spark kills the frozen tasks when their job is cancelled after the graceful timeout.
    driver = site.start("local[3]")
    held = site.run_until_held(driver)
    workers = {transaction.worker for transaction in held.values()}
    everyone = python_workers_of(driver)
    frozen = freeze_in_commit(site, driver, held, lambda: workers & set(everyone()))

    site.reconfigure(tasks=2)
    site.await_successors(driver, held, frozen)
    wake(frozen)

    site.wait(lambda: not workers & set(everyone()), driver, "the frozen workers are gone")
    site.finish(driver)
    expect_all_in_the_topic(site)


def test_a_driver_frozen_with_its_tasks_is_fenced(site: HeldSite) -> None:
    first = site.start("local[3]")
    held = site.run_until_held(first)
    frozen = freeze_in_commit(site, first, held, everything_of(first))

    site.configure(tasks=2)
    second = site.start("local[2]")
    site.await_successors(second, held, frozen)
    expect_nothing_seen(site)
    wake([transaction.worker for transaction in held.values()])
    site.await_ends(second, held)
    wake(frozen)

    site.expect_replaced(first)
    for task in held:
        assert says_fenced(task, site.printed(first)), site.printed(first)
    site.finish(second)
    expect_all_in_the_topic(site)
