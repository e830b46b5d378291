"""The runbooks of docs/recover.md with the driver in this process.

``tests/integration/test_store_recovery.py`` runs them with the commands and Spark.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from sinksdk import ConfigException, ConnectException, SinkRecord, SinkRecords, TopicPartition
from sinksdk.connectors.s3_archiver import S3ArchiverConnector
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.s3.client import Location
from sinksdk.connectors.s3_archiver.s3.requests import one_by_one
from sinksdk.connectors.s3_archiver.task import S3ArchiverTask
from sinksdk.connectors.s3_archiver.verify.check import verify
from sinksdk.control.herder import Herder
from sinksdk.control.offsets import OffsetsRefusedException, OpenedSink
from sinksdk.control.progress import Listener
from sinksdk.engine import EngineOptions, TaskName, WorkerSinkTask
from sinksdk.engine.clock import SystemClock
from sinksdk.engine.task_run import SinkTaskRun
from sinksdk.runtime.driver import ConnectorDriver
from sinksdk.runtime.environment import Environment
from sinksdk.store import Store, committed_offsets, take_over
from sinksdk.store.generations import UnpublishedException
from sinksdk.store.records import GenerationPlan
from sinksdk.worker.task_result import TaskResult
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sinks import InProcess, Source
from tests.s3_archiver.beside import at_once
from tests.s3_archiver.fake_s3 import FakeS3, Fault, LoggedRequest, denied
from tests.s3_archiver.support import FINE, MINIMAL, OTHER, TP, read


def refused_to_publish(request: LoggedRequest) -> Fault | None:
    is_file = request.operation == "CompleteMultipartUpload" and "partition=" in request.key
    return Fault(denied()) if is_file else None


class Archiving(InProcess):
    def __init__(self, store: Store, s3: FakeS3, gaps: frozenset[int]) -> None:
        super().__init__(store, S3ArchiverTask, "archive")
        self._s3 = s3
        self._gaps = gaps

    def _run(self, plan: GenerationPlan, number: int) -> TaskResult:
        taken = take_over(self.store, self.connector, plan.generation, number)
        assert taken is not None
        task = S3ArchiverTask(connect=lambda *_: self._s3, grain=FINE, beside=at_once, together=one_by_one)
        worker = WorkerSinkTask(
            task,
            TaskName(self.connector, number),
            S3ArchiverConfig.parse({**plan.config, **plan.tasks[number].config}),
            commits=taken.ledger,
            clock=SystemClock(),
            generation=plan.generation,
            options=EngineOptions(),
        )
        ranges = plan.tasks[number].ranges
        batches = [
            SinkRecords.of(
                each.topic_partition,
                [
                    SinkRecord(
                        *each.topic_partition,
                        offset=offset,
                        value=b"%d" % offset,
                        timestamp=offset % 2 * 3_600_000,
                    )
                    for offset in range(each.start, each.end)
                    if offset not in self._gaps
                ],
            )
            for each in ranges
            if each.end > each.start
        ]
        outcomes = list(SinkTaskRun(worker, ranges, batches, closing=lambda: None, clock=SystemClock()).run())
        return TaskResult(number, taken.ledger.attempt, outcomes, measures=worker.measures(0.0))


@dataclass
class Place:
    settings: dict[str, str] = field(default_factory=dict)
    gaps: frozenset[int] = frozenset()
    s3: FakeS3 = field(default_factory=FakeS3)
    store: MemoryStore = field(default_factory=MemoryStore)

    @property
    def raw(self) -> dict[str, str]:
        own = {"connector.class": "s3-archiver", "poll.interval.ms": "10", "restart.backoff.ms": "1"}
        return {**MINIMAL, **own, **self.settings}

    def connector(self) -> S3ArchiverConnector:
        made = S3ArchiverConnector(connect=lambda *_: self.s3)
        made.task_class = partial(S3ArchiverTask, connect=lambda *_: self.s3)  # type: ignore[misc, assignment]
        return made

    def run(self, count: int) -> None:
        ConnectorDriver(
            Environment(self.store),
            source=Source({TP: count, OTHER: count}),
            connector=self.connector(),
            config=S3ArchiverConfig.parse(self.raw),
            raw=self.raw,
            launcher=Archiving(self.store, self.s3, self.gaps),
            listener=Listener(),
        ).run(until_caught_up=True)

    def herder(self) -> Herder:
        opened = OpenedSink(self.connector(), S3ArchiverConfig.parse(self.raw))
        return Herder(self.store, sinks=lambda raw: opened)

    def recover(self, **given: int) -> dict[TopicPartition, int]:
        offsets = {TopicPartition("orders", int(name[1:])): offset for name, offset in given.items()}
        return self.herder().recover_offsets("archive", self.raw, offsets)

    def backup(self) -> dict[str, Any]:
        return dict(self.store._records)

    def restore(self, records: dict[str, Any]) -> None:
        self.store = MemoryStore()
        self.store._records.update(records)

    def offsets(self, partition: TopicPartition = TP) -> list[int]:
        return [row["offset"] for key in self.files(partition) for row in read(self.s3.data(key))]

    def files(self, partition: TopicPartition = TP) -> list[str]:
        return [key for key in self.s3.visible() if f"/orders+{partition.partition}+" in key]

    def remove(self, key: str) -> None:
        del self.s3.objects[Location("bucket", key)]

    def problems(self) -> list[str]:
        config = S3ArchiverConfig.parse(self.raw)
        return verify(config, self.s3, lambda: committed_offsets(self.store, "archive")).problems

    def expect_whole(self, count: int) -> None:
        for partition in (TP, OTHER):
            assert sorted(self.offsets(partition)) == list(range(count))
        assert self.problems() == []


# Even offsets go to one folder, odd ones to the other.
TWO_FOLDERS = {
    "partitioner.class": "TimeBasedPartitioner",
    "path.format": "'hour'=HH",
    "partition.duration.ms": "3600000",
    "timestamp.extractor": "Record",
    "locale": "en-US",
    "timezone": "UTC",
}


def half_published(count: int = 250) -> Place:
    """Commit two files of TP up to an offset; one of them is visible, and the upload of the other is gone."""
    place = Place({**TWO_FOLDERS, "restart.max.attempts": "0"})
    place.run(200)
    complete = place.s3.complete_upload

    def refuse(location: Location, *arguments: Any, **more: Any) -> None:
        if location.key.endswith("+0+0000000201.avro"):
            raise denied()
        complete(location, *arguments, **more)

    place.s3.complete_upload = refuse  # type: ignore[method-assign]
    with pytest.raises(ConnectException):
        place.run(count)
    place.s3.complete_upload = complete  # type: ignore[method-assign]
    assert sorted(place.offsets()) == [*range(200), *range(200, count, 2)]
    place.s3.uploads.clear()
    return place


def test_missing_records_of_a_partly_published_commit_are_archived_after_recovery() -> None:
    # Regression: the end of the archive was taken to be above these records, so that they were committed
    # without a file.
    place = half_published()

    assert place.recover() == {TP: 200, OTHER: 250}
    place.run(300)
    place.expect_whole(300)


def test_repeated_recovery_keeps_a_withdrawn_commit() -> None:
    # Only the store knows which records above the commit are visible.
    place = half_published()
    place.recover()

    assert place.recover() == {TP: 200, OTHER: 250}
    place.run(300)
    place.expect_whole(300)


def test_moved_visible_files_of_a_withdrawn_commit_are_archived_again() -> None:
    # Regression: the offset was refused because of files that the operator had moved away.
    place = half_published()
    place.recover()

    with pytest.raises(OffsetsRefusedException, match="orders-0=200 would be archived twice"):
        place.recover(p0=200)
    for key in place.files():
        if key.endswith("+0000000200.avro"):
            place.remove(key)
    assert place.recover(p0=200) == {TP: 200, OTHER: 250}
    place.run(300)
    place.expect_whole(300)


def test_altering_offsets_below_a_withdrawn_commits_visible_records_is_refused() -> None:
    # Regression: only the last committed files were read, which ended one record earlier.
    place = half_published(249)
    place.recover()
    place.run(249)
    herder = place.herder()
    herder.stop("archive")

    with pytest.raises(OffsetsRefusedException, match="orders-0=248 would be archived twice"):
        herder.alter_offsets("archive", {TP: 248})
    assert herder.alter_offsets("archive", {TP: 249})[TP] == 249


@pytest.mark.parametrize("missing", [200, 201])
def test_recovery_of_a_lost_store_refuses_a_commit_with_a_missing_file(missing: int) -> None:
    # Regression: a crash during the last publication lost the records of the files that were not visible.
    place = Place(TWO_FOLDERS)
    place.run(250)
    (lost,) = [key for key in place.files() if key.endswith(f"+{missing:010d}.avro")]
    place.remove(lost)
    place.restore({})

    with pytest.raises(OffsetsRefusedException, match=r"published only in part.*and pass orders-0=200$"):
        place.recover()
    for key in place.files():
        if key.endswith(("+0000000200.avro", "+0000000201.avro")):
            place.remove(key)
    assert place.recover(p0=200) == {TP: 200, OTHER: 250}
    place.run(300)
    place.expect_whole(300)


def test_a_lost_store_is_recovered_from_commits_of_several_files() -> None:
    place = Place(TWO_FOLDERS)
    place.run(250)
    place.restore({})

    assert place.recover() == {TP: 250, OTHER: 250}
    place.run(300)
    place.expect_whole(300)


def test_uncommitted_gaps_of_a_topic_are_reported_as_possibly_missing_records() -> None:
    place = Place(TWO_FOLDERS, gaps=frozenset({220}))
    place.run(250)
    assert place.recover() == {TP: 250, OTHER: 250}

    place.restore({})
    with pytest.raises(
        OffsetsRefusedException, match=r"offset 220 on may be missing.*orders-0=250\. Otherwise"
    ):
        place.recover()
    assert place.recover(p0=250, p1=250) == {TP: 250, OTHER: 250}


def test_a_store_copy_from_before_a_withdrawal_is_refused() -> None:
    # Regression: files that begin below the last visible record were treated as files of the commit.
    place = half_published()
    place.recover()
    older = place.backup()
    place.run(300)
    place.restore(older)

    with pytest.raises(ConfigException, match="orders-0: offset 200 is committed, but"):
        place.run(350)
    assert place.recover() == {TP: 300, OTHER: 300}
    place.run(350)
    place.expect_whole(350)


def test_a_store_restored_from_an_older_copy_resumes_at_the_archives_end() -> None:
    place = Place()
    place.run(250)
    older = place.backup()
    place.run(777)
    before = place.s3.visible()
    place.restore(older)

    with pytest.raises(ConfigException, match=r"orders-0: offset 250 is committed.*sinksdk offsets recover"):
        place.run(900)
    assert place.s3.visible() == before

    assert place.recover() == {TP: 777, OTHER: 777}
    place.run(900)
    place.expect_whole(900)


def kept_unpublished(place: Place, count: int) -> dict[str, Any]:
    """Return a copy of the store with commits that S3 refuses to publish; then let the uploads expire and archive everything."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(place.s3, "plan", refused_to_publish)
        with pytest.raises(ConnectException, match="AccessDenied"):
            place.run(count)
    copy = place.backup()
    unpublished = {p for p, commit in committed_offsets(place.store, "archive").items() if commit.tokens}
    assert unpublished == {TP, OTHER}
    place.s3.uploads.clear()
    place.run(count)
    return copy


