"""What a Kafka cluster says of its topics, partitions and offsets, in one request per question.

All of it goes through a consumer that reads nothing. librdkafka's admin client ends the process with a
failed assertion when an answer comes after its request has timed out (confluentinc/librdkafka#4605), as
happens when a broker is restarted; only topic ids cannot be had otherwise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, TopicMetadata  # type: ignore[attr-defined] # public, not listed

from sinksdk.errors import ConfigException, ConnectException, MissingSourceTopicException, RetriableException
from sinksdk.records import OffsetRange, TopicPartition
from sinksdk.topics.base import Partitions
from sinksdk.topics.kafka.client import KafkaClient, without_consumers_own

_TIMEOUT: Final = 15.0  # seconds for one request; librdkafka tries again within it
_FOR_EVER: Final = 3600.0  # seconds, the most librdkafka takes: a request that times out may end the process
_FEW: Final = 10  # topics that are asked for by name; beyond that, all topics are one question
_LATEST, _EARLIEST = -1, -2  # "timestamps" that stand for a log's end and start
GONE: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - librdkafka's names for its own errors
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - the same
    }
)
"""Errors of a topic or partition that is not there, or no longer."""
_NOBODY: Final = -1  # what metadata name as leader of a partition that has none
_LEADERLESS: Final = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
    }
)
REFUSED: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})  # noqa: SLF001 - the same
"""Errors of a broker that lets the client not in."""
_DENIED: Final = REFUSED | frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
    }
)


@contextmanager
def asking(bootstrap: str, what: str) -> Iterator[None]:
    """Tells what Kafka's clients raise in the runtime's words.

    Raises:
        RetriableException: nobody answered, or not now.
        ConnectException: access is denied.
    """
    try:
        yield
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        message = f"the Kafka cluster at {bootstrap} was asked for {what}: {reason.str()}"
        if reason.code() in _DENIED:
            raise ConnectException(f"{message}; check the client properties and the user's rights") from error
        raise RetriableException(message) from error


def bystander(
    properties: Mapping[str, str], group: str, further: Mapping[str, Any] | None = None
) -> Consumer:
    """A consumer that subscribes to nothing and so is no member of its group.

    Args:
        properties: of confluent-kafka's clients.
        further: settings of librdkafka that only this consumer has.

    Raises:
        ConfigException: the properties are not accepted.
    """
    quiet = {"log_level": 2}  # what librdkafka logs of a broker that is away, the errors say as well
    own = {"group.id": group, "enable.auto.commit": False}
    try:
        return Consumer({**quiet, **properties, **own, **(further or {})})
    except KafkaException as error:
        raise ConfigException(
            f"the Kafka client properties are not accepted: {error.args[0].str()}"
        ) from error


class Cluster:
    """Asks one cluster. May be used from any thread.

    Args:
        properties: of confluent-kafka's clients; ``isolation.level`` says whether partitions end at the
            last stable offset, before any transaction that is still open, or at the log's end.

    Raises:
        ConfigException: the properties are not accepted.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.properties = properties
        self.bootstrap = properties["bootstrap.servers"]
        self._consumer = bystander(properties, "sinksdk-bystander", {"error_cb": self._note})
        self._refusal = ""
        self._admin: AdminClient | None = None
        self._asked: dict[str, Future[Any]] = {}
        self._leaderless: dict[str, frozenset[int]] = {}

    def close(self) -> None:
        """Let go of all connections. It is not asked any more."""
        self._consumer.close()
        self._admin = None

    def refusal(self) -> str:
        """Why the last broker that was tried lets this client not in; empty if none said so.

        Requests to such a broker only time out; librdkafka reports the reason on the side.
        """
        self._consumer.poll(0)
        return self._refusal

    def topic_names(self) -> list[str]:
        """Names of all topics but Kafka's own.

        Raises:
            RetriableException: no broker answers.
            ConnectException: access is denied.
        """
        with asking(self.bootstrap, "its topics"):
            found = self._consumer.list_topics(timeout=_TIMEOUT).topics
        return sorted(name for name in found if not name.startswith("__"))

    def partitions(self, topics: Collection[str]) -> dict[str, list[TopicPartition]]:
        """Partitions of those of the named topics that exist.

        Raises:
            RetriableException, ConnectException: as :meth:`topic_names`.
        """
        found = {}
        for name, topic in self._described(topics).items():
            if topic.error is None:
                found[name] = [TopicPartition(name, number) for number in sorted(topic.partitions)]
            elif topic.error.code() not in GONE:
                with asking(self.bootstrap, f"topic {name}"):
                    raise KafkaException(topic.error)
        return found

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Ids of those of the named topics that exist (KIP-516): a topic made again has another one.

        Raises:
            RetriableException, ConnectException: as :meth:`topic_names`.
        """
        if not self.partitions(topics):  # an answer also shows that the admin client will get one
            return {}
        found = {}
        for name, future in self._descriptions(topics).items():
            with asking(self.bootstrap, f"the id of topic {name}"):
                try:
                    found[name] = str(future.result(_TIMEOUT).topic_id)
                except NotYet:
                    message = f"the Kafka cluster at {self.bootstrap} has not told the id of topic {name} yet"
                    raise RetriableException(message) from None
                except KafkaException as error:
                    if error.args[0].code() not in GONE:
                        raise
        return found

    def extents(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetRange]:
        """The log's start and end of each partition; one that is gone meanwhile is left out.

        Raises:
            RetriableException: a partition has no leader, or no broker answers.
            ConnectException: access is denied.
        """
        wanted = list(partitions)
        begins, ends = self._offsets(wanted, _EARLIEST), self._offsets(wanted, _LATEST)
        return {
            p: OffsetRange(begins[p], max(begins[p], ends[p])) for p in wanted if p in begins and p in ends
        }

    def available(self, partitions: Iterable[TopicPartition]) -> Partitions:
        """The same of those partitions that have a leader, the others by name.

        librdkafka answers nothing of any partition if one of those that it is asked for has no leader, so
        those that had none when :meth:`partitions` was asked are not asked for.

        Raises:
            RetriableException: no partition has a leader, or no broker answers.
            ConnectException: access is denied.
        """
        wanted = list(partitions)
        led = [p for p in wanted if p.partition not in self._leaderless.get(p.topic, ())]
        unavailable = set(wanted) - set(led)
        begins = self._offsets(led, _EARLIEST, unavailable)
        ends = self._offsets(led, _LATEST, unavailable)
        found = {p: OffsetRange(begins[p], max(begins[p], ends[p])) for p in led if p in begins and p in ends}
        if unavailable and not found:
            message = (
                f"the Kafka cluster at {self.bootstrap} was asked for its offsets: no partition has a leader"
            )
            raise RetriableException(message)
        return Partitions(found, unavailable)

    def _note(self, error: KafkaError) -> None:
        if error.code() in REFUSED:
            self._refusal = error.str()

    def _described(self, topics: Collection[str]) -> dict[str, TopicMetadata]:
        with asking(self.bootstrap, "its topics"):
            found: dict[str, TopicMetadata] = {}
            if len(topics) > _FEW:
                everything = self._consumer.list_topics(timeout=_TIMEOUT).topics
                found = {name: everything[name] for name in topics if name in everything}
            # Asked for all topics, Kafka passes over those that the user may not describe.
            for name in [name for name in topics if name not in found]:
                found[name] = self._consumer.list_topics(name, timeout=_TIMEOUT).topics[name]
        for name, topic in found.items():
            self._leaderless[name] = frozenset(
                number for number, known in topic.partitions.items() if known.leader == _NOBODY
            )
        return found

    def _descriptions(self, topics: Collection[str]) -> dict[str, Future[Any]]:
        """Answers that are on their way; a question that has no answer yet is not asked twice.

        What was answered before this look is asked again: that may be minutes ago.
        """
        asked = {name: answer for name, answer in self._asked.items() if not answer.done()}
        if further := sorted(set(topics) - asked.keys()):
            if self._admin is None:  # one that waits for nothing is false
                self._admin = AdminClient({"log_level": 2, **without_consumers_own(self.properties)})
            asked |= self._admin.describe_topics(TopicCollection(further), request_timeout=_FOR_EVER)
        self._asked = asked
        return {name: asked[name] for name in sorted(topics)}

    def _offsets(
        self,
        partitions: Iterable[TopicPartition],
        at: int,
        unavailable: set[TopicPartition] | None = None,
    ) -> dict[TopicPartition, int]:
        """Offsets of partitions; those that have lost their leader join the unavailable, if they may."""
        rows = [KafkaPartition(p.topic, p.partition, at) for p in partitions]
        if not rows:
            return {}
        found = {}
        with asking(self.bootstrap, "its offsets"):
            for row in self._consumer.offsets_for_times(rows, timeout=_TIMEOUT):
                if row.error is None:
                    found[TopicPartition(row.topic, row.partition)] = row.offset
                elif unavailable is not None and row.error.code() in _LEADERLESS:
                    unavailable.add(TopicPartition(row.topic, row.partition))
                elif row.error.code() not in GONE:
                    raise KafkaException(row.error)
        return found


# What Kafka answers to a commit from outside while somebody is in the group.
_IN_USE: Final = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
    }
)


class ConsumerGroup:
    """A consumer group whose offsets are read and written from outside; nobody ever joins it.

    Args:
        name: its name; Connect's for a sink is ``connect-<connector>``.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._consumer = bystander(cluster.properties, name)
        self.name = name

    def __str__(self) -> str:
        return f"consumer group {self.name} at {self._cluster.bootstrap}"

    def offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """What it has committed of these partitions; nothing where it does not exist.

        Raises:
            RetriableException: no broker answers.
            ConnectException: access is denied.
        """
        rows = [KafkaPartition(p.topic, p.partition) for p in sorted(partitions)]
        with asking(self._cluster.bootstrap, str(self)):
            found = self._consumer.committed(rows, timeout=_TIMEOUT) if rows else []
            _raise_any(found)
        return {TopicPartition(row.topic, row.partition): row.offset for row in found if row.offset >= 0}

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Make its offsets these; those of other partitions stay. A topic that is gone has none any more.

        Raises:
            RetriableException, ConnectException: as :meth:`offsets`; also where a consumer is in the group.
        """
        with asking(self._cluster.bootstrap, str(self)):
            self._commit(offsets)

    def is_in_use(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Whether consumers are in it, which may still commit. Kafka lets nobody else commit meanwhile.

        Args:
            offsets: what it has committed: they are written back, which changes nothing. Without any there
                is nothing to find out.

        Raises:
            RetriableException, ConnectException: as :meth:`offsets`.
        """
        with asking(self._cluster.bootstrap, str(self)):
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
            done = self._consumer.commit(offsets=rows, asynchronous=False)
        except KafkaException as error:
            # The whole call fails, with one of their errors, where no partition succeeds.
            if error.args[0].code() not in GONE:
                raise
            return
        _raise_any([row for row in done if row.error is None or row.error.code() not in GONE])


