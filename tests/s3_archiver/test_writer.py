from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinksdk import OffsetAndMetadata, SinkRecords, TopicPartition
from sinksdk.connectors.s3_archiver.files.file import FileFactory
from sinksdk.connectors.s3_archiver.files.writer import PartitionWriter
from sinksdk.connectors.s3_archiver.s3.errors import S3Error, S3TransientError
from sinksdk.connectors.s3_archiver.s3.publisher import complete
from sinksdk.connectors.s3_archiver.s3.requests import Beside, in_a_thread
from sinksdk.connectors.s3_archiver.s3.upload import Upload
from tests.s3_archiver.beside import Late, at_once
from tests.s3_archiver.fake_s3 import FakeS3, Fault, LoggedRequest, denied, no_response, slow_down
from tests.s3_archiver.support import FINE, TP, ManualClock, config, header, read, records


class Rig:
    def __init__(
        self, beside: Beside = at_once, committed: OffsetAndMetadata | None = None, **fields: Any
    ) -> None:
        self.s3, self.clock = FakeS3(), ManualClock()
        self.notes: list[int] = []
        self.writer = PartitionWriter(
            TP, FileFactory(config(**fields), self.s3, 1, FINE, beside), self.begin, committed, self.clock
        )
        self.accepted = committed.offset if committed else 0

    def begin(self, _partition: TopicPartition, uploads: Sequence[Upload]) -> None:
        for upload in uploads:
            upload.create()
        self.notes.append(len(uploads))
        for upload in uploads:
            upload.is_prepared = True

    def put(self, batch: SinkRecords) -> None:
        self.writer.put(batch)
        self.accepted = batch.next_offset

    def close(self) -> OffsetAndMetadata | None:
        self.begin(TP, self.writer.prepare(is_closing=True))
        self.writer.send()
        return self.committable()

    def committable(self) -> OffsetAndMetadata | None:
        return self.writer.committable(OffsetAndMetadata(self.accepted))

    def publish(self, offset: OffsetAndMetadata | None) -> list[list[int]]:
        assert offset is not None
        for token in offset.tokens:
            complete(self.s3, token)
        self.writer.published(offset.tokens)
        return self.files()

    def files(self) -> list[list[int]]:
        return [[row["offset"] for row in read(self.s3.data(key))] for key in self.s3.visible()]


def test_files_end_at_exactly_flush_size_for_every_batch_size() -> None:
    rig = Rig(flush_size=100)
    for first in range(0, 250, 70):
        rig.put(records(count=min(70, 250 - first), first=first))

    files = rig.publish(rig.close())

    assert [len(file) for file in files] == [100, 100, 50]
    assert list(itertools.chain(*files)) == list(range(250))


def test_one_batch_may_fill_many_files() -> None:
    rig = Rig(flush_size=10)
    rig.put(records(count=1000))

    files = rig.publish(rig.close())

    assert [len(file) for file in files] == [10] * 100


def test_small_files_are_prepared_in_one_write() -> None:
    # Storing a token is a write to the store.
    rig = Rig(flush_size=10)
    rig.put(records(count=1000))

    assert rig.notes == []
    assert rig.s3.log == []
    rig.close()
    assert rig.notes == [100]


def test_small_files_are_sent_at_a_quarter_part() -> None:
    rig = Rig(flush_size=10, part_size=40_000)
    rig.put(records(count=100))

    assert sum(rig.notes) >= 4
    assert len(rig.s3.uploads_with_data()) >= 4


def test_finished_files_hold_no_data() -> None:
    # There may be thousands of such batches between two commits.
    rig = Rig(flush_size=100)
    rig.put(records(count=1000))
    rig.close()

    buffers = [upload._buffer for group in rig.writer._finished for upload in group.uploads]
    assert len(buffers) == 10
    assert sum(len(buffer.body()) for buffer in buffers) == 0


def test_offsets_with_gaps_are_archived() -> None:
    rig = Rig(flush_size=3)
    batch = SinkRecords.of(TP, [r for r in records(count=40) if r.offset % 7 == 5])
    rig.put(batch)

    files = rig.publish(rig.close())

    assert files == [[5, 12, 19], [26, 33]]
    assert [key[-15:-5] for key in rig.s3.visible()] == ["0000000005", "0000000026"]


@pytest.mark.slow
def test_files_end_near_flush_bytes() -> None:
    # The size is checked sixteen times per file.
    rig = Rig(flush_size=1_000_000, flush_bytes=2_000_000)
    rig.put(records(count=20_000, size=500))

    rig.publish(rig.close())

    sizes = [len(rig.s3.data(key)) for key in rig.s3.visible()]
    assert len(sizes) == 6, sizes
    assert all(2_000_000 <= size < 2_200_000 for size in sizes[:-1])
    assert sum(map(len, rig.files())) == 20_000


