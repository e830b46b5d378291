from __future__ import annotations

import itertools
import pickle
import statistics
import time
from collections.abc import Generator, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from sinksdk import ConnectException, OffsetRange, RetriableException, SinkRecords, TopicPartition
from sinksdk.engine.task_run import Unread
from sinksdk.errors import OffsetOutOfRangeException
from sinksdk.records import RECORD_COLUMNS
from sinksdk.topics.kafka import KafkaClient, reader
from sinksdk.topics.kafka import consumer as consumers
from sinksdk.topics.kafka.consumer import Consumer
from sinksdk.topics.kafka.reader import KafkaReader, Reading
from sinksdk.worker.sink_task import ReadAhead
from tests.helpers.mock_cluster import FETCH, MockCluster, mock_cluster
from tests.helpers.needs import missing

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    with mock_cluster() as found:
        yield found


@pytest.fixture(autouse=True, params=["compiled", "plain"])
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "plain":
        monkeypatch.setattr(consumers, "compiled_client", None)
    elif consumers.compiled_client is None:
        missing("the compiled client", "install with a C compiler")


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    pool = reader._Consumers()
    monkeypatch.setattr(reader, "_CONSUMERS", pool)
    yield
    for consumer in pool._idle.values():
        consumer.close()


@pytest.fixture
def topic(cluster: MockCluster) -> str:
    # Four partitions, 100 records each.
    name = f"topic-{next(NUMBERS)}"
    cluster.create(name, 4)
    for number in range(4):
        cluster.produce(name, number, ({"value": b"%d" % offset} for offset in range(100)))
    return name


WAITING = 0.02
"""Seconds that a test's clock advances with each poll without records; a real poll takes up to 0.05 s."""


class Clock:
    def __init__(self) -> None:
        self.now = self.step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def read_by_clock(
    consumer: Consumer, ranges: Mapping[TopicPartition, OffsetRange], step: float, *, unread_first: int
) -> list[Any]:
    found: list[Any] = []
    clock = Clock()
    reading = Reading(consumer, "a cluster", ranges, ["value"], clock=clock)
    items = reading.items()
    while True:
        unread = sum(isinstance(item, Unread) for item in found)
        records = sum(len(item) for item in found if isinstance(item, SinkRecords))
        clock.step = WAITING if unread == unread_first and records < 100 else step
        try:
            item = next(items)
        except StopIteration:
            return found
        if item is not None:
            found.append(item)


Items = Generator[SinkRecords | Unread | None]


class Kafka:
    def __init__(self, cluster: MockCluster, client_id: str = "") -> None:
        made = KafkaReader(KafkaClient(cluster.bootstrap))
        self._reader = pickle.loads(pickle.dumps(made))  # noqa: S301 - our own
        self._overrides = {"client.id": client_id} if client_id else {}

    def read(self, ranges: Mapping[TopicPartition, OffsetRange]) -> Items:
        return self._reader.read(ranges, RECORD_COLUMNS, self._overrides)


def kafka(cluster: MockCluster, client_id: str = "") -> Kafka:
    return Kafka(cluster, client_id)


def read(made: Kafka, ranges: Mapping[TopicPartition, OffsetRange]) -> list[Any]:
    return [item for item in made.read(ranges) if item is not None]


def values(found: list[Any], partition: TopicPartition) -> list[bytes]:
    batches = [item.arrow for item in found if item.partition == partition and isinstance(item, SinkRecords)]
    return pa.Table.from_batches(batches).column("value").to_pylist() if batches else []


def test_ranges_are_read_one_after_the_other(cluster: MockCluster, topic: str) -> None:
    ranges = {TopicPartition(topic, n): OffsetRange(10 * n, 100 - n) for n in range(4)}
    ranges[TopicPartition(topic, 0)] = OffsetRange(5, 5)
    found = read(kafka(cluster), ranges)
    assert values(found, TopicPartition(topic, 0)) == []
    for partition, offsets in list(ranges.items())[1:]:
        assert values(found, partition) == [b"%d" % offset for offset in range(*offsets)]
    order = [partition for partition, _ in itertools.groupby(item.partition for item in found)]
    assert order == list(ranges)[1:]


