"""A driver's view of its source: topics, partitions and end offsets, and missing topics (KIP-662)."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Final

from sinksdk.config import ConnectorConfig
from sinksdk.control.ends import LATE, QUERY_INTERVAL
from sinksdk.engine.clock import Clock
from sinksdk.errors import ConnectException, MissingSourceTopicException
from sinksdk.offsets import OffsetRange, TopicPartition
from sinksdk.runtime.planner import LostTail
from sinksdk.store.records import PartitionCommit
from sinksdk.support.threads import Background, in_a_thread
from sinksdk.topics import Source, Subscription
from sinksdk.topics.base import Position, Snapshot, take_snapshot

log = logging.getLogger(__name__)

_TICK: Final = 1.0  # seconds


class TruncationCheck:
    """Compares commits with logs; again after each change of a partition's commit or leader."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._known: dict[TopicPartition, tuple[Position, int, LostTail | None]] = {}

    def of(
        self, committed: Mapping[TopicPartition, PartitionCommit], snapshot: Snapshot
    ) -> dict[TopicPartition, LostTail]:
        doubts = {
            partition: (Position(entry.offset, entry.leader_epoch), epoch)
            for partition, epoch in snapshot.epochs.items()
            if (entry := committed.get(partition)) is not None
            and entry.leader_epoch not in (None, epoch)
            and (held := snapshot.partitions.get(partition)) is not None
            and held.start <= entry.offset <= held.end
            and entry.leader_epoch is not None
        }
        # An unclean leader election or a restored broker gives new records offsets that were already read.
        # Once the log is longer than the commit again, only leader epochs show that (decision 0034).
        unknown = {p: at for p, (at, epoch) in doubts.items() if self._known.get(p, ())[:2] != (at, epoch)}
        if unknown:
            found = self._source.truncated(unknown)
            for partition, at in unknown.items():
                lost = LostTail(found[partition]) if partition in found else None
                self._known[partition] = at, doubts[partition][1], lost
        self._known = {p: known for p, known in self._known.items() if p in doubts}
        return {p: lost for p, (_, _, lost) in self._known.items() if lost is not None}


@dataclass(frozen=True, slots=True)
class Read:
    """The store's commits and topic ids, read before a query of the source began."""

    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)


class TopicWatch:
    """Topics that are missing as of the last query, and those that certainly are. Pure, without I/O."""

    def __init__(
        self,
        connector: str,
        subscription: Subscription,
        *,
        grace: float,
        waits: bool,
        skips_lost: bool = False,
    ) -> None:
        self._skips_lost = skips_lost
        self.connector = connector
        self._subscription = subscription
        self._grace = grace
        # ``missing.topic.policy=wait``: the connector runs without the topic instead of failing.
        self._waits = waits
        self._problems: Mapping[str, str] = {}
        self._since: dict[str, float] = {}
        # Missing in every query for the grace time: a broker may respond with outdated metadata right after a
        # topic's creation.
        self.certain: frozenset[str] = frozenset()
        self._has_warned_of_nothing = False

    @property
    def gone(self) -> frozenset[str]:
        """Topics that were missing in the last query, certainly or not: they must not be read."""
        return frozenset(self._problems)

    def is_read(self, topic: str) -> bool:
        return self._subscription.covers(topic) and topic not in self.certain

    @property
    def is_in_doubt(self) -> bool:
        return self.gone != self.certain

    @property
    def recheck_at(self) -> float:
        return min((self._since[topic] + self._grace for topic in self.gone - self.certain), default=math.inf)

    def see(self, snapshot: Snapshot, read: Read) -> None:
        before, was_certain = self.gone, self.certain
        self._problems = self._find(snapshot, read)
        self._since = {topic: self._since.get(topic, snapshot.at) for topic in self._problems}
        self.certain = frozenset(t for t, since in self._since.items() if snapshot.at - since >= self._grace)
        self._log_changes(before, was_certain, is_nothing=not snapshot.partitions and not self._problems)

    def alarm(self) -> MissingSourceTopicException | None:
        if self._waits or not self.certain:
            return None
        return MissingSourceTopicException(self.certain, f"connector {self.connector}: {self._reasons()}")

    def must_close(self, topics: set[str]) -> bool:
        return bool(self.certain) if not self._waits else not self.certain.isdisjoint(topics)

    def _find(self, snapshot: Snapshot, read: Read) -> dict[str, str]:
        problems = dict(snapshot.absent)
        existing = {partition.topic for partition in (*snapshot.partitions, *snapshot.unavailable)}
        topics = {*read.ids, *(partition.topic for partition in read.committed)}
        for topic in sorted(topics - problems.keys()):
            if not self._subscription.covers(topic):
                continue
            # A regular expression may match nothing yet; topics that were read must stay.
            if self._subscription.regex and topic not in existing:
                problems[topic] = (
                    f"the source no longer has topic {topic!r}, whose records were read: restore it, exclude "
                    f"it from 'topics.regex', or stop the connector and remove the topic's offsets"
                )
            elif (problem := _replaced(topic, snapshot, read, skips_lost=self._skips_lost)) is not None:
                problems[topic] = problem
        return problems

    def _reasons(self) -> str:
        return "; ".join(dict.fromkeys(self._problems[topic] for topic in sorted(self.certain)))

    def _log_changes(self, before: frozenset[str], was_certain: frozenset[str], *, is_nothing: bool) -> None:
        for topic in sorted(self.gone - before):
            log.warning(
                "connector %s: topic %r is missing; retrying for %g s (missing.topic.grace.ms)",
                self.connector,
                topic,
                self._grace,
            )
        for topic in sorted(before - self.gone):
            log.warning("connector %s: topic %r exists again", self.connector, topic)
        for topic in sorted(self.certain - was_certain if self._waits else ()):
            log.error(
                "connector %s continues without topic %r until it exists again (missing.topic.policy=wait): "
                "%s",
                self.connector,
                topic,
                self._problems[topic],
            )
        if is_nothing and self._subscription.regex and not self._has_warned_of_nothing:
            self._has_warned_of_nothing = True
            log.warning(
                "connector %s: no topic with partitions matches 'topics.regex' yet; matching topics are read "
                "once they exist",
                self.connector,
            )


