"""Kafka Connect's metrics, under its names; and those of them that are left out, with the reason.

Connect's averages, maxima and percentages are of a sliding window. Here a generation is the window: they
are of the newest one that the task took part in. Counters are of all generations together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from sinksdk.control.shown import ConnectorInfo
from sinksdk.control.status import State
from sinksdk.metrics.metric import (
    CONNECTOR,
    TASK,
    Kind,
    Metric,
    Sample,
    Scrape,
    TaskView,
    all_tasks,
    of_connector,
    of_sink_task,
    of_source_task,
    of_task,
)

WORKER: Final = "connect-worker-metrics"
CONNECTORS: Final = "connector-metrics"
REBALANCES: Final = "connect-worker-rebalance-metrics"
COMMON: Final = "connector-task-metrics"
SINK: Final = "sink-task-metrics"
SOURCE: Final = "source-task-metrics"
ERRORS: Final = "task-error-metrics"

Value = Callable[[TaskView], float | None]

_SAMPLES: Final = {SINK: of_sink_task, SOURCE: of_source_task}
"""Of which tasks there are samples, by group; elsewhere of all."""


def _task(group: str, attribute: str, kind: Kind, unit: str, description: str, *, value: Value) -> Metric:
    samples = _SAMPLES.get(group, of_task)(value)
    return Metric(group, attribute, kind, unit, description, TASK, samples)


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


def _share(part: int, *, of: int) -> float | None:
    return part / of if of else None


def _mean_batch(view: TaskView) -> float | None:
    if view.is_source:
        return _share(view.last.source.records, of=view.last.source.polls.count)
    return _share(view.last.records_sent, of=view.last.puts.count)


def _attempts(view: TaskView) -> int:
    return view.last.commits.count + view.last.commit_failures


def _behind(view: TaskView) -> float:
    """The most offsets that a partition was read beyond its commit."""
    read = [(p.position, p.committed or 0) for p in view.partitions if p.position is not None]
    return max((max(position - committed, 0) for position, committed in read), default=0)


def _connector_status(scrape: Scrape) -> Iterator[Sample]:
    return (Sample((info.name, info.state.lower()), 1) for info in scrape.connectors)


def _task_status(scrape: Scrape) -> Iterator[Sample]:
    return (Sample((*v.labels, v.task.state.lower()), 1) for v in all_tasks(scrape) if v.task is not None)


def _tasks_in(state: State) -> Callable[[ConnectorInfo], float]:
    return lambda info: sum(task.state == state for task in info.tasks)


def _task_count(attribute: str, description: str, value: Callable[[ConnectorInfo], float]) -> Metric:
    return Metric(WORKER, attribute, "gauge", "tasks", description, CONNECTOR, of_connector(value))


CONNECT_METRICS: Final = (
    Metric(
        WORKER,
        "connector-count",
        "gauge",
        "connectors",
        "Connectors of the store, whoever runs them.",
        (),
        lambda scrape: [Sample((), len(scrape.connectors) + len(scrape.unreadable))],
    ),
    Metric(
        WORKER,
        "task-count",
        "gauge",
        "tasks",
        "Tasks of their newest generations.",
        (),
        lambda scrape: [Sample((), sum(len(info.tasks) for info in scrape.connectors))],
    ),
    _task_count(
        "connector-total-task-count", "Tasks of the newest generation.", lambda info: len(info.tasks)
    ),
    _task_count("connector-running-task-count", "Those that are RUNNING.", _tasks_in("RUNNING")),
    _task_count("connector-paused-task-count", "Those that are PAUSED.", _tasks_in("PAUSED")),
    _task_count("connector-failed-task-count", "Those that are FAILED.", _tasks_in("FAILED")),
    _task_count(
        "connector-restarting-task-count",
        "Those of which something has failed and waits to be opened again.",
        _tasks_in("RESTARTING"),
    ),
    _task_count("connector-unassigned-task-count", "Those that nobody runs.", _tasks_in("UNASSIGNED")),
    Metric(
        CONNECTORS,
        "status",
        "gauge",
        "1",
        "1, with the state as a label: running, paused, stopped, failed, restarting, unassigned or deleting.",
        (*CONNECTOR, "status"),
        _connector_status,
    ),
    Metric(
        CONNECTORS,
        "connector-class",
        "gauge",
        "1",
        "1, with the class as the configuration names it as a label.",
        (*CONNECTOR, "connector_class"),
        lambda scrape: (
            Sample((info.name, info.config.get("connector.class", "")), 1) for info in scrape.connectors
        ),
    ),
    Metric(
        CONNECTORS,
        "connector-type",
        "gauge",
        "1",
        "1, with the type as a label: sink, source, or unknown where its class cannot be loaded.",
        (*CONNECTOR, "connector_type"),
        lambda scrape: (Sample((info.name, info.type), 1) for info in scrape.connectors),
    ),
    Metric(
        COMMON,
        "status",
        "gauge",
        "1",
        "1, with the state as a label: running, paused, failed, restarting or unassigned.",
        (*TASK, "status"),
        _task_status,
    ),
    _task(
        COMMON,
        "batch-size-avg",
        "gauge",
        "records",
        "Records that a call of `put` was given, on average; of a source, those that a `poll` returned which "
        "returned any.",
        value=_mean_batch,
    ),
    _task(
        COMMON,
        "batch-size-max",
        "gauge",
        "records",
        "Most records that a call of `put` was given, or a `poll` has returned.",
        value=lambda v: v.last.largest_batch,
    ),
    _task(
        COMMON,
        "offset-commit-avg-time-ms",
        "gauge",
        "ms",
        "What a commit took on average, from `pre_commit` until the store had it; of a source, what "
        "committing a transaction took.",
        value=lambda v: _milliseconds(v.last.commits.mean),
    ),
    _task(
        COMMON,
        "offset-commit-max-time-ms",
        "gauge",
        "ms",
        "What the longest commit took.",
        value=lambda v: _milliseconds(v.last.commits.longest),
    ),
    _task(
        COMMON,
        "offset-commit-success-percentage",
        "gauge",
        "share",
        "Share of the commits that did not fail, from 0 to 1 as in Connect; no value before the first.",
        value=lambda v: _share(v.last.commits.count, of=_attempts(v)),
    ),
    _task(
        COMMON,
        "offset-commit-failure-percentage",
        "gauge",
        "share",
        "Share of the commits that failed, because `pre_commit` raised, or the store, or a source's writer.",
        value=lambda v: _share(v.last.commit_failures, of=_attempts(v)),
    ),
    _task(
        SINK,
        "partition-count",
        "gauge",
        "partitions",
        "Partitions the task works on; 0 while it is paused, stopped or FAILED.",
        value=lambda v: len(v.partitions),
    ),
    _task(
        SINK,
        "put-batch-avg-time-ms",
        "gauge",
        "ms",
        "What a call of `put` that returned took on average.",
        value=lambda v: _milliseconds(v.last.puts.mean),
    ),
    _task(
        SINK,
        "put-batch-max-time-ms",
        "gauge",
        "ms",
        "What the longest call of `put` took.",
        value=lambda v: _milliseconds(v.last.puts.longest),
    ),
    _task(
        SINK,
        "sink-record-read-total",
        "counter",
        "records",
        "Records read for the task. What is read again after a failure is counted again.",
        value=lambda v: v.total.records_read,
    ),
    _task(
        SINK,
        "sink-record-read-rate",
        "gauge",
        "records/s",
        "Records the task accepted per second, in the last two seconds or so.",
        value=lambda v: sum(p.rate for p in v.partitions),
    ),
    _task(
        SINK,
        "sink-record-send-total",
        "counter",
        "records",
        "Records that `put` took: what was read, without what could not be converted.",
        value=lambda v: v.total.records_sent,
    ),
    _task(
        SINK,
        "sink-record-active-count",
        "gauge",
        "records",
        "Records read and not committed, by the running task; 0 when it has ended.",
        value=lambda v: v.last.active.now if v.partitions else 0,
    ),
    _task(
        SINK,
        "sink-record-active-count-max",
        "gauge",
        "records",
        "The most that this was.",
        value=lambda v: v.last.active.largest,
    ),
    _task(
        SINK,
        "sink-record-active-count-avg",
        "gauge",
        "records",
        "What it was on average, looked at whenever a batch had come.",
        value=lambda v: v.last.active.mean,
    ),
    _task(
        SINK,
        "sink-record-lag-max",
        "gauge",
        "offsets",
        "The most that a partition was read beyond its commit. Documented by Connect, and not implemented "
        "there. What waits in the topic is `sinksdk_partition_lag`.",
        value=_behind,
    ),
    _task(
        SINK,
        "offset-commit-seq-no",
        "gauge",
        "commits",
        "Number of the last commit that was attempted.",
        value=lambda v: v.total.commits.count + v.total.commit_failures,
    ),
    _task(
        SINK,
        "offset-commit-completion-total",
        "counter",
        "commits",
        "Commits that did not fail. As in Connect, also those for which the task had nothing to commit.",
        value=lambda v: v.total.commits.count,
    ),
    _task(
        SOURCE,
        "source-record-poll-total",
        "counter",
        "records",
        "Records that `poll` has returned. What is polled again after a failure is counted again.",
        value=lambda v: v.total.source.records,
    ),
    _task(
        SOURCE,
        "source-record-write-total",
        "counter",
        "records",
        "Records in transactions that are committed: each once, as its topic has it.",
        value=lambda v: v.total.source.transactions.total,
    ),
    _task(
        SOURCE,
        "source-record-write-rate",
        "gauge",
        "records/s",
        "Records committed per second, in the last two seconds or so.",
        value=lambda v: v.task.source.rate if v.task is not None and v.task.source is not None else 0,
    ),
    _task(
        SOURCE,
        "poll-batch-avg-time-ms",
        "gauge",
        "ms",
        "What a call of `poll` that returned records took on average.",
        value=lambda v: _milliseconds(v.last.source.polls.mean),
    ),
    _task(
        SOURCE,
        "poll-batch-max-time-ms",
        "gauge",
        "ms",
        "What the longest of them took.",
        value=lambda v: _milliseconds(v.last.source.polls.longest),
    ),
    _task(
        SOURCE,
        "source-record-active-count",
        "gauge",
        "records",
        "Records polled and not committed, by the running task; 0 when it has ended.",
        value=lambda v: v.last.active.now if v.is_active else 0,
    ),
    _task(
        SOURCE,
        "source-record-active-count-max",
        "gauge",
        "records",
        "The most that this was.",
        value=lambda v: v.last.active.largest,
    ),
    _task(
        SOURCE,
        "source-record-active-count-avg",
        "gauge",
        "records",
        "What it was on average, looked at whenever `poll` had returned records.",
        value=lambda v: v.last.active.mean,
    ),
    _task(
        SOURCE,
        "transaction-size-avg",
        "gauge",
        "records",
        "Records of a committed transaction, on average; no value before the first, here and below.",
        value=lambda v: v.last.source.transactions.mean,
    ),
    _task(
        SOURCE,
        "transaction-size-max",
        "gauge",
        "records",
        "Records of the largest one.",
        value=lambda v: v.last.source.transactions.largest if v.last.source.transactions.count else None,
    ),
    _task(
        SOURCE,
        "transaction-size-min",
        "gauge",
        "records",
        "Records of the smallest one.",
        value=lambda v: v.last.source.transactions.smallest if v.last.source.transactions.count else None,
    ),
    _task(
        ERRORS,
        "total-record-failures",
        "untyped",
        "failures",
        "Records that could not be converted or were reported, and attempts at a batch that raised; of a "
        "source, attempts at `poll` and at writing that may be made again.",
        value=lambda v: v.total.errors.record_failures,
    ),
    _task(
        ERRORS,
        "total-record-errors",
        "untyped",
        "failures",
        "Partitions that ended by a failure: of a record, a batch, a commit or `publish`; of a source, how "
        "often the task did. They come back in another generation.",
        value=lambda v: v.total.errors.record_errors,
    ),
    _task(
        ERRORS,
        "total-records-skipped",
        "untyped",
        "records",
        "Records that failed and were tolerated.",
        value=lambda v: v.total.errors.records_skipped,
    ),
    _task(
        ERRORS,
        "total-retries",
        "untyped",
        "retries",
        "Attempts made again: at a batch, or at `publish`; of a source, at `poll`, or at writing.",
        value=lambda v: v.total.errors.retries,
    ),
    _task(
        ERRORS,
        "total-errors-logged",
        "untyped",
        "records",
        "Failed records that were logged (`errors.log.enable`).",
        value=lambda v: v.total.errors.errors_logged,
    ),
    _task(
        ERRORS,
        "deadletterqueue-produce-requests",
        "untyped",
        "records",
        "Records given to the dead letters.",
        value=lambda v: v.total.errors.dead_letters,
    ),
    _task(
        ERRORS,
        "deadletterqueue-produce-failures",
        "untyped",
        "records",
        "Those of them that could not be written.",
        value=lambda v: v.total.errors.dead_letter_failures,
    ),
    _task(
        ERRORS,
        "last-error-timestamp",
        "gauge",
        "ms since the epoch",
        "When a record or an attempt failed last; 0 if none ever has.",
        value=lambda v: (v.total.errors.last or 0.0) * 1000,
    ),
)
"""In the order of the page that documents them."""

_RATE = "`rate()` of the total says it."
_RATIO = "The average of `status` over time says it; a task that is paused has ended."
_LATE = "Commits wait for their answer: none ever comes too late."
_RUN = "Starts are counted by no record of the store; a connector that cannot start has `status` failed."
_GROUP = "There is no group of workers. `sinksdk_connector_generation` counts what is assigned anew."

LEFT_OUT: Final = {
    (WORKER, "connector-startup-attempts-total"): _RUN,
    (WORKER, "connector-startup-success-total"): _RUN,
    (WORKER, "connector-startup-success-percentage"): _RUN,
    (WORKER, "connector-startup-failure-total"): _RUN,
    (WORKER, "connector-startup-failure-percentage"): _RUN,
    (WORKER, "task-startup-attempts-total"): _RUN,
    (WORKER, "task-startup-success-total"): _RUN,
    (WORKER, "task-startup-success-percentage"): _RUN,
    (WORKER, "task-startup-failure-total"): _RUN,
    (WORKER, "task-startup-failure-percentage"): _RUN,
    (WORKER, "connector-destroyed-task-count"): "A task that is gone leaves nothing to count.",
    (REBALANCES, "completed-rebalances-total"): _GROUP,
    (REBALANCES, "connect-protocol"): _GROUP,
    (REBALANCES, "epoch"): _GROUP,
    (REBALANCES, "leader-name"): _GROUP,
    (REBALANCES, "rebalance-avg-time-ms"): _GROUP,
    (REBALANCES, "rebalance-max-time-ms"): _GROUP,
    (REBALANCES, "rebalancing"): _GROUP,
    (REBALANCES, "time-since-last-rebalance-ms"): _GROUP,
    (CONNECTORS, "connector-version"): "The server does not load the class. `GET /connector-plugins` has it.",
    (COMMON, "running-ratio"): _RATIO,
    (COMMON, "pause-ratio"): _RATIO,
    (SINK, "sink-record-send-rate"): _RATE,
    (SINK, "offset-commit-completion-rate"): _RATE,
    (SINK, "offset-commit-skip-rate"): _LATE,
    (SINK, "offset-commit-skip-total"): _LATE,
    (SOURCE, "source-record-poll-rate"): _RATE,
}
"""Connect's metrics that there is nothing to say of, and why."""
