"""Deleting a connector with unpublished commits destroys no committed record."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from sinksdk import (
    ClosingReason,
    ConfigException,
    ConnectException,
    ConnectorConfig,
    FencedException,
    OffsetAndMetadata,
    SinkConnector,
    SinkTask,
    Token,
    TopicPartition,
    UnpublishableException,
)
from sinksdk.control.deletion import Deletion, PartlyVisibleException
from sinksdk.control.herder import Herder
from sinksdk.control.requests import ClosingSignal
from sinksdk.runtime.driver import ConnectorDriver
from sinksdk.runtime.environment import Environment, Threads
from sinksdk.runtime.idle import Openers
from sinksdk.runtime.worker_connector import WorkerConnector
from sinksdk.store import committed_offsets, table
from sinksdk.store.generations import Generations, UnpublishedException
from sinksdk.store.keys import config_key, task_count_key
from sinksdk.store.records import ConnectorRecord
from tests.helpers.inline import InlineExecutor
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sinks import P0, P1, InProcess, Source

RAW = {"name": "c", "topics": "t", "tasks.max": "1", "poll.interval.ms": "10", "restart.max.attempts": "0"}


class Outside:
    def __init__(self) -> None:
        self.begun: set[str] = set()
        self.seen: list[str] = []
        self.calls: list[str] = []
        self.is_down = False
        self.has_expired = False
        self.lost = ""
        self.on_lost: Callable[[], None] = lambda: None
        self.rows: list[int] = []
        self.start: Callable[[], None] = lambda: None
        self.waits = 0

    def reach(self) -> None:
        if self.is_down:
            message = "the outside world is away"
            raise ConnectException(message)


class TwoPhase(SinkTask):
    outside: ClassVar[Outside]

    def put(self, records: Any) -> None: ...

    def pre_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, Any]:
        tokens = {p: f"{p} to {at.offset}" for p, at in offsets.items()}
        self.context.prepared({p: [token] for p, token in tokens.items()})
        self.outside.begun.update(tokens.values())
        return {p: OffsetAndMetadata(at.offset, publish=[tokens[p]]) for p, at in offsets.items()}

    def publish(self, partition: TopicPartition, tokens: Any) -> None:
        self.outside.reach()
        for token in tokens:
            if self.outside.has_expired:
                raise UnpublishableException("it has expired", offset=0)
            self.outside.begun.discard(token.id)
            self.outside.seen.append(token.id)

    def discard(self, partition: TopicPartition, tokens: Any) -> None:
        self.outside.reach()
        self.outside.begun.difference_update(token.id for token in tokens)


class Halves(TwoPhase):
    # One of a commit's two files may be visible while the other one is lost.
    def open(self, partitions: Any) -> None:
        self.skip, self.held = set[int](), list[int]()
        for partition in partitions:
            committed = self.context.committed(partition)
            self.skip.update(map(int, committed.metadata.split() if committed else ()))

    def put(self, records: Any) -> None:
        self.held += [record.offset for record in records if record.offset not in self.skip]

    def pre_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, Any]:
        ((partition, at),) = offsets.items()
        tokens = [
            Token(
                f"{half} to {at.offset} of generation {self.context.generation()}",
                {"rows": [row for row in self.held if row % 2 == odd]},
            )
            for odd, half in enumerate(("even", "odd"))
        ]
        self.held = []
        self.context.prepared({partition: tokens})
        return {partition: OffsetAndMetadata(at.offset, publish=tokens)}

    def publish(self, partition: TopicPartition, tokens: Any) -> None:
        self.outside.reach()
        seen: list[int] = []
        for token in tokens:
            if self.outside.lost and token.id.startswith(f"{self.outside.lost} of"):
                self.outside.lost = ""
                self.outside.on_lost()
                raise UnpublishableException(
                    "it has expired",
                    offset=min(token.data["rows"] + seen),
                    metadata=" ".join(map(str, seen)),
                    discard=[token],
                    partly_visible_to=max(seen) + 1,
                )
            seen += token.data["rows"]
            self.outside.rows += token.data["rows"]


class Connector(SinkConnector):
    task_class: ClassVar[type[SinkTask]] = TwoPhase

    def start(self, config: Any) -> None:
        TwoPhase.outside.calls.append("start")
        TwoPhase.outside.start()

    def stop(self, is_deleted: bool = False) -> None:  # noqa: FBT002 - KIP-883's signature
        TwoPhase.outside.calls.append(f"stop {is_deleted}")


class OfHalves(Connector):
    task_class = Halves


class Group:
    def __init__(self) -> None:
        self.at: dict[TopicPartition, int] = {}
        self.is_away = False

    def offsets(self, partitions: Any) -> dict[TopicPartition, int]:
        return dict(self.at)

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self.is_away:
            message = "no broker answers"
            raise ConnectException(message)
        self.at |= offsets

    def is_in_use(self, offsets: Any) -> bool:
        return False


class HandClock:
    def __init__(self) -> None:
        self.at = 0.0
        self.on_wait: Callable[[], None] = lambda: None

    def now(self) -> float:
        return self.at

    def time(self) -> float:
        return 1_700_000_000.0 + self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


class HandSignal(ClosingSignal):
    def __init__(self, clock: HandClock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float) -> bool:
        self._clock.sleep(max(timeout, 0.001))
        self._clock.on_wait()
        return self.reason is not None


class Scene:
    def __init__(self, made: type[Connector] = Connector) -> None:
        self.made = made
        self.outside = TwoPhase.outside = Outside()
        self.store, self.group, self.clock = MemoryStore(), Group(), HandClock()
        self.herder = Herder(self.store)
        self.source = Source({P0: 10})
        self.signal = HandSignal(self.clock)
        self.environment = Environment(
            self.store, self.clock, Threads(calls=InlineExecutor), lambda: 1.0, self.signal
        )
        self.herder.create("c", RAW)
        self.run_a_while()

    def driver(self, environment: Environment, connector: Connector | None = None) -> ConnectorDriver:
        raw = environment.record.config if environment.record else RAW
        return ConnectorDriver(
            environment,
            source=self.source,
            connector=connector or self.made(),
            config=ConnectorConfig.parse(raw),
            raw=raw,
            launcher=InProcess(self.store, self.made.task_class),
            group=self.group,
        )

    def run_a_while(self) -> None:
        self.driver(self.environment).run(until_caught_up=True)

    def leave_unpublished(self, end: int = 15) -> None:
        self.source.ends[P0] = end
        self.outside.is_down = True
        with pytest.raises(ConnectException, match="the outside world is away"):
            self.run_a_while()
        assert committed_offsets(self.store, "c")[P0].tokens
        self.outside.calls.clear()

    def worker(self, **options: Any) -> WorkerConnector:
        openers = Openers(
            lambda record: (self.made(), ConnectorConfig.parse(record.config)), lambda record: self.group
        )
        parts = {"drivers": self.driver, "openers": openers, "stays": True, **options}
        return WorkerConnector(self.environment, "c", **parts)

    def is_gone(self) -> bool:
        return self.store.list("connectors/c/") == [task_count_key("c")]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_commits_are_published_before_a_connector_is_deleted(scene: Scene) -> None:
    # Regression: the upload of an unpublished commit was aborted, and 5 committed records were never visible.
    scene.leave_unpublished()
    scene.outside.is_down = False
    scene.herder.delete("c")
    scene.worker().run()

    assert scene.outside.seen == ["t-0 to 10", "t-0 to 15"]
    assert scene.outside.calls == ["start", "stop True"]
    assert scene.is_gone()
    assert scene.group.at == {P0: 15}


def test_a_late_deletion_does_not_affect_a_connector_created_again(scene: Scene) -> None:
    # Regression: a delayed deletion mistook the new connector for the deleted one, and was aborted.
    scene.leave_unpublished()
    scene.herder.delete("c")
    held_up = scene.worker(drivers=None, stays=False)
    created: list[ConnectorRecord] = []

    def somebody_else() -> None:
        if not created:
            scene.clock.on_wait = lambda: None
            scene.outside.is_down = False
            scene.worker().run()
            created.append(scene.herder.create("c", RAW))

    scene.clock.on_wait = somebody_else
    held_up.run()

    assert scene.outside.seen == ["t-0 to 10", "t-0 to 15"]
    assert scene.herder.connector("c") == created[0]
    assert scene.worker(drivers=None, stays=False).run() is None
    assert scene.herder.connector("c") == created[0]


def test_a_start_during_a_deletion_starts_the_connector_created_again(scene: Scene) -> None:
    # Regression: the process continued as the deleted connector, so the new connector was refused its own
    # archive.
    started: list[tuple[str, str]] = []

    class Told(Connector):
        def start(self, config: Any) -> None:
            if not started:
                scene.herder.delete("c")
                scene.worker(drivers=None, stays=False).run()
            started.append((self.identity.incarnation, config.name))

    def driver(environment: Environment) -> ConnectorDriver:
        return scene.driver(environment, Told())

    scene.worker(drivers=driver, stays=False, brings_config=True).run(until_caught_up=True)

    created = scene.herder.connector("c")
    assert len(started) == 2
    assert started[1] == (created.incarnation, "c")
    assert committed_offsets(scene.store, "c")[P0].offset == 10


def test_a_deletion_finished_by_another_process_counts_as_done(scene: Scene) -> None:
    scene.herder.delete("c")
    scene.worker().run()
    scene.worker(drivers=None, stays=False).run()

    assert scene.is_gone()


@pytest.mark.parametrize("state", ["pause", "stop"])
def test_deleting_an_idle_connector_publishes_its_commits(scene: Scene, state: str) -> None:
    scene.leave_unpublished()
    getattr(scene.herder, state)("c")
    waits = iter(range(100))

    def go_on() -> None:
        if next(waits) == 5:
            scene.outside.is_down = False
            scene.herder.delete("c")

    scene.clock.on_wait = go_on
    scene.worker().run()

    assert scene.outside.seen[-1] == "t-0 to 15"
    assert scene.is_gone()


def test_deleting_a_running_connector_publishes_before_stop(scene: Scene) -> None:
    scene.source.ends[P0] = 15
    scene.outside.is_down = True
    scene.outside.calls.clear()
    scene.herder.configure("c", {**RAW, "restart.max.attempts": "1000"})

    def go_on() -> None:
        tokens = committed_offsets(scene.store, "c").get(P0, OffsetAndMetadata(0)).tokens
        if scene.clock.at > 5 and tokens and not scene.herder.connector("c").deleted:
            scene.herder.delete("c")
        if scene.herder.info("c").state == "DELETING" and scene.clock.at > 60:
            scene.outside.is_down = False

    scene.clock.on_wait = go_on
    scene.worker().run()

    assert scene.outside.seen == ["t-0 to 10", "t-0 to 15"]
    assert scene.outside.calls[:2] == ["start", "stop False"]
    assert scene.outside.calls[-1] == "stop True"
    assert scene.outside.calls.count("stop True") == 1
    assert scene.is_gone()
    assert scene.group.at == {P0: 15}


def test_a_connector_is_deleting_with_a_reason_until_it_is_published(scene: Scene) -> None:
    scene.leave_unpublished()
    scene.herder.delete("c")
    shown: list[tuple[str, str]] = []
    attempts: list[float] = []

    def start() -> None:
        attempts.append(scene.clock.at)
        scene.outside.is_down = len(attempts) < 5

    scene.outside.start = start
    scene.clock.on_wait = lambda: shown.append(
        (scene.herder.info("c").state, scene.herder.info("c").trace or "")
    )
    scene.worker().run()

    state, reason = shown[0]
    assert state == "DELETING"
    assert "t-0 up to offset 15 (1 tokens) is committed but not published" in reason
    assert "the outside world is away" in reason
    assert "sinksdk delete c --force" in reason
    delays = [later - at for at, later in itertools.pairwise(attempts)]
    assert delays == sorted(delays)
    assert delays[-1] >= 4 * delays[0]
    assert scene.outside.seen == ["t-0 to 10", "t-0 to 15"]
    assert scene.is_gone()


def test_an_unstartable_connector_is_deleted_only_by_force(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.leave_unpublished()
    scene.herder.delete("c")

    def refuse() -> None:
        message = "there is no such bucket"
        raise ConfigException(message)

    scene.outside.start = refuse
    reasons: list[str] = []

    def go_on() -> None:
        reasons.append(scene.herder.info("c").trace or "")
        if scene.clock.at > 30:
            scene.herder.delete("c", force=True)

    scene.clock.on_wait = go_on
    scene.worker().run()

    assert "start failed: there is no such bucket" in reasons[0]
    assert scene.clock.at < 60
    assert scene.outside.seen == ["t-0 to 10"]
    assert scene.outside.calls[-1] == "stop True"
    assert scene.is_gone()
    assert "the commit of t-0 from offset 10 up to 15 could not be published and is given up" in caplog.text
    assert "1 tokens of 1 partitions are given up" in caplog.text
    assert scene.group.at == {P0: 10}


def test_a_forced_deletion_discards_tokens_if_possible(scene: Scene) -> None:
    scene.leave_unpublished()
    scene.outside.is_down = False
    publish = TwoPhase.publish

    def refuse(task: TwoPhase, partition: TopicPartition, tokens: Any) -> None:
        message = "access denied"
        raise ConnectException(message)

    TwoPhase.publish = refuse  # type: ignore[method-assign]  # of all its tasks
    try:
        scene.herder.delete("c", force=True)
        scene.worker().run()
    finally:
        TwoPhase.publish = publish  # type: ignore[method-assign]  # as it was

    assert (scene.outside.seen, scene.outside.begun) == (["t-0 to 10"], set())
    assert scene.group.at == {P0: 10}


def test_a_forced_deletion_tries_to_publish_first(scene: Scene) -> None:
    scene.leave_unpublished()
    scene.outside.is_down = False
    scene.herder.delete("c", force=True)
    scene.worker().run()

    assert scene.outside.seen == ["t-0 to 10", "t-0 to 15"]
    assert scene.group.at == {P0: 15}


def test_a_deletion_withdraws_expired_commits_and_rewinds_the_consumer_group(scene: Scene) -> None:
    scene.leave_unpublished()
    scene.outside.is_down, scene.outside.has_expired = False, True
    scene.herder.delete("c")
    scene.worker().run()

    assert scene.is_gone()
    assert scene.group.at == {P0: 0}


def test_a_consumer_group_in_use_is_not_rewound(scene: Scene) -> None:
    # Kafka Connect has used the group since: reading from an older offset would repeat records there.
    scene.leave_unpublished()
    scene.outside.is_down = False
    scene.group.at = {P0: 5_000}
    scene.herder.delete("c")
    scene.worker().run()

    assert scene.is_gone()
    assert scene.group.at == {P0: 5_000}


def test_an_unwritable_consumer_group_delays_the_deletion(scene: Scene) -> None:
    # Without the position, the next owner could not resume; stop(True) is not called a second time for it.
    scene.outside.calls.clear()
    scene.group.at.clear()
    scene.group.is_away = True
    scene.herder.delete("c")
    shown: list[str] = []

    def go_on() -> None:
        shown.append(scene.herder.info("c").trace or "")
        scene.group.is_away = scene.clock.at < 20

    scene.clock.on_wait = go_on
    scene.worker().run()

    assert "cannot be written to its consumer group: no broker answers" in shown[0]
    assert scene.outside.calls == ["start", "stop True"]
    assert scene.is_gone()
    assert scene.group.at == {P0: 10}


def test_a_deletion_without_patience_raises_its_reason(scene: Scene) -> None:
    scene.leave_unpublished()
    scene.herder.delete("c")
    with pytest.raises(UnpublishedException, match="the outside world is away"):
        scene.worker(patience=10).run()

    assert scene.herder.info("c").state == "DELETING"


@pytest.mark.parametrize("write", range(1, 9))
def test_a_deletion_resumes_after_a_crash_at_any_step(scene: Scene, write: int) -> None:
    scene.leave_unpublished()
    scene.outside.is_down = False
    scene.herder.delete("c")
    put, left = scene.store._write, iter(range(1, write))

    class Crash(BaseException):
        pass

    def crash(*arguments: Any) -> bool:
        if next(left, None) is None:
            raise Crash
        return put(*arguments)

    scene.store._write = crash  # type: ignore[method-assign]  # of this store only
    with contextlib.suppress(Crash):
        scene.worker().run()
    scene.store._write = put  # type: ignore[method-assign]  # as it was
    scene.signal = HandSignal(scene.clock)
    if scene.herder.connectors():
        scene.worker().run()

    assert set(scene.outside.seen) == {"t-0 to 10", "t-0 to 15"}
    assert scene.outside.begun == set()
    assert scene.is_gone()
    assert scene.group.at == {P0: 15}


def test_records_are_never_removed_before_commits_are_published(scene: Scene) -> None:
    scene.leave_unpublished()
    record = scene.herder.delete("c")

    with pytest.raises(UnpublishedException, match="t-0 up to offset 15"):
        Deletion(scene.store, "c", record).remove()

    assert committed_offsets(scene.store, "c")[P0].offset == 15


def test_a_late_deletion_removes_no_record_of_a_connector_created_again(scene: Scene) -> None:
    # The late process was frozen while another process finished and a new connector got the name: the late
    # process is fenced.
    record = scene.herder.delete("c")
    late = Deletion(scene.store, "c", record)
    scene.worker().run()
    scene.herder.create("c", RAW)
    scene.run_a_while()

    with pytest.raises(FencedException):
        late.remove()
    with pytest.raises(FencedException, match="another process has deleted it"):
        Deletion(scene.store, "c", record)
    assert committed_offsets(scene.store, "c")[P0].offset == 10


def test_keys_listed_before_another_deletion_finished_are_not_removed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = scene.herder.delete("c")
    late = Deletion(scene.store, "c", record)
    is_newest = Generations.is_newest

    def sleep(generations: Generations) -> bool:
        monkeypatch.setattr(Generations, "is_newest", is_newest)
        scene.worker().run()
        scene.herder.create("c", RAW)
        scene.run_a_while()
        return is_newest(generations)

    monkeypatch.setattr(Generations, "is_newest", sleep)
    with pytest.raises(FencedException):
        late.remove()
    assert committed_offsets(scene.store, "c")[P0].offset == 10


def test_a_repeated_delete_request_does_not_stop_the_deletion(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Regression: the deletion did not remove the configuration, because the record had another version by
    # then.
    record = scene.herder.delete("c")
    forget = Generations.forget

    def meanwhile(generations: Generations) -> None:
        forget(generations)
        scene.herder.delete("c", force=True)

    monkeypatch.setattr(Generations, "forget", meanwhile)
    Deletion(scene.store, "c", record).remove()

    assert table.read(scene.store, config_key("c"), ConnectorRecord) is None


def test_a_connector_resuming_from_the_consumer_group_reads_each_record_once(scene: Scene) -> None:
    # The connector was deleted with an unpublished commit, and created again with offset.source=group.
    scene.leave_unpublished()
    scene.outside.is_down = False
    scene.herder.delete("c")
    scene.worker().run()
    scene.source.ends |= {P0: 20, P1: 5}
    scene.signal = HandSignal(scene.clock)
    again = {**RAW, "offset.source": "group"}
    scene.herder.create("c", again)
    made = InProcess(scene.store, TwoPhase)
    driver = ConnectorDriver(
        Environment(
            scene.store, clock=scene.clock, signal=scene.signal, threads=Threads(calls=InlineExecutor)
        ),
        source=scene.source,
        connector=Connector(),
        config=ConnectorConfig.parse(again),
        raw=again,
        launcher=made,
        group=scene.group,
    )
    driver.run(until_caught_up=True)

    read = {r.topic_partition: (r.start, r.end) for p in made.plans for t in p.tasks for r in t.ranges}
    assert read == {P0: (15, 20), P1: (0, 5)}
    assert scene.outside.seen == ["t-0 to 10", "t-0 to 15", "t-0 to 20", "t-1 to 5"]
    assert scene.signal.reason is None or scene.signal.reason is ClosingReason.REBALANCE


@pytest.fixture
def halves() -> Scene:
    scene = Scene(OfHalves)
    scene.leave_unpublished()
    scene.outside.is_down, scene.outside.lost = False, "odd to 15"
    return scene


def go_on_from_the_group(scene: Scene) -> list[int]:
    assert scene.is_gone()
    scene.source.ends[P0] = 20
    scene.herder.create("c", {**RAW, "offset.source": "group"})
    scene.worker(stays=False).run(until_caught_up=True)
    return sorted(scene.outside.rows)


def test_a_connector_is_deleted_once_no_record_is_visible_above_its_commits(halves: Scene) -> None:
    # Regression: records 10, 12 and 14 were visible and the group was at 10, so they were read twice.
    halves.herder.delete("c")
    halves.worker().run()

    assert halves.group.at == {P0: 15}
    assert halves.outside.calls.count("stop True") == 1
    assert halves.outside.calls[-1] == "stop True"
    assert go_on_from_the_group(halves) == list(range(20))


@pytest.mark.parametrize("state", ["pause", "stop"])
def test_an_idle_connector_runs_until_no_record_is_visible_above_its_commits(
    halves: Scene, state: str
) -> None:
    getattr(halves.herder, state)("c")
    halves.herder.configure("c", {**RAW, "generation.max.records": "5"})
    halves.source.ends[P0] = 1_000
    halves.herder.delete("c")
    halves.worker().run()

    assert halves.group.at == {P0: 15}
    assert sorted(halves.outside.rows) == list(range(15))
    assert halves.is_gone()


def test_a_deletion_without_a_driver_shows_the_reason_for_its_wait(halves: Scene) -> None:
    # Only a driver can read rows: the next one deletes the connector, with any configuration.
    halves.herder.delete("c")
    with pytest.raises(PartlyVisibleException) as refused:
        halves.worker(drivers=None, stays=False, patience=5.0).run()

    assert "connector c is not deleted yet: some records of t-0 from offset 10 up to 15 are visible" in str(
        refused.value
    )
    assert "'sinksdk run'" in str(refused.value)
    assert "stop True" not in halves.outside.calls
    halves.worker(stays=False, brings_config=True).run(until_caught_up=True)
    assert halves.outside.calls[-1] == "stop True"
    assert go_on_from_the_group(halves) == list(range(20))


def test_a_running_deleted_connector_commits_beyond_visible_records(halves: Scene) -> None:
    def delete() -> None:
        halves.herder.delete("c")

    halves.outside.on_lost = delete
    halves.worker().run()

    assert halves.outside.calls[:2] == ["start", "stop False"]
    assert halves.outside.calls.count("stop True") == 1
    assert go_on_from_the_group(halves) == list(range(20))


def test_forced_deletion_logs_records_that_may_be_duplicated(
    halves: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    halves.herder.delete("c", force=True)
    halves.worker(drivers=None, stays=False).run()

    assert halves.is_gone()
    assert halves.group.at == {P0: 10}
    assert (
        "some records of t-0 from offset 10 up to 15 are visible but not committed; a connector that"
        in caplog.text
    )


def test_force_ends_the_wait_of_a_driver_that_cannot_commit_further(halves: Scene) -> None:
    halves.herder.delete("c")

    def goes_away() -> None:
        halves.outside.is_down = True

    def go_on() -> None:
        if halves.clock.at > 60:
            halves.outside.is_down = False
            halves.herder.delete("c", force=True)

    halves.outside.on_lost, halves.clock.on_wait = goes_away, go_on
    halves.worker().run()

    assert halves.is_gone()
