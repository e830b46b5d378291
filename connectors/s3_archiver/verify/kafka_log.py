"""Read the records of Kafka topics with a plain consumer, to verify an archive.

sinksdk's own reader would miss again what it has missed in the archive.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from typing import Any, Final, TypeVar, cast

import numpy as np
import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # public, but not listed
    AdminClient,
    ConfigResource,
)

from sinksdk import ConfigException, ConnectException, TopicPartition
from sinksdk.connectors.s3_archiver.verify.reading import HEADERS, RECORDS

T = TypeVar("T")
_Setting = str | int | float | bool

_PATIENCE: Final = 60.0  # seconds without a response after which the comparison fails
# Messages read at a time: their objects take several times the memory of their bytes.
_AT_A_TIME: Final = 2_000
_WAIT: Final = 0.5  # seconds until a batch that is not full is returned
_REFUSED: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})  # noqa: SLF001 - librdkafka's names
_READING: Final[Mapping[str, _Setting]] = {
    "group.id": "sinksdk-verify",  # librdkafka requires a group, but the consumer never joins it
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",  # records that were removed since are reported as missing
    "queued.max.messages.kbytes": 16 * 1024,
}


class KafkaLog:
    def __init__(self, properties: Mapping[str, str]) -> None:
        # Connectors also read with read_committed.
        defaults: Mapping[str, _Setting] = {"log_level": 2, "isolation.level": "read_committed"}
        self._properties: dict[str, _Setting] = {**defaults, **properties}
        self._where = properties["bootstrap.servers"]
        self._begins: dict[TopicPartition, int] = {}
        self._unexplained: set[TopicPartition] = set()
        self._compacted: dict[str, bool] = {}
        self._refusal = ""
        with closing(self._consumer()):
            pass  # invalid properties raise here, before anything is read

    def __str__(self) -> str:
        return f"the Kafka topic at {self._where}"

    def batches(self, partition: TopicPartition, end: int) -> Iterator[pa.RecordBatch]:
        with closing(self._consumer()) as consumer:
            self._check(consumer, partition)
            consumer.assign([KafkaPartition(partition.topic, partition.partition, 0)])
            is_more = True
            while is_more:
                with _without_collections():
                    found, is_more = self._next(consumer, partition)
                    below = [message for message in found if (message.offset() or 0) < end]
                    batch = _batch_of(below) if below else None
                    is_more = is_more and len(below) == len(found)
                    del found, below
                if batch is not None:
                    yield batch

    def removal_cause(self, partition: TopicPartition, offset: int) -> str:
        if offset < self._begin(partition, offset):
            return "which now begins at a later offset"
        if self._is_compacted(partition.topic):
            return "which is compacted"
        # The start offset is requested once, and not again for each further missing record.
        self._unexplained.add(partition)
        return ""

    def _consumer(self) -> Consumer:
        try:
            settings: dict[str, Any] = {**self._properties, **_READING, "error_cb": self._note}
            return Consumer(settings)
        except KafkaException as error:
            raise ConfigException(
                f"the Kafka client properties are invalid: {error.args[0].str()}"
            ) from error

    def _check(self, consumer: Consumer, partition: TopicPartition) -> None:
        # A consumer would wait for a topic that does not exist.
        found = self._request(
            f"topic {partition.topic}",
            consumer,
            lambda: consumer.list_topics(partition.topic, timeout=_PATIENCE),
        )
        if partition.partition not in found.topics[partition.topic].partitions:
            raise ConnectException(
                f"{partition} does not exist in Kafka at {self._where}: was the topic deleted?"
            )

    def _next(self, consumer: Consumer, partition: TopicPartition) -> tuple[list[Message], bool]:
        """Return the next records, and whether there may be more."""
        deadline = time.monotonic() + _PATIENCE
        while (left := deadline - time.monotonic()) > 0:
            found = consumer.consume(_AT_A_TIME, min(left, _WAIT))
            records = [message for message in found if message.error() is None]
            if len(records) < len(found) and self._is_at_end(found, partition):
                return records, False
            if records:
                return records, True
        raise ConnectException(
            f"{partition} cannot be read: no Kafka broker at {self._where} responded within {_PATIENCE:g} s"
        )

    def _is_at_end(self, found: Sequence[Message], partition: TopicPartition) -> bool:
        for error in filter(None, (message.error() for message in found)):
            if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name for it
                return True
            if not error.retriable():
                raise ConnectException(
                    f"{partition} cannot be read from Kafka at {self._where}: {error.str()}"
                )
        return False

    def _begin(self, partition: TopicPartition, offset: int) -> int:
        known = self._begins.get(partition, 0)
        if offset < known or partition in self._unexplained:
            return known
        where = KafkaPartition(partition.topic, partition.partition)
        with closing(self._consumer()) as consumer:
            begin, _ = self._request(
                f"the start offset of {partition}",
                consumer,
                lambda: consumer.get_watermark_offsets(where, _PATIENCE, cached=False),
            )
        self._begins[partition] = begin
        return begin

    def _is_compacted(self, topic: str) -> bool:
        if topic not in self._compacted:
            resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
            admin = AdminClient(self._properties)
            found = self._request(
                f"the settings of topic {topic} (which needs the permission DESCRIBE_CONFIGS)",
                admin,
                admin.describe_configs([resource], request_timeout=_PATIENCE)[resource].result,
            )
            self._compacted[topic] = "compact" in found["cleanup.policy"].value
        return self._compacted[topic]

    def _request(self, subject: str, client: Consumer | AdminClient, request: Callable[[], T]) -> T:
        try:
            return request()
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            client.poll(0)  # the error callback reports why the authentication failed
            raise ConnectException(
                f"cannot read {subject} from the Kafka cluster at {self._where}: "
                f"{self._refusal or reason.str()}"
            ) from error

    def _note(self, error: KafkaError) -> None:
        if error.code() in _REFUSED:
            self._refusal = error.str()


@contextmanager
def _without_collections() -> Iterator[None]:
    # Messages and headers are never cyclic: looking for cycles among them takes as long as reading them.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _batch_of(messages: Sequence[Message]) -> pa.RecordBatch:
    pairs = chain.from_iterable([message.timestamp() for message in messages])
    kind, timestamp = np.fromiter(pairs, np.int64, 2 * len(messages)).reshape(-1, 2).T
    return pa.RecordBatch.from_arrays(
        [
            pa.array([message.offset() for message in messages], pa.int64()),
            pa.array(timestamp, mask=(kind == TIMESTAMP_NOT_AVAILABLE) | (timestamp < 0)),
            pa.array((kind - 1).astype(np.int32)),  # librdkafka's 0 is "none", Kafka's 0 is "create time"
            pa.array([message.key() for message in messages], pa.large_binary()),
            pa.array([message.value() for message in messages], pa.large_binary()),
            _headers_of(messages),
        ],
        schema=RECORDS,
    )


def _headers_of(messages: Sequence[Message]) -> pa.Array:
    # Keys and values of headers become flat columns: a dict for each header took a third of the time that
    # reading takes.
    rows = [cast("list[tuple[str, bytes | None]] | None", message.headers()) or () for message in messages]
    names, values = [name for row in rows for name, _ in row], [value for row in rows for _, value in row]
    ends = np.zeros(len(rows) + 1, np.int32)
    np.cumsum([len(row) for row in rows], out=ends[1:])
    columns = [pa.array(names, pa.string()), pa.array(values, pa.binary())]
    items = pa.StructArray.from_arrays(columns, fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(pa.array(ends), items, type=HEADERS)
