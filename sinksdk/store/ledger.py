"""One task's commits, in a record that plays the part of a transactional id (KIP-618).

Moving the record to a newer generation or attempt makes every later write of the older one fail, for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from sinksdk.errors import ConnectException, FencedException
from sinksdk.records import OffsetAndMetadata, Token, TopicPartition
from sinksdk.store import table
from sinksdk.store.base import Conflict, Store
from sinksdk.store.keys import (
    closing_key,
    plan_key,
    segment_key,
    task_count_key,
    task_key,
)
from sinksdk.store.records import (
    Closing,
    Dropped,
    Entry,
    GenerationPlan,
    Segment,
    TaskCountRecord,
    TaskRecord,
    by_partition,
    noted,
)

log = logging.getLogger(__name__)

Tokens = Mapping[TopicPartition, Mapping[str, Token]]
"""Tokens by partition and id."""


class _Held(NamedTuple):
    """A token that no commit covers and that is not discarded.

    Args:
        is_noted: a task of this generation noted it; else the plan lists it.
        is_own: this attempt noted it.
    """

    token: Token
    is_noted: bool = False
    is_own: bool = False


_HeldByPartition = Mapping[TopicPartition, Mapping[str, _Held]]


@dataclass(frozen=True, slots=True)
class _Content:
    """What a task record says, by partition; ``held``: tokens neither committed nor discarded, by id."""

    entries: Mapping[TopicPartition, Entry]
    held: _HeldByPartition


class Ledger:
    """The content of a task record in memory; a subclass makes it durable in :meth:`_save`.

    What could not be saved has not happened: the ledger goes on showing what it showed before.

    Args:
        record: as taken over.
        stale: tokens to discard, as listed in the plan.
        apart: commits that are kept elsewhere than in the record.
    """

    def __init__(self, record: TaskRecord, stale: Tokens, apart: Iterable[Entry] = ()) -> None:
        self._apart = {entry.topic_partition: entry for entry in apart}
        self._generation = record.generation
        self._attempt = record.attempt
        self._planned = stale
        self._content = _Content(
            entries={entry.topic_partition: entry for entry in record.entries},
            held=_held(record, stale),
        )
        self._unknown = record.model_extra or {}
        self._unsaved = False

    @property
    def attempt(self) -> int:
        """Which attempt at the task this is, from 1."""
        return self._attempt

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """The last commit; its ``publish`` are tokens that are not published yet."""
        entry = self._entry(partition)
        return entry.committed() if entry else None

    def _entry(self, partition: TopicPartition) -> Entry | None:
        return self._content.entries.get(partition) or self._apart.get(partition)

    def visible(self, partition: TopicPartition) -> int | None:
        """The offset up to which everything is published; None: unknown."""
        entry = self._entry(partition)
        return entry.visible if entry else None

    def prepared(self, partition: TopicPartition) -> Sequence[Token]:
        """Tokens this attempt noted that no commit covers."""
        return tuple(held.token for held in self._held(partition) if held.is_own)

    def stale(self, partition: TopicPartition) -> Sequence[Token]:
        """Predecessors' tokens that no commit covers, not discarded yet."""
        return tuple(held.token for held in self._held(partition) if not held.is_own)

    def _held(self, partition: TopicPartition) -> Iterable[_Held]:
        return self._content.held.get(partition, {}).values()

    def prepare(self, tokens: Mapping[TopicPartition, Sequence[Token]]) -> None:
        """Note tokens, in one write; also ids that were discarded before."""
        ids = {token.id for given in tokens.values() for token in given}
        held = {
            partition: {key: one for key, one in ones.items() if one.is_own or key not in ids}
            for partition, ones in self._content.held.items()
        }
        for partition, given in tokens.items():
            held[partition] = {**held.get(partition, {}), **_own(given)}
        self._write(replace(self._content, held=held))

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit offsets with the tokens to publish, in one atomic write.

        Raises:
            ConnectException: a commit would overwrite tokens that still are to be published.
        """
        content = self._content
        entries, held = dict(content.entries), content.held
        for partition, offset in offsets.items():
            self._refuse_to_overwrite(partition, offset)
            entries[partition] = Entry.of(partition, offset, self._generation, self._entry(partition))
            held = _with(held, partition, _without(held, partition, offset.tokens))
        self._write(replace(content, entries=entries, held=held))

    def _refuse_to_overwrite(self, partition: TopicPartition, offset: OffsetAndMetadata) -> None:
        before = self._entry(partition)
        if before is not None and before.publish:
            raise ConnectException(
                f"{partition}: a commit at {offset.offset} would overwrite tokens that are committed and "
                f"not published: {', '.join(token.id for token in before.publish)}"
            )

    def published(self, partition: TopicPartition) -> None:
        """All tokens of the last commit are published; durable with the next write."""
        content, before = self._content, self._content.entries.get(partition) or self._apart[partition]
        entry = before.model_copy(
            update={"publish": (), "published_to": None, "generation": self._generation}
        )
        self._content = replace(content, entries={**content.entries, partition: entry})
        self._unsaved = True

    def withdraw(
        self, partition: TopicPartition, offset: OffsetAndMetadata, discard: Sequence[Token]
    ) -> None:
        """Move the last commit back to this offset; these of its tokens have to be discarded."""
        content = self._content
        before = content.entries.get(partition) or self._apart[partition]
        entry = Entry.of(partition, offset, self._generation).model_copy(
            update={"withdrawn_from": before.offset}
        )
        held = {**content.held.get(partition, {}), **_own(discard)}
        self._write(
            replace(
                content,
                entries={**content.entries, partition: entry},
                held={**content.held, partition: held},
            )
        )

    def is_withdrawn(self, partition: TopicPartition) -> bool:
        """Whether the last commit was withdrawn in this generation, by this attempt or an earlier one."""
        entry = self._entry(partition)
        return entry is not None and entry.withdrawn_from is not None and entry.generation == self._generation

    def discarded(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        """These tokens are discarded; durable with the next write."""
        content = self._content
        left = _without(content.held, partition, tokens)
        self._content = replace(content, held=_with(content.held, partition, left))
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
        held = {key for ones in content.held.values() for key in ones}
        planned = dict.fromkeys(key for tokens in self._planned.values() for key in tokens)
        return TaskRecord(
            **self._unknown,
            generation=self._generation,
            attempt=self._attempt,
            entries=tuple(entry for _, entry in sorted(content.entries.items())),
            prepared=noted(
                {p: [one.token for one in ones.values() if one.is_noted] for p, ones in content.held.items()}
            ),
            discarded=tuple(key for key in planned if key not in held),
        )

    def _save(self, record: TaskRecord) -> None:
        """Make the record durable. Raises FencedException when it is somebody else's."""
        raise NotImplementedError


