"""A store with connectors in every state, as drivers and tasks would have written it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sinksdk import OffsetAndMetadata
from sinksdk.control.herder import Herder
from sinksdk.model.measures import Sizes, SourceMeasures, TaskMeasures
from sinksdk.model.outcome import PartitionOutcome
from sinksdk.model.plan import PlannerState, RangePlan
from sinksdk.store import Store, table, take_over
from sinksdk.store.generations import Generations
from sinksdk.store.keys import (
    history_key,
    progress_key,
    status_key,
)
from sinksdk.store.records import TargetState, TaskPlan
from sinksdk.store.reports import (
    Bucket,
    ConnectorHistory,
    ConnectorStatus,
    PastFailure,
    SourcePartitionOffset,
    SourceProgress,
    TaskProgress,
    TaskStatus,
    Unavailable,
)

TRACE = """Traceback (most recent call last):
  File "connectors/s3_archiver/task.py", line 90, in pre_commit
    writer.send()
  File "connectors/s3_archiver/s3/upload.py", line 171, in finish
    raise self._refused(error)
sinksdk.errors.ConnectException: bucket 'archive-eu' refuses UploadPart (403 AccessDenied)
"""


POLLED = TaskMeasures(source=SourceMeasures(records=1_210, transactions=Sizes(30, 1_200, 60, 5)))


@dataclass
class Scene:
    """The state of a connector.

    Args:
        state: as its driver reports; None: it never had a driver.
        silent: seconds since the driver's last heartbeat.
        lag: lag of each partition, times its number.
        rate: rate of each partition.
        failing: numbers of partitions whose last attempt failed.
        source: positions by task, if it is a source.
    """

    name: str
    state: Any = "RUNNING"
    target: TargetState = "RUNNING"
    silent: float = 0.5
    tasks: int = 2
    partitions: int = 4
    lag: int = 0
    rate: float = 0.0
    buckets: Sequence[Bucket] = ()
    failing: Sequence[int] = ()
    failures: Sequence[PastFailure] = ()
    missing: Sequence[str] = ()
    unavailable: Sequence[int] = ()
    trace: str | None = None
    is_deleted: bool = False
    source: Sequence[Sequence[SourcePartitionOffset]] = ()
    topic: str = field(default="")

    def __post_init__(self) -> None:
        self.topic = self.topic or self.name.split("-", maxsplit=1)[0]


def fill(store: Store, scene: Scene, now: float) -> None:
    kind = "tests.runtime.running_sources:Counting" if scene.source else "s3-archiver"
    Herder(store).create(scene.name, {"name": scene.name, "connector.class": kind, "topics": scene.topic})
    if scene.state is not None:
        (_run_source if scene.source else _run)(store, scene)
        _tell(store, scene, now)
    Herder(store).aim(scene.name, scene.target)
    if scene.is_deleted:
        Herder(store).delete(scene.name)


def _run(store: Store, scene: Scene) -> None:
    """Store a generation whose tasks have committed."""
    ranges = [
        RangePlan(topic=scene.topic, partition=n, start=0, end=_end(n)) for n in range(scene.partitions)
    ]
    shares = [ranges[n :: scene.tasks] for n in range(scene.tasks)]
    generations = Generations(store, scene.name)
    plan = generations.plan(generations.claim(), [TaskPlan(ranges=tuple(share)) for share in shares], 1)
    for number, share in enumerate(shares):
        taken = take_over(store, scene.name, plan.generation, number)
        assert taken is not None
        commits = {p.topic_partition: OffsetAndMetadata(_committed(scene, p.partition)) for p in share}
        taken.ledger.commit(commits)
        rows = [
            PartitionOutcome(p.topic_partition, at, at, 100, 0, at, rate=scene.rate)
            for p in share
            for at in [_committed(scene, p.partition)]
        ]
        progress = TaskProgress(generation=plan.generation, attempt=1, partitions=tuple(rows))
        table.write(store, progress_key(scene.name, number), progress, None)


def _run_source(store: Store, scene: Scene) -> None:
    """Store a generation whose tasks have committed transactions, as in the one before."""
    generations = Generations(store, scene.name)
    tasks = [TaskPlan(ranges=()) for _ in scene.source]
    plan = generations.plan(generations.claim(), tasks, 1, transactional_tasks=len(tasks))
    for number, offsets in enumerate(scene.source):
        fails = number in scene.failing
        source = SourceProgress(
            state="STOPPED" if fails else "RUNNING",
            records=1_200,
            transactions=30,
            rate=0.0 if fails else scene.rate,
            failure=TRACE.splitlines()[-1] if fails else None,
            trace=TRACE if fails else None,
            offsets=tuple(offsets),
            has_more_offsets=len(offsets) > 1,
        )
        progress = TaskProgress(
            generation=plan.generation, attempt=1, partitions=(), measures=POLLED, source=source
        )
        table.write(store, progress_key(scene.name, number), progress, None)


def _tell(store: Store, scene: Scene, now: float) -> None:
    partitions = [
        PlannerState(
            topic=scene.topic,
            partition=n,
            end=_end(n),
            failures=2 if n in scene.failing else 0,
            error="bucket 'archive-eu' refuses UploadPart (403 AccessDenied)" if n in scene.failing else None,
        )
        for n in range(0 if scene.source else scene.partitions)
    ]
    tasks = [
        TaskStatus(task=n, failures=2, error=TRACE.splitlines()[-1], trace=TRACE)
        for n in scene.failing
        if scene.source
    ]
    status = ConnectorStatus(
        state=scene.state,
        driver="spark-driver-7:4127#1",
        heartbeat=now - scene.silent,
        partitions=tuple(partitions),
        tasks=tuple(tasks),
        trace=scene.trace,
        missing_topics=tuple(scene.missing),
        unavailable=tuple(
            Unavailable(topic=scene.topic, partition=n, since=now - 3600) for n in scene.unavailable
        ),
        unavailable_count=len(scene.unavailable),
    )
    table.write(store, status_key(scene.name), status, None)
    history = ConnectorHistory(buckets=tuple(scene.buckets), failures=tuple(scene.failures))
    table.write(store, history_key(scene.name), history, None)


def _end(partition: int) -> int:
    return 1_000_000 + 10_000 * partition


def _committed(scene: Scene, partition: int) -> int:
    return _end(partition) - scene.lag * (partition + 1)


def committing(now: float, minutes: int, *, files: int = 3, records: int = 25_000) -> list[Bucket]:
    """Return commits in most of the last minutes, in waves."""
    last = int(now // 60) * 60
    found = []
    for ago in range(minutes):
        wave = (ago * 7919 % 13) + (6 if ago % 60 < 25 else 0)
        if wave > 2:
            found.append(
                Bucket(
                    start=last - 60 * ago,
                    records=records * wave,
                    files=files * wave,
                    bytes=files * wave * 9_437_184,
                )
            )
    return found[::-1]


def polling(now: float, minutes: int) -> list[Bucket]:
    return [
        bucket.model_copy(update={"files": 0, "bytes": 0, "transactions": bucket.records // 40})
        for bucket in committing(now, minutes, records=800)
    ]


def files(*names: str) -> list[SourcePartitionOffset]:
    return [
        SourcePartitionOffset(partition={"file": name}, offset={"byte": 4096 + 512 * n, "digest": "9f86d081"})
        for n, name in enumerate(names)
    ]


def failure(at: float, *, partition: int = 3, message: str = "", times: int = 1) -> PastFailure:
    text = message or "bucket 'archive-eu' refuses UploadPart (403 AccessDenied): check the role's policy"
    return PastFailure(topic="inventory", partition=partition, at=at, times=times, message=text, trace=TRACE)


def failure_of_task(at: float, task: int) -> PastFailure:
    return PastFailure(task=task, at=at, times=2, message=f"{HOSTILE} cannot be read", trace=TRACE)


HOSTILE = "<img src=x onerror=\"document.title='owned'\">"


def scenes(now: float) -> list[Scene]:
    failures = [
        failure(
            now - 4000, partition=1, message="S3 gave no answer for 60 s: PutObject inventory/partition=1/"
        ),
        failure(now - 45, times=3),
    ]
    hostile = failure(now - 9, message="</pre><script>document.title='owned'</script>")
    special = [
        Scene(
            "orders-archive", tasks=4, partitions=12, lag=1_234, rate=2_415.5, buckets=committing(now, 360)
        ),
        Scene(
            "clicks-archive",
            tasks=8,
            partitions=200,
            lag=57,
            rate=310,
            buckets=committing(now, 300, files=20, records=90_000),
        ),
        Scene(
            "payments-archive",
            "FAILED",
            buckets=committing(now - 5400, 200),
            trace=TRACE,
            failing=(1, 3),
            lag=800,
        ),
        Scene(
            "inventory-archive",
            failing=(3,),
            failures=failures,
            lag=90,
            rate=12.25,
            buckets=committing(now, 90, files=1, records=900),
        ),
        Scene("returns-archive", "PAUSED", "PAUSED", buckets=committing(now - 1800, 120)),
        Scene("audit-archive", "STOPPED", "STOPPED"),
        Scene("legacy-archive", silent=5_000, lag=12_000),
        Scene("shipments-archive", None),
        Scene("sessions-archive", "RUNNING", "PAUSED", rate=88, buckets=committing(now, 60)),
        Scene("carts-archive", is_deleted=True),
        Scene("prices-archive", missing=("prices-eu", "prices-us"), buckets=committing(now, 30)),
        Scene("readings-lines", rate=120, lag=3, buckets=committing(now, 200, files=0, records=700)),
        Scene(
            "logs-source",
            rate=44.5,
            buckets=polling(now, 240),
            source=[files("/var/log/app.log", "/var/log/app.log.1"), files("/var/log/audit.log")],
        ),
        Scene(
            "metrics-source",
            rate=3,
            buckets=polling(now, 45),
            failing=(1,),
            failures=[failure_of_task(now - 30, 1)],
            source=[files("a"), files(HOSTILE)],
        ),
        Scene("idle-source", "STOPPED", "STOPPED", silent=500, source=[files("b")]),
        Scene(HOSTILE, topic="<b>t</b>", failing=(0,), failures=[hostile], rate=1.5),
    ]
    others = [f"warehouse-{n}-archive" for n in range(1, 8)]
    return [
        *special,
        *(Scene(name, rate=40, buckets=committing(now, 20, files=1, records=800)) for name in others),
    ]
