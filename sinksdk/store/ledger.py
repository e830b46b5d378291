"""One task's commits, in a record that serves as its transactional id (KIP-618).

A newer generation or attempt takes the record over: every later write of the older one fails.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sinksdk.errors import ConnectException, FencedException
from sinksdk.offsets import OffsetAndMetadata, Token, TopicPartition
from sinksdk.store import table
from sinksdk.store.base import Conflict, Store, StoreUnreadable
from sinksdk.store.keys import closing_key, plan_key, segment_key, task_count_key, task_key
from sinksdk.store.records import (
    Begun,
    Closing,
    Dropped,
    GenerationPlan,
    PartitionCommit,
    RetiredTokens,
    Segment,
    TaskCountRecord,
    TaskRecord,
    WrittenBatch,
    by_partition,
    retired,
)
from sinksdk.store.tokens import TaskTokens, TokensByPartition, TokenState, stale_after

log = logging.getLogger(__name__)


class Ledger:
    """A task record in memory; a subclass makes it durable in :meth:`_save`.

    A step that breaks the rules for tokens or cannot be saved has no effect.
    """

    def __init__(
        self,
        record: TaskRecord,
        stale: TokensByPartition,
        segmented: Iterable[PartitionCommit] = (),
        epochs: Mapping[TopicPartition, int] | None = None,
        retired: Iterable[RetiredTokens] = (),
    ) -> None:
        self._epochs = epochs or {}
        self._segmented = {entry.topic_partition: entry for entry in segmented}
        self._generation = record.generation
        self._attempt = record.attempt
        self._entries: Mapping[TopicPartition, PartitionCommit] = {
            e.topic_partition: e for e in record.entries
        }
        commits = {**self._segmented, **self._entries}.values()
        self._tokens = TaskTokens.taken_over(record, stale, commits, retired)
        self._begun = record.begun
        self._unknown = record.model_extra or {}
        self._unsaved = False

    @property
    def begun(self) -> Begun | None:
        return self._begun

    @property
    def attempt(self) -> int:
        return self._attempt

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        entry = self._entry(partition)
        if entry is None:
            return None
        waiting = self._tokens.of(partition, TokenState.COMMITTED)
        return OffsetAndMetadata(entry.offset, entry.metadata, waiting)

    def _entry(self, partition: TopicPartition) -> PartitionCommit | None:
        return self._entries.get(partition) or self._segmented.get(partition)

    def visible(self, partition: TopicPartition) -> int | None:
        entry = self._entry(partition)
        return entry.visible if entry else None

    def due(self, partition: TopicPartition) -> int | None:
        entry = self._entry(partition)
        return entry.due if entry else None

    def records(self, partition: TopicPartition) -> int:
        """Return how many records all attempts of this generation have committed."""
        entry = self._entry(partition)
        return entry.records if entry is not None and entry.generation == self._generation else 0

    def prepared(self, partition: TopicPartition) -> Sequence[Token]:
        return self._tokens.of(partition, TokenState.PREPARED)

    @property
    def held(self) -> Mapping[TopicPartition, Sequence[Token]]:
        # This ledger holds no commit back: each is durable when its write returns.
        return {}

    def stale(self, partition: TopicPartition) -> Sequence[Token]:
        return self._tokens.of(partition, TokenState.STALE, TokenState.LEFT)

    def is_withdrawn(self, partition: TopicPartition) -> bool:
        entry = self._entry(partition)
        return entry is not None and entry.withdrawn_from is not None and entry.generation == self._generation

    def prepare(self, tokens: Mapping[TopicPartition, Sequence[Token]]) -> None:
        self._write(self._entries, self._tokens.prepare(tokens))

    def unusable(self, tokens: Mapping[TopicPartition, Sequence[Token]]) -> dict[TopicPartition, str]:
        return self._tokens.unusable(tokens)

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        records: Mapping[TopicPartition, int] | None = None,
        due: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Commit offsets with the tokens to publish, in one atomic write."""
        entries, tokens = dict(self._entries), self._tokens
        for partition, offset in offsets.items():
            tokens = tokens.commit(partition, offset)
            before, count = self._entry(partition), (records or {}).get(partition, self.records(partition))
            entries[partition] = PartitionCommit.of(
                *(partition, offset, self._generation, before, count),
                leader_epoch=self._epochs.get(partition),
                due=(due or {}).get(partition),
            )
        self._write(entries, tokens)

    def mark_published(self, partition: TopicPartition) -> None:
        """Mark the commit's tokens as published; durable with the next write."""
        before = self._entries.get(partition) or self._segmented[partition]
        changed = {
            "publish": (),
            "published_to": None,
            "generation": self._generation,
            "records": self.records(partition),
        }
        self._entries = {**self._entries, partition: before.model_copy(update=changed)}
        self._tokens = self._tokens.publish(partition)
        self._unsaved = True

    def withdraw(
        self,
        partition: TopicPartition,
        offset: OffsetAndMetadata,
        discard: Sequence[Token],
        partly_visible_to: int | None = None,
    ) -> None:
        """Move the last commit back; the tokens given must be discarded."""
        before = self._entries.get(partition) or self._segmented[partition]
        after = PartitionCommit.of(
            *(partition, offset, self._generation),
            records=self.records(partition),
            leader_epoch=before.leader_epoch,
            due=offset.offset,
        )
        # Records above the commit that an earlier withdrawal has left visible are still visible.
        ends = (end for end in (partly_visible_to, before.partly_visible_to) if end and end > offset.offset)
        changed = {"withdrawn_from": before.offset, "partly_visible_to": max(ends, default=None)}
        entry = after.model_copy(update=changed)
        self._write({**self._entries, partition: entry}, self._tokens.withdraw(partition, discard))

    def mark_discarded(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        """Mark tokens as discarded; durable with the next write."""
        self._tokens = self._tokens.discard(partition, tokens)
        self._unsaved = True

    def begin_at(self, offset: int) -> None:
        if self._begun is not None:
            self._begun = self._begun.model_copy(update={"base": offset})
            self._write(self._entries, self._tokens)

    def flush(self) -> None:
        if self._unsaved:
            self._write(self._entries, self._tokens)

    def _write(self, entries: Mapping[TopicPartition, PartitionCommit], tokens: TaskTokens) -> None:
        record = TaskRecord(
            **self._unknown,
            generation=self._generation,
            attempt=self._attempt,
            entries=tuple(entry for _, entry in sorted(entries.items())),
            prepared=tokens.uncommitted(),
            discarded=tokens.discarded(),
            retired=tokens.retired(),
            begun=self._begun,
        )
        self._save(record)
        self._entries, self._tokens = entries, tokens
        self._unsaved = False

    def _save(self, record: TaskRecord) -> None:
        """Make the record durable. Raises FencedException."""
        raise NotImplementedError


class TaskLedger(Ledger):
    def __init__(
        self,
        store: Store,
        connector: str,
        task: int,
        taken: table.Row[TaskRecord],
        stale: TokensByPartition,
        *,
        segmented: Iterable[PartitionCommit] = (),
        epochs: Mapping[TopicPartition, int] | None = None,
        retired: Iterable[RetiredTokens] = (),
    ) -> None:
        super().__init__(taken.value, stale, segmented, epochs, retired)
        self._store = store
        self._connector = connector
        self._task = task
        self._version = taken.version
        self._segments = taken.value.segments
        self._size = len(self._segmented)  # commits in all segments, replaced ones included
        self._number = 0

    def _write(self, entries: Mapping[TopicPartition, PartitionCommit], tokens: TaskTokens) -> None:
        super()._write(entries, tokens)
        # Without segments each write replaces the whole record: a task of 5,000 partitions wrote 9.9 GB.
        if len(entries) > self._store.most_entries:
            self._segmented |= entries
            self._entries = {}

    def _save(self, record: TaskRecord) -> None:
        head, replaced = record.model_copy(update={"segments": self._segments}), tuple[str, ...]()
        if len(record.entries) > self._store.most_entries:
            # The segment is written first, then the record that names it.
            head, replaced = self._store_segment(head)
        try:
            key = task_key(self._connector, self._task)
            self._version = table.write(self._store, key, head, self._version).version
        except Conflict as error:
            raise FencedException(
                f"connector {self._connector}, task {self._task}, generation {self._generation}, attempt "
                f"{self._attempt}: a newer generation or attempt owns this task; it commits nothing more"
            ) from error
        self._segments = head.segments
        for name in replaced:
            self._remove(name)

    def _store_segment(self, record: TaskRecord) -> tuple[TaskRecord, tuple[str, ...]]:
        entries, kept, replaced = record.entries, record.segments, tuple[str, ...]()
        size = self._size + len(entries)
        segmented = {**self._segmented, **{entry.topic_partition: entry for entry in entries}}
        # Most commits in segments are outdated: one new segment replaces all.
        if size > 2 * len(segmented):
            entries, kept, replaced = tuple(entry for _, entry in sorted(segmented.items())), (), kept
            size = len(entries)
        self._number += 1
        name = f"{record.attempt}-{self._number}"
        key = segment_key(self._connector, record.generation, self._task, name)
        table.write(self._store, key, Segment(entries=entries), None)
        self._size = size
        return record.model_copy(update={"entries": (), "segments": (*kept, name)}), replaced

    def _remove(self, name: str) -> None:
        key = segment_key(self._connector, self._generation, self._task, name)
        try:
            version = self._store.version(key)
            if version is not None:
                self._store.delete(key, version)
        except ConnectException as error:
            log.debug("%s could not be removed, and stays until its generation is pruned: %s", key, error)


class TakenOver(NamedTuple):
    plan: GenerationPlan
    ledger: TaskLedger


def take_over(
    store: Store,
    connector: str,
    generation: int,
    task: int,
    batch: WrittenBatch | None = None,
    *,
    known: table.Row[GenerationPlan] | None = None,
) -> TakenOver | None:
    """Become the owner of a task, fencing earlier attempts; None: a newer generation exists."""
    while True:
        # An old generation must not fence a newer one. The count record is read again after the take-over: a
        # newer generation may have been planned in between.
        plan = current_plan(store, connector, generation, known)
        if plan is None:
            return None
        key = task_key(connector, task)
        before = table.read(store, key, TaskRecord)
        if before is not None and before.value.generation > generation:
            return None
        record = _successor(before.value if before else None, plan, task)
        if batch is not None:
            own = plan.tasks[task].ranges[0]
            begun = Begun.after(record.begun, own.topic_partition, own.start, batch)
            record = record.model_copy(update={"begun": begun})
        try:
            taken = table.write(store, key, record, before.version if before else None)
        except Conflict:
            continue  # another attempt or a fence was faster: read again
        segmented = segment_entries(store, connector, task, taken.value)
        if not is_current(store, connector, generation):
            return None
        if segmented is None:
            raise missing_segment(store, connector, task)
        mine, ranges = _partitions(plan, task), plan.tasks[task].ranges
        ledger = TaskLedger(
            *(store, connector, task, taken),
            {p: tokens for p, tokens in by_partition(plan.stale).items() if p in mine},
            segmented=segmented,
            epochs={r.topic_partition: r.leader_epoch for r in ranges if r.leader_epoch is not None},
            retired=[row for row in plan.retired if row.topic_partition in mine],
        )
        return TakenOver(plan, ledger)


def current_plan(
    store: Store, connector: str, generation: int, known: table.Row[GenerationPlan] | None = None
) -> GenerationPlan | None:
    if not is_current(store, connector, generation):
        return None
    plan = table.read_again(store, plan_key(connector, generation), GenerationPlan, known)
    return plan.value if plan else None


def newest_plan(store: Store, connector: str) -> tuple[TaskCountRecord | None, GenerationPlan | None]:
    count = table.read(store, task_count_key(connector), TaskCountRecord)
    if count is None or not count.value.planned:
        return count.value if count else None, None
    plan = table.read(store, plan_key(connector, count.value.planned), GenerationPlan)
    return count.value, plan.value if plan else None


def with_dropped(plan: GenerationPlan, dropped: Dropped) -> GenerationPlan:
    committed, ids = (*plan.committed, *dropped.committed), dropped.topic_ids | plan.topic_ids
    return plan.model_copy(update={"committed": committed, "topic_ids": ids})


def missing_dropped(store: Store, connector: str, plan: GenerationPlan) -> StoreUnreadable:
    return StoreUnreadable(
        f"connector {connector}: store {store.url} has lost the commits of topics that are no longer read, "
        f"to which the plan of generation {plan.generation} refers; restore the store from a backup"
    )


def is_current(store: Store, connector: str, generation: int) -> bool:
    count = table.read(store, task_count_key(connector), TaskCountRecord)
    return count is not None and (count.value.claimed, count.value.planned) == (generation, generation)


def request_closing(store: Store, connector: str, generation: int, closing: Closing) -> None:
    try:
        # Drivers read the request in the plan; tasks poll every closing.poll.ms, and a large plan is 3 MB.
        table.write(store, closing_key(connector, generation), closing, None)
    except Conflict:
        return


def closing_request(store: Store, connector: str, generation: int) -> Closing | None:
    row = table.read(store, closing_key(connector, generation), Closing)
    return row.value if row else None


def newest_attempt(store: Store, connector: str, generation: int, task: int) -> int:
    """Return the attempt of a generation that took over a task last; 0: none did."""
    row = table.read(store, task_key(connector, task), TaskRecord)
    return row.value.attempt if row is not None and row.value.generation == generation else 0


def _successor(before: TaskRecord | None, plan: GenerationPlan, task: int) -> TaskRecord:
    if before is not None and before.generation == plan.generation and before.attempt > 0:
        return before.model_copy(update={"attempt": before.attempt + 1})
    mine = _partitions(plan, task)
    topics = {partition.topic for partition in mine}
    numbers = {partition.partition for partition in mine}
    # A plan may have many thousands of commits.
    likely = (e for e in plan.committed if e.partition in numbers and e.topic in topics)
    return TaskRecord(
        generation=plan.generation,
        attempt=1,
        entries=tuple(entry for entry in likely if entry.topic_partition in mine),
        begun=before.begun if before else None,
    )


def segment_entries(
    store: Store, connector: str, task: int, record: TaskRecord
) -> list[PartitionCommit] | None:
    """Return the latest commits in segments; None: one was pruned or merged, read the record again."""
    found: dict[TopicPartition, PartitionCommit] = {}
    keys = [segment_key(connector, record.content_generation, task, name) for name in record.segments]
    for row in store.at_once(lambda key: table.read(store, key, Segment), keys):
        if row is None:
            return None
        found |= {entry.topic_partition: entry for entry in row.value.entries}
    return list(found.values())


def whole(store: Store, connector: str, task: int, record: TaskRecord) -> TaskRecord | None:
    if not record.segments:
        return record
    segmented = segment_entries(store, connector, task, record)
    if segmented is None:
        return None
    latest = {entry.topic_partition: entry for entry in (*segmented, *record.entries)}
    return record.model_copy(update={"entries": tuple(latest.values()), "segments": ()})


def missing_segment(store: Store, connector: str, task: int) -> StoreUnreadable:
    return StoreUnreadable(
        f"connector {connector}: store {store.url} has lost a segment with commits of task {task}, so the "
        f"commits are unknown; restore the store from a backup"
    )


def may_be_newer(base: GenerationPlan | None, record: TaskRecord) -> bool:
    """Return whether a record may be newer than the plan, which otherwise includes it."""
    return base is None or record.content_generation >= base.generation


def _partitions(plan: GenerationPlan, task: int) -> set[TopicPartition]:
    return {planned.topic_partition for planned in plan.tasks[task].ranges}


class Merged(NamedTuple):
    committed: dict[TopicPartition, PartitionCommit]
    stale: dict[TopicPartition, dict[str, Token]]
    retired: tuple[RetiredTokens, ...] = ()


def merge(base: GenerationPlan | None, records: Iterable[TaskRecord]) -> Merged:
    rows = [record for record in records if may_be_newer(base, record)]
    committed = {entry.topic_partition: entry for entry in base.committed} if base else {}
    for record in rows:
        for entry in record.entries:
            known = committed.get(entry.topic_partition)
            if known is None or entry.generation >= known.generation:
                committed[entry.topic_partition] = entry
    # Each plan lists these tokens until a task has discarded them.
    stale = stale_after(base.stale if base else (), rows, committed.values())
    gone = retired(base.retired if base else (), *(record.retired for record in rows))
    return Merged(committed, stale, gone)
