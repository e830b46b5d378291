"""Run the archiver in a simulated cluster: an S3 model, and invariants after each step and at the end."""

from __future__ import annotations

import bisect
import json
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import numpy as np
from pydantic import Field

from property_tests.simulation.changing_log import ANOTHER, ChangingLog
from property_tests.simulation.groups import (
    FLUSH_SIZE,
    VALUES,
    Content,
    Groups,
    is_in,
    numbers_in,
    offsets_in,
)
from property_tests.simulation.sink_cluster import Bad, LateRow, SinkCluster
from property_tests.simulation.store import Bystander
from property_tests.simulation.world import Process, World
from sinksdk import (
    ClosingReason,
    OffsetAndMetadata,
    RetriableException,
    SinkRecords,
    SinkTask,
    SinkTaskContext,
    Token,
    TopicPartition,
)
from sinksdk.connectors.s3_archiver import S3ArchiverConnector
from sinksdk.connectors.s3_archiver.archive.header import Archived
from sinksdk.connectors.s3_archiver.archive.layout import FileName, Layout
from sinksdk.connectors.s3_archiver.archive.ranges import Skip
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.files.file import Grain
from sinksdk.connectors.s3_archiver.s3.client import Location, PendingUpload
from sinksdk.connectors.s3_archiver.s3.endpoint import Retries
from sinksdk.connectors.s3_archiver.s3.errors import NO_SUCH_UPLOAD
from sinksdk.connectors.s3_archiver.s3.publisher import location_of, view_of
from sinksdk.connectors.s3_archiver.s3.requests import one_by_one
from sinksdk.connectors.s3_archiver.s3.upload import NONCE
from sinksdk.connectors.s3_archiver.task import S3ArchiverTask
from sinksdk.connectors.s3_archiver.verify.check import verify
from sinksdk.control.herder import Herder
from sinksdk.control.offsets import OffsetsRefusedException
from sinksdk.model.base import Value
from sinksdk.store import may_be_newer, table, whole
from sinksdk.store.base import Stored
from sinksdk.store.keys import (
    config_key,
    plan_key,
    plans_prefix,
    task_count_key,
    task_key,
)
from sinksdk.store.ledger import Merged, merge
from sinksdk.store.records import (
    ConnectorRecord,
    GenerationPlan,
    PartitionCommit,
    TaskCountRecord,
    TaskRecord,
)
from sinksdk.worker.task_result import TaskResult
from tests.s3_archiver.beside import at_once
from tests.s3_archiver.fake_s3 import FakeObject, FakeS3, LoggedRequest, denied, no_response, slow_down

T = TypeVar("T")
V = TypeVar("V", bound=Value)

CONNECTOR = "archive"
LAYOUT = Layout()
LONG = 30 * FLUSH_SIZE
CHANGES = {
    "CreateMultipartUpload",
    "UploadPart",
    "CompleteMultipartUpload",
    "AbortMultipartUpload",
    "PutObject",
    "DeleteObject",
}
# Objects with these names may be changed by a late process, because only one incarnation uses them.
OWN = ("/_sinksdk/deleted/", "/_sinksdk/probes/")


class SimulatedS3(FakeS3):
    # The S3 model of a schedule differs in conditional writes, in whether it remembers completed uploads, in
    # errors of requests that took effect, and in the delay of upload listings. A plain model behaves as AWS
    # does, without long outages.
    def __init__(self, world: World, on_complete: Callable[[str], None], *, is_plain: bool) -> None:
        chance = random.Random(f"{world.seed} store")  # noqa: S311 - chance, not secrets
        conditions = (
            "conditional" if is_plain else chance.choice((*5 * ["conditional"], "refused", "ignored"))
        )
        super().__init__(
            "bucket",
            knows_conditions=conditions != "refused",
            ignores_conditions=conditions == "ignored",
            forgets_completed=not is_plain and chance.random() < 0.5,
        )
        self._world = world
        self._on_complete = on_complete
        self._chance = chance
        # Chance that a request that took effect fails with an error.
        self.contradicts = 0.0 if is_plain else chance.choice((0.0, 0.0, 0.02, 0.1))
        # Chance that a listing is the previous one, or omits some uploads.
        self.lags = 0.0 if is_plain else chance.choice((0.0, 0.2, 0.6))
        self._listed: dict[str, list[PendingUpload]] = {}
        self.shown_late = set[str]()
        world.happened[f"schedules whose store has conditions {conditions}"] += conditions != "conditional"
        self.is_plain = is_plain
        self.completes_from = 0.0
        self.time = world.time  # type: ignore[method-assign] # the endpoint's clock
        away = random.Random(f"{world.seed} away")  # noqa: S311 - chance, not secrets
        begin = away.uniform(0.5, 8.0) if not is_plain and away.random() < 0.5 else math.inf
        # During an outage, requests for a task's uploads are throttled.
        self._away = begin, begin + away.choice((30.0, 90.0))

    def list_uploads(self, bucket: str, prefix: str) -> Iterator[PendingUpload]:
        found, before = list(super().list_uploads(bucket, prefix)), self._listed.get(prefix, [])
        self._listed[prefix] = found
        if self._chance.random() >= self.lags:
            return iter(found)
        shown = before if self._chance.random() < 0.5 else [u for u in found if self._chance.random() < 0.5]
        self._world.happened["listing of uploads that is late, or lacks some"] += shown != found
        self.shown_late.update({upload.upload_id for upload in shown} - self.uploads.keys())
        return iter(shown)

    def _do(self, request: LoggedRequest, effect: Callable[[], T]) -> T:
        what = f"{request.operation} {request.upload_id or request.key}"

        def whole() -> T:
            is_own = any(folder in request.key for folder in OWN)
            if request.operation in CHANGES and self._world.current.is_fenced and not is_own:
                self._world.violation(f"{self._world.current.name} was fenced and still asks: {what}")
            is_a_tasks = request.upload_id is not None and "/_sinksdk/" not in request.key
            is_completing = is_a_tasks and request.operation == "CompleteMultipartUpload"
            if is_completing and self._world.now() < self.completes_from:
                self._world.happened["completing is denied"] += 1
                raise denied()
            if is_a_tasks and self._away[0] <= self._world.now() < self._away[1]:
                self._world.happened["S3 is away"] += 1
                raise slow_down()
            is_forgotten = self.forgets_completed and is_completing and request.upload_id in self.completed
            self._world.happened["completed upload that S3 had forgotten"] += is_forgotten
            result = effect()
            if is_completing and request.upload_id is not None:
                self._on_complete(request.upload_id)
            if request.operation in CHANGES and self._chance.random() < self.contradicts:
                raise self._contradiction(request)
            return result

        return self._world.operate(
            what,
            whole,
            lost=lambda _: no_response(),
            refused=lambda _: slow_down(),
            tell=request.operation in CHANGES,
        )

    def _contradiction(self, request: LoggedRequest) -> BaseException:
        self._world.happened["error although it took effect"] += 1
        self._world.tell(
            f"{request.operation} {request.upload_id or request.key}: took effect, and is answered with an error"
        )
        if (
            request.operation in ("CompleteMultipartUpload", "AbortMultipartUpload")
            and self._chance.random() < 0.5
        ):
            return self._refuse(request, NO_SUCH_UPLOAD, 404)
        return slow_down()


