"""An operator alters a sink's offsets: who is called, who is waited for, and what is refused (KIP-875)."""

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
from sinksdk.control.offsets import OffsetsRefusedException
from sinksdk.control.sink_offsets import OpenedSink
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
        self.asked: list[tuple[int, dict[TopicPartition, int | None]]] = []
        self.committed: Callable[[], object] = lambda: None
        self.seen: list[object] = []
        self.error: Exception | None = None

    def alter_offsets(self, config: WatermarkConfig, offsets: Mapping[TopicPartition, int | None]) -> bool:
        self.asked.append((config.level, dict(offsets)))
        self.seen.append(self.committed())
        if self.error is not None:
            raise self.error
        return True


class Place:
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


def test_the_connector_is_asked_before_anything_is_written() -> None:
    # A sink with its own watermark would otherwise skip the records that are read again.
    place = Place()
    place.herder.alter_offsets("c", {P0: 4, P1: None})

    assert place.connector.asked == [(7, {P0: 4, P1: None})]
    assert place.connector.seen == [{P0: 10}]
    assert place.committed() == {P0: 4}


def test_a_reset_is_told_with_every_partition_that_is_committed() -> None:
    # Each offset is None; a second reset has no partitions, as in Connect.
    place = Place()
    place.herder.reset_offsets("c")
    place.herder.reset_offsets("c")

    assert place.connector.asked == [(7, {P0: None}), (7, {})]
    assert place.committed() == {}


def test_the_connector_knows_who_it_is_when_it_is_asked() -> None:
    place = Place()
    place.herder.alter_offsets("c", {P0: 4})

    assert place.connector.identity.connector == "c"
    assert place.connector.identity.incarnation == place.herder.connector("c").incarnation


@pytest.mark.parametrize(
    "error",
    [ConnectException("no such place"), RetriableException("no such place"), KeyError("no such place")],
)
def test_what_the_connector_refuses_is_not_written(error: Exception) -> None:
    place = Place()
    place.connector.error = error
    for wish in (lambda: place.herder.alter_offsets("c", {P0: 4}), lambda: place.herder.reset_offsets("c")):
        with pytest.raises(OffsetsRefusedException, match=r"connector c: its alter_offsets.*no such place"):
            wish()
    assert place.committed() == {P0: 10}


def test_by_default_the_connector_is_made_as_its_configuration_says(
    monkeypatch: pytest.MonkeyPatch, store: MemoryStore
) -> None:
    asked: list[int] = []

    def alter_offsets(self: Watermark, config: WatermarkConfig, offsets: Any) -> bool:
        asked.append(config.level)
        return False

    monkeypatch.setattr(Watermark, "alter_offsets", alter_offsets)
    Herder(store).create("c", RAW, "STOPPED")

    assert Herder(store).alter_offsets("c", {P0: 4}) == {P0: 4}, "False: it keeps no offsets of its own"
    assert asked == [7]


def test_a_connector_that_cannot_be_made_is_not_passed_over(store: MemoryStore) -> None:
    Herder(store).create("c", {**RAW, "connector.class": "nowhere:Sink"}, "STOPPED")

    with pytest.raises(ConfigException, match=r"connector 'c' cannot be asked.*nothing was altered.*nowhere"):
        Herder(store).alter_offsets("c", {P0: 4})
    assert committed_offsets(store, "c") == {}


@pytest.mark.parametrize(
    ("offset", "problem"),
    [
        (-5, "t-0: offset -5 is below 0"),
        (21, "t-0: offset 21 is not in the source, which has 0 to 20"),
    ],
)
def test_offsets_that_no_record_can_have_are_refused(offset: int, problem: str) -> None:
    # The connector is not called, and no driver is fenced.
    place = Place(Source({P0: 20}))
    with pytest.raises(ConfigException, match=f"connector c: nothing was altered: {problem}"):
        place.herder.alter_offsets("c", {P0: offset})

    assert place.connector.asked == []
    place.task.commit({P0: OffsetAndMetadata(11)})


def test_the_whole_range_of_the_source_may_be_set() -> None:
    place = Place(Source({P0: 20}))
    assert place.herder.alter_offsets("c", {P0: 0}) == {P0: 0}
    assert place.herder.alter_offsets("c", {P0: 20}) == {P0: 20}


def test_partitions_that_the_source_does_not_have_are_set_nowhere_and_taken_back_all_the_same() -> None:
    place = Place(Source({P0: 20}))
    with pytest.raises(ConfigException, match="t-1: the source has no such partition"):
        place.herder.alter_offsets("c", {P0: 5, P1: 5})
    assert place.herder.alter_offsets("c", {P0: None, P1: None}) == {}


def test_a_source_that_does_not_answer_says_nothing_of_an_offset() -> None:
    place = Place(Source({P0: 20}, RetriableException("no broker answers")))
    with pytest.raises(RetriableException, match="no broker answers"):
        place.herder.alter_offsets("c", {P0: 5})
    assert place.committed() == {P0: 10}


def test_without_a_source_only_what_is_impossible_anywhere_is_refused() -> None:
    place = Place()
    with pytest.raises(ConfigException, match="t-0: offset -1 is below 0"):
        place.herder.alter_offsets("c", {P0: -1})
    assert place.herder.alter_offsets("c", {P0: 1_000}) == {P0: 1_000}


def closing(place: Place, seconds: float, then: Callable[[], None]) -> None:
    status, done_at = place.driven(), place.clock.now() + seconds

    class Clock(ManualClock):
        is_done = False

    def sleep(delay: float) -> None:
        place.clock.advance(delay)
        if place.clock.now() < done_at:
            status.save_if_due()
        elif not Clock.is_done:
            Clock.is_done = True
            then()
            status.become("UNASSIGNED")

    place.clock.sleep = sleep  # type: ignore[method-assign]  # what happens meanwhile


def test_tasks_that_are_closing_commit_first() -> None:
    # Regression: their last commit was lost, and the driver ended as if another one had taken over.
    place = Place()
    closing(place, 50.0, lambda: place.task.commit({P0: OffsetAndMetadata(600), P1: OffsetAndMetadata(8)}))

    assert place.herder.alter_offsets("c", {P1: 5}) == {P0: 600, P1: 5}


def test_what_a_closing_task_commits_is_reset_with_the_rest() -> None:
    place = Place()
    closing(place, 5.0, lambda: place.task.commit({P1: OffsetAndMetadata(8)}))
    place.herder.reset_offsets("c")

    assert place.committed() == {}
    assert place.connector.asked == [(7, {P0: None, P1: None})]


@pytest.mark.parametrize(("patience", "seconds"), [(30.0, 30.0), (1_000.0, 70.0)])
def test_it_is_waited_for_as_long_as_closing_may_take_and_no_longer(patience: float, seconds: float) -> None:
    place = Place()
    closing(place, 1e6, lambda: None)
    begun = place.clock.now()
    with pytest.raises(ConnectorClosingException, match=r"connector c is still closing.*try again"):
        place.herder.alter_offsets("c", {P0: 5}, patience=patience)

    assert place.clock.now() - begun == pytest.approx(seconds, abs=1.0)
    place.task.commit({P0: OffsetAndMetadata(600)})
    assert place.connector.asked == []


def test_a_driver_that_has_died_is_not_waited_for_as_if_it_closed() -> None:
    # The heartbeat stands still; a zombie of the driver is fenced.
    place = Place()
    place.driven()

    assert place.herder.alter_offsets("c", {P0: 5}) == {P0: 5}
    with pytest.raises(FencedException):
        place.task.commit({P0: OffsetAndMetadata(600)})
