from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sinksdk import ConfigException, RetriableException
from sinksdk.connector import ConnectorIdentity
from sinksdk.connectors.s3_archiver import S3ArchiverConnector
from sinksdk.connectors.s3_archiver.archive.layout import Layout
from sinksdk.connectors.s3_archiver.s3.client import Location
from sinksdk.connectors.s3_archiver.s3.errors import Request, S3Error, S3TransientError, error_of
from sinksdk.connectors.s3_archiver.s3.owners import Owners
from sinksdk.support.s3 import NO_RESPONSE
from tests.s3_archiver.fake_s3 import FakeObject, FakeS3, Fault, LoggedRequest, denied, no_response
from tests.s3_archiver.support import TP, ManualClock, bench, config

MINE = ConnectorIdentity(store_id="store-1", connector="archive", incarnation="first")
MARKER = Location("bucket", "topics/_sinksdk/orders.json")


def owners(s3: FakeS3, identity: ConnectorIdentity = MINE) -> Owners:
    return Owners(s3, "bucket", Layout(), identity)


def connector(s3: FakeS3, identity: ConnectorIdentity = MINE) -> S3ArchiverConnector:
    made = S3ArchiverConnector(connect=lambda _config, _endpoint=None: s3)
    made.identity = identity
    return made


def test_a_claimed_topic_can_be_claimed_again_by_its_owner(s3: FakeS3) -> None:
    owners(s3).claim(["orders"])
    owners(s3).claim(["orders"])

    assert json.loads(s3.data(MARKER.key)) == {
        "format": 1,
        "store_id": "store-1",
        "connector": "archive",
        "incarnation": "first",
    }
    assert s3.operations().count("PutObject") == 1


@pytest.mark.parametrize(
    ("other", "whose"),
    [
        (replace(MINE, connector="backup"), "belongs to connector 'archive'"),
        (replace(MINE, store_id="store-2"), "whose commits are in another store (id store-1"),
        (replace(MINE, incarnation="second"), "an earlier connector of the same name, which was deleted"),
    ],
)
def test_a_topic_of_another_owner_is_refused_with_a_remedy(
    other: ConnectorIdentity, whose: str, s3: FakeS3
) -> None:
    owners(s3).claim(["orders"])

    with pytest.raises(ConfigException) as caught:
        owners(s3, other).claim(["orders"])

    for part in (whose, "topics.dir", str(MARKER), "topics/orders/"):
        assert part in str(caught.value)
    assert s3.visible() == [MARKER.key]


def test_all_topics_of_other_owners_are_named_in_one_error(s3: FakeS3) -> None:
    owners(s3, replace(MINE, connector="backup")).claim(["orders", "payments"])

    with pytest.raises(ConfigException) as caught:
        owners(s3).claim(["orders", "free", "payments"])

    assert len(caught.value.problems) == 2


def test_a_claim_with_a_lost_response_finds_its_own_marker(s3: FakeS3) -> None:
    s3.fail_next("PutObject", no_response(), after_effect=True)

    with pytest.raises(S3TransientError):
        owners(s3).claim(["orders"])
    owners(s3).claim(["orders"])


def test_one_of_two_concurrent_claims_succeeds() -> None:
    s3, rival = FakeS3(), replace(MINE, connector="rival")
    put = s3.put_if_absent

    def second(location: Location, body: bytes) -> bool:
        s3.put_if_absent = put  # type: ignore[method-assign] # once
        owners(s3, rival).claim(["orders"])
        return put(location, body)

    s3.put_if_absent = second  # type: ignore[method-assign] # the rival comes in between
    with pytest.raises(ConfigException, match="connector 'rival'"):
        owners(s3).claim(["orders"])


def test_the_marker_is_read_back_at_endpoints_that_ignore_conditions(s3: FakeS3) -> None:
    # Some stores overwrite despite If-None-Match.
    put = s3.put_if_absent

    def overwritten(location: Location, body: bytes) -> bool:
        result = put(location, body)
        marker = {"format": 1, "store_id": "s", "connector": "rival", "incarnation": "i"}
        s3.objects[location] = FakeObject(json.dumps(marker).encode(), {}, "")
        return result

    s3.put_if_absent = overwritten  # type: ignore[method-assign] # the rival comes right after
    with pytest.raises(ConfigException, match="connector 'rival'"):
        owners(s3).claim(["orders"])


