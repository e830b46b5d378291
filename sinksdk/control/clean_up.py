"""What precedes the removal of a deleted connector: publish, ``stop(True)``, show how far its group is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from sinksdk.connector import Connector, ConnectorIdentity, SinkConnector
from sinksdk.control.connector_calls import CallExecutor, ConnectorCalls
from sinksdk.control.consumer_group import OffsetGroup
from sinksdk.control.deletion import Call, Deletion
from sinksdk.control.status import StatusKeeper
from sinksdk.engine.clock import WallClock
from sinksdk.errors import ConnectException
from sinksdk.store import Store, identify
from sinksdk.store.records import ConnectorRecord

log = logging.getLogger(__name__)


class CleanUpSettings(Protocol):
    """What cleaning up needs of a connector's configuration."""

    tasks_max: int
    task_hang_timeout_ms: int
    connector_shutdown_timeout_ms: int


Connectors = Callable[[ConnectorRecord], tuple[Connector, CleanUpSettings]]
"""Makes a connector that is deleted and does not run, with its configuration. Raises ConfigException."""

Groups = Callable[[ConnectorRecord], OffsetGroup | None]
"""Finds the group that a connector's commits are mirrored to, if they are. Raises ConnectException."""


def no_group(record: ConnectorRecord) -> OffsetGroup | None:  # noqa: ARG001 - there is none, whatever it says
    """Its commits are mirrored to none."""
    return None


class CleanUp:
    """Cleans up what deleted connectors have outside of the store.

    Args:
        store: where the connector's records are.
        connector: its name.
        connectors: make one to be deleted.
        groups: find where its commits are mirrored to.
        executors: make what runs its code.
        clock: time.
        is_unwanted: whether the process is to end.
    """

    def __init__(
        self,
        store: Store,
        connector: str,
        connectors: Connectors,
        groups: Groups,
        *,
        executors: Callable[[], CallExecutor],
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
        """Publish what is committed, then ``stop(True)``: of a connector that does not run, one is made.

        Args:
            deletion: the attempt at deleting it.
            record: what the store knows of it.
            driver: who is at it, for its status.

        Raises:
            UnpublishedException: something could not be published, and why.
        """
        try:
            connector, config = self._connectors(record)
        except ConnectException as error:
            self._expect_published(deletion, record, str(error))
            log.exception(
                "connector %s: deleted without stop(is_deleted=True); what it has outside stays there",
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
                    settle()  # what was given up is discarded, if that works
            is_settled = True
        finally:
            calls.stop(is_deleted=is_settled, timeout=config.connector_shutdown_timeout_ms / 1000)

    def _start(self, calls: ConnectorCalls, connector: Connector, config: CleanUpSettings) -> str:
        """``start``, as far as it goes: what does not run has nothing to clean with.

        Returns:
            What was wrong; empty if it started.
        """
        timeout = config.connector_shutdown_timeout_ms / 1000
        try:
            calls.call("start", lambda: connector.start(config), timeout=timeout)
        except Exception as error:
            log.warning(
                "connector %s: start failed before its deletion; stop is called all the same",
                self._connector,
                exc_info=True,
            )
            return f"start failed: {error}"
        return ""

    def _calls(self, calls: ConnectorCalls, config: CleanUpSettings, driver: str) -> Call:
        """Makes calls that may take as long as a task's; others hear meanwhile that somebody deletes it."""
        status = StatusKeeper(self._store, self._connector, driver, self._clock)
        status.become("RESTARTING")

        def is_unwanted() -> bool:
            status.save_if_due()
            return self._is_unwanted()

        return partial(calls.call, timeout=config.task_hang_timeout_ms / 1000, is_unwanted=is_unwanted)

    def _expect_published(self, deletion: Deletion, record: ConnectorRecord, reason: str) -> bool:
        """Hold the deletion up where something is not published; whether it was given up, by force."""
        if record.forced:
            return deletion.give_up()
        deletion.expect_published(reason)
        return False

    def show(self, deletion: Deletion, record: ConnectorRecord) -> None:
        """The group its commits are mirrored to ends where everything is published: one goes on there.

        A group that is beyond all that was ever committed here belongs to somebody else by now, and stays.
        """
        visible = deletion.visible()
        try:
            group = self._groups(record)
            if group is not None and visible:
                known, ours = group.offsets(visible.keys()), deletion.reached()
                if moved := {p: at for p, at in visible.items() if known.get(p, at) <= ours[p]}:
                    group.write(moved)
        except ConnectException as error:
            message = (
                f"connector {self._connector} is not deleted yet: the group its commits are mirrored to "
                f"cannot be written: {error}; 'sinksdk delete {self._connector} --force' does without"
            )
            if not record.forced:
                raise ConnectException(message) from error
            log.error(  # noqa: TRY400 - --force asked for it
                "connector %s is deleted by force; the group its commits are mirrored to may be behind: %s",
                self._connector,
                error,
            )
