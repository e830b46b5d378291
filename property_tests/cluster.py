"""A connector's processes as a model: the real protocol, engine and archiver, stepped one at a time.

Store and S3 are in memory and consult one fault plan before every operation. A process that meets a
:class:`Crash` is gone, with everything it had in memory; a task that was only left behind (its driver
died, or another attempt took over) may go on as a zombie.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import fastavro

from connectors.s3_archiver.client import Location
from connectors.s3_archiver.config import S3ArchiverConfig
from connectors.s3_archiver.task import S3ArchiverTask
from sinksdk import (
    BatchPolicy,
    ClosingReason,
    FencedException,
    OffsetRange,
    SinkRecord,
    SinkRecords,
    TopicPartition,
)
from sinksdk.engine import EngineOptions, PartitionOutcome, TaskName, WorkerSinkTask
from sinksdk.engine.retry import RetryPolicy
from sinksdk.runtime.assignment import assign
from sinksdk.runtime.generation import Claim, Generations
from sinksdk.runtime.planner import Backlog, Planner, observe, remember
from sinksdk.store import MemoryStore, Store, StoreUnavailable, read_commits, take_over
from sinksdk.store.base import Lost, Stored
from sinksdk.store.records import Closing, Entry, GenerationPlan, TaskPlan
from sinksdk.store.reports import PartitionStatus
from sinksdk.testing import ManualClock
from tests.s3_archiver.fake_s3 import Asked, FakeS3, Fault, no_answer, slow_down

CONNECTOR = "archive"
FLUSH_SIZE = 6
PART_SIZE = 400  # bytes: several parts a file, several records a part


class Crash(BaseException):
    """The process dies here; no clean-up code of its may run."""


@dataclass
class FaultPlan:
    """What goes wrong with the n-th operation from now, counted for store and S3 apart."""

    armed: dict[tuple[str, int], str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    happened: Counter[str] = field(default_factory=Counter)

    def arm(self, where: str, after: int, kind: str) -> None:
        self.armed[where, self.counts[where] + after] = kind

    def disarm(self) -> None:
        self.armed.clear()

    def next(self, where: str) -> str | None:
        kind = self.armed.pop((where, self.counts[where]), None)
        self.counts[where] += 1
        if kind is not None:
            self.happened[f"{where}: {kind}"] += 1
        return kind

    def s3(self, asked: Asked) -> Fault | None:
        """What goes wrong with a request to S3."""
        faults = {
            "crash before": Fault(Crash()),
            "crash after": Fault(Crash(), after_effect=True),
            "lost before": Fault(no_answer()),
            "lost after": Fault(no_answer(), after_effect=True),
            "503": Fault(slow_down()),
        }
        kind = self.next("s3")
        return faults[kind] if kind else None


class FaultyStore(MemoryStore):
    """A store in memory whose every operation may fail as the plan says."""

    def __init__(self, plan: FaultPlan) -> None:
        super().__init__(patience=5.0)
        self.plan = plan

    def _fail(self, kind: str | None, moment: str) -> None:
        if kind == f"crash {moment}":
            raise Crash
        if kind == f"lost {moment}" or (kind == "503" and moment == "before"):
            raise Lost(kind)

    def _read(self, key: str) -> Stored | None:
        kind = self.plan.next("store")
        self._fail(kind, "before")
        found = super()._read(key)
        self._fail(kind, "after")
        return found

    def _write(self, key: str, stored: Stored, if_version: str | None) -> bool:
        kind = self.plan.next("store")
        self._fail(kind, "before")
        written = super()._write(key, stored, if_version)
        self._fail(kind, "after")
        return written

    def _remove(self, key: str, if_version: str) -> bool:
        kind = self.plan.next("store")
        self._fail(kind, "before")
        removed = super()._remove(key, if_version)
        self._fail(kind, "after")
        return removed


@dataclass
class Task:
    """One attempt at one task: a process with the real engine and the real archiver in it."""

    store: Store
    s3: FakeS3
    clock: ManualClock
    source: Mapping[TopicPartition, Sequence[SinkRecord]]
    config: S3ArchiverConfig
    number: int
    plan: GenerationPlan
    is_zombie: bool = False
    is_done: bool = False
    outcomes: list[PartitionOutcome] = field(default_factory=list)

    def start(self) -> bool:
        """Take over and open; False when a newer generation made it abandon."""
        taken = take_over(self.store, CONNECTOR, self.plan.generation, self.number)
        if taken is None:
            self.is_done = True
            return False
        self.waiting = list(taken.plan.tasks[self.number].ranges)
        self.next = {r.topic_partition: r.start for r in self.waiting}
        self.worker = WorkerSinkTask(
            S3ArchiverTask(connect=lambda *_: self.s3, clock=self.clock.now, sleep=self.clock.sleep),
            TaskName(CONNECTOR, self.number),
            self.config,
            commits=taken.ledger,
            clock=self.clock,
            generation=self.plan.generation,
            options=EngineOptions(commit_interval=1e9, retry=RetryPolicy(timeout=2.0)),
        )
        self.worker.start()
        self.worker.open({r.topic_partition: r.offsets for r in self.waiting})
        return True

    def step(self, count: int) -> None:
        """Deliver up to so many records of the range being read, or end it."""
        if self.worker.pending:
            self.clock.sleep(self.worker.wait())
            self.worker.tick()
            return
        if not self.waiting:
            self._end()
            return
        planned = self.waiting[0]
        partition = planned.topic_partition
        rows = [
            record for record in self.source[partition] if self.next[partition] <= record.offset < planned.end
        ][:count]
        if rows:
            self.next[partition] = rows[-1].offset + 1
            self.worker.deliver(SinkRecords.of(partition, rows))
        else:
            self.waiting.pop(0)
            self.worker.finish(partition, ClosingReason.DUE if planned.due else None)

    def commit(self) -> None:
        """A periodic commit."""
        self.worker.commit()

    def close(self, reason: ClosingReason) -> None:
        """Closing was asked for."""
        self.worker.close(reason, timeout=10.0)
        self._end()

    def _end(self) -> None:
        self.worker.settle()
        self.worker.stop()
        self.outcomes = self.worker.outcomes()
        self.is_done = True


class Cluster:
    """Source, store, S3, a driver at a time, its tasks, and zombies of those before."""

    def __init__(self, partitions: int, max_tasks: int) -> None:
        self.faults = FaultPlan()
        self.store = FaultyStore(self.faults)
        self.s3 = FakeS3("bucket", plan=self.faults.s3)
        self.clock = ManualClock(1_700_000_000.0)
        self.max_tasks = max_tasks
        self.source: dict[TopicPartition, list[SinkRecord]] = {
            TopicPartition("orders", number): [] for number in range(partitions)
        }
        self.ends = dict.fromkeys(self.source, 0)
        self.config = S3ArchiverConfig.parse(
            {
                "name": CONNECTOR,
                "topics": "orders",
                "s3.bucket.name": "bucket",
                "flush.size": str(FLUSH_SIZE),
            }
        ).model_copy(update={"s3_part_size": PART_SIZE})
        self.happened: Counter[str] = Counter()
        self.tasks: dict[int, Task] = {}
        self.zombies: list[Task] = []
        self.plan: GenerationPlan | None = None
        self._decoded: dict[Location, list[dict[str, object]]] = {}
        self._highest: dict[TopicPartition, int] = {}
        self.start_driver()

    # -- processes -------------------------------------------------------------------------------

    def start_driver(self) -> None:
        """A new driver process; the tasks of the one before may live on as zombies."""
        self._leave_behind()
        self.generations = Generations(self.store, CONNECTOR)
        self.claim: Claim | None = None
        self.statuses: dict[TopicPartition, PartitionStatus] = {}

    def _leave_behind(self) -> None:
        for task in self.tasks.values():
            if not task.is_done:
                task.is_zombie = True
                self.zombies.append(task)
        self.tasks = {}
        self.plan = None

    def begin(self, *, flush: bool) -> bool:
        """Claim, fence, merge, plan. False when there is nothing to do."""
        self._leave_behind()
        self.claim = self.claim or self.generations.claim()
        backlogs = []
        for partition, end in self.ends.items():
            entry = self.claim.committed.get(partition)
            backlog = Backlog(
                partition,
                OffsetRange(0, end),
                entry.offset if entry else None,
                self.claim.unsettled(partition),
                self.statuses.get(partition),
            )
            self.statuses[partition] = observe(backlog, self.clock.now())
            backlogs.append(backlog)
        planner = Planner(BatchPolicy(FLUSH_SIZE, None), max_records=3 * FLUSH_SIZE)
        decision = planner.decide(backlogs, self.clock.now(), flush=flush)
        if not decision.ranges:
            return False
        shares = assign(decision.ranges, self.max_tasks, self.claim.previous)
        claim, self.claim = self.claim, None  # used up, whatever comes of it
        self.plan = self.generations.plan(
            claim, [TaskPlan(ranges=planner.share(share, decision)) for share in shares], 1
        )
        return True

    def start_task(self, number: int) -> None:
        """Start an attempt; one that runs already becomes a zombie, as with a lost executor."""
        assert self.plan is not None
        before = self.tasks.pop(number, None)
        if before is not None and not before.is_done:
            before.is_zombie = True
            self.zombies.append(before)
        task = Task(self.store, self.s3, self.clock, self.source, self.config, number, self.plan)
        if task.start():
            self.tasks[number] = task

    def ask_to_close(self, reason: ClosingReason) -> None:
        """The driver writes that the generation shall close."""
        self.generations.ask_to_close(Closing(reason=reason, timeout=10.0))

    def end_generation(self) -> None:
        """All tasks have ended: learn from them."""
        assert self.plan is not None
        planned = {r.topic_partition: r for task in self.plan.tasks for r in task.ranges}
        for task in self.tasks.values():
            for outcome in task.outcomes:
                before = self.statuses.get(outcome.partition)
                self.statuses[outcome.partition] = remember(before, planned[outcome.partition], outcome)
        self._leave_behind()

    # -- what can be seen ------------------------------------------------------------------------

    def visible(self) -> dict[TopicPartition, list[dict[str, object]]]:
        """Records that readers of the bucket see, by partition, in the order of their offsets."""
        rows: dict[TopicPartition, list[dict[str, object]]] = {p: [] for p in self.source}
        for location, found in self.s3.objects.items():
            if location not in self._decoded:
                self._decoded[location] = list(fastavro.reader(io.BytesIO(found.data)))
            for row in self._decoded[location]:
                rows[TopicPartition(str(row["topic"]), int(str(row["partition"])))].append(row)
        return {p: sorted(found, key=lambda row: int(str(row["offset"]))) for p, found in rows.items()}

    def commits(self) -> dict[TopicPartition, Entry]:
        """What is committed, looked at without disturbing the fault plan."""
        bystander = MemoryStore()
        bystander._records = dict(self.store._records)
        return read_commits(bystander, CONNECTOR).committed

    def check(self) -> None:
        """Within what is committed, each once, as produced; commits never go back."""
        commits = self.commits()
        for partition, rows in self.visible().items():
            entry = commits.get(partition)
            committed = entry.offset if entry else 0
            offsets = [int(str(row["offset"])) for row in rows]
            assert len(set(offsets)) == len(offsets), f"{partition}: seen twice in {offsets}"
            assert not offsets or offsets[-1] < committed, (
                f"{partition}: {offsets[-1]} seen, {committed} committed"
            )
            produced = {record.offset: record for record in self.source[partition]}
            assert all(row["value"] == produced[int(str(row["offset"]))].value for row in rows)
            unpublished = range(0)
            if entry and entry.publish:
                unpublished = range(
                    min(token.data["start"] for token in entry.publish),
                    max(token.data["end"] for token in entry.publish),
                )
            missing = [
                offset
                for offset in produced
                if offset < committed and offset not in unpublished and offset not in set(offsets)
            ]
            assert not missing, f"{partition}: committed to {committed}, lost {missing}"
            assert committed >= self._highest.get(partition, 0), f"{partition}: the commit went back"
            self._highest[partition] = committed

    def recover(self) -> None:
        """No more faults: a new driver archives everything there is."""
        self.faults.disarm()
        self.start_driver()
        for _ in range(50):
            if not self.begin(flush=True):
                return
            assert self.plan is not None
            for number in range(len(self.plan.tasks)):
                self.start_task(number)
                while number in self.tasks and not self.tasks[number].is_done:
                    self.tasks[number].step(4)
            self.end_generation()
            self.check()
        message = "recovery does not come to an end"
        raise AssertionError(message)

    def check_complete(self) -> None:
        """Everything produced can be seen, once, and nothing is left behind."""
        self.check()
        for partition, rows in self.visible().items():
            produced = [record.offset for record in self.source[partition]]
            assert [row["offset"] for row in rows] == produced, f"{partition} is not complete"
        leaked = [str(upload.location) for upload in self.s3.uploads_with_data()]
        assert not leaked, f"uploads with data are left: {leaked}"


PROCESS_ENDS = (Crash, FencedException, StoreUnavailable)
