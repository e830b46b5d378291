from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import pytest

from sinksdk import ClosingReason, FencedException, OffsetAndMetadata, Token, TopicPartition
from sinksdk.connectors.s3_archiver.archive.header import Archived
from sinksdk.connectors.s3_archiver.s3.client import Location
from sinksdk.connectors.s3_archiver.s3.errors import S3Error, S3TransientError
from sinksdk.connectors.s3_archiver.s3.publisher import ForeignObject
from sinksdk.connectors.s3_archiver.task import S3ArchiverTask
from tests.s3_archiver.beside import Late, at_once
from tests.s3_archiver.fake_s3 import FakeObject, FakeS3, Fault, LoggedRequest, denied, no_response, slow_down
from tests.s3_archiver.support import OTHER, TP, Bench, bench, config

FIRST_FILE = "topics/orders/partition=0/orders+0+0000000000.avro"


def failing(operation: str, error: BaseException, folder: str = "partition=0/") -> FakeS3:
    return FakeS3(
        plan=lambda request: (
            Fault(error) if request.operation == operation and folder in request.key else None
        )
    )


def test_periodic_commit_covers_full_files_only() -> None:
    b = bench(flush_size=100)
    b.put(250)
    b.harness.commit()

    assert b.committed() == 200
    assert b.offsets() == list(range(200))


def test_a_partial_file_is_flushed_and_committed_on_close() -> None:
    # See KIP-275.
    b = bench(flush_size=100_000)
    b.put(60)
    b.harness.revoke()

    assert b.committed() == 60
    assert b.offsets() == list(range(60))


def test_handover_resumes_where_the_partial_file_ended() -> None:
    b = bench(flush_size=100)
    for count in (60, 70, 130):
        b.put(count)
        b.harness.revoke()
        b.harness.assign(TP)

    assert b.offsets() == list(range(260))
    assert [key[-15:-5] for key in b.visible()] == ["0000000000", "0000000060", "0000000130", "0000000230"]


def test_nothing_is_visible_before_its_commit() -> None:
    b = bench(flush_size=100, settings=config(flush_size=100, part_size=500))
    b.put(250)

    assert b.s3.uploads_with_data()
    assert b.offsets() == []


def test_upload_token_is_stored_before_the_upload_holds_data() -> None:
    b = bench(settings=config(flush_size=1000, part_size=500))
    unnoted = []

    def look(request: LoggedRequest) -> None:
        if request.operation == "UploadPart" and request.upload_id not in b.harness.log.noted.get(TP, ()):
            unnoted.append(request)

    b.s3.plan = look
    b.put(100)
    b.harness.revoke()

    assert "UploadPart" in b.s3.operations()
    assert unnoted == []


def test_closing_commit_prepares_all_partitions_in_one_write() -> None:
    # Storing a token is a write to the store.
    b = bench(TP, OTHER, flush_size=10)
    b.put(45)
    b.put(45, OTHER)
    writes: list[int] = []
    prepare = b.harness.log.prepare

    def counted(tokens: Mapping[TopicPartition, Sequence[Token]]) -> None:
        writes.append(len(tokens))
        prepare(tokens)

    b.harness.log.prepare = counted  # type: ignore[method-assign] # looks on
    b.harness.revoke()

    assert writes == [2]
    assert len(b.visible()) == 10


def test_schedule_ends_a_file_without_a_new_record() -> None:
    b = bench(flush_size=1000, rotate_schedule_interval_ms=60_000)
    b.put(10)
    b.harness.commit()
    assert b.committed() is None

    b.clock.now += 60
    b.harness.commit()
    assert b.committed() == 10
    assert b.offsets() == list(range(10))


def test_visible_files_and_bytes_are_counted() -> None:
    b = bench(flush_size=10)
    b.put(25)
    b.harness.revoke()

    sizes = [len(b.s3.data(key)) for key in b.visible()]
    assert b.harness.outcome(TP).counts == {"files": 3, "bytes": sum(sizes)}


def test_published_files_are_not_committed_again() -> None:
    b = bench(flush_size=10)
    b.put(10)
    b.harness.commit()
    b.put(10)
    b.harness.commit()

    assert b.s3.operations().count("CompleteMultipartUpload") == 2
    assert b.offsets() == list(range(20))


