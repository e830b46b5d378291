"""KIP-662 on Spark with a topic directory: a topic's folder is moved away, and what that does to the others."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sinksdk import ClosingReason, MissingSourceTopicException, committed_offsets
from sinksdk.runtime.runner import ConnectorRunner
from sinksdk.store import open_store, table
from sinksdk.store.records import ConnectorStatus, status_key
from tests.integration.archive_site import PATIENCE, Site, ended, site, wait_until
from tests.integration.driving import Watcher, driver_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RECORDS = 150_000  # of 200 bytes: six parts of an upload


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path) as made:
        yield made


def configure(archive: Site, **settings: object) -> None:
    archive.configure(**{"topics": "orders,ships", "missing_topic_grace_ms": 1_000, **settings})


def produce(archive: Site, topic: str, records: int, *, first: int = 0) -> None:
    archive.topic = topic
    archive.produce(1, records, first=first)


def move_away(archive: Site, topic: str = "ships") -> None:
    (archive.topics / f"topic={topic}").rename(archive.folder / topic)


def put_back(archive: Site, topic: str = "ships") -> None:
    (archive.folder / topic).rename(archive.topics / f"topic={topic}")


def committed(archive: Site) -> dict[str, int]:
    return {p.topic: offset.offset for p, offset in committed_offsets(archive.store, "archive").items()}


def start(
    archive: Site, spark: SparkSession, watcher: Watcher | None = None, *, until_caught_up: bool = False
) -> ConnectorRunner:
    driver, _ = driver_of(archive, spark, watcher)
    runner = ConnectorRunner(driver, until_caught_up=until_caught_up)
    runner.start()
    return runner


def await_so(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def expect_missing(archive: Site, runner: ConnectorRunner) -> str:
    """It ends by name, for who waits and in the store."""
    with pytest.raises(MissingSourceTopicException) as caught:
        runner.await_termination(PATIENCE)
    assert caught.value.topics == ("ships",)
    store = open_store(archive.store)
    row = table.read(store, status_key("archive"), ConnectorStatus)
    store.close()
    assert row is not None
    assert (row.value.state, row.value.missing_topics) == ("FAILED", ("ships",))
    return str(caught.value)


def expect_the_rest_from_there(archive: Site, spark: SparkSession) -> None:
    """With the topic back, the next run goes on exactly where the last one has committed."""
    put_back(archive)
    archive.s3.heal()
    before, watcher = committed(archive), Watcher()
    assert start(archive, spark, watcher, until_caught_up=True).await_termination(PATIENCE)
    began = {r.topic: r.start for task in watcher.plans[0].tasks for r in task.ranges}
    assert began == {topic: before.get(topic, 0) for topic in ("orders", "ships")}
    assert committed(archive) == {"orders": RECORDS, "ships": RECORDS}
    code, output = archive.verify()
    assert code == 0, output


def test_a_topic_that_vanishes_in_mid_file_has_the_others_partial_file_committed(
    archive: Site, spark: SparkSession
) -> None:
    """The running tasks are asked to close with FAILURE; the next run begins behind the partial files."""
    produce(archive, "orders", RECORDS)
    produce(archive, "ships", RECORDS)
    configure(archive, flush_size=1_000_000)
    archive.s3.delays["UploadPart"] = 1.5
    watcher = Watcher()
    runner = start(archive, spark, watcher, until_caught_up=True)
    await_so(lambda: "UploadPart" in archive.s3.operations)
    move_away(archive)  # what is open stays readable

    message = expect_missing(archive, runner)

    assert f"the topic directory {archive.topics} has no topic 'ships' (topics there: 'orders')" in message
    assert watcher.closings == [ClosingReason.FAILURE]
    assert 0 < committed(archive)["orders"] < RECORDS
    assert archive.uploads_with_data() == []
    expect_the_rest_from_there(archive, spark)


def test_a_topic_whose_files_vanish_while_they_are_read_is_told_by_name(
    archive: Site, spark: SparkSession
) -> None:
    """Regression: its task failed, and Spark's whole job with it; the connector ended with Spark's error."""
    produce(archive, "orders", RECORDS)
    for part in range(6):
        produce(archive, "ships", RECORDS // 6, first=part * (RECORDS // 6))
    configure(archive, flush_size=1_000_000, missing_topic_grace_ms=6_000, restart_max_attempts=0)
    archive.s3.delays["UploadPart"] = 2.0
    watcher = Watcher()
    runner = start(archive, spark, watcher, until_caught_up=True)
    await_so(lambda: "UploadPart" in archive.s3.operations)
    move_away(archive)  # files that are not open yet are not found any more

    expect_missing(archive, runner)

    assert len(watcher.plans) > 1, "the others were read again"
    assert watcher.closings[-1] is ClosingReason.FAILURE
    assert 0 < committed(archive)["orders"] < RECORDS
    expect_the_rest_from_there(archive, spark)


def idle(archive: Site, spark: SparkSession, **settings: object) -> ConnectorRunner:
    """A connector that has committed all there is, and waits for more."""
    produce(archive, "orders", 300)
    produce(archive, "ships", 300)
    configure(archive, flush_size=100, **settings)
    runner = start(archive, spark)
    await_so(lambda: committed(archive) == {"orders": 300, "ships": 300})
    return runner


def test_a_topic_that_vanishes_while_nothing_is_to_do(archive: Site, spark: SparkSession) -> None:
    """What was read of all topics is committed already."""
    runner = idle(archive, spark)
    move_away(archive)

    expect_missing(archive, runner)

    assert committed(archive) == {"orders": 300, "ships": 300}


def test_a_topic_written_anew_with_fewer_records_is_not_read_from_its_start(
    archive: Site, spark: SparkSession
) -> None:
    """Nor is it an offset out of range: it is another topic."""
    runner = idle(archive, spark)
    shutil.rmtree(archive.topics / "topic=ships")
    produce(archive, "ships", 200)

    message = expect_missing(archive, runner)

    assert (
        "ships-0 is committed up to offset 300, but the source ends at 200: the topic was deleted" in message
    )
    assert committed(archive) == {"orders": 300, "ships": 300}


def test_waiting_goes_on_with_the_others_and_takes_the_topic_up_again(
    archive: Site, spark: SparkSession
) -> None:
    """missing.topic.policy=wait: moved away and put back, it goes on where it was."""
    runner = idle(archive, spark, missing_topic_policy="wait")
    move_away(archive)
    time.sleep(2)
    produce(archive, "orders", 100, first=300)
    await_so(lambda: committed(archive) == {"orders": 400, "ships": 300})
    put_back(archive)
    produce(archive, "ships", 100, first=300)
    await_so(lambda: committed(archive) == {"orders": 400, "ships": 400})
    runner.close()

    assert runner.await_termination(PATIENCE)


def test_the_command_line_exits_4_and_says_what_to_do(archive: Site) -> None:
    """While it runs: one sentence on stderr, no stack trace; what was read is committed."""
    produce(archive, "orders", 300)
    produce(archive, "ships", 300)
    configure(archive, flush_size=100)
    process = archive.start()
    wait_until(lambda: committed_by(archive) == {"orders": 300, "ships": 300}, process, "all is committed")
    move_away(archive)

    code, output = ended(process)

    assert code == 4, output
    line = next(line for line in output.splitlines() if line.startswith("error: "))
    assert line == (
        f"error: connector archive: the topic directory {archive.topics} has no topic 'ships' (topics there: "
        f"'orders'): write it as a folder topic=<topic>, or take it out of the connector's 'topics'"
    )
    assert "Traceback" not in output
    assert "failed: 600 records committed" in output


def committed_by(archive: Site) -> dict[str, int]:
    """As :func:`committed`, of a process that may just be making its store."""
    return committed(archive) if archive.committed() else {}


def test_the_command_line_waits_for_a_topic_that_is_just_being_made(archive: Site) -> None:
    """Missing at the start: a warning at once, and no error when it appears within the grace time."""
    produce(archive, "orders", 300)
    configure(archive, flush_size=100, missing_topic_grace_ms=60_000)
    process = archive.start("--until-caught-up")
    wait_until((archive.folder / "store.sqlite").exists, process, "a store was made")
    produce(archive, "ships", 300)

    code, output = ended(process)

    assert code == 0, output
    assert "warning: the topic directory" in output
    assert "(looked for again for 60 s, as missing.topic.grace.ms says)" in output
    assert committed(archive) == {"orders": 300, "ships": 300}
