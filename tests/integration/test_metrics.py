from __future__ import annotations

import io
import itertools
import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.archive_site import Site, client
from tests.integration.fault_proxy import SLOW_DOWN, Fault, FaultProxy, serving_s3
from tests.integration.served import Server, serving

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.slow]

PARTITIONS, RECORDS, FILE = 2, 40_500, 13_500  # a file ends in the middle of a batch
REFUSED = Fault(403, "AccessDenied")
SINK, ERRORS = "kafka_connect_sink_task_metrics", "kafka_connect_task_error_metrics"
READ, SENT = f"{SINK}_sink_record_read_total", f"{SINK}_sink_record_send_total"
RISING = (
    READ,
    SENT,
    "sinksdk_partition_counted_total",
    f"{ERRORS}_total_retries",
    "sinksdk_connector_generation",
)


class Page:
    def __init__(self, port: int) -> None:
        give_up = time.monotonic() + 20
        # A server that has just started to collect responds with 503, and the scraper tries again.
        while True:
            answer = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=20)
            if answer.status_code != 503 or time.monotonic() > give_up:
                break
            time.sleep(0.2)
        assert answer.status_code == 200, answer.text
        self.samples = [
            sample for family in text_string_to_metric_families(answer.text) for sample in family.samples
        ]

    def total(self, name: str, /, **labels: str) -> float:
        return sum(
            sample.value
            for sample in self.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def by_partition(self, name: str) -> dict[int, int]:
        return {int(s.labels["partition"]): int(s.value) for s in self.samples if s.name == name}

    def state(self) -> str:
        name = "kafka_connect_connector_metrics_status"
        (found,) = (s.labels["status"] for s in self.samples if s.name == name)
        return found.upper()

    def counted(self, name: str) -> int:
        return int(self.total("sinksdk_partition_counted_total", name=name))


@pytest.fixture(scope="module")
def s3() -> Iterator[tuple[str, FaultProxy]]:
    with serving_s3() as (url, proxy):
        yield url, proxy


@pytest.fixture
def archive(tmp_path: Path, s3: tuple[str, FaultProxy]) -> Site:
    url, proxy = s3
    made = Site(tmp_path, url, proxy, f"bucket-{uuid.uuid4().hex}")  # type: ignore[arg-type]  # it is not slow
    client(url).create_bucket(Bucket=made.bucket)
    made.configure(
        tasks_max=PARTITIONS,
        flush_size=FILE,
        s3_part_retries=0,  # each fault must reach the engine
        restart_backoff_ms=10_000,  # so long that the failed task is seen as RESTARTING
    )
    made.produce(PARTITIONS, RECORDS)
    return made


@pytest.fixture
def server(archive: Site) -> Iterator[Server]:
    with serving(archive.folder, archive.source, archive.store) as made:
        yield made


def files(site: Site) -> dict[str, int]:
    found = client(site.endpoint).list_objects_v2(Bucket=site.bucket, Prefix="topics/").get("Contents", [])
    return {item["Key"]: item["Size"] for item in found if item["Key"].endswith(".avro")}


def archived(site: Site) -> int:
    count = 0
    for key in files(site):
        body = client(site.endpoint).get_object(Bucket=site.bucket, Key=key)["Body"].read()
        rows: Any = fastavro.reader(io.BytesIO(body))
        count += sum(1 for _ in rows)
    return count


class Watcher:
    def __init__(self, site: Site, server: Server) -> None:
        self.site = site
        self.server = server
        self.pages: list[Page] = []

    def look(self) -> Page:
        committed, state = self.site.committed(), self.server.state()
        page = Page(self.server.port)
        later, later_state, present = self.site.committed(), self.server.state(), len(files(self.site))

        told = page.by_partition("sinksdk_partition_committed_offset")
        for partition, offset in told.items():
            assert committed.get(partition, 0) <= offset <= later[partition]
        if state == later_state:
            assert page.state() == state
        ends = page.by_partition("sinksdk_partition_end_offset")
        lags = page.by_partition("sinksdk_partition_lag")
        assert lags == {p: max(end - told.get(p, 0), 0) for p, end in ends.items()}
        assert page.counted("files") <= present, "a file is counted that nobody can see yet"
        assert page.total(SENT) <= page.total(READ)
        self.pages.append(page)
        return page

    def until(self, condition: Any, what: str) -> Page:
        self.server.until(lambda: condition(self.look()), what)
        return self.pages[-1]


def test_status_and_metrics_are_correct_while_s3_fails(
    archive: Site, server: Server, s3: tuple[str, FaultProxy]
) -> None:
    _, proxy = s3
    watcher = Watcher(archive, server)

    # Transient faults: nothing is read twice, so all numbers are exact.
    proxy.next("CompleteMultipartUpload", SLOW_DOWN, SLOW_DOWN)
    server.ask("POST", "/connectors", 201, json=json.loads(archive.config.read_text()))
    everything = dict.fromkeys(range(PARTITIONS), RECORDS)
    watcher.until(
        lambda page: page.by_partition("sinksdk_partition_committed_offset") == everything, "all is committed"
    )
    page = watcher.until(
        lambda page: page.counted("files") == PARTITIONS * RECORDS // FILE, "all is published"
    )
    assert page.total(SENT) == page.total(READ) == archived(archive) == PARTITIONS * RECORDS
    assert page.counted("bytes") == sum(files(archive).values())
    assert page.total(f"{ERRORS}_total_retries") == 2
    assert page.total(f"{ERRORS}_total_record_errors") == 0

    # A fault that ends one partition is reported and counted once, and does not concern the other partition.
    proxy.next("UploadPart", REFUSED)
    archive.produce(PARTITIONS, RECORDS, first=RECORDS)
    page = watcher.until(
        lambda page: page.total("sinksdk_partition_failures") == 1, "one partition has failed"
    )
    (failing,) = (p for p, times in page.by_partition("sinksdk_partition_failures").items() if times)
    states = [task["state"] for task in server.ask("GET", "/connectors/archive/status", 200)["tasks"]]
    restarting = "kafka_connect_connect_worker_metrics_connector_restarting_task_count"
    assert states.count("RESTARTING") == page.total(restarting) == 1
    page = watcher.until(
        lambda page: page.by_partition("sinksdk_partition_committed_offset").get(failing) == 2 * RECORDS,
        "it has made up for it",
    )
    page = watcher.until(
        lambda page: page.total("sinksdk_partition_failures") == 0, "its failure is forgiven"
    )
    assert page.total(f"{ERRORS}_total_record_errors") == 1
    assert page.total(f"{ERRORS}_last_error_timestamp") / 1000 == pytest.approx(time.time(), abs=120)

    # Closing in the middle of files, with slow requests: the metrics show where the time went. Twelve files
    # of a second each take longer than the two seconds between a task's reports.
    proxy.always(Fault(delay=1.0), lambda request: request.operation == "UploadPart")
    archive.produce(PARTITIONS, 4 * RECORDS, first=2 * RECORDS)
    watcher.until(lambda page: page.total(f"{SINK}_sink_record_active_count") > 0, "it reads again")
    server.ask("PUT", "/connectors/archive/pause", 202)
    page = watcher.until(lambda page: page.state() == "PAUSED", "it is paused")
    assert page.total("sinksdk_task_closings_total") >= 1
    assert page.total("sinksdk_task_closing_seconds_total", phase="close_latency") > 0
    assert page.total("sinksdk_task_closing_seconds_total", phase="pre_commit") > 0.5
    assert page.total(f"{SINK}_partition_count") == page.total(f"{SINK}_sink_record_active_count") == 0
    assert page.counted("files") == len(files(archive))
    assert sum(archive.committed().values()) == archived(archive)

    # After a kill, the next server reports the same numbers.
    server.process.kill()
    server.process.wait()
    with serving(archive.folder, archive.source, archive.store) as successor:
        again = Page(successor.port)
    for name in RISING:
        assert again.total(name) == page.total(name), name
    for before, after in itertools.pairwise(watcher.pages):
        for name in RISING:
            assert before.total(name) <= after.total(name), name
    assert archive.verify()[0] == 0
