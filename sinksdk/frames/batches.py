"""Stores the commits of whole micro-batches, and which run of a query may write."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from sinksdk.engine.clock import WallClock
from sinksdk.errors import ConnectException, FencedException
from sinksdk.frames.protocol import (
    CheckpointException,
    Settled,
    Share,
    Standing,
    Writing,
    standing,
    taken_over,
    with_batch,
    with_shares,
)
from sinksdk.model.outcome import PartitionOutcome
from sinksdk.offsets import TopicPartition
from sinksdk.store import Conflict, Store, StoreUnreadable, TakenOver, table, take_over
from sinksdk.store.generations import Claim, Generations
from sinksdk.store.keys import config_key, plan_key, task_count_key
from sinksdk.store.records import (
    ConnectorRecord,
    FrameState,
    GenerationPlan,
    PartitionCommit,
    TaskCountRecord,
    TaskPlan,
    empty_range,
)

log = logging.getLogger(__name__)

_OPENING: Final = 10.0  # seconds for another task to plan the generation it has claimed
_POLL: Final = 0.05  # seconds

# Tasks that publish concurrently; they mostly wait for the destination.
_SETTLING: Final = 8

Seen = dict[tuple[str, str], table.Row[GenerationPlan]]

Outcomes = Sequence[PartitionOutcome]

Settle = Callable[[TakenOver, int], Outcomes]
# Runs calls, maybe concurrently, and raises an exception once all have returned.
AtOnce = Callable[[Callable[[int], Outcomes], Sequence[int]], Sequence[Outcomes]]


def one_by_one(run: Callable[[int], Outcomes], numbers: Sequence[int]) -> Sequence[Outcomes]:
    return [run(number) for number in numbers]


@dataclass(frozen=True, slots=True)
class Terms:
    """The part of a connector's plans that all generations share; ``config`` has unresolved references."""

    connector: str
    topic: str
    config: Mapping[str, str]
    # There may be fewer task configurations than Spark partitions.
    task_configs: Sequence[Mapping[str, str]] = ({},)

    def tasks(self, count: int, committed: Mapping[TopicPartition, PartitionCommit]) -> tuple[TaskPlan, ...]:
        return tuple(
            TaskPlan(
                ranges=(empty_range(partition, committed.get(partition)),),
                config=dict(self.task_configs[number % len(self.task_configs)]),
            )
            for number in range(count)
            for partition in (TopicPartition(self.topic, number),)
        )

    def settling(self, after: Settled) -> tuple[TaskPlan, ...]:
        ranges = [empty_range(p, after.committed.get(p)) for p in after.unsettled()]
        return tuple(
            TaskPlan(
                ranges=tuple(ranges[number::_SETTLING]),
                config=dict(self.task_configs[number % len(self.task_configs)]),
            )
            for number in range(min(_SETTLING, len(ranges)))
        )


class _Newest(NamedTuple):
    tasks: table.Row[TaskCountRecord] | None
    plan: table.Row[GenerationPlan] | None = None

    @property
    def frames(self) -> FrameState | None:
        return self.plan.value.frames if self.plan else None

    @property
    def is_being_opened(self) -> bool:
        return self.tasks is not None and self.tasks.value.claimed != self.tasks.value.planned

    @property
    def is_unsettled(self) -> bool:
        if self.plan is None or self.frames is None:
            return False
        return not self.frames.is_open or any(entry.publish for entry in self.plan.value.committed)


