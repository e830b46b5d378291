"""How a connector is doing: what the planner remembers, and what others may know of it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Literal

from sinksdk.engine.clock import WallClock
from sinksdk.errors import ConnectException
from sinksdk.records import TopicPartition
from sinksdk.store import Conflict, Store, table
from sinksdk.store.keys import remembered_key, status_key
from sinksdk.store.reports import (
    ConnectorStatus,
    PartitionStatus,
    Remembered,
    Seen,
    TaskStatus,
    Unavailable,
    Waiting,
)
from sinksdk.support.confidential import SECRETS
from sinksdk.support.logs import Outage

log = logging.getLogger(__name__)

State = Literal["UNASSIGNED", "RUNNING", "PAUSED", "STOPPED", "FAILED", "RESTARTING"]
"""Connect's states, as they are kept; RESTARTING is what waits for another attempt."""

ShownState = State | Literal["DELETING"]
"""What a connector is shown as: one that is being deleted is DELETING, whatever is kept of it."""

_INTERVAL = 3.0  # seconds between two writes that only say that nothing has changed much
_RATE = 10_000  # bytes per second that may be written of what is remembered, but when a generation has ended
_SIZE = 250  # bytes that are written of a partition, about
_SIGHTINGS = 2_000  # written of all partitions together; at least two of each
_UNAVAILABLE = 100  # partitions without a leader that are told by name
_TRACES = 50  # written; partitions that fail together mostly fail alike


def read_status(store: Store, connector: str) -> ConnectorStatus:
    """A connector's status, with what its driver remembers in it as older drivers wrote it."""
    row = table.read(store, status_key(connector), ConnectorStatus)
    status = row.value if row else ConnectorStatus()
    if _is_older(status):
        return status
    known = table.read(store, remembered_key(connector), Remembered)
    if known is None:
        return status
    return status.model_copy(update={"partitions": known.value.partitions, "tasks": known.value.tasks})


