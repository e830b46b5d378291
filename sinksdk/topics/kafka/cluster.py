"""Queries of a Kafka cluster: topics, partitions and offsets, one request per query.

They use a consumer that reads nothing. librdkafka's admin client ends the process with a failed assertion
when a response arrives after its request has timed out (confluentinc/librdkafka#4605), as happens when a
broker is restarted; only topic ids require it.
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

from sinksdk.engine.commits import TopicIdCheck
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
"""The topic or partition does not exist, or no longer."""
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
"""A broker refuses the login."""
_DENIED: Final = REFUSED | frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
    }
)
# What Kafka answers to a commit from outside while a consumer is in the group.
_IN_USE: Final = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
    }
)


@contextmanager
def asking(bootstrap: str, what: str) -> Iterator[None]:
    """Translates exceptions of Kafka's clients.

    Raises:
        RetriableException: no broker responds, or the error may pass.
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
    """Queries one cluster, from any thread. Methods raise what :func:`asking` raises.

    Args:
        properties: librdkafka's; ``isolation.level`` says whether partitions end at the last stable offset,
            before any transaction that is still open, or at the log's end.

    Raises:
        ConfigException: the properties are not accepted.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.properties = properties
        self.bootstrap = properties["bootstrap.servers"]
        self._consumer = bystander(properties, "sinksdk-bystander", {"error_cb": self._note_refusal})
        self._refusal = ""
        self._admin: AdminClient | None = None
        self._asked: dict[str, Future[Any]] = {}
        self._leaderless: dict[str, frozenset[int]] = {}

    def close(self) -> None:
        self._consumer.close()
        self._admin = None

    def refusal(self) -> str:
        """Why the last broker refused this client's login; empty if none did.

        Requests to such a broker only time out; librdkafka reports the reason on the side.
        """
        self._consumer.poll(0)
        return self._refusal

    def topic_names(self) -> list[str]:
        """All topics but Kafka's own."""
        with asking(self.bootstrap, "its topics"):
            found = self._consumer.list_topics(timeout=_TIMEOUT).topics
        return sorted(name for name in found if not name.startswith("__"))

    def partitions(self, topics: Collection[str]) -> dict[str, list[TopicPartition]]:
        """Partitions of those of the named topics that exist."""
        found = {}
        for name, topic in self._described(topics).items():
            if topic.error is None:
                found[name] = [TopicPartition(name, number) for number in sorted(topic.partitions)]
            elif topic.error.code() not in GONE:
                with asking(self.bootstrap, f"topic {name}"):
                    raise KafkaException(topic.error)
        return found

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Ids of those of the named topics that exist (KIP-516): a topic created again has another one."""
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

    def extents(
        self, partitions: Collection[TopicPartition], unavailable: set[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetRange]:
        """The log's start and end of each partition; one that was deleted meanwhile is left out.

        Args:
            unavailable: gets partitions that have no leader.

        Raises:
            RetriableException: also where a partition has no leader, without ``unavailable``.
        """
        begins = self._offsets(partitions, _EARLIEST, unavailable)
        ends = self._offsets(partitions, _LATEST, unavailable)
        both = (p for p in partitions if p in begins and p in ends)
        return {p: OffsetRange(begins[p], max(begins[p], ends[p])) for p in both}

    def available(self, partitions: Iterable[TopicPartition]) -> Partitions:
        """The same, with partitions that have no leader listed as unavailable.

        librdkafka returns nothing if one of the requested partitions has no leader. So partitions without a
        leader at the last call of :meth:`partitions` are not requested.

        Raises:
            RetriableException: also where no partition at all has a leader.
        """
        wanted = list(partitions)
        led = [p for p in wanted if p.partition not in self._leaderless.get(p.topic, ())]
        unavailable = set(wanted) - set(led)
        found = self.extents(led, unavailable)
        if unavailable and not found:
            message = (
                f"the Kafka cluster at {self.bootstrap} was asked for its offsets: no partition has a leader"
            )
            raise RetriableException(message)
        return Partitions(found, unavailable)

    def _note_refusal(self, error: KafkaError) -> None:
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
                number for number, known in topic.partitions.items() if known.leader == _NO_LEADER
            )
        return found

    def _descriptions(self, topics: Collection[str]) -> dict[str, Future[Any]]:
        """Pending requests; a request without a response yet is not repeated.

        Requests with a response are made again, since that may be minutes old.
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
        unavailable: set[TopicPartition] | None,
    ) -> dict[TopicPartition, int]:
        """Offsets of partitions; those without a leader are added to ``unavailable``, if it is given."""
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


