"""Views of connectors, partitions and tasks, built from the reports of drivers and tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from sinksdk.control.status import ShownState, State
from sinksdk.model.measures import TaskMeasures
from sinksdk.model.outcome import PartitionOutcome, Retry
from sinksdk.model.plan import PlannerState
from sinksdk.model.status import PartitionStatus, Waiting, lag
from sinksdk.offsets import TopicPartition
from sinksdk.plugins.classes import ConnectorType
from sinksdk.source.positions import as_json
from sinksdk.store import Store, read_commits, table
from sinksdk.store.keys import ends_key
from sinksdk.store.records import GenerationPlan, TargetState
from sinksdk.store.reports import (
    ConnectorEnds,
    ConnectorStatus,
    Scalar,
    SourcePartitionOffset,
    SourceProgress,
    TaskProgress,
    TaskTotals,
    Unavailable,
)
from sinksdk.support.tables import Row, html_table, text_table

_MOST_ROWS: Final = 20


@dataclass(frozen=True, slots=True)
class Doubts:
    """Partitions that a driver does not read, or whose end offsets it does not know.

    Args:
        failure: why nothing has been planned for too long.
        failures: by partition, why it has not been read for too long.
        unseen: partitions with outdated end offsets.
    """

    failure: str | None = None
    attempts: int = 0
    failures: Mapping[TopicPartition, str] = field(default_factory=dict)
    unseen: frozenset[TopicPartition] = frozenset()
    missing: frozenset[str] = frozenset()

    @classmethod
    def of(cls, status: ConnectorStatus, now: float) -> Doubts:
        since = {row.topic_partition: row.since for row in status.unavailable}
        return cls(
            status.overdue(now),
            status.waiting.attempts if status.waiting else 0,
            {
                partition: f"it has had no leader for {now - at:.0f} s, and is read once it has one"
                for partition, at in since.items()
                if now - at >= status.plan_timeout
            },
            frozenset(since),
            frozenset(status.missing_topics),
        )

    def about(self, partition: TopicPartition) -> str | None:
        return self.failure or self.failures.get(partition)

    def cover(self, partition: TopicPartition) -> bool:
        """Whether a partition's end offset may be outdated."""
        return partition in self.unseen or partition.topic in self.missing


class SourceOffsetInfo(BaseModel):
    """The last offset of a source partition that its task reported."""

    model_config = ConfigDict(frozen=True)

    partition: dict[str, Scalar]
    offset: dict[str, Scalar] = Field(description="The offset to continue from.")
    task: int | None = Field(
        description="Number of the task that committed it, or else of the only task that read it; null if "
        "several tasks did."
    )


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """One task of the last generation.

    Args:
        partitions: the last task's include partitions that wait while others are read.
    """

    number: int
    state: State
    partitions: tuple[TopicPartition, ...]
    trace: str | None = None
    source: SourceProgress | None = None


