"""The metrics in Prometheus's formats."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    SummaryMetricFamily,
    UnknownMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from sinksdk.control.herder import Herder
from sinksdk.errors import ConnectException
from sinksdk.metrics.connect import CONNECT_METRICS
from sinksdk.metrics.metric import Kind, Metric, Scrape
from sinksdk.metrics.own import OWN_METRICS
from sinksdk.model.measures import Timing
from sinksdk.spark.task_slots import TaskSlots

log = logging.getLogger(__name__)

METRICS: Final = (*CONNECT_METRICS, *OWN_METRICS)

# The server's process_* metrics: CPU time, memory, open file descriptors and their limit.
_PROCESS: Final = ProcessCollector(registry=None)


class StoreCollector(Collector):
    def __init__(self, herder: Herder, task_slots: TaskSlots | None) -> None:
        self._herder = herder
        self._task_slots = task_slots

    def collect(self) -> Iterator[Family]:
        # Every scrape reads each connector from the store, without a cache.
        unreadable = []

        def leave_out(name: str, error: ConnectException) -> None:
            log.warning("connector %s cannot be read and has no metrics: %s", name, error)
            unreadable.append(name)

        now = Scrape(self._herder.infos(leave_out), unreadable, self._task_slots)
        return chain((_family(metric, now) for metric in METRICS), _PROCESS.collect())


def exposition(herder: Herder, accept: str, task_slots: TaskSlots | None = None) -> tuple[bytes, str]:
    encode, content_type = choose_encoder(accept)
    return encode(StoreCollector(herder, task_slots)), content_type


_FAMILIES: Final[Mapping[Kind, Callable[..., Any]]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "summary": SummaryMetricFamily,
    "untyped": UnknownMetricFamily,
}


def _family(metric: Metric[Any], now: Scrape) -> Any:
    # Descriptions are also in docs/metrics.md, in Markdown.
    description = metric.description.replace("`", "")
    family = _FAMILIES[metric.kind](metric.prometheus_name, description, labels=metric.labels)
    for labels, subject in metric.subject.found(now):
        match metric.value(subject):
            case None:
                pass
            case Timing() as calls:
                family.add_metric(labels, count_value=calls.count, sum_value=calls.seconds)
            case Mapping() as numbers:
                for name, number in numbers.items():
                    family.add_metric((*labels, name), number)
            case number:
                family.add_metric(labels, number)
    return family
