"""Hooks without effect: the class is refused, and at run time nothing of the hook's is committed."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import re
import sqlite3
import types
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sinksdk import (
    ClosingReason,
    ConnectorConfig,
    OffsetAndMetadata,
    SinkConnector,
    SinkRecords,
    SinkTask,
    SinkTaskContext,
    TopicPartition,
)
from sinksdk.source import SourceConnector, SourceConnectorConfig, SourceTask
from sinksdk.support.hooks import HookError
from sinksdk.testing import FakeContext, SinkTaskHarness
from tests.engine.sinks import P0, Offsets, Sink
from tests.engine.sources import Script, scene


async def coroutine(*_arguments: object) -> None:
    """Return a coroutine."""


def generator(*_arguments: object) -> Any:
    """Return a generator."""
    yield


async def async_generator(*_arguments: object) -> Any:
    yield


class CallableObject:
    """An object whose call returns a coroutine."""

    async def __call__(self, *arguments: object) -> None:
        """Do nothing yet."""


def public_methods(base: type) -> list[str]:
    return [name for name in dir(base) if not name.startswith("_") and callable(getattr(base, name))]


HOOKS = [
    (base, name)
    for base in (SinkTask, SourceTask, SinkConnector, SourceConnector)
    for name in public_methods(base)
    if not isinstance(getattr(base, name), type)
]


@pytest.mark.parametrize("lazy", [coroutine, generator, async_generator, CallableObject()])
@pytest.mark.parametrize(("base", "name"), HOOKS)
def test_hooks_that_are_coroutines_or_generators_are_refused_with_their_class(
    base: type, name: str, lazy: object
) -> None:
    with pytest.raises(HookError, match=rf"Lazy\.{name} is an? .*, and the runtime would not run it"):
        type("Lazy", (base,), {name: lazy})


def test_a_coroutine_hook_of_a_mixin_is_refused() -> None:
    class Mixin:
        async def flush(self, offsets: Offsets) -> None:
            """Do nothing yet."""

    with pytest.raises(HookError, match=r"flush is a coroutine"):

        class Task(Mixin, Sink):  # type: ignore[misc]
            """A task that inherits the mixin's flush."""


