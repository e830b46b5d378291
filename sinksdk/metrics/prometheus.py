"""The metrics as Prometheus reads them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    SummaryMetricFamily,
    UnknownMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from sinksdk.control.herder import Herder
from sinksdk.errors import ConnectException
from sinksdk.metrics.connect import CONNECT_METRICS
from sinksdk.metrics.metric import Kind, Metric, Scrape
from sinksdk.metrics.own import OWN_METRICS
from sinksdk.spark.places import Places

log = logging.getLogger(__name__)

METRICS: Final = (*CONNECT_METRICS, *OWN_METRICS)


class StoreCollector(Collector):
    """Reads the store, each connector once, whenever Prometheus asks; nothing is kept in between."""

    def __init__(self, herder: Herder, places: Places | None) -> None:
        self._herder = herder
        self._places = places

    def collect(self) -> Iterator[Family]:
        """Every metric with its samples. Raises StoreUnavailable."""
        unreadable = []

        def leave_out(name: str, error: ConnectException) -> None:
            log.warning("connector %s has no metrics: %s", name, error)
            unreadable.append(name)

        now = Scrape(self._herder.infos(leave_out), unreadable, self._places)
        return (_family(metric, now) for metric in METRICS)


def exposition(herder: Herder, accept: str, places: Places | None = None) -> tuple[bytes, str]:
    """Body and content type of the answer to Prometheus.

    Args:
        accept: the request's ``Accept`` header: which of Prometheus's formats it reads.
        places: of this process's Spark, if it runs one.

    Raises:
        StoreUnavailable: the store does not answer.
    """
    registry = CollectorRegistry()
    registry.register(StoreCollector(herder, places))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


_FAMILIES: Final[dict[Kind, type[CounterMetricFamily | GaugeMetricFamily | UnknownMetricFamily]]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "untyped": UnknownMetricFamily,
}


def _family(metric: Metric, now: Scrape) -> Family:
    name, text = metric.prometheus_name, metric.description.replace("`", "")
    if metric.kind == "summary":
        summary = SummaryMetricFamily(name, text, labels=metric.labels)
        for sample in metric.samples(now):
            summary.add_metric(sample.labels, count_value=sample.calls, sum_value=sample.value)
        return summary
    family = _FAMILIES[metric.kind](name, text, labels=metric.labels)
    for sample in metric.samples(now):
        family.add_metric(sample.labels, sample.value)
    return family
