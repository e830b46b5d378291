"""A driver's hold on one connector's generations: claim, fence, merge, plan (KIP-618 for sinks).

Every step is safe to crash after. What a step needs to know of the steps before is in the store; the
driver keeps only the version of the task count record it wrote last, and a conflict there means that
a newer driver exists.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sinksdk.errors import ConnectException, FencedException
from sinksdk.records import OffsetAndMetadata, Token, TopicPartition
from sinksdk.store import Conflict, Store, merge, table
from sinksdk.store.keys import (
    config_key,
    connector_prefix,
    plan_key,
    plans_prefix,
    task_count_key,
    task_key,
)
from sinksdk.store.records import (
    Closing,
    Entry,
    GenerationPlan,
    TaskCountRecord,
    TaskPlan,
    TaskRecord,
    noted,
)

log = logging.getLogger(__name__)


class UnpublishedException(ConnectException):
    """Offsets cannot be altered yet: what is committed has not been made visible."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A generation that is ours to plan.

    Args:
        generation: its number.
        committed: every partition's commit.
        stale: tokens that no commit covers.
        previous: which task had which partition in the generation before.
        is_first: no generation was ever planned.
        topic_ids: id of each topic of which something was read before.
        before: the plan of the generation before, if there was one.
        transactional_tasks: how many tasks may still write through transactional ids; None: there never
            were any.
    """

    generation: int
    committed: Mapping[TopicPartition, Entry]
    stale: Mapping[TopicPartition, Mapping[str, Token]]
    previous: Mapping[TopicPartition, int]
    is_first: bool = False
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    before: GenerationPlan | None = None
    transactional_tasks: int | None = None

    def unsettled(self, partition: TopicPartition) -> bool:
        """Whether tokens of this partition wait to be published or discarded."""
        entry = self.committed.get(partition)
        return bool((entry and entry.publish) or self.stale.get(partition))

    def all_unsettled(self) -> set[TopicPartition]:
        """Partitions with tokens to publish or to discard."""
        return {p for p in {*self.committed, *self.stale} if self.unsettled(p)}


class Generations:
    """Claims and plans one connector's generations for one driver.

    Args:
        store: where they are kept.
        connector: the connector's name.
    """

    def __init__(self, store: Store, connector: str) -> None:
        self._store = store
        self._connector = connector
        self._count: table.Row[TaskCountRecord] | None = None
        self._plan: table.Row[GenerationPlan] | None = None

    @property
    def has_claimed(self) -> bool:
        """Whether this driver has ever claimed a generation."""
        return self._count is not None

    def claim(self) -> Claim:
        """Steps 1 to 3: claim the next generation, fence the one before, merge what it committed.

        Raises:
            FencedException: a newer driver exists.
            ConnectException: the store has lost the plan of the generation before.
        """
        count = self._claim()
        base = self._base(count)
        records = [self._fence(task, count.claimed) for task in range(count.tasks)]
        merged = merge(base, [record for record in records if record is not None])
        previous = {
            planned.topic_partition: task
            for task, plan in enumerate(base.tasks if base else ())
            for planned in plan.ranges
        }
        return Claim(
            count.claimed,
            merged.committed,
            merged.stale,
            previous,
            is_first=not count.planned,
            topic_ids=base.topic_ids if base else {},
            before=base,
            transactional_tasks=count.transactional_tasks,
        )

    def settle(
        self,
        claim: Claim,
        offsets: Mapping[TopicPartition, int],
        config_version: int,
        config: Mapping[str, str],
        *,
        topic_ids: Mapping[str, str] | None = None,
    ) -> Claim:
        """Commit offsets that no task has written, as a generation of its own without tasks.

        Args:
            claim: whose generation.
            offsets: what is committed.
            config_version: version of the configuration.
            config: the configuration itself, as written.
            topic_ids: as of :meth:`plan`.

        Returns:
            The next generation, ours to plan.

        Raises:
            FencedException: a newer driver exists.
        """
        entries = {
            p: Entry.of(p, OffsetAndMetadata(offset), claim.generation) for p, offset in offsets.items()
        }
        committed = {**claim.committed, **entries}
        self.plan(replace(claim, committed=committed), (), config_version, config, topic_ids=topic_ids)
        return self.claim()

    def alter(
        self,
        claim: Claim,
        offsets: Mapping[TopicPartition, int | None],
        config_version: int,
        config: Mapping[str, str],
    ) -> None:
        """Commit offsets by hand, as a generation of its own without tasks; None takes a commit away.

        Raises:
            FencedException: a newer driver exists.
            UnpublishedException: a commit has tokens that are not published yet: they would be lost.
        """
        unpublished = [str(p) for p in sorted(offsets) if (e := claim.committed.get(p)) and e.publish]
        if unpublished:
            raise UnpublishedException(
                f"connector {self._connector}: what is committed of {', '.join(unpublished)} is not "
                f"published yet; resume the connector until it is, stop it, and alter its offsets then"
            )
        committed = {p: entry for p, entry in claim.committed.items() if p not in offsets}
        committed |= {
            p: Entry.of(p, OffsetAndMetadata(offset), claim.generation)
            for p, offset in offsets.items()
            if offset is not None
        }
        self.plan(replace(claim, committed=committed), (), config_version, config)

    def forget(self) -> None:
        """Remove everything but the task count record, which says from now on that nothing is planned.

        It still says how many transactional ids may be in use: a connector that is created again is fenced
        against its former self. A claim comes first: it fences everybody else. Done again after a crash,
        it finishes.

        Raises:
            FencedException: a newer driver exists.
        """
        claim = self.claim()
        self._advance(
            TaskCountRecord(claimed=claim.generation, transactional_tasks=claim.transactional_tasks)
        )
        for key in self._store.list(connector_prefix(self._connector)):
            if key not in (task_count_key(self._connector), config_key(self._connector)):
                self._remove(key)

    def plan(
        self,
        claim: Claim,
        tasks: Sequence[TaskPlan],
        config_version: int,
        config: Mapping[str, str] | None = None,
        *,
        topic_ids: Mapping[str, str] | None = None,
        transactional_tasks: int | None = None,
    ) -> GenerationPlan:
        """Step 4: write the plan, then make it the one that counts.

        Args:
            claim: whose generation.
            tasks: what each of them does.
            config_version: version of the configuration.
            config: the configuration itself, as written.
            topic_ids: ids of topics, for those that have none yet: an id that is remembered stays.
            transactional_tasks: how many tasks may write through transactional ids from now on, all others
                being fenced; None: as many as before.

        Raises:
            FencedException: a newer driver exists.
        """
        plan = GenerationPlan(
            generation=claim.generation,
            config_version=config_version,
            tasks=tuple(tasks),
            committed=tuple(entry for _, entry in sorted(claim.committed.items())),
            stale=noted({p: tokens.values() for p, tokens in claim.stale.items()}),
            config=dict(config or {}),
            topic_ids={**(topic_ids or {}), **claim.topic_ids},
        )
        try:
            self._plan = table.write(
                self._store, plan_key(self._connector, claim.generation), plan, if_version=None
            )
        except Conflict as error:
            raise self._fenced() from error
        self._advance(
            TaskCountRecord(
                claimed=claim.generation,
                planned=claim.generation,
                tasks=len(plan.tasks),
                config_version=config_version,
                transactional_tasks=(
                    claim.transactional_tasks if transactional_tasks is None else transactional_tasks
                ),
            )
        )
        self._prune(claim.generation)
        return plan

    def ask_to_close(self, closing: Closing) -> None:
        """Let the running generation's tasks know that they shall close. Asked twice, the first holds.

        Raises:
            FencedException: the plan is gone: a newer driver has pruned it.
        """
        assert self._plan is not None, "nothing was planned"  # noqa: S101 - a caller's mistake
        row = self._plan
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

    def give_way(self) -> str | None:
        """After a generation has ended: let a driver that asked for it take over, if there is one.

        Returns:
            Its name; from now on this driver must not claim anything. None: nobody asked.

        Raises:
            FencedException: a newer driver has not waited.
        """
        assert self._plan is not None, "nothing was planned"  # noqa: S101 - a caller's mistake
        key = plan_key(self._connector, self._plan.value.generation)
        while True:
            row = table.read(self._store, key, GenerationPlan)
            if row is None:
                raise self._fenced()
            closing = row.value.closing
            if closing is None or closing.successor is None:
                return None
            answered = closing.model_copy(update={"answered": True})
            try:
                table.write(self._store, key, row.value.model_copy(update={"closing": answered}), row.version)
            except Conflict:
                continue  # another newcomer asks as well
            return closing.successor

    def successor(self) -> str | None:
        """Who waits to take over the running generation's connector, if anybody does."""
        assert self._plan is not None, "nothing was planned"  # noqa: S101 - a caller's mistake
        key = plan_key(self._connector, self._plan.value.generation)
        row = table.read(self._store, key, GenerationPlan)
        return row.value.closing.successor if row is not None and row.value.closing is not None else None

    def is_newest(self) -> bool:
        """Whether no newer driver has claimed a generation."""
        now = table.read(self._store, task_count_key(self._connector), TaskCountRecord)
        return now is not None and self._count is not None and now.version == self._count.version

    def _claim(self) -> TaskCountRecord:
        """Count the generation up; tasks and plan stay those of the generation before."""
        while self._count is None:
            first = table.read(self._store, task_count_key(self._connector), TaskCountRecord)
            record = first.value if first else TaskCountRecord(claimed=0)
            claimed = record.model_copy(update={"claimed": record.claimed + 1})
            try:
                self._count = table.write(
                    self._store, task_count_key(self._connector), claimed, first.version if first else None
                )
            except Conflict:
                continue  # another driver starts at the same time: the last one to claim is the newest
            return self._count.value
        record = self._count.value
        return self._advance(record.model_copy(update={"claimed": record.claimed + 1}))

    def _advance(self, record: TaskCountRecord) -> TaskCountRecord:
        assert self._count is not None, "nothing was claimed"  # noqa: S101 - a caller's mistake
        try:
            self._count = table.write(
                self._store, task_count_key(self._connector), record, self._count.version
            )
        except Conflict as error:
            raise self._fenced() from error
        return record

    def _base(self, count: TaskCountRecord) -> GenerationPlan | None:
        if not count.planned:
            return None
        row = table.read(self._store, plan_key(self._connector, count.planned), GenerationPlan)
        if row is None:
            if not self.is_newest():
                raise self._fenced()  # a newer driver has planned, and pruned what we were about to read
            raise ConnectException(
                f"connector {self._connector}: the store has no plan of generation {count.planned}, which it "
                f"says was planned; nothing is read from an empty base. Restore the store from a backup"
            )
        return row.value

    def _fence(self, task: int, generation: int) -> TaskRecord | None:
        """Move a task's record to our generation: every later write of an older one fails.

        Returns:
            What the task had written; a task that never started has an empty record from now on.
        """
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
                continue  # the task has just committed something: that counts, read it
            return before.value if before else None

    def _prune(self, generation: int) -> None:
        """Remove plans no driver and no task can need any more."""
        for key in self._store.list(plans_prefix(self._connector)):
            if key < plan_key(self._connector, generation):
                self._remove(key)

    def _remove(self, key: str) -> None:
        """Remove a key that nobody needs any more, and that somebody late may still write."""
        found = self._store.stored(key)
        if found is not None:
            try:
                self._store.delete(key, found.version)
            except Conflict:
                log.debug("%s was written while it was being removed; it stays", key)

    def _fenced(self) -> FencedException:
        return FencedException(
            f"connector {self._connector}: a newer driver has taken over; this one ends and "
            f"touches nothing more"
        )