def test_topics_are_claimed_at_endpoints_without_conditions() -> None:
    s3 = FakeS3(knows_conditions=False)
    owners(s3).claim(["orders"])
    owners(s3).claim(["orders"])

    assert s3.visible() == [MARKER.key]


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"format": 2}'])
def test_an_unreadable_marker_is_refused(content: bytes, s3: FakeS3) -> None:
    s3.objects[MARKER] = FakeObject(content, {}, "")

    with pytest.raises(ConfigException, match="newer version"):
        owners(s3).claim(["orders"])


# -- the connector's start -----------------------------------------------------------------------


def test_start_claims_the_configured_topics(s3: FakeS3) -> None:
    connector(s3).start(config(topics="orders,payments"))

    assert s3.visible() == ["topics/_sinksdk/orders.json", "topics/_sinksdk/payments.json"]


def test_topics_of_a_regular_expression_are_claimed_when_subscribed(s3: FakeS3) -> None:
    made = connector(s3)
    made.start(config({"topics": "", "topics.regex": "ord.*"}))
    assert s3.visible() == []

    made.subscribed(["orders"])
    assert s3.visible() == [MARKER.key]


def test_a_missing_bucket_is_reported_in_one_message() -> None:
    with pytest.raises(ConfigException, match=r"bucket 'bucket' does not exist.*create it"):
        connector(FakeS3("elsewhere")).start(config())


def test_denied_access_is_reported_in_one_message(s3: FakeS3) -> None:
    s3.fail_next("HeadBucket", denied())

    with pytest.raises(ConfigException, match=r"access to bucket 'bucket'.*s3:PutObject"):
        connector(s3).start(config())


def test_an_unresponsive_endpoint_is_reported_in_one_message(s3: FakeS3) -> None:
    request = Request("HeadBucket", "bucket", "", "http://minio:9000")
    s3.fail_next("HeadBucket", error_of(request, NO_RESPONSE, "connection refused"))

    with pytest.raises(S3TransientError, match=r"no S3 endpoint responds at http://minio:9000"):
        connector(s3).start(config(store_url="http://minio:9000"))


@pytest.mark.parametrize("operation", ["HeadBucket", "GetObject", "PutObject"])
@pytest.mark.parametrize(
    ("code", "status"),
    [
        (NO_RESPONSE, None),
        ("SlowDown", 503),
        ("503", 503),
        ("InternalError", 500),
        ("KMS.InternalException", 500),
    ],
)
def test_a_transient_error_at_the_start_is_retriable(
    operation: str, code: str, status: int | None, s3: FakeS3
) -> None:
    s3.fail_next(operation, error_of(Request(operation, "bucket", "", "http://minio:9000"), code, "", status))

    with pytest.raises(RetriableException):
        connector(s3).start(config())
    connector(s3).start(config())


def test_missing_write_permission_is_found_at_the_start(s3: FakeS3) -> None:
    # The marker proves that objects can be created.
    s3.fail_next("PutObject", denied())

    with pytest.raises(ConfigException, match="AccessDenied"):
        connector(s3).start(config())


# -- what uploads need, tried at the start -----------------------------------------------------------


def refusal(operation: str, code: str, status: int) -> S3Error | S3TransientError:
    return error_of(Request(operation, "bucket", "key", "memory:"), code, "", status)


def test_a_start_leaves_only_the_owner_markers(s3: FakeS3) -> None:
    running = s3.create_upload(Location("bucket", "topics/orders/partition=0/orders+0+0000000000.avro"), {})
    made = connector(s3)

    made.start(config(topics="ships,orders"))
    made.subscribed(["orders", "ships"])

    assert s3.visible() == ["topics/_sinksdk/orders.json", "topics/_sinksdk/ships.json"]
    assert list(s3.uploads) == [running]
    tried = [request.operation for request in s3.log if request.key.startswith("topics/orders/_sinksdk/")]
    assert tried == [
        "GetObject",
        "AbortMultipartUpload",
        "CreateMultipartUpload",
        "AbortMultipartUpload",
        "ListMultipartUploads",
    ]
    completed = [request.operation for request in s3.log if request.key == "topics/_sinksdk/probes/first"]
    assert completed == [
        "AbortMultipartUpload",
        *(2 * ["CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"]),
        "AbortMultipartUpload",
        "DeleteObject",
    ]


