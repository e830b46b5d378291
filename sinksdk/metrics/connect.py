"""Kafka Connect's metrics, under its names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sinksdk.control.shown import ConnectorInfo
from sinksdk.control.status import State
from sinksdk.metrics.metric import ALL, CONNECTOR, SINK_TASK, SOURCE_TASK, TASK, Group, Metric, TaskView
from sinksdk.model.measures import TaskMeasures, Timing

# Connect computes averages, maxima and percentages over a sliding window; here the window is the newest
# generation of the task. Counters cover all generations.
_all = Group("connect-worker-metrics", ALL)
_worker = Group("connect-worker-metrics", CONNECTOR)
_connector = Group("connector-metrics", CONNECTOR)
_common = Group("connector-task-metrics", TASK)
_sink = Group("sink-task-metrics", SINK_TASK)
_source = Group("source-task-metrics", SOURCE_TASK)
# Connect's names of these counters do not end in "total".
_error = Group("task-error-metrics", TASK, "untyped")


def _times(
    group: Group[TaskView],
    what: str,
    average: str,
    longest: str,
    timing: Callable[[TaskMeasures], Timing],
) -> tuple[Metric[TaskView], Metric[TaskView]]:
    def milliseconds(seconds: float | None) -> float | None:
        return None if seconds is None else seconds * 1000

    return (
        group.metric(f"{what}-avg-time-ms", "ms", average, lambda v: milliseconds(timing(v.last).mean)),
        group.metric(f"{what}-max-time-ms", "ms", longest, lambda v: milliseconds(timing(v.last).longest)),
    )


def _share(part: int, *, of: int) -> float | None:
    return part / of if of else None


def _mean_batch(view: TaskView) -> float | None:
    if view.is_source:
        return _share(view.last.source.records, of=view.last.source.polls.count)
    return _share(view.last.records_sent, of=view.last.puts.count)


def _attempts(view: TaskView) -> int:
    return view.last.commits.count + view.last.commit_failures


def _behind(view: TaskView) -> float:
    read = [(p.position, p.committed or 0) for p in view.partitions if p.position is not None]
    return max((max(position - committed, 0) for position, committed in read), default=0)


def _tasks_in(state: State) -> Callable[[ConnectorInfo], float]:
    return lambda info: sum(task.state == state for task in info.tasks)


CONNECT_METRICS: Final = (
    _all.metric(
        "connector-count",
        "connectors",
        "Connectors in the store, of all processes.",
        lambda scrape: len(scrape.connectors) + len(scrape.unreadable),
    ),
    _all.metric(
        "task-count",
        "tasks",
        "Tasks of all connectors' newest generations.",
        lambda scrape: sum(len(info.tasks) for info in scrape.connectors),
    ),
    _worker.metric(
        "connector-total-task-count", "tasks", "Tasks of the newest generation.", lambda info: len(info.tasks)
    ),
    _worker.metric("connector-running-task-count", "tasks", "Tasks that are RUNNING.", _tasks_in("RUNNING")),
    _worker.metric("connector-paused-task-count", "tasks", "Tasks that are PAUSED.", _tasks_in("PAUSED")),
    _worker.metric("connector-failed-task-count", "tasks", "Tasks that are FAILED.", _tasks_in("FAILED")),
    _worker.metric(
        "connector-restarting-task-count",
        "tasks",
        "Tasks with a failed partition that waits for its restart.",
        _tasks_in("RESTARTING"),
    ),
    _worker.metric(
        "connector-unassigned-task-count", "tasks", "Tasks that no process runs.", _tasks_in("UNASSIGNED")
    ),
    _connector.metric(
        "status",
        "1",
        "1, with the state as a label: running, paused, stopped, failed, restarting, unassigned or deleting.",
        lambda info: {info.state.lower(): 1},
        by="status",
    ),
    _connector.metric(
        "connector-class",
        "1",
        "1, with the class as the configuration names it as a label.",
        lambda info: {info.config.get("connector.class", ""): 1},
        by="connector_class",
    ),
    _connector.metric(
        "connector-type",
        "1",
        "1, with the type as a label: sink, source, or unknown where its class cannot be loaded.",
        lambda info: {info.type: 1},
        by="connector_type",
    ),
    _common.metric(
        "status",
        "1",
        "1, with the state as a label: running, paused, failed, restarting or unassigned.",
        lambda v: {v.task.state.lower(): 1} if v.task is not None else {},
        by="status",
    ),
    _common.metric(
        "batch-size-avg",
        "records",
        "Average number of records of a `put` call; of a source, of a `poll` that returned records.",
        _mean_batch,
    ),
    _common.metric(
        "batch-size-max",
        "records",
        "Maximum number of records of a `put` call or a `poll`.",
        lambda v: v.last.largest_batch,
    ),
    *_times(
        _common,
        "offset-commit",
        "Average duration of a commit, from `pre_commit` to the store's response; of a source, of a "
        "transaction's commit.",
        "Duration of the longest commit.",
        lambda last: last.commits,
    ),
    _common.metric(
        "offset-commit-success-percentage",
        "share",
        "Share of successful commits, from 0 to 1 as in Connect; no value before the first commit.",
        lambda v: _share(v.last.commits.count, of=_attempts(v)),
    ),
    _common.metric(
        "offset-commit-failure-percentage",
        "share",
        "Share of commits that failed in `pre_commit`, in the store or in a source's writer.",
        lambda v: _share(v.last.commit_failures, of=_attempts(v)),
    ),
    _sink.metric(
        "partition-count",
        "partitions",
        "Partitions the task works on; 0 while it is paused, stopped or FAILED.",
        lambda v: len(v.partitions),
    ),
    *_times(
        _sink,
        "put-batch",
        "Average duration of successful `put` calls.",
        "Duration of the longest successful `put` call.",
        lambda last: last.puts,
    ),
    _sink.metric(
        "sink-record-read-total",
        "records",
        "Records read for the task. Records that are read again after a failure count again.",
        lambda v: v.total.records_read,
    ),
    _sink.metric(
        "sink-record-read-rate",
        "records/s",
        "Records that the task accepted per second, during about two seconds.",
        lambda v: sum(p.rate for p in v.partitions),
    ),
    _sink.metric(
        "sink-record-send-total",
        "records",
        "Records that `put` accepted: records read, without those that could not be converted.",
        lambda v: v.total.records_sent,
    ),
    _sink.metric(
        "sink-record-active-count",
        "records",
        "Records that the running task has read and not committed; 0 when the task is not running.",
        lambda v: v.last.active.now if v.partitions else 0,
    ),
    _sink.metric(
        "sink-record-active-count-max",
        "records",
        "Maximum number of active records.",
        lambda v: v.last.active.largest,
    ),
    _sink.metric(
        "sink-record-active-count-avg",
        "records",
        "Average number of active records, sampled at each batch.",
        lambda v: v.last.active.mean,
    ),
    _sink.metric(
        "sink-record-lag-max",
        "offsets",
        "Largest difference of a partition's position and its commit, in offsets. Connect documents it and "
        "does not implement it. The lag in the topic is `sinksdk_partition_lag`.",
        _behind,
    ),
    _sink.metric(
        "offset-commit-seq-no",
        "commits",
        "Number of the last attempted commit.",
        lambda v: v.total.commits.count + v.total.commit_failures,
    ),
    _sink.metric(
        "offset-commit-completion-total",
        "commits",
        "Successful commits. As in Connect, commits without new offsets count too.",
        lambda v: v.total.commits.count,
    ),
    _source.metric(
        "source-record-poll-total",
        "records",
        "Records that `poll` has returned. Records that are polled again after a failure count again.",
        lambda v: v.total.source.records,
    ),
    _source.metric(
        "source-record-write-total",
        "records",
        "Records in committed transactions; each record counts once, as in its topic.",
        lambda v: v.total.source.transactions.total,
    ),
    _source.metric(
        "source-record-write-rate",
        "records/s",
        "Records committed per second, during about two seconds.",
        lambda v: v.task.source.rate if v.task is not None and v.task.source is not None else 0,
    ),
    *_times(
        _source,
        "poll-batch",
        "Average duration of `poll` calls that returned records.",
        "Duration of the longest `poll` call that returned records.",
        lambda last: last.source.polls,
    ),
    _source.metric(
        "source-record-active-count",
        "records",
        "Records that the running task has polled and not committed; 0 when the task is not running.",
        lambda v: v.last.active.now if v.is_active else 0,
    ),
    _source.metric(
        "source-record-active-count-max",
        "records",
        "Maximum number of active records.",
        lambda v: v.last.active.largest,
    ),
    _source.metric(
        "source-record-active-count-avg",
        "records",
        "Average number of active records, sampled when `poll` returns records.",
        lambda v: v.last.active.mean,
    ),
    _source.metric(
        "transaction-size-avg",
        "records",
        "Average number of records of a committed transaction; no value before the first one.",
        lambda v: v.last.source.transactions.mean,
    ),
    _source.metric(
        "transaction-size-max",
        "records",
        "Records of the largest transaction; no value before the first one.",
        lambda v: v.last.source.transactions.largest if v.last.source.transactions.count else None,
    ),
    _source.metric(
        "transaction-size-min",
        "records",
        "Records of the smallest transaction; no value before the first one.",
        lambda v: v.last.source.transactions.smallest if v.last.source.transactions.count else None,
    ),
    _error.metric(
        "total-record-failures",
        "failures",
        "Records that could not be converted or were reported, and failed attempts at a batch; of a source, "
        "failed attempts at `poll` and at writing that can be retried.",
        lambda v: v.total.errors.record_failures,
    ),
    _error.metric(
        "total-record-errors",
        "failures",
        "Failures that closed a partition: of a record, a batch, a commit or `publish`; of a source, "
        "failures that stopped the task. A later generation opens the partition again.",
        lambda v: v.total.errors.record_errors,
    ),
    _error.metric(
        "total-records-skipped",
        "records",
        "Records that failed and were tolerated.",
        lambda v: v.total.errors.records_skipped,
    ),
    _error.metric(
        "total-retries",
        "retries",
        "Retries of a batch or of `publish`; of a source, of `poll` or of writing.",
        lambda v: v.total.errors.retries,
    ),
    _error.metric(
        "total-errors-logged",
        "records",
        "Failed records that were logged (`errors.log.enable`).",
        lambda v: v.total.errors.errors_logged,
    ),
    _error.metric(
        "deadletterqueue-produce-requests",
        "records",
        "Records sent to the dead letter queue.",
        lambda v: v.total.errors.dead_letters,
    ),
    _error.metric(
        "deadletterqueue-produce-failures",
        "records",
        "Records that could not be written to the dead letter queue.",
        lambda v: v.total.errors.dead_letter_failures,
    ),
    _error.metric(
        "last-error-timestamp",
        "ms since the epoch",
        "Time of the last failure of a record or an attempt; 0 if there was none.",
        lambda v: (v.total.errors.last or 0.0) * 1000,
        kind="gauge",
    ),
)
