from __future__ import annotations

import logging
import zlib
from collections.abc import Callable
from functools import partial

import pytest

from sinksdk import ConfigException, OffsetAndMetadata, SinkRecord, SinkRecords, Token, TopicPartition
from sinksdk.connector import ConnectorContext, ConnectorIdentity
from sinksdk.connectors.s3_archiver import S3ArchiverConnector
from sinksdk.connectors.s3_archiver.archive.layout import Layout
from sinksdk.connectors.s3_archiver.files.settings import Limits
from sinksdk.connectors.s3_archiver.s3 import crc
from sinksdk.connectors.s3_archiver.s3.client import Abilities, Checksum, Location
from sinksdk.connectors.s3_archiver.s3.endpoint import Retries, find_abilities, sweep
from sinksdk.connectors.s3_archiver.s3.errors import Request, S3Error, S3TransientError, error_of
from tests.s3_archiver.fake_s3 import FakeS3, Fault, LoggedRequest, denied, no_response, slow_down
from tests.s3_archiver.support import TP, ManualClock, Turns, bench, config, records

FILE = Location("bucket", "topics/orders/partition=0/orders+0+0000000000.avro")
PROBE = Location("bucket", "topics/_sinksdk/probes/first")
BYTES = {"format.class": "ByteArrayFormat", "format.bytearray.separator": "", "value.converter": "bytes"}


def endpoints() -> list[tuple[FakeS3, Abilities]]:
    return [
        (
            FakeS3(best_checksum=best, knows_conditions=knows, ignores_conditions=ignores),
            Abilities(best, knows and not ignores),
        )
        for best in Checksum
        for knows, ignores in ((True, False), (False, False), (True, True))
    ]


# -- checksums and conditions ------------------------------------------------------------------------


@pytest.mark.parametrize(("s3", "expected"), endpoints())
def test_the_start_finds_the_best_checksum_and_whether_conditions_are_honoured(
    s3: FakeS3, expected: Abilities
) -> None:
    assert find_abilities(s3, config(), Layout(), "first") == expected
    assert s3.visible() == []
    assert s3.uploads == {}


@pytest.mark.parametrize(("s3", "expected"), endpoints())
def test_files_become_visible_with_each_checksum(s3: FakeS3, expected: Abilities) -> None:
    keys = {
        "s3.checksum": expected.checksum.value,
        "s3.conditional.writes": str(expected.has_conditions).lower(),
    }
    made = bench(
        s3=s3,
        settings=config(keys, part_size=300),
        grouping={"folders": Turns(2), "limits": Limits(records=6)},
    )
    made.put(6, size=200)
    made.harness.commit()
    assert (made.committed(), sorted(made.offsets())) == (6, list(range(6)))
    taken = Location("bucket", "topics/orders/partition=0/turn=0/orders+0+0000000006.avro")
    s3.put(taken, b"somebody else's")

    made.put(6)
    made.harness.commit()

    assert s3.data(taken.key) == b"somebody else's"
    assert "the key holds another object" in str(made.harness.worker.outcomes()[0].failure)


def test_task_configs_contain_the_detected_abilities() -> None:
    s3 = FakeS3(best_checksum=Checksum.COMPOSITE, ignores_conditions=True)
    made = connector(s3)
    made.start(config())

    assert made.task_configs(2) == 2 * [{"s3.checksum": "composite", "s3.conditional.writes": "false"}]


def test_task_configs_are_empty_for_an_endpoint_with_all_abilities(s3: FakeS3) -> None:
    made = connector(s3)
    made.start(config())

    assert made.task_configs(2) == [{}, {}]


def test_a_refused_configured_checksum_is_reported_with_its_key() -> None:
    s3 = FakeS3(best_checksum=Checksum.COMPOSITE)

    with pytest.raises(
        ConfigException, match=r"with 's3.checksum' = full: .*BadRequest.*set 's3.checksum' to auto"
    ):
        connector(s3).start(config({"s3.checksum": "full"}))

    assert s3.uploads == {}


