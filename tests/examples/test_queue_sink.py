"""The queue exists while its connector does, and is removed when that is deleted (KIP-883)."""

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from examples import queue_sink
from examples.queue_sink import QueueConfig, QueueSink, QueueTask
from sinksdk import (
    ClosingReason,
    ConfigException,
    ConnectException,
    ConnectorConfig,
    RetriableException,
    TopicPartition,
)
from sinksdk.connector import ConnectorIdentity
from sinksdk.control.herder import Herder
from sinksdk.control.requests import ClosingSignal
from sinksdk.plugins.checks import check_file
from sinksdk.runtime.driver import ConnectorDriver
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.idle import Openers
from sinksdk.runtime.worker_connector import WorkerConnector
from sinksdk.store.records import ConnectorRecord
from sinksdk.testing import SinkTaskHarness
from sinksdk.topics import TopicDirectorySource
from tests.helpers.memory_store import MemoryStore

P0 = TopicPartition("readings", 0)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


@pytest.fixture
def raw(endpoint: str) -> dict[str, str]:
    return {
        "name": "queue",
        "connector.class": "examples.queue_sink:QueueSink",
        "topics": "readings",
        "value.converter": "json",
        "queue.prefix": f"test-{uuid.uuid4().hex[:8]}",
        "sqs.endpoint": endpoint,
        "poll.interval.ms": "10",
    }


@pytest.fixture
def sqs(endpoint: str) -> Any:
    return boto3.client("sqs", endpoint_url=endpoint, region_name="us-east-1")


# -- the task: what it sends ---------------------------------------------------------------------------


def received(sqs: Any, url: str) -> list[Any]:
    found: list[Any] = []
    while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
        found += [json.loads(message["Body"]) for message in messages]
    return found


def harness_of(raw: dict[str, str], url: str) -> SinkTaskHarness:
    harness = SinkTaskHarness(QueueTask, QueueConfig.parse({**raw, "queue.url": url}))
    harness.start()
    harness.assign(P0)
    return harness


def test_records_are_sent_and_committed(raw: dict[str, str], sqs: Any) -> None:
    url = sqs.create_queue(QueueName=raw["queue.prefix"])["QueueUrl"]
    harness = harness_of(raw, url)
    harness.deliver(P0, [json.dumps({"n": n}) for n in range(23)])
    harness.stop()

    assert harness.committed[P0].offset == 23
    found = received(sqs, url)
    assert sorted(message["offset"] for message in found) == list(range(23))
    assert found[0] == {"topic": "readings", "partition": 0, "offset": 0, "value": {"n": 0}}


def test_records_are_sent_again_after_a_crash_before_the_commit(raw: dict[str, str], sqs: Any) -> None:
    url = sqs.create_queue(QueueName=raw["queue.prefix"])["QueueUrl"]
    harness = harness_of(raw, url)
    harness.deliver(P0, ["1", "2"])
    harness.crash()
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["1", "2", "3"])
    harness.stop()

    assert sorted(message["offset"] for message in received(sqs, url)) == [0, 0, 1, 1, 2]


@pytest.mark.parametrize(("is_ours", "kind"), [(False, RetriableException), (True, ConnectException)])
def test_transient_refusals_of_the_queue_are_retried(*, is_ours: bool, kind: type[Exception]) -> None:
    class Half:
        def send_message_batch(self, **_: Any) -> Any:
            return {"Failed": [{"Id": "7", "SenderFault": is_ours, "Message": "no"}]}

    task = QueueTask()
    task.config = QueueConfig.parse({"name": "n", "topics": "t", "queue.prefix": "q", "queue.url": "u"})
    task.sqs = Half()

    with pytest.raises(kind, match="u: offset 7: no") as caught:
        task.send([])
    assert caught.type is kind


