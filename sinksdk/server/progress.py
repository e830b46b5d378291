"""``/progress``: what Connect's interface lacks and the status page shows. Lag, rates, commits, failures."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic import Field

from sinksdk.confidential import SECRETS
from sinksdk.errors import ConnectException
from sinksdk.runtime.clock import SystemWallClock
from sinksdk.runtime.herder import Herder
from sinksdk.runtime.history import BUCKET
from sinksdk.runtime.info import ConnectorInfo, PartitionInfo
from sinksdk.runtime.status import State
from sinksdk.server.bodies import Body
from sinksdk.server.errors import errors
from sinksdk.server.paths import Name
from sinksdk.server.state import the_herder
from sinksdk.store.records import Bucket, ConnectorHistory, PastFailure, SourceProgress, TargetState

TheHerder = Annotated[Herder, Depends(the_herder)]

router = APIRouter(tags=["progress"])
"""Paths that Connect does not have."""

_HOUR = 3600  # seconds


class Summary(Body):
    """How a connector is doing."""

    name: str
    state: State
    target_state: TargetState
    is_deleted: bool = Field(description="It is being deleted.")
    driver: str = Field(description="Who drives it, empty if nobody does.")
    heard_at: float | None = Field(description="When a driver was last heard of, in seconds since the epoch.")
    generation: int
    task_states: dict[State, int] = Field(description="How many tasks are in which state.")
    partition_count: int
    failing_count: int = Field(description="Partitions that failed the last time.")
    lag: int = Field(description="Offsets that are there and not committed, as far as it is known.")
    rate: float = Field(description="Records read per second, lately.")
    missing_topics: list[str]
    trace: str | None = Field(description="What made it FAILED.")
    buckets: list[Bucket] = Field(description="What was committed, oldest first; empty ones are left out.")


class TaskRow(Body):
    """One task of the last generation."""

    id: int
    state: State
    partition_count: int
    trace: str | None
    source: SourceProgress | None = Field(description="How far a source's task is.")


class PartitionRow(Body):
    """One partition."""

    topic: str
    partition: int
    task: int | None = Field(description="The task that has it, or had it last.")
    committed: int | None = Field(description="Next offset to read after the last commit.")
    position: int | None = Field(description="Offset after the last record read, while it is read.")
    end: int | None = Field(description="Where the source ended when it was last asked.")
    lag: int | None
    rate: float = Field(description="Records read per second, lately.")
    error: str | None = Field(description="Why it failed the last time, until it does better.")
    failures: int = Field(description="How often in a row it has failed.")


class Progress(Summary):
    """``GET /progress/{name}``: the last six hours, every task, every partition."""

    now: float = Field(description="The server's time, in seconds since the epoch.")
    bucket_seconds: int = Field(description="How long a bucket is.")
    tasks: list[TaskRow]
    partitions: list[PartitionRow]
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
    damaged: list[Damage] = Field(description="Connectors of which nothing more can be told.")


@router.get("/progress", responses=errors())
def overview(herder: TheHerder) -> Overview:
    """All connectors: states, lag, rate, and what was committed in the last hour."""
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
    owners = {partition: task.number for task in info.tasks for partition in task.partitions}
    return Progress(
        **_summary(info, history, since=0).__dict__,
        now=SystemWallClock().time(),
        bucket_seconds=BUCKET,
        tasks=[
            TaskRow(
                id=t.number,
                state=t.state,
                partition_count=len(t.partitions),
                trace=t.trace,
                source=t.source,
            )
            for t in info.tasks
        ],
        partitions=[_partition(row, owners.get(row.partition)) for row in info.partitions],
        failures=list(reversed(history.failures)),
    )


def _summary(info: ConnectorInfo, history: ConnectorHistory, since: float) -> Summary:
    return Summary(
        name=info.name,
        state=info.state,
        target_state=info.target_state,
        is_deleted=info.is_deleted,
        driver=info.driver,
        heard_at=info.heard_at,
        generation=info.generation,
        task_states=dict(Counter(task.state for task in info.tasks)),
        partition_count=len(info.partitions),
        failing_count=sum(row.error is not None for row in info.partitions),
        lag=info.lag,
        rate=info.rate,
        missing_topics=list(info.missing_topics),
        trace=info.trace,
        buckets=[bucket for bucket in history.buckets if bucket.start > since - BUCKET],
    )


def _partition(row: PartitionInfo, task: int | None) -> PartitionRow:
    return PartitionRow(
        topic=row.partition.topic,
        partition=row.partition.partition,
        task=task,
        committed=row.committed,
        position=row.position,
        end=row.end,
        lag=row.lag,
        rate=row.rate,
        error=row.error,
        failures=row.failures,
    )