def test_uploads_are_tested_again_for_a_longer_topic_name(s3: FakeS3) -> None:
    made = connector(s3)
    made.start(config({"topics": "", "topics.regex": ".*"}))

    for seen in (["orders"], ["orders", "planes"], ["orders", "planes", "vehicles"]):
        made.subscribed(seen)

    tried = [
        request.key
        for request in s3.log
        if request.operation == "CreateMultipartUpload" and "/probes/" not in request.key
    ]
    assert [key.split("/")[1] for key in tried] == ["orders", "vehicles"]


@pytest.mark.parametrize(
    ("operation", "code", "status", "expected_text"),
    [
        (
            "CreateMultipartUpload",
            "AccessDenied",
            403,
            r"grant these credentials s3:PutObject .*s3:PutObjectAcl",
        ),
        ("AbortMultipartUpload", "AccessDenied", 403, "grant these credentials s3:AbortMultipartUpload"),
        ("GetObject", "XMinioInvalidObjectName", 400, "255 between two slashes"),
        ("CreateMultipartUpload", "KeyTooLongError", 400, "another 'topics.dir'"),
        ("CreateMultipartUpload", "InvalidStorageClass", 400, "'s3.storage.class' = GLACIER: .*remove it"),
        ("CreateMultipartUpload", "NotImplemented", 501, "'s3.ssea.name' = aws:kms and .*only with a KMS"),
        ("CreateMultipartUpload", "KMS.NotFoundException", 400, "'s3.sse.kms.key.id' is enabled"),
        ("CreateMultipartUpload", "AccessControlListNotSupported", 400, "remove 's3.acl.canned'"),
    ],
)
def test_refused_uploads_fail_the_start(
    operation: str, code: str, status: int, expected_text: str, s3: FakeS3
) -> None:
    owners(s3).claim(["orders"])
    s3.plan = lambda request: (
        Fault(refusal(operation, code, status))
        if (request.operation, request.key.endswith(".avro")) == (operation, True)
        else None
    )
    keys = {"s3.ssea.name": "aws:kms", "s3.acl.canned": "public-read", "s3.storage.class": "GLACIER"}

    with pytest.raises(
        ConfigException, match=f"files of topic orders cannot be written with .*{expected_text}"
    ):
        connector(s3).start(config(keys))

    assert s3.uploads == {}
    assert s3.visible() == [MARKER.key]


@pytest.mark.parametrize("operation", ["CreateMultipartUpload", "AbortMultipartUpload"])
def test_lost_response_at_the_start_leaves_no_upload(operation: str, s3: FakeS3) -> None:
    clock = ManualClock()
    s3.time = clock  # type: ignore[method-assign] # the endpoint's
    lost = [Fault(no_response(), after_effect=operation == "CreateMultipartUpload")]
    s3.plan = lambda request: (
        lost.pop() if lost and request.operation == operation and request.upload_id != "probe" else None
    )

    connector(s3).start(config())
    clock.sleep(60)
    made = connector(s3)
    made.start(config())
    made.subscribed(["orders"])

    assert lost == []
    assert s3.uploads == {}


def test_a_denied_listing_of_uploads_does_not_fail_the_start(s3: FakeS3) -> None:
    s3.fail_next("ListMultipartUploads", denied())

    connector(s3).start(config())

    assert s3.uploads == {}


@pytest.mark.parametrize("on_error", ["fail", "ignore"])
def test_refused_tags_are_detected_at_the_start(
    on_error: str, s3: FakeS3, caplog: pytest.LogCaptureFixture
) -> None:
    keys = {"s3.object.tagging": "true", "s3.object.behavior.on.tagging.error": on_error}
    connector(s3).start(config(keys))
    assert caplog.messages == []
    s3.fail_next("PutObjectTagging", refusal("PutObjectTagging", "AccessDenied", 403))

    if on_error == "fail":
        with pytest.raises(ConfigException, match="grant these credentials s3:PutObjectTagging"):
            connector(s3).start(config(keys))
    else:
        connector(s3).start(config(keys))
        assert "archived but not tagged" in caplog.text
    assert s3.uploads == {}


