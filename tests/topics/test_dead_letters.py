from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sinksdk import ConfigException, ConnectException, ConnectorConfig, Header, SinkRecord
from sinksdk.topics.kafka.client import KafkaClient, producer_properties
from sinksdk.topics.kafka.dead_letters import KafkaDeadLetters, dead_letter_client
from sinksdk.worker.outside import open_dead_letters

RECORD = SinkRecord(
    "flights", 3, 17, key=b"k", value=b"v", timestamp=5, headers=(Header("a", b"1"), Header("a", None))
)
Report = Callable[[KafkaError | None, None], None]


class FakeProducer:
    def __init__(self, error: int | None = None, room: int = 1_000, refusal: int | None = None) -> None:
        self.error = error
        self.room = room
        self.refusal = refusal
        self.messages: list[dict[str, Any]] = []
        self.waiting: list[Report] = []

    def __call__(self, properties: dict[str, Any]) -> FakeProducer:
        self.properties = properties
        return self

    def produce(self, topic: str, on_delivery: Report, **message: Any) -> None:
        if self.refusal is not None:
            raise KafkaException(KafkaError(self.refusal))
        if len(self.waiting) >= self.room:
            raise BufferError
        self.messages.append({"topic": topic, **message})
        self.waiting.append(on_delivery)

    def poll(self, seconds: float) -> int:
        time.sleep(0.001)
        waiting, self.waiting = self.waiting, []
        for report in waiting:
            report(None if self.error is None else KafkaError(self.error), None)
        return len(waiting)

    def flush(self, seconds: float) -> int:
        return self.poll(seconds)


@pytest.fixture
def opened() -> Iterator[Callable[[FakeProducer], KafkaDeadLetters]]:
    letters: list[KafkaDeadLetters] = []

    def open_with(producer: FakeProducer) -> KafkaDeadLetters:
        letters.append(KafkaDeadLetters("bad", {"acks": "all"}, producer))
        return letters[-1].__enter__()

    yield open_with
    for each in letters:
        each.__exit__()


Opened = Callable[[FakeProducer], KafkaDeadLetters]


def configured(**more: str) -> ConnectorConfig:
    raw = {"name": "c", "topics": "t", "errors.deadletterqueue.topic.name": "bad", **more}
    return ConnectorConfig.parse(raw)


def test_dead_letter_keeps_key_value_headers_and_timestamp(opened: Opened) -> None:
    producer = FakeProducer()
    opened(producer).send(RECORD).result(5)
    assert producer.messages == [
        {
            "topic": "bad",
            "key": b"k",
            "value": b"v",
            "headers": [("a", b"1"), ("a", None)],
            "timestamp": 5,
        }
    ]


def test_dead_letter_keeps_null_key_and_value(opened: Opened) -> None:
    producer = FakeProducer()
    opened(producer).send(SinkRecord("t", 0, 0)).result(5)
    assert producer.messages == [{"topic": "bad", "key": None, "value": None}]


def test_future_of_a_dead_letter_completes_when_it_is_written(opened: Opened) -> None:
    producer = FakeProducer()
    held: list[Report] = []
    producer.poll = lambda seconds: time.sleep(0.001) or 0  # type: ignore[method-assign, func-returns-value]  # slowly, nothing
    letter = opened(producer).send(RECORD)
    time.sleep(0.02)
    assert not letter.done()
    assert not letter.cancel(), "it is on its way"
    held += producer.waiting
    held[0](None, None)
    assert letter.result(5) is None


def test_send_waits_for_a_full_producer_queue(opened: Opened) -> None:
    producer = FakeProducer(room=1)
    letters = opened(producer)
    futures: list[Future[None]] = [letters.send(SinkRecord("t", 0, i, value=b"%d" % i)) for i in range(20)]
    assert [future.result(5) for future in futures] == [None] * 20
    assert [message["value"] for message in producer.messages] == [b"%d" % i for i in range(20)]


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, "raise max.message.bytes of the topic"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "create the topic again"),
        (KafkaError._MSG_TIMED_OUT, "check whether the cluster responds"),
        (KafkaError.NETWORK_EXCEPTION, ""),
    ],
)
@pytest.mark.parametrize("at", ["error", "refusal"])
def test_dead_letter_that_cannot_be_written_names_record_topic_and_remedy(
    opened: Opened, code: int, remedy: str, at: str
) -> None:
    letter = opened(FakeProducer(**{at: code})).send(RECORD)
    with pytest.raises(ConnectException) as caught:
        letter.result(5)
    told = str(caught.value)
    assert told.startswith(
        "the record of flights-3 at offset 17 could not be written to the dead letter topic 'bad'"
    )
    assert told.endswith(remedy)


def test_producer_is_created_for_the_first_dead_letter() -> None:
    made = []
    with KafkaDeadLetters("bad", {}, lambda properties: made.append(properties) or FakeProducer()) as letters:
        assert made == []
        for _ in range(2):
            letters.send(RECORD).result(5)
    assert len(made) == 1


def test_wrong_producer_properties_are_a_config_exception() -> None:
    with (
        KafkaDeadLetters("bad", {"bootstrap.servers": "localhost:1", "linger.ms": "soon"}) as letters,
        pytest.raises(ConfigException, match=r"check 'producer.override.…'"),
    ):
        letters.send(RECORD)


# -- configuration -----------------------------------------------------------------------------------


def test_overrides_do_not_change_durability() -> None:
    config = configured(
        **{
            "producer.override.acks": "0",
            "producer.override.enable.idempotence": "false",
            "producer.override.compression.type": "zstd",
            "producer.override.max.request.size": "2000000",
            "producer.override.delivery.timeout.ms": "30000",
            "producer.override.security.protocol": "SSL",
            "producer.override.interceptor.classes": "x.Y",
        }
    )
    properties = producer_properties(config, KafkaClient("a:1"))
    assert (properties["acks"], properties["enable.idempotence"]) == ("all", True)
    assert properties["bootstrap.servers"] == "a:1"
    assert properties["compression.type"] == "zstd"
    assert properties["message.max.bytes"] == "2000000"
    assert properties["delivery.timeout.ms"] == "30000"
    assert properties["security.protocol"] == "SSL"
    assert "interceptor.classes" not in properties


def test_producer_override_sets_another_cluster() -> None:
    config = configured(**{"producer.override.bootstrap.servers": "b:2"})
    assert producer_properties(config, KafkaClient("a:1"))["bootstrap.servers"] == "b:2"
    assert dead_letter_client(config, None) == KafkaClient("b:2")


def test_dead_letter_topic_without_a_cluster_is_refused() -> None:
    with pytest.raises(
        ConfigException, match=r"set the cluster of this topic with 'producer.override.bootstrap.servers'"
    ):
        dead_letter_client(configured(), None)
    with pytest.raises(ConfigException, match="the source is not a Kafka cluster"):
        open_dead_letters(configured(), None)


def test_dead_letters_are_off_without_a_topic() -> None:
    with open_dead_letters(
        ConnectorConfig.parse({"name": "c", "topics": "t"}), KafkaClient("a:1")
    ) as letters:
        assert letters is None
