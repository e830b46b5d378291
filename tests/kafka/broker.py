"""Apache Kafka for the tests: one KRaft node on the loopback interface, in a temporary folder.

``make kafka`` runs this module: a broker to experiment with, until Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient

from tests.helpers.needs import missing
from tests.helpers.ports import free_port
from tests.kafka.maven import MavenError, copy_jars

VERSION = "4.1.0"
_HERE = Path(__file__).parent
_PATIENCE = 90.0  # seconds; a machine may be busy
_SETTINGS: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",  # without this setting, a read would create a missing topic
    "log.cleaner.backoff.ms": "200",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "100",
    "file.delete.delay.ms": "100",
    "log.initial.task.delay.ms": "500",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
}


@dataclass
class Broker:
    """A broker that can be started, stopped, killed and started again with its data.

    Args:
        folder: its data, configuration and log.
        port: its listener; the next port is its controller's.
        settings: Kafka's own settings, in addition to those of a single node.
    """

    folder: Path
    port: int
    settings: Mapping[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    def start(self) -> None:
        """Start the broker and wait until it responds."""
        if not (self.folder / "server.properties").exists():
            self._format()
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                _java("kafka.Kafka", str(self.folder / "server.properties"), heap="512m"),
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in a test's terminal must not reach the broker
            )
        self._await()

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def tool(self, name: str, *arguments: str) -> str:
        """Run one of Kafka's command-line tools by its class; returns its output."""
        command = _java(name, "--bootstrap-server", self.bootstrap, *arguments, heap="128m")
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=_PATIENCE).stdout

    def _format(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = {
            **_SETTINGS,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.port + 1}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.port + 1}",
            "log.dirs": str(self.folder / "data"),
            **self.settings,
        }
        path = self.folder / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        arguments = ["format", "--standalone", "--cluster-id", "sinksdk-tests-0000000", "--config", str(path)]
        done = subprocess.run(
            _java("kafka.tools.StorageTool", *arguments, heap="128m"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _await(self) -> None:
        assert self._process is not None
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            assert self._process.poll() is None, (self.folder / "log").read_text()[-3000:]
            with suppress(Exception):
                if admin.list_topics(timeout=1).brokers:
                    return
        message = f"the broker does not respond: {(self.folder / 'log').read_text()[-3000:]}"
        raise TimeoutError(message)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(timeout=_PATIENCE)
            self._process = None


@contextmanager
def serving(settings: Mapping[str, str] | None = None, *, port: int | None = None) -> Iterator[Broker]:
    """Run a new, empty broker; its folder is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="kafka-"))
    broker = Broker(folder, port or free_port(2), settings or {})
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


def jars() -> list[Path]:
    """Return Kafka's jars. Without them the test is skipped; in CI it fails."""
    try:
        return copy_jars(_HERE / "pom.xml", f"kafka-{VERSION}")
    except MavenError as error:
        missing("Kafka's broker", f"its jars come from Maven Central: {error}")


def _java(main: str, *arguments: str, heap: str) -> list[str]:
    log = f"-Dlog4j2.configurationFile={(_HERE / 'log4j2.properties').as_uri()}"
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else "java"
    classpath = ":".join(map(str, jars()))
    return [str(java), f"-Xmx{heap}", "-XX:+UseSerialGC", log, "-cp", classpath, main, *arguments]


def main() -> None:
    asked = _parser().parse_args()
    ended = False

    def end(*_: object) -> None:
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    with serving({"auto.create.topics.enable": "true"}, port=asked.port) as broker:
        print(f"Kafka {VERSION} runs at {broker.bootstrap}; Ctrl-C stops it and removes its data", flush=True)
        while not ended:
            time.sleep(0.2)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.kafka.broker",
        description="Run a Kafka broker to try things out with, until Ctrl-C.",
    )
    parser.add_argument(
        "--port", type=int, default=9092, help="where it listens; its controller takes the next one (9092)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
