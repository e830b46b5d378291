"""An operator alters a sink's offsets (KIP-875): calls of the connector, closing tasks, refusals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from sinksdk import (
    ConfigException,
    ConnectException,
    ConnectorConfig,
    FencedException,
    OffsetAndMetadata,
    RetriableException,
    SinkConnector,
    TopicPartition,
)
from sinksdk.control.herder import Herder
from sinksdk.control.liveness import ConnectorClosingException
from sinksdk.control.offsets import OffsetsRefusedException, OpenedSink
from sinksdk.control.status import StatusKeeper
from sinksdk.store import committed_offsets
from sinksdk.store.ledger import TaskLedger
from sinksdk.testing.faults import ManualClock
from tests.control.test_herder import running_task
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sinks import P0, P1, Source, Task

RAW = {
    "name": "c",
    "topics": "t",
    "connector.class": "tests.control.test_alter_offsets:Watermark",
    "level": "7",
}
DRIVER = "elsewhere:1#1"


class WatermarkConfig(ConnectorConfig):
    level: int = 0


class Watermark(SinkConnector):
    task_class = Task
    config_class = WatermarkConfig

    def __init__(self) -> None:
        self.altered: list[tuple[int, dict[TopicPartition, int | None]]] = []
        self.committed: Callable[[], object] = lambda: None
        self.seen: list[object] = []
        self.error: Exception | None = None

    def alter_offsets(self, config: WatermarkConfig, offsets: Mapping[TopicPartition, int | None]) -> bool:
        self.altered.append((config.level, dict(offsets)))
        self.seen.append(self.committed())
        if self.error is not None:
            raise self.error
        return True


class Setup:
    def __init__(self, source: Source | None = None) -> None:
        self.store = MemoryStore()
        self.clock = ManualClock()
        self.connector = Watermark()
        self.connector.committed = self.committed
        opened = OpenedSink(
            self.connector, WatermarkConfig.parse(RAW), None if source is None else lambda: source
        )
        self.herder = Herder(self.store, self.clock, sinks=lambda raw: opened)
        self.herder.create("c", RAW)
        self.task: TaskLedger = running_task(self.store, "c")
        self.task.commit({P0: OffsetAndMetadata(10)})
        self.herder.stop("c")

    def committed(self) -> dict[TopicPartition, int]:
        return {p: at.offset for p, at in committed_offsets(self.store, "c").items()}

    def driven(self) -> StatusKeeper:
        status = StatusKeeper(self.store, "c", DRIVER, self.clock)
        status.become("RUNNING")
        return status


def test_alter_offsets_is_called_before_offsets_are_committed() -> None:
    # A sink with its own watermark would otherwise skip the records that are read again.
    setup = Setup()
    setup.herder.alter_offsets("c", {P0: 4, P1: None})

    assert setup.connector.altered == [(7, {P0: 4, P1: None})]
    assert setup.connector.seen == [{P0: 10}]
    assert setup.committed() == {P0: 4}


def test_a_reset_passes_every_committed_partition_to_the_connector() -> None:
    # A reset has the offset None for each partition. A second reset has no partitions, as in Connect.
    setup = Setup()
    setup.herder.reset_offsets("c")
    setup.herder.reset_offsets("c")

    assert setup.connector.altered == [(7, {P0: None}), (7, {})]
    assert setup.committed() == {}


def test_the_connector_has_its_identity_during_alter_offsets() -> None:
    setup = Setup()
    setup.herder.alter_offsets("c", {P0: 4})

    assert setup.connector.identity.connector == "c"
    assert setup.connector.identity.incarnation == setup.herder.connector("c").incarnation


@pytest.mark.parametrize(
    "error",
    [ConnectException("no such place"), RetriableException("no such place"), KeyError("no such place")],
)
def test_offsets_that_the_connector_refuses_are_not_committed(error: Exception) -> None:
    setup = Setup()
    setup.connector.error = error
    for request in (
        lambda: setup.herder.alter_offsets("c", {P0: 4}),
        lambda: setup.herder.reset_offsets("c"),
    ):
        with pytest.raises(
            OffsetsRefusedException, match=r"connector c: alter_offsets failed.*no such place"
        ):
            request()
    assert setup.committed() == {P0: 10}


def test_the_herder_creates_the_configured_connector_by_default(
    monkeypatch: pytest.MonkeyPatch, store: MemoryStore
) -> None:
    levels: list[int] = []

    def alter_offsets(self: Watermark, config: WatermarkConfig, offsets: Any) -> bool:
        levels.append(config.level)
        return False

    monkeypatch.setattr(Watermark, "alter_offsets", alter_offsets)
    Herder(store).create("c", RAW, "STOPPED")

    assert Herder(store).alter_offsets("c", {P0: 4}) == {P0: 4}, "False: it keeps no offsets of its own"
    assert levels == [7]


def test_offsets_are_not_altered_if_the_connector_cannot_be_created(store: MemoryStore) -> None:
    Herder(store).create("c", {**RAW, "connector.class": "nowhere:Sink"}, "STOPPED")

    with pytest.raises(
        ConfigException,
        match=r"connector 'c': alter_offsets cannot be called.*no offsets were altered.*nowhere",
    ):
        Herder(store).alter_offsets("c", {P0: 4})
    assert committed_offsets(store, "c") == {}


@pytest.mark.parametrize(
    ("offset", "problem"),
    [
        (-5, "t-0: offset -5 is below 0"),
        (21, "t-0: offset 21 is not in the source, which has offsets 0 to 20"),
    ],
)
def test_offsets_that_no_record_can_have_are_refused(offset: int, problem: str) -> None:
    # The connector is not called, and no driver is fenced.
    setup = Setup(Source({P0: 20}))
    with pytest.raises(ConfigException, match=f"connector c: no offsets were altered: {problem}"):
        setup.herder.alter_offsets("c", {P0: offset})

    assert setup.connector.altered == []
    setup.task.commit({P0: OffsetAndMetadata(11)})


def test_offsets_from_the_start_to_the_end_of_the_source_are_accepted() -> None:
    setup = Setup(Source({P0: 20}))
    assert setup.herder.alter_offsets("c", {P0: 0}) == {P0: 0}
    assert setup.herder.alter_offsets("c", {P0: 20}) == {P0: 20}


def test_a_partition_missing_in_the_source_can_only_be_reset() -> None:
    setup = Setup(Source({P0: 20}))
    with pytest.raises(ConfigException, match="t-1: the source has no such partition"):
        setup.herder.alter_offsets("c", {P0: 5, P1: 5})
    assert setup.herder.alter_offsets("c", {P0: None, P1: None}) == {}


def test_offsets_are_not_altered_while_the_source_does_not_respond() -> None:
    setup = Setup(Source({P0: 20}, RetriableException("no broker answers")))
    with pytest.raises(RetriableException, match="no broker answers"):
        setup.herder.alter_offsets("c", {P0: 5})
    assert setup.committed() == {P0: 10}


def test_without_a_source_only_negative_offsets_are_refused() -> None:
    setup = Setup()
    with pytest.raises(ConfigException, match="t-0: offset -1 is below 0"):
        setup.herder.alter_offsets("c", {P0: -1})
    assert setup.herder.alter_offsets("c", {P0: 1_000}) == {P0: 1_000}


def closing(setup: Setup, seconds: float, then: Callable[[], None]) -> None:
    status, done_at = setup.driven(), setup.clock.now() + seconds

    class Clock(ManualClock):
        is_done = False

    def sleep(delay: float) -> None:
        setup.clock.advance(delay)
        if setup.clock.now() < done_at:
            status.save_if_due()
        elif not Clock.is_done:
            Clock.is_done = True
            then()
            status.become("UNASSIGNED")

    setup.clock.sleep = sleep  # type: ignore[method-assign]  # what happens meanwhile


def test_offsets_are_altered_after_closing_tasks_have_committed() -> None:
    # Regression: the last commit of closing tasks was lost, and the driver ended as if another one had taken
    # over.
    setup = Setup()
    closing(setup, 50.0, lambda: setup.task.commit({P0: OffsetAndMetadata(600), P1: OffsetAndMetadata(8)}))

    assert setup.herder.alter_offsets("c", {P1: 5}) == {P0: 600, P1: 5}


def test_a_reset_includes_the_commit_of_a_closing_task() -> None:
    setup = Setup()
    closing(setup, 5.0, lambda: setup.task.commit({P1: OffsetAndMetadata(8)}))
    setup.herder.reset_offsets("c")

    assert setup.committed() == {}
    assert setup.connector.altered == [(7, {P0: None, P1: None})]


@pytest.mark.parametrize(("patience", "seconds"), [(30.0, 30.0), (1_000.0, 70.0)])
def test_altering_waits_for_closing_tasks_at_most_the_graceful_timeout_or_patience(
    patience: float, seconds: float
) -> None:
    setup = Setup()
    closing(setup, 1e6, lambda: None)
    begun = setup.clock.now()
    with pytest.raises(ConnectorClosingException, match=r"connector c is still closing.*try again"):
        setup.herder.alter_offsets("c", {P0: 5}, patience=patience)

    assert setup.clock.now() - begun == pytest.approx(seconds, abs=1.0)
    setup.task.commit({P0: OffsetAndMetadata(600)})
    assert setup.connector.altered == []


def test_altering_does_not_wait_for_a_dead_driver() -> None:
    # The driver has stopped sending heartbeats; if it resumes, it is fenced.
    setup = Setup()
    setup.driven()

    assert setup.herder.alter_offsets("c", {P0: 5}) == {P0: 5}
    with pytest.raises(FencedException):
        setup.task.commit({P0: OffsetAndMetadata(600)})
