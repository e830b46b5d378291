from __future__ import annotations

import json
import operator
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource

from sinksdk import ConfigException, ConnectException, FencedException, RetriableException
from sinksdk.engine.clock import SystemClock
from sinksdk.engine.options import TaskName
from sinksdk.engine.worker_source_task import WorkerSourceTask
from sinksdk.model.outcome import End
from sinksdk.source import SourceConnectorConfig, SourceRecord
from sinksdk.support.threads import SystemThreads
from sinksdk.topics.kafka import KafkaClient, KafkaOffsets, KafkaWriter, ensure_offsets_topic
from sinksdk.topics.kafka.offsets import offset_record, parsed_key, parsed_offset
from tests.engine.sources import Script, lines
from tests.kafka.broker import serving
from tests.kafka.topics import await_decided, consume, consume_decided, create_topic, unused_name
from tests.topics.writer_contract import Place, WriterContract, at, write

pytestmark = pytest.mark.slow


class Cluster:
    def __init__(self, bootstrap: str, **settings: str) -> None:
        self.bootstrap = bootstrap
        self.prefix = unused_name("source")
        for name in ("a", "b"):
            create_topic(bootstrap, self.topic(name))
        self.raw = {
            "name": "files",
            "group.id": self.prefix,
            "offsets.storage.topic": f"{self.prefix}-offsets",
            "offset.storage.partitions": "3",
            **settings,
        }
        self.config = SourceConnectorConfig.parse(self.raw)
        self.client = KafkaClient(bootstrap)
        assert ensure_offsets_topic(self.config, self.client)

    def topic(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def writer(self, task: int = 0) -> KafkaWriter:
        return KafkaWriter.of(self.config, self.client, TaskName("files", task))

    def offsets(self, connector: str = "files") -> KafkaOffsets:
        config = SourceConnectorConfig.parse({**self.raw, "name": connector})
        return KafkaOffsets.of(config, self.client)

    def visible(self, topic: str) -> list[bytes | None]:
        return [record.value for record in consume(self.bootstrap, self.topic(topic))]

    def values(self, topic: str) -> list[bytes | None]:
        return [record.value for record in consume_decided(self.bootstrap, self.topic(topic))]


@pytest.fixture
def place(bootstrap: str) -> Cluster:
    return Cluster(bootstrap)


class TestKafka(WriterContract):
    @pytest.fixture
    def place(self, bootstrap: str) -> Place:
        return Cluster(bootstrap)


def test_offsets_topic_is_compacted_and_in_connects_format(bootstrap: str, place: Cluster) -> None:
    assert not ensure_offsets_topic(place.config, place.client)
    topic = place.config.offsets_storage_topic
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_configs([resource])[resource].result(30)
    assert described["cleanup.policy"].value == "compact"

    writer = place.writer()
    writer.init()
    write(place, writer, [b"1"], [at(1)])
    (record,) = consume_decided(bootstrap, topic)
    assert (record.key, record.value) == (b'["files",{"file":"x"}]', b'{"line":1}')
    writer.close()


def test_offsets_topic_with_more_replicas_than_brokers_is_refused(place: Cluster) -> None:
    raw = {**place.raw, "offsets.storage.topic": unused_name(), "offset.storage.replication.factor": "3"}
    with pytest.raises(
        ConfigException, match=r"1 broker; set 'offset.storage.replication.factor' to at most 1"
    ):
        ensure_offsets_topic(SourceConnectorConfig.parse(raw), place.client)


def test_missing_offsets_topic_returns_no_offsets(place: Cluster) -> None:
    config = SourceConnectorConfig.parse({**place.raw, "offsets.storage.topic": unused_name()})
    reader = KafkaOffsets.of(config, place.client)
    assert reader.offset({"file": "x"}) is None
    reader.close()
    with pytest.raises(ConnectException, match="the reader of its source offsets is closed"):
        reader.offset({"file": "x"})


def test_offsets_written_by_connect_are_read(bootstrap: str, place: Cluster) -> None:
    topic = place.config.offsets_storage_topic
    producer = Producer({"bootstrap.servers": bootstrap})
    for key, value in [
        (b'["files", {"b": 1, "a": 2}]', b'{"pos": 1}'),
        (b'["files",{"a":2,"b":1}]', b'{"pos": 2}'),
        (b'["files",{"gone":1}]', b'{"pos": 3}'),
        (b'["files",{"gone":1}]', None),
        (b'["files",{"list":[1]}]', b'{"pos": 4}'),
        (b'["files",{"odd":1}]', b"17"),
        (b"no key of ours", b"{}"),
        (b'["others",{"a":2,"b":1}]', b'{"pos": 9}'),
    ]:
        producer.produce(topic, value, key, partition=0)
    producer.flush(30)
    reader = place.offsets()
    assert reader.offsets([{"a": 2, "b": 1}, {"gone": 1}, {"odd": 1}]) == [{"pos": 2}, None, None]
    reader.close()


def test_offsets_are_read_beyond_an_open_transaction(bootstrap: str, place: Cluster) -> None:
    # Another task's transaction is open; this task's committed one follows it.
    topic = place.config.offsets_storage_topic
    other = Producer({"bootstrap.servers": bootstrap, "transactional.id": unused_name("other")})
    other.init_transactions(60)
    other.begin_transaction()
    for partition in range(3):
        other.produce(topic, b'{"line": 5}', b'["files",{"file":"y"}]', partition=partition)
    other.flush(60)
    writer = place.writer()
    writer.init()
    write(place, writer, [b"1"], [at(1)])

    hasty = KafkaOffsets({"bootstrap.servers": bootstrap}, "files", topic, patience=1)
    with pytest.raises(RetriableException, match=r"could not be read to its end within 1 s"):
        hasty.offset({"file": "x"})
    hasty.close()
    reader = place.offsets()
    threading.Timer(1.0, lambda: other.commit_transaction(60)).start()
    assert reader.offsets([{"file": "x"}, {"file": "y"}]) == [{"line": 1}, {"line": 5}]
    reader.close()
    writer.close()


def test_record_for_a_missing_topic_fails_the_transaction(place: Cluster) -> None:
    config = SourceConnectorConfig.parse(place.raw)
    writer = KafkaWriter(
        {
            **KafkaWriter.of(config, place.client, TaskName("files", 0))._properties,
            "topic.metadata.propagation.max.ms": 500,
        },
        f"{place.prefix}-files-0",
        "files",
        config.offsets_storage_topic,
    )
    writer.init()
    writer.begin()
    writer.send(SourceRecord({}, {}, place.topic("a"), b"1"))
    writer.send(SourceRecord({}, {}, place.topic("gone"), b"2"))
    with pytest.raises(ConnectException, match="create the topic; connectors do not create topics") as caught:
        writer.commit([at(1)])
    assert type(caught.value) is ConnectException
    writer.abort()
    write(place, writer, [b"3"])
    assert place.values("a") == [b"3"]
    writer.close()


def test_record_that_is_too_large_fails_the_transaction(place: Cluster) -> None:
    writer = place.writer()
    writer.init()
    writer.begin()
    writer.send(SourceRecord({}, {}, place.topic("a"), b"x" * 2_000_000))
    with pytest.raises(ConnectException, match=r"raise max\.message\.bytes of the topic") as caught:
        writer.commit([])
    assert type(caught.value) is ConnectException
    writer.abort()
    writer.close()
    successor = place.writer()
    successor.init()
    write(place, successor, [b"small"])
    assert place.values("a") == [b"small"]
    successor.close()


def repeat(call: Callable[[], object]) -> None:
    # The broker may refuse a record some time after it was sent.
    for _ in range(200):
        call()
        time.sleep(0.05)


@pytest.mark.parametrize("call", ["send", "commit", "abort"])
def test_every_call_of_a_fenced_writer_raises_fencing(place: Cluster, call: str) -> None:
    old, new = place.writer(), place.writer()
    old.init()
    old.begin()
    if call != "send":
        old.send(SourceRecord({}, {}, place.topic("a"), b"1"))
    new.init()
    record = SourceRecord({}, {}, place.topic("a"), b"2")
    calls = {"send": lambda: old.send(record), "commit": lambda: old.commit([]), "abort": old.abort}
    with pytest.raises(FencedException, match=f"transactional id {place.prefix}-files-0 could not"):
        repeat(calls[call])
    with pytest.raises(FencedException):
        old.begin()
    assert place.values("a") == []
    old.close()
    new.close()


@pytest.mark.extended
def test_transaction_open_for_too_long_is_not_reported_as_fencing(bootstrap: str) -> None:
    # Kafka returns the same error in both cases.
    with serving({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}) as broker:
        place = Cluster(broker.bootstrap, **{"producer.override.transaction.timeout.ms": "5000"})
        writer = place.writer()
        writer.init()
        writer.begin()
        writer.send(SourceRecord({}, {}, place.topic("a"), b"1"))
        assert writer._live.flush(30) == 0
        # The loop ends once the broker has aborted the transaction, which has then been open for too long.
        await_decided(broker.bootstrap, place.topic("a"), 0)
        with pytest.raises(ConnectException, match=r"Kafka allows 5, .*transaction\.timeout\.ms") as caught:
            writer.commit([])
        assert type(caught.value) is ConnectException
        assert place.values("a") == []
        writer.close()


@pytest.mark.extended
def test_broker_killed_during_a_transaction_commits_it_once(tmp_path: Path) -> None:
    with serving() as broker:
        place = Cluster(broker.bootstrap)
        writer = place.writer()
        writer.init()
        write(place, writer, [b"1"], [at(1)])
        writer.begin()
        writer.send(SourceRecord({}, {}, place.topic("a"), b"2", partition=0))
        broker.kill()
        threading.Timer(2.0, broker.start).start()
        deadline = time.monotonic() + 90
        while True:
            try:
                (written,) = writer.commit([at(2)])
                break
            except RetriableException:
                assert time.monotonic() < deadline
        assert written.offset > 0
        assert place.values("a") == [b"1", b"2"]
        assert place.offsets().offset({"file": "x"}) == {"line": 2}
        writer.close()


# -- nothing is left ---------------------------------------------------------------------------------


@pytest.fixture
def nothing_is_left() -> Iterator[None]:
    def held() -> tuple[int, int]:
        threads, files = (list(Path(f"/proc/self/{what}").iterdir()) for what in ("task", "fd"))
        return len(threads), len(files)

    before = held()
    yield
    deadline = time.monotonic() + 20
    while max(map(operator.sub, held(), before)) > 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    now = held()
    assert max(map(operator.sub, now, before)) <= 0, f"{now} threads and files, {before} before"


def worker(place: Cluster, task: Script) -> WorkerSourceTask:
    name = TaskName("files", 0)
    task.worker = WorkerSourceTask(
        task,
        name,
        None,
        writer=place.writer(),
        offsets=place.offsets(),
        clock=SystemClock(),
        threads=SystemThreads(str(name)),
    )
    return task.worker


def test_stopped_task_leaves_no_connection_and_no_thread(place: Cluster, nothing_is_left: None) -> None:
    topic = place.topic("a")
    first = Script(lines(0, 1, topic=topic), lines(2, topic=topic))
    assert worker(place, first).run().end is End.STOPPED
    # Offset 2 is the transaction's marker.
    assert [m and m.offset for _, m in first.acknowledged] == [0, 1, 3]

    second = Script()
    started = second.start

    def start(config: object) -> None:
        started(config)
        second.found = second.context.offset_storage_reader().offset({"file": "a"})

    second.start = start
    assert worker(place, second).run().end is End.STOPPED
    assert second.found == {"line": 3}
    assert place.values("a") == [b"a0", b"a1", b"a2"]


def test_fenced_task_leaves_no_connection_and_no_thread(place: Cluster, nothing_is_left: None) -> None:
    topic = place.topic("a")
    task = Script(lines(0, topic=topic))

    def zombie() -> object:
        successor = place.writer()
        successor.init()
        write(place, successor, [b"successor"])
        successor.close()
        return lines(1, topic=topic)

    task.steps.append(zombie)
    assert worker(place, task).run().end is End.FENCED
    assert place.values("a") == [b"a0", b"successor"]


def test_unreachable_cluster_leaves_no_connection_and_no_thread(nothing_is_left: None) -> None:
    writer = KafkaWriter(
        {"bootstrap.servers": "127.0.0.1:1", "log_level": 2, "socket.timeout.ms": 1000},
        "id",
        "files",
        "offsets",
    )
    begun = time.monotonic()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sinksdk.topics.kafka.writer._TIMEOUT", 0.5)
        with pytest.raises(RetriableException, match="transactional id id could not be initialised"):
            writer.init()
    writer.close()
    assert time.monotonic() - begun < 10


def test_source_offsets_are_json_text() -> None:
    key, value = offset_record('a "b"', {"z": None, "ä": 1.5}, {"done": True})
    assert key.decode() == '["a \\"b\\"",{"z":null,"ä":1.5}]'
    assert json.loads(value) == {"done": True}
    assert parsed_key(key) == ('a "b"', {"z": None, "ä": 1.5})
    assert parsed_offset(value) == {"done": True}
    assert parsed_key(None) is parsed_key(b"[1]") is parsed_key(b"[1, {}]") is parsed_offset(None) is None