def test_the_schedule_ends_a_file_at_the_next_multiple() -> None:
    rig = Rig(flush_size=100, rotate_schedule_interval_ms=3_600_000)
    rig.clock.now += 600
    rig.put(records(count=10))
    rig.clock.now += 2999
    rig.put(records(count=10, first=10))
    rig.clock.now += 1
    rig.put(records(count=10, first=20))

    files = rig.publish(rig.close())

    assert [len(file) for file in files] == [20, 10]


def test_due_file_is_sealed_without_a_new_record() -> None:
    rig = Rig(flush_size=100, rotate_schedule_interval_ms=60_000)
    rig.put(records(count=10))

    assert rig.writer.prepare(is_closing=False) == []
    rig.clock.now += 60
    assert len(rig.writer.prepare(is_closing=False)) == 1


def test_only_finished_files_may_be_committed_while_one_is_open() -> None:
    rig = Rig(flush_size=100)
    rig.put(records(count=150))
    rig.begin(TP, rig.writer.prepare(is_closing=False))
    rig.writer.send()

    found = rig.committable()

    assert found is not None
    assert found.offset == 100
    assert len(found.tokens) == 1


def test_all_accepted_records_are_committable_if_no_file_is_open() -> None:
    rig = Rig(flush_size=100)
    rig.put(records(count=100))
    rig.accepted = 117
    rig.begin(TP, rig.writer.prepare(is_closing=False))
    rig.writer.send()

    found = rig.committable()

    assert found is not None
    assert found.offset == 117


def test_an_unfinished_file_is_not_committable() -> None:
    rig = Rig(flush_size=100)
    rig.put(records(count=10))

    assert rig.committable() is None


def test_file_headers_state_the_archive_before_them() -> None:
    rig = Rig(flush_size=100)
    rig.put(records(count=150))
    closed = rig.close()
    rig.publish(closed)
    assert closed is not None
    successor = Rig(committed=OffsetAndMetadata(160, closed.metadata), flush_size=100)
    successor.put(records(count=10, first=163))
    successor.publish(successor.close())

    headers = [
        tuple(
            header(rig_.s3.data(key))[f"sinksdk.{name}"]
            for name in ("files_before", "records_before", "previous_end")
        )
        for rig_ in (rig, successor)
        for key in rig_.s3.visible()
    ]
    assert headers == [("0", "0", ""), ("1", "100", "100"), ("2", "150", "150")]


def test_file_is_byte_for_byte_reproducible() -> None:
    made = []
    for batches in ([100], [1] * 100, [33, 67]):
        rig, first = Rig(flush_size=100, avro_codec="deflate"), 0
        for count in batches:
            rig.put(records(count=count, first=first))
            first += count
        rig.publish(rig.close())
        made.append(rig.s3.data(rig.s3.visible()[0]))

    assert made[0] == made[1] == made[2]


# -- S3 in trouble -------------------------------------------------------------------------------


def test_a_batch_is_accepted_if_sending_a_part_fails() -> None:
    rig = Rig(flush_size=1000, part_size=2000)
    rig.s3.fail_next("UploadPart", slow_down(), times=2)
    rig.put(records(count=500))
    with pytest.raises(S3TransientError):
        rig.put(records(count=100, first=500))
    rig.put(records(count=100, first=500))

    assert rig.publish(rig.close()) == [list(range(600))]


def test_a_refused_batch_is_not_in_the_file() -> None:
    rig = Rig(flush_size=1000, part_size=2000)
    rig.s3.fail_next("UploadPart", slow_down(), times=2)
    rig.put(records(count=500))
    with pytest.raises(S3TransientError):
        rig.put(records(count=100, first=500))

    closed = rig.close()

    assert closed is not None
    assert closed.offset == 500
    assert rig.publish(closed) == [list(range(500))]


def test_a_put_makes_no_request_after_a_failed_one() -> None:
    # Each attempt takes seconds of retries.
    rig = Rig(flush_size=10, part_size=400)
    rig.s3.fail_next("CreateMultipartUpload", slow_down(), times=50)
    rig.put(records(count=500))

    assert rig.s3.operations() == ["CreateMultipartUpload"]


def test_memory_does_not_grow_while_s3_is_unavailable() -> None:
    rig = Rig(flush_size=100_000, part_size=2000)
    rig.s3.fail_next("UploadPart", slow_down(), times=20)
    rig.put(records(count=500))
    stuck = rig.writer._open
    assert stuck is not None
    size = stuck.uploads[0].size
    for _ in range(10):
        with pytest.raises(S3TransientError):
            rig.put(records(count=500, first=500))

    assert stuck.uploads[0].size == size


def test_a_lost_response_to_create_or_part_changes_nothing() -> None:
    rig = Rig(flush_size=100, part_size=500)
    rig.s3.fail_next("CreateMultipartUpload", no_response(), after_effect=True)
    rig.s3.fail_next("UploadPart", no_response(), after_effect=True, times=3)
    first = 0
    while first < 250:
        try:
            rig.put(records(count=50, first=first))
        except S3TransientError:
            continue
        first += 50
    closed = None
    while closed is None:
        try:
            closed = rig.close()
        except S3TransientError:
            continue

    assert [len(file) for file in rig.publish(closed)] == [100, 100, 50]
    assert all(upload.size == 0 for upload in rig.s3.uploads.values())


