"""One task's commits: the record that is fenced, taken over, and written by compare-and-set.

``tasks/<i>`` plays the part of a transactional id (KIP-618): moving it to a newer generation or
attempt makes every later write of the older one fail, for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from sinksdk.errors import ConnectException, FencedException
from sinksdk.records import OffsetAndMetadata, Token, TopicPartition
from sinksdk.store import table
from sinksdk.store.base import Conflict, Store
from sinksdk.store.keys import (
    plan_key,
    task_count_key,
    task_key,
)
from sinksdk.store.records import (
    Entry,
    GenerationPlan,
    TaskCountRecord,
    TaskRecord,
    by_partition,
    noted,
)

Tokens = Mapping[TopicPartition, Mapping[str, Token]]
"""Tokens by partition and id."""


@dataclass(frozen=True, slots=True)
class _Content:
    """What a task record says, by partition.

    Args:
        entries: commits.
        prepared: tokens this attempt noted that no commit covers.
        inherited: tokens that earlier attempts of the same generation noted, not discarded yet.
        settled: ids of the plan's stale tokens that need no discarding any more.
    """

    entries: Mapping[TopicPartition, Entry]
    prepared: Tokens
    inherited: Tokens
    settled: tuple[str, ...]


class Ledger:
    """The content of a task record, and how the engine's writes change it.

    Keeps everything in memory; a subclass makes it durable in :meth:`_save`. What could not be saved
    has not happened: the ledger goes on showing what it showed before.

    Args:
        record: the record as taken over.
        stale: tokens of predecessors that are to be discarded, as noted in the plan.
    """

    def __init__(self, record: TaskRecord, stale: Tokens) -> None:
        self._generation = record.generation
        self._attempt = record.attempt
        self._planned = stale
        self._content = _Content(
            entries={entry.topic_partition: entry for entry in record.entries},
            prepared={},
            inherited=by_partition(record.prepared),
            settled=record.discarded,
        )
        self._unsaved = False

    @property
    def attempt(self) -> int:
        """Which attempt at the task this is, from 1."""
        return self._attempt

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """The last commit; ``publish`` holds its tokens that are not published yet."""
        entry = self._content.entries.get(partition)
        return entry.committed() if entry else None

    def prepared(self, partition: TopicPartition) -> Sequence[Token]:
        """Tokens this attempt noted that no commit covers."""
        return tuple(self._content.prepared.get(partition, {}).values())

    def stale(self, partition: TopicPartition) -> Sequence[Token]:
        """Predecessors' tokens that no commit covers, not discarded yet."""
        planned = _without(self._planned.get(partition, {}), self._content.settled)
        return tuple({**planned, **self._content.inherited.get(partition, {})}.values())

    def prepare(self, tokens: Mapping[TopicPartition, Sequence[Token]]) -> None:
        """Note tokens, in one write. An id that was discarded before is in use again."""
        content = self._content
        ids = {token.id for given in tokens.values() for token in given}
        prepared = {p: dict(noted_before) for p, noted_before in content.prepared.items()}
        for partition, given in tokens.items():
            prepared.setdefault(partition, {}).update({token.id: token for token in given})
        self._write(
            replace(
                content,
                prepared=prepared,
                inherited={p: _without(kept, ids) for p, kept in content.inherited.items()},
                settled=tuple(token for token in content.settled if token not in ids),
            )
        )

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit offsets with the tokens to publish, in one atomic write.

        Raises:
            ConnectException: a commit would overwrite tokens that still are to be published.
        """
        content = self._content
        entries, prepared, settled = dict(content.entries), dict(content.prepared), content.settled
        for partition, offset in offsets.items():
            self._refuse_to_overwrite(partition, offset)
            entries[partition] = Entry.of(partition, offset, self._generation)
            ids = {token.id for token in offset.tokens}
            prepared[partition] = _without(prepared.get(partition, {}), ids)
            settled = self._settle(partition, ids, settled)
        self._write(replace(content, entries=entries, prepared=prepared, settled=settled))

    def _refuse_to_overwrite(self, partition: TopicPartition, offset: OffsetAndMetadata) -> None:
        before = self._content.entries.get(partition)
        if before is not None and before.publish:
            raise ConnectException(
                f"{partition}: a commit at {offset.offset} would overwrite tokens that are committed and "
                f"not published: {', '.join(token.id for token in before.publish)}"
            )

    def _settle(
        self, partition: TopicPartition, ids: Collection[str], settled: tuple[str, ...]
    ) -> tuple[str, ...]:
        """The plan still lists these as stale; from now on nobody discards them any more."""
        planned = self._planned.get(partition, {})
        return (*settled, *(token for token in planned if token in ids and token not in settled))

    def published(self, partition: TopicPartition) -> None:
        """All tokens of the last commit are published; durable with the next write."""
        content = self._content
        entry = content.entries[partition].model_copy(update={"publish": (), "generation": self._generation})
        self._content = replace(content, entries={**content.entries, partition: entry})
        self._unsaved = True

    def withdraw(
        self, partition: TopicPartition, offset: OffsetAndMetadata, discard: Sequence[Token]
    ) -> None:
        """The last commit goes back to this offset; these of its tokens are noted as to be discarded."""
        content = self._content
        before = content.entries[partition]
        entry = Entry.of(partition, offset, self._generation).model_copy(
            update={"withdrawn_from": before.offset}
        )
        kept = {**content.prepared.get(partition, {}), **{token.id: token for token in discard}}
        self._write(
            replace(
                content,
                entries={**content.entries, partition: entry},
                prepared={**content.prepared, partition: kept},
            )
        )

    def is_withdrawn(self, partition: TopicPartition) -> bool:
        """Whether the last commit was withdrawn in this generation, by this attempt or an earlier one."""
        entry = self._content.entries.get(partition)
        return entry is not None and entry.withdrawn_from is not None and entry.generation == self._generation

    def discarded(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        """These tokens are discarded; durable with the next write."""
        content, ids = self._content, {token.id for token in tokens}
        kept, inherited = content.prepared.get(partition, {}), content.inherited.get(partition, {})
        self._content = replace(
            content,
            prepared={**content.prepared, partition: _without(kept, ids)},
            inherited={**content.inherited, partition: _without(inherited, ids)},
            settled=self._settle(partition, ids, content.settled),
        )
        self._unsaved = True

    def flush(self) -> None:
        """Make durable what waits for the next write."""
        if self._unsaved:
            self._write(self._content)

    def _write(self, content: _Content) -> None:
        self._save(self._record(content))
        self._content = content
        self._unsaved = False

    def _record(self, content: _Content) -> TaskRecord:
        partitions = {*content.prepared, *content.inherited}
        return TaskRecord(
            generation=self._generation,
            attempt=self._attempt,
            entries=tuple(entry for _, entry in sorted(content.entries.items())),
            prepared=noted(
                {
                    p: [*content.inherited.get(p, {}).values(), *content.prepared.get(p, {}).values()]
                    for p in partitions
                }
            ),
            discarded=content.settled,
        )

    def _save(self, record: TaskRecord) -> None:
        """Make the record durable. Raises FencedException when it is somebody else's."""
        raise NotImplementedError


def _without(tokens: Mapping[str, Token], ids: Collection[str]) -> dict[str, Token]:
    return {token_id: token for token_id, token in tokens.items() if token_id not in ids}


class TaskLedger(Ledger):
    """A task's ledger in the store: every write by compare-and-set from the version it wrote last."""

    def __init__(
        self,
        store: Store,
        connector: str,
        task: int,
        taken: table.Row[TaskRecord],
        stale: Tokens,
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
    entry are stale; they are carried along until somebody has discarded them. A record that no task of
    the plan's generation has written says nothing new: the plan was made from it.
    """
    rows = [record for record in records if base is None or record.content_generation >= base.generation]
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
