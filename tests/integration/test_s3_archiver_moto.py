from __future__ import annotations

import itertools
import logging
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from sinksdk import ConfigException, RetriableException, Token
from sinksdk.connector import ConnectorIdentity
from sinksdk.connectors.s3_archiver import S3ArchiverConnector
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.files.settings import Limits
from sinksdk.connectors.s3_archiver.s3 import crc
from sinksdk.connectors.s3_archiver.s3.boto_client import BotoS3, connect
from sinksdk.connectors.s3_archiver.s3.client import Location
from sinksdk.connectors.s3_archiver.s3.errors import S3Error, S3TransientError
from sinksdk.connectors.s3_archiver.s3.part import PartPool
from sinksdk.connectors.s3_archiver.s3.publisher import ForeignObject, abort, complete
from sinksdk.connectors.s3_archiver.s3.settings import MIB
from sinksdk.connectors.s3_archiver.s3.upload import NONCE, Upload
from sinksdk.connectors.s3_archiver.task import S3ArchiverTask
from sinksdk.connectors.s3_archiver.verify.check import verify
from sinksdk.support.s3 import NO_SUCH_KEY
from sinksdk.testing import SinkTaskHarness
from tests.helpers import minio
from tests.helpers.ports import closed_port
from tests.s3_archiver import support
from tests.s3_archiver.faulty_s3 import FaultyS3, serving
from tests.s3_archiver.support import OTHER, TP, Turns, records

KEY = "topics/orders/file.avro"
_buckets = itertools.count()
IDENTITY = ConnectorIdentity("store-1", "archive", "first")


@pytest.fixture(scope="module", params=["moto", pytest.param("minio", marks=pytest.mark.nightly)])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, FaultyS3]]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = minio.Forward(request.getfixturevalue("minio_url")) if request.param == "minio" else None
    with serving(app) as (url, layer):
        yield url, layer


@pytest.fixture
def layer(server: tuple[str, FaultyS3]) -> FaultyS3:
    server[1].seen.clear()
    server[1].spoiled.clear()
    return server[1]


@pytest.fixture
def bucket(server: tuple[str, FaultyS3], layer: FaultyS3) -> str:
    name = f"bucket-{next(_buckets)}"
    minio.make_bucket(server[0], name)
    layer.seen.clear()
    return name


def configured(url: str, bucket: str, **keys: str) -> S3ArchiverConfig:
    return support.config(
        {
            "s3.bucket.name": bucket,
            "store.url": url,
            "aws.access.key.id": minio.KEY_ID,
            "aws.secret.access.key": minio.SECRET,
            "s3.part.retries": "0",
            **keys,
        }
    )


@pytest.fixture
def config(server: tuple[str, FaultyS3], bucket: str) -> S3ArchiverConfig:
    # boto3 makes no retries, so that the archiver sees each fault.
    return configured(server[0], bucket)


@pytest.fixture
def s3(config: S3ArchiverConfig) -> BotoS3:
    return connect(config)


def finished(s3: BotoS3, bucket: str, data: bytes = b"data", nonce: str = "mine") -> Token:
    upload = Upload(s3, Location(bucket, KEY), PartPool(5 * MIB), nonce, {"sinksdk-connector": "archive"})
    upload.create()
    upload.is_prepared = True
    upload.write(data)
    upload.finish()
    return upload.token


