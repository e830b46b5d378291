"""How often a running task looks whether it shall close: as the store says, unless the configuration does."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from sinksdk.engine import SystemClock
from sinksdk.spark.closing_watch import ClosingWatch, look_now_and_then
from sinksdk.spark.executor import _Attempt
from sinksdk.spark.generation_spec import GenerationSpec
from sinksdk.store import MemoryStore, take_over
from tests.store.protocol import P0, plan


class SlowStore(MemoryStore):
    @property
    def closing_poll(self) -> float:
        return 7.0


SPEC = GenerationSpec("memory:", "id", "c", 1)


def no_watch(*_: object) -> AbstractContextManager[Callable[[], None]]:
    """Nothing is run here."""
    raise AssertionError


def seconds(folder: Path, **config: str) -> float:
    """What a task of this configuration waits between two looks."""
    store = SlowStore()
    keys = {
        "name": "c",
        "connector.class": "examples.folder_sink:FolderSink",
        "topics": "flights",
        "folder": str(folder),
        **{key.replace("_", "."): value for key, value in config.items()},
    }
    plan(store, 1, [P0], config=keys)
    taken = take_over(store, "c", 1, 0)
    assert taken is not None
    attempt = _Attempt(SPEC, store, 0, taken, clock=SystemClock(), epoch=time.time, watch=no_watch)
    return attempt._worker(ExitStack())[1]


def test_the_store_says_how_often(tmp_path: Path) -> None:
    """closing.poll.ms: by default what the store suggests."""
    assert seconds(tmp_path) == 7.0


def test_the_configuration_overrides_it(tmp_path: Path) -> None:
    """closing.poll.ms: where it is set it counts, whatever the store suggests."""
    assert seconds(tmp_path, closing_poll_ms="250") == 0.25


def test_tasks_do_not_look_all_at_once() -> None:
    """Between two looks a task waits a fifth more or less each time: tasks that began together drift apart."""
    store = MemoryStore()
    plan(store, 1, [P0])
    waits: list[float] = []

    def wait(timeout: float) -> bool:
        waits.append(timeout)
        return len(waits) > 50

    look_now_and_then(ClosingWatch(store, SPEC, SystemClock()), 5.0, wait)
    assert all(4.0 <= each <= 6.0 for each in waits)
    assert max(waits) - min(waits) > 0.5