class ConsumerGroup:
    """A consumer group whose offsets are read and written from outside; this client never joins it.

    Methods raise RetriableException and ConnectException as :func:`asking`.

    Args:
        name: Connect's for a sink is ``connect-<connector>``.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._consumer = bystander(cluster.properties, name)
        self.name = name

    def __str__(self) -> str:
        return f"consumer group {self.name} at {self._cluster.bootstrap}"

    def offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Its committed offsets; empty if the group does not exist."""
        rows = [KafkaPartition(p.topic, p.partition) for p in sorted(partitions)]
        with asking(self._cluster.bootstrap, str(self)):
            found = self._consumer.committed(rows, timeout=_TIMEOUT) if rows else []
            _raise_any(found)
        return {TopicPartition(row.topic, row.partition): row.offset for row in found if row.offset >= 0}

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit these offsets; other partitions keep theirs, and deleted topics are passed over.

        Raises:
            ConnectException, RetriableException: also where a consumer is in the group.
        """
        with asking(self._cluster.bootstrap, str(self)):
            self._commit(offsets)

    def is_in_use(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Whether consumers are in it, which may still commit: Kafka refuses other commits meanwhile.

        Args:
            offsets: its committed ones, which are written back. Without any the result is False.
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


def replaced_topics(
    ids: Mapping[str, str], topic_ids: Callable[[Collection[str]], Mapping[str, str]], topics: Collection[str]
) -> dict[str, ConnectException]:
    """Errors of topics that have other ids than they were planned with; without a response, of all of them.

    Kafka's consumers know names only: they read on in a topic that was created again (KIP-516).

    Args:
        ids: of the planned topics; others are not checked.
        topic_ids: :meth:`Cluster.topic_ids`.
    """
    asked = sorted(ids.keys() & set(topics))
    if not asked:
        return {}
    try:
        now = topic_ids(asked)
    except ConnectException as error:
        return dict.fromkeys(asked, error)
    return {
        topic: _replaced(topic, ids[topic], now.get(topic)) for topic in asked if now.get(topic) != ids[topic]
    }


def _replaced(topic: str, planned: str, now: str | None) -> MissingSourceTopicException:
    what = "was deleted" if now is None else f"was deleted and created again (its id is {now})"
    return MissingSourceTopicException(
        [topic],
        f"topic {topic!r} {what} while it was read (its id was {planned}): nothing that was read of it since "
        f"the last commit is committed",
    )


def topic_id_check(client: KafkaClient, overrides: Mapping[str, str], ids: Mapping[str, str]) -> TopicIdCheck:
    """The check of :func:`replaced_topics` for a cluster; connects with the first one.

    Args:
        overrides: of its consumers, in Java's words.

    Raises:
        ConfigException: the client's properties cannot be used on this host, as their file is missing.
    """
    return functools.partial(
        replaced_topics, ids, _cluster_of(client, tuple(sorted(overrides.items()))).topic_ids
    )


@functools.lru_cache(maxsize=4)
def _cluster_of(client: KafkaClient, overrides: tuple[tuple[str, str], ...]) -> Cluster:
    """One for all tasks of a Python worker, which runs many of them one after the other."""
    return Cluster(client.librdkafka(dict(overrides)))
