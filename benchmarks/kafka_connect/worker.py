"""Run a Kafka Connect worker, standalone, with the JVM settings of its own start script."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.error import URLError

from benchmarks.null_s3 import NullS3
from tests.helpers.ports import free_port
from tests.kafka.maven import copy_jars

_HERE = Path(__file__).parent
_JAVA = _HERE / "java"
_JVM = (  # connect-standalone.sh and kafka-run-class.sh
    "-Xms256M",
    "-Xmx2G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
KAFKA = "4.1.0"
ICEBERG = "1.12.0"
_PATIENCE = 120.0
_COUNTED = struct.Struct(">3q")
_BEGIN = "-----BEGIN CERTIFICATE-----"


@dataclass(frozen=True)
class Consumed:
    """The consumption of one consumer, as ``CountingInterceptor`` counts it.

    Args:
        first: seconds since the epoch; meaningless without records.
    """

    records: int
    first: float
    last: float

    @classmethod
    def read(cls, file: Path) -> Self:
        records, first, last = _COUNTED.unpack(file.read_bytes() or bytes(_COUNTED.size))
        return cls(records, first / 1000, last / 1000)


@dataclass(frozen=True)
class Worker:
    """A running worker."""

    pid: int
    url: str
    log: Path
    counts: Path

    def forget(self) -> None:
        # No connector may run meanwhile.
        for file in self.counts.iterdir():
            file.unlink()

    def connectors(self) -> list[str]:
        found: list[str] = self._call("GET", "/connectors")
        return found

    def start(self, name: str, config: Mapping[str, str]) -> None:
        self._call("PUT", f"/connectors/{name}/config", config)

    def validate(self, plugin: str, config: Mapping[str, str]) -> dict[str, Any]:
        found: dict[str, Any] = self._call("PUT", f"/connector-plugins/{plugin}/config/validate", config)
        return found

    def delete(self, name: str) -> None:
        self._call("DELETE", f"/connectors/{name}")

    def restart_task(self, name: str, task: int) -> None:
        # The consumer leaves the group and joins again, which rebalances all tasks.
        self._call("POST", f"/connectors/{name}/tasks/{task}/restart")

    def check(self, name: str) -> None:
        failed = self.failed(name)
        assert not failed, next(iter(failed.values()))

    def failed(self, name: str) -> dict[int, str]:
        status = self._call("GET", f"/connectors/{name}/status")
        return {task["id"]: task["trace"] for task in status["tasks"] if task["state"] == "FAILED"}

    def consumed(self) -> list[Consumed]:
        return [Consumed.read(file) for file in self.counts.iterdir()]

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})  # noqa: S310 - ours
        request.method = method
        with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:  # noqa: S310 - ours
            text = answer.read()
        return json.loads(text) if text else None


@contextmanager
def connect_worker(folder: Path, bootstrap: str, s3: NullS3) -> Iterator[Worker]:
    counts = folder / "counts"
    counts.mkdir(parents=True)
    _install_sinks(folder / "plugins")
    settings = {
        "header.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "plugin.path": str(folder / "plugins"),
        "plugin.discovery": "service_load",  # starts faster than looking through all classes
        "consumer.interceptor.classes": "sinksdk.benchmarks.CountingInterceptor",
        "consumer.count.folder": str(counts),
    }
    with running_worker(folder, bootstrap, settings, options=_trust(folder, s3)) as worker:
        yield worker


@contextmanager
def running_worker(
    folder: Path,
    bootstrap: str,
    more: Mapping[str, str],
    *,
    options: Sequence[str] = (),
    classpath: Sequence[Path] = (),
) -> Iterator[Worker]:
    port = free_port()
    settings = {
        "bootstrap.servers": bootstrap,
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "offset.storage.file.filename": str(folder / "offsets"),
        "offset.flush.interval.ms": "1000",
        **more,
    }
    path = folder / "worker.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    log = f"-Dlog4j2.configurationFile={(_HERE / 'log4j2.properties').as_uri()}"
    jars = ":".join(map(str, [*classpath, *worker_jars()]))
    main = "org.apache.kafka.connect.cli.ConnectStandalone"
    command = ["java", *_JVM, log, *options, "-cp", jars, main, str(path)]
    # Options that tests have for other JVMs contradict these.
    environment = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}
    with (
        (folder / "log").open("wb") as file,
        subprocess.Popen(command, stdout=file, stderr=file, env=environment) as jvm,
    ):
        worker = Worker(jvm.pid, f"http://127.0.0.1:{port}", folder / "log", folder / "counts")
        try:
            _await(jvm, worker)
            yield worker
        finally:
            jvm.terminate()


def worker_jars() -> list[Path]:
    return copy_jars(_HERE / "worker-pom.xml", f"kafka-connect-{KAFKA}")


def _install_sinks(plugins: Path) -> None:
    # One plugin with its own class loader, as in a Connect installation.
    jars = copy_jars(_HERE / "sinks-pom.xml", f"kafka-connect-sinks-iceberg-{ICEBERG}")
    target = plugins / "sinks"
    target.mkdir(parents=True)
    for jar in jars:
        (target / jar.name).symlink_to(jar)
    with tempfile.TemporaryDirectory() as classes:
        sources = map(str, _JAVA.rglob("*.java"))
        compiler = ["javac", "-nowarn", "-d", classes, "-cp", ":".join(map(str, jars)), *sources]
        subprocess.run(compiler, check=True, capture_output=True)
        archive = ["jar", "--create", "--file", str(target / "lean-s3-sink.jar")]
        subprocess.run([*archive, "-C", classes, ".", "-C", str(_JAVA), "META-INF"], check=True)


def _trust(folder: Path, s3: NullS3) -> list[str]:
    if s3.certificate is None:
        return []
    certificate, store = folder / "s3.pem", folder / "trust.p12"
    certificate.write_text(_BEGIN + s3.certificate.read_text().partition(_BEGIN)[2])  # without the key
    options = ["-keystore", str(store), "-storetype", "PKCS12", "-storepass", "secret"]
    command = ["keytool", "-importcert", "-noprompt", "-alias", "s3", "-file", str(certificate), *options]
    subprocess.run(command, check=True, capture_output=True)
    return [f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStorePassword=secret"]


def _await(jvm: subprocess.Popen[bytes], worker: Worker) -> None:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        assert jvm.poll() is None, worker.log.read_text()[-3000:]
        with suppress(URLError, ConnectionError):
            worker.connectors()
            return
        time.sleep(0.1)
    raise TimeoutError(worker.log.read_text()[-3000:])