@dataclass(frozen=True, slots=True, repr=False)
class ConnectorInfo:
    """One connector. A Python shell and a notebook show it as a table, without its configuration.

    Args:
        driver: ``host:pid#number``; empty if there is none.
        tasks: of the last generation that had any.
        config: as written, with secrets.
        measures: of every task number that ever existed.
        last_heartbeat_at: in seconds since the epoch; None: never.
        type: ``unknown`` if the class cannot be loaded, unless the connector has run as a source.
        source_offsets: as a source's tasks have reported last; ``has_more_source_offsets``: not all.
        waiting: the unavailable system that the connector waits for.
        unavailable: partitions without a leader, not read until they have one; only the first of many.
        vanished_counts: sums of the counters of partitions that the source no longer has.
    """

    # More than ten attributes: each is a field of REST responses.
    name: str
    state: ShownState
    target_state: TargetState
    is_deleted: bool
    driver: str
    generation: int
    tasks: tuple[TaskInfo, ...]
    partitions: tuple[PartitionStatus, ...]
    missing_topics: tuple[str, ...] = ()
    trace: str | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    measures: tuple[TaskTotals, ...] = ()
    last_heartbeat_at: float | None = None
    type: ConnectorType = "unknown"
    source_offsets: tuple[SourceOffsetInfo, ...] = ()
    has_more_source_offsets: bool = False
    waiting: Waiting | None = None
    unavailable: tuple[Unavailable, ...] = ()
    unavailable_count: int = 0
    vanished_counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def lag(self) -> int | None:
        """Offsets not committed yet; None for a source, or if a partition's lag is unknown."""
        lags = [partition.lag for partition in self.partitions]
        if self.type == "source" or not lags or None in lags:
            return None
        return sum(filter(None, lags))

    @property
    def task_states(self) -> dict[State, int]:
        return dict(Counter(task.state for task in self.tasks))

    @property
    def partition_count(self) -> int:
        return len(self.partitions)

    @property
    def failing_count(self) -> int:
        """Partitions that failed last time, or tasks of a source that did."""
        if self.type == "source":
            return sum(task.trace is not None for task in self.tasks)
        return sum(partition.error is not None for partition in self.partitions)

    @property
    def committed_at(self) -> float | None:
        """Time of the last commit of any partition, in seconds since the epoch."""
        return max((p.committed_at for p in self.partitions if p.committed_at is not None), default=None)

    def total_of(self, task: int) -> TaskMeasures:
        return next((row.total for row in self.measures if row.task == task), TaskMeasures())

    @property
    def rate(self) -> float:
        """Recent records per second."""
        of_source = sum(task.source.rate for task in self.tasks if task.source is not None)
        return sum(partition.rate for partition in self.partitions) + of_source

    def __repr__(self) -> str:
        return text_table(*self._table())

    def _repr_html_(self) -> str:
        return html_table(*self._table())

    def _table(self) -> tuple[str, tuple[str, ...], list[Row]]:
        caption = f"connector {self.name} · {self.state} · generation {self.generation}"
        if self.type == "source":
            source_rows: list[Row] = [
                (task.number, task.state, *_written(task.source), _last_line(task.trace))
                for task in self.tasks
            ]
            return caption, ("task", "state", "records", "transactions", "error"), source_rows
        if self.lag is not None and self.partitions:
            caption += f" · lag {self.lag:,}"
        if self.missing_topics:
            caption += f" · missing topics: {', '.join(self.missing_topics)}"
        if self.trace:
            caption += f" · {_last_line(self.trace)}"
        lagging = sorted(self.partitions, key=lambda info: -(info.lag or 0))[:_MOST_ROWS]
        rows: list[Row] = [
            (str(info.partition), info.task, info.committed, info.end, info.lag, _trouble(info))
            for info in sorted(lagging, key=self.partitions.index)
        ]
        if len(self.partitions) > _MOST_ROWS:
            rows.append((f"… and {len(self.partitions) - _MOST_ROWS} more", "", "", "", "", ""))
        return caption, ("partition", "task", "committed", "end", "lag", "error"), rows


def _written(source: SourceProgress | None) -> tuple[int | None, int | None]:
    return (source.records, source.transactions) if source is not None else (None, None)


def _trouble(info: PartitionStatus) -> str:
    if info.waiting is not None:
        return f"waits: {info.waiting.reason}"
    return info.error or ""


def _last_line(trace: str | None) -> str:
    return trace.strip().splitlines()[-1] if trace and trace.strip() else ""


def partitions_of(
    store: Store,
    connector: str,
    progress: dict[TopicPartition, PartitionOutcome],
    remembered: dict[TopicPartition, PlannerState],
    counts: Mapping[TopicPartition, Mapping[str, int]],
    *,
    tasks: Iterable[TaskInfo],
    doubts: Doubts,
) -> tuple[PartitionStatus, ...]:
    commits = read_commits(store, connector).committed
    row = table.read(store, ends_key(connector), ConnectorEnds)
    ends = row.value.ends_by_partition() if row else {}
    committed_at = row.value.committed_at_by_partition() if row else {}
    is_outdated = row is not None and row.value.unknown_since is not None
    owners = {partition: task.number for task in tasks for partition in task.partitions}
    found = []
    for partition in sorted({*commits, *progress, *remembered, *counts, *ends}):
        running, before = progress.get(partition), remembered.get(partition)
        entry, waiting = commits.get(partition), _waiting(running, before)
        committed = entry.offset if entry else None
        end = ends.get(partition, before.end if before else None)
        failure = doubts.about(partition)
        is_unknown = is_outdated or doubts.cover(partition)
        found.append(
            PartitionStatus(
                topic=partition.topic,
                partition=partition.partition,
                task=owners.get(partition),
                committed=committed,
                position=running.position if running else None,
                end=end,
                lag=None if is_unknown else lag(committed, end),
                committed_at=committed_at.get(partition),
                rate=running.rate if running else 0.0,
                error=failure if waiting else _error(running, before) or failure,
                failures=max(
                    before.failures if before else 0, doubts.attempts if failure else 0, bool(failure)
                ),
                counts=counts.get(partition, {}),
                waiting=waiting,
            )
        )
    return tuple(found)


def _error(running: PartitionOutcome | None, before: PlannerState | None) -> str | None:
    if running is not None and running.failure:
        return running.failure.message
    return (before.error or before.undiscarded) if before else None