def _held(record: TaskRecord, stale: Tokens) -> dict[TopicPartition, dict[str, _Held]]:
    """The plan's tokens that no earlier attempt has discarded, and those that earlier attempts noted."""
    held = {
        partition: {key: _Held(token) for key, token in tokens.items() if key not in record.discarded}
        for partition, tokens in stale.items()
    }
    for partition, tokens in by_partition(record.prepared).items():
        noted_before = {key: _Held(token, is_noted=True) for key, token in tokens.items()}
        held[partition] = {**held.get(partition, {}), **noted_before}
    return held


def _own(tokens: Iterable[Token]) -> dict[str, _Held]:
    return {token.id: _Held(token, is_noted=True, is_own=True) for token in tokens}


def _with(held: _HeldByPartition, partition: TopicPartition, ones: Mapping[str, _Held]) -> _HeldByPartition:
    """The same with these of one partition, which is left out if there are none."""
    others = {p: kept for p, kept in held.items() if p != partition}
    return {**others, partition: ones} if ones else others


def _without(held: _HeldByPartition, partition: TopicPartition, tokens: Iterable[Token]) -> dict[str, _Held]:
    ids = {token.id for token in tokens}
    return {key: one for key, one in held.get(partition, {}).items() if key not in ids}


class TaskLedger(Ledger):
    """A task's ledger in the store: every write by compare-and-set from the version it wrote last.

    The record is written whole each time. So that a task of many partitions does not write all commits
    whenever one changes, they are set apart in segments once they are many (``Store.most_entries``): a
    segment is written first, then the record that names it.
    """

    def __init__(
        self,
        store: Store,
        connector: str,
        task: int,
        taken: table.Row[TaskRecord],
        stale: Tokens,
        *,
        apart: Iterable[Entry] = (),
    ) -> None:
        super().__init__(taken.value, stale, apart)
        self._store = store
        self._connector = connector
        self._task = task
        self._version = taken.version
        self._segments = taken.value.segments
        self._size = len(self._apart)  # commits in all segments, replaced ones included
        self._number = 0

    def _write(self, content: _Content) -> None:
        is_apart = len(content.entries) > self._store.most_entries
        super()._write(content)
        if is_apart:
            self._apart |= content.entries
            self._content = replace(content, entries={})

    def _save(self, record: TaskRecord) -> None:
        head, replaced = record.model_copy(update={"segments": self._segments}), tuple[str, ...]()
        if len(record.entries) > self._store.most_entries:
            head, replaced = self._set_apart(head)
        self._write_record(head)
        self._segments = head.segments
        for name in replaced:
            self._remove(name)

    def _set_apart(self, record: TaskRecord) -> tuple[TaskRecord, tuple[str, ...]]:
        """A record whose commits are in a segment, and the segments that it replaces.

        Once more than half of what is in segments is outdated, one takes the place of all.
        """
        entries, kept, replaced = record.entries, record.segments, tuple[str, ...]()
        size = self._size + len(entries)
        apart = {**self._apart, **{entry.topic_partition: entry for entry in entries}}
        if size > 2 * len(apart):
            entries, kept, replaced = tuple(entry for _, entry in sorted(apart.items())), (), kept
            size = len(entries)
        self._number += 1
        name = f"{record.attempt}-{self._number}"
        key = segment_key(self._connector, record.generation, self._task, name)
        table.write(self._store, key, Segment(entries=entries), None)
        self._size = size
        return record.model_copy(update={"entries": (), "segments": (*kept, name)}), replaced

    def _remove(self, name: str) -> None:
        """Remove a segment that the record does not name any more; else it is pruned with its generation."""
        key = segment_key(self._connector, self._generation, self._task, name)
        try:
            version = self._store.version(key)
            if version is not None:
                self._store.delete(key, version)
        except ConnectException as error:
            log.debug("%s stays until its generation is pruned: %s", key, error)

    def _write_record(self, record: TaskRecord) -> None:
        key = task_key(self._connector, self._task)
        try:
            self._version = table.write(self._store, key, record, self._version).version
        except Conflict as error:
            raise FencedException(
                f"connector {self._connector}, task {self._task}, generation {self._generation}, attempt "
                f"{self._attempt}: a newer generation or attempt owns this task; it commits nothing more"
            ) from error


