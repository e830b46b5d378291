"""The driver of one source: runs its generations until it is stopped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sinksdk.context import ClosingReason
from sinksdk.control.progress import Listener
from sinksdk.engine.writer import Target
from sinksdk.errors import ConfigException
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.outcomes import SourceLauncher
from sinksdk.runtime.reporter import SourceReporter
from sinksdk.runtime.session import DriverSession
from sinksdk.runtime.source_session import SourceSession
from sinksdk.runtime.task_failures import TaskFailures
from sinksdk.runtime.zombie_fencing import ZombieFencing
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.source.connector import SourceConnector

# More than twelve imports: only this module assembles a source's parts.


class SourceDriver:
    """Runs one source connector from its start to its end.

    Args:
        environment: store, clock, threads and jitter.
        connector: its ``start`` and ``stop`` are called here.
        config: its validated configuration.
        raw: the same as it was written.
        target: of its records and offsets.
        launcher: starts generations.
        listener: watches.
    """

    def __init__(
        self,
        environment: Environment,
        *,
        connector: SourceConnector,
        config: SourceConnectorConfig,
        raw: Mapping[str, Any],
        target: Target,
        launcher: SourceLauncher,
        listener: Listener | None = None,
    ) -> None:
        self._environment = environment
        self._connector = connector
        self._config = config
        self._raw = raw
        self._target = target
        self._launcher = launcher
        self._listener = listener or Listener()

    def close(self) -> None:
        """End; the running generation commits and stops first. From any thread or signal handler."""
        self._environment.signal.ask(ClosingReason.SHUTDOWN)

    def rebalance(self) -> None:
        """End the running generation early; the next one follows with new configurations of its tasks."""
        self._environment.signal.ask(ClosingReason.REBALANCE, final=False)

    def run(self, *, until_caught_up: bool = False) -> ClosingReason | None:
        """Run until :meth:`close`.

        Returns:
            Why the operator stops the connector; None if he does not.

        Raises:
            ConfigException: the connector refuses to start; or ``until_caught_up`` is set: a source has no
                end.
            FencedException: a newer driver has taken over.
            ConnectException: a task failed too often; the others have committed first. Or earlier tasks could
                not be fenced.
        """
        if until_caught_up:
            raise ConfigException(
                f"connector {self._config.name} is a source, and there may always be more to poll: run it "
                f"without --until-caught-up, and stop it when it has read what you want"
            )
        config = self._config
        session = DriverSession(self._environment, self._connector, config, self._raw)
        source = SourceSession(
            session,
            self._launcher,
            fencing=ZombieFencing(session, config, self._target),
            failures=TaskFailures(config, session.status, session.clock, self._environment.jitter),
            reporter=SourceReporter(session, self._listener),
        )
        return session.run(source.drive)
