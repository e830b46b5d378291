"""The archiver on Spark and a real broker, as an operator runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sinksdk import TopicPartition
from sinksdk.topics.kafka import ConsumerGroup, KafkaClient, KafkaSource
from tests.kafka.archive import KafkaSite, kafka_site
from tests.kafka.topics import consume, create_topic, produce, unused_name

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture
def site(tmp_path: Path, bootstrap: str) -> Iterator[KafkaSite]:
    # Partition 0 has a committed and an aborted transaction, partition 1 plain records.
    topic = create_topic(bootstrap, unused_name("orders"), 3)
    produce(bootstrap, topic, (b"kept %d" % n for n in range(2_500)), transaction=unused_name("kept"))
    produce(
        bootstrap, topic, (b"no %d" % n for n in range(900)), transaction=unused_name("aborted"), abort=True
    )
    produce(bootstrap, topic, [None, b"", *(b"plain %d" % n for n in range(700))], partition=1)
    with kafka_site(tmp_path, bootstrap, topic) as made:
        made.configure(flush_size=1_000, tasks_max=2)
        yield made


def group_offsets(site: KafkaSite, name: str = "connect-archive") -> dict[int, int]:
    group = ConsumerGroup(KafkaSource(KafkaClient(site.bootstrap)).cluster, name)
    found = group.offsets([TopicPartition(site.topic, number) for number in range(3)])
    return {partition.partition: offset for partition, offset in found.items()}


def test_archive_equals_a_consumers_records_and_the_group_has_no_lag(site: KafkaSite) -> None:
    code, output = site.run("--until-caught-up")
    assert code == 0, output

    there = consume(site.bootstrap, site.topic)
    assert len(there) == 3_202
    assert site.archived() == there
    assert site.committed() == {0: 3_402, 1: 702}
    assert group_offsets(site) == {0: 3_402, 1: 702}
    assert site.verify_alone() == 0
    assert site.uploads() == []

    code, output = site.run("--until-caught-up")
    assert (code, site.archived()) == (0, there), output
    assert "starting Spark" not in output, "nothing was left to read"


@pytest.mark.extended
def test_offset_source_group_starts_at_the_offsets_of_kafka_connect(site: KafkaSite) -> None:
    group = unused_name("connect-old")
    cluster = KafkaSource(KafkaClient(site.bootstrap)).cluster
    ConsumerGroup(cluster, group).write({TopicPartition(site.topic, 0): 2_000})
    settings = {"name": "archive", "offset_source": "group", "consumer_override_group_id": group}
    site.configure(flush_size=1_000, **settings)

    code, output = site.run("--until-caught-up")

    assert code == 0, output
    there = consume(site.bootstrap, site.topic)
    assert site.archived() == [r for r in there if (r.partition, r.offset) >= (0, 2_000)]
    assert group_offsets(site, group) == {0: 3_402, 1: 702}


@pytest.mark.extended
def test_auto_offset_reset_latest_misses_no_later_record(site: KafkaSite) -> None:
    site.configure(flush_size=1_000, auto_offset_reset="latest")
    code, output = site.run("--until-caught-up")
    assert (code, site.archived()) == (0, []), output
    assert site.committed() == {0: 3_402, 1: 702, 2: 0}

    produce(site.bootstrap, site.topic, [b"new", b"newer"], partition=1)
    produce(site.bootstrap, site.topic, [b"first"], partition=2)
    code, output = site.run("--until-caught-up")

    assert code == 0, output
    assert [(r.partition, r.value) for r in site.archived()] == [(1, b"new"), (1, b"newer"), (2, b"first")]


@pytest.mark.extended
def test_query_transform_receives_a_consumers_records(site: KafkaSite) -> None:
    site.configure(
        flush_size=1_000, records_sql="SELECT * FROM records WHERE value LIKE '%7' OR value IS NULL"
    )

    code, output = site.run("--until-caught-up")

    assert code == 0, output
    there = [r for r in consume(site.bootstrap, site.topic) if r.value is None or r.value.endswith(b"7")]
    assert len(there) == 321
    assert site.archived() == there
    assert group_offsets(site) == {0: 3_402, 1: 702}
    assert site.verify_alone() == 0
