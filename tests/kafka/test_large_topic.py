"""Two million records, archived while they are produced, with a restart of the broker."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.archive_site import ended, wait_until
from tests.kafka.archive import KafkaSite, kafka_site
from tests.kafka.broker import Broker, serving
from tests.kafka.topics import consume, create_topic, produce

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
PARTITIONS = 4
RECORDS = 1_050_000  # records of the plain and of the transactional topic
COMPACTED = 260_000
KEYS = 10_000
SECONDS = 75.0  # seconds over which the producer spreads them
TOPICS = ("plain", "transactional", "compacted")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with serving() as made:
        yield made


def compacted(broker: Broker) -> int:
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": "1048576",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "1000",
    }
    create_topic(broker.bootstrap, "compacted", PARTITIONS, config)
    for partition in range(PARTITIONS):
        share = COMPACTED // PARTITIONS
        values = (b"compacted %d %d %s" % (partition, number, b"x" * 60) for number in range(share))
        produce(broker.bootstrap, "compacted", values, partition=partition, keys=KEYS)
    deadline = time.monotonic() + 120
    while (left := len(consume(broker.bootstrap, "compacted"))) > 0.6 * COMPACTED:
        assert time.monotonic() < deadline, f"{left} records are left; the broker does not compact"
        time.sleep(1)
    return left


def produced(broker: Broker) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.kafka.producing", broker.bootstrap, "--plain", "plain"]
    command += ["--transactional", "transactional", "--partitions", str(PARTITIONS)]
    command += ["--records", str(RECORDS), "--seconds", str(SECONDS)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_two_million_records_are_archived_as_a_plain_consumer_reads_them(
    tmp_path: Path, broker: Broker
) -> None:
    for name in ("plain", "transactional"):
        create_topic(broker.bootstrap, name, PARTITIONS)
    left = compacted(broker)
    with kafka_site(tmp_path, broker.bootstrap, "plain") as site:
        site.configure(topics=",".join(TOPICS), flush_size=20_000, tasks_max=4, avro_codec="zstandard")
        with produced(broker) as producer:
            process = site.start()
            try:
                wait_until(lambda: bool(site.committed()), process, "the first commit")
                assert producer.poll() is None, "the producer has ended: nothing was archived while it ran"
                broker.restart()
                said = producer.communicate(timeout=600)[0]
                assert producer.returncode == 0, "the producer has failed; what it said is above"
                kept = json.loads(said)
            finally:
                process.terminate()
                code, output = ended(process)
        assert code == 0, output
        code, more = site.run("--until-caught-up")
        assert code == 0, more

        assert kept["plain"] == RECORDS
        assert 0.8 * RECORDS < kept["transactional"] < RECORDS, "some transactions were aborted"
        assert compare(site, "plain") == kept["plain"]
        assert compare(site, "transactional") == kept["transactional"]
        assert compare_compacted(site) <= left
        assert site.verify_alone() == 0
        assert site.uploads_with_data() == []
        print(
            f"\n{sum(kept.values()) + left:,} records archived of {2 * RECORDS + COMPACTED:,} produced\n{output}"
        )


def compare(site: KafkaSite, topic: str) -> int:
    there = consume(site.bootstrap, topic)
    assert site.archived(topic) == there
    return len(there)


def compare_compacted(site: KafkaSite) -> int:
    # The archive may also have records that compaction has removed since.
    there, archived = consume(site.bootstrap, "compacted"), site.archived("compacted")
    positions = [(record.partition, record.offset) for record in archived]
    assert len(set(positions)) == len(positions)
    missing, since = set(there) - set(archived), set(archived) - set(there)
    assert not missing
    latest = {(record.partition, record.key): record for record in there}
    assert all(latest[record.partition, record.key].offset > record.offset for record in since)
    return len(there)
