"""Which subscribed topics are missing, and since when (KIP-662). Pure: looks and their times are handed in.

A topic is missing when it is not in the source. It is missing, too, when another one has its name: a topic
that was deleted and created again begins at offset 0, and what follows the commit there is not what followed
it before. One look is not enough to be certain, since what a broker says right after a topic's creation may
be older than the topic: a topic must be missing in every look until the grace time is over.

A regular expression may match nothing yet. Of the topics it matches, those that were read must stay.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from sinksdk.errors import MissingSourceTopicException
from sinksdk.records import TopicPartition
from sinksdk.topics import Subscription
from sinksdk.topics.base import Snapshot

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Read:
    """What the store says was read, before a look at the source began.

    Args:
        committed: next offset to read of each partition.
        ids: id of each topic of which something was read.
    """

    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def topics(self) -> set[str]:
        """Topics of which something was read."""
        return {*self.ids, *(partition.topic for partition in self.committed)}


class TopicWatch:
    """Knows which topics are missing as of the last look, and which of them for certain.

    Args:
        connector: the connector's name.
        subscription: what it reads.
        grace: seconds for which a topic must be missing until that is certain.
        waits: go on without it then (``missing.topic.policy=wait``), instead of failing.
    """

    def __init__(self, connector: str, subscription: Subscription, *, grace: float, waits: bool) -> None:
        self.connector = connector
        """The connector's name."""
        self._subscription = subscription
        self._grace = grace
        self._waits = waits
        self._problems: Mapping[str, str] = {}
        self._since: dict[str, float] = {}
        self._certain: frozenset[str] = frozenset()
        self._has_warned_of_nothing = False

    @property
    def gone(self) -> frozenset[str]:
        """Topics that were missing in the last look, certainly or not: nothing may be read of them."""
        return frozenset(self._problems)

    @property
    def certain(self) -> frozenset[str]:
        """Topics that have been missing for the grace time, in every look."""
        return self._certain

    @property
    def is_in_doubt(self) -> bool:
        """Whether a topic is missing and may still turn out to be there."""
        return self.gone != self._certain

    @property
    def recheck_at(self) -> float:
        """When to look again at the latest, to be certain of what is in doubt; never: infinity."""
        return min(
            (self._since[topic] + self._grace for topic in self.gone - self._certain), default=math.inf
        )

    def see(self, snapshot: Snapshot, read: Read) -> None:
        """Take in a look at the source. What was read must have been known before the look began."""
        before, was_certain = self.gone, self._certain
        self._problems = self._find(snapshot, read)
        self._since = {topic: self._since.get(topic, snapshot.at) for topic in self._problems}
        self._certain = frozenset(t for t, since in self._since.items() if snapshot.at - since >= self._grace)
        self._log_changes(before, was_certain, is_nothing=not snapshot.partitions and not self._problems)

    def alarm(self) -> MissingSourceTopicException | None:
        """What ends the connector, once it is certain; None where it waits."""
        if self._waits or not self._certain:
            return None
        return MissingSourceTopicException(self._certain, f"connector {self.connector}: {self._reasons()}")

    def must_close(self, topics: set[str]) -> bool:
        """Whether a generation that reads these topics shall close."""
        return bool(self._certain) if not self._waits else not self._certain.isdisjoint(topics)

    def _find(self, snapshot: Snapshot, read: Read) -> dict[str, str]:
        """What is wrong with each topic that is missing."""
        problems = dict(snapshot.absent)
        there = {partition.topic for partition in (*snapshot.partitions, *snapshot.unavailable)}
        for topic in sorted(read.topics - problems.keys()):
            if not self._subscription.covers(topic):
                continue
            if self._subscription.regex and topic not in there:
                problems[topic] = (
                    f"the source no longer has topic {topic!r}, of which records were read: restore it, let "
                    f"'topics.regex' not match it, or stop the connector and take back the topic's offsets"
                )
            elif (problem := _replaced(topic, snapshot, read)) is not None:
                problems[topic] = problem
        return problems

    def _reasons(self) -> str:
        """Of all that is certain; the source may say the same of several topics."""
        return "; ".join(dict.fromkeys(self._problems[topic] for topic in sorted(self._certain)))

    def _log_changes(self, before: frozenset[str], was_certain: frozenset[str], *, is_nothing: bool) -> None:
        for topic in sorted(self.gone - before):
            log.warning(
                "connector %s: topic %r is missing; it is looked for again for %g s (missing.topic.grace.ms)",
                self.connector,
                topic,
                self._grace,
            )
        for topic in sorted(before - self.gone):
            log.warning("connector %s: topic %r is back", self.connector, topic)
        for topic in sorted(self._certain - was_certain if self._waits else ()):
            log.error(
                "connector %s goes on without topic %r until it is back, as missing.topic.policy says: %s",
                self.connector,
                topic,
                self._problems[topic],
            )
        if is_nothing and self._subscription.regex and not self._has_warned_of_nothing:
            self._has_warned_of_nothing = True
            log.warning(
                "connector %s: no topic with partitions matches 'topics.regex' yet; it is read once there is "
                "one",
                self.connector,
            )


def _replaced(topic: str, snapshot: Snapshot, read: Read) -> str | None:
    """Why a topic of this name is not the one that was read; None if nothing speaks against it."""
    before, now = read.ids.get(topic), snapshot.ids.get(topic)
    if before is not None and now is not None and before != now:
        return (
            f"topic {topic!r} was deleted and created again (its id is {now}, what was read had {before}): "
            f"restore it, give the connector another name to read the new one from its start, or stop the "
            f"connector and take back the topic's offsets ('sinksdk offsets alter NAME {topic}-0=')"
        )
    for partition, committed in sorted(read.committed.items()):
        if partition.topic != topic or partition in snapshot.unavailable:
            continue
        available = snapshot.partitions.get(partition)
        end = available.end if available is not None else 0
        if end < committed:
            return (
                f"{partition} is committed up to offset {committed}, but the source ends at {end}: the topic "
                f"was deleted and created again, or its newest records were removed; restore it, give the "
                f"connector another name to start afresh, or stop the connector and take back the topic's "
                f"offsets ('sinksdk offsets alter NAME {partition}=')"
            )
    return None
