"""``/progress``: lag, rates, commits and failures for the status page, which Kafka Connect's API lacks."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import Field

from sinksdk.control.history import BUCKET
from sinksdk.control.shown import ConnectorInfo, SourceOffsetInfo, TaskInfo
from sinksdk.control.status import ShownState, State
from sinksdk.engine.clock import SystemWallClock
from sinksdk.errors import ConnectException
from sinksdk.model.status import PartitionStatus, Waiting
from sinksdk.plugins.classes import ConnectorType
from sinksdk.server.bodies import Body
from sinksdk.server.errors import errors
from sinksdk.server.parameters import Name, TheHerder
from sinksdk.store.records import TargetState
from sinksdk.store.reports import Bucket, ConnectorHistory, PastFailure, Unavailable
from sinksdk.support.confidential import SECRETS

router = APIRouter(tags=["progress"])

_HOUR = 3600  # seconds


class Summary(Body):
    """State and totals of a connector."""

    name: str
    type: ConnectorType
    state: ShownState
    target_state: TargetState
    is_deleted: bool = Field(description="The connector is being deleted.")
    driver: str = Field(description="Id of the driver; empty if there is none.")
    last_heartbeat_at: float | None = Field(
        description="Time of the driver's last heartbeat, in seconds since the epoch."
    )
    generation: int
    task_states: dict[State, int] = Field(description="Number of tasks by state.")
    partition_count: int
    failing_count: int = Field(
        description="Number of partitions (of a source: tasks) whose last attempt failed."
    )
    lag: int | None = Field(
        description="Number of offsets not committed yet, as far as known; null for a source."
    )
    committed_at: float | None = Field(
        description="Time of the last commit, in seconds since the epoch; null for a source."
    )
    rate: float = Field(description="Current rate of records read (of a source: committed) per second.")
    missing_topics: tuple[str, ...]
    trace: str | None = Field(description="The error that made the connector FAILED, or keeps it DELETING.")
    waiting: Waiting | None = Field(
        description="The unavailable system for which the connector waits; it retries by itself."
    )
    unavailable: tuple[Unavailable, ...] = Field(
        description="Partitions without a leader, not read until they have one: at most the first 100."
    )
    unavailable_count: int = Field(description="Number of partitions without a leader.")
    buckets: list[Bucket] = Field(
        description="Commits per interval, oldest first; empty intervals are left out."
    )


class TaskRow(Body):
    """One task of the last generation."""

    id: int
    state: State
    partition_count: int
    trace: str | None
    records: int = Field(
        description="Number of records that a source's task has committed in all generations."
    )
    transactions: int = Field(description="Number of transactions that a source's task has committed.")
    rate: float = Field(description="Current rate of records that a source's task commits per second.")
    source_state: str | None = Field(description="State of a running source task.")


class Progress(Summary):
    """Response of ``GET /progress/{name}``: six hours of commits, every task, every partition."""

    now: float = Field(description="The server's time, in seconds since the epoch.")
    bucket_seconds: int = Field(description="Length of an interval in seconds.")
    tasks: list[TaskRow]
    partitions: list[PartitionStatus]
    source_partitions: list[SourceOffsetInfo] = Field(
        description="Source partitions whose offsets the tasks have read or committed since they started; of "
        "many, the last ones."
    )
    has_more_source_partitions: bool = Field(
        description="Whether there are more source partitions than listed."
    )
    failures: list[PastFailure] = Field(description="Recent failures, the last one first.")


class Damage(Body):
    name: str
    message: str


class Overview(Body):
    """Response of ``GET /progress``: all connectors by name, with the commits of the last hour."""

    now: float = Field(description="The server's time, in seconds since the epoch.")
    bucket_seconds: int = Field(description="Length of an interval in seconds.")
    connectors: list[Summary]
    damaged: list[Damage] = Field(description="Connectors whose records are damaged.")


@router.get("/progress", responses=errors())
def overview(herder: TheHerder) -> Overview:
    """Return states, lag, rates and the last hour's commits of all connectors."""
    now, damaged = SystemWallClock().time(), list[Damage]()

    def leave_out(name: str, error: ConnectException) -> None:
        damaged.append(Damage(name=name, message=SECRETS.hide(str(error))))

    return Overview(
        now=now,
        bucket_seconds=BUCKET,
        connectors=[_summary(info, past, since=now - _HOUR) for info, past in herder.reports(leave_out)],
        damaged=damaged,
    )


@router.get("/progress/{name}", responses=errors(404))
def one(herder: TheHerder, name: Name) -> Progress:
    """Return a connector with its tasks, partitions, six hours of commits and recent failures."""
    info, history = herder.info(name), herder.history(name)
    return Progress(
        **_summary(info, history, since=0).__dict__,
        now=SystemWallClock().time(),
        bucket_seconds=BUCKET,
        tasks=[_task(info, task) for task in info.tasks],
        partitions=list(info.partitions),
        source_partitions=list(info.source_offsets),
        has_more_source_partitions=info.has_more_source_offsets,
        failures=list(reversed(history.failures)),
    )


def _summary(info: ConnectorInfo, history: ConnectorHistory, since: float) -> Summary:
    facts = {name: getattr(info, name) for name in Summary.model_fields if name != "buckets"}
    return Summary(**facts, buckets=[row for row in history.buckets if row.start > since - BUCKET])


def _task(info: ConnectorInfo, task: TaskInfo) -> TaskRow:
    transactions = info.total_of(task.number).source.transactions
    return TaskRow(
        id=task.number,
        state=task.state,
        partition_count=len(task.partitions),
        trace=task.trace,
        records=transactions.total,
        transactions=transactions.count,
        rate=task.source.rate if task.source else 0.0,
        source_state=task.source.state if task.source else None,
    )
