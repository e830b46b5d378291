"""Requests to a Kafka cluster for its topics, partitions and offsets."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, TopicMetadata  # type: ignore[attr-defined] # public, not listed

from sinksdk.engine.commits import TopicIdCheck
from sinksdk.errors import ConfigException, ConnectException, MissingSourceTopicException, RetriableException
from sinksdk.offsets import OffsetRange, TopicPartition
from sinksdk.topics.base import Partitions
from sinksdk.topics.kafka.client import KafkaClient, without_consumers_own
from sinksdk.topics.kafka.renewal import REPEAT_AFTER, NoBrokersException, Renewed

_FOR_EVER: Final = 3600.0  # seconds, librdkafka's maximum: a request that times out may end the process
_FEW: Final = 10  # topics requested one by one; more are requested with all topics at once
_LATEST, _EARLIEST = -1, -2  # "timestamps" that stand for a log's end and start
GONE: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - librdkafka's names for its own errors
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - the same
    }
)
_NO_LEADER: Final = -1
_LEADERLESS: Final = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
    }
)
REFUSED: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})  # noqa: SLF001 - the same
_DENIED: Final = REFUSED | frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
    }
)
# Kafka's responses to a commit from outside while a consumer is in the group.
_IN_USE: Final = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
    }
)


@contextmanager
def translating(bootstrap: str, what: str) -> Iterator[None]:
    """Translate errors of Kafka's clients to RetriableException, or ConnectException if access is denied."""
    try:
        yield
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        message = f"a request to the Kafka cluster at {bootstrap} for {what} failed: {reason.str()}"
        if reason.code() in _DENIED:
            raise ConnectException(f"{message}; check the client properties and the user's rights") from error
        raise RetriableException(message) from error


def bystander(
    properties: Mapping[str, str], group: str, further: Mapping[str, Any] | None = None
) -> Consumer:
    defaults = {
        "log_level": 2,  # librdkafka also reports an unreachable broker as an error
        # A commit has no time-out of its own, so these settings limit its time.
        "socket.timeout.ms": int(REPEAT_AFTER * 1000),
        "session.timeout.ms": int(REPEAT_AFTER * 1000),
    }
    # The consumer subscribes to nothing and so is not a member of its group.
    own = {
        "group.id": group,
        "group.protocol": "classic",  # the newer group protocol refuses session.timeout.ms
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 500,  # librdkafka refuses a longer one than socket.timeout.ms
    }
    try:
        return Consumer({**defaults, **properties, **own, **(further or {})})
    except KafkaException as error:
        raise ConfigException(
            f"the Kafka client does not accept its properties: {error.args[0].str()}"
        ) from error


