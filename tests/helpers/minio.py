"""MinIO, built once by ``go install``, behind the tests' own proxies."""

from __future__ import annotations

import base64
import fcntl
import http.client
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import boto3
import httpx

from tests.helpers.needs import missing
from tests.helpers.ports import free_port

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from tests.s3_archiver.faulty_s3 import Environ, StartResponse

KEY_ID: Final = "minio-user"
SECRET: Final = "minio-password"

_VERSION: Final = "v0.0.0-20260212201848-7aac2a2c5b7c"
_PATIENCE: Final = 60.0  # seconds
_BUILD_PATIENCE: Final = 900.0  # seconds; the build takes two to three minutes on two cores
_HOP_BY_HOP: Final = frozenset({"connection", "keep-alive", "transfer-encoding"})


def program() -> Path:
    # The test is skipped where MinIO cannot be built.
    folder = Path(sys.prefix, f"minio-{_VERSION}")
    with Path(sys.prefix, "minio.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of one test run may build it at the same time
        if not (folder / "minio").exists():
            _build(folder)
    return folder / "minio"


def _build(folder: Path) -> None:
    if shutil.which("go") is None:
        missing("MinIO", "install Go, which builds it (Debian: apt install golang)")
    environment = {**os.environ, "GOBIN": str(folder), "GOFLAGS": "-buildvcs=false"}
    try:
        done = subprocess.run(
            ["go", "install", f"github.com/minio/minio@{_VERSION}"],
            env=environment,
            cwd=sys.prefix,  # a go.mod in a parent folder would change the build
            capture_output=True,
            text=True,
            timeout=_BUILD_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        missing("MinIO", f"go install did not end within {_BUILD_PATIENCE:g} s")
    if done.returncode:
        missing("MinIO", f"go install could not build it: {done.stderr[-500:]}")


@contextmanager
def serving(*, has_kms: bool = True) -> Iterator[str]:
    built = program()
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="minio-") as folder:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "MINIO_ROOT_USER": KEY_ID,
            "MINIO_ROOT_PASSWORD": SECRET,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
        }
        if has_kms:
            environment["MINIO_KMS_SECRET_KEY"] = f"key:{base64.b64encode(bytes(32)).decode()}"
        command = [str(built), "server", "--quiet", "--address", f"127.0.0.1:{port}", f"{folder}/data"]
        with Path(folder, "log").open("w") as log:
            process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
        try:
            _await(f"http://127.0.0.1:{port}", process, Path(folder, "log"))
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def _await(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    began = time.monotonic()
    while True:
        try:
            if httpx.get(f"{url}/minio/health/ready").status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < began + _PATIENCE, log.read_text()
        time.sleep(0.1)


def client(url: str, key_id: str = KEY_ID, secret: str = SECRET) -> S3Client:
    return boto3.client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=key_id,
        aws_secret_access_key=secret,
    )


def make_bucket(url: str, bucket: str) -> None:
    # As in production, the bucket keeps versions, and a lifecycle rule aborts old uploads.
    s3 = client(url)
    s3.create_bucket(Bucket=bucket)
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    rule: Any = {
        "ID": "left behind",
        "Status": "Enabled",
        "Filter": {"Prefix": ""},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
        # MinIO accepts no rule that only aborts uploads.
        "NoncurrentVersionExpiration": {"NoncurrentDays": 1},
    }
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [rule]})


class Forward:
    # The fault proxy is before this application. Requests are unchanged, because signatures cover path, query
    # and headers, including the host.
    def __init__(self, url: str) -> None:
        self._address = urlsplit(url).netloc

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        headers = {
            name[5:].replace("_", "-"): value for name, value in environ.items() if name.startswith("HTTP_")
        }
        headers.pop("EXPECT", None)  # the proxy has already responded to this header
        for name in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            if environ.get(name):
                headers[name.replace("_", "-")] = environ[name]
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        connection = http.client.HTTPConnection(self._address, timeout=_PATIENCE)
        try:
            connection.request(environ["REQUEST_METHOD"], environ["RAW_URI"], body, headers)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        kept = [(name, value) for name, value in response.getheaders() if name.lower() not in _HOP_BY_HOP]
        start_response(f"{response.status} {response.reason}", kept)
        return [content]
