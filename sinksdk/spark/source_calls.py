"""Which methods of a source's task run now, and for how long: for who looks after it from beside."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sinksdk.engine.clock import Clock
from sinksdk.source.context import SourceTaskContext
from sinksdk.source.records import RecordMetadata, SourceRecord
from sinksdk.source.task import SourceTask

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class RunningCall:
    """A method that was called and has not returned.

    Args:
        method: its name.
        since: when it was called, on the clock.
        thread: in which thread.
    """

    method: str
    since: float
    thread: int

    @property
    def may_wait(self) -> bool:
        """Whether it may take for ever: only ``poll``, for what may never come."""
        return self.method == "poll"


class WatchedSourceTask(SourceTask):
    """An author's task, and what is being called of it.

    Args:
        task: the author's.
        clock: time.
    """

    def __init__(self, task: SourceTask, clock: Clock) -> None:
        self._task = task
        self._clock = clock
        self._running: list[RunningCall] = []

    def running(self) -> Sequence[RunningCall]:
        """Calls that have not returned, the oldest first; at most one a thread. From any thread."""
        return tuple(self._running)

    def initialize(self, context: SourceTaskContext) -> None:
        """See :meth:`SourceTask.initialize`."""
        self._call(self._task.initialize, context)

    def start(self, config: Any) -> None:
        """See :meth:`SourceTask.start`."""
        self._call(self._task.start, config)

    def poll(self) -> Sequence[SourceRecord] | None:
        """See :meth:`SourceTask.poll`."""
        return self._call(self._task.poll)

    def commit(self) -> None:
        """See :meth:`SourceTask.commit`."""
        self._call(self._task.commit)

    def commit_record(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:
        """See :meth:`SourceTask.commit_record`."""
        self._call(self._task.commit_record, record, metadata)

    def stop(self) -> None:
        """See :meth:`SourceTask.stop`."""
        self._call(self._task.stop)

    def stopped(self) -> None:
        """See :meth:`SourceTask.stopped`."""
        self._call(self._task.stopped)

    def _call(self, method: Callable[..., T], *arguments: object) -> T:
        call = RunningCall(method.__name__, self._clock.now(), threading.get_ident())
        self._running.append(call)
        try:
            return method(*arguments)
        finally:
            self._running.remove(call)
