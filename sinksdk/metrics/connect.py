"""Kafka Connect's metrics, under its names; and those that sinksdk does not have, with the reason.

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
    Samples,
    Scrape,
    TaskView,
    all_tasks,
    of_connector,
    of_sink_task,
    of_source_task,
    of_task,
)
from sinksdk.support.measures import TaskMeasures, Timing

WORKER: Final = "connect-worker-metrics"
CONNECTORS: Final = "connector-metrics"
REBALANCES: Final = "connect-worker-rebalance-metrics"
COMMON: Final = "connector-task-metrics"
SINK: Final = "sink-task-metrics"
SOURCE: Final = "source-task-metrics"
ERRORS: Final = "task-error-metrics"

Value = Callable[[TaskView], float | None]


def _of(
    group: str, samples: Callable[[Value], Samples], otherwise: Kind = "gauge"
) -> Callable[[str, str, str, Value], Metric]:
    """Makes metrics of a group from attribute, unit, description and value; counters by their name."""

    def metric(attribute: str, unit: str, description: str, value: Value) -> Metric:
        kind: Kind = "counter" if attribute.endswith("-total") else otherwise
        return Metric(group, attribute, kind, unit, description, TASK, samples(value))

    return metric


_common, _error = _of(COMMON, of_task), _of(ERRORS, of_task, "untyped")
_sink, _source = _of(SINK, of_sink_task), _of(SOURCE, of_source_task)


def _times(
    metric: Callable[[str, str, str, Value], Metric],
    what: str,
    average: str,
    longest: str,
    timing: Callable[[TaskMeasures], Timing],
) -> tuple[Metric, Metric]:
    """Average and maximum of a duration, each with its description."""

    def milliseconds(seconds: float | None) -> float | None:
        return None if seconds is None else seconds * 1000

    return (
        metric(f"{what}-avg-time-ms", "ms", average, lambda v: milliseconds(timing(v.last).mean)),
        metric(f"{what}-max-time-ms", "ms", longest, lambda v: milliseconds(timing(v.last).longest)),
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
    """Largest difference of a partition's position and its commit, in offsets."""
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
        "Connectors of the store, in all processes.",
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
        "Those with a failed part that waits for its restart.",
        _tasks_in("RESTARTING"),
    ),
    _task_count("connector-unassigned-task-count", "Those that no process runs.", _tasks_in("UNASSIGNED")),
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
    _common(
        "batch-size-avg",
        "records",
        "Average number of records of a `put` call; of a source, those that a `poll` returned which "
        "returned any.",
        _mean_batch,
    ),
    _common(
        "batch-size-max",
        "records",
        "Maximum number of records of a `put` call, or that a `poll` has returned.",
        lambda v: v.last.largest_batch,
    ),
    *_times(
        _common,
        "offset-commit",
        "Average duration of a commit, from `pre_commit` until the store had it; of a source, of a "
        "transaction's commit.",
        "Duration of the longest commit.",
        lambda last: last.commits,
    ),
    _common(
        "offset-commit-success-percentage",
        "share",
        "Share of the commits that did not fail, from 0 to 1 as in Connect; no value before the first.",
        lambda v: _share(v.last.commits.count, of=_attempts(v)),
    ),
    _common(
        "offset-commit-failure-percentage",
        "share",
        "Share of the commits that failed, because `pre_commit` raised, or the store, or a source's writer.",
        lambda v: _share(v.last.commit_failures, of=_attempts(v)),
    ),
    _sink(
        "partition-count",
        "partitions",
        "Partitions the task works on; 0 while it is paused, stopped or FAILED.",
        lambda v: len(v.partitions),
    ),
    *_times(
        _sink,
        "put-batch",
        "Average duration of the calls of `put` that returned.",
        "Duration of the longest of them.",
        lambda last: last.puts,
    ),
    _sink(
        "sink-record-read-total",
        "records",
        "Records read for the task. What is read again after a failure is counted again.",
        lambda v: v.total.records_read,
    ),
    _sink(
        "sink-record-read-rate",
        "records/s",
        "Records the task accepted per second, in the last two seconds or so.",
        lambda v: sum(p.rate for p in v.partitions),
    ),
    _sink(
        "sink-record-send-total",
        "records",
        "Records that `put` accepted: those read, without those that could not be converted.",
        lambda v: v.total.records_sent,
    ),
    _sink(
        "sink-record-active-count",
        "records",
        "Records read and not committed, by the running task; 0 when it has ended.",
        lambda v: v.last.active.now if v.partitions else 0,
    ),
    _sink(
        "sink-record-active-count-max",
        "records",
        "The most that this was.",
        lambda v: v.last.active.largest,
    ),
    _sink(
        "sink-record-active-count-avg",
        "records",
        "Its average, sampled whenever a batch arrived.",
        lambda v: v.last.active.mean,
    ),
    _sink(
        "sink-record-lag-max",
        "offsets",
        "Largest difference of a partition's position and its commit, in offsets. Connect documents it and "
        "does not implement it. The lag in the topic is `sinksdk_partition_lag`.",
        _behind,
    ),
    _sink(
        "offset-commit-seq-no",
        "commits",
        "Number of the last attempted commit.",
        lambda v: v.total.commits.count + v.total.commit_failures,
    ),
    _sink(
        "offset-commit-completion-total",
        "commits",
        "Commits that did not fail. As in Connect, also those for which the task had nothing to commit.",
        lambda v: v.total.commits.count,
    ),
    _source(
        "source-record-poll-total",
        "records",
        "Records that `poll` has returned. What is polled again after a failure is counted again.",
        lambda v: v.total.source.records,
    ),
    _source(
        "source-record-write-total",
        "records",
        "Records in committed transactions: each once, as in its topic.",
        lambda v: v.total.source.transactions.total,
    ),
    _source(
        "source-record-write-rate",
        "records/s",
        "Records committed per second, in the last two seconds or so.",
        lambda v: v.task.source.rate if v.task is not None and v.task.source is not None else 0,
    ),
    *_times(
        _source,
        "poll-batch",
        "Average duration of the calls of `poll` that returned records.",
        "Duration of the longest of them.",
        lambda last: last.source.polls,
    ),
    _source(
        "source-record-active-count",
        "records",
        "Records polled and not committed, by the running task; 0 when it has ended.",
        lambda v: v.last.active.now if v.is_active else 0,
    ),
    _source(
        "source-record-active-count-max",
        "records",
        "The most that this was.",
        lambda v: v.last.active.largest,
    ),
    _source(
        "source-record-active-count-avg",
        "records",
        "Its average, sampled whenever `poll` returned records.",
        lambda v: v.last.active.mean,
    ),
    _source(
        "transaction-size-avg",
        "records",
        "Average number of records of a committed transaction; no value before the first, here and below.",
        lambda v: v.last.source.transactions.mean,
    ),
    _source(
        "transaction-size-max",
        "records",
        "Records of the largest one.",
        lambda v: v.last.source.transactions.largest if v.last.source.transactions.count else None,
    ),
    _source(
        "transaction-size-min",
        "records",
        "Records of the smallest one.",
        lambda v: v.last.source.transactions.smallest if v.last.source.transactions.count else None,
    ),
    _error(
        "total-record-failures",
        "failures",
        "Records that could not be converted or were reported, and attempts at a batch that raised; of a "
        "source, attempts at `poll` and at writing that may be made again.",
        lambda v: v.total.errors.record_failures,
    ),
    _error(
        "total-record-errors",
        "failures",
        "Partitions that ended by a failure: of a record, a batch, a commit or `publish`; of a source, how "
        "often the task did. A later generation opens them again.",
        lambda v: v.total.errors.record_errors,
    ),
    _error(
        "total-records-skipped",
        "records",
        "Records that failed and were tolerated.",
        lambda v: v.total.errors.records_skipped,
    ),
    _error(
        "total-retries",
        "retries",
        "Retries: of a batch, or of `publish`; of a source, of `poll`, or of writing.",
        lambda v: v.total.errors.retries,
    ),
    _error(
        "total-errors-logged",
        "records",
        "Failed records that were logged (`errors.log.enable`).",
        lambda v: v.total.errors.errors_logged,
    ),
    _error(
        "deadletterqueue-produce-requests",
        "records",
        "Records given to the dead letters.",
        lambda v: v.total.errors.dead_letters,
    ),
    _error(
        "deadletterqueue-produce-failures",
        "records",
        "Those of them that could not be written.",
        lambda v: v.total.errors.dead_letter_failures,
    ),
    _of(ERRORS, of_task)(
        "last-error-timestamp",
        "ms since the epoch",
        "Time of the last failure of a record or an attempt; 0 if there was none.",
        lambda v: (v.total.errors.last or 0.0) * 1000,
    ),
)
"""In the order of the page that documents them."""

