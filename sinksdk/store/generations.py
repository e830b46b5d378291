"""A driver's generations of one connector: claim, fence, merge, plan (KIP-618 for sinks).

A crash after any step is safe: the store holds everything that the next step needs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeVar

from sinksdk.errors import ConnectException, FencedException
from sinksdk.model.base import NamedPartition, Value
from sinksdk.offsets import OffsetAndMetadata, Token, TopicPartition
from sinksdk.store import Conflict, Store, StoreUnreadable, request_closing, table
from sinksdk.store.keys import (
    config_key,
    connector_prefix,
    dropped_key,
    plan_key,
    plans_prefix,
    status_key,
    task_count_key,
    task_key,
)
from sinksdk.store.ledger import may_be_newer, merge, missing_dropped, missing_segment, whole, with_dropped
from sinksdk.store.records import (
    ClaimedBy,
    Closing,
    Dropped,
    FrameState,
    GenerationPlan,
    PartitionCommit,
    RetiredTokens,
    TaskCountRecord,
    TaskPlan,
    TaskRecord,
    Undecided,
    prepared_tokens,
)
from sinksdk.store.reports import ConnectorStatus

V = TypeVar("V", bound=Value)

# Number of generations without a commit after which a topic's commits leave the plans, and least number of
# topics that leave at a time.
_IDLE: Final = 32
_TOGETHER: Final = 16

log = logging.getLogger(__name__)


class UnpublishedException(ConnectException):
    """A commit is not published yet: its connector is neither altered nor deleted."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A generation that only this driver may plan.

    Args:
        undecided: None: partitions without a commit begin at their first record.
    """

    generation: int
    committed: Mapping[TopicPartition, PartitionCommit]
    stale: Mapping[TopicPartition, Mapping[str, Token]]
    before: GenerationPlan | None
    undecided: Undecided | None
    topic_ids: Mapping[str, str]
    transactional_tasks: int | None
    retired: Sequence[RetiredTokens] = ()

    @property
    def previous(self) -> dict[TopicPartition, int]:
        """Return the task of each partition in the previous generation."""
        tasks = self.before.tasks if self.before else ()
        return {planned.topic_partition: n for n, task in enumerate(tasks) for planned in task.ranges}

    def visible(self) -> dict[TopicPartition, int]:
        return {p: e.visible for p, e in self.committed.items() if e.visible is not None}

    def unpublished(self) -> dict[TopicPartition, PartitionCommit]:
        return {p: entry for p, entry in self.committed.items() if entry.publish}

    def partly_visible(self) -> dict[TopicPartition, PartitionCommit]:
        """Return withdrawn commits below visible records, which another reader would write again."""
        return {p: entry for p, entry in self.committed.items() if entry.partly_visible_to is not None}

    def giving_up(self, partitions: Collection[TopicPartition]) -> Claim:
        """Return the claim with nothing to publish or skip for these partitions."""
        given_up = {p: entry for p, entry in self.committed.items() if p in partitions}
        # From now on only the destination determines which records above these commits are visible.
        nothing = {"publish": (), "published_to": None, "partly_visible_to": None}
        settled = {p: entry.model_copy(update=nothing) for p, entry in given_up.items()}
        stale = {
            p: {**self.stale.get(p, {}), **{token.id: token for token in entry.publish}}
            for p, entry in given_up.items()
            if entry.publish
        }
        return replace(self, committed={**self.committed, **settled}, stale={**self.stale, **stale})

    def all_unsettled(self) -> set[TopicPartition]:
        return self.unpublished().keys() | {p for p, tokens in self.stale.items() if tokens}


class _StoredDropped(NamedTuple):
    generation: int
    value: Dropped


class Tenure:
    """Claims of one process on a connector, over all its sessions."""

    def __init__(self) -> None:
        self.claimed = 0  # the newest generation that this process has claimed
        self.drivers: set[str] = set()  # names of this process's drivers

    def is_over(self, count: TaskCountRecord | None, status_driver: Callable[[], str]) -> bool:
        # A process begins a new session after an outage. If another driver has claimed since, this process
        # must neither claim again nor request the other driver to close.
        if count is None or not self.claimed or count.claimed <= self.claimed:
            return False
        # An operator's request claims too, but replaces no driver.
        driver = count.driver or status_driver()
        return bool(driver) and driver not in self.drivers


class Generations:
    """Claims and plans one connector's generations; raises FencedException once a newer driver exists.

    Args:
        driver: empty for an operator's request or a DataFrame.
    """

    def __init__(self, store: Store, connector: str, driver: str = "", tenure: Tenure | None = None) -> None:
        self._driver = driver
        self._tenure = tenure or Tenure()
        self._store = store
        self._connector = connector
        # A conflict with what this driver wrote last means that a newer driver exists.
        self._count: table.Row[TaskCountRecord] | None = None
        self._plan: table.Row[GenerationPlan] | None = None
        self._dropped: _StoredDropped | None = None

    @property
    def has_claimed(self) -> bool:
        return self._count is not None

    def expect_not_replaced(self, count: TaskCountRecord | None) -> None:
        if self._tenure.is_over(count, self._status_driver):
            raise self._fenced()

    def _status_driver(self) -> str:
        row = table.read(self._store, status_key(self._connector), ConnectorStatus)
        return row.value.driver if row else ""

    def claim(self) -> Claim:
        return self._claimed(self._claim())

    def claim_from(self, seen: table.Row[TaskCountRecord] | None) -> Claim:
        """Claim if the task count record is unchanged since it was seen. Raises Conflict."""
        claimed = self._next(seen.value if seen else TaskCountRecord(claimed=0))
        key = task_count_key(self._connector)
        self._count = table.write(self._store, key, claimed, seen.version if seen else None)
        return self._claimed(claimed)

    def _claimed(self, count: TaskCountRecord) -> Claim:
        base = self._base(count)
        records = self._store.at_once(lambda task: self._fenced_record(task, count, base), range(count.tasks))
        merged = merge(base, [record for record in records if record is not None])
        return Claim(
            count.claimed,
            merged.committed,
            merged.stale,
            before=base,
            undecided=base.undecided if base else Undecided(first=True),
            topic_ids=base.topic_ids if base else {},
            transactional_tasks=count.transactional_tasks,
            retired=merged.retired,
        )

    def settle(
        self,
        claim: Claim,
        offsets: Mapping[TopicPartition, int],
        config_version: int,
        config: Mapping[str, str],
        *,
        topic_ids: Mapping[str, str] | None = None,
        epochs: Mapping[TopicPartition, int] | None = None,
    ) -> Claim:
        """Commit offsets that no task has written, as a generation without tasks; claim the next one."""
        committed = {**claim.committed, **_entries(offsets, claim.generation, epochs)}
        # Partitions without a commit begin at their first record from now on.
        self.plan(replace(claim, committed=committed), (), config_version, config, topic_ids=topic_ids)
        return self.claim()

    def alter(
        self,
        claim: Claim,
        offsets: Mapping[TopicPartition, int | None],
        config_version: int,
        config: Mapping[str, str],
    ) -> None:
        """Commit an operator's offsets, as a generation without tasks; None removes a commit."""
        self.expect_published(claim, offsets)
        kept = {p: entry for p, entry in claim.committed.items() if p not in offsets}
        committed = kept | _entries(offsets, claim.generation)
        # If an operator alters all commits of a topic, they may be meant for a topic that was created again.
        forgotten = {p.topic for p in offsets} - {p.topic for p in kept}
        ids = {topic: known for topic, known in claim.topic_ids.items() if topic not in forgotten}
        self.plan(
            replace(claim, committed=committed, topic_ids=ids),
            (),
            config_version,
            config,
            undecided=_still_undecided(claim.undecided, offsets),
        )

    def expect_published(self, claim: Claim, offsets: Mapping[TopicPartition, int | None]) -> None:
        unpublished = [str(p) for p in sorted(offsets) if (e := claim.committed.get(p)) and e.publish]
        if unpublished:
            raise UnpublishedException(
                f"connector {self._connector}: the commits of {', '.join(unpublished)} are not published "
                f"yet; resume the connector until they are, stop it, then alter its offsets. If it refuses "
                f"to start because the store was restored, run 'sinksdk offsets recover CONFIG'"
            )
        # A withdrawn commit stores which records above it are visible; an operator's commit does not.
        ahead = [
            f"{p} (up to offset {entry.partly_visible_to})"
            for p, entry in sorted(claim.partly_visible().items())
            if p in offsets and (offsets[p] or 0) < (entry.partly_visible_to or 0)
        ]
        if ahead:
            raise UnpublishedException(
                f"connector {self._connector}: some records above the withdrawn commits of "
                f"{', '.join(ahead)} are visible and would be written twice; resume the connector until it "
                f"has committed beyond them, stop it, then alter its offsets"
            )

    def reset(self, claim: Claim, config_version: int, config: Mapping[str, str]) -> None:
        before = claim.undecided or Undecided()
        everything = replace(claim, undecided=before.model_copy(update={"reset": True}))
        self.alter(everything, dict.fromkeys(claim.committed), config_version, config)

    def forget(self) -> None:
        """Remove all but the configuration and the task count record; may be repeated."""
        claim = self.claim()
        self._advance(
            # transactional_tasks stays, to fence former tasks of a connector that is created again.
            TaskCountRecord(claimed=claim.generation, transactional_tasks=claim.transactional_tasks)
        )
        kept = (task_count_key(self._connector), config_key(self._connector))
        keys = [key for key in self._store.list(connector_prefix(self._connector)) if key not in kept]
        versions = {key: self._store.version(key) for key in keys}
        if not self.is_newest():
            # Another process has completed the deletion, so these keys may belong to a connector that was
            # created again.
            raise self._fenced()
        for key, version in versions.items():
            self._remove(key, version)

    def plan(
        self,
        claim: Claim,
        tasks: Sequence[TaskPlan],
        config_version: int,
        config: Mapping[str, str] | None = None,
        *,
        topic_ids: Mapping[str, str] | None = None,
        undecided: Undecided | None = None,
        transactional_tasks: int | None = None,
        frames: FrameState | None = None,
        is_read: Callable[[str], bool] = lambda _: True,
    ) -> GenerationPlan:
        """Write the plan of a claimed generation, then make it the current one.

        Args:
            transactional_tasks: tasks that may write from now on, all others being fenced; None: as before.
            is_read: whether the connector is subscribed to an existing topic.
        """
        # Plans would grow by megabytes with a new topic of 1,000 partitions each day: commits of topics no
        # longer read are stored once, outside the plans.
        dropped = self._store_dropped(claim, tasks, is_read)
        stored = {entry.topic_partition for entry in dropped.value.committed} if dropped else set()
        ids = {**(topic_ids or {}), **claim.topic_ids}
        plan = GenerationPlan(
            generation=claim.generation,
            config_version=config_version,
            tasks=tuple(tasks),
            committed=tuple(entry for p, entry in sorted(claim.committed.items()) if p not in stored),
            stale=prepared_tokens({p: tokens.values() for p, tokens in claim.stale.items()}),
            config=dict(config or {}),
            topic_ids={
                t: known for t, known in ids.items() if dropped is None or t not in dropped.value.topic_ids
            },
            undecided=undecided,
            dropped=dropped.generation if dropped else None,
            frames=frames or (claim.before.frames if claim.before else None),
            retired=tuple(row for row in claim.retired if is_read(row.topic)),
        )
        self._plan = self._write(plan_key(self._connector, claim.generation), plan, None)
        self._advance(
            TaskCountRecord(
                claimed=claim.generation,
                planned=claim.generation,
                tasks=len(plan.tasks),
                config_version=config_version,
                transactional_tasks=(
                    claim.transactional_tasks if transactional_tasks is None else transactional_tasks
                ),
                claimed_by=self._claimed_by(claim.generation),
            )
        )
        self._prune(claim.generation)
        self._prune_dropped(dropped)
        return plan

    def _store_dropped(
        self, claim: Claim, tasks: Iterable[TaskPlan], is_read: Callable[[str], bool]
    ) -> _StoredDropped | None:
        unread = {p.topic for p in claim.committed} | claim.topic_ids.keys()
        unread = {topic for topic in unread if not is_read(topic)} | self._idle(claim, tasks)
        unread -= {partition.topic for partition in claim.all_unsettled()}
        unread -= {planned.topic for task in tasks for planned in task.ranges}
        if not unread:
            return None
        value = Dropped(
            committed=tuple(e for p, e in sorted(claim.committed.items()) if p.topic in unread),
            topic_ids={topic: known for topic, known in sorted(claim.topic_ids.items()) if topic in unread},
        )
        if self._dropped is not None and self._dropped.value == value:
            return self._dropped
        self._write(dropped_key(self._connector, claim.generation), value, None)
        return _StoredDropped(claim.generation, value)

    def _idle(self, claim: Claim, tasks: Iterable[TaskPlan]) -> set[str]:
        read = {planned.topic for task in tasks for planned in task.ranges}
        oldest = claim.generation - _IDLE
        read |= {p.topic for p, entry in claim.committed.items() if entry.generation >= oldest}
        # The plan keeps a few idle topics, because moving one topic writes all commits outside the plan
        # again.
        idle = {p.topic for p in claim.committed} - read
        stored = {entry.topic for entry in self._dropped.value.committed} if self._dropped else set[str]()
        return idle if len(idle - stored) >= _TOGETHER else idle & stored

    def _prune_dropped(self, now: _StoredDropped | None) -> None:
        before, self._dropped = self._dropped, now
        if before is not None and before != now:
            key = dropped_key(self._connector, before.generation)
            self._remove(key, self._store.version(key))

    def close_running(self, closing: Closing) -> None:
        row = self._planned()
        while row.value.closing is None:
            key = plan_key(self._connector, row.value.generation)
            try:
                row = table.write(
                    self._store, key, row.value.model_copy(update={"closing": closing}), row.version
                )
            except Conflict as error:
                again = table.read(self._store, key, GenerationPlan)
                if again is None:
                    raise self._fenced() from error
                row = again
        self._plan = row
        request_closing(self._store, self._connector, row.value.generation, row.value.closing)

    def yield_to_successor(self) -> str | None:
        """Let a waiting driver take over, and return its name; this driver must not claim then."""
        key = plan_key(self._connector, self._planned().value.generation)
        while True:
            row = self._plan_again()
            if row is None:
                raise self._fenced()
            closing = row.value.closing
            if closing is None or closing.successor is None:
                return None
            answered = closing.model_copy(update={"answered": True})
            try:
                table.write(self._store, key, row.value.model_copy(update={"closing": answered}), row.version)
            except Conflict:
                continue  # another driver has requested the same
            return closing.successor

    def successor(self) -> str | None:
        row = self._plan_again()
        if row is None:
            return None
        self._plan = row
        return row.value.closing.successor if row.value.closing is not None else None

    def _planned(self) -> table.Row[GenerationPlan]:
        assert self._plan is not None, "nothing was planned"  # noqa: S101 - a caller's mistake
        return self._plan

    def _plan_again(self) -> table.Row[GenerationPlan] | None:
        key = plan_key(self._connector, self._planned().value.generation)
        return table.read_again(self._store, key, GenerationPlan, self._plan)

    def is_newest(self, *, is_recent_enough: bool = False) -> bool:
        if self._count is None:
            return False
        key = task_count_key(self._connector)
        # A recent version may be older than this driver's last write, and then proves nothing.
        if is_recent_enough and self._store.recent_version(key) == self._count.version:
            return True
        return self._store.version(key) == self._count.version

    def _claim(self) -> TaskCountRecord:
        while self._count is None:
            first = table.read(self._store, task_count_key(self._connector), TaskCountRecord)
            record = first.value if first else TaskCountRecord(claimed=0)
            self.expect_not_replaced(record)
            claimed = self._next(record)
            try:
                self._count = table.write(
                    self._store, task_count_key(self._connector), claimed, first.version if first else None
                )
            except Conflict:
                continue  # another driver starts at the same time: the last one to claim is the newest
            self._tenure.claimed = claimed.claimed
            return claimed
        claimed = self._advance(self._next(self._count.value))
        self._tenure.claimed = claimed.claimed
        return claimed

    # The plan and its tasks stay those of the previous generation.
    def _next(self, record: TaskCountRecord) -> TaskCountRecord:
        claimed = record.claimed + 1
        return record.model_copy(update={"claimed": claimed, "claimed_by": self._claimed_by(claimed)})

    def _claimed_by(self, generation: int) -> ClaimedBy | None:
        return ClaimedBy(generation=generation, driver=self._driver) if self._driver else None

    def _advance(self, record: TaskCountRecord) -> TaskCountRecord:
        assert self._count is not None, "nothing was claimed"  # noqa: S101 - a caller's mistake
        self._count = self._write(task_count_key(self._connector), record, self._count.version)
        return record

    def _write(self, key: str, value: V, if_version: str | None) -> table.Row[V]:
        try:
            return table.write(self._store, key, value, if_version)
        except Conflict as error:
            raise self._fenced() from error

    def _base(self, count: TaskCountRecord) -> GenerationPlan | None:
        if not count.planned:
            return None
        row = table.read(self._store, plan_key(self._connector, count.planned), GenerationPlan)
        if row is None:
            if not self.is_newest():
                raise self._fenced()  # a newer driver has planned, and pruned what we were about to read
            raise StoreUnreadable(
                f"connector {self._connector}: the store has lost the plan of generation {count.planned}, so "
                f"the commits are unknown and nothing is read; restore the store from a backup"
            )
        plan = row.value
        self._dropped = None
        if plan.dropped is None:
            return plan
        dropped = table.read(self._store, dropped_key(self._connector, plan.dropped), Dropped)
        if dropped is None:
            if not self.is_newest():
                raise self._fenced()  # a newer driver has planned, and pruned this record as well
            raise missing_dropped(self._store, self._connector, plan)
        self._dropped = _StoredDropped(plan.dropped, dropped.value)
        return with_dropped(plan, dropped.value)

    def _fenced_record(
        self, task: int, count: TaskCountRecord, base: GenerationPlan | None
    ) -> TaskRecord | None:
        record = self._fence(task, count.claimed)
        if record is None or not may_be_newer(base, record):
            return None
        found = whole(self._store, self._connector, task, record)
        if found is None and not self.is_newest():
            raise self._fenced()  # a newer driver has planned, and pruned what we were about to read
        if found is None:
            raise missing_segment(self._store, self._connector, task)
        return found

    def _fence(self, task: int, generation: int) -> TaskRecord | None:
        """Move a task's record to our generation, so that older writers fail; return the former one."""
        key = task_key(self._connector, task)
        while True:
            before = table.read(self._store, key, TaskRecord)
            if before is not None and before.value.generation > generation:
                raise self._fenced()
            record = before.value if before else TaskRecord(generation=generation)
            fenced = record.model_copy(
                update={"generation": generation, "attempt": 0, "written": record.content_generation}
            )
            try:
                table.write(self._store, key, fenced, before.version if before else None)
            except Conflict:
                continue  # the task has just committed, and its commit counts
            return before.value if before else None

    def _prune(self, generation: int) -> None:
        for key in self._store.list(plans_prefix(self._connector)):
            if key < plan_key(self._connector, generation):
                self._remove(key, self._store.version(key))

    def _remove(self, key: str, version: str | None) -> None:
        if version is None:
            return
        try:
            self._store.delete(key, version)
        except Conflict:
            log.debug("%s is kept, because another process wrote it in the meantime", key)

    def _fenced(self) -> FencedException:
        return FencedException(
            f"connector {self._connector}: a newer driver has taken over; this one stops and "
            f"writes nothing more"
        )


def _entries(
    offsets: Mapping[TopicPartition, int | None],
    generation: int,
    epochs: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, PartitionCommit]:
    return {
        p: PartitionCommit.of(p, OffsetAndMetadata(offset), generation, leader_epoch=(epochs or {}).get(p))
        for p, offset in offsets.items()
        if offset is not None
    }


def _still_undecided(
    before: Undecided | None, offsets: Mapping[TopicPartition, int | None]
) -> Undecided | None:
    named = {p.topic_partition for p in before.partitions} if before else set()
    named = {p for p in named | offsets.keys() if offsets.get(p) is None}
    if before is None and not named:
        return None
    rows = tuple(NamedPartition(topic=p.topic, partition=p.partition) for p in sorted(named))
    return (before or Undecided()).model_copy(update={"partitions": rows})