def _waiting(running: PartitionOutcome | None, before: PlannerState | None) -> Waiting | None:
    """Return the wait of a partition, also during a retry, until there is progress."""
    if running is not None and running.failure:
        reason, retry = running.failure.message, running.failure.retry
    else:
        reason, retry = (before.error or "", before.retry) if before else ("", None)
        if retry is not None and running is not None and _has_progressed(running, retry):
            return None
    if retry is None:
        return None
    return Waiting(reason=reason, since=retry.since, next_attempt=retry.next_attempt, attempts=retry.attempts)


def _has_progressed(running: PartitionOutcome, retry: Retry) -> bool:
    return running.records > running.tail or (retry.refused is not None and running.position > retry.refused)


def first_wait(partitions: Iterable[PartitionStatus]) -> Waiting | None:
    waits = [info.waiting for info in partitions if info.waiting]
    return min(waits, key=lambda waiting: waiting.next_attempt, default=None)


def source_tasks(
    plan: GenerationPlan | None, state: State, status: ConnectorStatus, running: Mapping[int, TaskProgress]
) -> tuple[TaskInfo, ...]:
    failed = {row.task: row for row in status.tasks if row.failures}
    found = []
    for number in range(len(plan.tasks) if plan else 0):
        source = running[number].source if number in running else None
        known = failed.get(number)
        trace = known.trace or known.error if known and (source is None or source.failure) else None
        found.append(
            TaskInfo(number, _source_task_state(state, source, is_failing=bool(trace)), (), trace, source)
        )
    return tuple(found)


def _source_task_state(state: State, source: SourceProgress | None, *, is_failing: bool) -> State:
    # The task may wait for a task slot until start has returned.
    if state == "RUNNING" and not is_failing:
        return "RUNNING" if source is not None and source.state in ("RUNNING", "STOPPING") else "UNASSIGNED"
    return _task_state(state, is_failing=is_failing)


def sink_tasks(
    plan: GenerationPlan | None, state: State, status: ConnectorStatus, doubts: Doubts
) -> tuple[TaskInfo, ...]:
    """Return a sink's tasks; a failed or unplannable partition makes its task RESTARTING."""
    shares = [[planned.topic_partition for planned in task.ranges] for task in (plan.tasks if plan else ())]
    failing = {row.topic_partition: row for row in status.partitions if row.failures}
    if shares:
        # Partitions that wait for a restart are in no task of the plan. Tools that watch only tasks, as
        # Connect's do, must see them.
        shares[-1] += _left_out(failing, shares, status.missing_topics)
    found = []
    for number, partitions in enumerate(shares):
        failed = [failing[p] for p in partitions if p in failing]
        unplanned = next(filter(None, map(doubts.about, partitions)), None)
        trace = (failed[0].trace or failed[0].error) if failed else unplanned
        task_state = _task_state(state, is_failing=bool(failed) or unplanned is not None)
        found.append(TaskInfo(number, task_state, tuple(partitions), trace))
    return tuple(found)


def _left_out(
    failing: Iterable[TopicPartition], shares: list[list[TopicPartition]], missing: Collection[str]
) -> list[TopicPartition]:
    planned = {partition for share in shares for partition in share}
    return [p for p in failing if p not in planned and p.topic not in missing]


def _task_state(state: State, *, is_failing: bool) -> State:
    if is_failing and state in ("RUNNING", "FAILED"):
        return "RESTARTING" if state == "RUNNING" else "FAILED"
    return "UNASSIGNED" if state in ("FAILED", "STOPPED") else state


def source_offsets(tasks: Mapping[int, TaskProgress]) -> tuple[SourceOffsetInfo, ...]:
    """Return the last reported offset of each source partition, also of tasks that no longer read it."""
    rows = [(row.generation, at.committed, task, at) for task, row in tasks.items() for at in _offsets(row)]
    # Offsets that a task only read may be old, and so may commits of former tasks. If tasks have too many
    # partitions to report all, only commits of the newest generation are certain.
    if has_more_offsets(tasks):
        newest = max(row.generation for row in tasks.values())
        rows = [row for row in rows if row[:2] == (newest, True)]
    readers = Counter((generation, as_json(at.partition)) for generation, is_own, _, at in rows if not is_own)
    found = {}
    for generation, is_own, task, at in sorted(rows, key=itemgetter(0, 1, 2)):
        key = as_json(at.partition)
        owner = task if is_own or readers[generation, key] == 1 else None
        found[key] = SourceOffsetInfo(partition=at.partition, offset=at.offset, task=owner)
    return tuple(info for _, info in sorted(found.items()))


def _offsets(row: TaskProgress) -> tuple[SourcePartitionOffset, ...]:
    return row.source.offsets if row.source else ()


def has_more_offsets(tasks: Mapping[int, TaskProgress]) -> bool:
    return any(row.source.has_more_offsets for row in tasks.values() if row.source)