def _replaced(topic: str, snapshot: Snapshot, read: Read, *, skips_lost: bool) -> str | None:
    """Describe why a topic of this name is not the one that was read; None if it may be."""
    before, now = read.ids.get(topic), snapshot.ids.get(topic)
    if before is not None and now is not None and before != now:
        return (
            f"topic {topic!r} was deleted and created again (its id is {now}, but records were read with id "
            f"{before}): restore it, give the connector another name to read the new topic from its start, "
            f"or stop the connector and remove the topic's offsets ('sinksdk offsets alter NAME {topic}-0=')"
        )
    # A new topic starts at offset 0, and its records differ. One that only lost records has the same id.
    if skips_lost and before is not None and before == now:
        return None
    for partition, committed in sorted(read.committed.items()):
        if partition.topic != topic or partition in snapshot.unavailable:
            continue
        available = snapshot.partitions.get(partition)
        end = available.end if available is not None else 0
        if end < committed:
            return (
                f"{partition} is committed up to offset {committed}, but the end offset of the source is "
                f"{end}: the topic was deleted and created again, or its newest records were removed; "
                f"restore it, give the connector another name to start from scratch, or stop the connector "
                f"and remove the topic's offsets ('sinksdk offsets alter NAME {partition}=')"
            )
    return None