def test_an_unavailable_queue_is_retried(raw: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    task = QueueTask()
    nowhere = {"queue.url": "http://127.0.0.1:1/queue", "sqs.endpoint": "http://127.0.0.1:1"}
    task.start(QueueConfig.parse({**raw, **nowhere}))
    with pytest.raises(RetriableException, match="connect to the endpoint URL"):
        task.send([{"Id": "1", "MessageBody": "{}"}])
    task.stop()


# -- the connector: the queue's life -------------------------------------------------------------------


class Process:
    """A process that runs the connector on an empty source, as its operator requests."""

    def __init__(self, store: MemoryStore, folder: Path) -> None:
        self.store, self.folder, self.signal = store, folder, ClosingSignal()

    def driver(self, environment: Environment) -> ConnectorDriver:
        record = environment.record
        assert record is not None
        connector, config = configured(record)
        return ConnectorDriver(
            environment,
            source=TopicDirectorySource(self.folder),
            connector=connector,
            config=config,
            raw=record.config,
            launcher=None,
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        worker = WorkerConnector(
            Environment(self.store, signal=self.signal), "queue", self.driver, Openers(configured), stays=True
        )
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.signal.request(ClosingReason.SHUTDOWN)
            thread.join(10)
            assert not thread.is_alive()


def configured(record: ConnectorRecord) -> tuple[QueueSink, ConnectorConfig]:
    return QueueSink(), QueueConfig.parse(record.config)


@pytest.fixture
def process(tmp_path: Path) -> Process:
    (tmp_path / "topic=readings" / "partition=0").mkdir(parents=True)
    return Process(MemoryStore(), tmp_path)


@pytest.fixture
def herder(process: Process) -> Herder:
    return Herder(process.store)


@pytest.fixture
def queues(sqs: Any, raw: dict[str, str]) -> Callable[[], Sequence[str]]:
    def found() -> list[str]:
        urls = sqs.list_queues(QueueNamePrefix=raw["queue.prefix"]).get("QueueUrls", [])
        return [url.rpartition("-")[2] for url in urls]

    return found


def soon(condition: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up, what
        time.sleep(0.02)


def becomes(herder: Herder, state: str) -> None:
    soon(lambda: herder.info("queue").state == state, f"it is {herder.info('queue').state}, not {state}")


@pytest.mark.slow
def test_the_queue_is_kept_until_the_connector_is_deleted(
    process: Process, herder: Herder, raw: dict[str, str], queues: Callable[[], Sequence[str]]
) -> None:
    mine = [herder.create("queue", raw).incarnation]
    with process.running():
        soon(lambda: queues() == mine, "the queue was not made")
        for wish, state in ((herder.pause, "PAUSED"), (herder.resume, "RUNNING"), (herder.stop, "STOPPED"),
                            (herder.resume, "RUNNING")):  # fmt: skip
            wish("queue")
            becomes(herder, state)
            assert queues() == mine
        herder.configure("queue", {**raw, "tasks.max": "3"})
        herder.restart("queue")
        herder.rebalance("queue")
        becomes(herder, "RUNNING")
    assert queues() == mine
    process.signal = ClosingSignal()
    with process.running():
        becomes(herder, "RUNNING")
        herder.delete("queue")
        soon(lambda: herder.connectors() == [], "it was not deleted")
    assert queues() == []


def test_deletion_of_a_paused_connector_removes_its_queue(
    process: Process, herder: Herder, raw: dict[str, str], queues: Callable[[], Sequence[str]]
) -> None:
    herder.create("queue", raw)
    with process.running():
        soon(lambda: len(queues()) == 1, "the queue was not made")
        herder.pause("queue")
        becomes(herder, "PAUSED")
    process.signal = ClosingSignal()
    herder.delete("queue")
    with process.running():
        soon(lambda: herder.connectors() == [], "it was not deleted")
    assert queues() == []


def test_a_connector_created_again_keeps_its_own_queue(
    process: Process, herder: Herder, raw: dict[str, str], queues: Callable[[], Sequence[str]]
) -> None:
    old = QueueSink()
    herder.create("queue", raw)
    with process.running():
        soon(lambda: len(queues()) == 1, "the queue was not made")
        herder.delete("queue")
        soon(lambda: herder.connectors() == [], "it was not deleted")
    process.signal = ClosingSignal()
    new = herder.create("queue", raw)
    with process.running():
        soon(lambda: list(queues()) == [new.incarnation], "the queue was not made")
        old.identity = identity("of-the-old-one")
        old.start(QueueConfig.parse(raw))
        old.stop(is_deleted=True)
        assert list(queues()) == [new.incarnation]


def identity(incarnation: str) -> ConnectorIdentity:
    return ConnectorIdentity("store", "queue", incarnation)


def test_clean_up_is_idempotent(raw: dict[str, str], queues: Callable[[], Sequence[str]]) -> None:
    connector = QueueSink()
    connector.identity = identity("mine")
    connector.start(QueueConfig.parse(raw))
    assert list(queues()) == ["mine"]
    for _ in range(2):
        again = QueueSink()
        again.identity = identity("mine")
        again.config, again.sqs = connector.config, connector.config.connect()
        again.stop(is_deleted=True)
        assert list(queues()) == []
    QueueSink().stop(is_deleted=True)
    broken = QueueSink()
    broken.identity = identity("mine")
    with pytest.raises(ConfigException, match="cannot create the queue"):
        broken.start(QueueConfig.parse({**raw, "sqs.region": "no such region"}))
    broken.stop(is_deleted=True)


def test_the_example_configuration_is_startable() -> None:
    checked = check_file(Path(queue_sink.__file__).with_suffix(".json"))
    assert (checked.problems, checked.warnings) == ([], [])
