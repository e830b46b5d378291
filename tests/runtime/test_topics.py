"""When exactly a topic counts as missing, tested with given snapshots instead of a source."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

import pytest

from sinksdk import OffsetRange, TopicPartition
from sinksdk.model.outcome import Failure, PartitionOutcome
from sinksdk.runtime.outcomes import without_vanished_failures
from sinksdk.runtime.source_monitor import Read, TopicWatch
from sinksdk.testing import ManualClock
from sinksdk.topics import Subscription
from sinksdk.topics.base import Snapshot

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
NO_B = "there is no topic 'b'"


class Scene:
    def __init__(
        self, *topics: str, regex: str | None = None, grace: float = 10.0, waits: bool = False
    ) -> None:
        self.watch = TopicWatch("c", Subscription(topics, regex), grace=grace, waits=waits)
        self.clock = ManualClock()
        self.named = topics
        self.read = Read()

    def query(self, *, ids: Mapping[str, str] | None = None, **ends: int) -> None:
        self.watch.see(
            Snapshot(
                self.clock.now(),
                {TopicPartition(topic, 0): OffsetRange(0, end) for topic, end in ends.items()},
                ids or {},
                {topic: f"there is no topic {topic!r}" for topic in self.named if topic not in ends},
            ),
            self.read,
        )

    def alarm(self) -> tuple[str, ...] | None:
        error = self.watch.alarm()
        return None if error is None else tuple(error.topics)


def test_a_partition_without_a_leader_is_neither_missing_nor_replaced() -> None:
    # The end of a partition without a leader is unknown. In the second snapshot, the topic does not exist.
    scene = Scene(regex="a|b")
    scene.watch.see(
        Snapshot(0.0, {B: OffsetRange(0, 9)}, unavailable=frozenset({A})), Read({A: 50, B: 9}, {})
    )
    assert scene.watch.gone == frozenset()
    scene.watch.see(Snapshot(1.0, {B: OffsetRange(0, 9)}), Read({A: 50, B: 9}, {}))
    assert scene.watch.gone == {"a"}


@pytest.fixture
def named() -> Scene:
    return Scene("a", "b")


def test_a_topic_is_certainly_missing_after_the_grace_time(named: Scene) -> None:
    # A topic is missing for certain only after another poll, not just after some time.
    named.query(a=5)
    assert (named.watch.gone, named.watch.recheck_at) == (frozenset("b"), named.clock.now() + 10)
    named.clock.advance(9.999)
    named.query(a=5)
    assert (named.alarm(), named.watch.is_in_doubt) == (None, True)

    named.clock.advance(0.001)
    assert named.alarm() is None
    named.query(a=5)

    assert named.alarm() == ("b",)
    assert str(named.watch.alarm()) == f"connector c: {NO_B}"
    assert (named.watch.is_in_doubt, named.watch.recheck_at) == (False, math.inf)


def test_a_topic_that_appears_within_the_grace_time_is_not_missing(named: Scene) -> None:
    named.query(a=5)
    named.clock.advance(9)
    named.query(a=5, b=0)
    assert (named.watch.gone, named.watch.recheck_at) == (frozenset(), math.inf)

    named.clock.advance(9)
    named.query(a=5)
    named.clock.advance(9)
    named.query(a=5)

    assert named.alarm() is None


def test_without_a_grace_time_the_first_query_is_certain() -> None:
    scene = Scene("a", "b", grace=0)
    scene.query(a=5)
    assert scene.alarm() == ("b",)


def test_only_topics_that_are_certainly_missing_are_named(named: Scene) -> None:
    named.query(a=5)
    named.clock.advance(9)
    named.query()
    named.clock.advance(1)
    named.query()

    assert (named.alarm(), named.watch.gone) == (("b",), frozenset("ab"))


def test_an_error_of_several_topics_is_reported_once() -> None:
    scene = Scene("a", "b", grace=0)
    scene.watch.see(Snapshot(0, {}, absent=dict.fromkeys("ab", "neither 'a' nor 'b' is there")), Read())

    assert str(scene.watch.alarm()) == "connector c: neither 'a' nor 'b' is there"


def test_a_topics_regex_without_a_match_waits(caplog: pytest.LogCaptureFixture) -> None:
    # The connector waits, as in Connect, and logs one line.
    scene = Scene(regex="a|b", grace=0)
    scene.query()
    scene.query()
    assert (scene.alarm(), scene.watch.gone) == (None, frozenset())
    assert [r.getMessage() for r in caplog.records] == [
        "connector c: no topic with partitions matches 'topics.regex' yet; matching topics are read once they exist"
    ]

    scene.query(a=5)
    scene.query()
    assert scene.alarm() is None, "nothing was read of it"


@pytest.mark.parametrize("read", [Read({B: 3}), Read({}, {"b": "one"})], ids=["committed", "planned"])
def test_a_topic_read_by_topics_regex_must_not_vanish(read: Read) -> None:
    scene = Scene(regex="a|b", grace=0)
    scene.read = read
    scene.query(a=5)

    assert scene.alarm() == ("b",)
    assert "no longer has topic 'b', whose records were read" in str(scene.watch.alarm())


def test_an_unsubscribed_topic_cannot_be_missing() -> None:
    for scene in (Scene("a", grace=0), Scene(regex="a", grace=0)):
        scene.read = Read({B: 3}, {"b": "one"})
        scene.query(a=5)
        assert scene.watch.gone == frozenset()


def test_a_different_topic_id_means_a_replaced_topic(named: Scene) -> None:
    # The new topic has more records, so only its id shows that it is another topic.
    named.read = Read({B: 3}, {"b": "one"})
    named.query(a=5, b=500, ids={"b": "two"})
    named.clock.advance(10)
    named.query(a=5, b=500, ids={"b": "two"})

    assert named.alarm() == ("b",)
    assert (
        "topic 'b' was deleted and created again (its id is two, but records were read with id one): restore it, give"
        in str(named.watch.alarm())
    )


def test_unknown_topic_ids_are_not_compared(named: Scene) -> None:
    # The commit is older than stored ids (a), or the source returns no ids (b).
    named.read = Read({A: 3, B: 3}, {"b": "one"})
    named.query(a=5, b=5, ids={"a": "x"})
    assert named.watch.gone == frozenset()


@pytest.mark.parametrize(("end", "gone"), [(2, True), (3, False), (4, False)])
def test_an_end_offset_below_the_commit_means_a_replaced_topic(named: Scene, *, end: int, gone: bool) -> None:
    named.read = Read({B: 3})
    named.query(a=5, b=end)

    assert named.watch.gone == (frozenset("b") if gone else frozenset())


def test_a_vanished_partition_means_a_replaced_topic(named: Scene) -> None:
    named.read = Read({TopicPartition("b", 1): 3, TopicPartition("a", 1): 0})
    named.query(a=5, b=500)
    named.clock.advance(10)
    named.query(a=5, b=500)

    assert "b-1 is committed up to offset 3, but the end offset of the source is 0" in str(
        named.watch.alarm()
    )
    assert named.alarm() == ("b",)


def test_a_topic_without_partitions_is_not_missing(named: Scene) -> None:
    here = Snapshot(0, {A: OffsetRange(0, 5)})
    named.watch.see(here, Read())
    assert named.watch.gone == frozenset()

    named.watch.see(here, Read({B: 3}))
    assert named.watch.gone == frozenset("b")


def test_policy_wait_continues_without_the_topic_and_logs_it_once(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene("a", "b", waits=True)
    for _ in range(4):
        scene.query(a=5)
        scene.clock.advance(5)
    assert (scene.alarm(), scene.watch.certain) == (None, frozenset("b"))
    scene.query(a=5, b=3)
    scene.query(a=5)

    assert [(r.levelno, r.getMessage()) for r in caplog.records] == [
        (
            logging.WARNING,
            "connector c: topic 'b' is missing; retrying for 10 s (missing.topic.grace.ms)",
        ),
        (
            logging.ERROR,
            f"connector c continues without topic 'b' until it exists again (missing.topic.policy=wait): {NO_B}",
        ),
        (logging.WARNING, "connector c: topic 'b' exists again"),
        (
            logging.WARNING,
            "connector c: topic 'b' is missing; retrying for 10 s (missing.topic.grace.ms)",
        ),
    ]


def test_a_missing_topic_closes_generations_by_policy() -> None:
    # A failing connector closes every generation, a waiting one only those that read the missing topic.
    failing, waiting = Scene("a", "b", grace=0), Scene("a", "b", grace=0, waits=True)
    assert not failing.watch.must_close({"a"})
    failing.query(a=5)
    waiting.query(a=5)

    assert failing.watch.must_close({"a"})
    assert not waiting.watch.must_close({"a"})
    assert waiting.watch.must_close({"a", "b"})


def test_failures_of_vanished_topics_are_cleared() -> None:
    own, jobs = Failure("E", "own", ""), Failure("E", "the job failed", "", shared=True)
    c = TopicPartition("c", 0)
    fell, vanished, broke, went_well = (
        PartitionOutcome.unread(A, 0, jobs),
        PartitionOutcome.unread(B, 0, own),
        PartitionOutcome.unread(c, 0, own),
        PartitionOutcome.unread(c, 0, None),
    )

    after = without_vanished_failures([fell, vanished, broke, went_well], {"b"})

    assert [outcome.failure for outcome in after] == [None, None, own, None]