class SimulatedGroup:
    # Kafka cannot fence commits of a consumer group: a late driver may set the group back until the next
    # commit, and an operator would have to check the group first. The model drops writes of all drivers but
    # the newest.
    def __init__(self, world: World, on_write: Callable[[Mapping[TopicPartition, int]], bool]) -> None:
        self._world = world
        self._on_write = on_write
        self.at: dict[TopicPartition, int] = {}

    def offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        found = {p: offset for p, offset in self.at.items() if p in partitions}
        return self._world.operate("reads the group", lambda: found, lost=_no_broker, refused=_no_broker)

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        def effect() -> None:
            if self._on_write(offsets):
                self.at |= offsets

        told = {p.partition: offset for p, offset in offsets.items()}
        self._world.operate(f"writes the group: {told}", effect, lost=_no_broker, refused=_no_broker)

    def is_in_use(self, offsets: Mapping[TopicPartition, int]) -> bool:
        return False


def _no_broker(what: str) -> BaseException:
    return RetriableException(f"{what}: no broker answers")


class SimulatedConfig(S3ArchiverConfig):
    s3_part_size: int = Field(400, ge=1, alias="s3.part.size")


class SimulatedTask(S3ArchiverTask):
    def __init__(self) -> None:
        archive = Archive.current
        self.archive = archive
        super().__init__(
            connect=lambda *_: archive.s3,
            clock=archive.world.time,
            sleep=archive.world.sleep,
            grain=Grain(1, 64),
            beside=at_once,
            together=one_by_one,
            **archive.groups.arguments,
        )
        self.max_poll_records = archive.portion  # type: ignore[misc]  # of this very task
        self.is_initialized = False
        self.is_open: set[TopicPartition] = set()
        self._closing: set[TopicPartition] = set()
        self.stops = 0
        self._process = archive.world.current
        archive.tasks.append(self)

    def initialize(self, context: SinkTaskContext) -> None:
        self.is_initialized = True
        super().initialize(context)

    def open(self, partitions: Any) -> None:
        self._outside_of_pre_commit("open")
        super().open(partitions)
        self.is_open.update(partitions)

    def put(self, records: SinkRecords) -> None:
        self._outside_of_pre_commit("put")
        self._expect(records.partition in self.is_open, f"put to {records.partition}, which is not open")
        self._expect(
            records.partition not in self._closing, f"put to {records.partition} after its closing commit"
        )
        self._expect(not self.archive.is_behind, "put, though the archive holds more than the store knows")
        super().put(records)
        self.archive.put.update((records.partition, record.offset) for record in records)

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        self._expect(offsets.keys() <= self.is_open, "pre_commit of what is not open")
        if self.context.is_closing():
            self._closing.update(offsets)
            self.archive.world.happened["closing commit"] += 1
            self._expect(self._is_asked_to_close(offsets), "a closing commit that nobody asked for")
        with self._lingering("pre_commit"):
            return super().pre_commit(offsets)

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        self._outside_of_pre_commit("publish")
        self.archive.publishing(tokens)
        with self._lingering("publish"):
            super().publish(partition, tokens)

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        self._outside_of_pre_commit("discard")
        with self._lingering("discard"):
            super().discard(partition, tokens)

    def close(self, partitions: Any) -> None:
        self._outside_of_pre_commit("close")
        self._expect(set(partitions) <= self.is_open, f"close of {partitions}, open is {self.is_open}")
        self.is_open.difference_update(partitions)
        self._closing.difference_update(partitions)
        super().close(partitions)

    def stop(self) -> None:
        self._outside_of_pre_commit("stop")
        self._expect(not self.stops, "stop for the second time")
        self._expect(not self.is_open, f"stop while {self.is_open} are open")
        self.stops += 1
        super().stop()

    @contextmanager
    def _lingering(self, hook: str) -> Iterator[None]:
        try:
            yield
        finally:
            if self.archive.world.current.is_alive and self.archive.hooks.random() < self.archive.lingers:
                self.archive.world.happened["hook that takes long"] += 1
                seconds = self.archive.hooks.choice((5.0, 20.0, 100.0))
                self.archive.world.tell(f"{hook} takes {seconds:.0f} s longer")
                self.archive.world.sleep(seconds)

    def _is_asked_to_close(self, partitions: Iterable[TopicPartition]) -> bool:
        # The task must close if its generation's plan says so, if the generation ends, or if a partition
        # fails.
        reason, plan = self.context.closing_reason(), self.archive.plan(self.context.generation())
        if plan is None or reason is ClosingReason.FAILURE:
            return True
        if plan.closing is not None and plan.closing.reason is reason:
            return True
        if reason is ClosingReason.DUE:
            due = {r.topic_partition for task in plan.tasks for r in task.ranges if r.due}
            return due.issuperset(partitions)
        return False

    def _outside_of_pre_commit(self, what: str) -> None:
        self._expect(not self.context.is_closing(), f"is_closing() is true in {what}")

    def _expect(self, holds: bool, what: str) -> None:
        if not holds and self.archive.world.current.is_alive:
            self.archive.world.violation(what)


