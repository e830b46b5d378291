from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pydantic import Field

from sinksdk import ConfigException, ConnectException
from sinksdk.source import SourceConnector, SourceConnectorConfig, SourceTask
from sinksdk.testing import ConnectorHarness

TABLES = ["a", "b"]


class TablesConfig(SourceConnectorConfig):
    tables: list[str] = Field(default=[], description="A task's share.")
    most: int = Field(default=5, description="How many tables there may be.")


class TablesConnector(SourceConnector):
    """Polls the list of tables in a thread of its own."""

    config_class, task_class = TablesConfig, SourceTask

    def validate(self, config: Any) -> Sequence[str]:
        return ["'most' must not be 4"] if config.most == 4 else []

    def start(self, config: TablesConfig) -> None:
        self.config, self.stopping = config, threading.Event()
        self.seen = list(TABLES)
        self.thread = threading.Thread(target=self.watch, name="watch")
        self.thread.start()

    def watch(self) -> None:
        while not self.stopping.wait(0.01):
            if len(TABLES) > self.config.most:
                self.context.raise_error(OSError("too many tables"))
            elif self.seen != TABLES:
                self.context.request_task_reconfiguration()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        self.seen = list(TABLES)
        shares = [TABLES[number::max_tasks] for number in range(max_tasks)]
        return [{"tables": ",".join(share)} for share in shares if share]

    def stop(self, is_deleted: bool = False) -> None:  # noqa: FBT002 - KIP-883's signature
        self.stopping.set()
        self.thread.join()


@pytest.fixture(autouse=True)
def two_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.TABLES", ["a", "b"])


def harness(connector: type[SourceConnector] = TablesConnector, **config: str) -> ConnectorHarness:
    return ConnectorHarness(connector, {"name": "c", "tasks.max": "2", **config})


def shares(tested: ConnectorHarness) -> list[list[str]]:
    return [config.tables for config in tested.task_configs() if isinstance(config, TablesConfig)]


def test_connector_requests_a_reconfiguration_for_a_new_table() -> None:
    with harness() as tested:
        assert shares(tested) == [["a"], ["b"]]
        assert not tested.wants_reconfiguration
        TABLES.append("c")
        tested.await_reconfiguration()
        assert tested.wants_reconfiguration
        assert shares(tested) == [["a", "c"], ["b"]]


def test_missing_reconfiguration_request_is_an_assertion_error() -> None:
    with harness() as tested:
        tested.task_configs()
        with pytest.raises(
            AssertionError, match="TablesConnector has not requested a reconfiguration of its"
        ):
            tested.await_reconfiguration(0.05)


def test_await_reconfiguration_raises_the_connectors_error() -> None:
    with harness(most="2") as tested:
        TABLES.append("c")
        with pytest.raises(OSError, match="too many tables"):
            tested.await_reconfiguration()
    assert str(tested.error) == "too many tables"


class LeavesItsThread(TablesConnector):
    def stop(self, is_deleted: bool = False) -> None:  # noqa: FBT002 - KIP-883's signature
        ...


def test_thread_that_runs_after_stop_is_an_assertion_error() -> None:
    tested = harness(LeavesItsThread)
    tested.start()
    with pytest.raises(
        AssertionError, match=r"the thread 'watch' still runs after stop\(\) of LeavesItsThread"
    ):
        tested.stop()
    TablesConnector.stop(tested.connector)  # type: ignore[arg-type]  # it is one


class GivesTooMany(TablesConnector):
    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{}] * (max_tasks + 1)


def test_configurations_that_a_driver_refuses_are_refused() -> None:
    with pytest.raises(ConfigException, match="'most' must not be 4"):
        harness(most="4")
    with pytest.raises(ConfigException, match="'most': "):
        harness(most="many")
    with harness(GivesTooMany) as tested, pytest.raises(ConnectException, match="too many configurations"):
        tested.task_configs()
