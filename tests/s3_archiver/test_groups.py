from __future__ import annotations

import io
import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sinksdk import (
    DataException,
    OffsetAndMetadata,
    RetriableException,
    SinkRecord,
    SinkRecords,
    TopicPartition,
    UnpublishableException,
)
from sinksdk.connectors.s3_archiver.archive.header import Archived, FileHeader
from sinksdk.connectors.s3_archiver.archive.ranges import RowRanges
from sinksdk.connectors.s3_archiver.files.file import FileFactory, Grain
from sinksdk.connectors.s3_archiver.files.settings import Limits
from sinksdk.connectors.s3_archiver.files.writer import PartitionWriter
from sinksdk.connectors.s3_archiver.formats.base import Encoded, Kinds
from sinksdk.connectors.s3_archiver.formats.datums import EncodedRows
from sinksdk.connectors.s3_archiver.formats.encoder import RecordAvro
from sinksdk.connectors.s3_archiver.formats.parquet import RecordParquet
from sinksdk.connectors.s3_archiver.partitioners.folders import Folders, Split
from sinksdk.connectors.s3_archiver.s3.client import PendingUpload
from sinksdk.connectors.s3_archiver.s3.errors import S3Error, S3TransientError
from sinksdk.connectors.s3_archiver.s3.requests import Rounds, one_by_one, together
from sinksdk.connectors.s3_archiver.s3.settings import MIB
from sinksdk.connectors.s3_archiver.verify.check import verify
from sinksdk.support.delays import S3_GROUP
from tests.s3_archiver.beside import at_once
from tests.s3_archiver.fake_s3 import FakeS3, Fault, LoggedRequest, denied, slow_down
from tests.s3_archiver.support import (
    FINE,
    OTHER,
    TP,
    Bench,
    ManualClock,
    Turns,
    bench,
    config,
    header,
    read,
    records,
)


def grouped(limits: Limits | None = None, folders: Folders | None = None, **arguments: Any) -> Bench:
    limits = limits or Limits(records=10)
    grouping: Mapping[str, Any] = {"folders": folders or Turns(), "limits": limits}
    return bench(grouping={**grouping, **arguments}, records_sql="SELECT * FROM records")


def files(b: Bench) -> dict[str, list[int]]:
    return {
        key.removeprefix("topics/orders/partition="): [row["offset"] for row in read(b.s3.data(key))]
        for key in b.visible()
    }


def restarted(b: Bench) -> None:
    b.harness.crash()
    b.harness.start()
    b.harness.assign(TP)


def expire(b: Bench, *places: int) -> None:
    tokens = b.harness.committed[TP].tokens
    for place in places:
        del b.s3.uploads[tokens[place].id]


def stop_before(b: Bench, completed: int) -> None:
    """Make the task crash after it has completed this many uploads of a commit."""
    left = completed

    def plan(request: LoggedRequest) -> Fault | None:
        nonlocal left
        if request.operation != "CompleteMultipartUpload":
            return None
        left -= 1
        return Fault(KeyboardInterrupt()) if left < 0 else None

    b.s3.plan = plan
    with pytest.raises(KeyboardInterrupt):
        b.harness.commit()
    b.s3.plan = None


def problems(b: Bench) -> list[str]:
    return verify(config(), b.s3, lambda: b.harness.committed).problems


# -- one commit for all ------------------------------------------------------------------------------


def test_open_files_end_together_and_are_committed_in_one_write() -> None:
    b = grouped()
    b.put(14)
    b.harness.commit()

    assert files(b) == {
        "0/turn=0/orders+0+0000000000.avro": [0, 2, 4, 6, 8],
        "0/turn=1/orders+0+0000000001.avro": [1, 3, 5, 7, 9],
    }
    assert b.committed() == 10
    assert Archived.of(b.harness.committed[TP]) == Archived(files=2, records=10, end=10)


def test_a_folder_reopens_with_a_later_start_offset() -> None:
    b = grouped(folders=Turns(2, 10))
    b.put(10)
    b.harness.commit()
    b.put(20)
    b.harness.revoke()

    assert list(files(b)) == [
        "0/turn=0/orders+0+0000000000.avro",
        "0/turn=0/orders+0+0000000020.avro",
        "0/turn=1/orders+0+0000000010.avro",
    ]
    assert problems(b) == []