# librdkafka's admin client, which only topic ids require, ends the process if a response arrives after its
# request timed out (confluentinc/librdkafka#4605). So requests never time out: they are repeated, and end
# with their client.
@dataclass(slots=True, eq=False)
class _TopicIds:
    client: AdminClient | None
    clock: Callable[[], float]
    _pending: dict[str, tuple[Future[Any], float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def close(self) -> None:
        # confluent-kafka closes a client with its last reference, which may block.
        self.client = None

    def request(self, topics: Collection[str]) -> dict[str, Future[Any]]:
        assert self.client is not None  # noqa: S101 - it is closed once no request uses it
        with self._lock:
            now = self.clock()
            pending = {
                name: (response, since)
                for name, (response, since) in self._pending.items()
                # A response is used once: it may be minutes old by the next call.
                if not response.done() and now - since < REPEAT_AFTER
            }
            if further := sorted(set(topics) - pending.keys()):
                requested = self.client.describe_topics(TopicCollection(further), request_timeout=_FOR_EVER)
                pending |= {name: (response, now) for name, response in requested.items()}
            self._pending = pending
            return {name: pending[name][0] for name in sorted(topics)}


class Cluster:
    """Queries one cluster, from any thread. Methods raise as :func:`translating`."""

    def __init__(self, properties: Mapping[str, str], clock: Callable[[], float] = time.monotonic) -> None:
        # The isolation.level decides whether partitions end at the last stable offset or at the log's end.
        self.properties = properties
        self.bootstrap = properties["bootstrap.servers"]
        self._clock = clock
        self._refusal = ""
        first = [self._bystander()]  # created here, so that the constructor reports refused properties
        self._consumer = Renewed(
            lambda: first.pop() if first else self._bystander(), _close_consumer, clock=clock
        )
        self._admin = Renewed(self._topic_ids, _TopicIds.close, clock=clock)
        self._leaderless: dict[str, frozenset[int]] = {}

    def close(self) -> None:
        self._consumer.close()
        self._admin.close()

    def refusal(self) -> str:
        # Requests to a broker that refuses the login time out; only a callback gets the reason.
        with self._consumer.request("refusal") as consumer:
            consumer.poll(0)
        return self._refusal

    def topic_names(self) -> list[str]:
        with translating(self.bootstrap, "its topics"):
            found = self._metadata()
        return sorted(name for name in found if not name.startswith("__"))

    def partitions(self, topics: Collection[str]) -> dict[str, list[TopicPartition]]:
        found = {}
        for name, topic in self._described(topics).items():
            if topic.error is None:
                found[name] = [TopicPartition(name, number) for number in sorted(topic.partitions)]
            elif topic.error.code() not in GONE:
                with translating(self.bootstrap, f"topic {name}"):
                    raise KafkaException(topic.error)
        return found

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        if not self.partitions(topics):  # if the consumer gets a response, so will the admin client
            return {}
        # A topic that is created again has another id (KIP-516).
        found, topic = {}, ""
        try:
            with self._admin.request("topic ids") as admin:
                for topic, future in admin.request(topics).items():
                    try:
                        found[topic] = str(future.result(REPEAT_AFTER).topic_id)
                    except KafkaException as error:
                        if error.args[0].code() not in GONE:
                            raise
        except NotYet:
            raise RetriableException(
                f"the Kafka cluster at {self.bootstrap} has not responded to a request for the id of topic "
                f"{topic} for {REPEAT_AFTER:g} s"
            ) from None
        except KafkaException:
            with translating(self.bootstrap, f"the id of topic {topic}"):
                raise
        return found

    def extents(
        self,
        partitions: Collection[TopicPartition],
        unavailable: set[TopicPartition] | None = None,
        epochs: dict[TopicPartition, int] | None = None,
    ) -> dict[TopicPartition, OffsetRange]:
        """Return start and end of each partition's log, without deleted partitions.

        Partitions without a leader are added to ``unavailable``, or raise RetriableException.
        """
        begins = self._offsets(partitions, _EARLIEST, unavailable)
        ends = self._offsets(partitions, _LATEST, unavailable, epochs)
        both = (p for p in partitions if p in begins and p in ends)
        return {p: OffsetRange(begins[p], max(begins[p], ends[p])) for p in both}

    def available(self, partitions: Iterable[TopicPartition]) -> Partitions:
        """Like :meth:`extents`, with partitions that have no leader listed as unavailable."""
        wanted = list(partitions)
        # librdkafka returns nothing if one of the requested partitions has no leader, so those known to have
        # none are left out.
        led = [p for p in wanted if p.partition not in self._leaderless.get(p.topic, ())]
        unavailable = set(wanted) - set(led)
        epochs: dict[TopicPartition, int] = {}
        found = self.extents(led, unavailable, epochs)
        if unavailable and not found:
            raise RetriableException(
                f"the Kafka cluster at {self.bootstrap} cannot return offsets: no partition has a leader"
            )
        return Partitions(found, unavailable, epochs)

    def _note_refusal(self, error: KafkaError) -> None:
        if error.code() in REFUSED:
            self._refusal = error.str()

    def _described(self, topics: Collection[str]) -> dict[str, TopicMetadata]:
        with translating(self.bootstrap, "its topics"):
            found: dict[str, TopicMetadata] = {}
            if len(topics) > _FEW:
                everything = self._metadata()
                found = {name: everything[name] for name in topics if name in everything}
            # In a list of all topics, Kafka leaves out those that the user may not describe.
            for name in [name for name in topics if name not in found]:
                found[name] = self._metadata(name)[name]
        for name, topic in found.items():
            self._leaderless[name] = frozenset(
                number for number, known in topic.partitions.items() if known.leader == _NO_LEADER
            )
        return found

    def _metadata(self, topic: str | None = None) -> dict[str, TopicMetadata]:
        with self._consumer.request("metadata") as consumer:
            found = (
                consumer.list_topics(timeout=REPEAT_AFTER)
                if topic is None
                else consumer.list_topics(topic, timeout=REPEAT_AFTER)
            )
            if not found.brokers:
                raise NoBrokersException(
                    f"the metadata response of the Kafka cluster at {self.bootstrap} names no broker: the "
                    f"cluster is starting, or was frozen"
                )
            topics: dict[str, TopicMetadata] = found.topics
            return topics

    def _bystander(self) -> Consumer:
        return bystander(self.properties, "sinksdk-bystander", {"error_cb": self._note_refusal})

    def _topic_ids(self) -> _TopicIds:
        admin = AdminClient({"log_level": 2, **without_consumers_own(self.properties)})
        return _TopicIds(admin, self._clock)

    def _offsets(
        self,
        partitions: Iterable[TopicPartition],
        at: int,
        unavailable: set[TopicPartition] | None,
        epochs: dict[TopicPartition, int] | None = None,
    ) -> dict[TopicPartition, int]:
        rows = [KafkaPartition(p.topic, p.partition, at) for p in partitions]
        if not rows:
            return {}
        found = {}
        with translating(self.bootstrap, "its offsets"):
            with self._consumer.request("offsets") as consumer:
                responses = consumer.offsets_for_times(rows, timeout=REPEAT_AFTER)
            for row in responses:
                if row.error is None:
                    found[TopicPartition(row.topic, row.partition)] = row.offset
                    if epochs is not None and row.leader_epoch is not None:
                        epochs[TopicPartition(row.topic, row.partition)] = row.leader_epoch
                elif unavailable is not None and row.error.code() in _LEADERLESS:
                    unavailable.add(TopicPartition(row.topic, row.partition))
                elif row.error.code() not in GONE:
                    raise KafkaException(row.error)
        return found


class ConsumerGroup:
    """A consumer group whose offsets are read and written without joining it."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        first = [bystander(cluster.properties, name)]
        self._consumer = Renewed(
            lambda: first.pop() if first else bystander(cluster.properties, name), _close_consumer
        )
        self.name = name

    def __str__(self) -> str:
        return f"consumer group {self.name} at {self._cluster.bootstrap}"

    def offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        rows = [KafkaPartition(p.topic, p.partition) for p in sorted(partitions)]
        if not rows:
            return {}
        with translating(self._cluster.bootstrap, str(self)):
            with self._consumer.request("committed offsets") as consumer:
                found = consumer.committed(rows, timeout=REPEAT_AFTER)
            _raise_any(found)
        return {TopicPartition(row.topic, row.partition): row.offset for row in found if row.offset >= 0}

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        with translating(self._cluster.bootstrap, str(self)):
            # Partitions that are not given keep their offsets, and deleted topics are skipped.
            self._commit(offsets)

    def is_in_use(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Return whether consumers are in the group, because Kafka refuses to write back its offsets then."""
        with translating(self._cluster.bootstrap, str(self)):
            try:
                self._commit(offsets)
            except KafkaException as error:
                if error.args[0].code() in _IN_USE:
                    return True
                raise
        return False

    def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        rows = [KafkaPartition(p.topic, p.partition, offset) for p, offset in sorted(offsets.items())]
        if not rows:
            return
        try:
            # The time-outs are those of `bystander`.
            with self._consumer.request("commit") as consumer:
                done = consumer.commit(offsets=rows, asynchronous=False)
        except KafkaException as error:
            # If no partition succeeds, the whole call fails with the error of one of them.
            if error.args[0].code() not in GONE:
                raise
            return
        _raise_any([row for row in done if row.error is None or row.error.code() not in GONE])


def _close_consumer(consumer: Consumer) -> None:
    consumer.close()


def _raise_any(rows: Collection[KafkaPartition]) -> None:
    for row in rows:
        if row.error is not None:
            raise KafkaException(row.error)


def replaced_topics(
    ids: Mapping[str, str], topic_ids: Callable[[Collection[str]], Mapping[str, str]], topics: Collection[str]
) -> dict[str, ConnectException]:
    """Return errors of topics that were deleted or created again since they were planned (KIP-516)."""
    # Kafka's consumers know only names, and go on reading in a topic that was created again.
    requested = sorted(ids.keys() & set(topics))
    if not requested:
        return {}
    try:
        now = topic_ids(requested)
    except ConnectException as error:
        return dict.fromkeys(requested, error)
    return {
        topic: _replaced(topic, ids[topic], now.get(topic))
        for topic in requested
        if now.get(topic) != ids[topic]
    }


def _replaced(topic: str, planned: str, now: str | None) -> MissingSourceTopicException:
    what = "was deleted" if now is None else f"was deleted and created again (its id is {now})"
    return MissingSourceTopicException(
        [topic],
        f"topic {topic!r} {what} while it was read (its id was {planned}): records read since "
        f"the last commit are not committed",
    )


def topic_id_check(client: KafkaClient, overrides: Mapping[str, str], ids: Mapping[str, str]) -> TopicIdCheck:
    return functools.partial(
        replaced_topics, ids, _cluster_of(client, tuple(sorted(overrides.items()))).topic_ids
    )


# A Python worker runs many tasks one after the other.
@functools.lru_cache(maxsize=4)
def _cluster_of(client: KafkaClient, overrides: tuple[tuple[str, str], ...]) -> Cluster:
    return Cluster(client.librdkafka(dict(overrides)))
