from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.webhook_receiver import Endpoint, Mishap
from sinksdk import SinkRecord, TopicPartition
from tests.examples.test_webhook_sink import LOST, TAKEN, serving
from tests.helpers.warm_jvm import warm_jvm
from tests.integration.archive_site import descendants, ended, wait_until
from tests.integration.refusing_site import PREFIX, context
from tests.integration.run_site import RunSite
from tests.kafka.topics import consume, unused_name

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.slow]

PARTITIONS, RECORDS = 4, 3_000
MISHAPS = {7: LOST, 11: Mishap(503), 13: Mishap(429, {"Retry-After": "0"}), 17: Mishap(is_lost=True)}


def is_bad(partition: int, offset: int) -> bool:
    return offset % 97 == partition


def record(partition: TopicPartition, offset: int) -> SinkRecord:
    # Some temperatures are invalid; every tenth record is a tombstone.
    celsius = "warm" if is_bad(partition.partition, offset) else offset
    is_tombstone = offset % 10 == 9 and celsius == offset
    return SinkRecord(
        *partition, offset, b"a", None if is_tombstone else json.dumps({"celsius": celsius}).encode()
    )


class Site(RunSite):
    def __init__(self, folder: Path, endpoint: Endpoint, url: str, bootstrap: str) -> None:
        super().__init__(folder)
        self.endpoint, self.bootstrap, self.letters = endpoint, bootstrap, unused_name("unwanted")
        moods = [MISHAPS.get(number % 20, TAKEN) for number in range(400)]
        endpoint.mishaps.extend(moods)
        self.write("readings", PARTITIONS, RECORDS, record)
        keys = {"connector.class": "examples.webhook_sink:WebhookSink", "topics": "readings", "tasks.max": 2}
        keys |= {"key.converter": "string", "value.converter": "json", "max.poll.records": 50}
        keys |= {"endpoint.url": url, "auth.header.value": "Bearer of good news", "errors.tolerance": "all"}
        keys |= {f"{PREFIX}topic.name": self.letters, f"{PREFIX}topic.replication.factor": 1}
        keys |= {f"{PREFIX}context.headers.enable": True, "producer.override.bootstrap.servers": bootstrap}
        self.configure({**keys, "poll.interval.ms": 100, "offset.flush.interval.ms": 1_000})


@pytest.fixture
def site(tmp_path: Path, bootstrap: str) -> Iterator[Site]:
    endpoint = Endpoint("of good news")
    with serving(endpoint) as url:
        made = Site(tmp_path, endpoint, url, bootstrap)
        yield made
        made.close()


def test_each_record_is_delivered_once_or_a_dead_letter_whatever_is_killed(site: Site) -> None:
    taken = site.endpoint.events
    driver = site.start()
    wait_until(lambda: len(taken) > 1_000, driver, "some was delivered")
    workers = [pid for pid, command in descendants(driver.pid) if "pyspark.worker" in command]
    os.kill(max(workers), signal.SIGKILL)
    before = len(taken)
    wait_until(lambda: len(taken) > before + 2_000, driver, "another attempt delivered more")
    driver.kill()
    ended(driver)
    assert len(taken) < 0.9 * PARTITIONS * RECORDS

    code, output = ended(site.start(warm_jvm().environment()))

    assert code == 0, output
    assert site.committed() == dict.fromkeys(range(PARTITIONS), RECORDS)
    assert site.endpoint.repeated > 0
    letters = [context(letter) for letter in consume(site.bootstrap, site.letters)]
    reported = {(int(letter["partition"] or b""), int(letter["offset"] or b"")) for letter in letters}
    everything = {(partition, offset) for partition in range(PARTITIONS) for offset in range(RECORDS)}
    assert reported == {place for place in everything if is_bad(*place)}
    for partition in range(PARTITIONS):
        delivered = [event["offset"] for event in taken.values() if event["partition"] == partition]
        assert delivered == [offset for offset in range(RECORDS) if not is_bad(partition, offset)]