def test_files_of_a_group_are_prepared_in_one_write() -> None:
    # Storing a token is a write to the store.
    b = grouped(folders=Turns(5))
    b.put(10)
    b.harness.commit()

    assert b.harness.names().count("prepared") <= 1
    assert b.s3.operations().count("CreateMultipartUpload") == 5


def test_file_headers_of_a_group_state_the_archive_before_it_and_their_index() -> None:
    b = grouped(folders=Turns(3))
    b.put(20)
    b.harness.revoke()

    headers = sorted(
        (
            header(b.s3.data(key))["sinksdk.files_before"],
            header(b.s3.data(key)).get("sinksdk.index_in_group", "0"),
        )
        for key in b.visible()
    )
    assert headers == sorted([("0", "0"), ("0", "1"), ("0", "2"), ("3", "0"), ("3", "1"), ("3", "2")])
    for location, found in b.s3.objects.items():
        assert FileHeader.of_object(found.metadata) == FileHeader.of(header(b.s3.data(location.key)))


def test_file_names_distinguish_several_records_of_one_offset() -> None:
    # A transform has made three records of offset 7, which go into three files of the same folder.
    class ByValue(RecordAvro):
        def kinds(self, partition: TopicPartition, batch: pa.RecordBatch) -> Kinds:  # type: ignore[override]
            values = batch.column("value").to_pylist()
            return Kinds(
                sorted(set(values)), np.array([sorted(set(values)).index(v) for v in values], np.int32)
            )

    b = grouped(folders=Turns(1), file_format=ByValue("null", None, 64))
    columns = {"offset": pa.array([7, 7, 7]), "value": pa.array([b"a", b"b", b"c"])}
    b.harness.deliver(TP, SinkRecords(TP, pa.RecordBatch.from_pydict(columns)))
    b.harness.revoke()

    assert list(files(b)) == [
        "0/turn=0/orders+0+0000000007+1.avro",
        "0/turn=0/orders+0+0000000007+2.avro",
        "0/turn=0/orders+0+0000000007.avro",
    ]


# -- what ends a group -------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 3, 7, 1_000])
def test_flush_size_counts_the_records_of_a_group(batch: int) -> None:
    b = grouped(Limits(records=10), Turns(3))
    left = 45
    while left:
        b.put(min(batch, left))
        left -= min(batch, left)
    b.harness.commit()

    assert b.committed() == 40
    assert sum(map(len, files(b).values())) == 40
    assert len(files(b)) == 12
    assert problems(b) == []


