"""Changes in a cluster while a connector runs, or between two runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.integration.archive_site import ended, wait_until
from tests.kafka.archive import KafkaSite, kafka_site
from tests.kafka.broker import serving
from tests.kafka.topics import await_metadata, consume, create_topic, produce, unused_name

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture
def site(tmp_path: Path, bootstrap: str) -> Iterator[KafkaSite]:
    topic = create_topic(bootstrap, unused_name("orders"))
    with kafka_site(tmp_path, bootstrap, topic) as made:
        yield made


@pytest.mark.extended
def test_new_topics_and_partitions_are_read_while_running(site: KafkaSite) -> None:
    second = f"{site.topic}-second"
    site.configure(flush_size=100, topics="", topics_regex=f"{site.topic}.*")
    produce(site.bootstrap, site.topic, (b"%d" % n for n in range(100)))
    process = site.start()
    try:
        wait_until(lambda: site.committed() == {0: 100}, process, "the first file")
        create_topic(site.bootstrap, second)
        produce(site.bootstrap, second, (b"%d" % n for n in range(100)))
        admin = AdminClient({"bootstrap.servers": site.bootstrap})
        admin.create_partitions([NewPartitions(site.topic, 2)])[site.topic].result(60)
        await_metadata(site.bootstrap, site.topic, 2)
        produce(site.bootstrap, site.topic, (b"%d" % n for n in range(100)), partition=1)
        wait_until(
            lambda: len(site.archived()) == 200 and len(site.archived(second)) == 100, process, "the new ones"
        )
    finally:
        process.terminate()
        code, output = ended(process)

    assert code == 0, output
    assert site.archived() == consume(site.bootstrap, site.topic)
    assert site.archived(second) == consume(site.bootstrap, second)


@pytest.mark.extended
def test_removed_unread_records_fail_unless_on_data_loss_is_skip(site: KafkaSite) -> None:
    site.configure(flush_size=1_000)
    produce(site.bootstrap, site.topic, (b"%d" % n for n in range(10)))
    assert site.run("--until-caught-up")[0] == 0
    produce(site.bootstrap, site.topic, (b"later %d" % n for n in range(20)))
    admin = AdminClient({"bootstrap.servers": site.bootstrap})
    admin.delete_records([KafkaPartition(site.topic, 0, 25)])
    wait_for_begin(site, 25)

    code, output = site.run("--until-caught-up")
    assert code == 1, output
    said = " ".join(output.split())
    assert f"{site.topic}-0 is committed up to offset 10, but the first offset of the source is 25" in said
    assert "on.data.loss=skip" in said
    assert site.committed() == {0: 10}

    site.configure(flush_size=1_000, on_data_loss="skip")
    code, output = site.run("--until-caught-up")
    assert code == 0, output
    said = " ".join(output.split())
    assert (
        f"{site.topic}-0: 15 offsets after the commit at offset 10 are no longer in the source and are skipped"
        in said
    )
    assert [record.offset for record in site.archived()] == [*range(10), *range(25, 30)]


def wait_for_begin(site: KafkaSite, begin: int) -> None:
    while consume(site.bootstrap, site.topic)[0].offset != begin:
        pass


def test_broker_restart_loses_and_repeats_no_record(tmp_path: Path) -> None:
    with serving() as broker:
        topic = create_topic(broker.bootstrap, "orders", 2)
        with kafka_site(tmp_path, broker.bootstrap, topic) as site:
            site.configure(flush_size=500, tasks_max=2, restart_backoff_ms=200)
            site.s3.delays["UploadPart"] = 0.2
            for partition in range(2):
                produce(broker.bootstrap, topic, (b"%d" % n for n in range(5_000)), partition=partition)
            process = site.start()
            try:
                wait_until(lambda: len(site.committed()) == 2, process, "a first commit of each partition")
                broker.kill()
                threading.Event().wait(3)
                broker.start()
                for partition in range(2):
                    produce(broker.bootstrap, topic, (b"new %d" % n for n in range(500)), partition=partition)
                wait_until(lambda: site.committed() == {0: 5_500, 1: 5_500}, process, "everything")
            finally:
                process.terminate()
                code, output = ended(process)

            assert code == 0, output
            assert site.archived() == consume(broker.bootstrap, topic)
            assert site.uploads_with_data() == []