# -- crashes -------------------------------------------------------------------------------------


def restarted(b: Bench) -> None:
    b.harness.crash()
    b.harness.start()
    b.harness.assign(TP)


def test_a_crash_before_the_commit_leaves_no_visible_file() -> None:
    b = bench(settings=config(flush_size=1000, part_size=500))
    b.put(100)
    restarted(b)

    assert b.s3.uploads == {}
    assert b.harness.position(TP) == 0
    b.put(100)
    b.harness.revoke()
    assert b.offsets() == list(range(100))


def test_files_committed_before_a_crash_are_published_by_the_next_owner() -> None:
    b = bench(flush_size=10)
    b.s3.fail_next("CompleteMultipartUpload", KeyboardInterrupt())
    b.put(10)
    with pytest.raises(KeyboardInterrupt):
        b.harness.commit()
    assert (b.committed(), b.offsets()) == (10, [])

    restarted(b)

    assert b.offsets() == list(range(10))
    assert b.harness.position(TP) == 10


@pytest.mark.parametrize("forgets", [False, True])
def test_publishing_again_after_a_crash_changes_nothing(*, forgets: bool) -> None:
    # In one of the cases, S3 has forgotten the upload.
    b = bench(flush_size=10, s3=FakeS3(forgets_completed=forgets))
    b.s3.fail_next("CompleteMultipartUpload", KeyboardInterrupt(), after_effect=True)
    b.put(10)
    with pytest.raises(KeyboardInterrupt):
        b.harness.commit()

    restarted(b)

    assert b.offsets() == list(range(10))
    assert b.harness.outcome(TP).failure is None


def test_fencing_aborts_no_upload() -> None:
    # The last commit may have taken effect, so the successor decides what to discard.
    b = bench(settings=config(flush_size=100, part_size=500))
    b.put(100)
    b.harness.fence()
    with pytest.raises(FencedException):
        b.put(500)

    assert "AbortMultipartUpload" not in b.s3.operations()
    assert b.offsets() == []


def test_discard_waits_for_parts_in_flight(late: Late) -> None:
    # A part that arrived after the abort would be stored, and cost money, until someone deletes it.
    b = bench(settings=config(flush_size=1000, part_size=500), beside=late)
    b.put(15)
    assert late.waiting
    (noted,) = cast("S3ArchiverTask", b.harness.task)._writers[TP]._unfinished()

    b.harness.task.discard(TP, [noted.token])

    assert late.waiting == []
    assert b.s3.uploads == {}


def test_close_does_not_wait_for_parts_in_flight(late: Late) -> None:
    # A fenced task must end at once: the next owner aborts the part.
    b = bench(settings=config(flush_size=1000, part_size=500), beside=late)
    b.put(15)
    b.harness.task.close([TP])

    assert late.waiting
    late.run_all()
    restarted(b)
    assert b.s3.uploads == {}


def test_rebalance_closes_lost_partitions_without_requests() -> None:
    b = bench(settings=config(flush_size=1000, part_size=500))
    b.put(100)
    before = len(b.s3.log)
    b.harness.lose()

    assert len(b.s3.log) == before
    assert b.committed() is None


# -- S3 in trouble -------------------------------------------------------------------------------


def waits(b: Bench) -> bool:
    return b.harness.worker.pending


def test_an_s3_failure_of_one_partition_does_not_affect_others() -> None:
    b = bench(TP, OTHER, s3=failing("UploadPart", denied()), flush_size=100)
    b.put(60)
    b.put(60, OTHER)
    b.harness.revoke()

    assert b.committed(OTHER) == 60
    assert b.offsets(OTHER) == list(range(60))
    assert b.committed(TP) is None
    failure = b.harness.outcome(TP).failure
    assert failure is not None
    assert "AccessDenied" in failure.message


def test_backoff_retries_a_closing_commit_within_the_deadline() -> None:
    b = bench(flush_size=100)
    b.put(60)
    b.s3.fail_next("UploadPart", slow_down(), times=3)
    b.harness.revoke(timeout=60)

    assert b.committed() == 60
    assert b.clock.slept == [0.2, 0.4, 0.8]


