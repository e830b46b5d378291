"""Archive the same topics with Kafka Connect and with sinksdk: ``python -m benchmarks.kafka_connect``.

The sides take turns; the first turn warms them up and is reported separately. ``--quick`` has one turn.
"""

from __future__ import annotations

import functools
import itertools
import os
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from benchmarks.kafka_connect import connectors
from benchmarks.kafka_connect.archiver import Archiver, Floor, archiver
from benchmarks.kafka_connect.connectors import FLUSH_SIZE
from benchmarks.kafka_connect.measure import Measured, measure
from benchmarks.kafka_connect.peers import Peer
from benchmarks.kafka_connect.processes import cpu_seconds
from benchmarks.kafka_connect.rows import (
    ICEBERG,
    LEAN,
    OURS,
    memory_rows,
    profile_rows,
    rebalance_rows,
    slope_rows,
    start_rows,
    topic_rows,
)
from benchmarks.kafka_connect.side import Side
from benchmarks.kafka_connect.topics import BROKER, Cluster, Topic
from benchmarks.kafka_connect.worker import connect_worker
from benchmarks.null_s3 import NullS3, null_s3
from benchmarks.table import Row, show
from tests.kafka.broker import serving

CODECS = ("zstandard", "null")
_FAR_ENOUGH = 4  # times the short topic's records; a slope between closer lengths is noise
REBALANCE_AFTER = 0.4  # of a topic

Rounds: TypeAlias = dict[str, list[Measured]]


def _rounds() -> Rounds:
    return defaultdict(list)


@dataclass(frozen=True)
class Size:
    """The size of the measurement.

    Args:
        small: records of 200 bytes in each partition.
        large: records of 1 KB in each partition.
        rounds: turns after the first.
    """

    small: int
    large: int
    rounds: int


FULL = Size(small=200_000, large=100_000, rounds=2)
QUICK = Size(small=100_000, large=50_000, rounds=1)


@dataclass(frozen=True)
class Comparison:
    """The sides, their topics and all measurements."""

    # ``short`` is a topic of minimal length, for the fixed cost of a run; ``archived`` and ``read`` hold the
    # measurements by topic (and codec), by side.
    peers: Sequence[Side]
    ours: Archiver
    s3: NullS3
    topics: Sequence[Topic]
    short: Topic
    archived: dict[tuple[Topic, str], Rounds] = field(default_factory=lambda: defaultdict(_rounds))
    read: dict[Topic, Rounds] = field(default_factory=lambda: defaultdict(_rounds))

    @property
    def sides(self) -> Sequence[Side]:
        return [*self.peers, self.ours]

    def run(self, rounds: int) -> list[Row]:
        ready = {side.name: sum(cpu_seconds(side.pid).values()) for side in self.sides}
        first = {side.name: self._measure(side, self.topics[0], CODECS[0]) for side in self.sides}
        for number in range(rounds + 1):
            self._round()
            if number == 0:  # a warm-up
                self.archived.clear()
                self.read.clear()
        forced = {side.name: self._force(side, self.topics[0]) for side in self.sides}
        return [*start_rows(ready, first), *self._rows(), *rebalance_rows(self._calm(), forced)]

    def _round(self) -> None:
        for topic in self.topics:
            for codec in CODECS:
                for side in self.sides:
                    self.archived[topic, codec][side.name].append(self._measure(side, topic, codec))
            for how in ("count", "read"):
                found = self._measure(Floor(self.ours, how), topic, CODECS[0])
                self.read[topic][how].append(found)
        for side in self.sides:
            found = self._measure(side, self.short, CODECS[0])
            self.archived[self.short, CODECS[0]][side.name].append(found)

    def _measure(self, side: Side, topic: Topic, codec: str) -> Measured:
        found = measure(side, topic, codec, self.s3)
        tell(
            f"{topic.name}, {codec}, {side.name}: {found.seconds:.1f} s, {found.cpu_per_million:.1f} CPU s/M"
        )
        return found

    def _force(self, side: Side, topic: Topic) -> Measured:
        found = measure(side, topic, CODECS[0], self.s3, rebalance_at=int(topic.records * REBALANCE_AFTER))
        tell(f"rebalance, {side.name}: {found.read:,} of {found.records:,} records")
        return found

    def _rows(self) -> Iterator[Row]:
        for column, (topic, codec) in enumerate(itertools.product(self.topics, CODECS)):
            found, what, read = self.archived[topic, codec], f"{topic.shape}, {codec}", self.read[topic]
            parts = self.ours.parts(topic, codec)
            yield from topic_rows(what, found, column)
            yield from profile_rows(what, read["count"], read["read"], found[OURS], parts)
        if self.topics[0].records >= _FAR_ENOUGH * self.short.records:
            whole, short = (self.archived[topic, CODECS[0]] for topic in (self.topics[0], self.short))
            yield from slope_rows(f"{self.short.shape}, {CODECS[0]}", short, whole)
        yield from memory_rows(
            {
                side.name: [one for found in self.archived.values() for one in found[side.name]]
                for side in self.sides
            }
        )

    def _calm(self) -> dict[str, Measured]:
        return {side: found[-1] for side, found in self.archived[self.topics[0], CODECS[0]].items()}


def compare(size: Size) -> list[Row]:
    with serving(BROKER) as broker, null_s3() as s3:
        cluster = Cluster(broker.bootstrap)
        topics = [cluster.fill("small", 200, size.small), cluster.fill("large", 1_000, size.large)]
        short = cluster.fill("short", 200, FLUSH_SIZE)
        tell(f"{sum(topic.records for topic in [*topics, short]):,} records are in Kafka")
        with _sides(cluster, s3) as (peers, ours):
            return Comparison(peers, ours, s3, topics, short).run(size.rounds)


@contextmanager
def _sides(cluster: Cluster, s3: NullS3) -> Iterator[tuple[list[Side], Archiver]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafka-connect-")))
        sinks = {
            ICEBERG: functools.partial(connectors.iceberg, endpoint=s3.url, folder=folder, cluster=cluster),
            LEAN: functools.partial(connectors.lean, endpoint=s3.url),
        }
        peers: list[Side] = [
            Peer(
                name,
                stack.enter_context(connect_worker(folder / str(n), cluster.bootstrap, s3)),
                cluster,
                sink,
            )
            for n, (name, sink) in enumerate(sinks.items())
        ]
        yield peers, stack.enter_context(archiver(cluster.bootstrap, s3))


def tell(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended before the table was there"))  # ends the servers
    rows = compare(QUICK if "--quick" in sys.argv[1:] else FULL)
    rows.append(
        Row("load average of the last minutes, at the end", ", ".join(f"{n:.1f}" for n in os.getloadavg()))
    )
    show(rows)
