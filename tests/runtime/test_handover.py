"""A second driver asks the running one to close, waits for it, and takes over in any case."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sinksdk import ClosingReason, FencedException, TopicPartition
from sinksdk.control.liveness import SILENCE, deregister, is_gone, register
from sinksdk.control.requests import ClosingSignal
from sinksdk.control.status import StatusKeeper
from sinksdk.model.plan import RangePlan
from sinksdk.runtime.handover import Handover
from sinksdk.store import closing_request
from sinksdk.store.generations import Generations
from sinksdk.store.ledger import current_plan
from sinksdk.store.records import Closing, TaskPlan
from sinksdk.testing import ManualClock
from tests.helpers.memory_store import MemoryStore

TP = TopicPartition("t", 0)
GRACEFUL = 60.0


class Signal(ClosingSignal):
    def __init__(self, site: Site) -> None:
        super().__init__()
        self._site = site

    def wait(self, timeout: float) -> bool:
        if self._site.wait(timeout):
            self.request(ClosingReason.SHUTDOWN)
        return super().wait(0)


class Site:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.clock = ManualClock()
        self.old = Generations(self.store, "c")
        self.status = StatusKeeper(self.store, "c", "elsewhere:1#1", self.clock)
        self.while_waiting: Callable[[], bool] = lambda: False
        self.waited = 0.0

    def run_generation(self) -> None:
        claim = self.old.claim()
        ranges = (RangePlan.of(TP, 0, end=10),)
        self.old.plan(claim, [TaskPlan(ranges=ranges)], 1)
        self.status.become("RUNNING")

    def wait(self, seconds: float) -> bool:
        self.clock.advance(seconds)
        self.waited += seconds
        return self.while_waiting()

    def await_turn(self) -> bool:
        return Handover(
            self.store, "c", "here:2#1", clock=self.clock, signal=Signal(self), graceful=GRACEFUL
        ).await_turn()

    @property
    def closing(self) -> Closing | None:
        plan = current_plan(self.store, "c", 1)
        assert plan is not None
        return plan.closing


@pytest.fixture
def site() -> Site:
    return Site()


def test_a_driver_does_not_wait_without_a_running_generation(site: Site) -> None:
    assert site.await_turn()
    site.old.claim()

    assert site.await_turn()
    assert site.waited == 0


def test_a_driver_requests_a_close_and_waits_for_the_response(site: Site) -> None:
    site.run_generation()
    asked = []

    def old_driver() -> bool:
        site.status.save()
        asked.append(site.old.successor())
        if site.waited >= 3:
            assert site.old.yield_to_successor() == "here:2#1"
        return False

    site.while_waiting = old_driver

    began = site.clock.time()

    assert site.await_turn()
    assert site.closing == Closing(
        reason=ClosingReason.REBALANCE,
        timeout=GRACEFUL,
        successor="here:2#1",
        answered=True,
        asked=began,
    )
    assert set(asked) == {"here:2#1"}
    assert site.waited == pytest.approx(3, abs=0.3)


def test_a_driver_without_a_response_is_awaited_up_to_the_graceful_timeout(site: Site) -> None:
    site.run_generation()
    site.while_waiting = lambda: bool(site.status.save())

    assert site.await_turn()
    assert site.waited == pytest.approx(GRACEFUL + 10, abs=0.5)


def test_a_driver_without_heartbeats_is_not_awaited(site: Site) -> None:
    # The running driver is frozen or dead: the wait ends ten seconds after its last heartbeat.
    site.run_generation()

    assert site.await_turn()
    assert site.waited == pytest.approx(SILENCE, abs=0.5)


def test_a_driver_with_an_old_heartbeat_is_not_awaited(site: Site) -> None:
    # The driver ended a day earlier.
    site.run_generation()
    site.clock.advance(3600)

    assert site.await_turn()
    assert site.waited == 0


@pytest.mark.parametrize("state", ["UNASSIGNED", "FAILED"])
def test_a_driver_that_has_ended_is_not_awaited(site: Site, state: str) -> None:
    site.run_generation()
    site.status.become(state)  # type: ignore[arg-type] # one of the states

    assert site.await_turn()
    assert site.waited == 0


def test_a_waiting_driver_that_is_stopped_claims_no_generation(site: Site) -> None:
    # A signal ends the new driver while it waits; the running driver continues.
    site.run_generation()
    site.while_waiting = lambda: True

    assert not site.await_turn()
    assert site.old.successor() is None
    assert site.old.yield_to_successor() is None


def test_an_earlier_closing_reason_is_kept(site: Site) -> None:
    site.run_generation()
    site.old.close_running(Closing(reason=ClosingReason.SHUTDOWN, timeout=5.0))

    assert site.await_turn()
    assert site.closing == Closing(reason=ClosingReason.SHUTDOWN, timeout=5.0, successor="here:2#1")


def test_tasks_see_the_close_request_of_a_newer_driver_at_once(site: Site) -> None:
    # The driver whose tasks run may be frozen.
    site.run_generation()
    seen = []
    site.while_waiting = lambda: bool(seen.append(closing_request(site.store, "c", 1)))

    assert site.await_turn()
    assert seen[0] is not None
    assert seen[0].reason is ClosingReason.REBALANCE


def test_a_driver_without_a_handover_request_continues(site: Site) -> None:
    site.run_generation()

    assert site.old.successor() is None
    assert site.old.yield_to_successor() is None
    assert site.old.claim().generation == 2


def test_a_driver_that_gives_way_too_late_is_fenced(site: Site) -> None:
    # The new driver has planned, and has pruned the plan that the older driver would read.
    site.run_generation()
    new = Generations(site.store, "c")
    new.plan(new.claim(), [], 1)

    with pytest.raises(FencedException, match="newer driver"):
        site.old.yield_to_successor()


def test_is_gone_recognizes_drivers_of_this_process() -> None:
    one, other = register(), register()
    assert one != other
    deregister(one)

    assert is_gone(one)
    assert not is_gone(other)
    deregister(other)


def test_is_gone_recognizes_ended_processes_of_this_host() -> None:
    # A restart after kill -9 does not wait for the dead process.
    host = register().rpartition(":")[0]
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    assert is_gone(f"{host}:{ended.pid}#1")
    assert not is_gone(f"{host}:{os.getppid()}#1")


def test_is_gone_recognizes_a_reused_process_id() -> None:
    host = register().rpartition(":")[0]
    began = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[19]

    assert not is_gone(f"{host}:{os.getppid()}#1.{began}")
    assert is_gone(f"{host}:{os.getppid()}#1.{int(began) - 1}")
    assert is_gone(f"{host}:{os.getpid()}#1.{int(began) - 1}")


def test_is_gone_recognizes_killed_child_processes() -> None:
    host = register().rpartition(":")[0]
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    name = f"{host}:{process.pid}#1"
    assert not is_gone(name)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    assert is_gone(name)
    process.communicate()


@pytest.mark.parametrize("name", ["elsewhere:1#1", "", "no-process"])
def test_is_gone_is_false_for_drivers_on_other_hosts(name: str) -> None:
    assert not is_gone(name)


def test_is_gone_distinguishes_equal_process_ids_of_other_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sinksdk.control.liveness._host", lambda: "host/1")
    name = register()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert is_gone(f"host/1:{ended.pid}#1")
    monkeypatch.setattr("sinksdk.control.liveness._host", lambda: "host/2")

    assert not is_gone(name)
    assert not is_gone(f"host/1:{ended.pid}#1")
    deregister(name)
