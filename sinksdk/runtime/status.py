"""How a connector is doing: what the planner remembers, and what others may know of it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Literal

from sinksdk.confidential import SECRETS
from sinksdk.errors import ConnectException
from sinksdk.logs import Outage
from sinksdk.records import TopicPartition
from sinksdk.runtime.clock import WallClock
from sinksdk.store import Conflict, Store, table
from sinksdk.store.keys import status_key
from sinksdk.store.reports import ConnectorStatus, PartitionStatus, TaskStatus

log = logging.getLogger(__name__)

State = Literal["UNASSIGNED", "RUNNING", "PAUSED", "STOPPED", "FAILED", "RESTARTING"]
"""Connect's states; RESTARTING is what waits for another attempt."""

_INTERVAL = 2.0  # seconds between two writes that only say that nothing has changed much


class StatusKeeper:
    """Keeps a connector's status in memory and, now and then, in the store.

    Losing it costs no record: a tail is read once in vain, a first-seen time starts anew.

    Args:
        store: where it is kept.
        connector: the connector's name.
        driver: who drives it.
        clock: time.
    """

    def __init__(self, store: Store, connector: str, driver: str, clock: WallClock) -> None:
        self._store = store
        self._key = status_key(connector)
        self._driver = driver
        self._clock = clock
        row = table.read(store, self._key, ConnectorStatus)
        self._version = row.version if row else None
        self._partitions = {p.topic_partition: p for p in row.value.partitions} if row else {}
        self._tasks = {status.task: status for status in row.value.tasks} if row else {}
        self._state: State = "UNASSIGNED"
        self._trace: str | None = None
        self._missing: tuple[str, ...] = ()
        self._written = clock.now()
        self._outage = Outage(log)

    def of(self, partition: TopicPartition) -> PartitionStatus | None:
        """What is remembered of a partition."""
        return self._partitions.get(partition)

    def of_task(self, task: int) -> TaskStatus:
        """What is remembered of a source's task."""
        return self._tasks.get(task, TaskStatus(task=task))

    def update_task(self, status: TaskStatus) -> None:
        """Remember; written when :meth:`save` is called next."""
        self._tasks[status.task] = status

    def update(self, statuses: Iterable[PartitionStatus]) -> None:
        """Remember; written when :meth:`save` is called next."""
        self._partitions.update({status.topic_partition: status for status in statuses})

    def forgive(self) -> None:
        """A new start: what failed before has all its attempts again."""
        self.update(
            p.model_copy(update={"failures": 0, "failed_at": ()}) for p in list(self._partitions.values())
        )
        self._tasks.clear()

    def become(self, state: State, trace: str | None = None) -> None:
        """Change the connector's state, and write it; secrets that the trace quotes are left out."""
        self._state, self._trace = state, SECRETS.hide(trace) if trace else None
        self.save()

    def miss(self, topics: Iterable[str]) -> None:
        """These topics, and no others, are missing; written at once when it is news."""
        missing = tuple(sorted(topics))
        if missing != self._missing:
            self._missing = missing
            self.save()

    def current_driver(self) -> str:
        """Who drives the connector as of now: somebody else, if he wrote the status last."""
        row = table.read(self._store, self._key, ConnectorStatus)
        return row.value.driver if row else self._driver

    def save_if_due(self) -> None:
        """Write the status if the last time is long enough ago."""
        if self._clock.now() - self._written >= _INTERVAL:
            self.save()

    def save(self) -> None:
        """Write the status now. Another driver's write in between is taken over, not fought."""
        self._written = self._clock.now()
        status = ConnectorStatus(
            state=self._state,
            driver=self._driver,
            heartbeat=self._clock.time(),
            partitions=tuple(status for _, status in sorted(self._partitions.items())),
            trace=self._trace,
            missing_topics=self._missing,
            tasks=tuple(status for _, status in sorted(self._tasks.items())),
        )
        try:
            self._version = table.write(self._store, self._key, status, self._version).version
            self._outage.worked()
        except Conflict:
            self._find_version()
            self._save_over(status)
        except ConnectException as error:
            self._outage.failed("the connector's status cannot be written: %s", error)

    def _save_over(self, status: ConnectorStatus) -> None:
        """Once more, over what somebody else has written; the next time is soon enough after that."""
        try:
            self._version = table.write(self._store, self._key, status, self._version).version
        except ConnectException as error:
            log.info("the connector's status was not written: %s", error)

    def _find_version(self) -> None:
        try:
            found = self._store.get(self._key)
            self._version = found.version if found else None
        except ConnectException as error:
            self._outage.failed("the connector's status cannot be read: %s", error)
