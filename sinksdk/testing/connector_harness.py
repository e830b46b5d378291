"""ConnectorHarness: a connector's class from start to stop, without tasks, a store or Spark."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

from sinksdk.connector import Connector, ConnectorContext, ConnectorIdentity
from sinksdk.errors import ConfigException
from sinksdk.plugins.checks import connector_problems, task_configs_of

_ENDING: Final = 1.0  # seconds that a thread may need to end after stop


class ConnectorHarness(ConnectorContext):
    """Calls a connector as its driver would, and hears its requests.

    ::

        with ConnectorHarness(TableSource, {"name": "tables", "tasks.max": "2", "database": path}) as harness:
            assert [config.tables for config in harness.task_configs()] == [["a"], ["b"]]
            create_table("c")
            harness.await_reconfiguration()
            assert [config.tables for config in harness.task_configs()] == [["a", "c"], ["b"]]

    The block starts the connector, and stops it; then every thread of its own must have ended.

    Args:
        connector: makes it; its class will do.
        config: its configuration, with dotted names.

    Raises:
        ConfigException: the configuration cannot work, also as the connector's ``validate`` says.
    """

    def __init__(self, connector: Callable[[], Connector], config: Mapping[str, Any]) -> None:
        self.connector = connector()
        """The connector."""
        self._raw = dict(config)
        parsed: Any = self.connector.config_class.parse(self._raw)
        self.config: Any = parsed
        """What ``start`` is given."""
        if problems := connector_problems(self.connector, self.config):
            raise ConfigException(problems)
        self.connector.identity = ConnectorIdentity("harness", parsed.name, "1")
        self.connector.context = self
        self._changed = threading.Condition()
        self._wants_tasks = False
        self._error: Exception | None = None
        self._before: set[threading.Thread] = set()

    def start(self) -> None:
        """Call ``start``. Raises what that raises."""
        self._before = set(threading.enumerate())
        self.connector.start(self.config)

    def task_configs(self) -> list[Any]:
        """Call ``task_configs`` with ``tasks.max``, which answers a request for it.

        Returns:
            What ``start`` of each task would be given: of the connector's ``config_class``.

        Raises:
            ConnectException: the driver would refuse what it returns.
            ConfigException: a task's configuration cannot work.
        """
        with self._changed:
            self._wants_tasks = False
        own = task_configs_of(self.connector, self.config.name, self.config.tasks_max)
        return [self.connector.config_class.parse({**self._raw, **entries}) for entries in own]

    def await_reconfiguration(self, timeout: float = 5.0) -> None:
        """Wait until the connector asks for new configurations of its tasks.

        Args:
            timeout: seconds.

        Raises:
            AssertionError: it has not asked since ``task_configs`` was last called.
            Exception: what the connector has raised with ``raise_error``.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._wants_tasks or self._error is not None, timeout)
            if self._error is not None:
                raise self._error
            asked = self._wants_tasks
        if not asked:
            who = type(self.connector).__name__
            message = f"{who} has not asked for new configurations of its tasks in {timeout:g} s"
            raise AssertionError(message)

    @property
    def wants_reconfiguration(self) -> bool:
        """Whether it has asked for new configurations since ``task_configs`` was last called."""
        return self._wants_tasks

    @property
    def error(self) -> Exception | None:
        """The first error that it has raised with ``raise_error``, if there is one."""
        return self._error

    def stop(self, *, is_deleted: bool = False) -> None:
        """Call ``stop``. Raises what that raises, and AssertionError if a thread goes on afterwards."""
        stop: Callable[..., None] = self.connector.stop
        stop(*([is_deleted] if inspect.signature(stop).parameters else []))
        until = time.monotonic() + _ENDING
        for thread in set(threading.enumerate()) - self._before:
            thread.join(max(until - time.monotonic(), 0.0))
            if thread.is_alive():
                message = (
                    f"the thread {thread.name!r} goes on after stop() of {type(self.connector).__name__}: "
                    f"let stop() end it, and wait for its end"
                )
                raise AssertionError(message)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def request_task_reconfiguration(self) -> None:
        """The connector's request; see :class:`~sinksdk.connector.ConnectorContext`."""
        with self._changed:
            self._wants_tasks = True
            self._changed.notify_all()

    def raise_error(self, error: Exception) -> None:
        """The connector's error; see :class:`~sinksdk.connector.ConnectorContext`."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()