def test_refusal_names_all_checksums_that_were_tried(s3: FakeS3) -> None:
    # The refusal may be caused by another key.
    refused = error_of(Request("CreateMultipartUpload", *PROBE, "memory:"), "NotImplemented", "no", 501)
    s3.plan = lambda request: Fault(refused) if request.operation == "CreateMultipartUpload" else None

    with pytest.raises(
        ConfigException,
        match=r"with 's3.ssea.name' = aws:kms: .*NotImplemented.*tried: full, composite, none",
    ):
        connector(s3).start(config({"s3.ssea.name": "aws:kms"}))


def test_a_checksum_that_the_endpoint_computes_differently_is_refused(s3: FakeS3) -> None:
    # Other requests treat BadDigest as transient: a part was damaged in transit.
    refused = error_of(Request("CompleteMultipartUpload", *PROBE, "memory:"), "BadDigest", "no", 400)
    s3.fail_next("CompleteMultipartUpload", refused)

    assert find_abilities(s3, config(), Layout(), "first") == Abilities(Checksum.COMPOSITE)
    assert s3.uploads == {}


@pytest.mark.parametrize("code", ["AccessDenied", "InvalidStorageClass", "KMS.NotFoundException"])
def test_a_refusal_with_another_cause_is_not_reported_as_a_missing_checksum(code: str, s3: FakeS3) -> None:
    refused = error_of(Request("CreateMultipartUpload", *PROBE, "memory:"), code, "no", 400)
    s3.plan = lambda request: Fault(refused) if request.operation == "CreateMultipartUpload" else None

    with pytest.raises(ConfigException, match=code):
        find_abilities(s3, config(), Layout(), "first")
    assert s3.operations().count("CreateMultipartUpload") == 1


def test_starts_without_delete_permission_leave_one_small_object(s3: FakeS3) -> None:
    # s3:DeleteObject is not among the required permissions.
    s3.plan = lambda request: Fault(denied()) if request.operation == "DeleteObject" else None

    for _ in range(3):
        assert find_abilities(s3, config(), Layout(), "first") == Abilities()

    assert s3.visible() == [PROBE.key]
    assert s3.uploads == {}


@pytest.mark.parametrize("request_number", range(9))
def test_backoff_of_a_start_repeats_lost_responses(request_number: int) -> None:
    s3, waited = Clocked(), ManualClock()
    left = [request_number]

    def lose(_: LoggedRequest) -> Fault | None:
        left[0] -= 1
        return Fault(no_response(), after_effect=True) if left[0] == -1 else None

    s3.plan = lose

    assert find_abilities(s3, config(), Layout(), "first", retries(waited)) == Abilities()
    assert left[0] < 0
    assert s3.visible() == []
    sweep(s3, config(), Layout(), ["orders"], claimed=s3.now + 60, named=())
    assert s3.uploads == {}


@pytest.mark.parametrize(
    "operation", ["CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload", "DeleteObject"]
)
@pytest.mark.parametrize("failure", [slow_down(), no_response()])
def test_backoff_of_a_start_repeats_transient_failures(operation: str, failure: BaseException) -> None:
    s3, waited = FakeS3(), ManualClock()
    s3.fail_next(operation, failure, times=3)

    assert find_abilities(s3, config(), Layout(), "first", retries(waited)) == Abilities()
    assert waited.slept == [0.3, 0.6, 1.2]
    assert s3.uploads == {}
    assert s3.visible() == []


def test_backoff_of_a_start_ends_with_a_retriable_exception() -> None:
    s3, waited = FakeS3(), ManualClock()
    s3.fail_next("CompleteMultipartUpload", slow_down(), times=100)

    with pytest.raises(S3TransientError, match="SlowDown"):
        find_abilities(s3, config(), Layout(), "first", retries(waited))
    assert sum(waited.slept) <= 5
    assert s3.uploads == {}


