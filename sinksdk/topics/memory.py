"""Topics in memory, with the rules of transactional ids: for simulations and tests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from sinksdk.engine.writer import CommittedOffsets
from sinksdk.errors import FencedException
from sinksdk.offsets import TopicPartition
from sinksdk.source.positions import SourcePosition, partition_key
from sinksdk.source.records import RecordMetadata, SourceOffset, SourcePartition, SourceRecord

T = TypeVar("T")
Operate = Callable[[str, Callable[[], T]], T]


class _Transaction(NamedTuple):
    transactional_id: str
    epoch: int
    number: int


class MemoryTopics:
    def __init__(self, operate: Operate[object] | None = None) -> None:
        # The indices of a log are its offsets.
        self.logs: dict[TopicPartition, list[SourceRecord]] = defaultdict(list)
        self.epochs: dict[str, int] = {}  # epochs by transactional id
        self.positions: dict[str, dict[str, SourcePosition]] = defaultdict(dict)
        # A simulation runs other processes between reads and changes here, and loses responses.
        self._operate = operate
        self._committed: dict[_Transaction, Sequence[RecordMetadata]] = {}

    def records(self, topic: str) -> list[SourceRecord]:
        return [record for at in sorted(self.logs) if at.topic == topic for record in self.logs[at]]

    def operate(self, what: str, effect: Callable[[], T]) -> T:
        if self._operate is None:
            return effect()
        return self._operate(what, effect)  # type: ignore[return-value] # the result of effect

    def take_over(self, transactional_id: str) -> int:
        self.epochs[transactional_id] = self.epochs.get(transactional_id, 0) + 1
        return self.epochs[transactional_id]

    def check(self, transactional_id: str, epoch: int) -> None:
        newest = self.epochs[transactional_id]
        if newest != epoch:
            raise FencedException(
                f"transactional id {transactional_id}: epoch {epoch} was fenced by epoch {newest}"
            )

    def append(
        self,
        transaction: _Transaction,
        connector: str,
        records: Sequence[SourceRecord],
        positions: Sequence[SourcePosition],
        forget: Sequence[SourcePartition] = (),
    ) -> Sequence[RecordMetadata]:
        """Commit a transaction and return where its records are; committing again changes nothing."""
        if transaction in self._committed:
            return self._committed[transaction]
        self.check(transaction.transactional_id, transaction.epoch)
        written = []
        for record in records:
            at = TopicPartition(record.topic, record.partition or 0)
            written.append(RecordMetadata(*at, len(self.logs[at])))
            self.logs[at].append(record)
        for position in positions:
            self.positions[connector][partition_key(position.partition)] = position
        for partition in forget:
            self.positions[connector].pop(partition_key(partition), None)
        self._committed[transaction] = written
        return written


class MemoryWriter:
    def __init__(self, topics: MemoryTopics, transactional_id: str, connector: str) -> None:
        self._topics = topics
        self._id = transactional_id
        self._connector = connector
        self._epoch = 0
        self._number = 0
        self._sent: list[SourceRecord] = []
        self.is_closed = False

    def init(self) -> None:
        self._epoch = self._topics.operate(
            f"{self._id} fences its predecessors", lambda: self._topics.take_over(self._id)
        )

    def begin(self) -> None:
        self._number += 1
        self._sent = []

    def send(self, record: SourceRecord) -> None:
        self._topics.operate(f"{self._id} sends", lambda: self._topics.check(self._id, self._epoch))
        self._sent.append(record)

    def commit(
        self, positions: Sequence[SourcePosition], forget: Sequence[SourcePartition] = ()
    ) -> Sequence[RecordMetadata]:
        transaction = _Transaction(self._id, self._epoch, self._number)
        return self._topics.operate(
            f"{self._id} commits {len(self._sent)} records",
            lambda: self._topics.append(transaction, self._connector, self._sent, positions, forget),
        )

    def abort(self) -> None:
        self._topics.operate(f"{self._id} aborts", lambda: self._topics.check(self._id, self._epoch))
        self._sent = []

    def close(self) -> None:
        self._sent = []
        self.is_closed = True


class MemoryOffsets(CommittedOffsets):
    def __init__(self, topics: MemoryTopics, connector: str) -> None:
        self._topics = topics
        self._connector = connector

    def offsets(self, partitions: Sequence[SourcePartition]) -> Sequence[SourceOffset | None]:
        keys = [partition_key(partition) for partition in partitions]

        def read() -> Sequence[SourceOffset | None]:
            known = self._topics.positions[self._connector]
            return [dict(known[key].offset) if key in known else None for key in keys]

        return self._topics.operate(f"offsets of {self._connector} are read", read)

    def positions(self) -> Sequence[SourcePosition]:
        return self._topics.operate(
            f"all offsets of {self._connector} are read",
            lambda: list(self._topics.positions[self._connector].values()),
        )
