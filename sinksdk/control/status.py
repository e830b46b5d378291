"""A connector's published status, and its driver's state between generations."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Literal

from sinksdk.engine.clock import WallClock
from sinksdk.errors import ConnectException
from sinksdk.model.plan import PlannerState, Seen
from sinksdk.model.status import Waiting
from sinksdk.offsets import TopicPartition
from sinksdk.store import Conflict, Store, table
from sinksdk.store.keys import remembered_key, status_key
from sinksdk.store.reports import PLAN_TIMEOUT, ConnectorStatus, Remembered, TaskStatus, Unavailable
from sinksdk.support.confidential import SECRETS
from sinksdk.support.logs import Outage

log = logging.getLogger(__name__)

# Connect's states; a RESTARTING connector waits for another attempt.
State = Literal["UNASSIGNED", "RUNNING", "PAUSED", "STOPPED", "FAILED", "RESTARTING"]

ShownState = State | Literal["DELETING"]

_INTERVAL = 3.0  # seconds between two heartbeats
_RATE = 10_000  # bytes per second of the remembered state, written between ends of generations
_SIZE = 250  # approximate bytes of one partition's state
_SIGHTINGS = 2_000  # entries of ``seen`` of all partitions together; at least two of each
_UNAVAILABLE = 100  # partitions without a leader that are listed
_TRACES = 50  # traces to write: partitions that fail together mostly fail for the same reason


def read_status(store: Store, connector: str) -> ConnectorStatus:
    row = table.read(store, status_key(connector), ConnectorStatus)
    status = row.value if row else ConnectorStatus()
    if _is_older(status):
        return status
    known = table.read(store, remembered_key(connector), Remembered)
    if known is None:
        return status
    return status.model_copy(update={"partitions": known.value.partitions, "tasks": known.value.tasks})


def _is_older(status: ConnectorStatus) -> bool:
    # If an older driver has written its state into the status since, the separately remembered state is
    # outdated.
    return bool(status.partitions or status.tasks)


class StatusKeeper:
    """Keeps a connector's status in memory and, periodically, in the store.

    Losing it loses no record: a tail is read again without result, a first-seen time starts again.

    Args:
        plan_timeout: seconds of waiting that count as a failure.
    """

    # Eleven attributes: two rows of the store, each with its content and the time of its last write.
    def __init__(
        self,
        store: Store,
        connector: str,
        driver: str,
        clock: WallClock,
        plan_timeout: float = PLAN_TIMEOUT,
    ) -> None:
        self._clock = clock
        self._status_row = table.OwnRow(store, status_key(connector), ConnectorStatus)
        self._remembered_row = table.OwnRow(store, remembered_key(connector), Remembered)
        before = self._status_row.read() or ConnectorStatus()
        remembered = self._remembered_row.read()
        self._is_news = _is_older(before)
        if remembered is None or self._is_news:
            remembered = Remembered(partitions=before.partitions, tasks=before.tasks)
        self._partitions = {p.topic_partition: p for p in remembered.partitions}
        self._tasks = {task.task: task for task in remembered.tasks}
        self._remember_at = clock.now()
        self._status = ConnectorStatus(driver=driver, plan_timeout=plan_timeout)
        self._unavailable = {row.topic_partition: row.since for row in before.unavailable}
        self._written = clock.now()
        self._outage = Outage(log, f"writing the status of connector {connector}")

    def of(self, partition: TopicPartition) -> PlannerState | None:
        return self._partitions.get(partition)

    def of_task(self, task: int) -> TaskStatus:
        return self._tasks.get(task, TaskStatus(task=task))

    def update_task(self, status: TaskStatus) -> None:
        self._is_news = self._is_news or self._tasks.get(status.task) != status
        self._tasks[status.task] = status

    def update(self, statuses: Iterable[PlannerState]) -> None:
        for status in statuses:
            partition = status.topic_partition
            known = self._partitions.get(partition)
            if status is not known:
                self._is_news = self._is_news or known != status
                self._partitions[partition] = status

    def partitions(self) -> list[PlannerState]:
        return list(self._partitions.values())

    def forget_tasks(self) -> None:
        self._is_news = self._is_news or bool(self._tasks)
        self._tasks.clear()

    def become(self, state: State, trace: str | None = None, waiting: Waiting | None = None) -> None:
        """Change the connector's state, and write it; secrets are removed from the trace."""
        self._change(state=state, trace=SECRETS.hide(trace) if trace else None, waiting=waiting)
        self.save()

    def wait_for(self, waiting: Waiting | None) -> None:
        """Set the unavailable system, if any; a change is written at once."""
        if waiting != self._status.waiting:
            self._change(waiting=waiting)
            self.save()

    def overdue(self) -> str | None:
        return self._status.overdue(self._clock.time())

    def miss(self, topics: Iterable[str]) -> None:
        """Set the missing topics; a change is written at once."""
        missing = tuple(sorted(topics))
        if missing != self._status.missing_topics:
            self._change(missing_topics=missing)
            self.save()

    def leave_out(self, partitions: Collection[TopicPartition]) -> None:
        """Set the partitions without a leader; a change is written at once."""
        if partitions != self._unavailable.keys():
            now = self._clock.time()
            self._unavailable = {p: self._unavailable.get(p, now) for p in sorted(partitions)}
            self.save()

    def current_driver(self) -> str:
        status = self._status_row.read()
        return status.driver if status else self._status.driver

    def save_if_due(self) -> None:
        """Write a heartbeat and the remembered state, each if its interval has passed."""
        if self._clock.now() - self._written >= _INTERVAL:
            if self._clock.now() >= self._remember_at:
                self._remember()
            self._beat()

    def save(self) -> None:
        self._remember()
        self._beat()

    def _change(self, **changes: object) -> None:
        self._status = self._status.model_copy(update=changes)

    def _remember(self) -> None:
        if not self._is_news:
            return
        sightings = max(_SIGHTINGS // len(self._partitions), 2) if self._partitions else 0
        kept = [fewer_sightings(status, sightings) for _, status in sorted(self._partitions.items())]
        with_trace = [number for number, status in enumerate(kept) if status.trace]
        for number in with_trace[_TRACES:]:
            kept[number] = kept[number].model_copy(update={"trace": None})
        tasks = tuple(status for _, status in sorted(self._tasks.items()))
        # The larger the state, the longer the interval.
        self._remember_at = self._clock.now() + len(kept) * _SIZE / _RATE
        try:
            self._remembered_row.write(Remembered(partitions=tuple(kept), tasks=tasks))
        except ConnectException as error:
            log.info("the state of the connector's partitions and tasks was not written: %s", error)
        else:
            self._is_news = False

    def _beat(self) -> None:
        self._written = self._clock.now()
        unavailable = islice(self._unavailable.items(), _UNAVAILABLE)
        self._change(
            heartbeat=self._clock.time(),
            unavailable=tuple(
                Unavailable(topic=p.topic, partition=p.partition, since=at) for p, at in unavailable
            ),
            unavailable_count=len(self._unavailable),
        )
        try:
            self._status_row.write(self._status)
        except Conflict as error:  # another driver also writes the status: the next heartbeat is soon enough
            log.info("the connector's status was not written: %s", error)
        except ConnectException as error:
            self._outage.failed("the connector's status cannot be written: %s", error)
        else:
            self._outage.worked()


def fewer_sightings(status: PlannerState, most: int) -> PlannerState:
    """Merge entries of ``seen`` (end offset, and when it was first seen) until at most ``most`` are left.

    A merged entry has its oldest time: batches become due a little earlier, never later.
    """
    if len(status.seen) <= most:
        return status
    size = -(-len(status.seen) // most)
    groups = [status.seen[at : at + size] for at in range(0, len(status.seen), size)]
    seen = tuple(Seen(end=group[-1].end, at=group[0].at) for group in groups)
    return status.model_copy(update={"seen": seen})