@pytest.mark.parametrize("later", [250, 777])
def test_a_store_copy_with_an_unpublished_commit_is_recovered(later: int) -> None:
    # Regression: its uploads had expired, and the records were archived again under the same keys. The
    # start referred to offsets recover, which referred to a start.
    place = Place()
    older = kept_unpublished(place, 250)
    place.run(later)
    before = place.s3.visible()
    place.restore(older)

    with pytest.raises(ConnectException, match="sinksdk offsets recover"):
        place.run(900)
    assert place.s3.visible() == before
    assert place.recover() == {TP: later, OTHER: later}
    place.run(900)
    place.expect_whole(900)


def test_a_store_copy_is_recovered_after_its_commit_is_published() -> None:
    place = Place()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(place.s3, "plan", refused_to_publish)
        with pytest.raises(ConnectException, match="AccessDenied"):
            place.run(250)
        with pytest.raises(UnpublishedException, match=r"orders-0.*AccessDenied.*offsets recover"):
            place.recover(p0=250)
    assert place.recover() == {TP: 250, OTHER: 250}
    place.expect_whole(250)


def test_an_unpublished_commit_is_not_dropped_for_a_foreign_object() -> None:
    place = Place()
    older = kept_unpublished(place, 50)
    place.restore(older)
    for found in place.s3.objects.values():
        if "sinksdk-connector" in found.metadata:
            found.metadata = {**found.metadata, "sinksdk-connector": "other"}

    with pytest.raises(UnpublishedException, match="the key holds another object"):
        place.recover()