# A micro-batch takes up to three generations; each starts from the store's state (decision 0033).
class FrameBatches:
    def __init__(
        self,
        store: Store,
        terms: Terms,
        clock: WallClock,
        at_once: AtOnce = one_by_one,
        seen: Seen | None = None,
    ) -> None:
        self._store = store
        self._terms = terms
        self._clock = clock
        self._at_once = at_once
        # A plan names every partition of the DataFrame, and many tasks run in one process.
        self._seen: Seen = {} if seen is None else seen
        self._connector = terms.connector

    def join(self, writing: Writing, number: int) -> TakenOver | None:
        """Take over the task of a Spark partition; return None if the micro-batch is already committed."""
        seen, since, patience = None, self._clock.now(), _OPENING
        while True:
            newest = self._newest()
            count, plan, frames = newest.tasks, newest.plan, newest.frames
            where = standing(self._connector, frames, writing)
            if where is Standing.COMMITTED:
                return None
            if count is not None and newest.is_being_opened:
                if count.version != seen:
                    seen, since = count.version, self._clock.now()
                if self._clock.now() - since < patience:
                    self._clock.sleep(_POLL)
                    continue
            elif count and plan and frames and frames.is_open and where is Standing.WRITER:
                taken = self._try_take_over(count, plan, writing, number)
                if taken is not None:
                    return taken
                continue
            self._try_to_open(count, writing, number)
            patience *= 2  # short waits would let slow tasks replace each other's generation without end

    def commit(self, writing: Writing, shares: Sequence[Share], settle: Settle) -> None:
        """Commit a micro-batch and publish it, together with the rest of an earlier one."""
        is_first = True
        while True:
            newest = self._newest()
            is_committed = standing(self._connector, newest.frames, writing) is Standing.COMMITTED
            if is_committed and is_first:
                log.warning(
                    "connector %s: %s is already committed and is skipped, as usual after a restart; if the "
                    "checkpoint was restored from an older copy, newer rows are skipped with it",
                    self._connector,
                    writing,
                )
            is_first = False
            if not (is_committed or shares or newest.is_unsettled):
                return
            if self._try_settle(newest.tasks, writing, None if is_committed else shares or None, settle):
                return

    def abort(self, writing: Writing, settle: Settle) -> None:
        while True:
            try:
                newest = self._newest()
                where = standing(self._connector, newest.frames, writing)
            except (FencedException, CheckpointException):
                return  # the run that owns the connector discards the tokens
            if where is not Standing.WRITER or self._try_settle(newest.tasks, writing, None, settle):
                return

    # -- opening a generation ----------------------------------------------------------------------

    def _newest(self) -> _Newest:
        key = task_count_key(self._connector)
        while True:
            count = table.read(self._store, key, TaskCountRecord)
            if count is None or not count.value.planned:
                return _Newest(count)
            plan = self._read_plan(count.value.planned)
            if plan is not None and plan.value.frames is None:
                raise self._of_a_connector("a connector of this name has started a generation since")
            if plan is not None:
                return _Newest(count, plan)
            if self._store.version(key) == count.version:
                raise StoreUnreadable(
                    f"connector {self._connector}: the plan of generation {count.value.planned} is missing "
                    f"in store {self._store.url}. Restore the store from a backup"
                )

    def _read_plan(self, generation: int) -> table.Row[GenerationPlan] | None:
        mine = (self._store.url, self._connector)
        known = self._seen.get(mine)
        if known is not None and known.value.generation != generation:
            known = None
        # If the cache has the plan, only its version is read.
        plan = table.read_again(self._store, plan_key(self._connector, generation), GenerationPlan, known)
        if plan is not None and plan is not known:
            self._seen.clear()  # one plan is enough: plans may be large
            self._seen[mine] = plan
        return plan

    def _try_to_open(self, count: table.Row[TaskCountRecord] | None, writing: Writing, number: int) -> None:
        self._expect_kind()
        generations = Generations(self._store, self._connector)
        try:
            # 1. The first task's claim fences the previous run. Tasks store tokens and commit nothing.
            claim = generations.claim_from(count)
            self._open(generations, claim, writing, number + 1)
        except (Conflict, FencedException):
            return

    def _open(self, generations: Generations, claim: Claim, writing: Writing, tasks: int) -> None:
        frames = taken_over(_frames(claim), writing.run, is_open=True)
        self._plan(generations, claim, self._terms.tasks(tasks, claim.committed), frames)

    def _plan(
        self, generations: Generations, claim: Claim, tasks: Sequence[TaskPlan], frames: FrameState
    ) -> GenerationPlan:
        return generations.plan(claim, tasks, 1, self._terms.config, frames=frames)

    def _try_take_over(
        self,
        count: table.Row[TaskCountRecord],
        plan: table.Row[GenerationPlan],
        writing: Writing,
        number: int,
    ) -> TakenOver | None:
        if number < min(count.value.tasks, len(plan.value.tasks)):
            generation = plan.value.generation
            return take_over(
                *(self._store, self._connector, generation, number, writing.as_stored()), known=plan
            )
        self._extend(count, plan, number)
        return None

    def _extend(
        self, count: table.Row[TaskCountRecord], plan: table.Row[GenerationPlan], number: int
    ) -> None:
        # The number of a DataFrame's partitions is unknown until its tasks run.
        enough = 1 << number.bit_length()  # doubled, so that concurrent tasks rarely have to extend the plan
        committed = {entry.topic_partition: entry for entry in plan.value.committed}
        generation = plan.value.generation
        try:
            if len(plan.value.tasks) <= number:
                more = self._terms.tasks(enough, committed)[len(plan.value.tasks) :]
                longer = plan.value.model_copy(update={"tasks": (*plan.value.tasks, *more)})
                plan = table.write(self._store, plan_key(self._connector, generation), longer, plan.version)
            # The task count is stored before the task's own record, because uncounted tasks are not fenced.
            counted = count.value.model_copy(update={"tasks": len(plan.value.tasks)})
            table.write(self._store, task_count_key(self._connector), counted, count.version)
        except Conflict:
            return

    # -- the driver's part -------------------------------------------------------------------------

    def _try_settle(
        self,
        count: table.Row[TaskCountRecord] | None,
        writing: Writing,
        shares: Sequence[Share] | None,
        settle: Settle,
    ) -> bool:
        """Fence the tasks, commit their shares, and publish; return False if another process was faster."""
        self._expect_kind()
        generations = Generations(self._store, self._connector)
        try:
            claim = generations.claim_from(count)
            # 2. The claim fences the tasks; the plan commits their results in one compare-and-set.
            after = Settled(claim.committed, claim.stale)
            frames = taken_over(_frames(claim), writing.run, is_open=True)
            if shares is not None:
                base = claim.before.generation if claim.before else None
                after = with_shares(
                    self._connector, after, shares, prepared_in=base, generation=claim.generation
                )
                frames = with_batch(frames, writing)
            width = 1 + max((share.partition.partition for share in shares or ()), default=0)
            claim = replace(claim, committed=after.committed, stale=after.stale)
            if not after.unsettled():
                self._plan(generations, claim, self._terms.tasks(width, after.committed), frames)
                return True
            # Few tasks publish and discard, in the driver's process.
            closed = frames.model_copy(update={"is_open": False})
            plan = self._plan(generations, claim, self._terms.settling(after), closed)
        except (Conflict, FencedException):
            return False
        self._settle(generations, plan, writing, width, settle)
        return True

    def _settle(
        self, generations: Generations, plan: GenerationPlan, writing: Writing, width: int, settle: Settle
    ) -> None:
        def settle_task(number: int) -> Outcomes:
            taken = take_over(self._store, self._connector, plan.generation, number)
            if taken is None:
                raise self._overtaken(writing)
            return settle(taken, number)

        outcomes = [o for outcomes in self._at_once(settle_task, range(len(plan.tasks))) for o in outcomes]
        # 3. Then the tasks of the next micro-batch get their generation.
        claim = generations.claim()
        self._open(generations, claim, writing, width)
        if unpublished := sorted(claim.unpublished()):
            failures = {o.partition: o.failure.message for o in outcomes if o.failure}
            why = "; ".join(f"{p}: {failures.get(p, 'no failure was reported')}" for p in unpublished)
            raise ConnectException(
                f"connector {self._connector}: {writing} is committed, but not completely published: {why}. "
                f"{_PUBLISH_IT[writing.batch is None]}"
            )

    def _expect_kind(self) -> None:
        record = table.read(self._store, config_key(self._connector), ConnectorRecord)
        if record is not None and record.value.kind not in (None, "dataframe"):
            raise self._of_a_connector(f"it was created again as a {record.value.kind}")

    def _of_a_connector(self, why: str) -> FencedException:
        return FencedException(
            f"connector {self._connector}: DataFrames can no longer be written under this name, because "
            f"{why}: set another 'name' and another 'topic'"
        )

    def _overtaken(self, writing: Writing) -> FencedException:
        return FencedException(
            f"connector {self._connector}: another query took over while {writing} was published, and "
            f"completes the publication"
        )


# The key says whether it is a batch write: Spark repeats micro-batches only.
_PUBLISH_IT: Final = {
    False: "Start the query again with the same checkpoint; nothing is written twice",
    True: "Do not write it again: the next write to this name publishes it, even if its DataFrame is empty",
}


def _frames(claim: Claim) -> FrameState | None:
    return claim.before.frames if claim.before else None
