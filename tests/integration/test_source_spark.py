from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sinksdk import ClosingReason, OffsetRange, TopicPartition
from sinksdk.control.herder import Herder
from sinksdk.model.outcome import End
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.source_driver import SourceDriver
from sinksdk.source import SourceConnector
from sinksdk.spark.generation_job import SparkSourceLauncher
from sinksdk.store import identify, open_store
from sinksdk.store.ledger import current_plan
from sinksdk.topics import Subscription, TopicDirectorySource
from sinksdk.topics.directory.writer import TopicDirectoryTarget
from sinksdk.worker.generation_spec import GenerationSpec
from tests.integration.counting_source import CountingConfig, CountingSource, WatchingSource
from tests.runtime.running_sources import Watching

if TYPE_CHECKING:
    from pyspark import SparkContext


class Site:
    def __init__(
        self,
        folder: Path,
        spark: SparkContext,
        *,
        connector: SourceConnector | None = None,
        **settings: object,
    ) -> None:
        self.folder, self.spark = folder, spark
        self.url = f"sqlite:///{folder / 'store.db'}"
        self.store = open_store(self.url, create=True)
        self.topics = folder / "topics"
        self.listener = Watching()
        self.error: BaseException | None = None
        raw = {
            "name": "numbers",
            "connector.class": "tests.integration.counting_source:CountingSource",
            "tasks.max": 2,
            "folder": str(folder),
            "closing.poll.ms": 100,
            "restart.backoff.ms": 100,
            **settings,
        }
        target = TopicDirectoryTarget(str(self.topics))
        spec = GenerationSpec(self.url, identify(self.store), "numbers", 0, (str(Path.cwd()),), target=target)
        self.driver = SourceDriver(
            Environment(self.store),
            connector=connector or CountingSource(),
            config=CountingConfig.parse(raw),
            raw=raw,
            target=target,
            launcher=SparkSourceLauncher(spark, spec),
            listener=self.listener,
        )
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.driver.run()
        except BaseException as error:  # noqa: BLE001 - it is looked at
            self.error = error

    def close(self) -> None:
        self.driver.close()
        self.thread.join(60)
        assert not self.thread.is_alive()
        assert self.error is None
        self.store.close()

    def is_requested_to_close(self) -> bool:
        plan = current_plan(self.store, "numbers", 1)
        return plan is not None and plan.closing is not None

    def available(self) -> dict[TopicPartition, OffsetRange]:
        if not (self.topics / "topic=numbers").is_dir():
            return {}
        return dict(TopicDirectorySource(str(self.topics)).partitions(Subscription(["numbers"])))

    def counts(self) -> list[int]:
        return [extent.end for extent in self.available().values()]

    def numbers(self, share: int) -> list[int]:
        at = TopicPartition("numbers", share)
        ranges = {at: self.available()[at]}
        found = TopicDirectorySource(str(self.topics)).reader(ranges).read(ranges, ["value"], {})
        batches = [records.arrow for records in found if records is not None]
        return [int(value) for batch in batches for value in batch.column("value").to_pylist()]

    def expect_each_once(self) -> None:
        for share in range(2):
            found = self.numbers(share)
            assert found == list(range(len(found)))
            assert (self.folder / f"{share}.stopped").exists()


