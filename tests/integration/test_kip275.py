from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sinksdk import ClosingReason
from sinksdk.model.status import PartitionStatus
from sinksdk.runtime.driver import ConnectorDriver
from tests.integration.archive_site import Site, site
from tests.integration.driving import Watcher, driver_of
from tests.integration.kip275_connectors import FAST

if TYPE_CHECKING:
    from pyspark import SparkContext

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RECORDS = 100_000
MIDDLE = 10_000  # number of records after which the file of a partition is incomplete
SLOW = [partition for partition in range(4) if partition != FAST]
MODULE = "tests.integration.kip275_connectors"


class RebalanceOnFailure(Watcher):
    def __init__(self, archive: Site) -> None:
        super().__init__()
        self.driver: ConnectorDriver
        self._archive = archive
        self._is_done = False
        self._are_in_mid_file = threading.Event()
        archive.s3.refuses = self._refuses
        self.hold = archive.folder / "hold"
        self.hold.touch()

    def _refuses(self, operation: str, path: str) -> bool:
        # The fast partition waits for those that were started later.
        is_fast = "Upload" in operation and f"partition={FAST}" in path
        return is_fast and self._are_in_mid_file.wait(60)

    def progress(self, partitions: Sequence[PartitionStatus]) -> None:
        if {v.partition.partition for v in partitions if (v.position or 0) >= MIDDLE} >= set(SLOW):
            self._are_in_mid_file.set()
        if not self._is_done and any(view.error for view in partitions):
            self._is_done = True
            self.driver.rebalance()

    def closing(self, generation: int, reason: ClosingReason) -> None:
        super().closing(generation, reason)
        self.hold.unlink(missing_ok=True)

    def ended(self, generation: int, partitions: Sequence[PartitionStatus]) -> None:
        super().ended(generation, partitions)
        self._archive.s3.heal()


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path) as made:
        made.produce(4, RECORDS, size=20)
        yield made


def story(archive: Site, spark: SparkContext, connector: str) -> RebalanceOnFailure:
    watcher = RebalanceOnFailure(archive)
    archive.configure(
        connector_class=f"{MODULE}:{connector}",
        flush_size=RECORDS,
        restart_backoff_ms=10,
        hold_file=str(watcher.hold),
    )
    watcher.driver, _ = driver_of(archive, spark, watcher)
    watcher.driver.run(until_caught_up=True)
    print_table(connector, watcher)
    return watcher


def print_table(connector: str, watcher: Watcher) -> None:
    print(f"\n{connector}: task | delivered before the rebalance | committed by it | read again")
    for view in watcher.ends[0]:
        committed = watcher.next_starts(1)[view.partition.partition]
        delivered = view.position or 0
        print(f"  {view.partition.partition + 1} | {delivered:,} | {committed:,} | {delivered - committed:,}")


def test_tasks_commit_partial_files_when_another_task_fails(archive: Site, spark: SparkContext) -> None:
    # Tasks 1 to 3 commit partial files in the rebalance and continue from there.
    watcher = story(archive, spark, "PacedArchiver")

    first = {view.partition.partition: view for view in watcher.ends[0]}
    assert [str(reason) for reason in watcher.closings] == ["REBALANCE"]
    assert all(MIDDLE <= (first[p].position or 0) < RECORDS for p in SLOW), "the rebalance missed the middle"
    assert watcher.next_starts(1) == {FAST: 0, **{p: first[p].position for p in SLOW}}
    assert archive.committed() == dict.fromkeys(range(4), RECORDS)
    code, output = archive.verify()
    assert code == 0, output


@pytest.mark.nightly
def test_a_sink_that_ignores_is_closing_reads_records_again(archive: Site, spark: SparkContext) -> None:
    watcher = story(archive, spark, "DeafArchiver")

    first = {view.partition.partition: view for view in watcher.ends[0]}
    assert all((first[p].position or 0) >= MIDDLE for p in SLOW)
    assert watcher.next_starts(1) == dict.fromkeys(range(4), 0)
    assert archive.committed() == dict.fromkeys(range(4), RECORDS)
