"""Clients of a broker that is frozen repeatedly, and is slow after it wakes; no Spark.

A broker that was frozen for longer than its session is fenced when it wakes: until it has registered again, it
responds that there are no brokers. The slower it is, the more clients get that response.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Self

import pytest

from sinksdk import RetriableException, TopicPartition
from sinksdk.topics import Subscription
from sinksdk.topics.kafka import ConsumerGroup, KafkaClient, KafkaSource
from sinksdk.topics.kafka.cluster import Cluster
from sinksdk.topics.kafka.renewal import RENEW_AFTER, REPEAT_AFTER
from tests.helpers.depth import DEPTH
from tests.kafka.broker import Broker, serving
from tests.kafka.topics import create_topic

pytestmark = [pytest.mark.extended, pytest.mark.slow]

_IS_LONG = DEPTH.name == "nightly"
CLIENTS, FREEZES = (60, 20) if _IS_LONG else (16, 3)
SESSION = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
FROZEN = 3.0  # seconds, longer than the session
_SLOW = 4.0  # seconds after the wake during which the broker stops repeatedly
_SLOWNESS = (0.14, 0.19, 0.06, 0.1)  # lengths of these stops in seconds
_BETWEEN = 0.1  # seconds between two requests of a client
_RECOVERY = RENEW_AFTER + REPEAT_AFTER  # seconds: the first request of a new client may have to be repeated


class Probes:
    def __init__(self, calls: list[Callable[[], object]]) -> None:
        self.responded = [0.0] * len(calls)
        self.unexpected: list[Exception] = []
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number, call), daemon=True)
            for number, call in enumerate(calls)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(_RECOVERY)

    def without_response_since(self, moment: float) -> list[int]:
        return [number for number, at in enumerate(self.responded) if at < moment]

    def _run(self, number: int, call: Callable[[], object]) -> None:
        while not self._ended.wait(_BETWEEN):
            began = time.monotonic()
            try:
                call()
            except RetriableException:
                continue
            except Exception as error:  # noqa: BLE001 - reported by the test
                self.unexpected.append(error)
                return
            self.responded[number] = began


@pytest.fixture
def broker() -> Iterator[Broker]:
    with serving(SESSION) as made:
        yield made


def test_every_client_gets_responses_again_after_each_freeze(broker: Broker) -> None:
    # Regression: some clients never got a response again in their process.
    topics = [create_topic(broker.bootstrap, f"t{number}", 2) for number in range(CLIENTS)]
    with Probes([view(broker, topic, number) for number, topic in enumerate(topics)]) as views:
        until(lambda: not views.without_response_since(0.001), 60)
        for freeze in range(FREEZES):
            os.kill(broker.pid, signal.SIGSTOP)
            time.sleep(FROZEN)
            woken = wake_slowly(broker, _SLOWNESS[freeze % 4])
            # The time limit is three times the usual recovery, because a stuck client never recovers.
            until(lambda since=woken: not views.without_response_since(since), 3 * _RECOVERY)  # type: ignore[misc]
            stuck = views.without_response_since(woken)
            assert not stuck, f"after freeze {freeze + 1}, {len(stuck)} of {CLIENTS} get no response: {stuck}"
    assert not views.unexpected


def view(broker: Broker, topic: str, number: int) -> Callable[[], object]:
    """Requests of one client: a driver's for its plan, for topic ids alone, or for a consumer group's offsets.

    With topic ids alone, requests of the admin client itself wait in the frozen broker.
    """
    source = KafkaSource(KafkaClient(broker.bootstrap))
    cluster = source.cluster
    if number % 4 == 0:
        return lambda: (source.partitions(Subscription((topic,))), source.topic_ids([topic]))
    if number % 4 == 1:
        group = ConsumerGroup(cluster, f"connect-{number}")
        return lambda: (group.write({TopicPartition(topic, 0): 0}), group.offsets([TopicPartition(topic, 0)]))
    known = known_partitions(cluster, topic)
    cluster.partitions = lambda _: known  # type: ignore[method-assign]
    return lambda: cluster.topic_ids([topic])


def known_partitions(cluster: Cluster, topic: str) -> dict[str, list[TopicPartition]]:
    # If many clients start at the same time, the first response may be late.
    deadline = time.monotonic() + 60
    while True:
        try:
            return cluster.partitions([topic])
        except RetriableException:
            if time.monotonic() > deadline:
                raise


def wake_slowly(broker: Broker, pause: float) -> float:
    woken = time.monotonic()
    os.kill(broker.pid, signal.SIGCONT)
    while time.monotonic() - woken < _SLOW:
        time.sleep(0.01)
        os.kill(broker.pid, signal.SIGSTOP)
        time.sleep(pause)
        os.kill(broker.pid, signal.SIGCONT)
    return time.monotonic()


def until(is_done: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not is_done() and time.monotonic() < deadline:
        time.sleep(0.1)