# -- a connector that is deleted ---------------------------------------------------------------------


def test_a_deleted_connector_releases_its_own_markers(s3: FakeS3) -> None:
    # See KIP-883.
    owners(s3).claim(["orders", "ships"])
    owners(s3, replace(MINE, connector="backup")).claim(["planes"])
    archived = Location("bucket", "topics/orders/partition=0/orders+0+0000000000.avro")
    s3.put(archived, b"records")
    made = connector(s3)
    made.start(config(topics="orders,ships"))

    made.stop(is_deleted=False)
    with pytest.raises(ConfigException, match="belongs to connector 'archive'"):
        owners(s3, replace(MINE, connector="next")).claim(["orders"])
    made.stop(is_deleted=True)
    made.stop(is_deleted=True)  # the process deletes the connector again after a crash

    owners(s3, replace(MINE, connector="next", incarnation="next")).claim(["orders", "ships"])
    with pytest.raises(ConfigException, match="belongs to connector 'backup'"):
        owners(s3, replace(MINE, connector="next", incarnation="next")).claim(["planes"])
    assert s3.data(archived.key) == b"records"
    assert "DeleteObject" not in [request.operation for request in s3.log if "/probes/" not in request.key]


def test_a_committed_upload_is_published_after_its_topic_is_released() -> None:
    # Regression: deletion aborted each upload it found, and 100 committed records never became visible.
    made = bench(flush_size=100)
    owners(made.s3).claim([TP.topic])
    made.put(100)
    made.s3.fail_next("CompleteMultipartUpload", denied())
    made.harness.revoke()
    assert (made.committed(), made.offsets()) == (100, [])

    owners(made.s3).release()
    made.harness.assign(TP)

    assert made.offsets() == list(range(100))


def test_crash_during_release_is_repeated(s3: FakeS3) -> None:
    owners(s3).claim(["orders", "ships"])
    s3.fail_next("PutObject", no_response())

    with pytest.raises(S3TransientError):
        owners(s3).release()
    owners(s3).release()

    owners(s3, replace(MINE, incarnation="second")).claim(["orders", "ships"])


@pytest.mark.parametrize("frozen_at", range(4))
def test_fencing_zombie_deletion_does_not_affect_the_next_owner(frozen_at: int, s3: FakeS3) -> None:
    # The process is frozen at each request of the deletion in turn.
    first, again = owners(s3), owners(s3, replace(MINE, incarnation="second"))
    first.claim(["orders"])
    left = [frozen_at]

    def freeze(_: LoggedRequest) -> None:
        left[0] -= 1
        if left[0] == -1:
            first.release()  # another process finishes the deletion, and a connector of that name is created
            again.claim(["orders"])

    s3.plan = freeze
    first.release()
    s3.plan = None
    if left[0] >= 0:  # positive if this deletion makes fewer requests than the position
        again.claim(["orders"])
    first.release()

    with pytest.raises(ConfigException, match="belongs to connector 'archive'"):
        owners(s3, replace(MINE, connector="third", store_id="store-2", incarnation="third")).claim(
            ["orders"]
        )
    again.claim(["orders"])
    assert json.loads(s3.data(MARKER.key))["incarnation"] == "second"


def test_one_of_two_successors_of_a_deleted_connector_claims_its_topic(s3: FakeS3) -> None:
    # The marker is replaced only as it was read.
    owners(s3).claim(["orders"])
    owners(s3).release()
    put, rival = s3.put_if_match, replace(MINE, connector="rival", incarnation="rival")

    def second(location: Location, body: bytes, etag: str) -> bool:
        s3.put_if_match = put  # type: ignore[method-assign] # once
        owners(s3, rival).claim(["orders"])
        return put(location, body, etag)

    s3.put_if_match = second  # type: ignore[method-assign] # the rival comes in between
    with pytest.raises(ConfigException, match="connector 'rival'"):
        owners(s3, replace(MINE, incarnation="second")).claim(["orders"])


def test_a_connector_with_a_failed_start_releases_no_marker(s3: FakeS3) -> None:
    owners(s3, replace(MINE, connector="backup")).claim(["orders"])
    made = connector(s3)
    with pytest.raises(ConfigException):
        made.start(config(topics="orders"))

    made.stop(is_deleted=True)

    assert MARKER in s3.objects