def test_graceful_closing_commit_leaves_half_of_the_deadline_to_the_store() -> None:
    # While S3 is unavailable, the other partitions must be committed before the deadline.
    b = bench(TP, OTHER, s3=failing("UploadPart", slow_down()), flush_size=100)
    b.put(60)
    b.put(60, OTHER)
    b.harness.revoke(timeout=20)

    assert sum(b.clock.slept) <= 10
    assert b.committed(OTHER) == 60
    failure = b.harness.outcome(TP).failure
    assert failure is not None
    assert "SlowDown" in failure.message


def test_sent_files_are_committed_if_a_later_one_fails() -> None:
    b = bench(flush_size=100, settings=config(flush_size=100, part_size=1500))
    b.put(100)
    b.s3.plan = lambda request: Fault(denied()) if "0000000100" in request.key else None
    b.put(60)
    b.harness.revoke()

    assert b.committed() == 100
    assert b.offsets() == list(range(100))
    assert b.harness.outcome(TP).failure is not None


def test_transient_part_failure_redelivers_only_its_batch() -> None:
    b = bench(settings=config(flush_size=1000, part_size=500))
    b.s3.fail_next("UploadPart", no_response(), times=4)
    b.put(100)
    b.put(100)
    assert waits(b)
    for _ in range(10):
        b.harness.advance(60)
    assert not waits(b)
    b.harness.revoke()

    assert b.offsets() == list(range(200))


def test_closing_commit_excludes_a_batch_that_awaits_redelivery() -> None:
    b = bench(settings=config(flush_size=1000, part_size=500))
    b.s3.fail_next("UploadPart", slow_down(), times=2)
    b.put(100)
    b.put(100)
    assert waits(b)
    b.harness.revoke(timeout=60)

    assert b.committed() == 100
    assert b.offsets() == list(range(100))


def test_a_permanently_failed_put_keeps_the_files_before_it() -> None:
    b = bench(flush_size=100, settings=config(flush_size=100, part_size=1500))
    b.put(100)
    b.s3.plan = lambda request: Fault(denied()) if "0000000100" in request.key else None
    b.put(700)

    assert b.committed() == 100
    assert b.offsets() == list(range(100))
    assert b.s3.uploads == {}


def test_backoff_is_skipped_by_the_closing_commit_after_put_has_spent_it() -> None:
    # errors.retry.timeout is used up: another minute would only delay the other partitions.
    b = bench(s3=failing("UploadPart", slow_down()), settings=config(flush_size=1000, part_size=500))
    b.put(100)
    b.put(100)
    for _ in range(10):
        b.harness.advance(60)

    assert b.harness.outcome(TP).failure is not None
    assert b.clock.slept == []


def test_every_upload_of_a_failed_partition_is_aborted() -> None:
    b = bench(s3=failing("UploadPart", denied()), flush_size=10)
    b.put(55)
    b.harness.revoke()

    assert b.s3.uploads == {}


# -- publishing ----------------------------------------------------------------------------------


def test_backoff_retries_publication_until_s3_recovers() -> None:
    b = bench(flush_size=10)
    b.s3.fail_next("CompleteMultipartUpload", slow_down(), times=3)
    b.put(10)
    b.harness.commit()

    assert b.offsets() == list(range(10))


def test_foreign_object_stops_the_partition() -> None:
    b = bench(flush_size=10)
    b.s3.objects[Location("bucket", FIRST_FILE)] = FakeObject(b"theirs", {}, "")
    b.put(10)
    b.harness.commit()

    failure = b.harness.outcome(TP).failure
    assert failure is not None
    assert failure.kind == ForeignObject.__name__
    assert b.s3.data(FIRST_FILE) == b"theirs"
    assert [token.id for token in b.harness.committed[TP].tokens] == ["upload-000001"]


