"""Attempts at one task: which of them works, which one waits, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sinksdk import ClosingReason, FencedException, OffsetAndMetadata
from sinksdk.spark.executor import run_attempt
from sinksdk.spark.generation_spec import GenerationSpec
from sinksdk.store import MemoryStore, take_over
from sinksdk.store.keys import plan_key
from sinksdk.store.records import Closing
from sinksdk.testing import ManualClock
from tests.store.protocol import P0, plan

CONFIG = {
    "name": "c",
    "connector.class": "examples.folder_sink:FolderSink",
    "topics": "flights",
    "folder": ".",
}
SPEC = GenerationSpec("memory:", "id", "c", 1)


class Clock(ManualClock):
    """Something may happen while somebody sleeps."""

    happens: Callable[[], None] = staticmethod(lambda: None)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        type(self).happens()


def ask_to_close(store: MemoryStore, timeout: float) -> None:
    found = store.get(plan_key("c", 1))
    assert found is not None
    closing = Closing(reason=ClosingReason.REBALANCE, timeout=timeout).as_json()
    store.put(plan_key("c", 1), {**found.value, "closing": closing}, found.version)


def test_a_copy_does_not_disturb_the_closing_commit_of_the_original() -> None:
    """Regression: a speculative copy fenced the original in its closing flush, and opened nothing itself."""
    store, clock = MemoryStore(), Clock()
    plan(store, 1, [P0])
    original = take_over(store, "c", 1, 0)
    assert original is not None
    ask_to_close(store, 30.0)

    result = run_attempt(replace(SPEC, speculates=True), store, 0, iter(()), clock=clock)
    original.ledger.commit({P0: OffsetAndMetadata(60)})

    assert result.outcomes == []
    assert clock.now() == pytest.approx(1_030, abs=1)


def test_nobody_waits_for_the_closing_commit_of_the_dead() -> None:
    """Regression: after an attempt was killed just before, a closing took its whole graceful time.

    Without speculation a second attempt means that Spark has given the first one up. Should that live on,
    it may commit until the next generation has begun.
    """
    store, clock = MemoryStore(), Clock()
    plan(store, 1, [P0])
    original = take_over(store, "c", 1, 0)
    assert original is not None
    ask_to_close(store, 30.0)

    result = run_attempt(SPEC, store, 0, iter(()), clock=clock)
    original.ledger.commit({P0: OffsetAndMetadata(60)})

    assert result.outcomes == []
    assert clock.now() == 1_000


def test_a_task_that_nobody_has_begun_opens_nothing_once_closing_was_asked() -> None:
    """No original to wait for: it ends at once."""
    store, clock = MemoryStore(), Clock()
    plan(store, 1, [P0], config=CONFIG)
    ask_to_close(store, 30.0)

    result = run_attempt(SPEC, store, 0, iter(()), clock=clock)

    assert result.outcomes == []
    assert clock.now() == 1_000


def test_a_fenced_attempt_does_not_wait_for_a_dead_owner_for_ever() -> None:
    """Regression: the owner's executor was lost, and Spark starts no third attempt while this one waits."""
    store, clock = MemoryStore(), Clock()
    plan(store, 1, [P0], config=CONFIG)

    with pytest.raises(FencedException, match="no sign of life for 600 s"):
        fenced(store, clock)
    assert clock.now() == pytest.approx(1_600, abs=3)


def test_a_fenced_attempt_waits_as_long_as_its_owner_lives() -> None:
    """Each sign of life counts; once the generation closes there is nothing to wait for."""
    store, clock = MemoryStore(), Clock()
    plan(store, 1, [P0], config=CONFIG)
    owners = []

    def live() -> None:
        if clock.now() < 3_000 and int(clock.now()) % 100 == 0:
            owners.append(take_over(store, "c", 1, 0))
        if clock.now() >= 3_000:
            ask_to_close(store, 5.0)

    Clock.happens = live
    try:
        with pytest.raises(FencedException, match="is closing"):
            fenced(store, clock)
    finally:
        Clock.happens = lambda: None
    assert len(owners) > 10


def fenced(store: MemoryStore, clock: Clock) -> None:
    """An attempt whose record is taken over by another one as soon as it has begun."""

    def taken_from(*_: object) -> None:
        take_over(store, "c", 1, 0)
        message = "somebody newer"
        raise FencedException(message)

    run_attempt(SPEC, store, 0, iter(()), clock=clock, watch=taken_from)  # type: ignore[arg-type]
