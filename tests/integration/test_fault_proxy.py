"""The proxies inject the faults they claim to: a test that relies on them must not pass because nothing happened."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

from tests.integration.fault_proxy import (
    CONFLICT,
    CUT_AFTER,
    CUT_BEFORE,
    DROP_ANSWER,
    DROP_REQUEST,
    FORGET_CONDITION,
    PASS,
    SILENCE,
    SLOW_DOWN,
    Fault,
    FaultProxy,
    TcpProxy,
    serving_s3,
    serving_tcp,
)
from tests.integration.line_site import await_so

pytestmark = pytest.mark.slow

# -- S3 ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, FaultProxy]]:
    with serving_s3() as served:
        yield served


class Bucket:
    def __init__(self, endpoint: str, proxy: FaultProxy) -> None:
        self.proxy = proxy
        self.endpoint = endpoint
        self.name = f"bucket-{uuid.uuid4().hex}"
        self.client = self.connect()
        self.client.create_bucket(Bucket=self.name)
        proxy.reset()

    def connect(self, **options: Any) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="key",
            aws_secret_access_key="secret",
            config=Config(retries={"mode": "standard", "total_max_attempts": 1}, **options),
        )

    def put(self, key: str, body: bytes, **condition: str) -> None:
        self.client.put_object(Bucket=self.name, Key=key, Body=body, **condition)

    def body(self, key: str) -> bytes | None:
        try:
            return self.client.get_object(Bucket=self.name, Key=key)["Body"].read()
        except ClientError as error:
            assert error.response["Error"]["Code"] == "NoSuchKey"  # noqa: PT017 - and nothing else
            return None


@pytest.fixture
def bucket(server: tuple[str, FaultProxy]) -> Iterator[Bucket]:
    server[1].reset()
    yield Bucket(*server)
    server[1].reset()


@pytest.mark.parametrize(("fault", "stands"), [(DROP_REQUEST, None), (DROP_ANSWER, b"1")])
def test_requests_and_responses_can_be_dropped(bucket: Bucket, fault: Fault, stands: bytes | None) -> None:
    bucket.proxy.next("PutObject", fault)
    with pytest.raises(ConnectionClosedError):
        bucket.put("k", b"1")
    assert bucket.body("k") == stands
    assert bucket.proxy.requests[0].fault is fault


@pytest.mark.parametrize(
    ("fault", "code"), [(SLOW_DOWN, "SlowDown"), (CONFLICT, "ConditionalRequestConflict")]
)
def test_an_error_response_can_be_injected(bucket: Bucket, fault: Fault, code: str) -> None:
    bucket.proxy.next("PutObject", fault)
    with pytest.raises(ClientError, match=code):
        bucket.put("k", b"1")
    assert bucket.body("k") is None


def test_a_response_can_be_delayed(bucket: Bucket) -> None:
    client, delay = bucket.connect(read_timeout=0.2), 2.0
    bucket.proxy.next("PutObject", Fault(delay=delay))
    began = time.monotonic()
    with pytest.raises(ReadTimeoutError):
        client.put_object(Bucket=bucket.name, Key="k", Body=b"1")
    found = bucket.body("k")
    assert found is None or time.monotonic() - began >= delay
    await_so(lambda: bucket.body("k") == b"1")


def test_a_fault_can_hit_the_nth_write(bucket: Bucket) -> None:
    bucket.put("before", b"1")
    bucket.proxy.at_mutation(2, DROP_REQUEST)
    bucket.put("first", b"1")
    bucket.body("first")
    with pytest.raises(ConnectionClosedError):
        bucket.put("second", b"1")
    bucket.put("third", b"1")
    assert [bucket.body(key) for key in ("first", "second", "third")] == [b"1", None, b"1"]
    assert bucket.proxy.mutations == 4


def test_a_condition_can_be_ignored(bucket: Bucket) -> None:
    bucket.put("k", b"1")
    bucket.proxy.always(FORGET_CONDITION, lambda request: request.condition == "If-None-Match")
    bucket.put("k", b"2", IfNoneMatch="*")
    assert bucket.body("k") == b"2"
    bucket.proxy.reset()
    with pytest.raises(ClientError, match="PreconditionFailed"):
        bucket.put("k", b"3", IfNoneMatch="*")


def upload(bucket: Bucket, key: str, body: bytes) -> tuple[str, list[dict[str, Any]]]:
    made = bucket.client.create_multipart_upload(Bucket=bucket.name, Key=key)["UploadId"]
    part = bucket.client.upload_part(Bucket=bucket.name, Key=key, UploadId=made, PartNumber=1, Body=body)
    return made, [{"ETag": part["ETag"], "PartNumber": 1}]


def wins(bucket: Bucket, key: str, made: str, parts: list[dict[str, Any]]) -> bool:
    try:
        bucket.client.complete_multipart_upload(
            Bucket=bucket.name, Key=key, UploadId=made, MultipartUpload={"Parts": parts}, IfNoneMatch="*"
        )
    except ClientError as error:
        assert error.response["Error"]["Code"] == "PreconditionFailed"  # noqa: PT017 - and nothing else
        return False
    return True


def test_one_of_several_conditional_completions_wins(bucket: Bucket) -> None:
    with ThreadPoolExecutor(8) as pool:
        for turn in range(10):
            key = f"k{turn}"
            uploads = [upload(bucket, key, b"%d" % number) for number in range(8)]
            won = list(pool.map(lambda each, key=key: wins(bucket, key, *each), uploads))
            assert won.count(True) == 1
            assert bucket.body(key) == b"%d" % won.index(True)


def test_a_missing_upload_is_reported(bucket: Bucket) -> None:
    made, parts = upload(bucket, "k", b"1")
    address = {"Bucket": bucket.name, "Key": "k", "UploadId": made}
    bucket.client.abort_multipart_upload(**address)
    with pytest.raises(ClientError, match="NoSuchUpload"):
        bucket.client.upload_part(**address, PartNumber=2, Body=b"2")
    with pytest.raises(ClientError, match="NoSuchUpload"):
        bucket.client.complete_multipart_upload(**address, MultipartUpload={"Parts": parts})
    with pytest.raises(ClientError, match="NoSuchUpload"):
        bucket.client.abort_multipart_upload(**address)


# -- TCP ---------------------------------------------------------------------------------------------


class Echo:
    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(1024):
                self.heard.append(data)
                connection.sendall(data)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    served = Echo()
    yield served
    served.close()


@pytest.fixture
def tcp(echo: Echo) -> Iterator[TcpProxy]:
    with serving_tcp(echo.port) as proxy:
        yield proxy


def said(tcp: TcpProxy, data: bytes, timeout: float = 60.0) -> bytes:
    with socket.create_connection(("127.0.0.1", tcp.port), timeout=timeout) as connection:
        connection.sendall(data)
        return connection.recv(1024)


def test_bytes_pass_both_ways(tcp: TcpProxy) -> None:
    assert said(tcp, b"hello") == b"hello"


def test_connections_can_be_cut(echo: Echo, tcp: TcpProxy) -> None:
    tcp.spoil(b"write", PASS, CUT_BEFORE, CUT_AFTER)
    assert said(tcp, b"write 1") == b"write 1"
    assert said(tcp, b"write 2") == b""
    assert said(tcp, b"read") == b"read"
    assert said(tcp, b"write 3") == b""
    assert said(tcp, b"write 4") == b"write 4"
    assert echo.heard == [b"write 1", b"read", b"write 3", b"write 4"]
    assert tcp.spoiled == [b"write 2", b"write 3"]
    assert tcp.connections == 5


def test_a_connection_can_be_silenced(echo: Echo, tcp: TcpProxy) -> None:
    tcp.spoil(b"write", SILENCE)
    with pytest.raises(TimeoutError):
        said(tcp, b"write", timeout=1.0)
    await_so(lambda: echo.heard == [b"write"])
