"""Metrics that Kafka Connect does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from sinksdk.control.shown import ConnectorInfo, PartitionInfo
from sinksdk.metrics.metric import (
    CONNECTOR,
    PARTITION,
    TASK,
    Metric,
    Sample,
    Samples,
    Scrape,
    TaskView,
    all_partitions,
    all_tasks,
    of_connector,
    of_partition,
    of_sink_task,
    of_source_task,
    of_task,
    partition_labels,
)
from sinksdk.spark.places import Held
from sinksdk.support.measures import TaskMeasures, Timing


def _timing(
    which: Callable[[TaskMeasures], Timing], *, is_had_by: Callable[[TaskView], bool] = lambda _: True
) -> Samples:
    """Number and sum of all generations' calls, of the tasks that have such calls."""

    def samples(scrape: Scrape) -> Iterator[Sample]:
        for view in filter(is_had_by, all_tasks(scrape)):
            timing = which(view.total)
            yield Sample(view.labels, timing.seconds, timing.count)

    return samples


def _by_phase(which: Callable[[TaskMeasures], Mapping[str, float]]) -> Samples:
    def samples(scrape: Scrape) -> Iterator[Sample]:
        for view in all_tasks(scrape):
            for phase, seconds in which(view.total).items():
                yield Sample((*view.labels, phase), seconds)

    return samples


def _readable(scrape: Scrape) -> Iterator[Sample]:
    yield from (Sample((info.name,), 1) for info in scrape.connectors)
    yield from (Sample((name,), 0) for name in scrape.unreadable)


def _counted(scrape: Scrape) -> Iterator[Sample]:
    for connector, info in all_partitions(scrape):
        for name, count in sorted(info.counts.items()):
            yield Sample((*partition_labels(connector, info), name), count)


def _last_commits(scrape: Scrape) -> Iterator[Sample]:
    for info in scrape.connectors:
        if info.committed_at is not None:
            yield Sample((info.name,), info.committed_at)


def _places(scrape: Scrape) -> Iterator[Sample]:
    if scrape.places is not None:
        yield Sample((), scrape.places.total)


def _connector(
    attribute: str, unit: str, description: str, value: Callable[[ConnectorInfo], float]
) -> Metric:
    return Metric("connector", attribute, "gauge", unit, description, CONNECTOR, of_connector(value))


def _partition(
    attribute: str, unit: str, description: str, value: Callable[[PartitionInfo], float | None]
) -> Metric:
    return Metric("partition", attribute, "gauge", unit, description, PARTITION, of_partition(value))


def _task(attribute: str, unit: str, description: str, samples: Samples) -> Metric:
    return Metric("task", attribute, "counter", unit, description, TASK, samples)


def _spark(attribute: str, unit: str, description: str, value: Callable[[Held], float]) -> Metric:
    """Of each connector that has a generation at Spark."""

    def samples(scrape: Scrape) -> Iterator[Sample]:
        if scrape.places is not None:
            yield from (Sample((name,), value(held)) for name, held in sorted(scrape.places.held.items()))

    return Metric("spark", attribute, "gauge", unit, description, CONNECTOR, samples)