class TakenOver(NamedTuple):
    """A task that may run: its generation's plan, and its ledger."""

    plan: GenerationPlan
    ledger: TaskLedger


def take_over(store: Store, connector: str, generation: int, task: int) -> TakenOver | None:
    """Become the owner of a task, fencing every earlier attempt at it; None: a newer generation exists.

    The two looks at the task count record are both needed: the first keeps an old generation from
    fencing a newer one, the second closes the race between that look and the taking over.
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
        apart = entries_apart(store, connector, task, taken.value)
        if not is_current(store, connector, generation):
            return None
        if apart is None:
            raise missing_segment(store, connector, task)
        return TakenOver(plan, TaskLedger(store, connector, task, taken, _stale_of(plan, task), apart=apart))


def current_plan(store: Store, connector: str, generation: int) -> GenerationPlan | None:
    """A generation's plan; None as soon as a newer generation is claimed."""
    if not is_current(store, connector, generation):
        return None
    plan = table.read(store, plan_key(connector, generation), GenerationPlan)
    return plan.value if plan else None


def newest_plan(store: Store, connector: str) -> tuple[TaskCountRecord | None, GenerationPlan | None]:
    """The task count record, and the plan of the newest generation that has one, as far as they exist."""
    count = table.read(store, task_count_key(connector), TaskCountRecord)
    if count is None or not count.value.planned:
        return count.value if count else None, None
    plan = table.read(store, plan_key(connector, count.value.planned), GenerationPlan)
    return count.value, plan.value if plan else None


def with_dropped(plan: GenerationPlan, dropped: Dropped) -> GenerationPlan:
    """A plan with the dropped topics that were set apart from it."""
    committed, ids = (*plan.committed, *dropped.committed), dropped.topic_ids | plan.topic_ids
    return plan.model_copy(update={"committed": committed, "topic_ids": ids})


def missing_dropped(store: Store, connector: str, plan: GenerationPlan) -> ConnectException:
    """What to raise where dropped topics that a plan names are gone."""
    return ConnectException(
        f"connector {connector}: store {store.url} has lost what was committed of topics that are not read "
        f"any more, set apart from the plan of generation {plan.generation}. Restore it from a backup"
    )


def is_current(store: Store, connector: str, generation: int) -> bool:
    """Whether a generation is the newest, claimed and planned."""
    count = table.read(store, task_count_key(connector), TaskCountRecord)
    return count is not None and (count.value.claimed, count.value.planned) == (generation, generation)


