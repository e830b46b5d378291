"""Offsets recovered from the destination, after a store was lost or restored."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sinksdk import ConnectException, FencedException, OffsetAndMetadata, TopicPartition
from sinksdk.control.herder import Herder
from sinksdk.control.offsets import OffsetsRefusedException, OpenedSink
from sinksdk.testing.faults import ManualClock
from tests.control.test_alter_offsets import RAW, Setup, Watermark, WatermarkConfig
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sinks import P0, P1


class Holding(Watermark):
    def recover_offsets(
        self, config: WatermarkConfig, given: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        if self.error is not None:
            raise self.error
        return {P0: 70, **given}


def recovering(setup: Setup) -> tuple[Herder, Holding]:
    connector = Holding()
    opened = OpenedSink(connector, WatermarkConfig.parse(RAW))
    return Herder(setup.store, setup.clock, sinks=lambda raw: opened), connector


def test_recovered_offsets_of_the_destination_are_committed() -> None:
    setup = Setup()
    herder, connector = recovering(setup)

    assert herder.recover_offsets("c", RAW, {P1: 5}) == {P0: 70, P1: 5}
    assert connector.altered == [(7, {P0: 70, P1: 5})]
    assert setup.committed() == {P0: 70, P1: 5}


def test_recovering_offsets_stops_a_running_connector_and_fences_its_tasks() -> None:
    setup = Setup()
    setup.herder.resume("c")
    herder, _ = recovering(setup)
    herder.recover_offsets("c", {**RAW, "level": "8"}, {})

    assert herder.connector("c").target_state == "STOPPED"
    assert herder.connector("c").config["level"] == "8"
    with pytest.raises(FencedException):
        setup.task.commit({P0: OffsetAndMetadata(11)})


def test_recovering_offsets_creates_a_connector_that_the_store_lacks() -> None:
    # A stopped connector is not started before its offsets are committed.
    connector, store = Holding(), MemoryStore()
    opened = OpenedSink(connector, WatermarkConfig.parse(RAW))
    herder = Herder(store, ManualClock(), sinks=lambda raw: opened)

    assert herder.recover_offsets("c", RAW, {}) == {P0: 70}
    assert herder.connector("c").target_state == "STOPPED"


def test_no_offsets_are_recovered_if_recover_offsets_fails() -> None:
    setup = Setup()
    herder, connector = recovering(setup)
    connector.error = ConnectException("give t-0")

    with pytest.raises(OffsetsRefusedException, match=r"recover_offsets failed.*give t-0"):
        herder.recover_offsets("c", RAW, {})
    with pytest.raises(OffsetsRefusedException, match="set them with 'sinksdk offsets alter'"):
        setup.herder.recover_offsets("c", RAW, {})
    assert setup.committed() == {P0: 10}
