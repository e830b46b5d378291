"""KIP-662: topics vanish before, between and during generations."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pytest

from sinksdk import (
    ClosingReason,
    ConnectException,
    ConnectorConfig,
    MissingSourceTopicException,
    OffsetOutOfRangeException,
    OffsetRange,
    TopicPartition,
    committed_offsets,
)
from sinksdk.control.progress import Listener
from sinksdk.runtime.connect_worker import ConnectorRunner
from sinksdk.runtime.driver import ConnectorDriver
from sinksdk.runtime.environment import Environment
from sinksdk.store import table
from sinksdk.store.keys import status_key
from sinksdk.store.records import GenerationPlan
from sinksdk.store.reports import ConnectorStatus
from sinksdk.topics import Subscription
from sinksdk.worker.task_result import TaskResult
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sinks import Connector, Finished, InProcess, Task

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
GRACE = 0.2  # seconds


class Topics:
    def __init__(self, **ends: int) -> None:
        self.ends = ends
        self.made: dict[str, int] = {}

    def delete(self, topic: str) -> None:
        del self.ends[topic]

    def create(self, topic: str, end: int) -> None:
        self.made[topic] = self.made.get(topic, 0) + 1
        self.ends[topic] = end

    def partitions(self, subscription: Subscription) -> dict[TopicPartition, OffsetRange]:
        ends = dict(self.ends)
        return {TopicPartition(topic, 0): OffsetRange(0, ends[topic]) for topic in subscription.select(ends)}

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        return {topic: f"{topic}#{self.made.get(topic, 0)}" for topic in topics if topic in self.ends}

    def first_records(self, ranges: Mapping[TopicPartition, OffsetRange]) -> dict[TopicPartition, int]:
        return {partition: offsets.start for partition, offsets in ranges.items()}

    def reader(self, ranges: Any) -> Any:
        raise AssertionError


class Foldered(Topics):
    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        return {}


class Slow:
    def __init__(self, finish: Callable[[], Finished]) -> None:
        self.finish = finish
        self.finished: Finished | None = None
        self.closed = threading.Event()

    def wait(self, timeout: float) -> bool:
        if self.closed.wait(timeout) and self.finished is None:
            self.finished = self.finish()
        return self.finished is not None

    def results(self) -> list[TaskResult]:
        assert self.finished is not None
        return self.finished.results()

    def cancel(self) -> None:
        self.closed.set()


class Site:
    def __init__(self, source: Topics, **settings: object) -> None:
        self.source = source
        self.store = MemoryStore()
        self.launcher = InProcess(self.store, Task)
        self.launch: Callable[[GenerationPlan], Any] = self.launcher.launch
        self.closings: list[ClosingReason] = []
        self.raw: dict[str, Any] = {
            "name": "c",
            "topics": "a,b",
            "poll.interval.ms": 10,
            "restart.backoff.ms": 1,
            "missing.topic.grace.ms": int(GRACE * 1000),
            **settings,
        }
        self.raw = {key: value for key, value in self.raw.items() if value is not None}
        self.runner: ConnectorRunner | None = None

    def start(self, *, until_caught_up: bool = False) -> ConnectorRunner:
        site = self

        class Watcher(Listener):
            def closing(self, generation: int, reason: ClosingReason) -> None:
                site.closings.append(reason)

        class Launcher:
            def launch(self, plan: GenerationPlan) -> Any:
                return site.launch(plan)

        driver = ConnectorDriver(
            Environment(self.store),
            source=self.source,
            connector=Connector(),
            config=ConnectorConfig.parse(self.raw),
            raw=self.raw,
            launcher=Launcher(),
            listener=Watcher(),
        )
        self.runner = ConnectorRunner(driver, until_caught_up=until_caught_up)
        return self.runner

    def expect_no_error(self) -> None:
        assert self.runner is not None
        self.runner.await_termination(0)

    def committed(self) -> dict[str, int]:
        return {p.topic: offset.offset for p, offset in committed_offsets(self.store, "c").items()}

    def status(self) -> ConnectorStatus:
        row = table.read(self.store, status_key("c"), ConnectorStatus)
        assert row is not None
        return row.value

    def await_commit(self, **offsets: int) -> None:
        deadline = time.monotonic() + 10
        while self.committed() != offsets:
            assert time.monotonic() < deadline, self.committed()
            time.sleep(0.01)

    def end(self) -> None:
        if self.runner is not None:
            self.runner.close()


@pytest.fixture
def sites() -> Iterator[Callable[..., Site]]:
    made: list[Site] = []

    def make(source: Topics, **settings: object) -> Site:
        made.append(Site(source, **settings))
        return made[-1]

    yield make
    for site in made:
        site.end()


Sites = Callable[..., Site]


def expect_missing(site: Site, *topics: str) -> MissingSourceTopicException:
    assert site.runner is not None
    with pytest.raises(MissingSourceTopicException) as caught:
        site.runner.await_termination(60)
    assert caught.value.topics == topics
    with pytest.raises(MissingSourceTopicException):  # the second call raises the same error again
        site.runner.await_termination(0)
    status = site.status()
    assert (status.state, status.missing_topics) == ("FAILED", topics)
    assert "MissingSourceTopicException" in (status.trace or "")
    return caught.value


def test_a_topic_deleted_before_the_start_is_missing(sites: Sites) -> None:
    site = sites(Topics(a=5))
    began = time.monotonic()
    site.start()

    error = expect_missing(site, "b")

    assert time.monotonic() - began >= GRACE
    assert str(error).startswith("connector c: the source has no topic 'b': create it, or remove it from")
    assert (site.launcher.plans, site.committed()) == ([], {})


def test_a_topic_created_right_after_the_start_is_read(sites: Sites) -> None:
    site = sites(Topics(a=5), **{"missing.topic.grace.ms": 10_000})
    runner = site.start(until_caught_up=True)
    time.sleep(0.1)
    site.source.create("b", 3)

    assert runner.await_termination(10)
    assert site.committed() == {"a": 5, "b": 3}


def test_a_topic_deleted_while_the_driver_is_idle_is_missing(sites: Sites) -> None:
    site = sites(Topics(a=5, b=3))
    site.start()
    site.await_commit(a=5, b=3)
    site.source.delete("b")

    expect_missing(site, "b")

    assert site.committed() == {"a": 5, "b": 3}


def test_other_topics_are_read_until_a_topic_is_certainly_missing(sites: Sites) -> None:
    site = sites(Topics(a=5, b=3), **{"missing.topic.grace.ms": 5_000})
    site.start()
    site.await_commit(a=5, b=3)
    site.source.delete("b")
    site.source.ends["a"] = 9
    site.await_commit(a=9, b=3)

    expect_missing(site, "b")


def meanwhile(site: Site, happens: Callable[[], None]) -> Callable[[GenerationPlan], Slow]:
    def launch(plan: GenerationPlan) -> Slow:
        slow = Slow(lambda: site.launcher.launch(plan))
        happens()
        threading.Thread(target=lambda: close_with(slow)).start()
        return slow

    def close_with(slow: Slow) -> None:
        while not site.closings:
            time.sleep(0.01)
        slow.closed.set()

    return launch


@pytest.mark.slow
def test_a_topic_replaced_during_the_first_generation_is_detected(sites: Sites) -> None:
    # The first generation has no earlier commits, so the ids in the plan itself are compared.
    site = sites(Topics(a=5, b=3))

    def replace() -> None:
        site.source.delete("b")
        site.source.create("b", 50)

    site.launch = meanwhile(site, replace)
    site.start()

    error = expect_missing(site, "b")

    assert site.closings == [ClosingReason.FAILURE]
    assert "was deleted and created again" in str(error)


@pytest.mark.slow
def test_a_topic_deleted_while_a_generation_runs_is_missing(sites: Sites) -> None:
    # The generation closes with reason FAILURE and commits before the error.
    site = sites(Topics(a=5, b=3))
    site.start()
    site.await_commit(a=5, b=3)
    site.launch = meanwhile(site, lambda: site.source.delete("b"))
    site.source.ends["a"] = 9

    expect_missing(site, "b")

    assert site.closings == [ClosingReason.FAILURE]
    assert site.committed() == {"a": 9, "b": 3}


class Fell(Finished):
    def results(self) -> list[TaskResult]:
        message = "the Spark job failed: no such file"
        raise ConnectException(message)


def test_a_job_that_fails_with_a_deleted_topic_uses_up_no_restart_attempt(sites: Sites) -> None:
    # Regression: the connector ended with the job's failure instead of the topic's.
    site = sites(Topics(a=5, b=3), **{"restart.max.attempts": 0})
    fell = []

    def launch(plan: GenerationPlan) -> Finished:
        if not fell:
            fell.append(plan)
            site.source.delete("b")
            return Fell([])
        return site.launcher.launch(plan)

    site.launch = launch
    site.start()

    expect_missing(site, "b")

    assert site.committed() == {"a": 5}, "the others are read again at once"


def test_a_job_that_fails_without_a_missing_topic_is_a_failure(sites: Sites) -> None:
    site = sites(Topics(a=5, b=3), **{"restart.max.attempts": 0})
    site.launch = lambda plan: Fell([])
    runner = site.start()

    with pytest.raises(ConnectException, match="no such file"):
        runner.await_termination(10)


def test_a_topic_deleted_just_before_it_is_read_is_missing(sites: Sites) -> None:
    site = sites(Topics(a=5, b=3))

    def launch(plan: GenerationPlan) -> Finished:
        if any(planned.topic == "b" for task in plan.tasks for planned in task.ranges):
            site.source.ends.pop("b", None)
            message = "b-0: offsets [0, 3) are to be read, but there are none"
            raise OffsetOutOfRangeException(message)
        return site.launcher.launch(plan)

    site.launch = launch
    site.start()

    expect_missing(site, "b")
    assert site.committed() == {"a": 5}


@pytest.mark.parametrize(("source", "end"), [(Topics, 2), (Topics, 500), (Foldered, 2)])
def test_a_topic_created_again_is_never_read_from_its_start(
    sites: Sites, source: type[Topics], end: int
) -> None:
    site = sites(source(a=5, b=3))
    site.start()
    site.await_commit(a=5, b=3)
    site.source.delete("b")
    site.source.create("b", end)

    error = expect_missing(site, "b")

    assert "deleted and created again" in str(error)
    assert "give the connector another name" in str(error)
    assert site.committed() == {"a": 5, "b": 3}


@pytest.mark.parametrize("end", [2, 500])
def test_topic_ids_are_kept_between_runs(sites: Sites, end: int) -> None:
    # Each plan also contains the ids of the previous plan.
    site = sites(Topics(a=5, b=3))
    site.start(until_caught_up=True).await_termination(10)
    site.source.ends["a"] = 9
    site.start(until_caught_up=True).await_termination(10)  # this generation reads nothing of b
    assert site.launcher.plans[-1].topic_ids == {"a": "a#0", "b": "b#0"}
    site.source.create("b", end)
    site.start()

    expect_missing(site, "b")


def test_a_topic_id_is_added_to_commits_without_one(sites: Sites) -> None:
    # An older version wrote the store without ids: the topic that the next generation reads counts as the
    # same one.
    site = sites(Foldered(a=5, b=3))
    site.start(until_caught_up=True).await_termination(10)
    site.source = Topics(a=9, b=3)
    site.start(until_caught_up=True).await_termination(10)

    assert site.launcher.plans[-1].topic_ids == {"a": "a#0", "b": "b#0"}


def test_starting_at_latest_stores_topic_ids(sites: Sites) -> None:
    # With auto.offset.reset=latest, the driver commits the start offset before any record is read.
    site = sites(Topics(a=5, b=3), **{"auto.offset.reset": "latest"})
    site.start()
    site.await_commit(a=5, b=3)
    site.source.create("b", 500)

    expect_missing(site, "b")
    assert site.launcher.plans == []


def test_starting_at_latest_waits_for_topics_in_doubt(sites: Sites) -> None:
    # Regression: a topic that came late was read from its beginning, not from its end.
    site = sites(Topics(a=5), **{"auto.offset.reset": "latest", "missing.topic.grace.ms": 10_000})
    site.start()
    time.sleep(0.1)
    site.source.create("b", 3)

    site.await_commit(a=5, b=3)
    assert site.launcher.plans == []


def test_policy_wait_reads_other_topics_and_resumes_the_missing_one(sites: Sites) -> None:
    site = sites(Topics(a=5, b=3), **{"missing.topic.policy": "wait"})
    site.start()
    site.await_commit(a=5, b=3)
    site.source.delete("b")
    while site.status().missing_topics != ("b",):
        time.sleep(0.01)
    assert site.status().state == "RUNNING"
    site.source.ends["a"] = 9
    site.await_commit(a=9, b=3)

    site.source.ends["b"] = 7  # the same topic has come back
    site.await_commit(a=9, b=7)

    while site.status().missing_topics:
        time.sleep(0.01)
    site.expect_no_error()


def test_policy_wait_does_not_read_a_replaced_topic(sites: Sites) -> None:
    site = sites(Topics(a=5, b=3), **{"missing.topic.policy": "wait"})
    site.start()
    site.await_commit(a=5, b=3)
    site.source.create("b", 500)
    while site.status().missing_topics != ("b",):
        time.sleep(0.01)
    site.source.ends["a"] = 9

    site.await_commit(a=9, b=3)


def test_policy_wait_until_caught_up_ends_without_the_missing_topic(sites: Sites) -> None:
    site = sites(Topics(a=5), **{"missing.topic.policy": "wait"})

    assert site.start(until_caught_up=True).await_termination(10)
    assert site.committed() == {"a": 5}


def test_topics_regex_reads_new_topics_and_misses_deleted_ones(sites: Sites) -> None:
    site = sites(Topics(other=1), **{"topics": None, "topics.regex": "[ab]"})
    site.start()
    time.sleep(2 * GRACE)
    site.source.create("a", 5)
    site.await_commit(a=5)
    site.source.create("b", 3)
    site.await_commit(a=5, b=3)
    site.source.delete("a")

    expect_missing(site, "a")


def test_a_driver_can_be_closed_while_a_topic_is_in_doubt(sites: Sites) -> None:
    for settings in ({}, {"auto.offset.reset": "latest"}):
        site = sites(Topics(a=5), **{"missing.topic.grace.ms": 60_000, **settings})
        runner = site.start()
        time.sleep(0.05)
        runner.close()
        assert runner.await_termination(5)
