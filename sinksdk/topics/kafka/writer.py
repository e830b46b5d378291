"""Writes transactions of source tasks to Kafka."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from sinksdk.engine.options import TaskName
from sinksdk.engine.writer import transactional_id
from sinksdk.errors import ConfigException, ConnectException, FencedException, RetriableException
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.source.positions import SourcePosition
from sinksdk.source.records import RecordMetadata, SourceOffset, SourcePartition, SourceRecord
from sinksdk.topics.kafka.client import PRODUCER, KafkaClient, producer_properties
from sinksdk.topics.kafka.offsets import KafkaOffsets, offset_record
from sinksdk.topics.kafka.renewal import RENEW_AFTER, REPEAT_AFTER

_TIMEOUT: Final = REPEAT_AFTER  # seconds for one request, which is then repeated
_POLL: Final = 0.1  # seconds
_POLL_EVERY: Final = 100  # records; each poll handles delivery reports of earlier ones
_TRANSACTION_TIMEOUT: Final = "transaction.timeout.ms"
_DELIVERY_TIMEOUT: Final = "delivery.timeout.ms"
_LONGEST_TRANSACTION: Final = 60_000  # milliseconds, the default of Java's producers

_FENCED: Final = frozenset(
    {
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError._FENCED,  # noqa: SLF001 - librdkafka's name for both
    }
)
_REMEDIES: Final[Mapping[int, str]] = {
    KafkaError.MSG_SIZE_TOO_LARGE: f"raise max.message.bytes of the topic, or '{PRODUCER}max.request.size'",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "create the topic; connectors do not create topics",
    KafkaError._UNKNOWN_TOPIC: "create the topic; connectors do not create topics",  # noqa: SLF001 - librdkafka's
    KafkaError.TOPIC_EXCEPTION: "give the topic a name of at most 249 letters, digits, '.', '_' and '-'",
    KafkaError._UNKNOWN_PARTITION: "give the topic more partitions, or write to those it has",  # noqa: SLF001 - the same
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "allow the connector's user to write to the topic",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "allow the connector's user to write with this "
    "transactional id, and to describe it",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "allow the connector's user IDEMPOTENT_WRITE on the cluster",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: f"set '{PRODUCER}{_TRANSACTION_TIMEOUT}' to at most the broker's "
    "transaction.max.timeout.ms",
}
_PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})  # noqa: SLF001 - the same

_librdkafka = logging.getLogger("sinksdk.librdkafka")


@dataclass(slots=True)
class _Transaction:
    begun: float
    written: list[RecordMetadata | None] = field(default_factory=list)
    has_offsets: bool = False
    # The first record that was not written: the error of the transaction does not name the cause.
    lost: KafkaError | None = None

    def note(self, error: KafkaError | None) -> None:
        if error is not None and self.lost is None:
            self.lost = error


class KafkaWriter:
    def __init__(
        self,
        properties: Mapping[str, Any],
        transactional_id: str,
        connector: str,
        offsets_topic: str,
        *,
        make_producer: Callable[[dict[str, Any]], Producer] = Producer,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._properties = properties
        self._id = transactional_id
        self._connector = connector
        self._offsets_topic = offsets_topic
        self._make_producer = make_producer
        self._now = now
        self._producer: Producer | None = None
        self._transaction = _Transaction(0.0)
        self._silent_since: float | None = None

    @classmethod
    def of(cls, config: SourceConnectorConfig, kafka: KafkaClient, name: TaskName) -> KafkaWriter:
        longest = _longest_transaction(config)
        properties = producer_properties(config, kafka)
        properties[_TRANSACTION_TIMEOUT] = longest
        properties[_DELIVERY_TIMEOUT] = min(int(properties[_DELIVERY_TIMEOUT]), longest)
        identity = transactional_id(config.group_id, name)
        return cls(properties, identity, name.connector, config.offsets_storage_topic)

    def init(self) -> None:
        if self._silence() >= RENEW_AFTER:
            self.close()  # no transaction is open, so a new producer fences the same predecessors as this one
        if self._producer is None:
            self._producer = self._create()
            self._silent_since = None
        self._transaction = _Transaction(self._now())
        with self._translating("be initialised"):
            self._producer.init_transactions(_TIMEOUT)

    def begin(self) -> None:
        self._transaction = _Transaction(self._now())
        with self._translating("begin a transaction"):
            self._live.begin_transaction()

    def send(self, record: SourceRecord) -> None:
        transaction = self._transaction
        if transaction.lost is not None:
            raise self._refused(transaction.lost, "write a record")
        if record.topic == self._offsets_topic:
            raise ConnectException(
                f"connector {self._connector} returned a record for topic {record.topic}, which stores its "
                f"source offsets; write to another topic, or set another 'offsets.storage.topic'"
            )
        at = len(transaction.written)
        transaction.written.append(None)

        def delivered(error: KafkaError | None, message: Message) -> None:
            transaction.note(error)
            if error is None:
                place = message.topic(), message.partition(), message.offset()
                transaction.written[at] = RecordMetadata(*place)  # type: ignore[arg-type] # it was delivered

        further: dict[str, Any] = {}
        if record.partition is not None:
            further["partition"] = record.partition
        if record.timestamp is not None:
            further["timestamp"] = record.timestamp
        if record.headers:
            further["headers"] = [(header.key, header.value) for header in record.headers]
        self._produce(record.topic, record.key, record.value, delivered, further)

    def commit(
        self, positions: Sequence[SourcePosition], forget: Sequence[SourcePartition] = ()
    ) -> Sequence[RecordMetadata]:
        transaction = self._transaction
        if not transaction.has_offsets:
            changes: list[tuple[SourcePartition, SourceOffset | None]] = [*positions]
            changes += [(partition, None) for partition in forget]
            for partition, offset in changes:
                key, value = offset_record(self._connector, partition, offset)
                self._produce(self._offsets_topic, key, value, lambda error, _: transaction.note(error), {})
            transaction.has_offsets = True
        with self._translating("commit a transaction"):
            self._live.commit_transaction(_TIMEOUT)
        return [written for written in transaction.written if written is not None]

    def abort(self) -> None:
        with self._translating("abort a transaction"):
            self._live.abort_transaction(_TIMEOUT)

    def close(self) -> None:
        # The broker aborts an open transaction after its time-out.
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            producer.purge()
            producer.flush(0)
        except (KafkaException, SystemError) as error:  # the broker aborts the transaction in any case
            _librdkafka.debug("%s: %s", self._id, error)

    @property
    def _live(self) -> Producer:
        if self._producer is None:
            raise ConnectException(f"the producer with transactional id {self._id} is closed")
        return self._producer

    def _create(self) -> Producer:
        properties = {
            **self._properties,
            "transactional.id": self._id,
            "logger": _librdkafka,
            "error_cb": lambda error: _librdkafka.debug("%s: %s", self._id, error),
        }
        try:
            return self._make_producer(properties)
        except (KafkaException, ValueError) as error:
            raise ConfigException(
                f"the producer of connector {self._connector} cannot be created: {error}; check '{PRODUCER}…'"
            ) from error

    def _produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        delivered: Callable[[KafkaError | None, Message], None],
        further: Mapping[str, Any],
    ) -> None:
        with self._translating(f"write to topic {topic}"):
            while True:
                try:
                    self._live.produce(topic, value, key, on_delivery=delivered, **further)
                except BufferError:
                    self._live.poll(_POLL)  # wait until earlier records are written, or time out
                else:
                    break
            if len(self._transaction.written) % _POLL_EVERY == 0:
                self._live.poll(0)

    @contextmanager
    def _translating(self, what: str) -> Iterator[None]:
        began = self._now()
        try:
            yield
        except KafkaException as error:
            if self._silent_since is None:
                self._silent_since = began
            raise self._refused(error.args[0], what) from error
        except SystemError as error:
            # librdkafka raises a fatal error before it calls callbacks, which then raise SystemError.
            fatal = error.__cause__
            if not isinstance(fatal, KafkaException):
                raise
            raise self._refused(fatal.args[0], what) from fatal
        else:
            self._silent_since = None

    def _silence(self) -> float:
        return 0.0 if self._silent_since is None else self._now() - self._silent_since

    def _refused(self, error: KafkaError, what: str) -> ConnectException:
        if error.code() == KafkaError._FATAL:  # noqa: SLF001 - librdkafka's name for it
            error = self._fatal(error)
        who = f"the producer with transactional id {self._id} could not {what}"
        if error.code() in _FENCED:
            return self._fenced(error, who)
        if error.retriable() and not error.txn_requires_abort():
            # The broker aborts a transaction after its time-out: a new producer loses nothing, and this one
            # may be stuck.
            longest = self._longest()
            if self._silence() < longest:
                return RetriableException(f"{who}: {error.str()}")
            return ConnectException(
                f"{who} for {self._silence():.0f} s, longer than '{PRODUCER}{_TRANSACTION_TIMEOUT}' "
                f"({longest:g} s): {error.str()}; the task's next producer resumes at the committed offsets"
            )
        lost = self._transaction.lost
        cause = lost if lost is not None and lost.code() not in _PURGED else error
        remedy = _REMEDIES.get(cause.code())
        return ConnectException(f"{who}: {cause.str()}{f'; {remedy}' if remedy else ''}")

    def _fatal(self, error: KafkaError) -> KafkaError:
        # Some calls do not report the cause; the next call does.
        try:
            self._live.begin_transaction()
        except KafkaException as why:
            return why.args[0]  # type: ignore[no-any-return] # a KafkaError
        return error

    def _longest(self) -> float:
        return int(self._properties.get(_TRANSACTION_TIMEOUT, _LONGEST_TRANSACTION)) / 1000

    def _fenced(self, error: KafkaError, who: str) -> ConnectException:
        # A transaction that was open for too long ends with the same error.
        longest = self._longest()
        elapsed = self._now() - self._transaction.begun
        if elapsed < longest:
            return FencedException(
                f"{who}: a newer attempt at the task writes with this id now ({error.str()})"
            )
        return ConnectException(
            f"{who}: the transaction had been open for {elapsed:.0f} s and Kafka allows {longest:g}, or a "
            f"newer attempt writes with this id ({error.str()}); end transactions earlier, or raise "
            f"'{PRODUCER}{_TRANSACTION_TIMEOUT}'"
        )


@dataclass(frozen=True, slots=True)
class KafkaTarget:
    client: KafkaClient

    def writer(self, config: SourceConnectorConfig, name: TaskName) -> KafkaWriter:
        return KafkaWriter.of(config, self.client, name)

    def offsets(self, config: SourceConnectorConfig) -> KafkaOffsets:
        return KafkaOffsets.of(config, self.client)


def _longest_transaction(config: SourceConnectorConfig) -> int:
    configured = config.overrides(PRODUCER).get(_TRANSACTION_TIMEOUT)
    if configured is not None:
        return int(configured)
    interval = config.transaction_interval_ms if config.transaction_boundary == "interval" else 0
    return max(_LONGEST_TRANSACTION, 2 * interval)
