"""Copies a connector's commits to a consumer group, from which Kafka's tools compute the lag.

The store is authoritative: a thread writes the group, delays no commit and only warns of failures.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping
from typing import Protocol

from sinksdk.errors import ConnectException
from sinksdk.offsets import TopicPartition
from sinksdk.support.logs import Outage
from sinksdk.support.threads import start_thread

log = logging.getLogger(__name__)

_PATIENCE = 5.0  # seconds for the last write, when the driver ends
_RETRY = 10.0  # seconds until a retry


class OffsetGroup(Protocol):
    def offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]: ...

    def write(self, offsets: Mapping[TopicPartition, int]) -> None: ...

    def is_in_use(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Whether consumers may still commit to the group. Raises RetriableException."""


class ConsumerGroupSync:
    """Interface for copying published offsets to a consumer group; this implementation does nothing."""

    def follow(self, visible: Mapping[TopicPartition, int]) -> None:
        """Copy offsets of published records: consumers that continue there must miss none."""

    def close(self) -> None: ...


class BackgroundSync(ConsumerGroupSync):
    def __init__(self, group: OffsetGroup, connector: str) -> None:
        self._group = group
        self._connector = connector
        self._written: dict[TopicPartition, int] = {}
        self._wanted: dict[TopicPartition, int] = {}
        self._changed = threading.Condition()
        self._is_ending = False
        self._outage = Outage(log, f"connector {connector}: writing its committed offsets to {group}")
        self._thread = start_thread(self._work, "offset-sync")

    def follow(self, visible: Mapping[TopicPartition, int]) -> None:
        with self._changed:
            if any(self._wanted.get(p) != offset for p, offset in visible.items()):
                self._wanted |= visible
                self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._is_ending = True
            self._changed.notify()
        self._thread.join(_PATIENCE)

    def _work(self) -> None:
        is_last = False
        while not is_last:
            with self._changed:
                self._changed.wait_for(self._has_work, _RETRY if self._is_failing else None)
                is_last = self._is_ending
                news = self._news()
            if news:
                self._write(news)

    @property
    def _is_failing(self) -> bool:
        return self._outage.since is not None

    def _has_work(self) -> bool:
        return self._is_ending or (bool(self._news()) and not self._is_failing)

    def _news(self) -> dict[TopicPartition, int]:
        return {p: offset for p, offset in self._wanted.items() if self._written.get(p) != offset}

    def _write(self, offsets: Mapping[TopicPartition, int]) -> None:
        try:
            self._group.write(offsets)
        except ConnectException as error:
            self._outage.failed(
                "connector %s: cannot write its committed offsets to %s, retrying: %s; the commits are safe "
                "in the store",
                self._connector,
                self._group,
                error,
            )
            return
        self._written |= offsets
        self._outage.worked()
