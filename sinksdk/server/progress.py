"""``/progress``: what Connect's interface lacks and the status page shows. Lag, rates, commits, failures."""

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
"""Paths that Connect does not have."""

_HOUR = 3600  # seconds


# Bodies of answers are as wide as what the status page shows of a connector, a task, a partition.
class Summary(Body):
    """How a connector is doing."""

    name: str
    type: ConnectorType
    state: ShownState
    target_state: TargetState
    is_deleted: bool = Field(description="It is being deleted.")
    driver: str = Field(description="The driver's id; empty if there is none.")
    last_heartbeat_at: float | None = Field(
        description="Time of the driver's last heartbeat, in seconds since the epoch."
    )
    generation: int
    task_states: dict[State, int] = Field(description="How many tasks are in which state.")
    partition_count: int
    failing_count: int = Field(
        description="Partitions that failed the last time; of a source, tasks that did."
    )
    lag: int | None = Field(
        description="Offsets that are there and not committed, as far as it is known; null of a source."
    )
    committed_at: float | None = Field(
        description="Time of the last commit, in seconds since the epoch; null of a source."
    )
    rate: float = Field(description="Records read per second, lately; of a source, committed ones.")
    missing_topics: tuple[str, ...]
    trace: str | None = Field(description="What made it FAILED, or keeps it DELETING.")
    waiting: Waiting | None = Field(
        description="The unavailable system that it waits for; it resumes by itself."
    )
    unavailable: tuple[Unavailable, ...] = Field(
        description="Partitions without a leader, not read until they have one; of many, the first."
    )
    unavailable_count: int = Field(description="How many partitions have no leader.")
    buckets: list[Bucket] = Field(description="Commits per interval, oldest first; empty ones are left out.")


class TaskRow(Body):
    """One task of the last generation."""

    id: int
    state: State
    partition_count: int
    trace: str | None
    records: int = Field(description="Records that a source's task has committed, in all generations.")
    transactions: int = Field(description="In how many transactions.")
    rate: float = Field(description="Records that a source's task commits per second, lately.")
    source_state: str | None = Field(description="State of a running source task.")


class Progress(Summary):
    """``GET /progress/{name}``: the last six hours, every task, every partition."""

    now: float = Field(description="The server's time, in seconds since the epoch.")
    bucket_seconds: int = Field(description="How long a bucket is.")
    tasks: list[TaskRow]
    partitions: list[PartitionStatus]
    source_partitions: list[SourceOffsetInfo] = Field(
        description="Of a source, those whose offsets its tasks have requested or committed since they "
        "started; of many, the last ones."
    )
    has_more_source_partitions: bool = Field(description="Whether there are more than listed.")
    failures: list[PastFailure] = Field(description="What failed lately, the last one first.")


class Damage(Body):
    """A connector whose records in the store cannot be read."""

    name: str
    message: str


class Overview(Body):
    """``GET /progress``: all connectors by name, with the last hour's commits."""

    now: float = Field(description="The server's time, in seconds since the epoch.")
    bucket_seconds: int = Field(description="How long a bucket is.")
    connectors: list[Summary]
    damaged: list[Damage] = Field(description="Connectors whose records are damaged.")


@router.get("/progress", responses=errors())
def overview(herder: TheHerder) -> Overview:
    """All connectors: states, lag, rate, and the commits of the last hour."""
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
    """One connector with its tasks, its partitions, six hours of commits, and what failed lately."""
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
    """The facts of the same names, and the buckets since then."""
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