_STARTS = "Starts are counted by no record of the store; a connector that cannot start has `status` failed."
_GROUP = "There is no worker group. `sinksdk_connector_generation` counts reassignments."
_RATIO = "Use the average of `status` over time; a paused task has ended."
_RATE = "Use `rate()` of the total."
_LATE = "A commit waits for its response: it never completes late."

LEFT_OUT: Final = {
    **{
        (WORKER, f"{what}-startup-{count}"): _STARTS
        for what in ("connector", "task")
        for count in (
            *("attempts-total", "success-total", "success-percentage"),
            *("failure-total", "failure-percentage"),
        )
    },
    (WORKER, "connector-destroyed-task-count"): "A task that is gone leaves nothing to count.",
    **{
        (REBALANCES, attribute): _GROUP
        for attribute in (
            *("completed-rebalances-total", "connect-protocol", "epoch", "leader-name"),
            *("rebalance-avg-time-ms", "rebalance-max-time-ms", "rebalancing"),
            "time-since-last-rebalance-ms",
        )
    },
    (CONNECTORS, "connector-version"): "The server does not load the class. `GET /connector-plugins` has it.",
    (COMMON, "running-ratio"): _RATIO,
    (COMMON, "pause-ratio"): _RATIO,
    (SINK, "sink-record-send-rate"): _RATE,
    (SINK, "offset-commit-completion-rate"): _RATE,
    (SINK, "offset-commit-skip-rate"): _LATE,
    (SINK, "offset-commit-skip-total"): _LATE,
    (SOURCE, "source-record-poll-rate"): _RATE,
}
"""Connect's metrics that sinksdk does not have, and why."""