def test_an_expired_upload_withdraws_its_commit_and_is_archived_again() -> None:
    b = bench(flush_size=10)
    b.put(10)
    b.harness.commit()
    b.s3.plan = lambda request: (
        b.s3.uploads.clear() if request.operation == "CompleteMultipartUpload" else None
    )
    b.put(25)
    b.harness.commit()

    outcome = b.harness.outcome(TP)
    assert outcome.failure is not None
    assert outcome.failure.at_once
    assert "[10, 20)" in outcome.failure.message
    assert (outcome.committed, outcome.counts["withdrawn"]) == (10, 1)
    assert b.harness.committed[TP].tokens == ()
    b.s3.plan = None
    b.harness.crash()
    b.harness.start()
    b.harness.assign(TP)
    b.put(25)
    b.harness.revoke()
    assert b.offsets() == list(range(35))
    assert b.s3.uploads_with_data() == []


def test_withdrawal_begins_at_the_expired_file() -> None:
    b = bench(flush_size=10)
    gone = []

    def lose_the_second(request: LoggedRequest) -> None:
        if request.operation == "CompleteMultipartUpload" and request.upload_id == "upload-000002":
            gone.append(b.s3.uploads.pop("upload-000002", None))

    b.s3.plan = lose_the_second
    b.put(20)
    b.harness.commit()

    assert gone
    assert b.offsets() == list(range(10))
    committed = b.harness.committed[TP]
    assert (committed.offset, committed.tokens) == (10, ())
    assert Archived.of(committed) == Archived(files=1, records=10, end=10)


def test_tokens_of_another_endpoint_are_published_at_that_endpoint() -> None:
    # The configuration was changed before the commit was published.
    old, new = FakeS3(endpoint="http://old"), FakeS3(endpoint="http://new")
    b = bench(flush_size=10, s3=old)
    old.fail_next("CompleteMultipartUpload", KeyboardInterrupt())
    b.put(10)
    with pytest.raises(KeyboardInterrupt):
        b.harness.commit()

    b.harness._make = lambda: S3ArchiverTask(
        connect=lambda _config, endpoint=None: old if endpoint == "http://old" else new, beside=at_once
    )
    restarted(b)
    b.put(10)
    b.harness.revoke()

    assert old.visible() == [FIRST_FILE]
    assert [key[-15:-5] for key in new.visible()] == ["0000000010"]


def test_objects_are_tagged_after_publication() -> None:
    fields = {"s3.object.tagging": "true", "s3.object.tagging.key.value.pairs": "team:data"}
    b = bench(settings=config(fields))
    b.put(30)
    b.harness.revoke()

    (made,) = b.s3.objects.values()
    assert made.tags == {"startOffset": "0", "endOffset": "29", "recordCount": "30", "team": "data"}


@pytest.mark.parametrize(("behaviour", "fails"), [("ignore", False), ("fail", True)])
def test_tagging_errors_fail_only_where_configured(*, behaviour: str, fails: bool) -> None:
    fields = {"s3.object.tagging": "true", "s3.object.behavior.on.tagging.error": behaviour}
    b = bench(settings=config(fields), s3=failing("PutObjectTagging", denied()))
    b.put(30)
    b.harness.revoke()

    assert b.offsets() == list(range(30))
    assert (b.harness.outcome(TP).failure is not None) == fails


def test_stop_and_close_make_no_requests() -> None:
    b = bench(settings=config(flush_size=1000, part_size=500))
    b.put(100)
    before = len(b.s3.log)
    b.harness.task.close([TP])
    b.harness.task.stop()

    assert len(b.s3.log) == before


def test_commit_metadata_states_files_records_and_end() -> None:
    b = bench(flush_size=100)
    b.put(250)
    b.harness.revoke()

    assert b.harness.committed[TP].metadata == (
        '{"files": 3, "records": 250, "end": 250, "where": "s3://bucket/topics"}'
    )


def test_offset_set_by_an_operator_begins_a_chain() -> None:
    b = bench(flush_size=100)
    b.harness.log = type(b.harness.log)({TP: OffsetAndMetadata(500)})
    b.harness._build()
    b.harness.start()
    b.harness.assign(TP)
    b.put(10)
    b.harness.revoke(reason=ClosingReason.STOP)

    assert b.offsets() == list(range(500, 510))


def test_s3_errors_are_sdk_exceptions() -> None:
    assert isinstance(slow_down(), S3TransientError)
    assert isinstance(denied(), S3Error)