def _is_older(status: ConnectorStatus) -> bool:
    """Whether an older driver wrote it: what a newer one has left elsewhere is out of date then."""
    return bool(status.partitions or status.tasks)


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
        self._version = store.version(self._key)
        self._remembered_key = remembered_key(connector)
        self._remembered_version = store.version(self._remembered_key)
        status = read_status(store, connector)
        self._partitions = {p.topic_partition: p for p in status.partitions}
        self._tasks = {task.task: task for task in status.tasks}
        row = table.read(store, self._key, ConnectorStatus)
        self._is_news = row is not None and _is_older(row.value)
        self._remember_at = clock.now()
        self._state: State = "UNASSIGNED"
        self._trace: str | None = None
        self._missing: tuple[str, ...] = ()
        self._waiting: Waiting | None = None
        self._unavailable = {row.topic_partition: row.since for row in status.unavailable}
        self._written = clock.now()
        self._outage = Outage(log, f"writing the status of connector {connector}")

    def of(self, partition: TopicPartition) -> PartitionStatus | None:
        """What is remembered of a partition."""
        return self._partitions.get(partition)

    def of_task(self, task: int) -> TaskStatus:
        """What is remembered of a source's task."""
        return self._tasks.get(task, TaskStatus(task=task))

    def update_task(self, status: TaskStatus) -> None:
        """Remember; written when :meth:`save` is called next."""
        self._is_news = self._is_news or self._tasks.get(status.task) != status
        self._tasks[status.task] = status

    def update(self, statuses: Iterable[PartitionStatus]) -> None:
        """Remember; written when :meth:`save` is called next."""
        for status in statuses:
            partition = status.topic_partition
            known = self._partitions.get(partition)
            if status is not known:
                self._is_news = self._is_news or known != status
                self._partitions[partition] = status

    def partitions(self) -> list[PartitionStatus]:
        """What is remembered of each partition."""
        return list(self._partitions.values())

    def forget_tasks(self) -> None:
        """Remember nothing of a source's tasks; written when :meth:`save` is called next."""
        self._is_news = self._is_news or bool(self._tasks)
        self._tasks.clear()

    def become(self, state: State, trace: str | None = None, waiting: Waiting | None = None) -> None:
        """Change the connector's state, and write it; secrets that the trace quotes are left out."""
        self._state, self._trace = state, SECRETS.hide(trace) if trace else None
        self._waiting = waiting
        self.save()

    def wait_for(self, waiting: Waiting | None) -> None:
        """What it waits for, or nothing any more; written at once when it is news."""
        if waiting != self._waiting:
            self._waiting = waiting
            self.save()

    def miss(self, topics: Iterable[str]) -> None:
        """These topics, and no others, are missing; written at once when it is news."""
        missing = tuple(sorted(topics))
        if missing != self._missing:
            self._missing = missing
            self.save()

    def leave_out(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions, and no others, have no leader; written at once when it is news."""
        if partitions != self._unavailable.keys():
            now = self._clock.time()
            self._unavailable = {p: self._unavailable.get(p, now) for p in sorted(partitions)}
            self.save()

    def current_driver(self) -> str:
        """Who drives the connector as of now: somebody else, if he wrote the status last."""
        row = table.read(self._store, self._key, ConnectorStatus)
        return row.value.driver if row else self._driver

    def save_if_due(self) -> None:
        """Write that the driver lives, and what it remembers, each if the last time is long enough ago."""
        if self._clock.now() - self._written >= _INTERVAL:
            if self._clock.now() >= self._remember_at:
                self._remember()
            self._beat()

    def save(self) -> None:
        """Write all of it now. Another driver's write in between is taken over, not fought."""
        self._remember()
        self._beat()

    def _remember(self) -> None:
        """Write what is remembered, if it has changed; of what is much the next time is later."""
        if not self._is_news:
            return
        sightings = max(_SIGHTINGS // len(self._partitions), 2) if self._partitions else 0
        kept = [fewer_sightings(status, sightings) for _, status in sorted(self._partitions.items())]
        with_trace = [number for number, status in enumerate(kept) if status.trace]
        for number in with_trace[_TRACES:]:
            kept[number] = kept[number].model_copy(update={"trace": None})
        tasks = tuple(status for _, status in sorted(self._tasks.items()))
        value = Remembered(partitions=tuple(kept), tasks=tasks)
        self._remember_at = self._clock.now() + len(kept) * _SIZE / _RATE
        try:
            try:
                version = table.write(
                    self._store, self._remembered_key, value, self._remembered_version
                ).version
            except Conflict:
                other = self._store.version(self._remembered_key)
                version = table.write(self._store, self._remembered_key, value, other).version
        except ConnectException as error:
            log.info("what the connector's driver remembers was not written: %s", error)
            return
        self._remembered_version, self._is_news = version, False

    def _beat(self) -> None:
        self._written = self._clock.now()
        status = ConnectorStatus(
            state=self._state,
            driver=self._driver,
            heartbeat=self._clock.time(),
            trace=self._trace,
            missing_topics=self._missing,
            waiting=self._waiting,
            unavailable=tuple(
                Unavailable(topic=topic, partition=partition, since=since)
                for (topic, partition), since in islice(self._unavailable.items(), _UNAVAILABLE)
            ),
            unavailable_count=len(self._unavailable),
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
            self._version = self._store.version(self._key)
        except ConnectException as error:
            self._outage.failed("the connector's status cannot be read: %s", error)


def fewer_sightings(status: PartitionStatus, most: int) -> PartitionStatus:
    """A status with at most so many sightings: some of them become one, due a little earlier, never later."""
    if len(status.seen) <= most:
        return status
    size = -(-len(status.seen) // most)
    groups = [status.seen[at : at + size] for at in range(0, len(status.seen), size)]
    seen = tuple(Seen(end=group[-1].end, at=group[0].at) for group in groups)
    return status.model_copy(update={"seen": seen})