def test_an_uploaded_object_has_its_data_metadata_and_checksum(
    s3: BotoS3, bucket: str, layer: FaultyS3
) -> None:
    data = bytes(range(256)) * (11 * MIB // 256)
    complete(s3, finished(s3, bucket, data))

    info = s3.head(Location(bucket, KEY))
    assert info is not None
    assert info.size == len(data)
    assert info.metadata == {NONCE: "mine", "sinksdk-connector": "archive"}
    assert info.crc32 == crc.encode(zlib.crc32(data))
    assert [seen.size for seen in layer.seen if seen.operation == "UploadPart"] == [5 * MIB, 5 * MIB, MIB]
    with s3.read(Location(bucket, KEY)) as content:
        assert content.read() == data


def test_a_part_is_sent_unsigned_with_its_own_checksum(s3: BotoS3, bucket: str, layer: FaultyS3) -> None:
    # The request has the CRC32 computed while the part was filled, no SHA-256 of the body and no signed
    # chunks.
    finished(s3, bucket)

    (part,) = (seen for seen in layer.seen if seen.operation == "UploadPart")
    assert part.headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
    assert part.headers["x-amz-checksum-crc32"] == crc.encode(zlib.crc32(b"data"))
    assert part.headers.get("content-encoding") is None
    assert part.size == 4


def test_nothing_is_visible_before_completion(s3: BotoS3, bucket: str) -> None:
    token = finished(s3, bucket)

    assert s3.head(Location(bucket, KEY)) is None
    assert list(s3.list(bucket, "")) == []
    (pending,) = s3.list_uploads(bucket, KEY)  # MinIO lists only the uploads of one key
    assert (pending.key, pending.upload_id) == (KEY, token.id)
    assert s3.part_sizes(Location(bucket, KEY), token.id) == [4]


def test_completion_is_conditional(s3: BotoS3, bucket: str, layer: FaultyS3) -> None:
    theirs = finished(s3, bucket, b"theirs", "theirs")
    mine = finished(s3, bucket, b"mine", "mine")
    complete(s3, theirs)

    with pytest.raises(ForeignObject, match="nonce theirs"):
        complete(s3, mine)
    completions = [seen for seen in layer.seen if seen.operation == "CompleteMultipartUpload"]
    assert all(seen.headers["if-none-match"] == "*" for seen in completions)
    with s3.read(Location(bucket, KEY)) as content:
        assert content.read() == b"theirs"


@pytest.mark.parametrize("operation", ["CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"])
def test_a_lost_response_is_retriable(s3: BotoS3, bucket: str, layer: FaultyS3, operation: str) -> None:
    layer.spoil(operation, takes_effect=True)
    upload = Upload(s3, Location(bucket, KEY), PartPool(5 * MIB), "mine", {})
    upload.write(b"data")

    def publish() -> None:
        upload.create()
        upload.is_prepared = True
        upload.finish()
        complete(s3, upload.token)

    with pytest.raises(S3TransientError) as caught:
        publish()
    publish()

    assert caught.value.code == "NoResponse"
    with s3.read(Location(bucket, KEY)) as content:
        assert content.read() == b"data"


def test_a_boto3_retry_of_a_completion_finds_its_own_object(
    server: Any, bucket: str, layer: FaultyS3
) -> None:
    # The response is lost, and boto3's retry gets 412: the nonce shows that the object is the archiver's own.
    s3 = connect(configured(server[0], bucket, **{"s3.part.retries": "2"}))
    token = finished(s3, bucket)
    layer.spoil("CompleteMultipartUpload", takes_effect=True)
    layer.spoil("CompleteMultipartUpload", status=412, code="PreconditionFailed")

    complete(s3, token)

    assert layer.operations()[-3:] == ["CompleteMultipartUpload", "CompleteMultipartUpload", "HeadObject"]


@pytest.mark.parametrize(
    ("status", "code", "is_passing"),
    [
        (503, "SlowDown", True),
        (500, "InternalError", True),
        (409, "ConditionalRequestConflict", True),
        (400, "RequestTimeout", True),
        (200, "InternalError", True),
        (403, "AccessDenied", False),
        (400, "EntityTooSmall", False),
    ],
)
def test_responses_to_a_completion_are_classified_by_code(
    *, s3: BotoS3, bucket: str, layer: FaultyS3, status: int, code: str, is_passing: bool
) -> None:
    # One of the errors comes with status 200, which boto3 reports as a 500.
    token = finished(s3, bucket)
    layer.spoil("CompleteMultipartUpload", status=status, code=code)

    with pytest.raises(S3TransientError if is_passing else S3Error, match=code):
        complete(s3, token)


def test_a_412_inside_a_200_is_a_failed_precondition(s3: BotoS3, bucket: str, layer: FaultyS3) -> None:
    # The code of the error leads to a check of the object; the status alone would lead to endless retries.
    token = finished(s3, bucket)
    complete(s3, token)
    layer.spoil("CompleteMultipartUpload", status=200, code="PreconditionFailed")

    complete(s3, token)
    assert layer.operations()[-1] == "HeadObject"


def test_an_expired_upload_is_reported(s3: BotoS3, bucket: str, layer: FaultyS3) -> None:
    # AWS responds with NoSuchUpload, moto with 500, which the layer corrects.
    token = finished(s3, bucket)
    abort(s3, token)
    layer.spoil("CompleteMultipartUpload", status=404, code="NoSuchUpload")

    with pytest.raises(Exception, match="was committed but disappeared"):
        complete(s3, Token(token.id, {**token.data, "start": 0, "end": 1}))


def test_aborting_twice_leaves_no_upload(s3: BotoS3, bucket: str) -> None:
    token = finished(s3, bucket)
    abort(s3, token)
    abort(s3, token)

    assert list(s3.list_uploads(bucket, "")) == []
    assert s3.part_sizes(Location(bucket, KEY), token.id) is None


def test_conditional_puts_do_not_overwrite_objects(s3: BotoS3, bucket: str) -> None:
    there = Location(bucket, "marker.json")

    assert s3.put_if_absent(there, b"first")
    assert not s3.put_if_absent(there, b"second")
    with s3.read(there) as content:
        assert content.read() == b"first"
    s3.put(there, b"third")
    with s3.read(there) as content:
        assert content.read() == b"third"
    with pytest.raises(S3Error) as caught:
        s3.read(Location(bucket, "nothing"))
    assert caught.value.code == NO_SUCH_KEY


def test_tags_and_creation_options_are_sent(server: Any, bucket: str) -> None:
    keys = {"s3.ssea.name": "AES256", "s3.storage.class": "REDUCED_REDUNDANCY"}
    s3 = connect(configured(server[0], bucket, **keys))
    complete(s3, finished(s3, bucket))
    s3.tag(Location(bucket, KEY), {"team": "data"})

    answer = s3._client.head_object(Bucket=bucket, Key=KEY)
    tags = s3._client.get_object_tagging(Bucket=bucket, Key=KEY)["TagSet"]
    assert (answer["ServerSideEncryption"], answer["StorageClass"]) == ("AES256", "REDUCED_REDUNDANCY")
    assert answer["ContentType"] == "application/avro"
    assert tags == [{"Key": "team", "Value": "data"}]


# -- the connector's start -----------------------------------------------------------------------


def start(config: S3ArchiverConfig) -> None:
    connector = S3ArchiverConnector()
    connector.identity = IDENTITY
    connector.start(config)


def test_a_start_checks_the_bucket_and_claims_topics(
    config: S3ArchiverConfig, s3: BotoS3, bucket: str
) -> None:
    start(config)
    start(config)

    assert [item.key for item in s3.list(bucket, "")] == ["topics/_sinksdk/orders.json"]
    other = S3ArchiverConnector()
    other.identity = ConnectorIdentity("store-2", "archive", "first")
    with pytest.raises(ConfigException, match="in another store"):
        other.start(config)


def test_denied_access_is_reported(config: S3ArchiverConfig, layer: FaultyS3) -> None:
    # A response to HEAD has no body, so only the status is known.
    layer.spoil("HeadBucket", status=403, code="AccessDenied")

    with pytest.raises(ConfigException, match=r"access to bucket .* is denied.*s3:ListBucket"):
        start(config)


def test_an_unreachable_endpoint_is_reported() -> None:
    with (
        closed_port() as port,
        pytest.raises(RetriableException, match=rf"no S3 endpoint responds at http://127\.0\.0\.1:{port}"),
    ):
        start(configured(f"http://127.0.0.1:{port}", "bucket"))


# -- the whole task ------------------------------------------------------------------------------


def test_a_task_archives_over_real_requests(config: S3ArchiverConfig, s3: BotoS3, layer: FaultyS3) -> None:
    for operation in ("CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"):
        layer.spoil(operation, takes_effect=True)
        layer.spoil(operation, status=503, code="SlowDown")
    harness = SinkTaskHarness(lambda: S3ArchiverTask(sleep=lambda _: None), config)
    harness.start()
    harness.assign(TP, OTHER)
    for first in range(0, 250, 50):
        harness.deliver(TP, records(TP, 50, first=first))
        harness.deliver(OTHER, records(OTHER, 10, first=first))
    harness.commit()
    harness.revoke()
    harness.stop()

    report = verify(config, s3, lambda: harness.committed)

    assert report.problems == []
    assert [(found.files, found.records, found.committed) for found in report.partitions] == [
        (3, 250, 250),
        (1, 50, 210),
    ]
    assert layer.spoiled == []
    assert [note for note in report.notes if "empty" not in note and "were checked as" not in note] == []


def test_groups_of_files_are_archived_over_real_requests(
    config: S3ArchiverConfig, s3: BotoS3, layer: FaultyS3
) -> None:
    harness = SinkTaskHarness(
        lambda: S3ArchiverTask(sleep=lambda _: None, folders=Turns(20), limits=Limits(records=100)), config
    )

    def begin() -> None:
        harness.start()
        harness.assign(TP)

    def put() -> None:
        harness.deliver(TP, records(TP, 100, first=harness.position(TP)))

    begin()
    put()
    harness.commit()
    for _ in range(17):
        layer.spoil("CompleteMultipartUpload", status=403, code="AccessDenied")
    put()
    harness.commit()
    visible = {found.key for found in s3.list(config.s3_bucket_name, "topics/orders/")}
    waiting = [token for token in harness.committed[TP].tokens if token.data["key"] not in visible]
    assert waiting
    layer.spoiled.clear()
    abort(s3, waiting[-1])
    harness.crash()
    begin()
    assert harness.committed[TP].offset == 100
    assert verify(config, s3, lambda: harness.committed).problems == []

    harness.crash()
    begin()
    put()
    harness.revoke()
    report = verify(config, s3, lambda: harness.committed)
    assert report.problems == []
    assert [(found.files, found.records, found.overlaps) for found in report.partitions] == [(40, 200, 0)]
    assert visible <= {found.key for found in s3.list(config.s3_bucket_name, "topics/orders/")}
