"""The Spark that connectors share, and its end."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sinksdk import ConnectException
from sinksdk.launch import spark as launch_spark
from sinksdk.launch.deployment import Deployment, PreparedSource
from sinksdk.launch.spark import SparkOnDemand
from sinksdk.launch.topics import TopicDirectory
from sinksdk.spark.options import SparkSettings
from sinksdk.store import Store, StoreUnavailable
from sinksdk.store.records import GenerationPlan
from sinksdk.support.logs import WARNINGS
from sinksdk.worker.generation_spec import GenerationSpec
from tests.helpers.memory_store import MemoryStore


class Context:
    """A fake SparkContext that can be stopped."""

    is_alive = True

    def stop(self) -> None:
        self.is_alive = False


class Process:
    """The Sparks of this process, of which at most one is alive."""

    def __init__(self) -> None:
        self.started: list[Context] = []
        self.buried = 0
        self.users: Context | None = None

    def start(self, *_: Any, **__: Any) -> Context:
        assert self.active() is None
        self.started.append(Context())
        return self.started[-1]

    def active(self) -> Context | None:
        all_of_them = [*self.started, *([self.users] if self.users else [])]
        return next((context for context in all_of_them if context.is_alive), None)

    def bury(self) -> None:
        self.buried += 1


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    made = Process()
    monkeypatch.setattr("sinksdk.spark.context.start_spark", made.start)
    monkeypatch.setattr("sinksdk.spark.context.is_alive", lambda context: context.is_alive)
    monkeypatch.setattr("sinksdk.spark.context.forget_dead_spark", made.bury)
    monkeypatch.setattr("sinksdk.spark.context.active_spark", made.active)
    yield made
    launch_spark._STARTED.clear()


def on_demand(context: Context | None = None, *, joins: bool = True) -> SparkOnDemand:
    store, settings = MemoryStore(), SparkSettings("local[1]", {}, cast("Any", context), joins)
    deployment = Deployment(TopicDirectory("topics"), store, store.url, settings)
    return SparkOnDemand(
        deployment, "c", python_path=(), logs=WARNINGS, is_stopping=lambda: False, report=lambda _: None
    )


def test_connectors_share_the_spark_that_the_first_one_started(process: Process) -> None:
    with on_demand() as first, on_demand() as second:
        assert first.context() is second.context()
        first.__exit__()
        assert process.started[0].is_alive
        assert second.context() is process.started[0]

    assert [context.is_alive for context in process.started] == [False]


def test_the_users_spark_is_not_stopped(process: Process) -> None:
    process.users = Context()
    with on_demand() as joined, on_demand(process.users) as given:
        assert joined.context() is given.context() is process.users

    assert process.users.is_alive
    assert not process.started


def test_the_users_stopped_spark_is_not_replaced(process: Process) -> None:
    process.users = Context()
    with on_demand(process.users) as spark:
        spark.context()
        process.users.stop()
        with pytest.raises(ConnectException, match=r"has stopped, and sinksdk does not replace"):
            spark.context()

    assert (process.started, process.buried) == ([], 0)


def test_a_dead_spark_is_replaced_once_for_all_connectors(process: Process) -> None:
    with on_demand() as first, on_demand() as second:
        first.context()
        second.context()
        process.started[0].stop()
        assert first.has_died()
        assert first.context() is second.context() is process.started[1]

    assert (len(process.started), process.buried) == (2, 1)
    assert process.active() is None


def test_the_store_id_is_read_when_a_generation_is_launched(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Creating the launcher is not retried, launching is.
    responses: list[str | StoreUnavailable] = ["the store's id", StoreUnavailable("no response")]
    specs: list[GenerationSpec] = []

    def identify(_: Store) -> str:
        response = responses.pop()
        if isinstance(response, StoreUnavailable):
            raise response
        return response

    class Launcher:
        def __init__(self, _: Any, spec: GenerationSpec) -> None:
            specs.append(spec)

        def launch(self, plan: GenerationPlan) -> None:
            pass

    monkeypatch.setattr(launch_spark, "identify", identify)
    monkeypatch.setattr(launch_spark, "SparkSourceLauncher", Launcher)
    plan = GenerationPlan(generation=1, config_version=1, tasks=(), committed=())
    ready = SimpleNamespace(config=SimpleNamespace(name="c"), target=None)
    with on_demand() as spark:
        launcher = spark.source_launcher(cast("PreparedSource", ready))
        with pytest.raises(StoreUnavailable):
            launcher.launch(plan)
        launcher.launch(plan)
        launcher.launch(plan)

    assert [spec.store_id for spec in specs] == ["the store's id"] * 2


def test_a_command_does_not_join_an_active_spark(process: Process) -> None:
    process.users = Context()
    with on_demand(joins=False) as spark, pytest.raises(AssertionError):
        spark.context()