OWN_METRICS: Final = (
    Metric(
        "connector",
        "readable",
        "gauge",
        "1",
        "1 if the connector's records could be read, 0 if they are damaged: then it has no other metric.",
        CONNECTOR,
        _readable,
    ),
    _connector(
        "driven",
        "1",
        "1 while a driver of the connector sends heartbeats.",
        lambda info: bool(info.driver),
    ),
    _connector("generation", "generations", "Number of the newest generation.", lambda info: info.generation),
    _connector(
        "missing_topics",
        "topics",
        "Subscribed topics that are certainly not in the source.",
        lambda info: len(info.missing_topics),
    ),
    _connector(
        "unavailable_partitions",
        "partitions",
        "Partitions without a leader: not read until they have one.",
        lambda info: info.unavailable_count,
    ),
    Metric(
        "connector",
        "last_commit_timestamp_seconds",
        "gauge",
        "s",
        "Time of the last commit of any of its partitions, in seconds since the epoch; no value before the "
        "first, and of a source.",
        CONNECTOR,
        _last_commits,
    ),
    _partition(
        "committed_offset",
        "offset",
        "Next offset to read after the last commit; no value before the first.",
        lambda info: info.committed,
    ),
    _partition("end_offset", "offset", "End offset of the source at the last check.", lambda info: info.end),
    _partition("lag", "offsets", "Offsets not committed yet: end − committed.", lambda info: info.lag),
    _partition(
        "last_commit_timestamp_seconds",
        "s",
        "Time of its last commit, in seconds since the epoch; no value before the first.",
        lambda info: info.committed_at,
    ),
    _partition(
        "failures",
        "failures",
        "How often in a row the partition has failed; 0 again after a success.",
        lambda info: info.failures,
    ),
    _partition(
        "next_attempt_timestamp_seconds",
        "s",
        "Time of the next attempt of a partition that waits for a retry, in seconds since the epoch: its "
        "destination asked for a delay or is unavailable. It occupies no task slot meanwhile. No value while "
        "nothing waits.",
        lambda info: info.waiting.next_attempt if info.waiting else None,
    ),
    Metric(
        "partition",
        "counted_total",
        "counter",
        "by name",
        "The connector's own counters (`context.count`), by name: the archiver's are `files` and `bytes`.",
        (*PARTITION, "name"),
        _counted,
    ),
    Metric(
        "task",
        "poll_seconds",
        "summary",
        "s",
        "Calls of a source's `poll` that returned records, and their duration.",
        TASK,
        _timing(lambda measures: measures.source.polls, is_had_by=lambda view: view.is_source),
    ),
    _task(
        "transactions_total",
        "transactions",
        "Transactions that a source's task has committed.",
        of_source_task(lambda view: view.total.source.transactions.count),
    ),
    _task(
        "transaction_aborts_total",
        "transactions",
        "Transactions that a source's task has asked to abort.",
        of_source_task(lambda view: view.total.source.aborts),
    ),
    Metric(
        "task",
        "put_seconds",
        "summary",
        "s",
        "Calls of `put` that returned, and their duration.",
        TASK,
        _timing(lambda measures: measures.puts, is_had_by=lambda view: not view.is_source),
    ),
    Metric(
        "task",
        "offset_commit_seconds",
        "summary",
        "s",
        "Commits that did not fail, and their duration from `pre_commit` until the store had them; of a "
        "source, its transactions.",
        TASK,
        _timing(lambda measures: measures.commits),
    ),
    _task(
        "commit_writes_total",
        "writes",
        "Commits written to the store.",
        of_sink_task(lambda view: view.total.commit_writes),
    ),
    _task(
        "commit_failures_total",
        "commits",
        "Commits that failed, because `pre_commit` raised, or the store, or a source's writer.",
        of_task(lambda view: view.total.commit_failures),
    ),
    Metric(
        "task",
        "phase_seconds_total",
        "counter",
        "s",
        "The task's time by phase. For the rest it waited: for records, or to retry a batch; or, of a "
        "source, it sent what it had polled.",
        (*TASK, "phase"),
        _by_phase(lambda measures: measures.seconds),
    ),
    _task(
        "closings_total",
        "closings",
        "Number of close requests: a rebalance, a pause, a stop. Of sinks only.",
        of_sink_task(lambda view: view.total.closings),
    ),
    Metric(
        "task",
        "closing_seconds_total",
        "counter",
        "s",
        "The part of the task's time that closing took, by phase.",
        (*TASK, "phase"),
        _by_phase(lambda measures: measures.closing_seconds),
    ),
    Metric(
        "spark",
        "places",
        "gauge",
        "tasks",
        "Task slots of this server's Spark, for all connectors together.",
        (),
        _places,
    ),
    _spark(
        "places_held",
        "tasks",
        "Task slots that the connector's tasks occupy; no value while it has no generation.",
        lambda held: held.running,
    ),
    _spark(
        "place_held_seconds",
        "s",
        "Seconds for which the connector's generation has occupied a task slot, from its first task on.",
        lambda held: held.longest,
    ),
    _spark(
        "tasks_waiting",
        "tasks",
        "Tasks of the connector's generation that wait for a task slot.",
        lambda held: held.waiting,
    ),
)
"""In the order of the page that documents them."""
