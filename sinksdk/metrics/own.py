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
        "1 if the connector's records could be read; 0 if they are damaged, then it has no other metric.",
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
        "Subscribed topics that are missing in the source.",
        lambda info: len(info.missing_topics),
    ),
    _connector.metric(
        "unavailable_partitions",
        "partitions",
        "Partitions without a leader, which are not read until they have one.",
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
        "value while it does not wait. While the source is unavailable, no generation is planned.",
        lambda info: info.waiting.since if info.waiting else None,
    ),
    _connector.metric(
        "last_commit_timestamp_seconds",
        "s",
        "Time of the last commit of any partition, in seconds since the epoch; no value before the first "
        "commit, and for a source.",
        lambda info: info.committed_at,
    ),
    _partition.metric(
        "committed_offset",
        "offset",
        "Next offset to read after the last commit; no value before the first commit.",
        lambda info: info.committed,
    ),
    _partition.metric(
        "end_offset", "offset", "End offset of the source at the last check.", lambda info: info.end
    ),
    _partition.metric(
        "lag",
        "offsets",
        "Offsets not committed yet: end − committed. No value while it is unknown, because the source or the "
        "partition's leader does not respond.",
        lambda info: info.lag,
    ),
    _partition.metric(
        "last_commit_timestamp_seconds",
        "s",
        "Time of the last commit, in seconds since the epoch; no value before the first commit.",
        lambda info: info.committed_at,
    ),
    _partition.metric(
        "failures",
        "failures",
        "Consecutive failures of the partition; 0 after a success. Failures to plan it count once nothing "
        "could be planned for longer than `errors.retry.timeout`.",
        lambda info: info.failures,
    ),
    _partition.metric(
        "lost_offsets_total",
        "offsets",
        "Offsets after a commit that were skipped, because the source no longer had them "
        "(`on.data.loss=skip`).",
        lambda info: info.lost_offsets,
    ),
    _partition.metric(
        "withdrawn_commits_total",
        "commits",
        "Commits that were withdrawn, because their records cannot become visible or a task rewound: the "
        "records are read again, if the source still has them.",
        lambda info: info.withdrawn_commits,
    ),
    _partition.metric(
        "next_attempt_timestamp_seconds",
        "s",
        "Time of the next attempt of a partition that waits for a retry, in seconds since the epoch: its "
        "destination requested a delay or is unavailable. It occupies no task slot while it waits. No value "
        "while the partition does not wait.",
        lambda info: info.waiting.next_attempt if info.waiting else None,
    ),
    _partition.metric(
        "counted_total",
        "by name",
        "The connector's own counters (`context.count`), by name: the archiver's are `files`, `bytes` and "
        "`withdrawn`.",
        lambda info: {name: n for name, n in sorted(info.counts.items()) if name not in OWN_COUNTS},
        by="name",
    ),
    _source_task.metric(
        "poll_seconds",
        "s",
        "`poll` calls of a source that returned records, and their duration.",
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
        "Transactions that a source's task has requested to abort.",
        lambda view: view.total.source.aborts,
    ),
    _sink_task.metric(
        "put_seconds",
        "s",
        "Successful `put` calls, and their duration.",
        lambda view: view.total.puts,
        kind="summary",
    ),
    _task.metric(
        "offset_commit_seconds",
        "s",
        "Successful commits, and their duration from `pre_commit` to the store's response; of a source, its "
        "transactions.",
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
        "Commits that failed in `pre_commit`, in the store or in a source's writer.",
        lambda view: view.total.commit_failures,
    ),
    _task.metric(
        "phase_seconds_total",
        "s",
        "The task's time by phase. In the rest of its time it waited for records or for the retry of a "
        "batch, or sent the polled records of a source.",
        lambda view: view.total.seconds,
        by="phase",
    ),
    _sink_task.metric(
        "closings_total",
        "closings",
        "Close requests: rebalances, pauses, stops. Sinks only.",
        lambda view: view.total.closings,
    ),
    _task.metric(
        "closing_seconds_total",
        "s",
        "The time that the task took to close, by phase.",
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
        "Seconds since the first task of the connector's generation occupied a task slot.",
        lambda slots: slots.longest,
    ),
    _spark.metric(
        "tasks_waiting",
        "tasks",
        "Tasks of the connector's generation that wait for a task slot.",
        lambda slots: slots.waiting,
    ),
)
