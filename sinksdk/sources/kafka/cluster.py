"""What a Kafka cluster says of its topics, partitions and offsets, in one request per question."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined] # public, but not listed

from sinksdk.errors import ConfigException, ConnectException, RetriableException
from sinksdk.records import OffsetRange, TopicPartition

_EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call] # confluent-kafka's
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call] # the same
_TIMEOUT: Final = 15.0  # seconds for one request; librdkafka tries again within it
_GONE: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})  # noqa: SLF001 - librdkafka's names for its own errors
_DENIED: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,  # noqa: SLF001 - the same
        KafkaError._SSL,  # noqa: SLF001 - the same
    }
)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster describes it.

    Args:
        name: its name.
        id: given at its creation: another one under the same name is another topic.
        partitions: their numbers.
    """

    name: str
    id: str
    partitions: tuple[int, ...]


class Cluster:
    """Asks one cluster. May be used from any thread.

    Args:
        properties: of confluent-kafka's clients.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.bootstrap = properties["bootstrap.servers"]
        try:
            # What librdkafka logs of a broker that is away, the errors here say as well.
            self._admin = AdminClient({"log_level": 2, **properties})
        except KafkaException as error:
            raise ConfigException(f"the Kafka client properties are not accepted: {error}") from error

    def topic_names(self) -> list[str]:
        """Names of all topics but Kafka's own.

        Raises:
            RetriableException: no broker answers.
            ConnectException: access is denied.
        """
        with self._asking("its topics"):
            found = self._admin.list_topics(timeout=_TIMEOUT).topics
        return sorted(name for name in found if not name.startswith("__"))

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        """Those of the named topics that exist.

        Raises:
            RetriableException, ConnectException: as :meth:`topic_names`.
        """
        if not names:
            return {}
        with self._asking("its topics"):
            asked = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=_TIMEOUT)
        found = {}
        for name, future in asked.items():
            with self._asking(f"topic {name}"):
                if (topic := _unless_gone(future)) is not None:
                    numbers = tuple(sorted(partition.id for partition in topic.partitions))
                    found[name] = Topic(name, str(topic.topic_id), numbers)
        return found

    def extents(
        self, partitions: Iterable[TopicPartition], *, committed_only: bool
    ) -> dict[TopicPartition, OffsetRange]:
        """The log's start and end of each partition; one that is gone meanwhile is left out.

        Args:
            partitions: which.
            committed_only: end at the last stable offset: before any transaction that is still open.

        Raises:
            RetriableException: a partition has no leader, or no broker answers.
            ConnectException: access is denied.
        """
        wanted = list(partitions)
        level = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
        begins = self._offsets(wanted, _EARLIEST, level)
        ends = self._offsets(wanted, _LATEST, level)
        return {
            p: OffsetRange(begins[p], max(begins[p], ends[p])) for p in wanted if p in begins and p in ends
        }

    def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        """What a consumer group has committed; a group that does not exist has nothing.

        Raises:
            RetriableException, ConnectException: as :meth:`topic_names`.
        """
        with self._asking(f"consumer group {group}"):
            asked = self._admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group)], request_timeout=_TIMEOUT
            )
            answer = asked[group].result()
        return {
            TopicPartition(row.topic, row.partition): row.offset
            for row in answer.topic_partitions
            if row.offset >= 0
        }

    def alter_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Make a consumer group's offsets these; others of it stay.

        Raises:
            RetriableException, ConnectException: as :meth:`topic_names`; also where the group has a
                consumer of its own just now.
        """
        rows = [KafkaPartition(p.topic, p.partition, offset) for p, offset in sorted(offsets.items())]
        with self._asking(f"consumer group {group}"):
            asked = self._admin.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, rows)], request_timeout=_TIMEOUT
            )
            for row in asked[group].result().topic_partitions:
                if row.error is not None:
                    raise KafkaException(row.error)

    def _offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, level: IsolationLevel
    ) -> dict[TopicPartition, int]:
        rows = {KafkaPartition(p.topic, p.partition): spec for p in partitions}
        if not rows:
            return {}
        with self._asking("its offsets"):
            asked = self._admin.list_offsets(rows, isolation_level=level, request_timeout=_TIMEOUT)
        found = {}
        for row, future in asked.items():
            with self._asking(f"the offsets of {row.topic}-{row.partition}"):
                if (answer := _unless_gone(future)) is not None:
                    found[TopicPartition(row.topic, row.partition)] = answer.offset
        return found

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            message = f"the Kafka cluster at {self.bootstrap} was asked for {what}: {reason.str()}"
            if reason.code() in _DENIED:
                raise ConnectException(
                    f"{message}; check the client properties and the user's rights"
                ) from error
            raise RetriableException(message) from error


def _unless_gone(future: Future[Any]) -> Any | None:
    try:
        return future.result()
    except KafkaException as error:
        if error.args[0].code() in _GONE:
            return None
        raise
