"""KIP-275's scenario on a real broker: S3 fails for one partition, and a rebalance follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.kafka_connect.kip275 import ours
from benchmarks.kafka_connect.kip275.scene import FAST, RECORDS, VALUE, Loss
from benchmarks.kafka_connect.topics import Cluster
from benchmarks.null_s3 import null_s3
from tests.kafka.topics import unused_name

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.mark.nightly  # CI runs the scenario on a topic directory: tests/integration/test_kip275.py
def test_rebalance_after_one_failed_partition_reads_no_other_record_again(
    tmp_path: Path, bootstrap: str
) -> None:
    cluster = Cluster(bootstrap)
    with null_s3(tls=False) as s3:
        topic = cluster.fill(unused_name("orders"), VALUE, RECORDS)
        found = ours.play(cluster, topic, s3, tmp_path / "journal")

    others = [loss for partition, loss in found.items() if partition != FAST]
    assert all(10_000 <= loss.delivered < RECORDS for loss in others), "the rebalance missed the middle"
    assert others == [Loss(loss.delivered, committed=loss.delivered, read_again=0) for loss in others]
    assert found[FAST] == Loss(delivered=RECORDS, committed=0, read_again=RECORDS)
