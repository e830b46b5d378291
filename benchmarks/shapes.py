"""Measure kinds of files from Kafka to an S3 endpoint that discards: ``python -m benchmarks.shapes``.

Driver, JVM and workers count, broker and endpoint do not; a figure is the median over the turns.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from benchmarks.bad_records import orders, with_bad
from benchmarks.kafka_connect.archiver import Archiver, archiver
from benchmarks.kafka_connect.measure import measure
from benchmarks.kafka_connect.side import Run
from benchmarks.kafka_connect.topics import BROKER, Cluster, Topic
from benchmarks.null_s3 import null_s3
from benchmarks.table import Row, show
from tests.kafka.broker import serving

ROUNDS: Final = 3
# Records in each of four partitions.
EACH: Final = 250_000

_JSON: Final = {
    "format.class": "JsonFormat",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
_TOLERANT: Final = {"errors.tolerance": "all"}
KINDS: Final[Mapping[str, Mapping[str, str]]] = {
    "whole records, Avro": {},
    "JSON lines": _JSON,
    "JSON lines, errors tolerated": {**_JSON, **_TOLERANT},
}
WITH_BAD: Final = "JSON lines, errors tolerated"
# CPU seconds that a million records may cost.
MOST: Final = {"JSON lines": 1.6}
# Microseconds that a bad record may cost.
MOST_EXTRA: Final = 60.0


class _Kind:
    def __init__(self, archiver: Archiver, name: str) -> None:
        self._archiver = archiver
        self.name = name

    @property
    def pid(self) -> int:
        return self._archiver.pid

    def archive(self, topic: Topic, codec: str, *, rebalance_at: int | None = None) -> Run:
        order = {"do": "archive", "topic": topic.name, "codec": codec, "rebalance_at": rebalance_at}
        return self._archiver.order({**order, "keys": KINDS[self.name]})


def run(rounds: int = ROUNDS) -> list[Row]:
    values = orders()
    random.Random(1).shuffle(values)  # noqa: S311 - the same order in each run
    with serving(BROKER) as broker, null_s3(tls=False) as s3, archiver(broker.bootstrap, s3) as ours:
        cluster = Cluster(broker.bootstrap)
        good = cluster.fill_with("good", "300 B JSON", values, EACH)
        bad = cluster.fill_with("bad", "300 B JSON, 1 % bad", with_bad(values, 100), EACH)
        shapes = [(name, good) for name in KINDS] + [(WITH_BAD, bad)]
        found = defaultdict[tuple[str, Topic], list[float]](list)
        for number in range(rounds + 1):
            for name, topic in shapes:
                measured = measure(_Kind(ours, name), topic, "null", s3)
                if number:  # the first round warms Spark up
                    found[name, topic].append(measured.cpu_per_million)
    cost = {shape: statistics.median(figures) for shape, figures in found.items()}
    extra = (cost[WITH_BAD, bad] - cost[WITH_BAD, good]) * 100  # one record in a hundred is bad
    return [*(_row(name, topic, found[name, topic]) for name, topic in shapes), _extra_row(extra)]


def _row(name: str, topic: Topic, figures: list[float]) -> Row:
    what, cost = f"{name}, {topic.shape}", statistics.median(figures)
    text = f"{cost:.2f} CPU s/M ({min(figures):.2f} to {max(figures):.2f})"
    most = MOST.get(name)
    return Row(what, text) if most is None else Row.limit(what, text, is_met=cost <= most, target=f"{most:g}")


def _extra_row(extra: float) -> Row:
    most = f"{MOST_EXTRA:g} µs"
    return Row.limit(
        "a bad record, where 1 % are bad", f"{extra:.0f} µs", is_met=extra <= MOST_EXTRA, target=most
    )


if __name__ == "__main__":
    show(run(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS))
