"""Drives one task: pure and deterministic. Clock, commit log and batches come in from outside."""

from sinksdk.engine.clock import Clock, SystemClock, WallClock
from sinksdk.engine.commits import CommitLog
from sinksdk.engine.options import EngineOptions, TaskName
from sinksdk.engine.worker_sink_task import WorkerSinkTask

__all__ = [
    "Clock",
    "CommitLog",
    "EngineOptions",
    "SystemClock",
    "TaskName",
    "WallClock",
    "WorkerSinkTask",
]
