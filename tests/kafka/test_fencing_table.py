"""KIP-618's decision table on a real broker: which transactional ids a driver fences; no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress

import pytest

from sinksdk import ConnectException, FencedException
from sinksdk.engine import TaskName
from sinksdk.engine.writer import CommittedOffsets, Target, TransactionalWriter
from sinksdk.model.outcome import End
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.source_driver import SourceDriver
from sinksdk.source import SourceConnectorConfig, SourceRecord
from sinksdk.source.positions import SourcePosition
from sinksdk.store import table
from sinksdk.store.generations import Generations
from sinksdk.store.keys import task_count_key
from sinksdk.store.records import GenerationPlan, TaskCountRecord, TaskPlan
from sinksdk.topics.kafka import KafkaClient, KafkaTarget, ensure_offsets_topic
from sinksdk.worker.generation_spec import GenerationSpec
from sinksdk.worker.source_task import run_source_attempt
from sinksdk.worker.task_result import SourceTaskResult
from tests.helpers.memory_store import MemoryStore
from tests.kafka.topics import consume, consume_decided, create_topic, unused_name
from tests.runtime.running_sources import Counting, CountingConfig, CountingTask, Fencing

pytestmark = pytest.mark.slow


class Ended:
    def wait(self, timeout: float) -> bool:
        return True

    def results(self) -> Sequence[SourceTaskResult]:
        return []

    def cancel(self) -> None:
        pass


class Scene:
    """A connector whose earlier tasks are in a transaction.

    Args:
        bootstrap: of the broker.
        recorded: the number of tasks in the task count record; None without a record.
    """

    def __init__(self, bootstrap: str, recorded: int | None) -> None:
        CountingTask.started = []
        self.topic = create_topic(bootstrap, unused_name("table"))
        self.raw = {
            "name": "c",
            "connector.class": f"{Counting.__module__}:Counting",
            "tasks.max": 5,
            "group.id": self.topic,
            "offsets.storage.topic": f"{self.topic}-offsets",
            "offset.storage.partitions": "1",
            "restart.max.attempts": 0,
        }
        self.config = CountingConfig.parse(self.raw)
        self.kafka = KafkaClient(bootstrap)
        ensure_offsets_topic(self.config, self.kafka)
        self.target: Target = KafkaTarget(self.kafka)
        self.store = MemoryStore()
        self.plans: list[GenerationPlan] = []
        if recorded is not None:
            self.plan(recorded)

    def plan(self, tasks: int) -> GenerationPlan:
        generations = Generations(self.store, "c")
        return generations.plan(
            generations.claim(),
            [TaskPlan(ranges=(), config=share) for share in shares(tasks)],
            1,
            {key: str(value) for key, value in self.raw.items()},
            transactional_tasks=tasks,
        )

    @contextmanager
    def tasks_before(self, count: int) -> Iterator[list[TransactionalWriter]]:
        with ExitStack() as stack:
            writers = []
            for task in range(count):
                writer = stack.enter_context(closing(self.target.writer(self.config, TaskName("c", task))))
                writer.init()
                writer.begin()
                writer.send(SourceRecord({"share": f"old-{task}"}, {"next": 1}, self.topic, b"%d" % task))
                writers.append(writer)
            yield writers

    def start(self, tasks: int, *, is_other: bool = True, target: Target | None = None) -> list[int]:
        connector = Counting()
        connector.shares = shares(tasks, "new" if is_other else "old")
        fencing = Fencing(target or self.target)
        raw = {key: str(value) for key, value in self.raw.items()}
        driver = SourceDriver(
            Environment(self.store),
            connector=connector,
            config=self.config,
            raw=raw,
            target=fencing,
            launcher=self,
        )
        self._close = driver.close
        driver.run()
        return fencing.fenced

    def launch(self, plan: GenerationPlan) -> Ended:
        self.plans.append(plan)
        self._close()
        return Ended()

    def recorded(self) -> int | None:
        row = table.read(self.store, task_count_key("c"), TaskCountRecord)
        return row.value.transactional_tasks if row else None


def shares(count: int, name: str = "old") -> list[dict[str, str]]:
    return [{"share": f"{name}-{task}"} for task in range(count)]


def fenced(writers: Sequence[TransactionalWriter]) -> list[int]:
    # The broker refuses to commit transactions of fenced tasks, and commits all others.
    found = []
    for task, writer in enumerate(writers):
        try:
            writer.commit([SourcePosition.of({"share": f"old-{task}"}, {"next": 1})])
        except FencedException:
            found.append(task)
    return found


@pytest.mark.parametrize(
    ("recorded", "tasks", "is_other", "expected"),
    [
        pytest.param(None, 2, True, [], id="no record: no transactional producer can exist"),
        pytest.param(0, 2, True, [], id="after a stop: nobody is left (F3)"),
        pytest.param(1, 1, True, [], id="R = N = 1: the same id fences itself"),
        pytest.param(1, 3, True, [0], id="from one to more: id 0"),
        pytest.param(3, 1, True, [0, 1, 2], id="as many as were recorded, not as will run: one"),
        pytest.param(3, 2, True, [0, 1, 2], id="… fewer"),
        pytest.param(2, 4, True, [0, 1], id="… more"),
        pytest.param(2, 2, True, [0, 1], id="other configurations of as many tasks"),
        pytest.param(2, 2, False, [], id="nothing pending: each fences its predecessor itself"),
    ],
)
def test_fencing_follows_the_decision_table(
    bootstrap: str, recorded: int | None, tasks: int, *, is_other: bool, expected: list[int]
) -> None:
    scene = Scene(bootstrap, recorded)
    with scene.tasks_before(recorded or 0) as before:
        assert scene.start(tasks, is_other=is_other) == expected
        assert fenced(before) == expected

    assert scene.recorded() == tasks
    assert [len(plan.tasks) for plan in scene.plans] == [tasks]
    seen = sorted(record.value or b"" for record in consume_decided(bootstrap, scene.topic))
    assert seen == [b"%d" % task for task in range(recorded or 0) if task not in expected]


def test_fencing_that_fails_records_no_task_count(bootstrap: str) -> None:
    scene = Scene(bootstrap, 3)
    target = At(scene.target, 1, lambda: refuse("not authorized"))
    with scene.tasks_before(3) as before:
        with pytest.raises(ConnectException, match="not authorized"):
            scene.start(2, target=target)
        assert (scene.recorded(), scene.plans) == (3, [])
        assert scene.start(2) == [0, 1, 2]
        assert fenced(before) == [0, 1, 2]

    assert scene.recorded() == 2


def test_fencing_overtaken_by_another_driver_records_no_task_count(bootstrap: str) -> None:
    scene = Scene(bootstrap, 3)
    target = At(scene.target, 1, lambda: Generations(scene.store, "c").claim())
    with scene.tasks_before(3) as before:
        with pytest.raises(FencedException, match="a newer driver has taken over"):
            scene.start(2, target=target)
        assert fenced(before) == [0, 1]

    assert (scene.recorded(), scene.plans) == (3, [])


def test_fencing_survives_the_deletion_of_the_connector(bootstrap: str) -> None:
    # The task count record is kept when the connector is deleted.
    scene = Scene(bootstrap, 3)
    Generations(scene.store, "c").forget()
    with scene.tasks_before(3) as before:
        scene.start(1)
        assert fenced(before) == [0, 1, 2]


def test_task_of_an_old_configuration_fences_no_task(bootstrap: str) -> None:
    # The task checks its generation before it creates a producer (KIP-618).
    scene = Scene(bootstrap, None)
    old = scene.plan(1)
    scene.plan(1)
    with scene.tasks_before(1) as newest:
        with pytest.raises(FencedException, match="was replaced by a newer one"):
            run_source_attempt(
                GenerationSpec("memory:", "id", "c", old.generation, target=scene.target), scene.store, 0
            )
        assert fenced(newest) == []

    assert CountingTask.started == []


def test_task_overtaken_while_fencing_stops_silently(bootstrap: str) -> None:
    # The task checks its generation again after it has fenced its predecessors (KIP-618).
    scene = Scene(bootstrap, None)
    old = scene.plan(1)
    target = At(scene.target, 0, lambda: scene.plan(2))
    spec = GenerationSpec("memory:", "id", "c", old.generation, target=target)
    with suppress(FencedException):  # unless the concurrent check whether its generation ended was faster
        assert run_source_attempt(spec, scene.store, 0).outcome.end is End.CANCELLED

    assert CountingTask.started == []
    assert consume(bootstrap, scene.topic) == []


def test_fencing_does_not_reach_ids_of_another_group(bootstrap: str) -> None:
    scene = Scene(bootstrap, 2)
    with scene.tasks_before(2) as before:
        scene.raw["group.id"] = f"{scene.topic}-other"
        scene.config = CountingConfig.parse(scene.raw)
        assert scene.start(2) == [0, 1]
        assert fenced(before) == []


class At:
    # This target calls ``happens`` before the writer of one task fences its predecessors.
    def __init__(self, target: Target, task: int, happens: Callable[[], object]) -> None:
        self._target = target
        self._task = task
        self._happens = happens

    def writer(self, config: SourceConnectorConfig, name: TaskName) -> TransactionalWriter:
        writer = self._target.writer(config, name)
        if name.task == self._task:
            init = writer.init

            def later() -> None:
                self._happens()
                init()

            writer.init = later  # type: ignore[method-assign]  # of this writer only
        return writer

    def offsets(self, config: SourceConnectorConfig) -> CommittedOffsets:
        return self._target.offsets(config)


def refuse(why: str) -> None:
    raise ConnectException(why)