@pytest.mark.parametrize("at", ["UploadPart", "CompleteMultipartUpload"])
@pytest.mark.parametrize("number", range(2))
def test_a_start_repeats_an_upload_aborted_by_another_start(at: str, number: int) -> None:
    # The cleanup of the other start took the upload for an abandoned one.
    s3, waited = FakeS3(), ManualClock()
    left = [number]

    def abort(request: LoggedRequest) -> Fault | None:
        if request.operation == at:
            left[0] -= 1
            if left[0] == -1:
                s3.uploads.clear()
        return None

    s3.plan = abort

    assert find_abilities(s3, config(), Layout(), "first", retries(waited)) == Abilities()
    assert waited.slept == [0.3]
    assert s3.visible() == []


@pytest.mark.parametrize(
    ("has_conditions", "made"), [(True, FakeS3), (False, partial(FakeS3, ignores_conditions=True))]
)
@pytest.mark.parametrize("request_number", range(14))
def test_concurrent_starts_detect_the_same_abilities_and_abort_no_upload(
    request_number: int, made: Callable[[], FakeS3], *, has_conditions: bool
) -> None:
    # The other start runs completely between two requests of this one.
    s3, waited, left = made(), ManualClock(), [request_number]
    found = []

    def begin_another(_: LoggedRequest) -> None:
        left[0] -= 1
        if left[0] == -1:
            found.append(find_abilities(s3, config(), Layout(), "first", retries(waited)))

    s3.plan = begin_another
    found.append(find_abilities(s3, config(), Layout(), "first", retries(waited)))

    assert set(found) == {Abilities(has_conditions=has_conditions)}
    assert waited.slept == []
    assert s3.uploads == {}
    assert s3.visible() == []


def retries(clock: ManualClock) -> Retries:
    return Retries(clock.sleep, clock)


# -- objects without bytes ---------------------------------------------------------------------------


@pytest.mark.parametrize("grouping", [None, {"folders": Turns(), "limits": Limits(records=4)}])
def test_a_file_of_empty_values_is_published(grouping: dict[str, object] | None) -> None:
    # A multipart upload needs at least one part; this one is empty.
    made = bench(settings=config({**BYTES, "flush.size": "4"}), grouping=grouping)
    values = [b"", b"x", b"", b"y"] if grouping else 4 * [b""]
    made.harness.deliver(
        TP, SinkRecords.of(TP, [SinkRecord(*TP, offset=n, value=value) for n, value in enumerate(values)])
    )
    made.harness.commit()

    assert made.committed() == 4
    assert sorted(made.s3.data(key) for key in made.visible()) == ([b"", b"xy"] if grouping else [b""])


def test_an_empty_file_of_a_crashed_task_is_published_by_the_next_owner() -> None:
    made = bench(
        settings=config({**BYTES, "flush.size": "4"}),
        grouping={"folders": Turns(), "limits": Limits(records=4)},
    )
    made.s3.plan = lambda request: (
        Fault(KeyboardInterrupt()) if request.operation == "CompleteMultipartUpload" else None
    )
    empty = SinkRecords.of(TP, [SinkRecord(*TP, offset=n, value=b"") for n in range(4)])
    made.harness.deliver(TP, empty)
    with pytest.raises(KeyboardInterrupt):
        made.harness.commit()
    assert made.visible() == []
    made.s3.plan = None
    made.harness.crash()
    made.harness.start()
    made.harness.assign(TP)

    assert len(made.visible()) == 2
    assert made.committed() == 4
    assert [outcome.failure for outcome in made.harness.worker.outcomes()] == [None]


# -- empty uploads that a crash has left -----------------------------------------------------------


class Clocked(FakeS3):
    now = 1_000.0

    def time(self) -> float:
        return self.now


class Committed(ConnectorContext):
    def __init__(self, *tokens: Token) -> None:
        self._tokens = tokens

    def committed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {TP: OffsetAndMetadata(1, "", self._tokens)}


