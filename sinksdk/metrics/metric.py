"""The definition of a metric: name, description, labels, and the function that computes its values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Literal, NamedTuple, TypeVar

from sinksdk.control.shown import ConnectorInfo, TaskInfo
from sinksdk.model.measures import TaskMeasures, Timing
from sinksdk.model.status import PartitionStatus
from sinksdk.spark.task_slots import TaskSlots

# Prometheus's types. "untyped" is a counter whose name, which is Connect's, does not end in "_total".
Kind = Literal["counter", "gauge", "summary", "untyped"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scrape:
    connectors: Sequence[ConnectorInfo]
    unreadable: Sequence[str] = ()
    task_slots: TaskSlots | None = None


@dataclass(frozen=True, slots=True)
class TaskView:
    connector: ConnectorInfo
    total: TaskMeasures
    last: TaskMeasures
    task: TaskInfo | None

    @property
    def partitions(self) -> list[PartitionStatus]:
        if self.task is None or not self.is_active:
            # Connect has no metrics of such partitions either (KAFKA-15680).
            return []
        return [info for info in self.connector.partitions if info.task == self.task.number]

    @property
    def is_source(self) -> bool:
        return self.connector.type == "source"

    @property
    def is_active(self) -> bool:
        return self.task is not None and self.task.state in ("RUNNING", "RESTARTING")


class Subject(NamedTuple, Generic[T]):
    labels: tuple[str, ...]
    found: Callable[[Scrape], Iterable[tuple[tuple[str, ...], T]]]


Value = float | Timing | Mapping[str, float] | None
"""A number, calls with their duration, or numbers by a further label; None: no sample."""


class Metric(NamedTuple, Generic[T]):
    """One metric.

    Args:
        group: Connect's group (the ``type`` of its MBean); sinksdk's own groups do not end in ``-metrics``.
        by: name of the further label, if the value is a mapping.
    """

    group: str
    attribute: str
    kind: Kind
    unit: str
    description: str
    subject: Subject[T]
    value: Callable[[T], Value]
    by: str

    @property
    def prometheus_name(self) -> str:
        # The JMX exporter's default name for a metric of Connect.
        prefix = "kafka_connect" if self.group.endswith("-metrics") else "sinksdk"
        return f"{prefix}_{self.group}_{self.attribute}".replace("-", "_")

    @property
    def labels(self) -> tuple[str, ...]:
        return (*self.subject.labels, self.by) if self.by else self.subject.labels


class Group(NamedTuple, Generic[T]):
    name: str
    subject: Subject[T]
    kind: Kind | None = None

    def metric(
        self,
        attribute: str,
        unit: str,
        description: str,
        value: Callable[[T], Value],
        *,
        by: str = "",
        kind: Kind | None = None,
    ) -> Metric[T]:
        by_name: Kind = "counter" if attribute.endswith("total") else "gauge"
        kind = kind or self.kind or by_name
        return Metric(self.name, attribute, kind, unit, description, self.subject, value, by)


# -- subjects ----------------------------------------------------------------------------------------


def _tasks(scrape: Scrape) -> Iterator[tuple[tuple[str, ...], TaskView]]:
    """Yield labels and measurements of every task that a connector has, or ever had."""
    for connector in scrape.connectors:
        tasks = {task.number: task for task in connector.tasks}
        measured = {row.task: row for row in connector.measures}
        for number in sorted({*tasks, *measured}):
            row = measured.get(number)
            total, last = (row.total, row.last) if row else (TaskMeasures(), TaskMeasures())
            view = TaskView(connector, total, last, tasks.get(number))
            yield (connector.name, str(number)), view


def _partitions(scrape: Scrape) -> Iterator[tuple[tuple[str, ...], PartitionStatus]]:
    for connector in scrape.connectors:
        for info in connector.partitions:
            yield (connector.name, info.partition.topic, str(info.partition.partition)), info


_TASK: Final = ("connector", "task")

ALL: Final = Subject[Scrape]((), lambda scrape: [((), scrape)])
CONNECTOR: Final = Subject[ConnectorInfo](
    ("connector",), lambda scrape: (((info.name,), info) for info in scrape.connectors)
)
TASK: Final = Subject(_TASK, _tasks)
SINK_TASK: Final = Subject(_TASK, lambda scrape: (row for row in _tasks(scrape) if not row[1].is_source))
SOURCE_TASK: Final = Subject(_TASK, lambda scrape: (row for row in _tasks(scrape) if row[1].is_source))
PARTITION: Final = Subject(("connector", "topic", "partition"), _partitions)
