from __future__ import annotations

import pytest

from sinksdk import ConnectException, RetriableException
from sinksdk.testing import Crash, Fault, FaultKind, FaultPlan, ManualClock
from sinksdk.testing.contract import upcoming
from sinksdk.testing.faults import SLOW_SECONDS

ERRORS = {
    FaultKind.RETRIABLE: (RetriableException, 0),
    FaultKind.PERMANENT: (ConnectException, 0),
    FaultKind.LOST_RESPONSE: (RetriableException, 1),
    FaultKind.CRASH_BEFORE: (Crash, 0),
    FaultKind.CRASH_AFTER: (Crash, 1),
}


@pytest.mark.parametrize("kind", ERRORS)
def test_fault_hits_the_nth_operation(kind: FaultKind) -> None:
    plan, effects = FaultPlan(Fault(at=2, kind=kind)), list[int]()
    error, has_effect = ERRORS[kind]
    plan.run("destination", lambda: effects.append(0))
    plan.run("destination", lambda: effects.append(1))
    with pytest.raises(error):
        plan.run("destination", lambda: effects.append(2))

    assert effects == [0, 1, 2][: 2 + has_effect]
    assert plan.happened == {("destination", kind): 1}


def test_each_kind_of_operation_is_counted_separately() -> None:
    plan = FaultPlan(Fault("commit log", 0, FaultKind.PERMANENT))

    assert plan.run("destination", lambda: "well") == "well"
    with pytest.raises(ConnectException, match="commit log: refused"):
        plan.run("commit log", lambda: None)


def test_counting_begins_when_a_fault_is_armed() -> None:
    plan = FaultPlan()
    plan.run("destination", lambda: None)
    plan.arm(Fault(at=0, kind=FaultKind.RETRIABLE))
    with pytest.raises(RetriableException):
        plan.run("destination", lambda: None)


def test_disarmed_faults_do_not_happen() -> None:
    plan = FaultPlan(Fault())
    plan.disarm()

    assert plan.run("destination", lambda: 1) == 1
    assert not plan.happened


def test_operations_after_a_crash_have_no_effect() -> None:
    plan, effects = FaultPlan(Fault(kind=FaultKind.CRASH_BEFORE)), list[int]()
    for _ in range(2):
        with pytest.raises(Crash):
            plan.run("destination", lambda: effects.append(1))
    plan.restart()
    plan.run("destination", lambda: effects.append(2))

    assert effects == [2]


def test_crash_is_not_an_exception_that_a_sink_catches() -> None:
    assert not issubclass(Crash, Exception)


def test_a_slow_operation_takes_longer_than_the_runtime_waits() -> None:
    clock, effects = ManualClock(), list[int]()
    plan = FaultPlan(Fault(kind=FaultKind.SLOW), Fault(at=1, kind=FaultKind.SLOW), clock=clock)
    before = clock.now()
    plan.run("destination", lambda: effects.append(1))
    assert clock.now() == before + SLOW_SECONDS

    plan.deadline = clock.now() + 60
    with pytest.raises(Crash):
        plan.run("destination", lambda: effects.append(2))
    assert effects == [1, 2]


def test_upcoming_operations_have_english_ordinal_numbers() -> None:
    assert upcoming(0, "call") == "next call"
    counted = {
        at + 1: upcoming(at, "call").removesuffix(" call from now")
        for at in (1, 2, 3, 10, 11, 12, 20, 21, 22, 110, 120)
    }
    assert counted == {
        2: "2nd",
        3: "3rd",
        4: "4th",
        11: "11th",
        12: "12th",
        13: "13th",
        21: "21st",
        22: "22nd",
        23: "23rd",
        111: "111th",
        121: "121st",
    }
