"""The lag that is reported, compared with the broker's, in every state of a connector."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sinksdk import (
    BatchPolicy,
    ConnectException,
    ConnectorConfig,
    RetriableException,
    SinkConnector,
    SinkRecords,
    SinkTask,
)
from sinksdk.control import ends
from sinksdk.control.herder import Herder
from sinksdk.control.progress import Listener
from sinksdk.control.shown import ConnectorInfo
from sinksdk.launch.deployment import Deployment, PreparedSink
from sinksdk.launch.topics import KafkaTopics
from sinksdk.spark.options import SparkSettings
from sinksdk.store import Store, open_store
from sinksdk.store.ledger import current_plan
from sinksdk.store.records import GenerationPlan
from sinksdk.topics import Subscription
from sinksdk.topics.kafka import KafkaClient, KafkaSource
from tests.kafka.topics import create_topic, produce, unused_name

pytestmark = [pytest.mark.extended, pytest.mark.slow]

RIGHT = 5.0  # seconds within which the reported lag must be correct
SLOW = 15.0  # further seconds on a busy machine
PATIENCE = 30.0  # seconds


class Task(SinkTask):
    def put(self, records: SinkRecords) -> None:
        raise AssertionError(records)


class Sink(SinkConnector):
    task_class = Task
    config_class = ConnectorConfig
    happens: type[Exception] | None = None

    def start(self, config: ConnectorConfig) -> None:
        if Sink.happens is not None:
            raise Sink.happens("the system it writes to is away")

    def batch_policy(self, config: ConnectorConfig) -> BatchPolicy:
        return BatchPolicy(max_records=100, max_wait=None)


class Running:
    # The tasks of this generation read until they must close, and commit nothing.
    def __init__(self, store: Store, generation: int) -> None:
        self.store = store
        self.generation = generation
        self.is_cancelled = False

    def wait(self, timeout: float) -> bool:
        time.sleep(timeout)
        plan = current_plan(self.store, "c", self.generation)
        return self.is_cancelled or plan is None or plan.closing is not None

    def results(self) -> Sequence[Any]:
        return ()

    def cancel(self) -> None:
        self.is_cancelled = True


class Scene:
    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.topic = create_topic(bootstrap, unused_name("lag"), 2)
        self.store = open_store(f"sqlite:///{folder}/store.sqlite", create=True)
        self.herder = Herder(self.store)
        self.launched = threading.Event()
        self.broker = KafkaSource(KafkaClient(bootstrap))
        spark = SparkSettings("local[1]")
        self.deployment = Deployment(KafkaTopics(bootstrap), self.store, self.store.url, spark)

    def launcher(self, ready: PreparedSink) -> Scene:
        return self

    def launch(self, plan: GenerationPlan) -> Running:
        self.launched.set()
        return Running(self.store, plan.generation)

    def source_launcher(self, ready: Any) -> Any:
        raise AssertionError(ready)

    def write(self, records: int) -> None:
        for partition in (0, 1):
            produce(self.bootstrap, self.topic, [b"v"] * records, partition=partition)

    def info(self) -> ConnectorInfo:
        return self.herder.info("c")

    def await_state(self, state: str) -> None:
        until(lambda: self.info().state == state, PATIENCE, f"it is {state}")

    def lag_at_the_broker(self) -> int:
        # The connector has no commit yet.
        return sum(r.end for r in self.broker.partitions(Subscription((self.topic,))).values())

    def expect_right_lag(self, state: str) -> None:
        self.write(7)
        expected = self.lag_at_the_broker()
        until(lambda: self.info().lag == expected, RIGHT + SLOW, f"{state}: a lag of {expected}")
        assert self.info().state == state


def until(condition: Callable[[], bool], patience: float, what: str) -> None:
    give_up = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < give_up, f"not within {patience:g} s: {what}"
        time.sleep(0.1)


@pytest.fixture
def scene(bootstrap: str, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(bootstrap, tmp_path)
    made.herder.create(
        "c", {"name": "c", "connector.class": f"{__name__}:Sink", "topics": made.topic, "tasks.max": "1"}
    )
    worker = made.deployment.worker("c", made, Listener())
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    yield made
    Sink.happens = None
    worker.close()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    made.store.close()


def test_lag_is_correct_within_five_seconds_in_every_state(scene: Scene) -> None:
    assert ends.QUERY_INTERVAL + ends._WRITE_INTERVAL < RIGHT
    scene.await_state("RUNNING")
    scene.expect_right_lag("RUNNING")
    assert not scene.launched.is_set()

    scene.write(100)
    assert scene.launched.wait(PATIENCE)
    scene.expect_right_lag("RUNNING")
    scene.expect_right_lag("RUNNING")

    scene.herder.pause("c")
    scene.await_state("PAUSED")
    scene.expect_right_lag("PAUSED")

    scene.herder.stop("c")
    scene.await_state("STOPPED")
    scene.expect_right_lag("STOPPED")

    Sink.happens = RetriableException
    scene.herder.resume("c")
    scene.await_state("RESTARTING")
    scene.expect_right_lag("RESTARTING")

    Sink.happens = ConnectException
    scene.herder.restart("c")
    scene.await_state("FAILED")
    scene.expect_right_lag("FAILED")
