from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

import pytest

from sinksdk import (
    ConnectException,
    ConnectorConfig,
    MissingSourceTopicException,
    OffsetRange,
    RetriableException,
    TopicPartition,
)
from sinksdk.runtime.source_monitor import Read, SourceMonitor
from sinksdk.testing import ManualClock
from sinksdk.topics import Subscription
from sinksdk.topics.base import Snapshot, take_snapshot

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


class Source:
    def __init__(self, **ends: int) -> None:
        self.ends = ends
        self.ids: dict[str, str] = {}
        self.happens: Callable[[], None] = lambda: None
        self.asked: list[Subscription] = []

    def partitions(self, subscription: Subscription) -> dict[TopicPartition, OffsetRange]:
        self.asked.append(subscription)
        self.happens()
        return {
            TopicPartition(topic, 0): OffsetRange(0, self.ends[topic])
            for topic in subscription.select(self.ends)
        }

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        return {topic: known for topic, known in self.ids.items() if topic in topics}

    def reader(self, ranges: Any) -> Any:
        raise AssertionError


class Scene:
    def __init__(self, source: Source, *, topics: str = "a,b", **settings: object) -> None:
        config = ConnectorConfig.parse(
            {
                "name": "c",
                "topics": topics,
                "poll.interval.ms": 1000,
                "missing.topic.grace.ms": 10_000,
                **settings,
            }
        )
        self.clock = ManualClock()
        self.source = source
        self.monitor = SourceMonitor(config, source, self.clock)

    def refresh(self) -> None:
        self.monitor.refresh_in_background()
        await_refreshes()
        self.monitor.refresh_in_background()


def await_refreshes() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("SourceMonitor"):
            thread.join(5)


def test_a_snapshot_has_existing_topics_and_names_missing_ones() -> None:
    source = Source(a=5)
    source.ids = {"a": "one"}
    snapshot = take_snapshot(source, Subscription(("a", "b", "c")), 7.0)

    assert (snapshot.at, snapshot.partitions, snapshot.ids) == (7.0, {A: OffsetRange(0, 5)}, {"a": "one"})
    assert set(snapshot.absent) == {"b", "c"}
    assert "no topic 'b', 'c'" in snapshot.absent["b"]


def test_a_snapshot_without_any_topic_has_no_partitions() -> None:
    source = Source()
    assert take_snapshot(source, Subscription(("a",)), 0) == Snapshot(
        0, {}, {}, {"a": "the source has no topic 'a': create it, or remove it from the connector's 'topics'"}
    )
    assert len(source.asked) == 1


def test_a_topic_deleted_between_two_queries_is_missing() -> None:
    source = Source(a=1, b=1)
    source.happens = lambda: source.ends.pop("b" if len(source.asked) == 1 else "a")

    assert set(take_snapshot(source, Subscription(("a", "b")), 0).absent) == {"a", "b"}


def test_a_source_that_reports_unrequested_topics_is_queried_finitely() -> None:
    source = Source()

    def miss() -> None:
        raise MissingSourceTopicException(["z"])

    source.happens = miss
    with pytest.raises(MissingSourceTopicException, match="'z'"):
        take_snapshot(source, Subscription((), "a"), 0)


class Recreated:
    def __init__(self, times: int, *, has_ids: bool = True) -> None:
        self.times = times
        self.has_ids = has_ids
        self.version = 0
        self.asked = list[str]()

    def partitions(self, subscription: Subscription) -> dict[TopicPartition, OffsetRange]:
        self.asked.append("offsets")
        found = {A: OffsetRange(500 * (self.times == 0), 900 + self.version)}
        if self.version < self.times:
            self.version += 1
        return found

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        self.asked.append("ids")
        return {"a": f"id-{self.version}"} if self.has_ids else {}


