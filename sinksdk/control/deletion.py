"""Deletion of a connector: publish committed tokens, then remove its records (KIP-883).

Each step may be repeated after a crash; the first one claims a generation, which fences drivers and tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from sinksdk.connector import SinkConnector
from sinksdk.engine import EngineOptions, TaskName, WorkerSinkTask
from sinksdk.engine.clock import Clock
from sinksdk.engine.retry import RetryPolicy
from sinksdk.engine.task_run import SinkTaskRun
from sinksdk.errors import ConnectException, FencedException
from sinksdk.model.outcome import PartitionOutcome
from sinksdk.offsets import TopicPartition
from sinksdk.store import Conflict, Store, StoreUnavailable, table, take_over
from sinksdk.store.generations import Claim, Generations, UnpublishedException
from sinksdk.store.keys import config_key
from sinksdk.store.records import ConnectorRecord, GenerationPlan, TaskPlan, empty_range

log = logging.getLogger(__name__)

_AT_ONCE: Final = RetryPolicy(0.0)  # the caller retries the whole deletion, and reports why it failed

Call = Callable[[str, Callable[[], Any]], Any]


class PartlyVisibleException(UnpublishedException):
    """Records above a commit are visible, and would be written twice after the deletion."""


def settle(
    store: Store,
    name: str,
    record: ConnectorRecord,
    *,
    generations: Generations,
    claim: Claim,
    connector: SinkConnector,
    own: Callable[[], Mapping[str, str]],
    call: Call,
    clock: Clock,
) -> str:
    """Publish committed tokens and discard the others, using up the claim; return the problem, if any.

    Args:
        own: returns the task's own entries of the configuration.
    """
    try:
        # The task runs in this process, without Spark: it reads no records, so no JVM needs to start.
        ranges = tuple(empty_range(p, claim.committed.get(p)) for p in sorted(claim.all_unsettled()))
        task = TaskPlan(ranges=ranges, config=dict(own()))
        # The connector may have to run before it is deleted: partitions without a commit stay undecided.
        plan = generations.plan(claim, (task,), record.version, record.config, undecided=claim.undecided)
        outcomes = call("publish", lambda: _run(store, name, connector, plan, clock))
        return "; ".join(f"{o.partition}: {o.failure.message}" for o in outcomes if o.failure)
    except (FencedException, StoreUnavailable):
        raise
    except Exception as error:
        log.warning("connector %s: publishing its commits failed", name, exc_info=True)
        return str(error) or type(error).__name__


def _run(
    store: Store, name: str, connector: SinkConnector, plan: GenerationPlan, clock: Clock
) -> Sequence[PartitionOutcome]:
    taken = take_over(store, name, plan.generation, 0)
    if taken is None:
        raise FencedException(
            f"connector {name}: another process has taken over; this process changes nothing more"
        )
    raw = {**plan.config, **plan.tasks[0].config}
    worker = WorkerSinkTask(
        connector.task_class(),
        TaskName(name, 0),
        connector.config_class.parse(raw),
        commits=taken.ledger,
        clock=clock,
        generation=plan.generation,
        raw_config=raw,
        options=EngineOptions(retry=_AT_ONCE),
    )
    return SinkTaskRun(worker, plan.tasks[0].ranges, (), closing=lambda: None, clock=clock).run()


class Deletion:
    """One process's attempt at deleting a connector; a claim by another process fences it."""

    def __init__(self, store: Store, connector: str, record: ConnectorRecord) -> None:
        self._store = store
        self._connector = connector
        self._record = record
        self._generations = Generations(store, connector)
        self._claim = self._generations.claim()
        # The record is read after the claim: no other process can now remove and create it without fencing
        # this one.
        row = table.read(store, config_key(connector), ConnectorRecord)
        if row is None or row.value.incarnation != record.incarnation:
            raise FencedException(
                f"connector {connector}: another process has deleted it; this process changes nothing more"
            )
        if not row.value.deleted:
            raise ConnectException(
                f"connector '{connector}' is not being deleted; its records in the store are kept"
            )

    @property
    def is_settled(self) -> bool:
        return not self._claim.all_unsettled() and not self._claim.partly_visible()

    def settle(self, connector: SinkConnector, tasks_max: int, call: Call, clock: Clock) -> str:
        """Publish committed tokens and discard the others; return the problem, if any."""
        claim = self._claim
        if not claim.all_unsettled():
            return ""
        problem = settle(
            self._store,
            self._connector,
            self._record,
            generations=self._generations,
            claim=claim,
            connector=connector,
            own=lambda: call("task_configs", lambda: connector.task_configs(tasks_max))[0],
            call=call,
            clock=clock,
        )
        self._claim = self._generations.claim()
        return problem

    def expect_published(self, reason: str = "") -> None:
        """Check that commits are published, and that no visible record is uncommitted.

        Raises:
            UnpublishedException: commits are unpublished.
            PartlyVisibleException: visible records are uncommitted; the connector must commit them first.
        """
        left = ", ".join(
            f"{partition} up to offset {entry.offset} ({len(entry.publish)} tokens)"
            for partition, entry in sorted(self._claim.unpublished().items())
        )
        if left:
            raise UnpublishedException(
                f"connector {self._connector} is not deleted yet: {left} is committed but not published"
                f"{f' ({reason})' if reason else ''}; 'sinksdk delete {self._connector} --force' deletes the "
                f"connector and gives up these commits"
            )
        ahead = ", ".join(
            f"{partition} from offset {entry.offset} up to {entry.partly_visible_to}"
            for partition, entry in sorted(self._claim.partly_visible().items())
        )
        if ahead:
            raise PartlyVisibleException(
                f"connector {self._connector} is not deleted yet: some records of {ahead} are visible but "
                f"not committed, and a connector that resumes from the commit would duplicate them; 'sinksdk "
                f"run', or a server on this store, commits them first and then deletes the connector; "
                f"'sinksdk delete {self._connector} --force' deletes it without committing them"
            )

    def give_up(self) -> bool:
        """Withdraw unpublished commits at the operator's request; return whether there were any."""
        claim, left, ahead = self._claim, self._claim.unpublished(), self._claim.partly_visible()
        if not left and not ahead:
            return False
        for partition, entry in sorted(ahead.items()):
            log.error(
                "connector %s is deleted by force: some records of %s from offset %d up to %s are visible "
                "but not committed; a connector that resumes from the commit duplicates them",
                self._connector,
                partition,
                entry.offset,
                entry.partly_visible_to,
            )
        for partition, entry in sorted(left.items()):
            log.error(
                "connector %s is deleted by force: the commit of %s from offset %s up to %d could not be "
                "published and is given up; its tokens: %s",
                self._connector,
                partition,
                "0" if entry.visible is None else entry.visible,
                entry.offset,
                ", ".join(token.id for token in entry.publish),
            )
        if left:
            log.error(
                "connector %s: %d tokens of %d partitions are given up",
                self._connector,
                sum(len(entry.publish) for entry in left.values()),
                len(left),
            )
        committed = {
            p: entry.model_copy(update={"partly_visible_to": None})
            for p, entry in claim.committed.items()
            if p not in left
        }
        committed |= {
            p: entry.withdrawn_to(entry.visible, claim.generation)
            for p, entry in left.items()
            if entry.visible is not None
        }
        stale = {
            p: {**claim.stale.get(p, {}), **{token.id: token for token in entry.publish}}
            for p, entry in left.items()
        }
        withdrawn = replace(claim, committed=committed, stale={**claim.stale, **stale})
        self._generations.plan(withdrawn, (), self._record.version, self._record.config)
        self._claim = self._generations.claim()
        return True

    def visible(self) -> Mapping[TopicPartition, int]:
        return self._claim.visible()

    def reached(self) -> Mapping[TopicPartition, int]:
        """Return the offset of each partition's last commit, withdrawn or not."""
        return {p: max(e.offset, e.withdrawn_from or 0) for p, e in self._claim.committed.items()}

    def remove(self) -> None:
        """Remove all records except the task count record, which fences tasks that still run."""
        self.expect_published()
        if stale := sorted(token for tokens in self._claim.stale.values() for token in tokens):
            log.warning(
                "connector %s: uncommitted data at its destination could not be discarded and remains; its "
                "tokens: %s",
                self._connector,
                ", ".join(stale),
            )
        self._generations.forget()
        # The configuration goes last: until then the next start finishes the deletion.
        key = config_key(self._connector)
        while True:
            row = table.read(self._store, key, ConnectorRecord)
            if row is None or row.value.incarnation != self._record.incarnation:
                return  # another process has completed the last step
            try:
                self._store.delete(key, row.version)
            except Conflict:
                continue  # the operator has just requested the connector again
            return