def test_a_lost_store_is_recovered_from_the_archive() -> None:
    place = Place()
    place.run(250)
    place.restore({})

    with pytest.raises(ConfigException, match=r"in another store.*sinksdk offsets recover"):
        place.run(300)
    assert place.recover() == {TP: 250, OTHER: 250}
    place.run(300)
    place.expect_whole(300)


def test_files_lost_in_the_bucket_are_archived_again() -> None:
    place = Place()
    place.run(350)
    keys = [key for key in place.s3.visible() if "partition=0" in key]
    del place.s3.objects[Location("bucket", keys[1])]
    assert len(place.problems()) == 1
    place.herder().stop("archive")

    with pytest.raises(OffsetsRefusedException, match="would be archived twice"):
        place.herder().alter_offsets("archive", {TP: 100})
    for key in keys[2:]:
        del place.s3.objects[Location("bucket", key)]
    assert place.recover() == {TP: 100, OTHER: 350}
    place.run(400)
    place.expect_whole(400)


def test_a_deleted_connector_that_is_created_again_does_not_archive_twice() -> None:
    place = Place()
    place.run(250)
    place.restore({})
    place.s3.objects = {
        location: found for location, found in place.s3.objects.items() if "_sinksdk" not in location.key
    }

    with pytest.raises(ConfigException, match="orders-0: nothing is committed"):
        place.run(300)
    place.recover()
    place.run(300)
    place.expect_whole(300)


def test_files_of_values_are_recovered_with_offsets_from_the_operator() -> None:
    place = Place({"format.class": "JsonFormat", "value.converter": "bytes"})
    place.run(250)
    place.restore({})

    with pytest.raises(ConnectException, match=r"orders-0=250.*orders-1=250"):
        place.recover()
    assert place.recover(p0=250, p1=250) == {TP: 250, OTHER: 250}
    place.run(300)

    files = [place.s3.data(key) for key in place.s3.visible() if "partition=0" in key]
    values = [int(base64.b64decode(json.loads(line))) for line in b"".join(files).split()]
    assert values == list(range(300))
    assert place.problems() == []
