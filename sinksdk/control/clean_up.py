"""Clean-up of a deleted connector: publish its commits, call ``stop(True)``, write its consumer group."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from sinksdk.config import ConnectorConfig
from sinksdk.connector import Connector, ConnectorIdentity, SinkConnector
from sinksdk.control.connector_calls import ConnectorCalls, ThreadExecutor
from sinksdk.control.consumer_group import OffsetGroup
from sinksdk.control.deletion import Call, Deletion
from sinksdk.control.status import StatusKeeper
from sinksdk.engine.clock import WallClock
from sinksdk.errors import ConnectException
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.store import Store, identify
from sinksdk.store.records import ConnectorRecord

log = logging.getLogger(__name__)


Config = ConnectorConfig | SourceConnectorConfig

Connectors = Callable[[ConnectorRecord], tuple[Connector, Config]]

Groups = Callable[[ConnectorRecord], OffsetGroup | None]


class CleanUp:
    def __init__(
        self,
        store: Store,
        connector: str,
        connectors: Connectors,
        groups: Groups,
        *,
        executors: Callable[[], ThreadExecutor],
        clock: WallClock,
        is_unwanted: Callable[[], bool],
    ) -> None:
        self._store = store
        self._connector = connector
        self._connectors = connectors
        self._groups = groups
        self._executors = executors
        self._clock = clock
        self._is_unwanted = is_unwanted

    def run(self, deletion: Deletion, record: ConnectorRecord, driver: str) -> None:
        """Publish committed tokens, then call ``stop(True)`` of a new instance of the connector."""
        try:
            connector, config = self._connectors(record)
        except ConnectException as error:
            self._expect_published(deletion, record, str(error))
            log.exception(
                "connector %s: deleted without a call of stop(is_deleted=True), because its configuration is "
                "invalid; resources that it created elsewhere remain",
                self._connector,
            )
            return
        connector.identity = ConnectorIdentity(identify(self._store), self._connector, record.incarnation)
        calls = ConnectorCalls(connector, self._connector, self._clock, self._executors)
        is_settled = False
        try:
            problem = self._start(calls, connector, config)
            if not deletion.is_settled and isinstance(connector, SinkConnector):

                def settle() -> str:
                    call = self._calls(calls, config, driver)
                    return problem or deletion.settle(connector, config.tasks_max, call, self._clock)

                if self._expect_published(deletion, record, settle()):
                    settle()  # discards the withdrawn tokens, if possible
            is_settled = True
        finally:
            calls.stop(is_deleted=is_settled, timeout=config.connector_shutdown_timeout_ms / 1000)

    def _start(self, calls: ConnectorCalls, connector: Connector, config: Config) -> str:
        timeout = config.connector_shutdown_timeout_ms / 1000
        try:
            # stop may need the resources that start opens.
            calls.call("start", lambda: connector.start(config), timeout=timeout)
        except Exception as error:
            log.warning(
                "connector %s: start failed before its deletion; calling stop anyway",
                self._connector,
                exc_info=True,
            )
            return f"start failed: {error}"
        return ""

    def _calls(self, calls: ConnectorCalls, config: Config, driver: str) -> Call:
        status = StatusKeeper(self._store, self._connector, driver, self._clock)
        status.become("RESTARTING")

        def is_unwanted() -> bool:
            status.save_if_due()
            return self._is_unwanted()

        return partial(calls.call, timeout=config.task_hang_timeout_ms / 1000, is_unwanted=is_unwanted)

    def _expect_published(self, deletion: Deletion, record: ConnectorRecord, reason: str) -> bool:
        """Raise if a commit is not published, unless forced; return whether any was dropped."""
        if record.forced:
            return deletion.give_up()
        deletion.expect_published(reason)
        return False

    def show(self, deletion: Deletion, record: ConnectorRecord) -> None:
        """Set the consumer group to the published offsets, so that consumers can continue there."""
        visible = deletion.visible()
        try:
            group = self._groups(record)
            if group is not None and visible:
                known, ours = group.offsets(visible.keys()), deletion.reached()
                # A group offset beyond every commit was written by other consumers: do not change it.
                if moved := {p: at for p, at in visible.items() if known.get(p, at) <= ours[p]}:
                    group.write(moved)
        except ConnectException as error:
            message = (
                f"connector {self._connector} is not deleted yet: its committed offsets cannot be written "
                f"to its consumer group: {error}; 'sinksdk delete {self._connector} --force' deletes it "
                f"without writing them"
            )
            if not record.forced:
                raise ConnectException(message) from error
            log.error(  # noqa: TRY400 - the operator passed --force
                "connector %s is deleted by force; its consumer group may lag behind its commits: %s",
                self._connector,
                error,
            )
