from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Sequence

import boto3
import pytest

from sinksdk import ConfigException
from sinksdk.connector import ConnectorIdentity
from sinksdk.connectors.s3_archiver import S3ArchiverConnector
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.files.settings import Limits
from sinksdk.connectors.s3_archiver.s3 import boto_client
from sinksdk.connectors.s3_archiver.task import S3ArchiverTask
from sinksdk.connectors.s3_archiver.verify.check import verify
from sinksdk.testing import SinkTaskHarness
from tests.helpers import minio
from tests.s3_archiver import support
from tests.s3_archiver.faulty_s3 import Throttling, serving
from tests.s3_archiver.support import TP, Turns, records

pytestmark = pytest.mark.nightly

_RIGHTS = ("ListBucket", "GetObject", "PutObject", "AbortMultipartUpload")
_buckets = itertools.count()


@pytest.fixture(scope="module")
def bare() -> Iterator[str]:
    with minio.serving(has_kms=False) as url:
        yield url


@pytest.fixture
def bucket(bare: str) -> str:
    name = f"start-{next(_buckets)}"
    minio.make_bucket(bare, name)
    return name


def configured(url: str, bucket: str, **keys: str) -> S3ArchiverConfig:
    with_keys = {"aws.access.key.id": minio.KEY_ID, "aws.secret.access.key": minio.SECRET}
    return support.config({"s3.bucket.name": bucket, "store.url": url, **with_keys, **keys})


def start(config: S3ArchiverConfig) -> None:
    connector = S3ArchiverConnector()
    connector.identity = ConnectorIdentity("store-1", "archive", "first")
    connector.start(config)


def left(url: str, bucket: str) -> list[str]:
    s3 = minio.client(url)
    tried = "topics/orders/_sinksdk/orders+0+0000000000.avro"  # MinIO lists only the uploads of one key
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket, Prefix=tried)
    listed = s3.list_object_versions(Bucket=bucket)
    found = [item["Key"] for item in [*listed.get("Versions", []), *listed.get("DeleteMarkers", [])]]
    return [key for key in found if "/_sinksdk/probes/" not in key]


def test_a_start_leaves_only_the_owner_marker(bare: str, bucket: str) -> None:
    # The object is the owner marker.
    config = configured(bare, bucket, **{"s3.object.tagging": "true"})
    start(config)
    start(config)

    assert left(bare, bucket) == ["topics/_sinksdk/orders.json"]


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"s3.ssea.name": "AES256"}, "'s3.ssea.name' = AES256: .*only with a KMS"),
        (
            {"s3.ssea.name": "aws:kms", "s3.sse.kms.key.id": "mine"},
            "'s3.sse.kms.key.id' = mine: .*with a KMS",
        ),
        ({"s3.storage.class": "STANDARD_IA"}, "'s3.storage.class' = STANDARD_IA: .*or remove it"),
        ({"topics": "o" * 240}, "files of topic o+ cannot be written: .*255 between two slashes"),
        ({"topics.dir": "d" * 256}, "255 between two slashes"),
        ({"topics.dir": "/".join(["dir"] * 250)}, "999 bytes, but an object's key can have 1,024 at most"),
    ],
)
def test_features_unsupported_by_minio_fail_the_start(
    keys: dict[str, str], says: str, bare: str, bucket: str
) -> None:
    with pytest.raises(ConfigException, match=says):
        start(configured(bare, bucket, **keys))

    marker = f"{keys.get('topics.dir', 'topics')}/_sinksdk/{keys.get('topics', 'orders')}.json"
    assert set(left(bare, bucket)) <= {marker}


def with_rights(monkeypatch: pytest.MonkeyPatch, url: str, actions: Sequence[str]) -> None:
    allowed = {
        "Effect": "Allow",
        "Action": [f"s3:{action}" for action in actions],
        "Resource": "arn:aws:s3:::*",
    }
    sts = boto3.client(
        "sts",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=minio.KEY_ID,
        aws_secret_access_key=minio.SECRET,
    )
    got = sts.assume_role(
        RoleArn="arn:minio:role:for:any",
        RoleSessionName="test",
        Policy=json.dumps({"Version": "2012-10-17", "Statement": [allowed]}),
    )["Credentials"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", got["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", got["SecretAccessKey"])
    monkeypatch.setenv("AWS_SESSION_TOKEN", got["SessionToken"])
    boto_client._client.cache_clear()


def test_the_documented_permissions_are_sufficient(
    bare: str, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_rights(monkeypatch, bare, _RIGHTS)

    start(configured(bare, bucket, **{"aws.access.key.id": "", "aws.secret.access.key": ""}))

    assert left(bare, bucket) == ["topics/_sinksdk/orders.json"]


@pytest.mark.parametrize("missing", [*_RIGHTS, "PutObjectTagging"])
def test_a_missing_permission_fails_the_start(
    missing: str, bare: str, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"s3.object.tagging": "true", "s3.object.behavior.on.tagging.error": "fail"}
    start(configured(bare, bucket, **keys))
    with_rights(monkeypatch, bare, {*_RIGHTS, "PutObjectTagging"} - {missing})

    with pytest.raises(ConfigException, match=f"s3:{missing}"):
        start(configured(bare, bucket, **keys, **{"aws.access.key.id": "", "aws.secret.access.key": ""}))

    assert left(bare, bucket) == ["topics/_sinksdk/orders.json"]


# -- throttled ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("per_second", "files"), [(20, 60), (5, 20)])
def test_a_throttled_archiver_completes_its_commits(
    per_second: int, files: int, bare: str, bucket: str
) -> None:
    # Regression: each generation repeated all requests, and no commit completed in two minutes.
    throttling = Throttling(minio.Forward(bare), per_second)
    with serving(throttling) as (url, _):
        config = configured(url, bucket)
        began = time.monotonic()
        harness = SinkTaskHarness(
            lambda: S3ArchiverTask(folders=Turns(files), limits=Limits(records=files)), config
        )
        harness.start()
        harness.assign(TP)
        for _ in range(2):
            harness.deliver(TP, records(TP, files, first=harness.position(TP)))
            harness.commit()
        harness.revoke()
        took = time.monotonic() - began

    assert harness.outcome(TP).failure is None
    checked = configured(bare, bucket)
    report = verify(checked, boto_client.connect(checked), lambda: harness.committed)
    assert report.problems == []
    assert [(found.files, found.records, found.overlaps) for found in report.partitions] == [
        (2 * files, 2 * files, 0)
    ]
    needed = dict.fromkeys(
        ("CreateMultipartUpload", "UploadPart", "ListParts", "CompleteMultipartUpload"), 2 * files
    )
    print(f"\n{took:.0f} s for {4 * 2 * files} requests at {per_second} a second")
    assert {name: throttling.let_through[name] for name in needed} == needed
