"""Deletes a connector (KIP-883), and completes a deletion that crashed."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from sinksdk.control.clean_up import CleanUp, Connectors, Groups, no_group
from sinksdk.control.deletion import Deletion
from sinksdk.errors import ConnectException, FencedException
from sinksdk.runtime.backoff import Backoff, Waits
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.idle import EndsOf, Idle
from sinksdk.store import StoreUnavailable, table
from sinksdk.store.keys import config_key
from sinksdk.store.records import ConnectorRecord

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Openers:
    """Open a connector that has no driver.

    Args:
        connectors: create the deleted connector.
        groups: find the consumer group with the copy of its commits.
        ends: create the query of its source's end offsets; None: no query.
    """

    connectors: Connectors
    groups: Groups = no_group
    ends: EndsOf | None = None


class Removal:
    """Deletes one connector, in each of its incarnations.

    Args:
        idle: shows why the connector is not deleted yet.
        give_up_at: time on the clock after which a failed attempt raises its error.
    """

    def __init__(
        self, environment: Environment, connector: str, openers: Openers, idle: Idle, give_up_at: float
    ) -> None:
        self._environment = environment
        self._connector = connector
        self._idle = idle
        self._give_up_at = give_up_at
        self._clean_up = CleanUp(
            environment.store,
            connector,
            openers.connectors,
            openers.groups,
            executors=environment.threads.calls,
            clock=environment.clock,
            is_unwanted=lambda: environment.signal.is_final,
        )
        backoff = Backoff(1.0, environment.clock, jitter=environment.jitter)
        self._waits = Waits(f"the deletion of connector {connector}", environment.clock, backoff)
        self.cleaned_up = ""
        """The incarnation that has had its ``stop(True)``."""

    def attempt(self, record: ConnectorRecord) -> bool:
        """Delete it; whether that is done.

        If it fails, the error is shown, and the next attempt follows after a growing delay.
        """
        try:
            deletion = Deletion(self._environment.store, self._connector, record)
            if record.incarnation != self.cleaned_up:
                self._clean_up.run(deletion, record, self._idle.driver)
                self.cleaned_up = record.incarnation
            self._clean_up.show(deletion, record)
            deletion.remove()
        except (FencedException, StoreUnavailable):
            raise
        except ConnectException as error:
            return self._wait(record, error)
        log.info("connector %s is deleted", self._connector)
        return True

    def _wait(self, record: ConnectorRecord, error: ConnectException) -> bool:
        """Wait before the next attempt; whether another process has deleted it meanwhile."""
        delay, waiting = self._waits.failed(error)
        if self._environment.clock.now() + delay > self._give_up_at:
            raise error
        self._idle.wait(record, "RESTARTING", str(error), waiting, at_most=delay)
        row = table.read(self._environment.store, config_key(self._connector), ConnectorRecord)
        return row is None or row.value.incarnation != record.incarnation
