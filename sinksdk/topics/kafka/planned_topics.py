"""Whether Kafka's topics are still those that a generation was planned for (KIP-516)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping

from sinksdk.errors import ConnectException, MissingSourceTopicException
from sinksdk.topics.kafka.client import KafkaClient
from sinksdk.topics.kafka.cluster import Cluster

Overrides = tuple[tuple[str, str], ...]


class PlannedTopics:
    """Vouches for topics by their ids (:data:`~sinksdk.engine.commits.TopicIdCheck`).

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
    return PlannedTopics(ids, _cluster(client, tuple(sorted(overrides.items()))).topic_ids)


@functools.lru_cache(maxsize=4)
def _cluster(client: KafkaClient, overrides: Overrides) -> Cluster:
    """One for all tasks of a Python worker, which has many of them one after the other."""
    return Cluster(client.librdkafka(dict(overrides)))