def test_only_finished_files_are_committed_after_a_permanent_error() -> None:
    # The failed put may have accepted half a batch.
    rig = Rig(flush_size=100, part_size=500)
    rig.put(records(count=120))
    rig.s3.fail_next("UploadPart", denied(), times=1)
    with pytest.raises(S3Error):
        rig.put(records(count=200, first=120))

    closed = rig.close()

    assert closed is not None
    assert closed.offset == 100
    assert rig.publish(closed) == [list(range(100))]


def test_a_finished_file_with_refused_rows_is_not_committed() -> None:
    # A batch can end one file and fail in the next: all of it counts as not accepted.
    rig = Rig(flush_size=100, part_size=500)
    rig.put(records(count=90))
    rig.s3.fail_next("CreateMultipartUpload", denied())
    with pytest.raises(S3Error):
        rig.put(records(count=110, first=90))

    assert len(rig.writer._finished) + len(rig.writer._sealed) >= 1
    assert rig.committable() is None


# -- parts on their way --------------------------------------------------------------------------


def test_a_failed_part_is_sent_again_before_the_next_batch_is_accepted(late: Late) -> None:
    rig = Rig(late, flush_size=1000, part_size=2000)
    rig.s3.fail_next("UploadPart", slow_down(), times=2)
    rig.put(records(count=30))
    assert late.waiting
    late.run_all()
    assert not rig.writer.has_failed_request

    with pytest.raises(S3TransientError):
        rig.put(records(count=1, first=30))
    assert rig.writer.has_refused_batch
    assert rig.s3.operations().count("UploadPart") == 2
    rig.put(records(count=1, first=30))
    assert not rig.writer.has_refused_batch
    assert not rig.writer.has_failed_request
    assert rig.s3.operations().count("UploadPart") == 3
    assert rig.publish(rig.close()) == [list(range(31))]


def test_refused_part_fails_the_partition_at_the_next_batch(late: Late) -> None:
    rig = Rig(late, flush_size=40, part_size=2000)
    rig.put(records(count=40))
    rig.s3.fail_next("UploadPart", denied())
    rig.put(records(count=39, first=40))
    late.run_all()

    with pytest.raises(S3Error):
        rig.put(records(count=1, first=79))
    closed = rig.close()
    assert closed is not None
    assert closed.offset == 40
    assert rig.publish(closed) == [list(range(40))]


def test_closing_commit_repeats_a_request_that_failed_in_flight(late: Late) -> None:
    # A closing commit may have only one attempt, which an earlier failure must not use up.
    rig = Rig(late, flush_size=1000, part_size=2000)
    rig.s3.fail_next("UploadPart", slow_down())
    rig.put(records(count=30))
    late.run_all()

    assert rig.publish(rig.close()) == [list(range(30))]


def test_file_with_a_part_in_flight_is_not_committed(late: Late) -> None:
    # A sealed file is finished when S3 has all of it.
    rig = Rig(late, flush_size=1000, part_size=2000)
    rig.put(records(count=30))
    rig.writer.prepare(is_closing=True)

    assert late.waiting
    assert rig.committable() is None
    rig.writer.send()
    assert late.waiting == []
    found = rig.committable()
    assert found is not None
    assert found.offset == 30


def test_no_part_is_sent_before_its_upload_is_prepared(late: Late) -> None:
    rig = Rig(late, flush_size=1000, part_size=2000)
    rig.s3.fail_next("CreateMultipartUpload", slow_down())
    rig.put(records(count=30))

    assert (rig.notes, late.begun) == ([], 0)
    rig.put(records(count=1, first=30))
    assert (rig.notes, late.begun) == ([1], 1)


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=6),
    st.lists(st.sampled_from(["ok", "ok", "before", "after"]), max_size=40),
    st.integers(5, 50),
    st.integers(100, 5000),
    st.sampled_from([at_once, Late, in_a_thread]),
)
def test_each_offset_is_archived_once_under_any_failed_request(
    batches: list[int], fates: list[str], flush_size: int, part_size: int, way: Any
) -> None:
    beside = Late() if way is Late else way
    rig, plan = Rig(beside, flush_size=flush_size, part_size=part_size), iter(fates)

    def fault(_asked: LoggedRequest) -> Fault | None:
        fate = next(plan, "ok")
        return None if fate == "ok" else Fault(no_response(), after_effect=fate == "after")

    rig.s3.plan = fault
    first = 0
    for count in batches:
        batch = records(count=count, first=first)
        for _ in range(len(fates) + 1):
            try:
                rig.put(batch)
                break
            except S3TransientError:
                continue
        first += count
    closed = None
    while closed is None:
        try:
            closed = rig.close()
        except S3TransientError:
            continue
    rig.s3.plan = None
    files = rig.publish(closed)

    assert list(itertools.chain(*files)) == list(range(sum(batches)))
    assert all(len(file) == flush_size for file in files[:-1])
    assert closed.offset == sum(batches)
    assert rig.s3.uploads_with_data() == []
