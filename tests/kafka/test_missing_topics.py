"""KIP-662 on a real broker: topics that are deleted, and created again with other ids."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sinksdk import TopicPartition, committed_offsets
from sinksdk.topics.kafka import KafkaClient, KafkaSource
from tests.helpers.tiers import extended_after
from tests.integration import line_sink
from tests.integration.archive_site import ended, wait_until
from tests.kafka.archive import kafka_site
from tests.kafka.topics import create_topic, delete_topic, produce, unused_name
from tests.runtime.test_missing_topics import Site, expect_missing

pytestmark = pytest.mark.slow


class KafkaTopics:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.a, self.b = unused_name("a"), unused_name("b")
        self.site = Site(KafkaSource(KafkaClient(bootstrap)))
        self.site.raw |= {"topics": f"{self.a},{self.b}", "poll.interval.ms": 100}
        self.site.raw["missing.topic.grace.ms"] = 1_000

    def create(self, topic: str, records: int) -> None:
        create_topic(self.bootstrap, topic)
        produce(self.bootstrap, topic, [b"v"] * records)

    def delete(self, topic: str) -> None:
        delete_topic(self.bootstrap, topic)

    def start_and_await_commit(self, **settings: object) -> None:
        self.create(self.a, 5)
        self.create(self.b, 3)
        self.site.raw |= settings
        self.site.start()
        self.await_commit(5, 3)

    def await_commit(self, a: int, b: int) -> None:
        deadline = time.monotonic() + 60
        while self.site.committed() != {self.a: a, self.b: b}:
            assert time.monotonic() < deadline, self.site.committed()
            time.sleep(0.05)


@pytest.fixture
def topics(bootstrap: str) -> Iterator[KafkaTopics]:
    made = KafkaTopics(bootstrap)
    yield made
    made.site.end()


@pytest.mark.extended
def test_topic_deleted_before_the_start_is_named(topics: KafkaTopics) -> None:
    topics.create(topics.a, 5)
    topics.site.start()

    error = expect_missing(topics.site, topics.b)

    assert str(error) == (
        f"connector c: the Kafka cluster at {topics.bootstrap} has no topic '{topics.b}': create it, or remove "
        f"it from the connector's 'topics'"
    )
    assert topics.site.committed() == {}


@pytest.mark.extended
def test_topic_deleted_while_the_connector_is_idle_fails_it(topics: KafkaTopics) -> None:
    topics.start_and_await_commit()
    topics.delete(topics.b)

    expect_missing(topics.site, topics.b)


@pytest.mark.parametrize("records", extended_after(1, [2, 0, 3, 50]))
def test_topic_created_again_is_not_read(topics: KafkaTopics, records: int) -> None:
    # The new topic has another id; the cases differ in whether it has fewer, as many or more records.
    topics.site.raw["missing.topic.grace.ms"] = 5_000  # long enough to create the topic again
    topics.start_and_await_commit()
    topics.delete(topics.b)
    topics.create(topics.b, records)

    error = expect_missing(topics.site, topics.b)

    assert f"topic '{topics.b}' was deleted and created again (its id is" in str(error)
    assert topics.site.committed() == {topics.a: 5, topics.b: 3}


@pytest.mark.extended
def test_topic_created_again_while_stopped_is_not_read(topics: KafkaTopics) -> None:
    topics.start_and_await_commit()
    runner = topics.site.runner
    assert runner is not None
    runner.close()
    assert runner.await_termination(30)
    topics.delete(topics.b)
    topics.create(topics.b, 50)
    topics.site.start()

    error = expect_missing(topics.site, topics.b)

    assert "was deleted and created again" in str(error)


@pytest.mark.extended
def test_topic_created_within_the_grace_time_is_read(topics: KafkaTopics) -> None:
    topics.create(topics.a, 5)
    topics.site.raw["missing.topic.grace.ms"] = 60_000
    topics.site.start()
    time.sleep(0.5)
    topics.create(topics.b, 3)

    topics.await_commit(5, 3)
    topics.site.expect_no_error()


@pytest.mark.extended
def test_regex_reports_a_missing_topic_that_was_read(topics: KafkaTopics) -> None:
    del topics.site.raw["topics"]
    topics.start_and_await_commit(**{"topics.regex": f"{topics.a}|{topics.b}"})
    topics.delete(topics.b)

    expect_missing(topics.site, topics.b)


@pytest.mark.extended
def test_missing_topic_policy_wait_reads_other_topics(topics: KafkaTopics) -> None:
    topics.start_and_await_commit(**{"missing.topic.policy": "wait"})
    topics.delete(topics.b)
    topics.create(topics.b, 50)
    produce(topics.bootstrap, topics.a, [b"v"] * 4)

    topics.await_commit(9, 3)
    topics.site.expect_no_error()


@pytest.mark.extended
@pytest.mark.spark
def test_topic_deleted_during_a_spark_job_fails_the_connector(bootstrap: str, tmp_path: Path) -> None:
    a, b = (create_topic(bootstrap, unused_name(name)) for name in "ab")
    for topic in (a, b):
        produce(bootstrap, topic, [b"v"] * 300_000)
    with kafka_site(tmp_path, bootstrap, a) as site:
        (tmp_path / "out").mkdir()
        shutil.copy(Path(line_sink.__file__ or ""), tmp_path)
        site.configure(
            topics=f"{a},{b}",
            connector_class="line_sink:LineSink",
            out_folder=str(tmp_path / "out"),
            batch_size=9_999,
            pause_seconds=1.0,
            missing_topic_grace_ms=1_000,
            task_shutdown_graceful_timeout_ms=8_000,
        )
        process = site.start("--until-caught-up")
        wait_until(lambda: len(list((tmp_path / "out").iterdir())) == 2, process, "both were written")
        delete_topic(bootstrap, b)

        code, output = ended(process)

        assert code == 4, output
        assert f"error: connector archive: the Kafka cluster at {bootstrap} has no topic '{b}'" in output
        assert "closing, FAILURE" in output
        written = [int(line) for line in (tmp_path / "out" / f"{a}-0.txt").read_text().splitlines()]
        assert written == list(range(len(written)))
        assert 0 < len(written) < 300_000
        assert len(written) % 9_999, "a partial batch was flushed"
        assert committed_offsets(site.store, "archive")[TopicPartition(a, 0)].offset == len(written)


@pytest.mark.extended
@pytest.mark.spark
def test_topic_created_again_during_a_spark_job_is_not_committed(bootstrap: str, tmp_path: Path) -> None:
    # The reader knows the topic by its name only, and continues.
    topic, rows, size = create_topic(bootstrap, unused_name("replaced"), 2), 1_000, 60_000
    for partition in range(2):
        produce(bootstrap, topic, [b"old" * (size // 3)] * rows, partition=partition)
    with kafka_site(tmp_path, bootstrap, topic) as site:
        site.configure(
            flush_size=4, tasks_max=1, offset_flush_interval_ms=300, missing_topic_grace_ms=20_000,
            task_shutdown_graceful_timeout_ms=8_000,
        )  # fmt: skip
        process = site.start("--until-caught-up", master="local[1]")
        wait_until(lambda: bool(site.archived()), process, "the first file was written")
        delete_topic(bootstrap, topic)
        create_topic(bootstrap, topic, 2)
        for partition in range(2):
            produce(bootstrap, topic, [b"new" * (size // 3)] * (rows + 100), partition=partition)

        code, output = ended(process, 150)

        assert code == 4, output
        assert "was deleted and created again" in output
        archived = site.archived()
        assert 0 < len(archived) < 2 * rows, "it was not replaced in the middle"
        assert all((record.value or b"").startswith(b"old") for record in archived)
        committed = committed_offsets(site.store, "archive")
        for partition in range(2):
            offsets = [record.offset for record in archived if record.partition == partition]
            entry = committed.get(TopicPartition(topic, partition))
            assert offsets == list(range(entry.offset if entry else 0))