class SimulatedConnector(S3ArchiverConnector):
    config_class: ClassVar[type[S3ArchiverConfig]] = SimulatedConfig
    task_class: ClassVar[type[SinkTask]] = SimulatedTask

    def __init__(self) -> None:
        world = Archive.current.world
        super().__init__(
            connect=lambda *_: Archive.current.s3,
            retries=Retries(world.sleep, world.now),
            together=one_by_one,
        )


def _settings(world: World, *, whole_files: bool) -> dict[str, str]:
    dice = world.dice
    raw = {
        "name": CONNECTOR,
        "connector.class": f"{__name__}:{SimulatedConnector.__name__}",
        "topics": "orders",
        "tasks.max": str(dice.randint(1, 3)),
        "s3.bucket.name": "bucket",
        "flush.size": str(FLUSH_SIZE),
        "generation.max.records": str(FLUSH_SIZE * dice.randint(1, 4)),
        "offset.flush.interval.ms": dice.choice(("500", "60000")),
        "task.shutdown.graceful.timeout.ms": dice.choice(("5000", "60000")),
        "errors.retry.timeout": dice.choice(("0", "3000")),
        "restart.backoff.ms": "1000",
        "restart.max.attempts": "20",
    }
    waits = random.Random(f"{world.seed} waits")  # noqa: S311 - chance, not secrets
    if raw["errors.retry.timeout"] != "0" and waits.random() < 0.5:
        raw["errors.retry.timeout"] = "120000"  # longer than a task retries on its task slot
    long = random.Random(f"{world.seed} long")  # noqa: S311 - chance, not secrets
    if not whole_files and long.random() < 0.15:
        world.happened["schedules with long ranges"] += 1
        raw["generation.max.records"] = str(LONG)
        raw["offset.flush.interval.ms"] = "500"
    if whole_files:
        raw["task.shutdown.graceful.timeout.ms"] = "60000"
    elif dice.random() < 0.5:
        raw["rotate.schedule.interval.ms"] = dice.choice(("2000", "30000"))
    return raw


