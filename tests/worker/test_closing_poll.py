"""The interval at which a running task polls for a close request: the store's, unless it is configured."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import NoReturn

import pytest

from sinksdk.engine.clock import SystemWallClock
from sinksdk.worker.generation_spec import GenerationSpec
from sinksdk.worker.sink_task import run_attempt
from sinksdk.worker.watches import ClosingWatch, check_periodically
from tests.helpers.memory_store import MemoryStore
from tests.store.protocol import P0, plan


class SlowStore(MemoryStore):
    @property
    def closing_poll(self) -> float:
        return 7.0


SPEC = GenerationSpec("memory:", "id", "c", 1)


class EnoughSeen(Exception): ...


def seconds(folder: Path, **config: str) -> float:
    store = SlowStore()
    keys = {
        "name": "c",
        "connector.class": "examples.folder_sink:FolderSink",
        "topics": "flights",
        "folder": str(folder),
        **{key.replace("_", "."): value for key, value in config.items()},
    }
    plan(store, 1, [P0], config=keys)
    intervals: list[float] = []

    def watch(_: ClosingWatch, interval: float) -> NoReturn:
        intervals.append(interval)
        raise EnoughSeen

    with pytest.raises(EnoughSeen):
        run_attempt(SPEC, store, 0, lambda *_: nullcontext(()), watch=watch)
    return intervals[0]


def test_the_closing_poll_defaults_to_that_of_the_store(tmp_path: Path) -> None:
    assert seconds(tmp_path) == 7.0


def test_the_configuration_overrides_the_closing_poll(tmp_path: Path) -> None:
    assert seconds(tmp_path, closing_poll_ms="250") == 0.25


def test_closing_polls_have_jitter(store: MemoryStore) -> None:
    plan(store, 1, [P0])
    waits: list[float] = []

    def wait(timeout: float) -> bool:
        waits.append(timeout)
        return len(waits) > 50

    check_periodically(ClosingWatch(store, SPEC, SystemWallClock()), 5.0, wait)
    assert all(4.0 <= each <= 6.0 for each in waits)
    assert max(waits) - min(waits) > 0.5
