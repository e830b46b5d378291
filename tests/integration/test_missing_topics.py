from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from sinksdk import ClosingReason, MissingSourceTopicException, TopicPartition
from sinksdk.runtime.connect_worker import ConnectorRunner
from sinksdk.topics import TopicDirectorySource, write_records
from tests.integration.line_site import PATIENCE, LineSite, Watcher, await_so

if TYPE_CHECKING:
    from pyspark import SparkContext

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RECORDS = 400_000  # forty Arrow batches


class Site(LineSite):
    def __init__(self, folder: Path, spark: SparkContext) -> None:
        self.topics = folder / "topics"
        self._aside = folder / "aside"
        super().__init__(
            folder,
            spark,
            lambda: TopicDirectorySource(self.topics),
            {"topics": "orders,ships", "missing.topic.grace.ms": 1_000},
        )

    def produce(self, topic: str, records: int, *, first: int = 0, size: int = 1) -> None:
        rows = {
            "offset": range(first, first + records),
            "key": [b"k"] * records,
            "value": [b"v" * size] * records,
        }
        write_records(self.topics, TopicPartition(topic, 0), pa.table(rows))

    def move_away(self) -> None:
        (self.topics / "topic=ships").rename(self._aside)

    def put_back(self) -> None:
        self._aside.rename(self.topics / "topic=ships")

    def idle(self, **settings: object) -> ConnectorRunner:
        self.produce("orders", 300)
        self.produce("ships", 300)
        runner = self.start(**settings)
        await_so(lambda: self.committed() == {"orders": 300, "ships": 300})
        return runner


@pytest.fixture
def site(tmp_path: Path, spark: SparkContext) -> Site:
    return Site(tmp_path, spark)


def expect_missing(site: Site, runner: ConnectorRunner) -> str:
    with pytest.raises(MissingSourceTopicException) as caught:
        runner.await_termination(PATIENCE)
    assert caught.value.topics == ("ships",)
    status = site.status()
    assert (status.state, status.missing_topics) == ("FAILED", ("ships",))
    return str(caught.value)


def expect_the_rest_from_there(site: Site) -> None:
    before, watcher = site.committed(), Watcher()
    site.put_back()
    assert site.start(watcher, until_caught_up=True).await_termination(PATIENCE)
    began = {r.topic: r.start for task in watcher.plans[0].tasks for r in task.ranges}
    assert began == {topic: before.get(topic, 0) for topic in began}
    assert site.committed()["orders"] == RECORDS
    assert site.written("orders") == list(range(RECORDS))


def test_a_deleted_topic_does_not_prevent_commits_of_the_others(site: Site) -> None:
    site.produce("orders", RECORDS)
    site.produce("ships", RECORDS)
    watcher = Watcher()
    runner = site.start(
        watcher,
        until_caught_up=True,
        pause_seconds=1.0,
        batch_size=1_000_000,
        missing_topic_grace_ms=500,
    )
    await_so(lambda: watcher.is_reading(1, "orders", "ships"))
    site.move_away()  # the task can still read the open file

    message = expect_missing(site, runner)

    assert f"the topic directory {site.topics} has no topic 'ships' (it has: 'orders')" in message
    assert watcher.closings == [ClosingReason.FAILURE]
    assert 0 < site.committed()["orders"] < RECORDS
    assert site.written("orders") == list(range(site.committed()["orders"]))
    expect_the_rest_from_there(site)


@pytest.mark.extended
def test_a_topic_whose_files_vanish_during_a_read_is_named(site: Site) -> None:
    # Regression: Spark's job failed with the task, and the connector with Spark's error.
    site.produce("orders", RECORDS)
    site.produce("ships", RECORDS)
    site.launched = lambda plan: site.move_away() if plan.generation == 1 else None
    watcher = Watcher()
    runner = site.start(
        watcher,
        until_caught_up=True,
        pause_seconds=1.0,
        batch_size=1_000_000,
        restart_max_attempts=0,
        missing_topic_grace_ms=600_000,
    )
    await_so(lambda: watcher.is_reading(2, "orders"))  # the driver reads the other topics again at once
    site.lose_patience()

    expect_missing(site, runner)

    assert watcher.closings[-1] is ClosingReason.FAILURE
    assert 0 < site.committed()["orders"] < RECORDS
    expect_the_rest_from_there(site)