class SourceMonitor:
    # More than ten attributes: the view and a background refresh change together.
    def __init__(
        self,
        config: ConnectorConfig,
        source: Source,
        clock: Clock,
        background: Background = in_a_thread,
        *,
        is_fixed: bool = False,
    ) -> None:
        self.subscription = Subscription(config.topics, config.topics_regex)
        self.topics = TopicWatch(
            config.name,
            self.subscription,
            grace=config.missing_topic_grace_ms / 1000,
            waits=config.missing_topic_policy == "wait",
            skips_lost=config.on_data_loss == "skip",
        )
        # The driver reads up to the end offsets of the first query, and ends then.
        self.is_fixed = is_fixed
        self._first: dict[TopicPartition, OffsetRange] | None = None
        self._awaited: frozenset[TopicPartition] = frozenset()
        self._source = source
        self._clock = clock
        self._interval = max(QUERY_INTERVAL, config.poll_interval_ms / 1000)
        self._background = background
        self._read = Read()
        self.snapshot = Snapshot(0.0, {})
        # The next plan is made from the last snapshot of :meth:`refresh`.
        self.refreshed = self.snapshot
        self._truncation = TruncationCheck(source)
        self._next = 0.0
        self._seen_at = clock.now()
        self._has_failed = False
        self._querying = threading.Lock()
        self._refresh: Future[Snapshot] | None = None

    @property
    def ends(self) -> dict[TopicPartition, int]:
        return {partition: offsets.end for partition, offsets in self.snapshot.partitions.items()}

    @property
    def unseen_for(self) -> float:
        """Seconds since the start of the last successful query, while end offsets are unknown; else 0."""
        seconds = self._clock.now() - self._seen_at
        return seconds if self._has_failed or seconds > self._interval + LATE else 0.0

    def compare_with(self, read: Read) -> None:
        """Compare later snapshots with ``read``; drop a refresh that began before."""
        self._read = read
        self._refresh = None

    def refresh(self, meanwhile: Callable[[], None] = lambda: None) -> dict[TopicPartition, OffsetRange]:
        query: Future[Snapshot] = Future()
        self._background(lambda: self._run_query(query))
        # The driver sends heartbeats while it waits for the query.
        while not wait([query], _TICK).done:
            meanwhile()
        try:
            self.refreshed = snapshot = query.result()
        except Exception:
            self._has_failed = True
            raise
        self._see(snapshot)
        return {p: offsets for p, offsets in snapshot.partitions.items() if p.topic not in self.topics.gone}

    def _run_query(self, query: Future[Snapshot]) -> None:
        with self._querying:
            at, known = self._clock.now(), self.snapshot.ids
            try:
                query.set_result(take_snapshot(self._source, self.subscription, at, known))
            except Exception as error:  # noqa: BLE001 - raised where the result is taken
                query.set_exception(error)

    def lost_tails(
        self, committed: Mapping[TopicPartition, PartitionCommit]
    ) -> dict[TopicPartition, LostTail]:
        return self._truncation.of(committed, self.refreshed)

    @property
    def is_known(self) -> bool:
        return self._first is not None

    def readable(self, available: dict[TopicPartition, OffsetRange]) -> dict[TopicPartition, OffsetRange]:
        """Return the readable ranges; none while the first refresh leaves a topic in doubt."""
        if self._first is None:
            # A connector that fails at each start must not leave a file of the other topics' first records
            # each time.
            if self.topics.is_in_doubt:
                return {}
            self._first, self._awaited = available, self.snapshot.unavailable
        if not self.is_fixed:
            return available
        # A partition that was unavailable is read up to its end offset once it is available.
        now_available = self._awaited & (available.keys() - self._first.keys())
        self._first |= {p: available[p] for p in now_available}
        return {
            p: OffsetRange(now.start, max(now.start, self._first[p].end))
            for p, now in available.items()
            if p in self._first
        }

    def gone_of(self, topics: set[str]) -> set[str]:
        try:
            self.refresh()
        except ConnectException as error:
            log.info("cannot check whether topics are missing: %s", error)
            return set()
        return topics & self.topics.gone

    def overtaken(self, positions: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        return {
            partition
            for partition, position in positions.items()
            if (held := self.snapshot.partitions.get(partition)) is not None and held.start > position
        }

    def refresh_in_background(self) -> None:
        # This method never blocks. It ignores errors, because the next planning handles them.
        if self._refresh is None:
            if self._clock.now() >= min(self._next, self.topics.recheck_at):
                self._start()
        elif self._refresh.done():
            refresh, self._refresh = self._refresh, None
            self._next = self._clock.now() + self._interval
            error = refresh.exception()
            if error is None:
                self._see(refresh.result())
            else:
                self._has_failed = True
                log.info("reading the topics of the source failed, retrying: %s", error)

    def _see(self, snapshot: Snapshot) -> None:
        before, self.snapshot = self.snapshot, snapshot
        # The start of the query counts: records may have come while a broker was frozen.
        self._seen_at, self._has_failed = snapshot.at, False
        self._log_unavailable(before.unavailable, snapshot.unavailable)
        self._next = self._clock.now() + self._interval
        self.topics.see(snapshot, self._read)

    def _log_unavailable(self, before: frozenset[TopicPartition], now: frozenset[TopicPartition]) -> None:
        for partition in sorted(now - before):
            log.warning(
                "connector %s: %s has no leader and is not read until it has one; other partitions are read",
                self.topics.connector,
                partition,
            )
        for partition in sorted(before - now):
            log.warning("connector %s: %s has a leader again", self.topics.connector, partition)

    def _start(self) -> None:
        refresh: Future[Snapshot] = Future()

        def run() -> None:
            if self._refresh is refresh:  # false if the refresh was dropped before it began
                self._run_query(refresh)

        self._refresh = refresh
        self._background(run)
