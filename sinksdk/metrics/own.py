"""Metrics that Kafka Connect does not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sinksdk.metrics.metric import (
    ALL,
    CONNECTOR,
    PARTITION,
    SINK_TASK,
    SOURCE_TASK,
    TASK,
    Group,
    Scrape,
    Subject,
)
from sinksdk.model.measures import OWN_COUNTS
from sinksdk.spark.task_slots import ConnectorSlots


def _readable(scrape: Scrape) -> Iterator[tuple[tuple[str, ...], bool]]:
    yield from (((info.name,), True) for info in scrape.connectors)
    yield from (((name,), False) for name in scrape.unreadable)


def _used(scrape: Scrape) -> Iterator[tuple[tuple[str, ...], ConnectorSlots]]:
    if scrape.task_slots is not None:
        yield from (((name,), slots) for name, slots in sorted(scrape.task_slots.by_connector.items()))


_connector = Group("connector", CONNECTOR)
_partition = Group("partition", PARTITION)
_task = Group("task", TASK)
_sink_task = Group("task", SINK_TASK)
_source_task = Group("task", SOURCE_TASK)
_spark = Group("spark", Subject(CONNECTOR.labels, _used))

OWN_METRICS: Final = (
    Group("connector", Subject(CONNECTOR.labels, _readable)).metric(
        "readable",
        "1",
        "1 if the connector's records could be read, 0 if they are damaged: then it has no other metric.",
        lambda is_readable: is_readable,
    ),
    _connector.metric(
        "has_driver",
        "1",
        "1 while a driver of the connector sends heartbeats.",
        lambda info: bool(info.driver),
    ),
    _connector.metric(
        "generation", "generations", "Number of the newest generation.", lambda info: info.generation
    ),
    _connector.metric(
        "missing_topics",
        "topics",
        "Subscribed topics that are certainly not in the source.",
        lambda info: len(info.missing_topics),
    ),
    _connector.metric(
        "unavailable_partitions",
        "partitions",
        "Partitions without a leader: not read until they have one.",
        lambda info: info.unavailable_count,
    ),
    _connector.metric(
        "deleted_partitions_counted_total",
        "by name",
        "Sum of `sinksdk_partition_counted_total` over partitions that the source no longer has.",
        lambda info: dict(sorted(info.vanished_counts.items())),
        by="name",
    ),
    _connector.metric(
        "waiting_since_timestamp_seconds",
        "s",
        "Time since which the connector waits for an unavailable system, in seconds since the epoch; no "
        "value while it waits for none. If it is the source, nothing is planned meanwhile.",
        lambda info: info.waiting.since if info.waiting else None,
    ),
    _connector.metric(
        "last_commit_timestamp_seconds",
        "s",
        "Time of the last commit of any of its partitions, in seconds since the epoch; no value before the "
        "first, and of a source.",
        lambda info: info.committed_at,
    ),
    _partition.metric(
        "committed_offset",
        "offset",
        "Next offset to read after the last commit; no value before the first.",
        lambda info: info.committed,
    ),
    _partition.metric(
        "end_offset", "offset", "End offset of the source at the last check.", lambda info: info.end
    ),
    _partition.metric(
        "lag",
        "offsets",
        "Offsets not committed yet: end − committed. No value while it is not known: the source, or the "
        "partition's leader, does not respond.",
        lambda info: info.lag,
    ),
    _partition.metric(
        "last_commit_timestamp_seconds",
        "s",
        "Time of its last commit, in seconds since the epoch; no value before the first.",
        lambda info: info.committed_at,
    ),
    _partition.metric(
        "failures",
        "failures",
        "How often in a row the partition has failed; 0 again after a success. Attempts to plan it count "
        "once nothing was planned for longer than `errors.retry.timeout`.",
        lambda info: info.failures,
    ),
    _partition.metric(
        "lost_offsets_total",
        "offsets",
        "Offsets after a commit that the source no longer had, and that were skipped (`on.data.loss=skip`).",
        lambda info: info.lost_offsets,
    ),
    _partition.metric(
        "withdrawn_commits_total",
        "commits",
        "Commits that were withdrawn, because what they covered cannot become visible or a task went back: "
        "from there the records are read again, if the source still has them.",
        lambda info: info.withdrawn_commits,
    ),
    _partition.metric(
        "next_attempt_timestamp_seconds",
        "s",
        "Time of the next attempt of a partition that waits for a retry, in seconds since the epoch: its "
        "destination asked for a delay or is unavailable. It occupies no task slot meanwhile. No value while "
        "nothing waits.",
        lambda info: info.waiting.next_attempt if info.waiting else None,
    ),
    _partition.metric(
        "counted_total",
        "by name",
        "The connector's own counters (`context.count`), by name: the archiver's are `files` and `bytes`.",
        lambda info: {name: n for name, n in sorted(info.counts.items()) if name not in OWN_COUNTS},
        by="name",
    ),
    _source_task.metric(
        "poll_seconds",
        "s",
        "Calls of a source's `poll` that returned records, and their duration.",
        lambda view: view.total.source.polls,
        kind="summary",
    ),
    _source_task.metric(
        "transactions_total",
        "transactions",
        "Transactions that a source's task has committed.",
        lambda view: view.total.source.transactions.count,
    ),
    _source_task.metric(
        "transaction_aborts_total",
        "transactions",
        "Transactions that a source's task has asked to abort.",
        lambda view: view.total.source.aborts,
    ),
    _sink_task.metric(
        "put_seconds",
        "s",
        "Calls of `put` that returned, and their duration.",
        lambda view: view.total.puts,
        kind="summary",
    ),
    _task.metric(
        "offset_commit_seconds",
        "s",
        "Commits that did not fail, and their duration from `pre_commit` until the store had them; of a "
        "source, its transactions.",
        lambda view: view.total.commits,
        kind="summary",
    ),
    _sink_task.metric(
        "commit_writes_total",
        "writes",
        "Commits written to the store.",
        lambda view: view.total.commit_writes,
    ),
    _task.metric(
        "commit_failures_total",
        "commits",
        "Commits that failed, because `pre_commit` raised, or the store, or a source's writer.",
        lambda view: view.total.commit_failures,
    ),
    _task.metric(
        "phase_seconds_total",
        "s",
        "The task's time by phase. For the rest it waited: for records, or to retry a batch; or, of a "
        "source, it sent what it had polled.",
        lambda view: view.total.seconds,
        by="phase",
    ),
    _sink_task.metric(
        "closings_total",
        "closings",
        "Number of close requests: a rebalance, a pause, a stop. Of sinks only.",
        lambda view: view.total.closings,
    ),
    _task.metric(
        "closing_seconds_total",
        "s",
        "The part of the task's time that closing took, by phase.",
        lambda view: view.total.closing_seconds,
        by="phase",
    ),
    Group("spark", ALL).metric(
        "task_slots",
        "tasks",
        "Task slots of this server's Spark, for all connectors together.",
        lambda scrape: scrape.task_slots.total if scrape.task_slots is not None else None,
    ),
    _spark.metric(
        "task_slots_used",
        "tasks",
        "Task slots that the connector's tasks occupy; no value while it has no generation.",
        lambda slots: slots.running,
    ),
    _spark.metric(
        "task_slot_used_seconds",
        "s",
        "Seconds for which the connector's generation has occupied a task slot, from its first task on.",
        lambda slots: slots.longest,
    ),
    _spark.metric(
        "tasks_waiting",
        "tasks",
        "Tasks of the connector's generation that wait for a task slot.",
        lambda slots: slots.waiting,
    ),
)
"""In the order of the page that documents them."""