def connector(s3: FakeS3, *committed: Token) -> S3ArchiverConnector:
    made = S3ArchiverConnector(connect=lambda _config, _endpoint=None: s3)
    made.identity = ConnectorIdentity("store-1", "archive", "first")
    made.context = Committed(*committed)
    return made


def test_empty_uploads_of_earlier_runs_are_aborted_when_the_connector_has_claimed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # A kill after CreateMultipartUpload, before the token is stored, leaves an upload that no token names.
    s3 = Clocked()
    for number in range(900):
        s3.create_upload(FILE._replace(key=FILE.key.replace("0000000000", f"{number:010d}")), {})
    s3.now += 60
    made = connector(s3)
    made.start(config())
    assert len(s3.uploads) == 900, "a predecessor may still commit, until this driver has claimed"

    with caplog.at_level(logging.INFO):
        made.subscribed(["orders"])

    assert s3.uploads == {}
    assert "connector archive: aborted 900 empty uploads of earlier runs" in caplog.text


def test_committed_uploads_and_uploads_of_successors_are_never_swept() -> None:
    s3 = Clocked()
    with_part, empty_part, committed = (s3.create_upload(FILE, {}) for _ in range(3))
    s3.upload_part(FILE, with_part, 1, b"data", crc.encode(zlib.crc32(b"data")))
    s3.upload_part(FILE, empty_part, 1, b"", "AAAAAA==")
    elsewhere = s3.create_upload(Location("bucket", "topics/ships/partition=0/ships+0+0000000000.avro"), {})
    not_ours = s3.create_upload(Location("bucket", "topics/orders/_tmp/part-0.parquet"), {})
    s3.now += 60
    made = connector(s3, Token(committed))
    made.start(config())
    young = s3.create_upload(FILE, {})

    made.subscribed(["orders"])

    assert set(s3.uploads) == {with_part, empty_part, committed, elsewhere, not_ours, young}


def test_fencing_zombie_sweeps_no_upload_of_its_successor() -> None:
    # The connector freezes after its start, and resumes when its successor has begun uploads and committed
    # one.
    s3 = Clocked()
    made = connector(s3)
    made.start(config())
    s3.now += 600
    successors = [s3.create_upload(FILE, {}) for _ in range(2)]
    s3.now += 600

    made.subscribed(["orders"])

    assert sorted(s3.uploads) == sorted(successors)


@pytest.mark.parametrize("operation", ["ListMultipartUploads", "ListParts", "AbortMultipartUpload"])
def test_a_refused_sweep_does_not_fail_the_start(operation: str) -> None:
    s3 = Clocked()
    s3.create_upload(FILE, {})
    s3.fail_next(operation, denied())

    sweep(s3, config(), Layout(), ["orders"], claimed=s3.now + 60, named=())

    assert len(s3.uploads) == 1


def test_the_next_start_aborts_the_upload_of_a_kill_before_its_token_is_stored() -> None:
    s3 = Clocked()
    made = bench(s3=s3, flush_size=4)
    for _ in range(3):
        s3.fail_next("CreateMultipartUpload", KeyboardInterrupt(), after_effect=True)
        made.harness.deliver(TP, records(count=4, first=made.harness.position(TP)))
        with pytest.raises(KeyboardInterrupt):
            made.harness.commit()
        made.harness.crash()
        made.harness.start()
        made.harness.assign(TP)
    assert len(s3.uploads) == 3
    s3.now += 60

    started = connector(s3)
    started.start(config())
    started.subscribed(["orders"])

    assert s3.uploads == {}


def refused(code: str) -> S3Error | S3TransientError:
    return error_of(Request("any", "bucket", "key", "memory:"), code, "", 501)


@pytest.mark.parametrize("code", ["501", "NotImplemented"])
def test_unimplemented_request_is_not_repeated(code: str) -> None:
    # A response to HeadObject has no body, so the status stands for the code. S3Proxy responds like this to
    # the header of a checksum.
    assert not isinstance(refused(code), S3TransientError)
