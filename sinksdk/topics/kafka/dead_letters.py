"""Writes dead letters to a Kafka topic; they are durable before their task commits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final, Self

from confluent_kafka import KafkaError, KafkaException, Producer

from sinksdk.config import ConnectorConfig
from sinksdk.errors import ConfigException, ConnectException
from sinksdk.records import SinkRecord
from sinksdk.settings.job import DEAD_LETTER_DIRECTORY, DEAD_LETTER_TOPIC
from sinksdk.topics.kafka.client import BOOTSTRAP, PRODUCER, KafkaClient

_POLL: Final = 0.1  # seconds
_FLUSH: Final = 5.0  # seconds for dead letters that no commit waits for

_REMEDIES: Final[Mapping[int, str]] = {
    KafkaError.MSG_SIZE_TOO_LARGE: "raise max.message.bytes of the topic",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "create the topic again",
    KafkaError._UNKNOWN_TOPIC: "create the topic again",  # noqa: SLF001 - librdkafka's names for its own errors
    KafkaError._MSG_TIMED_OUT: "check whether the cluster responds",  # noqa: SLF001 - the same
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "allow the connector's user to write to the topic",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "allow the connector's user IDEMPOTENT_WRITE on the cluster",
    KafkaError.NOT_ENOUGH_REPLICAS: "the topic has fewer replicas in sync than its min.insync.replicas",
}


def dead_letter_client(config: ConnectorConfig, kafka: KafkaClient | None) -> KafkaClient:
    if kafka is not None:
        return kafka
    servers = config.overrides(PRODUCER).get(BOOTSTRAP)
    if servers is None:
        raise ConfigException(
            f"'{DEAD_LETTER_TOPIC}' is '{config.dead_letter_topic}', but the source is not a Kafka cluster: "
            f"set the cluster of this topic with '{PRODUCER}{BOOTSTRAP}', or a topic directory with "
            f"'{DEAD_LETTER_DIRECTORY}'"
        )
    return KafkaClient(servers)


class KafkaDeadLetters:
    def __init__(
        self,
        topic: str,
        properties: Mapping[str, Any],
        make_producer: Callable[[dict[str, Any]], Producer] = Producer,
    ) -> None:
        self._topic = topic
        self._properties = properties
        self._make_producer = make_producer
        self._producer: Producer | None = None
        self._stopped = threading.Event()
        self._poller = threading.Thread(target=self._poll, name="dead-letters", daemon=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._producer is None:
            return
        self._producer.flush(_FLUSH)
        self._stopped.set()
        self._poller.join()

    def send(self, record: SinkRecord) -> Future[None]:
        producer = self._connected()
        letter: Future[None] = Future()
        letter.set_running_or_notify_cancel()  # a running future cannot be cancelled
        message = self._message(record)

        def written(error: KafkaError | None, _: object) -> None:
            if error is None:
                letter.set_result(None)
            else:
                letter.set_exception(self._lost(record, error))

        while not letter.done():
            try:
                producer.produce(self._topic, on_delivery=written, **message)
            except BufferError:
                producer.poll(_POLL)  # wait until earlier records are written, or time out
            except KafkaException as error:
                letter.set_exception(self._lost(record, error.args[0]))
            else:
                break
        return letter

    def _message(self, record: SinkRecord) -> dict[str, Any]:
        message: dict[str, Any] = {"key": record.key, "value": record.value}
        if record.headers:
            message["headers"] = [(header.key, header.value) for header in record.headers]
        if record.timestamp is not None and record.timestamp > 0:
            message["timestamp"] = record.timestamp  # without a timestamp, librdkafka sets the current time
        return message

    def _lost(self, record: SinkRecord, error: KafkaError) -> ConnectException:
        remedy = _REMEDIES.get(error.code())
        return ConnectException(
            f"the record of {record.topic_partition} at offset {record.offset} could not be written to the "
            f"dead letter topic '{self._topic}': {error.str()}{f'; {remedy}' if remedy else ''}"
        )

    # The producer is created for the first record, because most tasks have none.
    def _connected(self) -> Producer:
        if self._producer is None:
            try:
                self._producer = self._make_producer(dict(self._properties))
            except (KafkaException, ValueError) as error:
                raise ConfigException(
                    f"the producer for dead letters cannot be created: {error}; check '{PRODUCER}…'"
                ) from error
            self._poller.start()
        return self._producer

    def _poll(self) -> None:
        while not self._stopped.is_set() and self._producer is not None:
            self._producer.poll(_POLL)