@pytest.mark.extended
def test_a_topic_deleted_while_the_driver_is_idle_is_reported(site: Site) -> None:
    runner = site.idle()
    site.move_away()

    expect_missing(site, runner)

    assert site.committed() == {"orders": 300, "ships": 300}


@pytest.mark.extended
def test_a_rewritten_topic_with_fewer_records_is_not_read_from_its_start(site: Site) -> None:
    # The error must name another topic, not an offset out of range.
    runner = site.idle()
    shutil.rmtree(site.topics / "topic=ships")
    site.produce("ships", 200)

    message = expect_missing(site, runner)

    assert (
        "ships-0 is committed up to offset 300, but the end offset of the source is 200: the topic was deleted"
        in message
    )
    assert site.written("ships") == list(range(300))


@pytest.mark.extended
def test_policy_wait_reads_other_topics_and_resumes_the_missing_one(site: Site) -> None:
    runner = site.idle(missing_topic_policy="wait")
    site.move_away()
    await_so(lambda: site.status().missing_topics == ("ships",))
    site.produce("orders", 100, first=300)
    await_so(lambda: site.committed() == {"orders": 400, "ships": 300})
    site.put_back()
    site.produce("ships", 100, first=300)
    await_so(lambda: site.committed() == {"orders": 400, "ships": 400})
    runner.close()

    assert runner.await_termination(PATIENCE)
    assert site.written("ships") == list(range(400))


# -- the command line ------------------------------------------------------------------------------------


@contextmanager
def command_line(
    site: Site, folder: Path, *options: str, **settings: object
) -> Iterator[subprocess.Popen[str]]:
    shutil.copy(Path(__file__).with_name("line_sink.py"), folder)
    raw = {**site._raw, "connector.class": "line_sink:LineSink"}
    raw |= {key.replace("_", "."): value for key, value in settings.items()}
    (folder / "lines.json").write_text(json.dumps(raw))
    command = [sys.executable, "-m", "sinksdk", "run", "lines.json", "--store", site._store]
    process = subprocess.Popen(
        [*command, "--topic-directory", str(site.topics), "--master", "local[2]", *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.mark.extended
def test_the_command_line_exits_4_with_a_remedy(site: Site, tmp_path: Path) -> None:
    site.produce("orders", 300)
    site.produce("ships", 300)
    with command_line(site, tmp_path) as process:
        await_so(lambda: site.committed_by_now() == {"orders": 300, "ships": 300})
        time.sleep(1)
        site.move_away()
        out, err = process.communicate(timeout=PATIENCE)

    assert process.returncode == 4, out + err
    warning, error = err.splitlines()
    assert warning.endswith("topic 'ships' is missing; retrying for 1 s (missing.topic.grace.ms)")
    assert error == (
        f"error: connector lines: the topic directory {site.topics} has no topic 'ships' (it has: "
        f"'orders'): create the folder topic=<topic>, or remove it from the connector's 'topics'"
    )
    assert out.splitlines()[-1].startswith("failed: 600 records committed")


@pytest.mark.extended
def test_the_command_line_waits_for_a_topic_being_created(site: Site, tmp_path: Path) -> None:
    site.produce("orders", 300)
    with command_line(site, tmp_path, "--until-caught-up", missing_topic_grace_ms=60_000) as process:
        assert process.stderr is not None
        first = process.stderr.readline().strip()
        site.produce("ships", 300)
        out, err = process.communicate(timeout=PATIENCE)

    assert process.returncode == 0, first + out + err
    assert first.startswith("warning: the topic directory")
    assert first.endswith("(retrying for 60 s, see missing.topic.grace.ms)")
    # By chance, the driver may query the topics before or after 'ships' is created.
    assert [line.partition(" topic ")[2] for line in err.splitlines()] in (
        [],
        ["'ships' is missing; retrying for 60 s (missing.topic.grace.ms)", "'ships' exists again"],
    )
    assert site.committed() == {"orders": 300, "ships": 300}