@pytest.mark.extended
def test_hundreds_of_small_ranges_take_seconds(cluster: MockCluster) -> None:
    name = f"many-{next(NUMBERS)}"
    cluster.create(name, 200)
    for number in range(200):
        cluster.produce(name, number, [{"value": b"a"}, {"value": b"b"}, {"value": b"c"}])
    began = time.monotonic()
    found = read(kafka(cluster), {TopicPartition(name, n): OffsetRange(0, 3) for n in range(200)})
    assert sum(map(len, found)) == 600
    assert time.monotonic() - began < 10


def test_consumer_is_reused_by_the_next_generation(
    cluster: MockCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Mapping[str, str]] = []

    class Counted(Consumer):
        def __init__(self, properties: Mapping[str, str]) -> None:
            made.append(properties)
            super().__init__(properties)

    monkeypatch.setattr(reader, "Consumer", Counted)
    one, partition = kafka(cluster, client_id="kept"), TopicPartition(topic, 1)
    for start in (50, 0, 99):
        found = read(one, {partition: OffsetRange(start, 100)})
        assert values(found, partition) == [b"%d" % offset for offset in range(start, 100)]
    assert len(made) == 1


def test_pool_keeps_the_last_two_consumers(
    cluster: MockCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []

    class Counted(Consumer):
        def __init__(self, properties: Mapping[str, str]) -> None:
            self.name = properties["client.id"]
            super().__init__(properties)

        def close(self) -> None:
            closed.append(self.name)
            super().close()

    monkeypatch.setattr(reader, "Consumer", Counted)
    for name in ("a", "b", "a", "c", "d"):
        assert len(read(kafka(cluster, name), {TopicPartition(topic, 0): OffsetRange(0, 1)})) == 1
    assert closed == ["b", "a"]


def test_concurrent_tasks_do_not_share_a_consumer(cluster: MockCluster, topic: str) -> None:
    one, partition = kafka(cluster), TopicPartition(topic, 1)
    first = one.read({partition: OffsetRange(0, 100)})
    began = next(item for item in first if item is not None)
    assert values(read(one, {partition: OffsetRange(40, 60)}), partition)[0] == b"40"
    rest = [item for item in first if item is not None]
    assert len(values([began, *rest], partition)) == 100


def test_closed_reading_leaves_a_reusable_consumer(cluster: MockCluster, topic: str) -> None:
    one, partition = kafka(cluster, client_id="closed"), TopicPartition(topic, 1)
    for _ in range(3):
        items = one.read({partition: OffsetRange(0, 1_000_000)})
        next(item for item in items if item is not None)
        items.close()
    assert len(values(read(one, {partition: OffsetRange(0, 100)}), partition)) == 100


def test_reader_yields_none_while_no_record_arrives(cluster: MockCluster, topic: str) -> None:
    items = kafka(cluster).read({TopicPartition(topic, 2): OffsetRange(100, 101)})
    began = time.monotonic()
    assert [next(items) for _ in range(5)] == [None] * 5
    assert time.monotonic() - began < 2


def test_offset_out_of_range_ends_only_its_range(cluster: MockCluster, topic: str) -> None:
    gone, there = TopicPartition(topic, 0), TopicPartition(topic, 3)
    found = read(kafka(cluster), {gone: OffsetRange(5_000, 5_010), there: OffsetRange(0, 100)})
    (lost,) = [item for item in found if isinstance(item, Unread)]
    assert (lost.partition, type(lost.error)) == (gone, OffsetOutOfRangeException)
    assert f"{gone} at offset 5000 of [5000, 5010)" in str(lost.error)
    assert len(values(found, there)) == 100


def test_authorization_failure_ends_its_range_with_kafkas_error() -> None:
    partition = TopicPartition("denied", 0)
    with mock_cluster() as own:
        own.create("denied", 1)
        own.fail(FETCH, [29] * 1_000)  # TOPIC_AUTHORIZATION_FAILED
        (refused,) = read(kafka(own), {partition: OffsetRange(0, 1)})
    assert type(refused.error) is ConnectException
    assert "TOPIC_AUTHORIZATION_FAILED" in str(refused.error)


def test_silent_range_is_given_up_after_30_seconds(cluster: MockCluster, topic: str) -> None:
    moments = itertools.count(0.0, 10.0)
    partition = TopicPartition(topic, 2)
    with Consumer({"bootstrap.servers": cluster.bootstrap}) as consumer:
        ranges = {partition: OffsetRange(100, 101)}
        reading = Reading(consumer, cluster.bootstrap, ranges, ["value"], clock=lambda: next(moments))
        *waited, told = list(reading.items())
    assert set(waited) <= {None}
    assert type(told.error) is RetriableException
    assert f"{partition} at offset 100 of [100, 101)" in str(told.error)
    assert "has sent nothing for 30 s" in str(told.error)


def test_second_silent_range_is_given_up_after_10_seconds(cluster: MockCluster, topic: str) -> None:
    silent, again, there = (TopicPartition(topic, number) for number in range(3))
    with Consumer({"bootstrap.servers": cluster.bootstrap}) as consumer:
        ranges = {silent: OffsetRange(100, 101), again: OffsetRange(100, 101), there: OffsetRange(0, 100)}
        found = read_by_clock(consumer, ranges, 2.0, unread_first=2)
    first, second = (str(item.error) for item in found if isinstance(item, Unread))
    assert f"{silent} at" in first
    assert "nothing for 30 s" in first
    assert f"{again} at" in second
    assert "nothing for 10 s" in second
    assert sum(len(item) for item in found if isinstance(item, SinkRecords)) == 100


def test_transaction_markers_count_as_activity_of_a_range(cluster: MockCluster, topic: str) -> None:
    # Regression: a range that began with many aborted records was never read.
    moments = itertools.count(0.0, 10.0)
    ends = itertools.chain(range(20), itertools.repeat(19))

    class Aborted(Consumer):
        def position(self, partition: TopicPartition) -> int:
            return next(ends)

    partition = TopicPartition(topic, 2)
    with Aborted({"bootstrap.servers": cluster.bootstrap}) as consumer:
        ranges = {partition: OffsetRange(100, 101)}
        reading = Reading(consumer, cluster.bootstrap, ranges, ["value"], clock=lambda: next(moments))
        *waited, told = list(reading.items())
    assert "has sent nothing for 30 s" in str(told.error)
    assert 19 + 2 <= len(waited) <= 19 + 3


def test_refused_login_is_forgotten_when_records_arrive(cluster: MockCluster, topic: str) -> None:
    # Regression: after a refusal some hours ago, ten silent seconds ended a range.
    faults = [KafkaError(-169, "the password is wrong")]

    class Refused(Consumer):
        def errors(self) -> list[KafkaError]:
            return [faults.pop()] if faults else []

    silent, there = TopicPartition(topic, 1), TopicPartition(topic, 2)
    with Refused({"bootstrap.servers": cluster.bootstrap}) as consumer:
        ranges = {silent: OffsetRange(100, 101), there: OffsetRange(0, 101)}
        found = read_by_clock(consumer, ranges, 5.0, unread_first=1)
    assert len(values(found, there)) == 100
    found = [item for item in found if isinstance(item, Unread)]
    assert [type(item.error) for item in found] == [ConnectException, RetriableException]


def seconds_to_stop(reading: Items) -> float:
    ahead = ReadAhead(reading)
    time.sleep(0.12)
    began = time.perf_counter()
    ahead.close()
    assert not ahead._thread.is_alive()
    return time.perf_counter() - began


@pytest.mark.parametrize("where", ["nothing comes", "nobody takes what came", "no broker is there"])
def test_reader_stops_within_100_ms(cluster: MockCluster, topic: str, where: str) -> None:
    # On a busy machine, most attempts take longer.
    servers = "127.0.0.1:1" if where == "no broker is there" else cluster.bootstrap
    made = KafkaReader(KafkaClient(servers))
    ranges = {TopicPartition(topic, n): OffsetRange(0, 100) for n in range(4)}
    if where == "nothing comes":
        ranges = {TopicPartition(topic, 2): OffsetRange(100, 101)}
    taken = [seconds_to_stop(made.read(ranges, RECORD_COLUMNS, {})) for _ in range(5)]
    assert min(taken) < 0.1, taken
    assert statistics.median(taken) < 0.5, taken


def test_reader_stops_within_100_ms_during_a_batch(cluster: MockCluster) -> None:
    name = f"large-{next(NUMBERS)}"
    cluster.create(name, 1)
    cluster.produce(name, 0, ({"value": b"x" * 100} for _ in range(30_000)))
    made, ranges = (
        KafkaReader(KafkaClient(cluster.bootstrap)),
        {TopicPartition(name, 0): OffsetRange(0, 30_000)},
    )
    taken = []
    for delay in (0.0, 0.01, 0.02, 0.03, 0.05):
        ahead = ReadAhead(made.read(ranges, RECORD_COLUMNS, {}))
        time.sleep(delay)
        began = time.perf_counter()
        ahead.close()
        taken.append(time.perf_counter() - began)
    assert min(taken) < 0.1, taken
    assert statistics.median(taken) < 0.5, taken


def test_refused_login_ends_a_silent_range_with_its_reason(cluster: MockCluster, topic: str) -> None:
    fault = KafkaError(-169, "the password is wrong")

    class Refused(Consumer):
        def errors(self) -> list[KafkaError]:
            return [fault]

    there, silent = TopicPartition(topic, 1), TopicPartition(topic, 2)
    with Refused({"bootstrap.servers": cluster.bootstrap}) as consumer:
        ranges = {there: OffsetRange(0, 100), silent: OffsetRange(100, 101)}
        found = read_by_clock(consumer, ranges, 1.0, unread_first=0)
    assert len(values(found, there)) == 100
    assert type(found[-1].error) is ConnectException
    assert "the password is wrong (_AUTHENTICATION); check the client properties" in str(found[-1].error)


@pytest.mark.parametrize(
    ("fault", "is_kept"), [("_TRANSPORT", True), ("_ALL_BROKERS_DOWN", False)], ids=["one broker", "all"]
)
def test_a_consumer_that_lost_all_brokers_while_idle_is_replaced(
    cluster: MockCluster, fault: str, is_kept: bool
) -> None:
    # An idle consumer may never find a broker again (confluentinc/librdkafka#5301).
    pool, faults = reader._Consumers(), list[KafkaError]()

    class Faulty(Consumer):
        def errors(self) -> list[KafkaError]:
            return [*super().errors(), *faults]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reader, "Consumer", Faulty)
        with pool.lend({"bootstrap.servers": cluster.bootstrap}) as lent:
            first = lent.consumer
        faults.append(KafkaError(getattr(KafkaError, fault)))
        with pool.lend({"bootstrap.servers": cluster.bootstrap}) as lent:
            assert (lent.consumer is first) == is_kept
    lent.consumer.close()