class Archive:
    # A planned end must leave no uncommitted records: files end by count only, closing may take a minute, and
    # S3 has no long outage. Schedules with topic changes have no transform, no deletion and no group of
    # files.
    current: ClassVar[Archive]
    copy: dict[str, Stored] | None = None
    copied: Mapping[TopicPartition, int] = MappingProxyType({})
    _begins_of_parts: Mapping[TopicPartition, int] = MappingProxyType({})
    # True if the store is a restored copy: the archive then holds more than the store's commits cover.
    is_behind = False

    def __init__(self, world: World, *, whole_files: bool = False, topic_changes: bool = False) -> None:
        Archive.current = self
        dice = world.dice
        self.world = world
        self.s3 = SimulatedS3(world, self._completed, is_plain=whole_files)
        self.tasks: list[SimulatedTask] = []
        self.portion: int | None = None
        self.put: Counter[tuple[TopicPartition, int]] = Counter()
        raw = _settings(world, whole_files=whole_files)
        self._retry_timeout = int(raw["errors.retry.timeout"]) / 1000
        # With a random generator of its own, a deletion does not change what other schedules do.
        self.operator = random.Random(f"{world.seed} deletes")  # noqa: S311 - chance, not secrets
        is_plain = whole_files or topic_changes
        self.deletes = not is_plain and self.operator.random() < 0.3
        self.group = SimulatedGroup(world, self._may_write)
        if self.deletes:
            raw["offset.source"] = "group"
        transforms = random.Random(f"{world.seed} transforms")  # noqa: S311 - chance, not secrets
        if not is_plain and transforms.random() < 0.4:
            # Spark never parses this query: the simulated log drops and multiplies records instead.
            raw["records.sql"] = "SELECT * FROM records"
            world.happened["schedules with a transform"] += 1
            self.portion = transforms.choice((None, 2))
        # A deletion forgets which rows above a withdrawn commit are visible: see docs/decisions/0037.
        self.groups = Groups(world, are_wanted=not is_plain)
        changes = not whole_files and self._changes(raw, surely=topic_changes)
        self._bad = None if whole_files or changes else self._some_bad(raw)
        partitions = dice.randint(1, 3)
        self.changing = ChangingLog(world, partitions, world.seed) if changes else None
        self.cluster = SinkCluster(
            world,
            CONNECTOR,
            SimulatedConnector,
            raw | self.groups.settings,
            partitions=partitions,
            has_keys=len(self.groups.views) > 1,
            tombstones=self.groups.tombstones,
            on_end=self._expect_stopped,
            on_result=self._look_at_result,
            group=self.group if self.deletes else None,
            bad=self._bad,
            log=self.changing,
        )
        self.cluster.log.on_late = self._comes_late
        # Each late row, with its partition's commit at the time when a task received the row.
        self._late: dict[tuple[Process, TopicPartition], tuple[LateRow, int]] = {}
        self.cluster.records.on_change = self._on_change
        self._bystander = Bystander(self.cluster.records.stored)
        self._rows: dict[str, tuple[str, Any]] = {}
        self._whole: dict[int, tuple[TaskRecord, TaskRecord | None]] = {}
        # Decoded objects; the value is None for an object that is no file of records.
        self._decoded: dict[Location, FakeObject | None] = {}
        self._visible: dict[Content, list[int]] = {
            Content(partition, view): []
            for partition in self.cluster.log.records
            for view in self.groups.views
        }
        self._highest: dict[TopicPartition, int] = {}
        # Positions at which partitions without a commit begin, in the present incarnation of the connector.
        self._begins: dict[TopicPartition, int] = {}
        # Offsets with rows visible above a withdrawn commit.
        self._parted: dict[Content, set[int]] = defaultdict(set)
        self._pending: dict[TopicPartition, set[str]] = {}
        self._expired: set[str] = set()
        self._left: set[str] = set()
        self._newest: Process | None = None

    def _changes(self, raw: dict[str, str], *, surely: bool) -> bool:
        chance = random.Random(f"{self.world.seed} changes")  # noqa: S311 - chance, not secrets
        if self.deletes or "records.sql" in raw or self.groups.settings:
            return False
        if not surely and chance.random() >= 0.5:
            return False
        self.world.happened["schedules whose topic changes"] += 1
        raw["on.data.loss"] = chance.choice(("skip", "fail"))
        raw["missing.topic.policy"] = chance.choice(("wait", "fail"))
        raw["missing.topic.grace.ms"] = chance.choice(("0", "2000"))
        return True

    def _some_bad(self, raw: dict[str, str]) -> Bad | None:
        chance = random.Random(f"{self.world.seed} bad")  # noqa: S311 - chance, not secrets
        if self.groups.arguments.get("file_format") or chance.random() >= 0.3:
            return None
        if not self.groups.settings:  # records archived unchanged are never bad
            self.groups.settings = dict(VALUES)
        self.world.happened["schedules with bad records"] += 1
        raw["errors.tolerance"] = "all"
        raw["errors.deadletterqueue.topic.name"] = "bad"
        raw["errors.deadletterqueue.max.share"] = "1"
        are_tombstones = bool(self.groups.tombstones) and chance.random() < 0.5
        if are_tombstones:
            self.world.happened["schedules that report records without a value"] += 1
            self.groups.settings["behavior.on.null.values"] = "ignore"
        return Bad(chance.choice((0, 1, 1, 4)), chance.choice((0.0, 0.0, 0.2)), are_tombstones)

    @cached_property
    def _committed_by(self) -> dict[tuple[str, int], set[int]]:
        return defaultdict(set)

    @cached_property
    def hooks(self) -> random.Random:
        return random.Random(f"{self.world.seed} hooks")  # noqa: S311 - chance, not secrets

    @cached_property
    def lingers(self) -> float:
        return 0.0 if self.s3.is_plain else self.hooks.choice((*7 * [0.0], 0.1, 0.3, 1.0))

    @cached_property
    def is_long(self) -> bool:
        return int(self.cluster.raw["generation.max.records"]) == LONG

    @cached_property
    def restores(self) -> bool:
        special = self.deletes or self.changing or self.groups.settings
        return not special and self.operator.random() < 0.5

    @cached_property
    def alters(self) -> bool:
        return not (self.deletes or self.changing or self.restores) and self.operator.random() < 0.4

    def _expect_stopped(self, process: Process) -> None:
        for task in self.tasks:
            if task._process is process and task.is_initialized and task.stops != 1:
                self.world.violation(f"{process.name} has ended, and stop was called {task.stops} times")

    def _comes_late(self, row: LateRow) -> None:
        entry = self.commits().get(row.partition)
        self._late[self.world.current.threads[0], row.partition] = row, entry.offset if entry else 0

    def _look_at_result(self, result: TaskResult) -> None:
        self._expect_order_to_count(result)
        for failure in filter(None, (outcome.failure for outcome in result.outcomes)):
            if failure.retry is None:
                continue
            self.world.happened["left to a later generation to try again"] += 1
            self.world.happened["left so by several generations"] += failure.retry.attempts > 1
            if failure.retry.next_attempt - failure.retry.since > self._retry_timeout + 0.001:
                self.world.violation(f"to be tried again after errors.retry.timeout: {failure.message}")

    def _expect_order_to_count(self, result: TaskResult) -> None:
        # A late row must stop the commits of its partition, and the connector's error must name its offset.
        for outcome in result.outcomes:
            row, committed = self._late.pop((self.world.current.threads[0], outcome.partition), (None, 0))
            if row is None:
                continue
            if outcome.failure is None or not outcome.failure.is_final:
                # If an earlier attempt has committed up to the end, this attempt did not read the offsets
                # again.
                if outcome.failure is None and outcome.read_to > max(row.highest + 1, committed):
                    self.world.violation(f"{row} came late, and nobody minded")
                continue  # the partition closed before its rows were checked
            self.world.happened["order violated"] += 1
            if (outcome.committed or 0) > committed:
                self.world.violation(
                    f"{row} came late at commit {committed}, then {outcome.committed} was committed"
                )
            if f"late or repeated: {row.offset}" not in outcome.failure.message:
                self.world.violation(f"{row} came late, and is not named: {outcome.failure.message}")
            # Commits of a newer attempt do not count, because that attempt has read the offsets itself.
            if row.offset < min(committed, outcome.committed or 0):
                self.world.happened["late row was passed over before it came"] += 1
                if f"which skips {row.offset}" not in outcome.failure.message:
                    self.world.violation(f"{row} is lost, and nobody says so: {outcome.failure.message}")

    def _on_change(self, key: str, before: Stored | None, after: Stored | None) -> None:
        if key.startswith(task_key(CONNECTOR, 0)[:-1]):
            if before is not None and after is not None:
                old, new = json.loads(before.body), json.loads(after.body)
                if (new["generation"], new["attempt"]) < (old["generation"], old["attempt"]) and new[
                    "attempt"
                ]:
                    self.world.violation(f"{key} went back to an older generation or attempt")
                self._count_attempts(key, old, new)
            self.check()
        elif key == task_count_key(CONNECTOR):
            self._newest = self.world.current
            if before is not None and after is not None:
                counts = [TaskCountRecord.model_validate_json(stored.body) for stored in (before, after)]
                if counts[0].planned and not counts[1].planned:
                    self._check_deletion(counts[0])
            self.check()
        elif key.startswith(plans_prefix(CONNECTOR)):
            if self.changing and before is None and after is not None and '"tasks"' in after.body:
                self._expect_no_silent_loss(GenerationPlan.model_validate_json(after.body), self.changing)
            self.check()
        elif key == config_key(CONNECTOR):
            self._on_config_change(before, after)

    def _count_attempts(self, key: str, old: dict[str, Any], new: dict[str, Any]) -> None:
        which, attempt = (key, new["generation"]), new["attempt"]
        before = {entry["partition"]: entry["offset"] for entry in old["entries"]}
        if old["attempt"] != attempt or all(
            entry["offset"] == before.get(entry["partition"]) for entry in new["entries"]
        ):
            return
        committed = self._committed_by[which]
        self.world.happened["second attempt committed again"] += any(one < attempt for one in committed)
        committed.add(attempt)

    def _expect_no_silent_loss(self, plan: GenerationPlan, log: ChangingLog) -> None:
        commits = self.commits()
        for planned in (planned for task in plan.tasks for planned in task.ranges):
            partition = planned.topic_partition
            entry = commits.get(partition)
            if entry is None or planned.start >= planned.end:
                continue
            epochs = entry.leader_epoch, planned.leader_epoch
            # Leaders elected after this plan's request are known to the next plan only.
            lost = None if None in epochs else log.lost_since(partition, *epochs)
            is_past_lost = lost is not None and lost < entry.offset
            if planned.start <= entry.offset and not is_past_lost:
                continue
            self.world.happened["read on past lost records"] += 1
            if plan.config.get("on.data.loss") != "skip":
                self.world.violation(
                    f"{planned} reads past lost records, the commit is {entry.offset} of {epochs}"
                )

    def _on_config_change(self, before: Stored | None, after: Stored | None) -> None:
        if after is None:
            self.world.happened["connector deleted"] += 1
        elif before is None:
            self.world.happened["connector created again"] += self.world.happened["connector deleted"] > 0
        else:
            claims = [json.loads(stored.body)["claimed"] for stored in (before, after)]
            if claims[1] < claims[0]:
                self.world.violation(f"the driver of claim {claims[1]} configured over that of {claims[0]}")

    def _may_write(self, offsets: Mapping[TopicPartition, int]) -> bool:
        # The group accepts writes of the newest driver only. All records below the written offsets must be
        # visible.
        for partition, offset in offsets.items():
            if unseen := self._unseen(partition, offset):
                self.world.violation(f"{partition}: the group is set to {offset}, nobody can see {unseen}")
        is_newest = self.world.current is self._newest
        self.world.happened["group written"] += is_newest
        self.world.happened["group written by somebody late"] += not is_newest
        return is_newest

    def _unseen(self, partition: TopicPartition, end: int) -> list[int]:
        unseen = set[int]()
        for view in self.groups.views:
            content = Content(partition, view)
            seen = Counter(self.visible()[content])
            unseen.update(
                offset
                for offset, times in self._expected(content).items()
                if offset < end and seen[offset] < times
            )
        return sorted(unseen - self.cluster.log.withheld[partition])

    def _expected(self, content: Content) -> Mapping[int, int]:
        log = self.cluster.log
        return (log.good if content.view else log.with_value)[content.partition]

    def _check_deletion(self, last: TaskCountRecord) -> None:
        # The connector's commits are deleted by now: all records must be visible, and the group has their
        # offsets.
        for (partition, _), offsets in self.visible().items():
            group = self.group.at.get(partition, 0)
            if offsets and offsets[-1] >= group:
                self.world.violation(
                    f"{partition}: deleted, {offsets[-1]} is visible, the group is at {group}"
                )
        for partition in self.cluster.log.records:
            committed, group = self._highest.get(partition, 0), self.group.at.get(partition, 0)
            if unseen := self._unseen(partition, committed):
                self.world.violation(
                    f"{partition}: deleted, committed to {committed}, nobody can see {unseen}"
                )
            self._highest[partition] = self._begins[partition] = group
        self._pending.clear()
        stale = {token for tokens in self._merged(last).stale.values() for token in tokens}
        self.world.happened["begun, and left behind by a deletion"] += bool(stale)
        self._left |= stale

    def alter_offsets(self) -> None:
        dice, log = self.operator, self.cluster.log
        partition = dice.choice(list(log.records))
        end, now = log.ends[partition], self._highest.get(partition, 0)
        offset = dice.choice((None, dice.randint(0, end), dice.randint(min(now, end), end)))
        if dice.random() < 0.9:
            self.cluster.wish("stop")
        self.world.tell(f"an operator alters the offset of {partition.partition} to {offset}")

        def ask(herder: Herder) -> None:
            herder.alter_offsets(CONNECTOR, {partition: offset})

        self.cluster.start_operator("offsets altered", ask)

    def keep_or_restore_the_store(self) -> None:
        # All processes are stopped before a restore, because running ones would lose records.
        stored = self.cluster.records.stored
        if self.copy is None:
            self.copy = dict(stored) if self.commits() and not self.has_rows_ahead() else None
            self.copied = dict(self._highest)
            return
        has_grown = any(offset > self.copied.get(p, 0) for p, offset in self._highest.items())
        if self.is_behind or not has_grown or self.has_rows_ahead():
            return
        for process in list(self.world.processes):
            self.world.kill(process)
        self.world.tell("an old copy of the store is restored")
        self.world.happened["old copy of the store restored"] += 1
        stored.clear()
        stored.update(self.copy)
        self.copy = None
        self._rows.clear()
        self._whole.clear()
        # No record in the store names these uploads any more, so a lifecycle rule of the bucket aborts them.
        self._left |= self.s3.uploads.keys()
        commits = self.commits()
        self._pending = {p: {token.id for token in entry.publish} for p, entry in commits.items()}
        self._highest = {p: entry.offset for p, entry in commits.items()}
        self.is_behind = self._holds_more()
        self.world.happened["archive that holds more than the store knows"] += self.is_behind

    def _holds_more(self) -> bool:
        commits = self.commits()
        return any(
            self._unknown(content, offsets, commits.get(content.partition))
            for content, offsets in self.visible().items()
        ) or any(self._was_archived_again(partition, entry) for partition, entry in commits.items())

    def _was_archived_again(self, partition: TopicPartition, entry: PartitionCommit) -> bool:
        # Files of the commit's own unpublished tokens are not archived again.
        if not entry.publish:
            return False
        nonces = {location_of(token): token.data["nonce"] for token in entry.publish}
        texts = [
            Archived.of(entry.as_offset()).skip,
            *(token.data.get("skip", "") for token in entry.publish),
        ]
        skip = Skip.union(map(Skip.of_text, texts))
        begin = min(token.data.get("group", [token.data["start"]])[0] for token in entry.publish)
        return any(
            self.s3.objects[location].metadata.get(NONCE) != nonces[location]
            if location in nonces
            else not skip.holds([name.view], np.array([name.start]), np.array([name.number])).any()
            for location, name in self.files().items()
            if name.partition == partition and name.start >= begin
        )

    def _unknown(self, content: Content, offsets: list[int], entry: PartitionCommit | None) -> list[int]:
        # The commit lists the rows above it that are known to be visible.
        committed = self._highest.get(content.partition, 0)
        skip = self.groups.runs(Archived.of(entry.as_offset() if entry else None).skip, content.view)
        return [o for o in offsets[bisect.bisect_left(offsets, committed) :] if not is_in(skip, o)]

    def recover(self) -> None:
        raw = {**self.cluster.raw, **self.cluster.settings}
        given, self._begins_of_parts = self._move_parts_away(), {}

        def ask(herder: Herder) -> None:
            try:
                herder.recover_offsets(CONNECTOR, raw, given)
            except OffsetsRefusedException as error:
                self._begins_of_parts = {
                    TopicPartition("orders", int(number)): int(begin)
                    for number, begin in re.findall(
                        r"only in part[^;]*and pass orders-(\d+)=(\d+)", str(error)
                    )
                }
                raise

        self.cluster.start_operator("offsets recovered", ask)

    def _move_parts_away(self) -> dict[TopicPartition, int]:
        parts = self._begins_of_parts
        for process in list(self.world.processes) if parts else ():
            self.world.kill(process)
        for partition, begin in parts.items():
            self.world.tell(f"an operator moves the files of {partition} from offset {begin} on away")
            self.world.happened["files of a part of a commit moved away"] += 1
            for location, name in self.files().items():
                if name.partition == partition and name.start >= begin:
                    del self.s3.objects[location], self._decoded[location]
            for content, offsets in self._visible.items():
                if content.partition == partition:
                    del offsets[bisect.bisect_left(offsets, begin) :]
        return parts

    def _has_altered(self, partition: TopicPartition, committed: int) -> bool:
        if self.world.current not in self.cluster.operators:
            return False
        before = self._highest.get(partition, 0)
        self.world.happened["commit moved by an operator"] += committed != before
        if self.is_behind:
            return True
        self.cluster.log.withheld[partition].update(
            o for o in self.cluster.log.expected[partition] if before <= o < committed
        )
        return True

    def change_topic(self, log: ChangingLog) -> None:
        dice, kind = log.events, log.events.choice(log.kinds)
        has_commit = [p for p, offset in self._highest.items() if offset]
        partition = dice.choice(has_commit if has_commit and kind != "retention" else list(log.records))
        committed, start, end = self._highest.get(partition, 0), log.starts[partition], log.ends[partition]
        if kind == "recreation":
            if log.id is None:
                dice.choice((self.restore_topic, log.create_again))()
            elif log.id != "first":
                dice.choice((self.restore_topic, log.delete, log.create_again))()
            # With a commit, the first plan has recorded the topic's id.
            elif self._highest and max(self._highest.values()):
                dice.choice((log.delete, log.delete, log.create_again_at_once))()
        elif log.id != "first":
            self.restore_topic()
        elif kind == "retention":
            log.retain(
                partition, dice.choice((dice.randint(start, end), max(start, min(committed, end)))), committed
            )
        else:
            below = max(start, min(committed, end) - dice.randint(1, 3))
            log.elect(
                partition, dice.choice((end, dice.randint(max(start, end - 12), end), below)), committed
            )

    def restore_topic(self) -> None:
        for process in self.cluster.attempts():
            self.world.kill(process)
        if self.changing:
            self.changing.restore()

    def has_rows_ahead(self) -> bool:
        return any(entry.partly_visible_to is not None for entry in self.commits().values())

    def delete(self) -> None:
        unpublished = any(entry.publish for entry in self.commits().values())
        self.world.happened["deletion asked for while rows above a commit are visible"] += (
            self.has_rows_ahead()
        )
        self.world.happened["deletion asked for while something is unpublished"] += unpublished
        self.cluster.wish("delete")

    def remove_markers(self) -> None:
        # If markers of a deleted incarnation remain, the next connector's error tells the operator to remove them.
        record = self._row(config_key(CONNECTOR), ConnectorRecord)
        for location, found in list(self.s3.objects.items()):
            if LAYOUT.topic_of_marker(location.key) is not None:
                owner = json.loads(found.data)["incarnation"]
                if record is None or owner != record.incarnation:
                    self.world.happened["marker removed by hand"] += 1
                    del self.s3.objects[location]

    def commits(self) -> dict[TopicPartition, PartitionCommit]:
        count = self._row(task_count_key(CONNECTOR), TaskCountRecord)
        return self._merged(count).committed if count is not None and count.planned else {}

    def _merged(self, count: TaskCountRecord) -> Merged:
        base = self.plan(count.planned)
        if base is None:
            self.world.violation(f"the plan of generation {count.planned}, which counts, is gone")
        records = [self._task(task, base) for task in range(count.tasks)]
        return merge(base, [record for record in records if record is not None])

    def _task(self, task: int, base: GenerationPlan) -> TaskRecord | None:
        record = self._row(task_key(CONNECTOR, task), TaskRecord)
        if record is None or not may_be_newer(base, record):
            return None
        if not record.segments:
            return record
        known = self._whole.get(task)
        if known is None or known[0] is not record:
            self.world.happened["commits set apart"] += 1
            found = whole(self._bystander, CONNECTOR, task, record)
            if found is None:
                self.world.violation(f"task {task} has lost a segment of {record.segments}")
            known = self._whole[task] = record, found
        return known[1]

    def plan(self, generation: int) -> GenerationPlan | None:
        return self._row(plan_key(CONNECTOR, generation), GenerationPlan)

    def claimed(self) -> int:
        count = self._row(task_count_key(CONNECTOR), TaskCountRecord)
        return count.claimed if count else 0

    def _row(self, key: str, model: type[V]) -> V | None:
        # This method runs after each change, so it decodes each version of a record once.
        stored = self.cluster.records.stored.get(key)
        if stored is None:
            return None
        version, row = self._rows.get(key, (None, None))
        if version != stored.version:
            read = table.read(self._bystander, key, model)
            assert read is not None
            row = read.value
            self._rows[key] = stored.version, row
        return row

    def files(self) -> dict[Location, FileName]:
        named = {location: LAYOUT.parse(location.key) for location in self.s3.objects}
        return {location: name for location, name in named.items() if name is not None}

    def visible(self) -> dict[Content, list[int]]:
        for location, found in self.s3.objects.items():
            if location not in self._decoded:
                name = LAYOUT.parse(location.key)
                self._decoded[location] = found if name is not None else None
                if name is not None:
                    if self.changing and max(numbers_in(name, found.data)) >= ANOTHER:
                        self.world.violation(f"{location} holds records of a topic that was created again")
                    rows = self._visible[Content(name.partition, name.view)]
                    rows += offsets_in(name, found.data)
                    rows.sort()
        return self._visible

    def check(self) -> None:
        objects = self.s3.objects
        gone = [each for each, found in self._decoded.items() if found and objects.get(each) is not found]
        if gone:
            self.world.violation(f"{gone} have vanished, or are replaced")
        commits = self.commits()
        visible = self.visible()
        if self.is_behind and self.world.current in self.cluster.operators:
            self._highest |= {partition: entry.offset for partition, entry in commits.items()}
            self.is_behind = self._holds_more()
        for partition in self.cluster.log.records:
            entry = commits.get(partition)
            if problem := self._went_back(partition, entry):
                self.world.violation(f"{partition}: {problem}")
            if problem := self._lost_letters(partition):
                self.world.violation(f"{partition}: {problem}")
            for view in self.groups.views:
                content = Content(partition, view)
                if problem := self._problem(content, visible[content], entry):
                    self.world.violation(f"{content}: {problem}")

    def _lost_letters(self, partition: TopicPartition) -> str | None:
        committed, log = self._highest[partition], self.cluster.log
        lost = [
            offset
            for offset in log.letters[partition]
            if offset < committed
            and not self.cluster.letters.durable[partition, offset]
            and offset not in log.withheld[partition]
        ]
        return f"committed to {committed}, lost the dead letters of {lost}" if lost else None

    def _went_back(self, partition: TopicPartition, entry: PartitionCommit | None) -> str | None:
        committed = entry.offset if entry else self._begins.get(partition, 0)
        before = self._highest.get(partition, 0)
        if committed != before and self._has_altered(partition, committed):
            self._pending.pop(partition, None)
        elif committed < before:
            if entry is None or entry.withdrawn_from != before:
                return f"the commit went back from {before} to {committed}"
            if not self._pending.get(partition, set()) & self._expired:
                return f"the commit was withdrawn from {before} to {committed}, though none of its uploads expired"
            self.world.happened["commit withdrawn"] += 1
            # The records of this partition may be lost.
            if self.changing and partition in self.changing.shaken:
                again = (o for o in self.changing.expected[partition] if committed <= o < before)
                self.changing.withheld[partition].update(again)
        self._highest[partition] = committed
        self._pending[partition] = {token.id for token in entry.publish} if entry else set()
        return None

    def _problem(self, content: Content, offsets: list[int], entry: PartitionCommit | None) -> str | None:
        partition, view = content
        committed = self._highest[partition]
        expected, seen = self._expected(content), Counter(offsets)
        if any(times > expected.get(offset, 0) for offset, times in seen.items()):
            return f"seen twice in {offsets}"
        if offsets and offsets[-1] >= committed and not self.is_behind:
            if above := self._unknown(content, offsets, entry):
                return f"offsets {above} are visible, committed is {committed}"
            if entry is None or (entry.partly_visible_to or 0) <= offsets[-1]:
                return f"offsets up to {offsets[-1]} are visible, the commit at {committed} does not say so"
            if self.deletes and self.cluster.is_deleting:
                # This check runs in each step, but the event counts once per schedule.
                self.world.happened["schedules whose deletion waited for rows above a commit"] = 1
            self._parted[content].update(offsets[bisect.bisect_left(offsets, committed) :])
            self.world.happened[f"{view or 'rows'} visible above a withdrawn commit"] += 1
        pending = [token for token in entry.publish if view_of(token) == view] if entry else []
        missing = [
            offset
            for offset, times in expected.items()
            if offset < committed
            and seen[offset] < times
            and offset not in self.cluster.log.withheld[partition]
            and not any(is_in(self.groups.runs_of(token), offset) for token in pending)
        ]
        return f"committed to {committed}, lost {missing}" if missing else None

    def publishing(self, tokens: Sequence[Token]) -> None:
        self.groups.gone[self.world.current] = {token.id for token in tokens} & self._expired

    def _completed(self, upload_id: str) -> None:
        self.check()
        siblings = self._siblings(upload_id)
        # An upload does not count as expired if a late listing still showed it as open.
        if gone := siblings & self.groups.gone.get(self.world.current, set()) - self.s3.shown_late:
            self.world.violation(f"{upload_id} is completed, though {gone} of its group had expired before")
        pending = [upload for upload in sorted(siblings) if upload in self.s3.uploads]
        if pending and self.groups.dice.random() < self.groups.siblings_expire:
            self.world.happened["expired while its group was published"] += 1
            self.expire_one(self.groups.dice.choice(pending))

    def _siblings(self, upload_id: str) -> set[str]:
        for entry in self.commits().values():
            for token in entry.publish:
                if token.id == upload_id and "group" in token.data:
                    group = token.data["group"]
                    return {t.id for t in entry.publish if t.data.get("group") == group} - {upload_id}
        return set()

    def expire(self) -> None:
        tokens = [token for entry in self.commits().values() for token in entry.publish]
        pending = [token.id for token in tokens if token.id in self.s3.uploads]
        if pending:
            self.expire_one(self.world.dice.choice(pending))

    def expire_one(self, upload_id: str) -> None:
        self.world.tell(f"the committed upload {upload_id} expires")
        self.world.happened["committed upload expired"] += 1
        self._expired.add(upload_id)
        del self.s3.uploads[upload_id]

    def check_end(self) -> None:
        self.check()
        for content, offsets in self.visible().items():
            partition = content.partition
            # Late rows may have been skipped: all rows of their offset, or those not yet visible above a
            # withdrawn commit.
            seen, parted = Counter(offsets), self._parted[content]
            left = {o: seen[o] for o in self.cluster.log.withheld[partition] if not seen[o] or o in parted}
            expected = self._expected(content)
            produced = [o for o, times in sorted(expected.items()) for _ in range(left.get(o, times))]
            if self._highest[partition] != self.cluster.log.ends[partition]:
                self.world.violation(
                    f"{partition}: in the end {self._highest[partition]} is committed, its end is "
                    f"{self.cluster.log.ends[partition]}"
                )
            if offsets != produced:
                self.world.violation(f"{content}: in the end {offsets} are visible of {produced}")
        bad = {(p, offset) for p, offsets in self.cluster.log.letters.items() for offset in offsets}
        if wrong := self.cluster.letters.durable.keys() - bad:
            self.world.violation(f"good records among the dead letters: {wrong}")
        leaked = [
            f"{upload.location}"
            for upload_id, upload in self.s3.uploads.items()
            # The next start removes probes of a killed start, once they are five seconds old.
            if upload.parts and upload_id not in self._left and OWN[1] not in upload.location.key
        ]
        if leaked:
            self.world.violation(f"uploads with data are left: {leaked}")
        self._verify()

    def _verify(self) -> None:
        bystander = FakeS3("bucket")
        bystander.objects = self.s3.objects
        commits = {partition: entry.as_offset() for partition, entry in self.commits().items()}
        report = verify(SimulatedConfig.parse(self.cluster.raw), bystander, lambda: commits)
        if report.problems:
            self.world.violation(f"verify finds {report.problems}")