@pytest.mark.parametrize(
    "subscription", [Subscription(("a",)), Subscription((), "a")], ids=["named", "regex"]
)
@pytest.mark.parametrize("known", [{}, {"a": "id-0"}], ids=["first", "read before"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_topic_recreated_between_its_offsets_and_its_id_has_the_offsets_of_the_new_one(
    subscription: Subscription, known: dict[str, str], times: int
) -> None:
    # With the new id and the old offsets, the driver would read the new topic from the old topic's start
    # offset.
    snapshot = take_snapshot(cast("Any", Recreated(times)), subscription, 0.0, known)

    assert (snapshot.ids, snapshot.partitions) == (
        {"a": f"id-{times}"},
        {A: OffsetRange(0, 900 + times)},
    )
    assert snapshot.absent == {}


def test_a_topic_that_is_recreated_repeatedly_is_missing() -> None:
    source = Recreated(100)
    snapshot = take_snapshot(cast("Any", source), Subscription((), "a"), 0.0)

    assert (dict(snapshot.partitions), snapshot.ids) == ({}, {})
    assert "deleted and created again" in snapshot.absent["a"]
    assert source.asked.count("offsets") <= 5


@pytest.mark.parametrize("has_ids", [True, False])
def test_a_known_topic_costs_one_query_of_offsets_and_one_of_ids(*, has_ids: bool) -> None:
    source = Recreated(0, has_ids=has_ids)
    known = {"a": "id-0"} if has_ids else {}
    take_snapshot(cast("Any", source), Subscription((), "a"), 0.0, known)

    assert source.asked == ["offsets", "ids"]


def test_a_monitor_compares_ids_with_those_of_its_last_snapshot() -> None:
    source = Recreated(0)
    scene = Scene(cast("Any", source))
    scene.monitor.refresh()
    source.asked.clear()
    scene.monitor.refresh()
    assert source.asked == ["ids", "offsets", "ids"]  # topic b is missing


def test_missing_and_replaced_topics_are_not_read() -> None:
    # If a topic is in doubt, its records may be those of another topic.
    scene = Scene(Source(a=5, b=2))
    scene.monitor.compare_with(Read({B: 3}))

    assert scene.monitor.refresh() == {A: OffsetRange(0, 5)}
    assert scene.monitor.gone_of({"a", "b"}) == {"b"}
    assert scene.monitor.gone_of({"a"}) == set()


def test_a_failed_query_reports_no_missing_topics() -> None:
    source = Source(a=5)
    scene = Scene(source)

    def fail() -> None:
        raise RetriableException("half a file")

    source.happens = fail
    assert scene.monitor.gone_of({"a", "b"}) == set()
    with pytest.raises(RetriableException):
        scene.monitor.refresh()


def test_a_background_refresh_runs_every_two_seconds() -> None:
    scene = Scene(Source(a=5, b=5))
    scene.monitor.refresh()
    scene.clock.advance(1.999)
    scene.refresh()
    assert len(scene.source.asked) == 1

    scene.clock.advance(0.001)
    del scene.source.ends["b"]
    scene.source.ends["a"] = 7
    scene.refresh()

    assert scene.monitor.topics.gone == {"b"}
    assert scene.monitor.ends == {TopicPartition("a", 0): 7}


def test_topics_in_doubt_are_refreshed_at_the_end_of_the_grace_time() -> None:
    scene = Scene(Source(a=5), **{"missing.topic.grace.ms": 2_000})
    scene.monitor.refresh()
    scene.clock.advance(1.999)
    scene.refresh()
    assert scene.monitor.topics.certain == frozenset()

    scene.clock.advance(0.001)
    scene.refresh()

    assert scene.monitor.topics.certain == {"b"}


def test_a_hanging_source_does_not_block_the_driver() -> None:
    # The driver supervises the generation meanwhile; it sends no second query.
    scene, answer = Scene(Source(a=5, b=5)), threading.Event()
    scene.source.happens = lambda: assert_true(answer.wait(5))
    scene.clock.advance(100)
    began = time.monotonic()
    for _ in range(10):
        scene.monitor.refresh_in_background()
        scene.clock.advance(100)
    assert time.monotonic() - began < 1
    answer.set()
    await_refreshes()

    assert len(scene.source.asked) == 1


def test_lag_is_unknown_if_the_last_query_is_too_old() -> None:
    scene = Scene(Source(a=5, b=5))
    scene.source.happens = lambda: scene.clock.advance(9)
    scene.monitor.refresh()
    scene.clock.advance(2.9)
    assert scene.monitor.unseen_for == 0
    scene.clock.advance(0.2)
    assert scene.monitor.unseen_for == pytest.approx(12.1)


def test_lag_is_reported_while_a_query_before_a_plan_gets_no_response() -> None:
    # A frozen broker delays the query for as long as a request may take.
    scene, answer = Scene(Source(a=5, b=5)), threading.Event()
    scene.source.happens = lambda: assert_true(answer.wait(5))
    seen: list[float] = []

    def meanwhile() -> None:
        scene.clock.advance(15)
        seen.append(scene.monitor.unseen_for)
        answer.set()

    assert scene.monitor.refresh(meanwhile)
    assert seen[0] == 15


def assert_true(value: object) -> None:
    assert value


def test_an_older_refresh_is_not_compared_with_later_commits() -> None:
    # The offsets are older than the commits, so an end below a commit does not prove a loss.
    scene, answer = Scene(Source(a=5, b=5)), threading.Event()
    scene.source.happens = lambda: assert_true(answer.wait(5))
    scene.monitor.refresh_in_background()
    scene.monitor.compare_with(Read({B: 50}))
    answer.set()
    await_refreshes()
    scene.monitor.refresh_in_background()

    assert scene.monitor.topics.gone == frozenset()


def test_a_failed_background_refresh_is_retried() -> None:
    scene = Scene(Source(a=5))
    errors: list[Exception] = [ConnectException("no permission"), ValueError("what?")]

    def fail() -> None:
        if errors:
            raise errors.pop()

    scene.source.happens = fail
    for _ in range(3):
        scene.clock.advance(5)
        scene.refresh()

    assert scene.monitor.topics.gone == {"b"}