def test_consumer_with_an_unread_range_is_not_reused(
    cluster: MockCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Regression: a consumer that mistook a topic created again for the old one was reused by every
    # generation.
    made: list[Consumer] = []

    class Counted(Consumer):
        def __init__(self, properties: Mapping[str, str]) -> None:
            made.append(self)
            super().__init__(properties)

    monkeypatch.setattr(reader, "Consumer", Counted)
    one, partition = kafka(cluster, client_id="deaf"), TopicPartition(topic, 1)
    (unread,) = read(one, {partition: OffsetRange(5_000, 5_001)})
    assert isinstance(unread, Unread)
    assert len(values(read(one, {partition: OffsetRange(0, 100)}), partition)) == 100
    assert len(made) == 2


def test_group_authorization_failure_leaves_a_silent_range_retriable(
    cluster: MockCluster, topic: str
) -> None:
    # Regression: without the right to the group, which no reader joins, ten silent seconds failed a range.
    denied = KafkaError(30, "no such right")

    class Denied(Consumer):
        def errors(self) -> list[KafkaError]:
            return [denied]

    moments = itertools.count(0.0, 5.0)
    silent = TopicPartition(topic, 1)
    with Denied({"bootstrap.servers": cluster.bootstrap}) as consumer:
        ranges = {silent: OffsetRange(100, 101)}
        reading = Reading(consumer, cluster.bootstrap, ranges, ["value"], clock=lambda: next(moments))
        *_, told = reading.items()
    assert type(told.error) is RetriableException
    assert "GROUP_AUTHORIZATION_FAILED" in str(told.error)
