from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinksdk import ConnectException, Token
from sinksdk.connectors.s3_archiver.s3.client import Location
from sinksdk.connectors.s3_archiver.s3.errors import S3Error, S3TransientError
from sinksdk.connectors.s3_archiver.s3.part import PartPool
from sinksdk.connectors.s3_archiver.s3.publisher import ForeignObject, UploadExpired, abort, complete
from sinksdk.connectors.s3_archiver.s3.requests import Beside, in_a_thread
from sinksdk.connectors.s3_archiver.s3.upload import Upload
from tests.s3_archiver.beside import Late, at_once
from tests.s3_archiver.fake_s3 import FakeObject, FakeS3, LoggedRequest, denied, no_response, slow_down

WHERE = Location("bucket", "topics/orders/file.avro")


def begun(
    s3: FakeS3,
    capacity: int = 100,
    nonce: str = "mine",
    beside: Beside = at_once,
    pool: PartPool | None = None,
) -> Upload:
    upload = Upload(s3, WHERE, pool or PartPool(capacity, beside), nonce, {"sinksdk-connector": "archive"})
    upload.create()
    upload.is_prepared = True
    return upload


def finished(s3: FakeS3, data: bytes = b"data", nonce: str = "mine") -> Token:
    upload = begun(s3, nonce=nonce)
    upload.write(data)
    upload.finish()
    return Token(upload.token.id, {**upload.token.data, "start": 0, "end": 10, "records": 10})


def test_nothing_is_visible_before_it_is_completed(s3: FakeS3) -> None:
    token = finished(s3)

    assert s3.objects == {}
    complete(s3, token)
    assert s3.data(WHERE.key) == b"data"
    assert s3.uploads == {}


def test_a_file_smaller_than_a_part_makes_no_request_before_it_is_finished(s3: FakeS3) -> None:
    upload = Upload(s3, WHERE, PartPool(100), "mine", {})
    upload.write(b"x" * 100)

    assert s3.log == []
    assert not upload.has_full_part
    upload.write(b"x")
    assert upload.has_full_part


def test_data_is_never_sent_before_the_upload_is_prepared(s3: FakeS3) -> None:
    # If a crash leaves an upload without a stored token, it must be empty.
    upload = Upload(s3, WHERE, PartPool(100), "mine", {})
    upload.write(b"data")
    upload.create()

    with pytest.raises(ValueError, match="not prepared"):
        upload.finish()
    assert s3.uploads_with_data() == []


def test_lost_create_response_leaves_an_empty_upload(s3: FakeS3) -> None:
    # The second attempt has prepared and filled its upload.
    s3.fail_next("CreateMultipartUpload", no_response(), after_effect=True)
    upload = Upload(s3, WHERE, PartPool(100), "mine", {})

    with pytest.raises(S3TransientError):
        upload.create()
    upload.create()
    upload.is_prepared = True
    upload.write(b"data")
    upload.finish()

    assert len(s3.uploads) == 2
    assert [found.size for found in s3.uploads_with_data()] == [4]


def test_all_parts_except_the_last_have_equal_size(s3: FakeS3) -> None:
    # Some stores require parts of one size; S3 requires 5 MiB for all parts but the last.
    upload = begun(s3, capacity=10)
    upload.write(b"x" * 25)
    upload.finish()

    (sent,) = s3.uploads.values()
    assert [len(sent.parts[number]) for number in (1, 2, 3)] == [10, 10, 5]


@settings(deadline=None)  # threads that send parts may wait for a processor
@given(
    st.lists(st.binary(max_size=40), max_size=12),
    st.integers(1, 25),
    st.lists(st.sampled_from(["before", "after", "ok"]), max_size=12),
    st.sampled_from([at_once, Late, in_a_thread]),
)
def test_the_object_equals_the_written_bytes_despite_retries(
    chunks: list[bytes], capacity: int, outcomes: list[str], way: Any
) -> None:
    s3, plan = FakeS3(), iter(outcomes)
    beside = Late() if way is Late else way

    def troubled(action: Any) -> None:
        # The error of a concurrent request is raised first, and then the request is repeated.
        for _ in range(2 * len(outcomes) + 2):
            fate = next(plan, "ok")
            if fate != "ok":
                s3.fail_next("UploadPart", no_response(), after_effect=fate == "after")
            try:
                action()
            except S3TransientError:
                continue
            return

    upload = begun(s3, capacity, beside=beside)
    for chunk in chunks:
        upload.write(chunk)
        if upload.has_full_part:
            troubled(upload.send)
    upload.write(b"!")
    troubled(upload.finish)
    complete(s3, upload.token)

    assert s3.data(WHERE.key) == b"".join(chunks) + b"!"
    assert upload.token.data["size"] == sum(map(len, chunks)) + 1


