"""One task's commits: the record that is fenced, taken over, and written by compare-and-set.

``tasks/<i>`` plays the part of a transactional id (KIP-618): moving it to a newer generation or
attempt makes every later write of the older one fail, for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sinksdk.errors import ConnectException, FencedException
from sinksdk.records import OffsetAndMetadata, Token, TopicPartition
from sinksdk.store import table
from sinksdk.store.base import Conflict, Store
from sinksdk.store.records import (
    Entry,
    GenerationPlan,
    TaskCountRecord,
    TaskRecord,
    by_partition,
    noted,
    plan_key,
    task_count_key,
    task_key,
)


class Ledger:
    """The content of a task record, and how the engine's writes change it.

    Keeps everything in memory; a subclass makes it durable in :meth:`_save`.

    Args:
        record: the record as taken over.
        stale: tokens of predecessors that are to be discarded, noted in the plan or in the record.
    """

    def __init__(self, record: TaskRecord, stale: Mapping[TopicPartition, Mapping[str, Token]]) -> None:
        self._generation = record.generation
        self._attempt = record.attempt
        self._entries = {entry.topic_partition: entry for entry in record.entries}
        self._inherited = by_partition(record.prepared)
        self._prepared: dict[TopicPartition, dict[str, Token]] = {}
        self._discarded = list(record.discarded)
        self._stale = {
            p: {**stale.get(p, {}), **self._inherited.get(p, {})} for p in {*stale, *self._inherited}
        }
        for tokens in self._stale.values():
            for token in record.discarded:
                tokens.pop(token, None)
        self._unsaved = False

    @property
    def attempt(self) -> int:
        """Which attempt at the task this is, from 1."""
        return self._attempt

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """The last commit; ``publish`` holds its tokens that are not published yet."""
        entry = self._entries.get(partition)
        return entry.committed() if entry else None

    def prepared(self, partition: TopicPartition) -> Sequence[Token]:
        """Tokens this attempt noted that no commit covers."""
        return tuple(self._prepared.get(partition, {}).values())

    def stale(self, partition: TopicPartition) -> Sequence[Token]:
        """Predecessors' tokens that no commit covers, not discarded yet."""
        return tuple(self._stale.get(partition, {}).values())

    def prepare(self, tokens: Mapping[TopicPartition, Sequence[Token]]) -> None:
        """Note tokens, in one write."""
        for partition, given in tokens.items():
            self._prepared.setdefault(partition, {}).update({token.id: token for token in given})
        self._write()

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit offsets with the tokens to publish, in one atomic write.

        Raises:
            ConnectException: a commit would overwrite tokens that still are to be published.
        """
        for partition, offset in offsets.items():
            before = self._entries.get(partition)
            if before is not None and before.publish:
                raise ConnectException(
                    f"{partition}: a commit at {offset.offset} would overwrite tokens that are committed and "
                    f"not published: {', '.join(token.id for token in before.publish)}"
                )
            self._entries[partition] = Entry.of(partition, offset, self._generation)
            for token in offset.tokens:
                self._prepared.get(partition, {}).pop(token.id, None)
        self._write()

    def published(self, partition: TopicPartition) -> None:
        """All tokens of the last commit are published; durable with the next write."""
        entry = self._entries[partition]
        self._entries[partition] = entry.model_copy(update={"publish": (), "generation": self._generation})
        self._unsaved = True

    def discarded(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        """These tokens are discarded; durable with the next write."""
        for token in tokens:
            for noted_tokens in (self._prepared, self._inherited, self._stale):
                noted_tokens.get(partition, {}).pop(token.id, None)
            self._discarded.append(token.id)
        self._unsaved = True

    def flush(self) -> None:
        """Make durable what waits for the next write."""
        if self._unsaved:
            self._write()

    def record(self) -> TaskRecord:
        """The record as it stands."""
        partitions = {*self._prepared, *self._inherited}
        return TaskRecord(
            generation=self._generation,
            attempt=self._attempt,
            entries=tuple(entry for _, entry in sorted(self._entries.items())),
            prepared=noted(
                {p: [*self._inherited.get(p, {}).values(), *self.prepared(p)] for p in partitions}
            ),
            discarded=tuple(self._discarded),
        )

    def _write(self) -> None:
        self._save(self.record())
        self._unsaved = False

    def _save(self, record: TaskRecord) -> None:
        """Make the record durable. Raises FencedException when it is somebody else's."""
        raise NotImplementedError


