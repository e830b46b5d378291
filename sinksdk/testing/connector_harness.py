"""Run a connector's class from start to stop, without tasks, a store or Spark."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

from sinksdk.connector import Connector, ConnectorContext, ConnectorIdentity
from sinksdk.errors import ConfigException
from sinksdk.plugins.checks import connector_problems, task_configs_of

_JOIN_TIMEOUT: Final = 1.0  # seconds


class ConnectorHarness(ConnectorContext):
    """Calls a connector as its driver would, and receives the connector's requests.

    ::

        with ConnectorHarness(TableSource, {"name": "tables", "tasks.max": "2", "database": path}) as harness:
            assert [config.tables for config in harness.task_configs()] == [["a"], ["b"]]
            create_table("c")
            harness.await_reconfiguration()
            assert [config.tables for config in harness.task_configs()] == [["a", "c"], ["b"]]

    Entering the block starts the connector; leaving it stops the connector, and fails if a thread of the
    connector still runs one second later.

    Args:
        connector: the connector's class, or a function that creates the connector.
        config: the connector's configuration, with dotted names.

    Raises:
        ConfigException: the configuration is invalid.
    """

    def __init__(self, connector: Callable[[], Connector], config: Mapping[str, Any]) -> None:
        self.connector = connector()
        self._raw = dict(config)
        parsed: Any = self.connector.config_class.parse(self._raw)
        self.config: Any = parsed
        """The parsed configuration, the argument of ``start``."""
        if problems := connector_problems(self.connector, self.config):
            raise ConfigException(problems)
        self.connector.identity = ConnectorIdentity("harness", parsed.name, "1")
        self.connector.context = self
        self._changed = threading.Condition()
        self._wants_tasks = False
        self._error: Exception | None = None
        self._before: set[threading.Thread] = set()

    def start(self) -> None:
        """Call the connector's ``start`` and raise its error, if it fails."""
        self._before = set(threading.enumerate())
        self.connector.start(self.config)

    def task_configs(self) -> list[Any]:
        """Return the configurations that the connector's ``task_configs`` returns for ``tasks.max``.

        Raises:
            ConnectException: the driver would refuse them.
            ConfigException: one of them is invalid.
        """
        with self._changed:
            self._wants_tasks = False
        own = task_configs_of(self.connector, self.config.name, self.config.tasks_max)
        return [self.connector.config_class.parse({**self._raw, **entries}) for entries in own]

    def await_reconfiguration(self, timeout: float = 5.0) -> None:
        """Wait until the connector requests a reconfiguration of its tasks.

        Args:
            timeout: seconds to wait.

        Raises:
            AssertionError: the connector has requested none since the last call of ``task_configs``.
            Exception: the connector's own, raised with ``raise_error``.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._wants_tasks or self._error is not None, timeout)
            if self._error is not None:
                raise self._error
            is_requested = self._wants_tasks
        if not is_requested:
            who = type(self.connector).__name__
            raise AssertionError(
                f"{who} has not requested a reconfiguration of its tasks within {timeout:g} s"
            )

    @property
    def wants_reconfiguration(self) -> bool:
        """Whether the connector has requested one since the last call of ``task_configs``."""
        return self._wants_tasks

    @property
    def error(self) -> Exception | None:
        """The first error that the connector raised with ``raise_error``, or None."""
        return self._error

    def stop(self, *, is_deleted: bool = False) -> None:
        """Call the connector's ``stop``; raise its error, or AssertionError if a thread still runs."""
        stop: Callable[..., None] = self.connector.stop
        stop(*([is_deleted] if inspect.signature(stop).parameters else []))
        until = time.monotonic() + _JOIN_TIMEOUT
        for thread in set(threading.enumerate()) - self._before:
            thread.join(max(until - time.monotonic(), 0.0))
            if thread.is_alive():
                raise AssertionError(
                    f"the thread {thread.name!r} still runs after stop() of {type(self.connector).__name__}: "
                    f"let stop() end the thread and join it"
                )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def request_task_reconfiguration(self) -> None:
        """Called by the connector; see :class:`~sinksdk.connector.ConnectorContext`."""
        with self._changed:
            self._wants_tasks = True
            self._changed.notify_all()

    def raise_error(self, error: Exception) -> None:
        """Called by the connector; see :class:`~sinksdk.connector.ConnectorContext`."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()
