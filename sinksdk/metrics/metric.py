"""What a metric is: its name, what it means, and how it follows from what is known of the connectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from sinksdk.control.shown import ConnectorInfo, PartitionInfo, TaskInfo
from sinksdk.spark.places import Places
from sinksdk.support.measures import TaskMeasures

Kind = Literal["counter", "gauge", "summary", "untyped"]
"""Prometheus's types. ``untyped`` is a counter whose name, which is Connect's, does not end in ``_total``."""

NOTHING = TaskMeasures()


class Sample(NamedTuple):
    """One value.

    Args:
        labels: in the order of the metric's.
        value: of a summary, the sum.
        calls: of a summary, how many values the sum has.
    """

    labels: tuple[str, ...]
    value: float
    calls: int = 0


@dataclass(frozen=True, slots=True)
class Scrape:
    """What is known of all connectors at one moment.

    Args:
        unreadable: names of connectors whose records are damaged.
        places: of this process's Spark; None while it runs none.
    """

    connectors: Sequence[ConnectorInfo]
    unreadable: Sequence[str] = ()
    places: Places | None = None


Samples = Callable[[Scrape], Iterable[Sample]]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Args:
        group: Connect's group (the ``type`` of its MBean), or one of :data:`OWN_GROUPS`.
        attribute: its name in that group.
    """

    group: str
    attribute: str
    kind: Kind
    unit: str
    description: str
    labels: tuple[str, ...]
    samples: Samples

    @property
    def prometheus_name(self) -> str:
        """As the JMX exporter names Connect's metrics by default."""
        prefix = "sinksdk" if self.group in OWN_GROUPS else "kafka_connect"
        return f"{prefix}_{self.group}_{self.attribute}".replace("-", "_")


OWN_GROUPS = ("connector", "task", "partition", "spark")
"""Groups of metrics that Kafka Connect does not have."""


@dataclass(frozen=True, slots=True)
class TaskView:
    """All that is known of one task number.

    Args:
        total: measures of all generations.
        last: measures of the newest generation that it took part in.
        task: what it does in the newest generation; None if that has no such task.
    """

    connector: ConnectorInfo
    number: int
    total: TaskMeasures
    last: TaskMeasures
    task: TaskInfo | None

    @property
    def partitions(self) -> list[PartitionInfo]:
        """What it works on; nothing while it is paused, stopped or FAILED (KAFKA-15680)."""
        if self.task is None or not self.is_active:
            return []
        return [info for info in self.connector.partitions if info.task == self.task.number]

    @property
    def is_source(self) -> bool:
        """Whether the connector is a source."""
        return self.connector.type == "source"

    @property
    def is_active(self) -> bool:
        """Whether it works, or something of it does."""
        return self.task is not None and self.task.state in ("RUNNING", "RESTARTING")

    @property
    def labels(self) -> tuple[str, ...]:
        """Values of :data:`TASK`."""
        return self.connector.name, str(self.number)


# -- metrics by what has a value of them -------------------------------------------------------------

CONNECTOR = ("connector",)
TASK = ("connector", "task")
PARTITION = ("connector", "topic", "partition")


def of_connector(value: Callable[[ConnectorInfo], float]) -> Samples:
    """A value for each connector."""
    return lambda scrape: (Sample((info.name,), value(info)) for info in scrape.connectors)


def of_task(value: Callable[[TaskView], float | None]) -> Samples:
    """A value for each task; none where it is None."""

    def samples(scrape: Scrape) -> Iterator[Sample]:
        for view in all_tasks(scrape):
            if (found := value(view)) is not None:
                yield Sample(view.labels, found)

    return samples


def of_sink_task(value: Callable[[TaskView], float | None]) -> Samples:
    """A value for each task of a sink; none where it is None."""
    return of_task(lambda view: None if view.is_source else value(view))


def of_source_task(value: Callable[[TaskView], float | None]) -> Samples:
    """A value for each task of a source; none where it is None."""
    return of_task(lambda view: value(view) if view.is_source else None)


def of_partition(value: Callable[[PartitionInfo], float | None]) -> Samples:
    """A value for each partition; none where it is None."""

    def samples(scrape: Scrape) -> Iterator[Sample]:
        for connector, info in all_partitions(scrape):
            if (found := value(info)) is not None:
                yield Sample(partition_labels(connector, info), found)

    return samples


def all_tasks(scrape: Scrape) -> Iterator[TaskView]:
    """Every task number that a connector has, or ever had."""
    for connector in scrape.connectors:
        tasks = {task.number: task for task in connector.tasks}
        measured = {row.task: row for row in connector.measures}
        for number in sorted({*tasks, *measured}):
            row = measured.get(number)
            total, last = (row.total, row.last) if row else (NOTHING, NOTHING)
            yield TaskView(connector, number, total, last, tasks.get(number))


def all_partitions(scrape: Scrape) -> Iterator[tuple[ConnectorInfo, PartitionInfo]]:
    """Partitions of all connectors."""
    return ((connector, info) for connector in scrape.connectors for info in connector.partitions)


def partition_labels(connector: ConnectorInfo, info: PartitionInfo) -> tuple[str, ...]:
    """Values of :data:`PARTITION`."""
    return connector.name, info.topic, str(info.number)