def ask_to_close(store: Store, connector: str, generation: int, closing: Closing) -> None:
    """Ask a generation's tasks to close; a second request changes nothing.

    The plan says so too, for drivers; it may be large, and each task looks every second or so.
    """
    try:
        table.write(store, closing_key(connector, generation), closing, None)
    except Conflict:
        return


def asked_to_close(store: Store, connector: str, generation: int) -> Closing | None:
    """The request that a generation closes, if there is one."""
    row = table.read(store, closing_key(connector, generation), Closing)
    return row.value if row else None


def _successor(before: TaskRecord | None, plan: GenerationPlan, task: int) -> TaskRecord:
    """The record of the next attempt: with an earlier attempt's commits, or those of the plan."""
    if before is not None and before.generation == plan.generation and before.attempt > 0:
        return before.model_copy(update={"attempt": before.attempt + 1})
    mine = _partitions(plan, task)
    return TaskRecord(
        generation=plan.generation,
        attempt=1,
        entries=tuple(entry for entry in plan.committed if entry.topic_partition in mine),
    )


def entries_apart(store: Store, connector: str, task: int, record: TaskRecord) -> list[Entry] | None:
    """The commits in a record's segments, each partition's latest; None where a segment is gone.

    A segment goes when a newer generation is planned, or when another takes its place: read the record again.
    """
    found: dict[TopicPartition, Entry] = {}
    keys = [segment_key(connector, record.content_generation, task, name) for name in record.segments]
    for row in store.at_once(lambda key: table.read(store, key, Segment), keys):
        if row is None:
            return None
        found |= {entry.topic_partition: entry for entry in row.value.entries}
    return list(found.values())


def whole(store: Store, connector: str, task: int, record: TaskRecord) -> TaskRecord | None:
    """A record with the commits in its segments among its entries; None where a segment is gone."""
    if not record.segments:
        return record
    apart = entries_apart(store, connector, task, record)
    if apart is None:
        return None
    latest = {entry.topic_partition: entry for entry in (*apart, *record.entries)}
    return record.model_copy(update={"entries": tuple(latest.values()), "segments": ()})


def missing_segment(store: Store, connector: str, task: int) -> ConnectException:
    """What to raise where a segment that counts is gone."""
    return ConnectException(
        f"connector {connector}: store {store.url} has lost commits that task {task} has set apart; what is "
        f"committed is unknown. Restore the store from a backup"
    )


def says_news(base: GenerationPlan | None, record: TaskRecord) -> bool:
    """Whether a record may hold what the plan does not: else the plan was made from it or newer ones."""
    return base is None or record.content_generation >= base.generation


def _stale_of(plan: GenerationPlan, task: int) -> dict[TopicPartition, dict[str, Token]]:
    mine = _partitions(plan, task)
    return {p: tokens for p, tokens in by_partition(plan.stale).items() if p in mine}


def _partitions(plan: GenerationPlan, task: int) -> set[TopicPartition]:
    return {planned.topic_partition for planned in plan.tasks[task].ranges}


class Merged(NamedTuple):
    """Commits and stale tokens after a generation."""

    committed: dict[TopicPartition, Entry]
    stale: dict[TopicPartition, dict[str, Token]]


def merge(base: GenerationPlan | None, records: Iterable[TaskRecord]) -> Merged:
    """The commits after a generation: its plan's, overlaid by what its tasks have written.

    Per partition the entry of the highest generation holds. Prepared tokens that are in no entry are stale;
    they are carried along until a task has discarded them.
    """
    rows = [record for record in records if says_news(base, record)]
    committed = {entry.topic_partition: entry for entry in base.committed} if base else {}
    stale = by_partition(base.stale) if base else {}
    for record in rows:
        for entry in record.entries:
            known = committed.get(entry.topic_partition)
            if known is None or entry.generation >= known.generation:
                committed[entry.topic_partition] = entry
        for partition, tokens in by_partition(record.prepared).items():
            stale.setdefault(partition, {}).update(tokens)
    settled = {token for record in rows for token in _settled(record)}
    settled |= {token.id for entry in committed.values() for token in entry.publish}
    left = {p: {i: t for i, t in tokens.items() if i not in settled} for p, tokens in stale.items()}
    return Merged(committed, {p: tokens for p, tokens in left.items() if tokens})


def _settled(record: TaskRecord) -> set[str]:
    """What its task discarded and did not prepare again: an older version lists a withdrawn token twice."""
    return set(record.discarded) - {token.id for row in record.prepared for token in row.tokens}
