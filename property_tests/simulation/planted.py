"""Build mutations from faulty stores and tasks, at interfaces that a refactoring keeps.

Mutations replace public functions, or interfaces of the product; ``test_planted.py`` rejects private names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol
from weakref import WeakSet

import pytest

from property_tests.simulation.store import SimulatedStore
from property_tests.simulation.world import Process
from sinksdk import OffsetAndMetadata, SinkTask, TopicPartition
from sinksdk.store import Conflict
from sinksdk.store.base import FORMAT, Versioned

Patch = pytest.MonkeyPatch
Value = Mapping[str, Any]
Change = Callable[[Value], Value]
Plant = Callable[[Patch], None]

ANY: Final = re.compile("")
CONFIG: Final = re.compile(r"/config$")
COUNT: Final = re.compile(r"/tasks-count$")
PLANS: Final = re.compile(r"/generations/\d+$")
SEGMENTS: Final = re.compile(r"/generations/\d+-task-")
TASKS: Final = re.compile(r"/tasks/\d+$")
COMMITS: Final = re.compile(f"{PLANS.pattern}|{SEGMENTS.pattern}|{TASKS.pattern}")

Who = Callable[[SimulatedStore], bool]


def anybody(store: SimulatedStore) -> bool:
    return True


def task(store: SimulatedStore) -> bool:
    return "task " in store.process.name


def driver(store: SimulatedStore) -> bool:
    return not task(store)


def plants(*mutations: Plant) -> Mapping[str, Plant]:
    return {mutation.__name__: mutation for mutation in mutations}


# -- faulty stores ---------------------------------------------------------------------------------------


class Write(Protocol):
    def __call__(self, value: Value, if_version: str | None) -> str: ...


def on_get(
    patch: Patch,
    act: Callable[[SimulatedStore, str, Callable[[], Versioned | None]], Versioned | None],
) -> None:
    get = SimulatedStore.get
    patch.setattr(SimulatedStore, "get", lambda self, key: act(self, key, lambda: get(self, key)))


def on_put(patch: Patch, act: Callable[[SimulatedStore, str, Value, str | None, Write], str]) -> None:
    put = SimulatedStore.put

    def through(
        self: SimulatedStore, key: str, value: Value, if_version: str | None, *, version: int = FORMAT
    ) -> str:
        def write(value: Value, if_version: str | None) -> str:
            return put(self, key, value, if_version, version=version)

        return act(self, key, value, if_version, write)

    patch.setattr(SimulatedStore, "put", through)


def reads_as(patch: Patch, kind: re.Pattern[str], change: Change, who: Who = anybody) -> None:
    def changed(store: SimulatedStore, key: str, read: Callable[[], Versioned | None]) -> Versioned | None:
        is_meant = kind.search(key) is not None and who(store)
        found = read()
        return _changed(found, change) if is_meant else found

    on_get(patch, changed)


def others_read_as(patch: Patch, kind: re.Pattern[str], change: Change) -> None:
    writers: dict[str, Process] = {}

    def noted(store: SimulatedStore, _key: str, value: Value, if_version: str | None, write: Write) -> str:
        version = write(value, if_version)
        writers[version] = store.process
        return version

    def changed(store: SimulatedStore, key: str, read: Callable[[], Versioned | None]) -> Versioned | None:
        found = read()
        is_own = found is not None and writers.get(found.version) is store.process
        return _changed(found, change) if kind.search(key) and not is_own else found

    on_put(patch, noted)
    on_get(patch, changed)


def _changed(found: Versioned | None, change: Change) -> Versioned | None:
    return Versioned(dict(change(found.value)), found.version) if found is not None else None


def writes_as(patch: Patch, kind: re.Pattern[str], change: Change, who: Who = anybody) -> None:
    def changed(store: SimulatedStore, key: str, value: Value, if_version: str | None, write: Write) -> str:
        return write(change(value) if kind.search(key) and who(store) else value, if_version)

    on_put(patch, changed)


def drops(patch: Patch, kind: re.Pattern[str], which: Callable[[SimulatedStore, Value], bool]) -> None:
    def dropped(store: SimulatedStore, key: str, value: Value, if_version: str | None, write: Write) -> str:
        if kind.search(key) and which(store, value):
            return if_version or "dropped"
        return write(value, if_version)

    on_put(patch, dropped)


def ignores_compare(patch: Patch, kind: re.Pattern[str]) -> None:
    def anyhow(store: SimulatedStore, key: str, value: Value, if_version: str | None, write: Write) -> str:
        while True:
            try:
                return write(value, if_version)
            except Conflict:
                if not kind.search(key):
                    raise
                if_version = store.version(key)

    on_put(patch, anyhow)


class TakingOver:
    # As the last step of taking over, a task checks for a newer generation.
    def __init__(self) -> None:
        self._have_written: WeakSet[SimulatedStore] = WeakSet()
        self._are_done: WeakSet[SimulatedStore] = WeakSet()

    def is_on(self, store: SimulatedStore) -> bool:
        return task(store) and store not in self._are_done

    def is_at_last_look(self, store: SimulatedStore) -> bool:
        return self.is_on(store) and store in self._have_written

    def watch(self, patch: Patch) -> None:
        def look(store: SimulatedStore, key: str, read: Callable[[], Versioned | None]) -> Versioned | None:
            is_last = COUNT.search(key) is not None and self.is_at_last_look(store)
            found = read()
            if is_last:
                self._are_done.add(store)
            return found

        def note(store: SimulatedStore, key: str, value: Value, if_version: str | None, write: Write) -> str:
            version = write(value, if_version)
            if TASKS.search(key) and self.is_on(store):
                self._have_written.add(store)
            return version

        on_get(patch, look)
        on_put(patch, note)


# -- changes of values --------------------------------------------------------------------------


def fields(**changed: Any) -> Change:
    return lambda value: {**value, **changed}


def of_commits(**changed: Any) -> Change:
    def change(value: Value) -> Value:
        where = "entries" if "entries" in value else "committed"
        return {**value, where: [{**entry, **changed} for entry in value[where]]}

    return change


no_tokens: Final = of_commits(publish=[], published_to=None)


# -- faulty tasks ----------------------------------------------------------------------------------------


def commits_as(
    patch: Patch, sink: type[SinkTask], change: Callable[[OffsetAndMetadata], OffsetAndMetadata]
) -> None:
    pre_commit = sink.pre_commit

    def changed(
        self: SinkTask, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return {p: change(offset) for p, offset in pre_commit(self, offsets).items()}

    patch.setattr(sink, "pre_commit", changed)


def publishes_in_pre_commit(patch: Patch, sink: type[SinkTask], publish: Callable[..., None]) -> None:
    pre_commit = sink.pre_commit

    def eager(
        self: SinkTask, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        returned = pre_commit(self, offsets)
        for partition, offset in returned.items():
            if offset.tokens:
                publish(self, partition, offset.tokens)
        return returned

    patch.setattr(sink, "pre_commit", eager)


def tokens_as(change: Change) -> Callable[[OffsetAndMetadata], OffsetAndMetadata]:
    def changed(offset: OffsetAndMetadata) -> OffsetAndMetadata:
        return replace(offset, publish=[replace(t, data=dict(change(t.data))) for t in offset.tokens])

    return changed