class TaskLedger(Ledger):
    """A task's ledger in the store: every write by compare-and-set from the version it wrote last."""

    def __init__(
        self,
        store: Store,
        connector: str,
        task: int,
        taken: table.Row[TaskRecord],
        stale: Mapping[TopicPartition, Mapping[str, Token]],
    ) -> None:
        super().__init__(taken.value, stale)
        self._store = store
        self._connector = connector
        self._task = task
        self._version = taken.version

    def _save(self, record: TaskRecord) -> None:
        key = task_key(self._connector, self._task)
        try:
            self._version = table.write(self._store, key, record, self._version).version
        except Conflict as error:
            raise FencedException(
                f"connector {self._connector}, task {self._task}, generation {self._generation}, attempt "
                f"{self._attempt}: a newer generation or attempt owns this task; it commits nothing more"
            ) from error


class TakenOver(NamedTuple):
    """A task that may run: its plan, and the ledger it writes."""

    plan: GenerationPlan
    ledger: TaskLedger


def take_over(store: Store, connector: str, generation: int, task: int) -> TakenOver | None:
    """Become the owner of a task, fencing every earlier attempt at it.

    The two looks at the task count record are both needed: the first keeps an old generation from
    fencing a newer one, the second closes the race between that look and the taking over.

    Returns:
        None when a newer generation exists: abandon the attempt quietly.
    """
    while True:
        plan = current_plan(store, connector, generation)
        if plan is None:
            return None
        key = task_key(connector, task)
        before = table.read(store, key, TaskRecord)
        if before is not None and before.value.generation > generation:
            return None
        record = _successor(before.value if before else None, plan, task)
        try:
            taken = table.write(store, key, record, before.version if before else None)
        except Conflict:
            continue  # another attempt, or a fence: look again
        if current_plan(store, connector, generation) is None:
            return None
        return TakenOver(plan, TaskLedger(store, connector, task, taken, _stale_of(plan, task)))


def current_plan(store: Store, connector: str, generation: int) -> GenerationPlan | None:
    """A generation's plan while that generation is the newest, claimed and planned; None from then on."""
    count = table.read(store, task_count_key(connector), TaskCountRecord)
    if count is None or (count.value.claimed, count.value.planned) != (generation, generation):
        return None
    plan = table.read(store, plan_key(connector, generation), GenerationPlan)
    return plan.value if plan else None


def _successor(before: TaskRecord | None, plan: GenerationPlan, task: int) -> TaskRecord:
    """The record of the next attempt: an earlier attempt's commits, or those of the plan."""
    if before is not None and before.generation == plan.generation and before.attempt > 0:
        return before.model_copy(update={"attempt": before.attempt + 1})
    mine = _partitions(plan, task)
    return TaskRecord(
        generation=plan.generation,
        attempt=1,
        entries=tuple(entry for entry in plan.committed if entry.topic_partition in mine),
    )


def _stale_of(plan: GenerationPlan, task: int) -> dict[TopicPartition, dict[str, Token]]:
    mine = _partitions(plan, task)
    return {p: tokens for p, tokens in by_partition(plan.stale).items() if p in mine}


def _partitions(plan: GenerationPlan, task: int) -> set[TopicPartition]:
    return {planned.topic_partition for planned in plan.tasks[task].ranges}


class Merged(NamedTuple):
    """Everything committed by a generation and those before it."""

    committed: dict[TopicPartition, Entry]
    stale: dict[TopicPartition, dict[str, Token]]


def merge(base: GenerationPlan | None, records: Iterable[TaskRecord]) -> Merged:
    """The commits after a generation: its plan's, overlaid by what its tasks have written.

    Per partition the entry of the highest generation holds. Tokens that were prepared and stand in no
    entry are stale; they are carried along until somebody has discarded them.
    """
    rows = list(records)
    committed = {entry.topic_partition: entry for entry in base.committed} if base else {}
    stale = by_partition(base.stale) if base else {}
    for record in rows:
        for entry in record.entries:
            known = committed.get(entry.topic_partition)
            if known is None or entry.generation >= known.generation:
                committed[entry.topic_partition] = entry
        for partition, tokens in by_partition(record.prepared).items():
            stale.setdefault(partition, {}).update(tokens)
    settled = {token for record in rows for token in record.discarded}
    settled |= {token.id for entry in committed.values() for token in entry.publish}
    left = {p: {i: t for i, t in tokens.items() if i not in settled} for p, tokens in stale.items()}
    return Merged(committed, {p: tokens for p, tokens in left.items() if tokens})