def test_the_caller_may_reuse_its_buffer_after_write() -> None:
    # An encoder reuses its buffer.
    s3, scratch = FakeS3(), bytearray(b"a" * 30)
    upload = begun(s3, capacity=10)
    upload.write(scratch)
    scratch[:] = b"b" * 30
    upload.write(scratch)
    upload.finish()
    complete(s3, upload.token)

    assert s3.data(WHERE.key) == b"a" * 30 + b"b" * 30


def test_finishing_twice_sends_the_last_part_once(s3: FakeS3) -> None:
    upload = begun(s3)
    upload.write(b"data")
    upload.finish()
    upload.finish()

    assert s3.operations().count("UploadPart") == 1


def test_an_upload_reaches_its_limit_before_s3s_part_limit() -> None:
    # The upload has 10,000 parts.
    upload = Upload(FakeS3(), WHERE, PartPool(1), "mine", {})
    upload.write(b"x" * 9_899)
    assert not upload.is_at_limit
    upload.write(b"x")
    assert upload.is_at_limit


def test_the_token_contains_location_and_parts() -> None:
    s3 = FakeS3(endpoint="http://127.0.0.1:9000")
    token = finished(s3)

    assert token.data["endpoint"] == "http://127.0.0.1:9000"
    assert (token.data["bucket"], token.data["key"]) == WHERE
    assert len(token.data["parts"]) == 1


# -- parts on their way --------------------------------------------------------------------------


def test_next_part_is_filled_while_one_is_in_flight(s3: FakeS3, late: Late) -> None:
    upload = begun(s3, capacity=10, beside=late)
    upload.write(b"a" * 15)
    upload.send()
    upload.write(b"b" * 5)

    assert (late.begun, s3.operations().count("UploadPart")) == (1, 0)
    upload.write(b"c" * 5)
    upload.send()
    assert (late.begun, s3.operations().count("UploadPart")) == (2, 1)


def test_late_parts_keep_their_numbers_and_checksums(s3: FakeS3, late: Late) -> None:
    upload = begun(s3, capacity=10, beside=late)
    for letter in (b"a", b"b", b"c", b"d"):
        upload.write(letter * 9)
        upload.send()
    upload.finish()
    complete(s3, upload.token)

    assert s3.data(WHERE.key) == b"".join(letter * 9 for letter in (b"a", b"b", b"c", b"d"))
    assert [request.part for request in s3.log if request.operation == "UploadPart"] == [1, 2, 3, 4]


def test_finish_waits_for_the_part_in_flight(s3: FakeS3, late: Late) -> None:
    upload = begun(s3, capacity=10, beside=late)
    upload.write(b"a" * 15)
    upload.send()
    assert late.waiting

    upload.finish()

    assert late.waiting == []
    assert [len(part) for part in next(iter(s3.uploads.values())).parts.values()] == [10, 5]


def test_a_file_of_one_part_is_sent_without_a_thread(s3: FakeS3, late: Late) -> None:
    upload = begun(s3, capacity=10, beside=late)
    upload.write(b"a" * 10)
    upload.finish()

    assert late.begun == 0


def test_failed_part_is_raised_once_then_sent_again(s3: FakeS3, late: Late) -> None:
    upload = begun(s3, capacity=10, beside=late)
    s3.fail_next("UploadPart", slow_down(), times=2)
    upload.write(b"a" * 15)
    upload.send()
    assert not upload.has_failed_part
    late.run_all()
    assert upload.has_failed_part

    with pytest.raises(S3TransientError):
        upload.send()
    assert s3.operations().count("UploadPart") == 1
    with pytest.raises(S3TransientError):
        upload.send()
    assert s3.operations().count("UploadPart") == 2
    upload.send()
    assert not upload.has_failed_part
    upload.finish()
    complete(s3, upload.token)
    assert s3.data(WHERE.key) == b"a" * 15
    assert late.begun == 1


def test_finish_raises_the_error_of_the_part_in_flight() -> None:
    for error, kind in ((slow_down(), S3TransientError), (denied(), S3Error)):
        s3, late = FakeS3(), Late()
        upload = begun(s3, capacity=10, beside=late)
        s3.fail_next("UploadPart", error)
        upload.write(b"a" * 15)
        upload.send()

        with pytest.raises(kind):
            upload.finish()
        assert not upload.is_finished
        assert "parts" not in upload.token.data


