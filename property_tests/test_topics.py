"""Topics that come, go and are recreated in random order: when to alarm, and what must not be read."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from property_tests.exercised import EXERCISED
from sinksdk import ConnectorConfig, OffsetRange, TopicPartition
from sinksdk.runtime.source_monitor import Read, SourceMonitor, TopicWatch
from sinksdk.testing import ManualClock
from sinksdk.topics import Subscription
from sinksdk.topics.base import Snapshot

exercised = EXERCISED["missing topics"]
NAMES = "ab"
GRACE = 10

Look = tuple[int, frozenset[str]]
"""Seconds since the last poll, and the topics that exist."""

looks: st.SearchStrategy[list[Look]] = st.lists(
    st.tuples(st.integers(0, 12), st.frozensets(st.sampled_from(NAMES))), min_size=2, max_size=30
)


def snapshot(at: float, there: Iterable[str]) -> Snapshot:
    present = set(there)
    partitions = {TopicPartition(topic, 0): OffsetRange(0, 5) for topic in present}
    return Snapshot(at, partitions, absent={topic: "not there" for topic in NAMES if topic not in present})


class Absences:
    """The expected time since which each topic has been missing, as far as polls could show it."""

    def __init__(self) -> None:
        self.since: dict[str, int] = {}

    def see(self, now: int, there: Collection[str]) -> None:
        self.since = {topic: self.since.get(topic, now) for topic in NAMES if topic not in there}

    def certain(self, now: int) -> set[str]:
        return {topic for topic, since in self.since.items() if now - since >= GRACE}


@given(looks=looks)
def test_alarm_names_topics_missing_for_the_grace_time(looks: Sequence[Look]) -> None:
    watch = TopicWatch("c", Subscription(tuple(NAMES)), grace=GRACE, waits=False)
    expected, now = Absences(), 0
    for seconds, there in looks:
        now += seconds
        watch.see(snapshot(now, there), Read())
        expected.see(now, there)
        alarm = watch.alarm()
        exercised["looks"] += 1
        assert set(alarm.topics if alarm else ()) == expected.certain(now)
        assert watch.gone == set(NAMES) - there
        assert watch.is_in_doubt == bool(watch.gone - expected.certain(now))
        if alarm is not None:
            exercised["alarms"] += 1
            return  # an alarm ends the driver


@given(looks=looks)
def test_poll_at_the_named_time_decides_the_alarm(looks: Sequence[Look]) -> None:
    watch = TopicWatch("c", Subscription(tuple(NAMES)), grace=GRACE, waits=False)
    now = 0
    for seconds, there in looks:
        now += seconds
        watch.see(snapshot(now, there), Read())
        if watch.is_in_doubt:
            in_doubt = watch.gone - watch.certain
            watch.see(snapshot(watch.recheck_at, there), Read())
            assert watch.certain & in_doubt
            exercised["doubts settled"] += 1
            return


@given(looks=looks)
def test_policy_wait_reports_each_absence_once(looks: Sequence[Look]) -> None:
    told: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    logger, ear = logging.getLogger("sinksdk.runtime.source_monitor"), Ear(logging.ERROR)
    logger.addHandler(ear)
    try:
        watch = TopicWatch("c", Subscription(tuple(NAMES)), grace=GRACE, waits=True)
        expected, now, absences, known = Absences(), 0, 0, set[str]()
        for seconds, there in looks:
            now += seconds
            watch.see(snapshot(now, there), Read())
            expected.see(now, there)
            absences += len(expected.certain(now) - known)
            known = expected.certain(now)
            assert watch.alarm() is None
    finally:
        logger.removeHandler(ear)
    assert len(told) == absences
    exercised["absences told"] += len(told)


class Broker:
    """Topics with ids and one partition each; the ``source`` of a monitor."""

    def __init__(self) -> None:
        self.ends: dict[str, int] = {}
        self.made: dict[str, int] = {}

    def create(self, topic: str) -> None:
        if topic not in self.ends:
            self.made[topic] = self.made.get(topic, 0) + 1
            self.ends[topic] = 0

    def delete(self, topic: str) -> None:
        self.ends.pop(topic, None)

    def produce(self, topic: str, count: int) -> None:
        if topic in self.ends:
            self.ends[topic] += count

    def partitions(self, subscription: Subscription) -> dict[TopicPartition, OffsetRange]:
        return {TopicPartition(t, 0): OffsetRange(0, self.ends[t]) for t in subscription.select(self.ends)}

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        return {topic: f"{topic}#{self.made[topic]}" for topic in topics if topic in self.ends}

    def first_record(self, partition: TopicPartition, offsets: OffsetRange) -> int:
        return offsets.start

    def reader(self, ranges: Any) -> Any:
        raise AssertionError


events = st.lists(
    st.tuples(
        st.sampled_from(["create", "delete", "again", "produce", "read", "read", "restart"]),
        st.sampled_from(NAMES),
        st.integers(1, 9),
        st.integers(0, 12),
    ),
    min_size=4,
    max_size=40,
)


@given(events=events, by_regex=st.booleans(), policy=st.sampled_from(["fail", "wait"]))
def test_recreated_topic_is_never_read_from_the_old_offset(
    events: Sequence[tuple[str, str, int, int]], *, by_regex: bool, policy: str
) -> None:
    broker, clock = Broker(), ManualClock()
    which = {"topics.regex": f"[{NAMES}]"} if by_regex else {"topics": ",".join(NAMES)}
    config = ConnectorConfig.parse({"name": "c", **which, "missing.topic.policy": policy})
    committed: dict[TopicPartition, int] = {}
    ids: dict[str, str] = {}
    lives: dict[str, set[int]] = {topic: set() for topic in NAMES}
    monitor = SourceMonitor(config, broker, clock)
    for topic in NAMES:
        broker.create(topic)
        broker.produce(topic, 3)
    for what, topic, count, seconds in events:
        clock.advance(seconds)
        match what:
            case "create":
                broker.create(topic)
            case "delete":
                broker.delete(topic)
            case "again":
                broker.delete(topic)
                broker.create(topic)
                broker.produce(topic, count)
            case "produce":
                broker.produce(topic, count)
            case "restart":  # a new driver knows only the records in the store
                monitor = SourceMonitor(config, broker, clock)
            case _:
                monitor.compare_with(Read(dict(committed), dict(ids)))
                for partition, offsets in monitor.refresh().items():
                    start = committed.get(partition, offsets.start)
                    if start < offsets.end:
                        ids = {partition.topic: monitor.snapshot.ids[partition.topic], **ids}
                        committed[partition] = offsets.end
                        lives[partition.topic].add(broker.made[partition.topic])
                        exercised["ranges read"] += 1
                exercised["looks that miss something"] += bool(monitor.topics.gone)
    assert all(len(lives_of_one) <= 1 for lives_of_one in lives.values())
