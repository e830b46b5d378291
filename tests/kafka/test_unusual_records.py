"""Unusual records, empty topics, and many partitions."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer

from sinksdk.topics import Subscription
from sinksdk.topics.kafka import KafkaClient, KafkaSource
from tests.integration.archive_site import descendants, ended
from tests.kafka.archive import KafkaSite, kafka_site
from tests.kafka.topics import consume, create_topic, unused_name

pytestmark = [pytest.mark.extended, pytest.mark.slow, pytest.mark.spark]

MIB = 1024 * 1024
MANY = 200
_MANY_HEADERS = [(f"h{number}", b"%d" % number) for number in range(10_000)]


@pytest.fixture
def site(tmp_path: Path, bootstrap: str) -> Iterator[KafkaSite]:
    # One topic accepts records of some megabytes, the other stays empty.
    config = {"max.message.bytes": "4000000", "message.timestamp.after.max.ms": "9223372036854775807"}
    topic = create_topic(bootstrap, unused_name("garbage"), 1, config)
    with kafka_site(tmp_path, bootstrap, topic) as made:
        made.configure(
            topics=f"{topic},{create_topic(bootstrap, unused_name('empty'))}", flush_size=1_000_000
        )
        yield made


def send(site: KafkaSite, *records: dict[str, object]) -> None:
    producer = Producer({"bootstrap.servers": site.bootstrap, "message.max.bytes": 4_000_000})
    for record in records:
        producer.produce(site.topic, on_delivery=delivered, **record)
        producer.poll(0)
        if len(producer) > 100:
            producer.flush(60)
    assert producer.flush(60) == 0


def delivered(error: object, _: object) -> None:
    assert error is None, error


def peak_of_workers(process: subprocess.Popen[str], peaks: dict[int, int]) -> None:
    # Peak memory of each Python worker that the process has started.
    while process.poll() is None:
        for pid, command in descendants(process.pid):
            if "pyspark.worker" in command:
                with suppress(OSError, AttributeError):
                    status = Path(f"/proc/{pid}/status").read_text()
                    match = re.search(r"VmHWM:\s+(\d+) kB", status)
                    peaks[pid] = int(match[1]) * 1024 if match else 0
        time.sleep(0.2)


def test_unusual_records_are_archived_unchanged(site: KafkaSite) -> None:
    send(
        site,
        {"value": bytes(range(256)) * 10, "key": b"\xff\xfe"},
        {"value": None, "key": None},
        {"value": b"", "key": b""},
        {"value": b"x", "headers": [("a", b"1"), ("a", None), ("", b""), ("naïve \N{SNOWMAN}", b"\x00")]},
        {"value": b"many headers", "headers": _MANY_HEADERS},
        {"value": b"long ago", "timestamp": 1},
        {"value": b"far ahead", "timestamp": 32_503_680_000_000},
    )

    code, output = site.run("--until-caught-up")

    assert code == 0, output
    archived = site.archived()
    assert archived == consume(site.bootstrap, site.topic)
    assert len(archived) == 7
    assert len(archived[4].headers) == 10_000


def test_records_of_a_megabyte_do_not_accumulate_in_memory(site: KafkaSite) -> None:
    send(site, *({"value": (b"%d" % number).ljust(MIB, b".")} for number in range(300)))
    peaks: dict[int, int] = {}

    process = site.start("--until-caught-up")
    watching = threading.Thread(target=peak_of_workers, args=(process, peaks))
    watching.start()
    code, output = ended(process)
    watching.join()

    assert code == 0, output
    archived = site.archived()
    assert [len(record.value or b"") for record in archived] == [MIB] * 300
    print(f"\npeak memory of the workers: {max(peaks.values()) // MIB} MiB for 300 records of 1 MiB")
    assert max(peaks.values()) < 400 * MIB


def test_two_hundred_partitions_are_planned_and_read_in_one_generation(
    tmp_path: Path, bootstrap: str
) -> None:
    topic = create_topic(bootstrap, unused_name("many"), MANY)
    with kafka_site(tmp_path, bootstrap, topic) as site:
        site.configure(flush_size=1_000, tasks_max=4)
        send(
            site,
            *(
                {"value": b"%d-%d" % (p, n), "partition": p}
                for p in range(MANY)
                for n in range(0 if p == 7 else 3)
            ),
        )
        source, looks = KafkaSource(KafkaClient(bootstrap)), []
        for _ in range(3):
            started = time.monotonic()
            assert len(source.partitions(Subscription((topic,)))) == MANY
            looks.append(time.monotonic() - started)

        code, output = ended(site.start("--until-caught-up"), timeout=400)

        assert code == 0, output
        assert site.archived() == consume(bootstrap, topic)
        assert f"generation 1: 4 tasks, {MANY - 1} partitions, {3 * (MANY - 1)} offsets to read" in output
        assert "generation 2" not in output
        print(f"\na look at {MANY} partitions: {min(looks):.3f} s\n{output}")
