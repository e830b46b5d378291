"""Play KIP-275's scene: one task's S3 fails; how many records do the other tasks read again?

Kafka Connect plays it with two assignors, then sinksdk: the same broker, topic and S3, and tasks slowed down
by the same rule. ``python -m benchmarks.kafka_connect.kip275``
"""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.kafka_connect.kip275 import ours
from benchmarks.kafka_connect.kip275.connect import Connect
from benchmarks.kafka_connect.kip275.scene import FAST, RECORDS, VALUE, Loss
from benchmarks.kafka_connect.topics import BROKER, Cluster
from benchmarks.kafka_connect.worker import connect_worker
from benchmarks.null_s3 import NullS3, null_s3
from tests.kafka.broker import serving

OURS = "sinksdk"
_ASSIGNOR = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
CONNECTS: Mapping[str, Mapping[str, str]] = {
    "Connect": {},
    "Connect,\ncooperative": {"consumer.override.partition.assignment.strategy": _ASSIGNOR},
}
_DATA = ".avro"


@dataclass(frozen=True)
class Played:
    """The result of the scene for one system."""

    losses: Mapping[int, Loss]
    files: int

    @property
    def read_again(self) -> int:
        return sum(loss.read_again for loss in self.losses.values())


def play() -> dict[str, Played]:
    with (
        serving(BROKER) as broker,
        null_s3(tls=False) as s3,
        tempfile.TemporaryDirectory(prefix="kip275-") as name,
    ):
        cluster, folder = Cluster(broker.bootstrap), Path(name)
        topic = cluster.fill("orders", VALUE, RECORDS)
        found = {}
        with connect_worker(folder / "worker", cluster.bootstrap, s3) as worker:
            connect = Connect(worker, cluster, s3)
            for number, (system, settings) in enumerate(CONNECTS.items()):
                lost = connect.play(topic, folder / f"connect-{number}", settings)
                found[system] = Played(lost, _files(s3))
        lost = ours.play(cluster, topic, s3, folder / OURS)
        return {**found, OURS: Played(lost, _files(s3))}


def _files(s3: NullS3) -> int:
    return sum(path.endswith(_DATA) for path in s3.objects())


def table(played: Mapping[str, Played]) -> Table:
    # Records delivered before the rebalance, offsets committed right after it, and records read again.
    made = Table(title="KIP-275's scene: one task's S3 fails, a rebalance follows", title_justify="left")
    made.add_column("task")
    for system in played:
        for column in ("delivered", "committed", "read again"):
            made.add_column(f"{system}\n{column}", justify="right")
    for partition in next(iter(played.values())).losses:
        name = f"{partition + 1}, whose S3 fails" if partition == FAST else str(partition + 1)
        made.add_row(name, *(cell for one in played.values() for cell in _cells(one.losses[partition])))
    made.add_section()
    made.add_row("all", *(cell for one in played.values() for cell in ("", "", f"{one.read_again:,}")))
    made.add_row("files at the end", *(cell for one in played.values() for cell in ("", "", str(one.files))))
    return made


def _cells(loss: Loss) -> list[str]:
    committed = "kept open" if loss.is_kept else f"{loss.committed:,}"
    return [f"{loss.delivered:,}", committed, f"{loss.read_again:,}"]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended before the table was there"))  # ends the servers
    Console(width=140).print(table(play()))
