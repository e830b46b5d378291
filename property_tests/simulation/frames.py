"""Simulate Spark writing DataFrames: queries with checkpoints, batch writes, task attempts, a destination.

Protocol and engine are real. Each run divides the rows of a micro-batch differently.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, partialmethod
from itertools import count
from typing import Any, TypeVar
from uuid import UUID

import pyarrow as pa

from property_tests.simulation.store import Bystander, Records, SimulatedStore
from property_tests.simulation.world import Process, World
from sinksdk import (
    ConnectException,
    ConnectorConfig,
    OffsetAndMetadata,
    RetriableException,
    SinkConnector,
    SinkRecords,
    SinkTask,
    Token,
    TopicPartition,
)
from sinksdk.engine.options import TaskName
from sinksdk.frames.batches import FrameBatches, Terms
from sinksdk.frames.protocol import Share, Writing
from sinksdk.frames.task import FrameTask
from sinksdk.store import TakenOver, newest_plan
from sinksdk.store.base import Stored

T = TypeVar("T")

NAME = "frames"
TOPIC = "rows"
_FILE = 3  # rows
_FAILURES = 4  # failures of one task after which Spark fails the job
CONFIG = {"name": NAME, "connector.class": "simulated", "topics": TOPIC, "errors.retry.timeout": "20000"}


@dataclass(slots=True)
class File:
    partition: TopicPartition
    written_by: Writing
    rows: list[tuple[int, str]] = field(default_factory=list)
    is_visible: bool = False
    is_gone: bool = False


class Destination:
    def __init__(self, world: World) -> None:
        self.files: dict[str, File] = {}
        self.committed: set[tuple[str, int | None]] = set()
        # A table that keeps its own offsets stores the next offset, and the generation that owns the table.
        self.watermarks: dict[TopicPartition, tuple[int, int]] = {}
        self.repeated = 0
        self._world = world
        self._seen: Counter[str] = Counter()

    def begin(self, token: str, file: File) -> None:
        self._operate(f"begins {token}", lambda: self.files.setdefault(token, file))

    def fill(self, token: str, rows: Sequence[tuple[int, str]]) -> None:
        def effect() -> None:
            if self.files[token].is_gone:
                message = f"{token} is gone"
                raise ConnectException(message)
            self.files[token].rows = list(rows)

        self._operate(f"fills {token}", effect)

    def complete(self, token: str) -> None:
        def effect() -> None:
            file = self.files[token]
            if file.is_gone:
                self._world.violation(f"{token} is published after it was discarded")
            if file.is_visible:
                return
            file.is_visible = True
            if (file.written_by.query, file.written_by.batch) not in self.committed:
                self._world.violation(f"{token} is visible, and {file.written_by} is not committed")
            for _, row in file.rows:
                self._seen[row] += 1
                if self._seen[row] > 1:
                    self._world.violation(f"row {row} is visible twice")

        self._operate(f"completes {token}", effect)

    def abort(self, token: str) -> None:
        def effect() -> None:
            if not self.files[token].is_visible:
                self.files[token].is_gone = True

        self._operate(f"aborts {token}", effect)

    def own(self, partition: TopicPartition, generation: int) -> int:
        def effect() -> int:
            watermark, owner = self.watermarks.get(partition, (0, 0))
            if owner > generation:
                message = f"{partition} belongs to generation {owner}"
                raise ConnectException(message)
            self.watermarks[partition] = watermark, generation
            return watermark

        found: int = self._operate(f"takes {partition} over in the table", effect)
        return found

    def insert(self, partition: TopicPartition, generation: int, rows: Sequence[tuple[int, str]]) -> None:
        def effect() -> None:
            watermark, owner = self.watermarks[partition]
            if owner != generation:
                message = f"{partition} belongs to generation {owner}"
                raise ConnectException(message)
            for offset, row in rows:
                if offset < watermark:
                    continue
                self._seen[row] += 1
                if self._seen[row] > 1:
                    self.repeated += 1
                watermark = offset + 1
            self.watermarks[partition] = watermark, generation

        self._operate(f"inserts into {partition}", effect)

    def visible(self) -> Counter[str]:
        return self._seen

    def _operate(self, what: str, effect: Callable[[], T]) -> T:
        return self._world.operate(what, effect, lost=RetriableException, refused=RetriableException)


class FileTask(SinkTask):
    # A file's token is returned with one commit only, as by the folder sink, or with each commit until the
    # file is published, as by the archiver. Without a writing run the task only publishes and discards.
    def __init__(
        self, destination: Destination, names: Any, writing: Writing | None, *, forgets: bool
    ) -> None:
        self._destination = destination
        self._names = names
        self._writing = writing
        self._forgets = forgets
        self._waiting: dict[TopicPartition, list[tuple[int, str]]] = {}
        self._ready: dict[TopicPartition, list[Token]] = {}

    def put(self, records: SinkRecords) -> None:
        rows = self._waiting.setdefault(records.partition, [])
        rows += [(record.offset, record.value.decode()) for record in records]
        if len(rows) >= _FILE:
            self.context.request_commit()

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        least = 1 if self.context.is_closing() else _FILE
        found = {}
        for partition in offsets:
            rows, ready = self._waiting.get(partition, []), self._ready.setdefault(partition, [])
            if len(rows) >= least:
                token = Token(f"file-{next(self._names)}")
                assert self._writing is not None, "nothing is put to a task that settles"
                self._destination.begin(token.id, File(partition, self._writing))
                self.context.prepared({partition: [token]})
                self._destination.fill(token.id, rows)
                ready.append(token)
                found[partition] = OffsetAndMetadata(rows[-1][0] + 1, publish=tuple(ready))
                rows.clear()
                if self._forgets:
                    ready.clear()
        return found

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        for token in tokens:
            self._destination.complete(token.id)

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        for token in tokens:
            self._destination.abort(token.id)

    def close(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self._waiting.pop(partition, None)


class TableTask(SinkTask):
    def __init__(self, destination: Destination) -> None:
        self._destination = destination

    def open(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            watermark = self._destination.own(partition, self.context.generation())
            committed = self.context.committed(partition)
            if watermark > (committed.offset if committed else 0):
                self.context.offset({partition: watermark})

    def put(self, records: SinkRecords) -> None:
        rows = [(record.offset, record.value.decode()) for record in records]
        self._destination.insert(records.partition, self.context.generation(), rows)


@dataclass(slots=True)
class Query:
    # The query keeps this state between its runs. ``right`` is the value of ``done`` before an operator
    # restored an older copy.
    name: str
    is_stream: bool
    batches: list[list[str]] = field(default_factory=list)
    done: int = 0
    right: int = 0
    has_failed: bool = False
    runs: list[Process] = field(default_factory=list)

    def rows(self) -> list[str]:
        return [row for batch in self.batches for row in batch]


@dataclass(slots=True)
class Job:
    shares: dict[int, Share | None] = field(default_factory=dict)
    failures: Counter[int] = field(default_factory=Counter)
    last: str = ""

    def raise_if_failed(self, missing: Sequence[int]) -> None:
        if any(self.failures[part] >= _FAILURES for part in missing):
            raise ConnectException(self.last)


class Spark:
    def __init__(self, world: World) -> None:
        self.world = world
        self.records = Records()
        self.records.on_change = self._look
        self.destination = Destination(world)
        self.queries: list[Query] = []
        self.running: dict[str, Process] = {}
        self.ended: Counter[str] = Counter()
        self._bystander = Bystander(self.records.stored)
        self._names = count()
        self._forgets = world.dice.random() < 0.5
        self.is_table = world.dice.random() < 0.3
        self._runs = 0
        self._writers: list[str] = []

    def new_query(self, *, is_stream: bool) -> Query:
        query = Query(f"{'query' if is_stream else 'write'}-{len(self.queries)}", is_stream)
        self.queries.append(query)
        return query

    def arrive(self, query: Query, rows: int) -> None:
        place = f"{query.name}/{len(query.batches)}"
        query.batches.append([f"{place}/{number}" for number in range(rows)])

    def go_back(self, query: Query, done: int) -> None:
        for process in query.runs:
            if process.is_alive:
                self.world.kill(process)
        self.world.tell(f"the checkpoint of {query.name} goes back from {query.done} to {done}")
        self.world.happened["checkpoint went back"] += 1
        query.right, query.done = max(query.right, query.done), done

    def come_right(self, query: Query) -> None:
        query.done = max(query.right, query.done)

    def start(self, query: Query) -> Process:
        run = str(UUID(int=self.world.dice.getrandbits(128)))
        self._runs += 1
        self.world.tell(f"{query.name} is started as {run[:4]}")
        process = self.world.spawn(f"driver of {query.name} {run[:4]}", partial(self._drive, query, run))
        self.running[query.name] = process
        query.runs.append(process)
        return process

    # -- the driver ------------------------------------------------------------------------------------

    def _drive(self, query: Query, run: str) -> None:
        try:
            if not query.is_stream:
                self._run_batch(query, Writing(query.name, run), 0)
                query.done = 1
                return
            while (number := query.done) < len(query.batches):
                behind = number < self._newest_of(query)
                self._run_batch(query, Writing(query.name, run, number), number)
                if behind and query.batches[number]:
                    self.world.violation(f"{query.name} writes {number}, which a later one follows")
                self.world.operate(
                    f"checkpoint: {number} is over", partial(self._over, query, number + 1), lost=OSError
                )
        except (ConnectException, OSError) as error:
            query.has_failed = True
            self.ended[type(error).__name__] += 1
            self.world.happened["checkpoint refused"] += "Start the query with its newest checkpoint" in str(
                error
            )
            self.world.tell(f"{query.name} ends: {error}")

    def _newest_of(self, query: Query) -> int:
        numbers = (batch for name, batch in self.destination.committed if name == query.name)
        return max((number for number in numbers if number is not None), default=-1)

    @staticmethod
    def _over(query: Query, done: int) -> None:
        query.done = max(query.done, done)

    def _run_batch(self, query: Query, writing: Writing, number: int) -> None:
        world, dice = self.world, self.world.dice
        drawn = random.Random(f"{query.name}/{number}") if self.is_table else dice  # noqa: S311 - chance, not secrets
        width = drawn.randint(1, 5)
        parts: list[list[str]] = [[] for _ in range(width)]
        for row in query.batches[number]:
            drawn.choice(parts).append(row)
        job = Job()
        batches = self._batches()
        try:
            for part, rows in enumerate(parts):
                self._start_task(writing, part, rows, job)
                world.sleep(0.0)
            while len(job.shares) < width:
                world.sleep(dice.choice((0.1, 1.0)))
                missing = [part for part in range(width) if part not in job.shares]
                job.raise_if_failed(missing)
                for part in missing:
                    name = _task_name(writing, part)
                    attempts = [one for one in world.processes if one.name.startswith(name)]
                    if not attempts or (len(attempts) < 2 and dice.random() < 0.2):
                        world.happened["second attempt beside the first"] += bool(attempts)
                        self._start_task(writing, part, parts[part], job)
            batches.commit(writing, [share for share in job.shares.values() if share], self._settle)
        except (ConnectException, OSError):
            world.happened["abort"] += 1
            batches.abort(writing, self._settle)
            raise

    def _batches(self) -> FrameBatches:
        store = SimulatedStore(self.world, self.records, patience=5.0)
        return FrameBatches(store, Terms(NAME, TOPIC, CONFIG), self.world)

    def _settle(self, taken: TakenOver, number: int) -> Any:
        return FrameTask(self._connector(None), TaskName(NAME, number), taken, clock=self.world).settle()

    def _connector(self, writing: Writing | None) -> type[SinkConnector]:
        base: type[SinkTask] = TableTask
        init = partialmethod(TableTask.__init__, self.destination)
        if not self.is_table:
            base = FileTask
            init = partialmethod(
                FileTask.__init__, self.destination, self._names, writing, forgets=self._forgets
            )
        task = type("Bound", (base,), {"__init__": init})
        return type("FileSink", (SinkConnector,), {"config_class": ConnectorConfig, "task_class": task})

    # -- tasks -----------------------------------------------------------------------------------------

    def _start_task(self, writing: Writing, part: int, rows: Sequence[str], job: Job) -> None:
        name = f"{_task_name(writing, part)} attempt {next(self._names)}"
        self.world.spawn(name, partial(self._run_task, writing, part, rows, job))

    def _run_task(self, writing: Writing, part: int, rows: Sequence[str], job: Job) -> None:
        try:
            share = self._share(writing, part, rows)
        except ConnectException as error:
            self.world.happened[f"attempt ended by {type(error).__name__}"] += 1
            job.failures[part] += 1
            job.last = str(error)
            return
        if part in job.shares:
            self.world.happened["attempt whose result was not taken"] += 1
        job.shares.setdefault(part, share)

    def _share(self, writing: Writing, part: int, rows: Sequence[str]) -> Share | None:
        if not rows:
            return None
        taken = self._batches().join(writing, part)
        if taken is None:
            self.world.happened["skipped by a task"] += 1
            return None
        task = FrameTask(self._connector(writing), TaskName(NAME, part), taken, clock=self.world)
        batches = [pa.RecordBatch.from_pydict({"value": rows[at : at + 2]}) for at in range(0, len(rows), 2)]
        return task.write(batches)

    # -- who watches -----------------------------------------------------------------------------------

    def _look(self, key: str, before: Stored | None, after: Stored | None) -> None:
        # The compare-and-set that just happened must cover each newly committed token.
        if not key.endswith("/tasks-count"):
            return
        _, plan = newest_plan(self._bystander, NAME)
        if plan is None or plan.frames is None:
            return
        self.destination.committed |= {(one.query, one.batch) for one in plan.frames.written}
        writer = plan.frames.writer
        if not self._writers or self._writers[-1] != writer:
            if writer in self._writers:
                self.world.violation(f"run {writer} writes again, after it was fenced")
            self._writers.append(writer)
            self.world.happened["a run takes over"] += 1

    def runs_yet_to_write(self) -> int:
        # Each run that has not written yet may take over once, while one of its tasks runs.
        return self._runs - len(self._writers)

    def unpublished(self) -> list[str]:
        return [
            token
            for token, file in self.destination.files.items()
            if not file.is_visible and not file.is_gone
        ]

    def gaps(self) -> str | None:
        for part in {file.partition for file in self.destination.files.values()}:
            files = [f for f in self.destination.files.values() if f.partition == part and f.is_visible]
            offsets = sorted(offset for file in files for offset, _ in file.rows)
            if offsets != list(range(len(offsets))):
                return f"{part} has offsets {offsets}"
        return None


def _task_name(writing: Writing, part: int) -> str:
    return f"task {part} of {writing.query}/{writing.batch} {writing.run[:4]},"