def test_any_error_in_flight_is_raised_by_finish(s3: FakeS3, late: Late) -> None:
    # A part that S3 does not have must never count.
    upload = begun(s3, capacity=10, beside=late)
    s3.fail_next("UploadPart", KeyboardInterrupt())
    upload.write(b"a" * 15)
    upload.send()
    late.run_all()

    with pytest.raises(KeyboardInterrupt):
        upload.finish()


def test_buffer_in_flight_is_not_reused(s3: FakeS3, late: Late) -> None:
    pool = PartPool(10, late)
    first = begun(s3, pool=pool)
    first.write(b"a" * 15)
    first.send()
    for number in range(6):
        other = begun(s3, nonce=f"other {number}", pool=pool)
        other.write(b"z" * 25)
        other.send()
        if number == 2:
            first.abandon()
    late.run_all()

    assert next(iter(s3.uploads.values())).parts == {1: b"a" * 10}


def test_parts_in_flight_are_limited_per_task(s3: FakeS3, late: Late) -> None:
    # Each part in flight takes memory.
    pool = PartPool(10, late, in_flight=2)
    uploads = [begun(s3, nonce=str(n), pool=pool) for n in range(4)]
    for upload in uploads:
        upload.write(b"a" * 15)
        upload.send()

    assert (len(late.waiting), s3.operations().count("UploadPart")) == (2, 2)
    for upload in uploads:
        upload.finish()
    assert [found.size for found in s3.uploads.values()] == [15] * 4


def test_a_finished_part_frees_its_slot_while_its_file_is_idle(s3: FakeS3, late: Late) -> None:
    pool = PartPool(10, late, in_flight=1)
    quiet, busy = (begun(s3, nonce=nonce, pool=pool) for nonce in ("quiet", "busy"))
    quiet.write(b"a" * 15)
    quiet.send()
    late.run_all()
    busy.write(b"b" * 15)
    busy.send()

    assert late.begun == 2
    busy.finish()
    quiet.finish()
    assert [found.parts for found in s3.uploads.values()] == [
        {1: b"a" * 10, 2: b"a" * 5},
        {1: b"b" * 10, 2: b"b" * 5},
    ]


def test_failed_part_counts_as_in_flight_until_sent_or_abandoned(s3: FakeS3, late: Late) -> None:
    # A failed part keeps its buffer.
    pool = PartPool(10, late, in_flight=1)
    failed, other = (begun(s3, nonce=nonce, pool=pool) for nonce in ("failed", "other"))
    s3.fail_next("UploadPart", slow_down())
    failed.write(b"a" * 15)
    failed.send()
    late.run_all()
    other.write(b"b" * 15)
    other.send()
    assert late.begun == 1

    with pytest.raises(S3TransientError):
        failed.check()
    failed.abandon()
    other.write(b"b" * 10)
    other.send()
    assert late.begun == 2


def test_parts_are_sent_in_daemon_threads() -> None:
    s3, may_go = FakeS3(), threading.Event()
    threads: list[threading.Thread] = []

    def held(request: LoggedRequest) -> None:
        if request.operation == "UploadPart" and request.part == 1:
            threads.append(threading.current_thread())
            assert may_go.wait(60)

    s3.plan = held
    upload = begun(s3, capacity=10, beside=in_a_thread)
    before = set(threading.enumerate())
    upload.write(b"a" * 10)
    assert not set(threading.enumerate()) - before
    upload.write(b"a" * 5)
    upload.send()
    (sending,) = set(threading.enumerate()) - before
    may_go.set()
    upload.finish()

    assert not sending.is_alive()
    assert threads == [sending]
    assert [thread.daemon for thread in threads] == [True]
    assert threads[0] is not threading.current_thread()


# -- publishing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("forgets", [False, True], ids=["while S3 remembers", "when S3 has forgotten"])
def test_completing_again_changes_nothing(*, forgets: bool) -> None:
    s3 = FakeS3(forgets_completed=forgets)
    token = finished(s3)

    complete(s3, token)
    complete(s3, token)

    assert s3.data(WHERE.key) == b"data"


@pytest.mark.parametrize("forgets", [False, True])
def test_a_lost_response_to_complete_is_detected(*, forgets: bool) -> None:
    # The nonce shows that the object is that of this upload.
    s3 = FakeS3(forgets_completed=forgets)
    token = finished(s3)
    s3.fail_next("CompleteMultipartUpload", no_response(), after_effect=True)

    with pytest.raises(S3TransientError):
        complete(s3, token)
    complete(s3, token)

    assert s3.data(WHERE.key) == b"data"


