"""Offsets recovered from the destination, after a store was lost or restored."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sinksdk import ConnectException, FencedException, OffsetAndMetadata, TopicPartition
from sinksdk.control.herder import Herder
from sinksdk.control.offsets import OffsetsRefusedException
from sinksdk.control.sink_offsets import OpenedSink
from sinksdk.testing.faults import ManualClock
from tests.control.test_alter_offsets import RAW, Place, Watermark, WatermarkConfig
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sinks import P0, P1


class Holding(Watermark):
    def recover_offsets(
        self, config: WatermarkConfig, given: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        if self.error is not None:
            raise self.error
        return {P0: 70, **given}


def recovering(place: Place) -> tuple[Herder, Holding]:
    connector = Holding()
    opened = OpenedSink(connector, WatermarkConfig.parse(RAW))
    return Herder(place.store, place.clock, sinks=lambda raw: opened), connector


def test_what_the_destination_holds_is_committed() -> None:
    place = Place()
    herder, connector = recovering(place)

    assert herder.recover_offsets("c", RAW, {P1: 5}) == {P0: 70, P1: 5}
    assert connector.asked == [(7, {P0: 70, P1: 5})]
    assert place.committed() == {P0: 70, P1: 5}


def test_a_connector_that_runs_is_stopped_and_its_tasks_are_fenced() -> None:
    place = Place()
    place.herder.resume("c")
    herder, _ = recovering(place)
    herder.recover_offsets("c", {**RAW, "level": "8"}, {})

    assert herder.connector("c").target_state == "STOPPED"
    assert herder.connector("c").config["level"] == "8"
    with pytest.raises(FencedException):
        place.task.commit({P0: OffsetAndMetadata(11)})


def test_a_lost_store_has_the_connector_again() -> None:
    # A stopped connector is not started before its offsets are committed.
    connector, store = Holding(), MemoryStore()
    opened = OpenedSink(connector, WatermarkConfig.parse(RAW))
    herder = Herder(store, ManualClock(), sinks=lambda raw: opened)

    assert herder.recover_offsets("c", RAW, {}) == {P0: 70}
    assert herder.connector("c").target_state == "STOPPED"


def test_a_connector_that_does_not_know_changes_nothing() -> None:
    place = Place()
    herder, connector = recovering(place)
    connector.error = ConnectException("give t-0")

    with pytest.raises(OffsetsRefusedException, match=r"its recover_offsets refuses this.*give t-0"):
        herder.recover_offsets("c", RAW, {})
    with pytest.raises(OffsetsRefusedException, match="alter them by hand"):
        place.herder.recover_offsets("c", RAW, {})
    assert place.committed() == {P0: 10}
