"""KIP-618's decision: whom a round of zombie fencing concerns, and what the task count record says after it.

Source tasks write through transactional ids, one a task, and the record tells how many of them the tasks
before may still use. Sinks do not decide: their records are fenced in every generation, also from one task
to one task, because a plan may leave partitions out and a task's record is not a producer that fences
itself (see :class:`~sinksdk.store.generations.Generations`).
"""

from __future__ import annotations

from typing import NamedTuple

from sinksdk.engine.options import TaskName
from sinksdk.engine.writer import Target
from sinksdk.source.config import SourceConnectorConfig


class FencingRound(NamedTuple):
    """What to do before the tasks of a new configuration start.

    Args:
        fence: numbers of the tasks whose transactional ids are fenced.
        record: the task count to write once all of them are fenced; None: write nothing.
    """

    fence: range
    record: int | None


def fencing_round(*, is_pending: bool, recorded: int | None, tasks: int) -> FencingRound:
    """Decide on a round of fencing.

    Args:
        is_pending: whether there are task configurations after the latest record (or no record yet):
            only then tasks that nobody has counted are about to start.
        recorded: the latest record's count; None where there is none. The record outlives the
            connector's deletion, so that a connector created again is fenced against its former self.
        tasks: how many tasks are about to start; 0 for a connector that is stopped.

    Returns:
        Nothing to fence and nothing to write, where nothing is pending. Otherwise as many ids as were
        recorded, not as many as will run, and the new count; a single task that stays a single task
        fences itself when it begins its transactions. A round that fails to fence must not write.
    """
    if not is_pending:
        return FencingRound(range(0), None)
    if recorded is None or (recorded == 1 and tasks == 1):
        return FencingRound(range(0), tasks)
    return FencingRound(range(recorded), tasks)


def fence(target: Target, config: SourceConnectorConfig, task: int) -> None:
    """End whoever writes as this task: what it has open is aborted, and nothing of it comes any more.

    With the connector's own settings, as the task itself would: its user needs no further rights.

    Raises:
        RetriableException: nobody knows whether it is done.
        ConnectException: it cannot be done.
    """
    writer = target.writer(config, TaskName(config.name, task))
    try:
        writer.init()
    finally:
        writer.close()