@pytest.mark.parametrize("batch", [1, 4, 100])
def test_record_time_ends_a_group_before_the_first_later_record(batch: int) -> None:
    # A group ends ten seconds after its first record; successive records are one second apart.
    b = grouped(Limits(interval=10_000), Turns(2, 2))
    for _ in range(0, 100, batch):
        b.put(batch)
    b.harness.revoke()

    starts = sorted({min(found) // 10 * 10 for found in files(b).values()})
    assert starts == list(range(0, 100, 10))
    assert all(max(found) - min(found) < 10 for found in files(b).values())


def test_late_records_end_no_group() -> None:
    class Late(Turns):
        def split(self, partition: TopicPartition, batch: pa.RecordBatch, now: float) -> Split:
            split = super().split(partition, batch, now)
            return Split(split.paths, split.codes, np.where(split.codes == 1, 5, 1_000_000))

    b = grouped(Limits(interval=10_000), Late())
    b.put(50)
    b.harness.revoke()

    assert [len(found) for found in files(b).values()] == [25, 25]


def test_record_time_does_not_split_an_offset() -> None:
    class Jump(Turns):
        def split(self, partition: TopicPartition, batch: pa.RecordBatch, now: float) -> Split:
            split = super().split(partition, batch, now)
            values = batch.column("value").to_pylist()
            return Split(split.paths, split.codes, np.array([int(value) for value in values]))

    b = grouped(Limits(interval=10), Jump(1))
    rows = [(1, 0), (2, 5), (2, 99), (3, 200), (3, 0), (4, 0)]
    columns = {
        "offset": pa.array([offset for offset, _ in rows]),
        "value": pa.array([b"%d" % when for _, when in rows]),
    }
    b.harness.deliver(TP, SinkRecords(TP, pa.RecordBatch.from_pydict(columns)))
    b.harness.revoke()

    assert list(files(b).values()) == [[1], [2, 2], [3, 3, 4]]


@pytest.mark.parametrize("batch", [1, 2, 5, 40])
def test_another_folder_ends_a_group_if_configured(batch: int) -> None:
    b = grouped(Limits(interval=1_000_000, is_of_one_folder=True), Turns(2, 5))
    for _ in range(0, 40, batch):
        b.put(batch)
    b.harness.revoke()

    assert sorted(files(b).values()) == [list(range(start, start + 5)) for start in range(0, 40, 5)]


def test_no_more_files_are_open_than_allowed() -> None:
    b = grouped(Limits(files=2), Turns(3))
    b.put(9)
    b.harness.revoke()

    assert sorted(files(b).values()) == [[0], [1], [2], [3], [4], [5], [6], [7], [8]]
    assert problems(b) == []


def test_an_offset_may_open_more_files_than_the_limit() -> None:
    # Regression: a transform made three records of one offset, for three files, of which two may be open at a
    # time.
    class ByValue(Turns):
        def split(self, partition: TopicPartition, batch: pa.RecordBatch, now: float) -> Split:
            paths = sorted(set(batch.column("value").to_pylist()))
            codes = [paths.index(value) for value in batch.column("value").to_pylist()]
            return Split([path.decode() for path in paths], np.array(codes, np.int32))

    b = grouped(Limits(files=2), ByValue())
    rows = [(0, b"a"), (0, b"b"), (0, b"c"), (1, b"a"), (2, b"c"), (3, b"d")]
    for some in (rows[:3], rows[3:4], rows[4:5], rows[5:]):
        columns = {"offset": pa.array([o for o, _ in some]), "value": pa.array([v for _, v in some])}
        b.harness.deliver(TP, SinkRecords(TP, pa.RecordBatch.from_pydict(columns)))
    b.harness.revoke()

    assert sorted(files(b).values()) == [[0], [0, 1], [0, 2], [3]]


def test_the_largest_file_ends_its_group() -> None:
    b = grouped(Limits(bytes=2_000), Turns(4))
    for _ in range(60):
        b.put(4)
    b.harness.revoke()

    sizes = [len(b.s3.data(key)) for key in b.visible()]
    assert len(sizes) > 4
    assert max(sizes) < 2_500


def test_a_group_ends_before_its_tokens_are_too_long() -> None:
    # A token lists the runs of offsets that its file contains.
    b = grouped(Limits(runs=20))
    b.put(12)
    b.put(12)
    b.put(12)
    b.harness.commit()

    assert b.committed() == 24


def test_each_kind_has_its_own_file() -> None:
    class Odd(RecordAvro):
        def kinds(self, partition: TopicPartition, batch: pa.RecordBatch) -> Kinds:  # type: ignore[override]
            return Kinds(["even", "odd"], (np.asarray(batch.column("offset")) % 2).astype(np.int32))

    b = grouped(folders=Turns(1), file_format=Odd("null", None, 64))
    b.put(10)
    b.harness.commit()

    assert list(files(b).values()) == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]


def test_a_wallclock_folder_is_named_after_the_minute_of_the_put() -> None:
    # The archiver collects small batches; folders by the wall clock use the time of their put.
    class Clock(Folders):
        def split(self, partition: TopicPartition, batch: pa.RecordBatch, now: float) -> Split:
            return Split([f"at={now:.0f}"], np.zeros(batch.num_rows, np.int32))

    rig = Rig(Clock(), Grain(rows=1_000))
    began = rig.clock.now
    rig.put(5)
    rig.clock.now += 59
    rig.put(5)
    rig.clock.now += 1
    rig.put(5)
    rig.close()

    assert [key.split("/")[2] for key in rig.locations()] == [f"at={began:.0f}", f"at={began + 60:.0f}"]


# -- encoding ----------------------------------------------------------------------------------------


class Watched(RecordAvro):
    def __init__(self) -> None:
        super().__init__("null", None, 64)
        self.batches: list[pa.RecordBatch] = []

    def encode(self, partition: TopicPartition, batch: pa.RecordBatch) -> Encoded[EncodedRows]:
        self.batches.append(batch)
        return super().encode(partition, batch)


class Rig:
    def __init__(self, folders: Folders | None, grain: Grain = FINE, **arguments: Any) -> None:
        self.s3, self.clock, self.format = FakeS3(), ManualClock(), Watched()
        self.reported: list[int] = []
        factory = FileFactory(
            config(),
            self.s3,
            1,
            grain,
            at_once,
            together=one_by_one,
            folders=folders,
            file_format=arguments.get("file_format") or self.format,
            limits=arguments.get("limits") or Limits(records=1_000),
        )

        def report(record: SinkRecord, _: DataException) -> None:
            self.reported.append(record.offset)

        self.writer = PartitionWriter(TP, factory, self._begin, None, self.clock, report=report)
        self.next = 0

    def _begin(self, _: TopicPartition, uploads: Iterable[Any]) -> None:
        for upload in uploads:
            upload.create()
            upload.is_prepared = True

    def put(self, count: int) -> SinkRecords:
        batch = records(count=count, first=self.next)
        self.writer.put(batch)
        self.next += count
        return batch

    def close(self) -> None:
        self._begin(TP, self.writer.prepare(is_closing=True))
        self.writer.send()

    def locations(self) -> list[str]:
        return [upload.location.key for upload in self.s3.uploads.values()]


def test_a_batch_is_encoded_once_for_all_its_files() -> None:
    rig = Rig(Turns(3))
    rig.put(9)

    assert [batch.column("offset").to_pylist() for batch in rig.format.batches] == [
        [0, 3, 6, 1, 4, 7, 2, 5, 8]
    ]


def test_rows_sorted_by_file_are_not_copied() -> None:
    for folders in (None, Turns(2, 5)):
        rig = Rig(folders)
        batch = rig.put(9)
        (encoded,) = rig.format.batches
        assert encoded is batch.arrow


class RefusingFormat(Watched):
    def encode(self, partition: TopicPartition, batch: pa.RecordBatch) -> Encoded[EncodedRows]:
        offsets = batch.column("offset").to_pylist()
        bad = {row: DataException("no") for row, offset in enumerate(offsets) if offset % 4 == 3}
        good = batch.take(pa.array([row for row in range(len(offsets)) if row not in bad], pa.int64()))
        return Encoded(
            super().encode(partition, good).rows if good.num_rows else EncodedRows.__new__(EncodedRows), bad
        )


class WithoutFolders(Turns):
    def split(self, partition: TopicPartition, batch: pa.RecordBatch, now: float) -> Split:
        split = super().split(partition, batch, now)
        bad = np.flatnonzero(np.asarray(batch.column("offset")) % 4 == 3)
        split.codes[bad] = -1
        return Split(
            split.paths, split.codes, split.timestamps, {int(row): DataException("no") for row in bad}
        )


@pytest.mark.parametrize("way", ["format", "folders"])
def test_bad_records_are_reported_once_and_the_others_are_archived(way: str) -> None:
    rig = Rig(
        Turns() if way == "format" else WithoutFolders(),
        limits=Limits(records=6),
        file_format=RefusingFormat() if way == "format" else None,
    )
    rig.put(3)
    rig.put(17)
    rig.close()

    assert rig.reported == [3, 7, 11, 15, 19]
    found = rig.writer.committable(OffsetAndMetadata(20))
    assert found is not None
    assert [(t.data["group"], t.data["records"]) for t in found.tokens] == [
        *[([0, 7], 4), ([0, 7], 2)],
        *[([8, 15], 4), ([8, 15], 2)],
        *[([16, 19], 2), ([16, 19], 1)],
    ]
    assert found.offset == 20


def test_an_untolerated_bad_record_fails_its_partition() -> None:
    b = grouped(Limits(records=2), WithoutFolders())
    b.put(2)
    b.harness.commit()
    b.put(2)
    b.harness.commit()

    assert b.harness.outcome(TP).failure is not None
    assert b.committed() == 2


def test_batch_waits_while_the_registry_is_unavailable() -> None:
    class Unsteady(Watched):
        def encode(self, partition: TopicPartition, batch: pa.RecordBatch) -> Encoded[EncodedRows]:
            if next(fates, True):
                return super().encode(partition, batch)
            raise RetriableException("no answer")

    fates = iter([True, False, False, True, False])
    rig = Rig(Turns(), file_format=Unsteady())
    rig.put(10)
    rig.put(10)
    assert rig.writer.has_failed_request
    assert rig.writer.committable(OffsetAndMetadata(20)) is None
    with pytest.raises(RetriableException):
        rig.put(10)
    rig.put(10)
    assert rig.writer.has_failed_request
    rig.close()

    found = rig.writer.committable(OffsetAndMetadata(30))
    assert found is not None
    assert [token.data["records"] for token in found.tokens] == [15, 15]


# -- memory ------------------------------------------------------------------------------------------


def test_exceeding_the_buffer_limit_sends_the_largest_part() -> None:
    b = grouped(Limits(buffered=9 * MIB), Turns(2, 1_000))
    b.put(5_000, size=1_000)
    assert "UploadPart" not in b.s3.operations()
    b.put(6_000, size=1_000)

    sizes = [len(part) for upload in b.s3.uploads.values() for part in upload.parts.values()]
    assert len(sizes) == 1
    assert 5 * MIB <= sizes[0] < 8 * MIB
    b.harness.revoke()
    assert problems(b) == []


def test_exceeding_the_buffer_limit_without_a_full_part_ends_the_largest_group() -> None:
    b = bench(TP, OTHER, grouping={"folders": Turns(4), "limits": Limits(buffered=1_500_000)})
    b.put(1, OTHER)
    assert b.s3.log == []
    for _ in range(4):
        b.put(1_000, size=1_000)
    b.harness.commit()

    assert b.committed(TP) is not None
    assert b.committed(OTHER) is None


def test_memory_is_freed_once_while_s3_is_unavailable() -> None:
    b = grouped(Limits(buffered=1))
    b.s3.plan = lambda request: Fault(slow_down()) if request.operation == "CreateMultipartUpload" else None
    b.put(10)
    request = len(b.s3.log)
    assert request == 1
    b.s3.plan = None
    b.put(10)
    b.harness.revoke()

    assert sorted(o for found in files(b).values() for o in found) == list(range(20))


# -- publishing --------------------------------------------------------------------------------------


def test_a_group_with_an_expired_upload_is_not_partly_published() -> None:
    b = grouped(folders=Turns(3))
    b.put(10)
    b.harness.commit()
    b.put(10)
    stop_before(b, 0)
    expire(b, 2)
    restarted(b)

    assert len(files(b)) == 3
    assert (b.committed(), json.loads(b.harness.committed[TP].metadata)) == (
        10,
        {"files": 3, "records": 10, "end": 10, "where": "s3://bucket/topics"},
    )
    assert problems(b) == []
    restarted(b)
    b.put(10)
    b.harness.revoke()
    assert sorted(o for found in files(b).values() for o in found) == list(range(20))
    assert b.s3.uploads == {}
    assert problems(b) == []


@pytest.mark.parametrize("batch", [1, 4, 100])
def test_visible_records_are_skipped_when_their_group_is_read_again(batch: int) -> None:
    b = grouped(folders=Turns(3))
    b.put(25)
    stop_before(b, 4)  # the files of the first group, and one of the second
    visible = files(b)
    assert [len(found) for found in visible.values()] == [4, 3, 3, 3]
    expire(b, 4)
    restarted(b)

    outcome = b.harness.outcome(TP)
    assert outcome.failure is not None
    assert "were committed" not in outcome.failure.message
    committed = b.harness.committed[TP]
    archived = Archived.of(committed)
    assert (committed.offset, archived.files, archived.records, archived.end) == (10, 4, 13, 10)
    assert RowRanges.of_text(archived.skip).first.tolist() == [12, 15, 18]
    assert problems(b) == []
    restarted(b)
    assert b.harness.position(TP) == 10
    left = 25
    while left:
        b.put(min(batch, left))
        left -= min(batch, left)
    b.harness.revoke()

    assert {key: found for key, found in files(b).items() if key in visible} == visible
    assert sorted(o for found in files(b).values() for o in found) == list(range(35))
    assert b.s3.uploads == {}
    assert "skip" not in json.loads(b.harness.committed[TP].metadata)
    assert problems(b) == []


def test_a_withdrawal_states_up_to_which_offset_its_group_is_visible() -> None:
    # The task's metadata is opaque to the engine.
    b = grouped(folders=Turns(3))
    b.put(25)
    stop_before(b, 4)
    expire(b, 4)
    tokens = b.harness.committed[TP].tokens
    with pytest.raises(UnpublishableException) as withdrawn:
        b.harness.task.publish(TP, tokens)

    assert (withdrawn.value.offset, withdrawn.value.partly_visible_to) == (10, 19)


def test_commit_metadata_keeps_the_visible_rows_above_the_commit() -> None:
    b = grouped(Limits(records=100), Turns(2, 5))
    b.put(100)
    stop_before(b, 1)
    expire(b, 1)
    restarted(b)
    restarted(b)
    assert b.committed() == 0
    b.put(20)
    b.harness.revoke()
    committed = b.harness.committed[TP]
    assert committed.offset == 20
    assert RowRanges.of_text(Archived.of(committed).skip).first.tolist() == list(range(20, 100, 10))
    assert problems(b) == []
    restarted(b)
    b.put(80)
    b.harness.revoke()

    assert sorted(o for found in files(b).values() for o in found) == list(range(100))
    assert problems(b) == []


def test_a_later_group_above_visible_records_can_be_withdrawn() -> None:
    b = grouped(Limits(records=100), Turns(3))
    b.put(100)
    stop_before(b, 1)
    expire(b, 1)
    restarted(b)
    restarted(b)
    b.put(100)
    b.s3.fail_next("CompleteMultipartUpload", KeyboardInterrupt(), after_effect=True)
    with pytest.raises(KeyboardInterrupt):
        b.harness.revoke()
    assert len(files(b)) == 2
    expire(b, 1)
    restarted(b)
    assert problems(b) == []
    restarted(b)
    b.put(99)
    b.harness.revoke()

    assert [len(found) for found in files(b).values()] == [34, 33, 33]
    assert problems(b) == []


def test_a_late_completion_cannot_make_a_withdrawn_groups_file_visible() -> None:
    # All other uploads are aborted before the archiver checks which files are visible.
    b = grouped(folders=Turns(3))
    b.put(10)
    stop_before(b, 0)
    expire(b, 0)
    tokens = b.harness.committed[TP].tokens
    looked = []

    def plan(request: LoggedRequest) -> Fault | None:
        if request.operation == "HeadObject":
            looked.append({token.id for token in tokens} & set(b.s3.uploads))
        return None

    b.s3.plan = plan
    restarted(b)

    assert looked[1:] == [set()] * 3


def test_group_is_published_although_listing_parts_is_denied() -> None:
    b = grouped()
    b.s3.plan = lambda request: Fault(denied()) if request.operation == "ListParts" else None
    b.put(10)
    b.harness.commit()

    assert len(files(b)) == 2


def test_publication_resumes_after_an_outage() -> None:
    b = grouped()
    b.s3.fail_next("ListParts", slow_down())
    b.put(10)
    b.harness.commit()
    b.harness.tick()

    assert len(files(b)) == 2


def test_group_of_one_file_is_published_by_one_request() -> None:
    b = grouped(folders=Turns(1))
    b.put(10)
    b.harness.commit()

    assert b.s3.operations() == ["CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"]
    assert "ranges" not in json.dumps([dict(token.data) for token in b.harness.committed[TP].tokens])


# -- requests at a time ------------------------------------------------------------------------------


def test_requests_of_a_groups_files_are_concurrent() -> None:
    sizes = []

    def counting(requests: Iterable[Callable[[], object]]) -> None:
        listed = list(requests)
        sizes.append(len(listed))
        one_by_one(listed)

    b = bench(together=counting, grouping={"folders": Turns(5), "limits": Limits(records=10)})
    b.put(10)
    b.harness.commit()

    assert [size for size in sizes if size] == [5, 5, 1, 5]


def test_eight_requests_are_concurrent() -> None:
    barrier, done = threading.Barrier(8, timeout=30), []

    def request(number: int) -> None:
        barrier.wait()
        done.append(number)

    together([lambda number=number: request(number) for number in range(16)])

    assert sorted(done) == list(range(16))


def test_no_request_begins_after_an_error() -> None:
    begun, failing = [], Future[threading.Thread]()

    def request(number: int) -> None:
        begun.append(number)
        if number == 0:
            failing.set_result(threading.current_thread())
            raise slow_down()
        failing.result(60).join(60)  # the request ends once its error is recorded

    with pytest.raises(S3TransientError):
        together([lambda number=number: request(number) for number in range(100)])

    assert len(begun) <= 8


# -- an S3 that is short of capacity -----------------------------------------------------------------


def throttled(b: Bench, per_second: float, cost: float = 0.01) -> list[LoggedRequest]:
    let_through: list[LoggedRequest] = []
    began = b.clock.now

    def plan(request: LoggedRequest) -> Fault | None:
        b.clock.now += cost
        if len(let_through) >= 1 + (b.clock.now - began) * per_second:
            return Fault(slow_down())
        let_through.append(request)
        return None

    b.s3.plan = plan
    return let_through


@pytest.mark.parametrize("per_second", [5, 20])
def test_backoff_repeats_only_the_failed_requests_of_a_group(per_second: int) -> None:
    # Regression: each attempt repeated the requests of twenty files, and at five a second none completed.
    b = grouped(Limits(records=40), Turns(20))
    let_through = throttled(b, per_second)

    b.put(40)
    b.harness.commit()

    assert sorted(b.offsets()) == list(range(40))
    assert b.harness.outcome(TP).failure is None
    times = {
        "CreateMultipartUpload": 20,
        "UploadPart": 20,
        "ListMultipartUploads": 1,
        "CompleteMultipartUpload": 20,
    }
    assert [request.operation for request in let_through] == [
        name for name in times for _ in range(times[name])
    ]


def test_backoff_resumes_a_publication_where_it_stopped() -> None:
    b = grouped(folders=Turns(5))
    b.put(10)
    completed: list[str] = []
    refused: list[str] = []

    def plan(request: LoggedRequest) -> Fault | None:
        if request.operation == "CompleteMultipartUpload":
            if len(completed) == 3 and len(refused) < 10:  # more requests than fit into one attempt
                refused.append(request.key)
                return Fault(slow_down())
            completed.append(request.key)
        return None

    b.s3.plan = plan
    b.harness.commit()

    assert len(b.harness.called("publish")) > 1
    assert sorted(b.offsets()) == list(range(10))
    assert len(completed) == len(set(completed)) == 5
    looked = [request.key for request in b.s3.log if request.operation == "ListParts"]
    assert set(looked) == set(completed[3:])
    assert len([request for request in b.s3.log if request.operation == "ListMultipartUploads"]) == 1


def looks(b: Bench) -> Counter[str]:
    found = Counter(request.operation for request in b.s3.log if request.operation.startswith("List"))
    b.s3.log.clear()
    return found


def test_large_group_is_checked_by_one_listing() -> None:
    b = grouped(Limits(records=200), Turns(200))
    b.put(200)
    b.harness.commit()
    assert len(b.visible()) == 200
    assert looks(b) == {"ListMultipartUploads": 1}

    b = grouped(folders=Turns(2))
    b.put(10)
    b.harness.commit()
    assert looks(b) == {"ListParts": 2}


def test_uploads_missing_from_the_listing_are_checked_singly(monkeypatch: pytest.MonkeyPatch) -> None:
    # A store may list uploads of other writers first, and truncate the list.
    b = grouped(folders=Turns(5))
    all_of_them = b.s3.list_uploads

    def some(bucket: str, prefix: str) -> Iterator[PendingUpload]:
        yield PendingUpload("topics/orders/another", "another")
        yield from itertools.islice(all_of_them(bucket, prefix), 3)

    monkeypatch.setattr(b.s3, "list_uploads", some)
    for commits in (1, 2):
        b.put(10)
        b.harness.commit()
        assert len(b.visible()) == 5 * commits
        assert looks(b) == {"ListMultipartUploads": 1, "ListParts": 2}


def test_a_listing_ends_after_five_thousand_uploads(monkeypatch: pytest.MonkeyPatch) -> None:
    b = grouped(folders=Turns(3))
    taken = itertools.count()

    def endless(bucket: str, prefix: str) -> Iterator[PendingUpload]:
        assert (bucket, prefix) == ("bucket", "topics/orders/partition=0/turn=")
        return (PendingUpload("another", f"another-{number}") for number in taken)

    monkeypatch.setattr(b.s3, "list_uploads", endless)
    b.put(10)
    b.harness.commit()
    assert len(b.visible()) == 3
    assert next(taken) == 5_000


@pytest.mark.parametrize("refused", [True, False])
def test_uploads_are_checked_singly_where_listing_fails(
    monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    # Listing is denied, or the store lists only the uploads of one key (MinIO).
    b = grouped(folders=Turns(5))

    def nothing(*_: str) -> Iterator[PendingUpload]:
        return iter(())

    if refused:
        b.s3.plan = lambda request: Fault(denied()) if request.operation == "ListMultipartUploads" else None
    else:
        monkeypatch.setattr(b.s3, "list_uploads", nothing)
    for commits in (1, 2):
        b.put(10)
        b.harness.commit()
        assert len(b.visible()) == 5 * commits
        assert looks(b) == {"ListParts": 5} | (
            {"ListMultipartUploads": 1} if refused and commits == 1 else {}
        )


def test_backoff_repeats_a_throttled_listing() -> None:
    b = grouped(folders=Turns(5))
    b.s3.fail_next("ListMultipartUploads", slow_down())
    b.put(10)
    b.harness.commit()

    assert len(b.visible()) == 5
    assert looks(b) == {"ListMultipartUploads": 2}


class Unsteady:
    def __init__(self, succeed: Iterable[int]) -> None:
        self.left = iter(succeed)
        self.room = 0
        self.now = 0.0
        self.done: list[int] = []
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def make(self, count: int, seconds: float = 30.0) -> None:
        def request(number: int) -> None:
            if not self.room:
                raise slow_down()
            self.room -= 1
            self.done.append(number)

        def once(requests: Iterable[Callable[[], object]]) -> None:
            self.room = next(self.left, 0)
            one_by_one(requests)

        rounds = Rounds(once, lambda: seconds, S3_GROUP, lambda: self.now, self.sleep)
        rounds([lambda number=number: request(number) for number in range(count)])


def test_backoff_does_not_repeat_successful_requests() -> None:
    # Pauses double up to a second.
    unsteady = Unsteady([3, 0, 1, 1, 5])
    unsteady.make(10)

    assert unsteady.done == list(range(10))
    assert unsteady.slept == [0.2, 0.4, 0.8, 1.0]


def test_backoff_ends_after_a_round_without_success() -> None:
    unsteady = Unsteady([0, 10])
    with pytest.raises(S3TransientError):
        unsteady.make(10)

    assert unsteady.slept == []


@pytest.mark.parametrize(("seconds", "longest"), [(30.0, 5.0), (2.0, 2.0), (0.0, 0.0)])
def test_backoff_of_rounds_is_bounded(seconds: float, longest: float) -> None:
    # The requests end after five seconds without a success, or when no time is left.
    unsteady = Unsteady([1])
    with pytest.raises(S3TransientError):
        unsteady.make(10, seconds)

    assert longest - 1.0 <= sum(unsteady.slept) <= longest


def test_refused_request_is_not_repeated() -> None:
    begun = []

    def request(number: int) -> None:
        begun.append(number)
        if number == 1:
            raise denied()

    with pytest.raises(S3Error):
        Rounds(one_by_one, lambda: 30.0, S3_GROUP, lambda: 0.0, lambda _: None)(
            [lambda number=number: request(number) for number in range(3)]
        )

    assert begun == [0, 1]


# -- by configuration --------------------------------------------------------------------------------


def test_alternating_hours_get_a_file_each() -> None:
    fields = {
        "partitioner_class": "io.confluent.connect.storage.partitioner.TimeBasedPartitioner",
        "path_format": "'day'=dd/'hour'=HH",
        "partition_duration_ms": 3_600_000,
        "timestamp_extractor": "Record",
        "flush_size": 12,
    }
    b = bench(settings=config().model_copy(update=fields))
    hour = 3_600_000
    rows = [SinkRecord(*TP, offset=n, value=b"{}", timestamp=(1 + n % 3) * hour) for n in range(30)]
    b.harness.deliver(TP, SinkRecords.of(TP, rows))
    b.harness.commit()

    assert {key.removeprefix("topics/orders/"): len(read(b.s3.data(key))) for key in b.visible()} == {
        f"day=01/hour=0{hour}/orders+0+00000000{start:02}.avro": 4
        for start, hour in ((0, 1), (1, 2), (2, 3), (12, 1), (13, 2), (14, 3))
    }
    assert b.committed() == 24
    assert problems(b) == []


def test_record_time_ends_files_by_configuration() -> None:
    fields = {
        "partitioner_class": "HourlyPartitioner",
        "timestamp_extractor": "Record",
        "rotate_interval_ms": 60_000,
    }
    b = bench(settings=config().model_copy(update=fields))
    rows = [SinkRecord(*TP, offset=n, value=b"{}", timestamp=n * 10_000) for n in range(30)]
    b.harness.deliver(TP, SinkRecords.of(TP, rows))
    b.harness.commit()

    assert [len(read(b.s3.data(key))) for key in b.visible()] == [6, 6, 6, 6]


def test_groups_of_parquet_files_are_archived() -> None:
    b = grouped(folders=Turns(3), file_format=RecordParquet())
    b.put(10)
    b.harness.commit()
    b.put(10)
    stop_before(b, 1)
    expire(b, 1)
    restarted(b)
    assert b.committed() == 10
    restarted(b)
    b.put(10)
    b.harness.revoke()

    rows = [pq.read_table(io.BytesIO(b.s3.data(key))).column("offset").to_pylist() for key in b.visible()]
    assert sorted(offset for found in rows for offset in found) == list(range(20))
    assert all(key.endswith(".snappy.parquet") for key in b.visible())
    assert problems(b) == []