def _raise_any(rows: Collection[KafkaPartition]) -> None:
    for row in rows:
        if row.error is not None:
            raise KafkaException(row.error)


Overrides = tuple[tuple[str, str], ...]


class PlannedTopics:
    """Vouches for topics by their ids (:data:`~sinksdk.engine.vouching.Vouch`).

    Kafka's readers know names only: they go on in whatever has the name.

    Args:
        ids: id of each topic as it was planned; of others nothing is known, and nothing is said.
        topic_ids: asks for the ids of topics as they are now, see
            :meth:`~sinksdk.topics.kafka.cluster.Cluster.topic_ids`.
    """

    def __init__(
        self, ids: Mapping[str, str], topic_ids: Callable[[Collection[str]], Mapping[str, str]]
    ) -> None:
        self._ids = ids
        self._topic_ids = topic_ids

    def __call__(self, topics: Collection[str]) -> dict[str, ConnectException]:
        """The errors of topics that are not as planned; without an answer, of all that were asked about."""
        asked = sorted(self._ids.keys() & set(topics))
        if not asked:
            return {}
        try:
            now = self._topic_ids(asked)
        except ConnectException as error:
            return dict.fromkeys(asked, error)
        return {
            topic: _replaced(topic, self._ids[topic], now.get(topic))
            for topic in asked
            if now.get(topic) != self._ids[topic]
        }


def _replaced(topic: str, planned: str, now: str | None) -> MissingSourceTopicException:
    what = "was deleted" if now is None else f"was deleted and created again (its id is {now})"
    return MissingSourceTopicException(
        [topic],
        f"topic {topic!r} {what} while it was read (its id was {planned}): nothing that was read of it since "
        f"the last commit is committed",
    )


def planned_topics(
    client: KafkaClient, overrides: Mapping[str, str], ids: Mapping[str, str]
) -> PlannedTopics:
    """Vouches for a cluster's topics; nobody is connected to until somebody asks.

    Args:
        overrides: properties of its consumers, as of :class:`~sinksdk.topics.kafka.source.KafkaSource`.
        ids: as of :class:`PlannedTopics`.

    Raises:
        ConfigException: the client's properties cannot be used on this host: their file is not there.
    """
    return PlannedTopics(ids, _cluster_of(client, tuple(sorted(overrides.items()))).topic_ids)


@functools.lru_cache(maxsize=4)
def _cluster_of(client: KafkaClient, overrides: Overrides) -> Cluster:
    """One for all tasks of a Python worker, which has many of them one after the other."""
    return Cluster(client.librdkafka(dict(overrides)))