def test_a_decorated_coroutine_that_runs_to_completion_is_accepted() -> None:
    written = []

    def run(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def whole(*arguments: object) -> Any:
            return asyncio.run(method(*arguments))

        return whole

    class Task(SinkTask):
        @run
        async def put(self, records: Any) -> None:
            written.extend(records)

    harness = SinkTaskHarness(Task)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    assert [record.value for record in written] == [b"a"]


@pytest.mark.parametrize(
    ("base", "name", "hook"),
    [
        (SinkTask, "preCommit", "pre_commit"),
        (SinkTask, "precommit", "pre_commit"),
        (SinkTask, "pre_comit", "pre_commit"),
        (SinkTask, "pre_commti", "pre_commit"),
        (SinkTask, "fush", "flush"),
        (SinkTask, "flussh", "flush"),
        (SinkTask, "flusg", "flush"),
        (SinkTask, "Close", "close"),
        (SinkTask, "onPartitionsRevoked", "close"),
        (SinkTask, "on_partitions_assigned", "open"),
        (SourceTask, "commitRecord", "commit_record"),
        (SourceTask, "comit", "commit"),
        (SourceTask, "stoped", "stopped"),
        (SinkConnector, "taskConfigs", "task_configs"),
        (SinkConnector, "task_confgs", "task_configs"),
        (SinkConnector, "alterOffsets", "alter_offsets"),
        (SourceConnector, "exactlyOnceSupport", "exactly_once_support"),
    ],
)
def test_a_misspelt_hook_name_is_refused(base: type, name: str, hook: str) -> None:
    with pytest.raises(HookError, match=rf"\.{name} is never used: did you mean '{hook}'"):
        type("Misspelt", (base,), {name: getattr(base, hook)})


@pytest.mark.parametrize(
    ("base", "name", "attribute"),
    [
        (SinkConnector, "taskClass", "task_class"),
        (SinkConnector, "configClass", "config_class"),
        (SinkTask, "maxPollRecords", "max_poll_records"),
    ],
)
def test_an_attribute_in_camel_case_is_refused(base: type, name: str, attribute: str) -> None:
    # The Java name of an attribute is refused, because sinksdk would ignore the attribute.
    with pytest.raises(HookError, match=rf"\.{name} is never used: did you mean '{attribute}'"):
        type("Misspelt", (base,), {name: 1})


HELPERS: list[tuple[type, str, Callable[..., Any] | int | type]] = [
    (SinkTask, "FLUSH", 100),
    (SinkTask, "Open", int),
    (SinkTask, "closed", False),
    (SinkTask, "puts", lambda self: None),
    (SinkTask, "cut", lambda self, records: None),
    (SinkTask, "clone", lambda self: None),
    (SinkTask, "step", lambda self: None),
    (SinkTask, "opened", lambda self, partitions, more: None),
    (SinkTask, "discards", lambda self: None),
    (SinkTask, "flush_all", lambda self, offsets: None),
    (SinkTask, "commit", lambda self: None),
    (SinkTask, "_fush", lambda self, offsets: None),
    (SinkConnector, "column", lambda self, name: None),
    (SinkConnector, "subscribe", lambda self, topic: None),
    (SinkConnector, "task_config", lambda self, number: None),
    (SourceTask, "pull", lambda self: None),
    (SourceTask, "pool", lambda self: None),
]


@pytest.mark.parametrize(("base", "name", "helper"), HELPERS)
def test_names_of_helper_methods_are_accepted(base: type, name: str, helper: object) -> None:
    assert getattr(type("Class", (base,), {name: helper}), name) is not None


def test_a_name_similar_to_a_defined_hook_is_accepted() -> None:
    class Task(Sink):
        def flush(self, offsets: Offsets) -> None:
            """The hook itself."""

        def flushh(self, offsets: Offsets) -> None:
            """A helper next to the hook."""

    assert Task.flushh is not Task.flush


@pytest.mark.parametrize(
    ("base", "name", "given", "message"),
    [
        (
            SinkConnector,
            "task_class",
            Sink(),
            "an instance of type Sink: it must be the class: task_class = Sink",
        ),
        (SinkConnector, "task_class", dict, "dict: it must be a subclass of SinkTask"),
        (SinkConnector, "task_class", None, "of type NoneType: it must be a subclass of SinkTask"),
        (SinkConnector, "config_class", dict, "dict: it must be a subclass of ConnectorConfig"),
        (
            SinkConnector,
            "config_class",
            SourceConnectorConfig,
            "Config: it must be a subclass of ConnectorConfig",
        ),
        (
            SourceConnector,
            "config_class",
            ConnectorConfig,
            "Config: it must be a subclass of SourceConnectorC",
        ),
        (SourceConnector, "task_class", Sink, "Sink: it must be a subclass of SourceTask"),
    ],
)
def test_a_connector_with_a_wrong_class_is_refused(
    base: type, name: str, given: object, message: str
) -> None:
    with pytest.raises(TypeError, match=rf"^Wrong\.{name} is .*{re.escape(message)}"):
        type("Wrong", (base,), {name: given})


def test_a_connector_may_still_lack_its_task_class() -> None:
    class Helper(SinkTask):
        """The task class of a connector that is defined later."""

        def put(self, records: SinkRecords) -> None:
            """Accept the records without an effect."""

    assert issubclass(SinkTask, SinkTask)
    assert issubclass(type("Base", (SinkConnector,), {}), SinkConnector)
    assert issubclass(type("Next", (SinkConnector,), {"task_class": Helper}), SinkConnector)


def lazy_results() -> list[object]:
    """Results that a hook may return before its work is done."""
    return [
        lambda *_: coroutine(),
        lambda *_: generator(),
        lambda *_: async_generator(),
        lambda *_: map(print, ["a"]),
        lambda *_: functools.partial(print, "a"),
        lambda *_: [coroutine()],
        contextlib.contextmanager(generator),
        contextlib.asynccontextmanager(async_generator),
        submitted,
        lambda *_: [submitted()],
        lambda *_: (None, submitted()),
        lambda *_: {"first": 1, "second": submitted()},
        lambda *_: [*range(99), coroutine()],
        lambda *_: frozenset({submitted()}),
        lambda *_: collections.deque([None, submitted()]),
        lambda *_: types.MappingProxyType({"first": 1, "second": submitted()}),
    ]


def submitted(*_arguments: object) -> object:
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(int)


@pytest.mark.parametrize("lazy", lazy_results())
@pytest.mark.parametrize("hook", ["put", "flush", "pre_commit", "open"])
def test_unfinished_work_of_a_hook_fails_its_partition_without_a_commit(hook: str, lazy: Any) -> None:
    task = Sink()
    setattr(task, hook, lazy)
    harness = SinkTaskHarness(task)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a", "b"])
    harness.revoke(P0)
    assert harness.committed == {}
    failure = harness.outcome(P0).failure
    assert failure is not None
    assert f"{hook} returned a" in failure.message
    assert "before it returns" in failure.message


@pytest.mark.parametrize("result", [iter(["a"]), sqlite3.connect(":memory:").execute("SELECT 1"), ["a"], 3])
def test_a_hook_may_return_a_finished_future(result: object) -> None:
    task = Sink()
    task.put = lambda _records: result  # type: ignore[method-assign, assignment, return-value]
    harness = SinkTaskHarness(task)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a", "b"])
    harness.revoke(P0)
    assert harness.committed[P0].offset == 2


def test_publish_that_returns_a_coroutine_keeps_its_tokens() -> None:
    class Task(Sink):
        def pre_commit(self, offsets: Offsets) -> Offsets:
            self.context.prepared({P0: ["upload"]})
            return {P0: OffsetAndMetadata(offsets[P0].offset, publish=["upload"])}

    task = Task()
    task.publish = functools.partial(coroutine)  # type: ignore[method-assign]
    harness = SinkTaskHarness(task)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.revoke(P0)
    assert [token.id for token in harness.committed[P0].tokens] == ["upload"]
    assert harness.outcome(P0).failure is not None


def test_start_that_returns_a_coroutine_fails_the_task() -> None:
    task = Sink()
    task.start = coroutine  # type: ignore[method-assign]
    with pytest.raises(Exception, match="start returned a coroutine, whose work is not done"):
        SinkTaskHarness(task).start()


def test_poll_that_returns_a_generator_fails_the_source_task() -> None:
    # Records that a generator yields would be lost if it raises later, so poll must return a list.
    its = scene(Script())
    its.task.poll = iter_lines  # type: ignore[method-assign]
    outcome = its.worker.run()
    assert outcome.failure is not None
    assert "poll returned a generator, whose work is not done" in outcome.failure.message


def iter_lines() -> Any:
    yield from ()


class Bare(SinkTaskContext):
    """A context with the abstract methods only."""

    def assignment(self) -> frozenset[TopicPartition]: ...
    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None: ...
    def configs(self) -> dict[str, str]: ...
    def generation(self) -> int: ...
    def prepared(self, tokens: Any) -> None: ...
    def offset(self, offsets: Any) -> None: ...
    def timeout(self, seconds: float) -> None: ...
    def request_commit(self) -> None: ...
    def fail(self, partition: TopicPartition, error: BaseException) -> None: ...
    def errant_record_reporter(self) -> Any: ...


def real_context() -> SinkTaskContext:
    harness = SinkTaskHarness(Sink)
    harness.start()
    return harness.task.context


@pytest.mark.parametrize("make", [FakeContext, Bare, real_context])
def test_a_context_method_used_as_a_boolean_raises(make: Callable[[], SinkTaskContext]) -> None:
    context = make()
    with pytest.raises(TypeError, match=r"context\.is_closing is a method and was not called"):
        bool(context.is_closing)
    with pytest.raises(TypeError, match=r"context\.closing_reason is a method and was not called"):
        assert context.closing_reason == ClosingReason.STOP
    with pytest.raises(TypeError, match=r"context\.committed is a method"):
        assert not context.committed
    assert context.is_closing() is False
    assert context.closing_reason() is None


def test_is_closing_without_parentheses_fails_pre_commit() -> None:
    class Task(Sink):
        def pre_commit(self, offsets: Offsets) -> Offsets:
            return offsets if self.context.is_closing else {}

        def close(self, partitions: Collection[TopicPartition]) -> None:
            """Accept the records without an effect."""

    harness = SinkTaskHarness(Task)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.commit()
    failure = harness.outcome(P0).failure
    assert failure is not None
    assert "context.is_closing is a method and was not called" in failure.message
    assert harness.committed == {}


def timed(method: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: object, *arguments: object) -> Any:
        return method(self, *arguments)

    return wrapper


def test_the_harness_finds_hooks_by_attribute() -> None:
    class Task(Sink):
        put = timed(Sink.put)

    harness = SinkTaskHarness(Task)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    assert [call.name for call in harness.called("put")] == ["put"]
    assert "wrapper" not in harness.names()
