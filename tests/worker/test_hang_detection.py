"""A task whose own code hangs is reported once, with the lines of its threads."""

from __future__ import annotations

import threading

from sinksdk.testing import ManualClock
from sinksdk.worker.watches import HangWatch


def watch(limit: float, clock: ManualClock, told: list[str]) -> HangWatch:
    def report(text: str) -> bool:
        told.append(text)
        return True

    return HangWatch("connector c, task 3, generation 7", limit, clock, report)


def test_a_hang_is_reported_once_with_its_stack() -> None:
    clock, told = ManualClock(), list[str]()
    watching = watch(5.0, clock, told)
    for _ in range(3):
        clock.advance(4.0)
        watching.check()
    assert len(told) == 1
    assert told[0].startswith(
        "connector c, task 3, generation 7: its code has not returned for 8.0 s; it is at"
    )
    assert "test_hang_detection.py" in told[0]
    first = told[0].splitlines()[0]
    assert "it is at File " in first, "the status shows this line alone"
    assert ", in " in first


def test_a_call_resets_the_hang_timeout() -> None:
    clock, told = ManualClock(), list[str]()
    watching = watch(5.0, clock, told)
    asked = watching.alive(lambda: "closing?")
    for _ in range(5):
        clock.advance(4.0)
        assert asked() == "closing?"
        watching.check()
    assert told == []


def test_the_hang_watch_runs_in_its_own_thread() -> None:
    told, reported = list[str](), threading.Event()

    def report(text: str) -> bool:
        told.append(text)
        reported.set()
        return True

    from sinksdk.engine import SystemClock  # noqa: PLC0415 - only here is time real

    with HangWatch("c", 0.05, SystemClock(), report):
        assert reported.wait(5)
    assert len(told) == 1


def test_a_hang_timeout_of_zero_disables_the_watch() -> None:
    before = threading.active_count()
    with watch(0.0, ManualClock(), []):
        assert threading.active_count() == before


def test_a_hang_report_that_was_not_stored_is_repeated() -> None:
    clock, told, is_heard = ManualClock(), list[str](), iter([False, False, True])

    def report(text: str) -> bool:
        told.append(text)
        return next(is_heard)

    watching = HangWatch("c, task 0", 5.0, clock, report)
    for _ in range(6):
        clock.advance(5.0)
        watching.check()
    assert len(told) == 3
    assert set(told) == {told[0]}


def test_a_hang_that_ends_before_its_report_is_stored_is_dropped() -> None:
    clock, told = ManualClock(), list[str]()

    def report(text: str) -> bool:
        told.append(text)
        return False

    watching = HangWatch("c, task 0", 5.0, clock, report)
    asked = watching.alive(lambda: None)
    clock.advance(5.0)
    watching.check()
    asked()
    watching.check()
    assert len(told) == 1
