from __future__ import annotations

import pytest

from sinksdk import ConnectException, RetriableException, SinkRecord
from sinksdk.testing import Fault, FaultKind, FaultPlan, MemoryDestination


def record(offset: int, value: bytes = b"v") -> SinkRecord:
    return SinkRecord("t", 0, offset, value=value)


def seen(destination: MemoryDestination) -> list[int]:
    return [offset for _, _, offset, _ in destination.read_back()]


def test_write_replaces_the_artefact_of_the_same_name() -> None:
    destination = MemoryDestination()
    destination.write("a", [record(0), record(1)])
    destination.write("a", [record(2)])
    assert seen(destination) == [2]


def test_append_keeps_earlier_records() -> None:
    destination = MemoryDestination()
    destination.append("log", [record(0)])
    destination.append("log", [record(0)])
    assert seen(destination) == [0, 0]


def test_upsert_replaces_records_with_the_same_coordinates() -> None:
    destination = MemoryDestination()
    destination.upsert("table", [record(0), record(1)])
    destination.upsert("table", [record(1, b"new"), record(2)])
    assert destination.read_back() == [("t", 0, 0, b"v"), ("t", 0, 1, b"new"), ("t", 0, 2, b"v")]


def test_begun_artefact_is_visible_after_publish() -> None:
    destination = MemoryDestination()
    name = destination.begin()
    destination.fill(name, [record(0)])
    assert (seen(destination), destination.leftovers()) == ([], [name])
    destination.publish(name)
    destination.publish(name)
    assert (seen(destination), destination.leftovers()) == ([0], [])


def test_discarded_artefact_cannot_be_filled_or_published() -> None:
    destination = MemoryDestination()
    name = destination.begin()
    destination.discard(name)
    destination.discard(name)
    for forbidden in (lambda: destination.fill(name, []), lambda: destination.publish(name)):
        with pytest.raises(ConnectException, match="staged-0 does not exist"):
            forbidden()


def test_empty_artefact_is_not_a_leftover() -> None:
    destination = MemoryDestination()
    assert destination.begin() != destination.begin()
    assert destination.leftovers() == []


def test_planned_fault_fails_its_operation() -> None:
    destination = MemoryDestination(FaultPlan(Fault(at=1, kind=FaultKind.LOST_RESPONSE)))
    destination.append("log", [record(0)])
    with pytest.raises(RetriableException):
        destination.append("log", [record(1)])
    assert seen(destination) == [0, 1]
