"""S3 servers that lack what AWS has, from Maven Central: S3Proxy and S3Mock, each in a JVM of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import boto3
import httpx

from tests.helpers.needs import missing
from tests.helpers.ports import free_port
from tests.kafka.maven import MavenError, copy_jars

KEY_ID: Final = "test"
SECRET: Final = "test"
BUCKET: Final = "bucket"

_HERE: Final = Path(__file__).parent
_PATIENCE: Final = 60.0  # seconds


@contextmanager
def s3proxy() -> Iterator[str]:
    """Yield the address of S3Proxy 2.6: it refuses headers for checksums, and ignores conditions."""

    def command(folder: Path, port: int) -> Sequence[str]:
        settings = {
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.endpoint": f"http://127.0.0.1:{port}",
            "s3proxy.identity": KEY_ID,
            "s3proxy.credential": SECRET,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.identity": "x",
            "jclouds.credential": "x",
            "jclouds.filesystem.basedir": str(folder / "data"),
        }
        (folder / "data").mkdir()
        properties = folder / "s3proxy.conf"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return ["org.gaul.s3proxy.Main", "--properties", str(properties)]

    with _serving("S3Proxy", "s3proxy-2.6.0", command) as url:
        yield url


@contextmanager
def s3mock() -> Iterator[str]:
    """Yield the address of S3Mock 4.3: of multipart uploads it knows composite checksums only."""

    def command(_: Path, port: int) -> Sequence[str]:
        http, https = f"--com.adobe.testing.s3mock.httpPort={port}", f"--server.port={port + 1}"
        return ["com.adobe.testing.s3mock.S3MockApplication", http, https]

    with _serving("S3Mock", "s3mock-4.3.0", command) as url:
        yield url


@contextmanager
def _serving(name: str, jars: str, command: Callable[[Path, int], Sequence[str]]) -> Iterator[str]:
    """Start a server with an empty bucket; skip the test, or fail it in CI, where its jars cannot be had."""
    try:
        classpath = copy_jars(_HERE / f"{name.lower()}.xml", jars)
    except MavenError as error:
        missing(name, f"its jars come from Maven Central: {error}")
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else "java"
    port = free_port(2)
    with tempfile.TemporaryDirectory(prefix="s3-") as place, Path(place, "log").open("wb") as log:
        whole = [str(java), "-Xmx256m", f"-Djava.io.tmpdir={place}", "-cp", ":".join(map(str, classpath))]
        process = subprocess.Popen(
            [*whole, *command(Path(place), port)], stdout=log, stderr=log, cwd=place, start_new_session=True
        )
        url = f"http://127.0.0.1:{port}"
        try:
            _await(url, process, Path(place, "log"))
            outsider(url).create_bucket(Bucket=BUCKET)
            yield url
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=_PATIENCE)


def outsider(url: str):  # noqa: ANN201 - boto3's client has no type of its own
    """Return a client that does not belong to the archiver, as readers and operators use."""
    return boto3.client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=KEY_ID,
        aws_secret_access_key=SECRET,
    )


def _await(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    give_up = time.monotonic() + _PATIENCE
    while time.monotonic() < give_up:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            httpx.get(url)
        except httpx.TransportError:
            time.sleep(0.2)
        else:
            return
    message = f"the server does not answer: {log.read_text()[-3000:]}"
    raise TimeoutError(message)