def test_a_412_for_the_uploads_own_object_is_success() -> None:
    # boto3 repeats a Complete whose response was lost.
    s3 = FakeS3(forgets_completed=True)
    token = finished(s3)
    complete(s3, token)
    s3.fail_next("CompleteMultipartUpload", S3Error("exists", "PreconditionFailed"))

    complete(s3, token)


def test_another_writers_object_is_never_overwritten(s3: FakeS3) -> None:
    theirs = finished(s3, b"theirs", nonce="theirs")
    mine = finished(s3, b"mine", nonce="mine")
    complete(s3, theirs)

    with pytest.raises(ForeignObject, match=r"nonce theirs.*nonce mine"):
        complete(s3, mine)
    assert s3.data(WHERE.key) == b"theirs"


def test_object_without_a_nonce_is_foreign(s3: FakeS3) -> None:
    # Another writer may have copied the object to this key.
    token = finished(s3)
    s3.objects[WHERE] = FakeObject(b"by hand", {}, "")

    with pytest.raises(ForeignObject, match="not written by this archiver"):
        complete(s3, token)


def test_an_expired_upload_is_reported_with_its_records_and_a_remedy(s3: FakeS3) -> None:
    token = finished(s3)
    s3.uploads.clear()

    with pytest.raises(UploadExpired) as caught:
        complete(s3, token)

    assert caught.value.token == token
    for part in (token.id, WHERE.key, "[0, 10)", "read from the source again", "lifecycle"):
        assert part in str(caught.value)
    assert isinstance(caught.value, ConnectException)
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own bytes
    assert copy.token == token


def test_object_deleted_after_a_412_is_transient(s3: FakeS3) -> None:
    # S3 responds with 412, and then the object is gone: the next attempt decides.
    token = finished(s3)
    s3.fail_next("CompleteMultipartUpload", S3Error("exists", "PreconditionFailed"))

    with pytest.raises(S3TransientError):
        complete(s3, token)
    complete(s3, token)
    assert s3.data(WHERE.key) == b"data"


def test_conflict_is_transient(s3: FakeS3) -> None:
    token = finished(s3)
    s3.fail_next("CompleteMultipartUpload", S3TransientError("conflict", "ConditionalRequestConflict"))

    with pytest.raises(S3TransientError):
        complete(s3, token)
    complete(s3, token)
    assert s3.data(WHERE.key) == b"data"


def test_endpoint_without_conditions_is_checked_before_completing() -> None:
    # The endpoint responds with 501 to If-None-Match.
    s3 = FakeS3(knows_conditions=False)
    complete(s3, finished(s3, b"data", nonce="mine"))
    assert s3.data(WHERE.key) == b"data"

    with pytest.raises(ForeignObject):
        complete(s3, finished(s3, b"other", nonce="other"))
    assert s3.data(WHERE.key) == b"data"


def test_endpoint_without_conditions_recognises_its_own_object() -> None:
    s3 = FakeS3(knows_conditions=False, forgets_completed=True)
    token = finished(s3)
    complete(s3, token)
    complete(s3, token)


def test_a_refused_completion_is_not_retriable(s3: FakeS3) -> None:
    token = finished(s3)
    s3.fail_next("CompleteMultipartUpload", denied())

    with pytest.raises(S3Error, match="AccessDenied"):
        complete(s3, token)
    assert s3.objects == {}


# -- discarding ----------------------------------------------------------------------------------


def test_aborting_frees_the_data_and_may_be_repeated(s3: FakeS3) -> None:
    token = finished(s3)

    abort(s3, token)
    abort(s3, token)

    assert s3.uploads == {}


def test_a_part_that_arrives_while_aborting_is_freed_too(s3: FakeS3) -> None:
    # A zombie's part may arrive after the first abort, so the abort is repeated until S3 has forgotten the
    # upload.
    token = finished(s3)
    late, aborts = s3.uploads[token.id], 0

    def part_arrives_after_the_first_abort(request: LoggedRequest) -> None:
        nonlocal aborts
        aborts += 1
        if aborts == 2:
            s3.uploads[token.id] = late

    s3.plan = part_arrives_after_the_first_abort
    abort(s3, token)

    assert s3.uploads == {}
    assert aborts == 3


def test_abort_needs_only_the_stored_token(s3: FakeS3) -> None:
    upload = begun(s3)

    abort(s3, upload.token)

    assert s3.uploads == {}


def test_a_throttled_abort_is_retriable(s3: FakeS3) -> None:
    token = finished(s3)
    s3.fail_next("AbortMultipartUpload", slow_down())

    with pytest.raises(S3TransientError):
        abort(s3, token)
