from __future__ import annotations

import faulthandler
import io
import itertools
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest

from sinksdk import FencedException, TopicPartition, committed_offsets
from sinksdk.topics import write_records
from tests.helpers.depth import DEPTH, SEED
from tests.integration.archive_site import Site, client
from tests.integration.driving import driver_of
from tests.integration.fault_proxy import Fault, FaultProxy, serving_s3

if TYPE_CHECKING:
    from pyspark import SparkContext

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS, RECORDS, FILE = 2, 30, 20  # a whole file and a partial one of each partition
STRIDE = DEPTH.stride
WINDOW = 1.0  # longest time in seconds without the response, until the second driver writes
FEWEST = 35  # minimum number of mutations of such a run
PATIENCE = 240.0  # seconds after which an unfinished round is an error
EVERYTHING = {
    "store PutObject",
    "archive PutObject",
    "archive CreateMultipartUpload",
    "archive UploadPart",
    "archive CompleteMultipartUpload",
}

# Only operations of the archive are listed.
UPLOADS = {what for what in EVERYTHING if "PutObject" not in what}

Record = tuple[int, int, bytes]


@dataclass
class OnS3(Site):
    @property
    def store(self) -> str:
        options = f"endpoint={self.endpoint}&region=us-east-1&access_key_id=key&secret_access_key=secret"
        return f"s3://{self.bucket}/store?{options}"


@dataclass
class Run:
    site: OnS3
    spark: SparkContext
    error: BaseException | None = None
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            driver, _ = driver_of(self.site, self.spark)
            driver.run(until_caught_up=True)
        except BaseException as error:  # noqa: BLE001 - the test says which errors there may be
            self.error = error

    def ended(self) -> BaseException | None:
        self.thread.join(PATIENCE)
        if self.thread.is_alive():
            faulthandler.dump_traceback(sys.__stderr__)
            pytest.fail(f"a driver did not end within {PATIENCE:g} s; where it is was printed above")
        return self.error


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, FaultProxy]]:
    with serving_s3() as (url, proxy):
        yield url, proxy


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    for partition in range(PARTITIONS):
        rows = [record for record in source() if record[0] == partition]
        values = [value for *_, value in rows]
        table = pa.table({"offset": [offset for _, offset, _ in rows], "key": values, "value": values})
        write_records(folder / "topics", TopicPartition("orders", partition), table)
    return folder


def source() -> list[Record]:
    return [(p, offset, b"%d:%d" % (p, offset)) for p in range(PARTITIONS) for offset in range(RECORDS)]


def fresh_site(url: str, proxy: FaultProxy, folder: Path) -> OnS3:
    site = OnS3(folder, url, proxy, f"bucket-{uuid.uuid4().hex}")  # type: ignore[arg-type]  # it is not slow
    client(url).create_bucket(Bucket=site.bucket)
    site.configure(
        tasks_max=PARTITIONS,
        flush_size=FILE,
        closing_poll_ms=50,
        poll_interval_ms=50,
    )
    proxy.reset()
    return site


def archived(site: OnS3) -> list[Record]:
    s3 = client(site.endpoint)
    found = []
    for item in s3.list_objects_v2(Bucket=site.bucket, Prefix="topics/").get("Contents", []):
        if item["Key"].endswith(".avro"):
            body = s3.get_object(Bucket=site.bucket, Key=item["Key"])["Body"].read()
            rows: Any = fastavro.reader(io.BytesIO(body))
            found += [(row["partition"], row["offset"], row["value"]) for row in rows]
    return sorted(found)


def left_over(site: OnS3) -> list[str]:
    probes = (
        client(site.endpoint).list_objects_v2(Bucket=site.bucket, Prefix="store/!probe").get("Contents", [])
    )
    return [*site.uploads_with_data(), *(item["Key"] for item in probes)]


def losing(proxy: FaultProxy, run: Run) -> Fault:
    # The other driver starts before the sender can detect that its response is lost.
    def start_the_second() -> None:
        before = proxy.mutations
        run.thread.start()
        deadline = time.monotonic() + WINDOW
        while proxy.mutations == before and time.monotonic() < deadline:
            time.sleep(0.01)

    return Fault(cuts=True, takes_effect=True, then=start_the_second)


def hit(proxy: FaultProxy) -> str | None:
    for request in proxy.requests:
        if request.fault is not None and not request.fault.is_answered_truly:
            is_tried = "/_sinksdk/" in request.path and not request.path.endswith(".json")
            whose = "store" if "/store/" in request.path else "start" if is_tried else "archive"
            return f"{whose} {request.operation}"
    return None


def lose_one(
    spark: SparkContext, url: str, proxy: FaultProxy, topics: Path, arm: Callable[[Fault], None]
) -> str | None:
    """Lose one response and start a second driver; check the store and the archive once both have ended.

    Returns:
        The process and the operation of the request; None if the run ended before it.
    """
    site = fresh_site(url, proxy, topics)
    first, second = Run(site, spark), Run(site, spark)
    arm(losing(proxy, second))
    first.thread.start()
    errors = [first.ended()]
    what = hit(proxy)
    if what is None:
        assert errors == [None]
        return None
    errors.append(second.ended())
    story = f"{what} after {proxy.mutations} mutations: {errors}"
    assert None in errors, story
    assert all(error is None or isinstance(error, FencedException) for error in errors), story
    assert archived(site) == source(), story
    committed = {p.partition: end.offset for p, end in committed_offsets(site.store, "archive").items()}
    assert committed == dict.fromkeys(range(PARTITIONS), RECORDS), story
    assert left_over(site) == [], story
    return what


def test_lost_responses_lose_or_duplicate_no_record_while_another_driver_starts(
    spark: SparkContext, server: tuple[str, FaultProxy], topics: Path
) -> None:
    url, proxy = server
    site = fresh_site(url, proxy, topics)
    undisturbed = Run(site, spark)
    undisturbed.thread.start()
    assert undisturbed.ended() is None
    assert archived(site) == source()
    lost: Counter[str] = Counter()
    over = 0  # consecutive runs that ended before their n-th mutation; after two, all mutations were tried
    began = time.monotonic()

    for number in itertools.count(1 + SEED % STRIDE, STRIDE):
        what = lose_one(
            spark, url, proxy, topics, lambda fault, number=number: proxy.at_mutation(number, fault)
        )
        over = over + 1 if what is None else 0
        if over == 2:
            break
        lost.update([what] if what else [])
    # The number of mutations before an upload differs between runs, because heartbeats are mutations too.
    for what in sorted(UPLOADS - lost.keys()):
        operation = what.removeprefix("archive ")
        # Each upload makes these requests, so one fault for each of them is enough.
        first = [Fault()] if operation == "CreateMultipartUpload" else []
        again = lose_one(
            spark,
            url,
            proxy,
            topics,
            lambda fault, operation=operation, first=first: proxy.next(operation, *first, fault),
        )
        lost.update([again] if again else [])

    print(f"\nmutations up to {number} tried, {lost.total()} answers lost, {time.monotonic() - began:.0f} s")
    for what, times in sorted(lost.items()):
        print(f"  {times:4} {what}")
    # At most one stride of mutations comes before the first fault, or after the last one.
    assert (lost.total() + 1) * STRIDE > FEWEST, "hardly any answer was lost"
    if STRIDE == 1:
        assert set(lost) >= EVERYTHING, "some kind of request never lost its answer"