def eventually(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "it never came to hold"
        time.sleep(0.1)


def test_a_source_task_resumes_after_its_process_is_killed(tmp_path: Path, spark: SparkContext) -> None:
    site = Site(tmp_path, spark)
    eventually(lambda: len(counts := site.counts()) == 2 and min(counts) > 20)
    (tmp_path / "0.pid").rename(tmp_path / "killed")
    os.kill(int((tmp_path / "killed").read_text()), signal.SIGKILL)
    eventually((tmp_path / "0.pid").exists)
    before = site.counts()[0]
    eventually(lambda: site.counts()[0] > before + 20)
    site.close()

    assert site.listener.ends == [[(0, End.STOPPED), (1, End.STOPPED)]]
    site.expect_each_once()


@pytest.mark.extended
def test_a_task_killed_while_closing_does_not_block_the_others(tmp_path: Path, spark: SparkContext) -> None:
    # Regression: Spark's next attempt waited for the dead one to close, for the whole graceful timeout.
    site = Site(tmp_path, spark, **{"closing.poll.ms": 10_000, "task.shutdown.graceful.timeout.ms": 120_000})
    eventually(lambda: len(counts := site.counts()) == 2 and min(counts) > 20)
    site.driver.rebalance()
    eventually(site.is_requested_to_close)
    asked = time.monotonic()
    os.kill(int((tmp_path / "0.pid").read_text()), signal.SIGKILL)
    eventually(lambda: len(site.listener.ends) == 1)
    took = time.monotonic() - asked
    before = max(site.counts())
    eventually(lambda: min(site.counts()) > before)
    site.close()

    assert took < 60
    assert site.listener.ends == [
        [(0, End.ABANDONED), (1, End.STOPPED)],
        [(0, End.STOPPED), (1, End.STOPPED)],
    ]
    site.expect_each_once()


def test_a_failed_task_and_a_rebalance_lose_no_record(tmp_path: Path, spark: SparkContext) -> None:
    site = Site(tmp_path, spark, **{"fail.at": 55})
    eventually(lambda: len(site.listener.ends) == 1)
    eventually(lambda: len(counts := site.counts()) == 2 and min(counts) > 100)
    Herder(site.store).rebalance("numbers")
    eventually(lambda: len(site.listener.ends) == 2)
    before = max(site.counts())
    eventually(lambda: min(site.counts()) > before)
    site.close()

    assert site.listener.reasons[0] is ClosingReason.FAILURE
    assert End.FAILED in {end for _, end in site.listener.ends[0]}
    assert site.listener.ends[1:] == [[(0, End.STOPPED), (1, End.STOPPED)]] * 2
    site.expect_each_once()


@pytest.mark.extended
def test_new_tables_are_read(tmp_path: Path, spark: SparkContext) -> None:
    site = Site(tmp_path, spark, connector=WatchingSource())
    eventually(lambda: current_plan(site.store, "numbers", 1) is not None)
    assert site.counts() == []
    (tmp_path / "0.table").touch()
    eventually(lambda: len(counts := site.counts()) == 1 and counts[0] > 20)
    (tmp_path / "1.table").touch()
    eventually(lambda: len(counts := site.counts()) == 2 and min(counts) > 20)
    site.close()

    assert site.listener.ends == [[], [(0, End.STOPPED)], [(0, End.STOPPED), (1, End.STOPPED)]]
    assert site.listener.reasons == [ClosingReason.REBALANCE, ClosingReason.REBALANCE, ClosingReason.SHUTDOWN]
    site.expect_each_once()


@pytest.mark.extended
@pytest.mark.parametrize("method", ["start", "poll"])
def test_a_task_that_does_not_stop_is_cancelled(
    tmp_path: Path, spark: SparkContext, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    # A start that hangs counts as failed; a poll may wait until the task must stop.
    settings = {
        "hangs.in": method,
        "task.hang.timeout.ms": 5_000,
        "task.shutdown.graceful.timeout.ms": 15_000,
    }
    site = Site(tmp_path, spark, **settings)
    eventually((tmp_path / "hung").exists)
    if method == "poll":
        eventually(lambda: site.counts() and max(site.counts()) > 50)
        assert site.listener.ends == []
        Herder(site.store).rebalance("numbers")
    eventually(lambda: len(site.listener.ends) == 1)
    before = max(site.counts())
    eventually(lambda: min(site.counts()) > before)  # both tasks of the next generation have read numbers
    site.close()

    ended = End.FAILED if method == "start" else End.CANCELLED
    assert site.listener.ends == [
        [(0, ended), (1, End.STOPPED)],
        [(0, End.STOPPED), (1, End.STOPPED)],
    ]
    assert "threading.Event().wait()" in caplog.text
    worker = int((tmp_path / "hung").read_text())
    eventually(lambda: not Path(f"/proc/{worker}").exists())
    site.expect_each_once()
