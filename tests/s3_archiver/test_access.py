from __future__ import annotations

import subprocess
import sys

import pytest

from sinksdk.connectors.s3_archiver.s3 import boto_client
from sinksdk.connectors.s3_archiver.s3.errors import S3Error, S3TransientError
from sinksdk.connectors.s3_archiver.s3.settings import Keys, Role
from tests.s3_archiver.support import config
from tests.s3_archiver.test_client import WHERE, answering, client_error

ROLE = {
    "s3.credentials.provider.class": "io.confluent.connect.s3.auth.AwsAssumeRoleCredentialsProvider",
    "s3.credentials.provider.sts.role.arn": "arn:aws:iam::123456789012:role/writer",
}


@pytest.mark.parametrize(
    ("keys", "url"),
    [
        ({}, ""),
        ({"s3.proxy.url": "http://proxy:3128"}, "http://proxy:3128"),
        (
            {"s3.proxy.url": "https://proxy:3128", "s3.proxy.user": "me@work", "s3.proxy.password": "p:w/d"},
            "https://me%40work:p%3Aw%2Fd@proxy:3128",
        ),
    ],
)
def test_the_proxys_url_holds_user_and_password(keys: dict[str, str], url: str) -> None:
    made = config(keys)

    assert made.proxy() == url
    proxies = boto_client.connect(made)._client.meta.config.proxies
    assert proxies == ({"http": url, "https": url} if url else None)


def test_the_proxy_password_is_hidden_in_representations() -> None:
    made = config(
        {"s3.proxy.url": "http://proxy:3128", "s3.proxy.user": "me", "s3.proxy.password": "hunter2"}
    )

    assert "hunter2" not in repr(made)


def test_a_body_sent_through_a_proxy_is_signed() -> None:
    # An endpoint on this machine may be a proxy of another host, and so be reached over a network.
    assert boto_client.leaves_payload_unsigned("http://127.0.0.1:9000")
    assert not boto_client.leaves_payload_unsigned("http://127.0.0.1:9000", "http://proxy:3128")
    assert boto_client.leaves_payload_unsigned("https://s3.example", "http://proxy:3128")


def test_transfer_acceleration_uses_its_own_endpoint() -> None:
    keys = {"aws.access.key.id": "key", "aws.secret.access.key": "secret"}
    made = boto_client.connect(
        config({**keys, "s3.wan.mode": "true", "s3.path.style.access.enabled": "false"})
    )

    url = made._client.generate_presigned_url("get_object", Params={"Bucket": "archive", "Key": "k"})

    assert url.startswith("https://archive.s3-accelerate.amazonaws.com/k?")


def test_the_role_is_assumed_in_the_buckets_region_by_default() -> None:
    made = config({**ROLE, "s3.region": "eu-west-1"})
    named = config(
        {
            **ROLE,
            "s3.credentials.provider.sts.region": "us-east-1",
            "s3.credentials.provider.sts.role.session.name": "archive",
            "s3.credentials.provider.sts.role.external.id": "c0ffee",
        }
    )

    arn = ROLE["s3.credentials.provider.sts.role.arn"]
    assert made.role() == Role(arn, "", "", "eu-west-1")
    assert named.role() == Role(arn, "archive", "c0ffee", "us-east-1")
    assert config().role() is None


def test_assuming_a_role_without_credentials_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")

    with pytest.raises(S3Error, match=r"NoCredentialsError.*aws\.access\.key\.id"):
        boto_client.connect(config({**ROLE, "s3.region": "eu-north-1"})).head_bucket("bucket")


def test_the_default_credential_chain_is_used_without_access_keys() -> None:
    assert config().keys_of_access() == Keys("", "")


@pytest.mark.parametrize("code", ["AccessDenied", "MalformedPolicyDocument", "InvalidClientTokenId"])
def test_a_refused_role_is_not_reported_as_a_denied_bucket(code: str) -> None:
    # STS uses the same error code as S3.
    refused = client_error(code, 403)
    refused.operation_name = "AssumeRole"

    with pytest.raises(S3Error, match=r"s3\.credentials\.provider\.sts\.role\.arn") as caught:
        answering(refused).head_bucket("bucket")

    assert caught.value.code == f"AssumeRole.{code}"


@pytest.mark.parametrize(("code", "status"), [("Throttling", 400), ("InternalFailure", 500), ("Odd", 503)])
def test_transient_sts_errors_are_retriable(code: str, status: int) -> None:
    trouble = client_error(code, status)
    trouble.operation_name = "AssumeRole"

    with pytest.raises(S3TransientError):
        answering(trouble).head(WHERE)


@pytest.mark.slow
def test_a_configuration_is_parsed_without_loading_botocore() -> None:
    code = "import sys; import sinksdk.connectors.s3_archiver; sys.exit('botocore' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
