"""Change a topic while it is read: retention, truncation, deletion and recreation."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from property_tests.simulation.sink_cluster import Log, batch_of
from property_tests.simulation.world import World
from sinksdk.engine.commits import TopicIdCheck
from sinksdk.engine.task_run import Unread
from sinksdk.errors import MissingSourceTopicException, OffsetOutOfRangeException, RetriableException
from sinksdk.offsets import OffsetRange, TopicPartition
from sinksdk.records import SinkRecord, SinkRecords
from sinksdk.topics import Subscription
from sinksdk.topics.base import Partitions, Position
from sinksdk.topics.kafka.cluster import replaced_topics

T = TypeVar("T")

TOPIC = "orders"
ANOTHER = 1_000_000


class _Topic(NamedTuple):
    id: str
    records: dict[TopicPartition, list[SinkRecord]]
    starts: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]


class ChangingLog(Log):
    # As in Kafka, readers know only the topic's name: they continue in a recreated topic of the same name.
    def __init__(self, world: World, partitions: int, seed: int, *, bad: object = None) -> None:
        assert bad is None, "its values say which topic they are of"
        super().__init__(partitions, seed)
        self._world = world
        self.events = random.Random(f"{seed} events")  # noqa: S311 - chance, not secrets
        self.kinds = self.events.sample(("retention", "truncation", "recreation"), self.events.randint(1, 2))
        # None while the topic is deleted.
        self.id: str | None = "first"
        self.starts = dict.fromkeys(self.records, 0)
        self.epochs = dict.fromkeys(self.records, 1)
        self.begins: dict[TopicPartition, dict[int, int]] = {partition: {1: 0} for partition in self.records}
        # Below this offset, a partition may have had other records before.
        self.peaks = dict.fromkeys(self.records, 0)
        self.before = self._another(seed)
        self.shaken = set[TopicPartition]()
        self._first: _Topic | None = None

    def _another(self, seed: int) -> dict[TopicPartition, OffsetRange] | None:
        dice = random.Random(f"{seed} before")  # noqa: S311 - chance, not secrets
        if dice.random() < 0.5:
            return None
        starts = {partition: dice.randint(0, 20) for partition in self.records}
        return {
            partition: OffsetRange(start, start + dice.randint(0, 20)) for partition, start in starts.items()
        }

    # -- changes --------------------------------------------------------------------------

    def retain(self, partition: TopicPartition, start: int, committed: int) -> None:
        self._world.tell(f"retention removes what {partition.partition} has below {start}")
        self._world.happened["retention removed records before they were committed"] += start > committed
        self._give_up(partition, committed, range(start))
        self.starts[partition] = start
        self.records[partition] = [r for r in self.records[partition] if r.offset >= start]

    def elect(self, partition: TopicPartition, loses_from: int, committed: int) -> None:
        end = self.ends[partition]
        self._world.tell(
            f"{partition.partition} has another leader, its log ends at {loses_from} instead of {end}"
        )
        self._world.happened["another leader"] += 1
        self._world.happened["log lost records below the commit"] += loses_from < min(end, committed)
        self._give_up(partition, committed, range(loses_from, end))
        self.peaks[partition] = max(self.peaks[partition], end if loses_from < end else 0)
        self.records[partition] = [r for r in self.records[partition] if r.offset < loses_from]
        self.ends[partition] = loses_from
        self.epochs[partition] += 1
        self.begins[partition][self.epochs[partition]] = loses_from

    def _give_up(self, partition: TopicPartition, committed: int, offsets: range) -> None:
        # These records were lost, but a task that has read them may archive them.
        self.shaken.add(partition)
        self.withheld[partition].update(
            o for o in self.expected[partition] if o in offsets and o >= committed
        )

    def produce(self, partition: TopicPartition, count: int, gap: int = 0) -> None:
        # A new record may be at an offset that was a gap before a truncation.
        if self.id != "first":
            return
        known = set(self.expected[partition])
        super().produce(partition, count, gap)
        new = (o for o in self.expected[partition] if o < self.peaks[partition])
        self.withheld[partition].update(o for o in new if o not in known)

    def delete(self) -> None:
        self._world.tell("the topic is deleted")
        self._world.happened["topic deleted"] += 1
        if self._first is None:
            self._first = _Topic("first", dict(self.records), dict(self.starts), dict(self.ends))
        self.id = None
        for partition in self.records:
            self.records[partition], self.starts[partition], self.ends[partition] = [], 0, 0

    def create_again(self) -> None:
        self._world.tell("the topic is created again")
        self._world.happened["topic created again"] += 1
        self.id = f"again-{self.events.randrange(10**6)}"
        for partition in self.records:
            end = self.events.choice((0, 3, 20, 80))
            self.ends[partition] = end
            self.records[partition] = [
                SinkRecord(*partition, offset=offset, value=b"%030d" % (offset + ANOTHER))
                for offset in range(end)
            ]

    def create_again_at_once(self) -> None:
        self.delete()
        self.create_again()

    def restore(self) -> None:
        if self._first is not None:
            self._world.tell("the deleted topic is restored")
            self.id = self._first.id
            self.records.update(self._first.records)
            self.starts.update(self._first.starts)
            self.ends.update(self._first.ends)
            self._first = None

    def calm_down(self, committed: Mapping[TopicPartition, int]) -> None:
        self.kinds = []
        for partition, end in self.ends.items():
            beyond = max(self.peaks[partition], committed.get(partition, 0)) - end
            self.produce(partition, 1, gap=max(beyond + 1, 0))

    # -- requests -------------------------------------------------------------------------

    def partitions(self, subscription: Subscription) -> Partitions:
        def effect() -> Partitions:
            if self.id is None:
                raise MissingSourceTopicException([TOPIC])
            if self.before is not None:
                found, self.before = self.before, None
                self._world.happened["topic created again while it was first asked for"] += 1
                return Partitions(found, (), self.epochs)
            found = {p: OffsetRange(self.starts[p], end) for p, end in self.ends.items()}
            return Partitions(found, (), self.epochs)

        return self._ask("offsets", effect)

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        def effect() -> Mapping[str, str]:
            now = self.id if self.before is None else "before"
            return dict.fromkeys(topics, now) if now is not None else {}

        return self._ask("topic ids", effect)

    def truncated(self, positions: Mapping[TopicPartition, Position]) -> dict[TopicPartition, int | None]:
        def effect() -> dict[TopicPartition, int | None]:
            found = dict[TopicPartition, int | None]()
            for partition, (offset, epoch) in positions.items():
                lost = self.lost_since(partition, epoch)
                if lost is not None and lost < offset:
                    found[partition] = lost
            return found

        return self._ask("ends of epochs", effect)

    def lost_since(self, partition: TopicPartition, epoch: int, newest: int | None = None) -> int | None:
        # Return None if no later epoch has begun.
        last = self.epochs[partition] if newest is None else newest
        begins = self.begins[partition].items()
        return min((begin for number, begin in begins if epoch < number <= last), default=None)

    def topic_id_check(self, config: object, source: object, ids: Mapping[str, str]) -> TopicIdCheck:
        return lambda topics: replaced_topics(ids, self.topic_ids, topics)

    def _ask(self, what: str, effect: Callable[[], T]) -> T:
        return self._world.operate(
            f"asks the source for {what}",
            effect,
            lost=RetriableException,
            refused=RetriableException,
            tell=False,
        )

    @contextmanager
    def reading(
        self, world: World, ranges: Mapping[TopicPartition, OffsetRange], overrides: Mapping[str, str]
    ) -> Iterator[Iterator[SinkRecords | Unread | None]]:
        yield self._live(world, ranges)

    def _live(
        self, world: World, ranges: Mapping[TopicPartition, OffsetRange]
    ) -> Iterator[SinkRecords | Unread | None]:
        for partition, offsets in ranges.items():
            at = offsets.start
            while at < offsets.end:
                if world.dice.random() < 0.2:
                    world.sleep(world.dice.choice((0.1, 1.0)))
                    yield None
                if at < self.starts[partition]:
                    world.happened["range whose records were removed before they were read"] += 1
                    yield Unread(
                        partition, OffsetOutOfRangeException(f"{partition} has not got {at} any more")
                    )
                    break
                some = [r for r in self.records[partition] if at <= r.offset < offsets.end]
                if some:
                    some = some[: world.dice.choice((1, 3, 9, 30))]
                    yield batch_of(some)
                    at = some[-1].offset + 1
                elif self.ends[partition] >= offsets.end:
                    break  # the range ends with offsets without records
                else:
                    world.happened["range that the log no longer has"] += 1
                    world.sleep(5.0)
                    yield Unread(partition, RetriableException(f"nothing came of {partition} at {at}"))
                    break
