"""Faulty stores and tasks: the words in which mistakes are planted, at seams that a redesign leaves in place.

A mistake is planted where the product meets what it is given (the store, S3, the sink's task, a writer), or by
replacing a public function. ``test_planted.py`` refuses every other name.
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
"""Whatever has commits and tokens in it."""

Who = Callable[[SimulatedStore], bool]
"""Whether a request is meant, by the store that one process makes it to."""


def anybody(store: SimulatedStore) -> bool:
    """Every process."""
    return True


def task(store: SimulatedStore) -> bool:
    """An attempt at a task."""
    return "task " in store.process.name


def driver(store: SimulatedStore) -> bool:
    """A driver, or a process that deletes a connector."""
    return not task(store)


def plants(*mutations: Plant) -> Mapping[str, Plant]:
    """Mutations by name."""
    return {mutation.__name__: mutation for mutation in mutations}


# -- faulty stores ---------------------------------------------------------------------------------------


class Write(Protocol):
    """What a store does with a write, if nobody interferes."""

    def __call__(self, value: Value, if_version: str | None) -> str: ...


def on_get(
    patch: Patch,
    act: Callable[[SimulatedStore, str, Callable[[], Versioned | None]], Versioned | None],
) -> None:
    """Interfere with each read."""
    get = SimulatedStore.get
    patch.setattr(SimulatedStore, "get", lambda self, key: act(self, key, lambda: get(self, key)))


def on_put(patch: Patch, act: Callable[[SimulatedStore, str, Value, str | None, Write], str]) -> None:
    """Interfere with each write."""
    put = SimulatedStore.put

    def through(
        self: SimulatedStore, key: str, value: Value, if_version: str | None, *, version: int = FORMAT
    ) -> str:
        def write(value: Value, if_version: str | None) -> str:
            return put(self, key, value, if_version, version=version)

        return act(self, key, value, if_version, write)

    patch.setattr(SimulatedStore, "put", through)


def reads_as(patch: Patch, kind: re.Pattern[str], change: Change, who: Who = anybody) -> None:
    """Of keys of a kind, the store answers something else than it holds."""

    def changed(store: SimulatedStore, key: str, read: Callable[[], Versioned | None]) -> Versioned | None:
        is_meant = kind.search(key) is not None and who(store)
        found = read()
        return _changed(found, change) if is_meant else found

    on_get(patch, changed)


def others_read_as(patch: Patch, kind: re.Pattern[str], change: Change) -> None:
    """As :func:`reads_as`, of values that another process has written."""
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
    """Of keys of a kind, the store holds something else than was written."""

    def changed(store: SimulatedStore, key: str, value: Value, if_version: str | None, write: Write) -> str:
        return write(change(value) if kind.search(key) and who(store) else value, if_version)

    on_put(patch, changed)


def drops(patch: Patch, kind: re.Pattern[str], which: Callable[[SimulatedStore, Value], bool]) -> None:
    """Some writes of keys of a kind have no effect, and the writer takes them for done."""

    def dropped(store: SimulatedStore, key: str, value: Value, if_version: str | None, write: Write) -> str:
        if kind.search(key) and which(store, value):
            return if_version or "dropped"
        return write(value, if_version)

    on_put(patch, dropped)


def ignores_compare(patch: Patch, kind: re.Pattern[str]) -> None:
    """Keys of a kind are written whatever version they have."""

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
    """Which attempts at tasks still take their record over; the last step is to look whether they may."""

    def __init__(self) -> None:
        self._have_written: WeakSet[SimulatedStore] = WeakSet()
        self._are_done: WeakSet[SimulatedStore] = WeakSet()

    def is_on(self, store: SimulatedStore) -> bool:
        """Whether the process of a store is such an attempt."""
        return task(store) and store not in self._are_done

    def is_at_last_look(self, store: SimulatedStore) -> bool:
        """Whether it is, and has just become the owner."""
        return self.is_on(store) and store in self._have_written

    def watch(self, patch: Patch) -> None:
        """Begin to note what attempts do; after all other interference with the store."""

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


# -- what values are changed to --------------------------------------------------------------------------


def fields(**changed: Any) -> Change:
    """A value with other fields."""
    return lambda value: {**value, **changed}


def of_commits(**changed: Any) -> Change:
    """A plan, a segment or a task's record whose commits have other fields."""

    def change(value: Value) -> Value:
        where = "entries" if "entries" in value else "committed"
        return {**value, where: [{**entry, **changed} for entry in value[where]]}

    return change


no_tokens: Final = of_commits(publish=[], published_to=None)
"""A plan, a segment or a task's record without tokens to publish."""


# -- faulty tasks ----------------------------------------------------------------------------------------


def commits_as(
    patch: Patch, sink: type[SinkTask], change: Callable[[OffsetAndMetadata], OffsetAndMetadata]
) -> None:
    """A task returns something else from ``pre_commit`` than it should."""
    pre_commit = sink.pre_commit

    def changed(
        self: SinkTask, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return {p: change(offset) for p, offset in pre_commit(self, offsets).items()}

    patch.setattr(sink, "pre_commit", changed)


def publishes_in_pre_commit(patch: Patch, sink: type[SinkTask], publish: Callable[..., None]) -> None:
    """A task makes visible what it returns from ``pre_commit``, before it is committed."""
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
    """A commit whose tokens say something else."""

    def changed(offset: OffsetAndMetadata) -> OffsetAndMetadata:
        return replace(offset, publish=[replace(t, data=dict(change(t.data))) for t in offset.tokens])

    return changed
