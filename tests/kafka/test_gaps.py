"""Files, jobs and records read if each record is in a transaction of its own, followed by a marker."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Thread
from typing import Any

import pytest
from confluent_kafka import Producer

from sinksdk import BatchPolicy, ConnectorConfig, TopicPartition
from sinksdk.model.plan import RangePlan
from sinksdk.runtime.driver import ConnectorDriver
from sinksdk.runtime.environment import Environment
from sinksdk.store import committed_offsets
from sinksdk.store.records import GenerationPlan
from sinksdk.topics.kafka import KafkaClient, KafkaSource
from tests.helpers.memory_store import MemoryStore
from tests.kafka.topics import await_decided, consume, create_topic, unused_name
from tests.runtime.running_sinks import Connector, Finished, InProcess
from tests.runtime.test_gaps import Files

pytestmark = [pytest.mark.extended, pytest.mark.slow]

SIZE, FILES = 100, 5


class Short(Files):
    size = SIZE


class Whole(Connector):
    def batch_policy(self, config: Any) -> BatchPolicy:
        return BatchPolicy(max_records=SIZE, max_wait=None)


class FromKafka(InProcess):
    driver: ConnectorDriver
    topic: str
    bootstrap: str

    def batches(self, planned: RangePlan) -> list[Sequence[int]]:
        found = consume(self.bootstrap, self.topic)
        offsets = [record.offset for record in found if planned.start <= record.offset < planned.end]
        return [offsets[at : at + 100] for at in range(0, len(offsets), 100)]

    def launch(self, plan: GenerationPlan) -> Finished:
        finished = super().launch(plan)
        if len(Short.written) >= FILES:
            self.driver.close()
        return finished


def produce(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(30)
    for number in range(count):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        producer.commit_transaction(30)
    await_decided(bootstrap, topic, 0)


def test_one_record_transactions_take_at_most_three_jobs_per_file(
    bootstrap: str,
) -> None:
    topic = create_topic(bootstrap, unused_name("gaps"))
    partition = TopicPartition(topic, 0)
    Short.read, Short.written, Short.partition = 0, [], partition
    raw = {"name": "c", "topics": topic, "connector.class": "x", "poll.interval.ms": 20}
    launcher = FromKafka(MemoryStore(), Short)
    launcher.topic, launcher.bootstrap = topic, bootstrap
    launcher.driver = ConnectorDriver(
        Environment(launcher.store),
        source=KafkaSource(KafkaClient(bootstrap)),
        connector=Whole(),
        config=ConnectorConfig.parse(raw),
        raw=raw,
        launcher=launcher,
    )
    producing = Thread(target=produce, args=(bootstrap, topic, (FILES + 2) * SIZE))
    producing.start()
    launcher.driver.run()
    producing.join()

    files = len(Short.written)
    print(f"files {files}, jobs {len(launcher.plans)}, records read {Short.read}")
    assert files >= FILES
    assert len(launcher.plans) <= 3 * files
    assert Short.read <= 1.5 * files * SIZE
    committed = committed_offsets(launcher.store, "c")[partition].offset
    assert sum(r.offset < committed for r in consume(bootstrap, topic)) == files * SIZE
