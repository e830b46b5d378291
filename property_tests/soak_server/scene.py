"""A server with many connectors through a bad hour, told in minutes; then the archives are looked at.

S3, Kafka and the store go away at the start and in the middle, the server is killed, connectors are deleted
and created again. Nobody restarts a connector: all of them go on by themselves.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from property_tests.soak_server.gate import Gate
from sinksdk import TopicPartition
from sinksdk.control.herder import Herder
from sinksdk.store import committed_offsets, open_store
from tests.integration.archive_site import bucket
from tests.integration.served import Server
from tests.kafka.broker import Broker
from tests.kafka.broker import serving as serving_kafka
from tests.kafka.topics import create_topic
from tests.store.postgres_server import serving as serving_postgres

CONNECTORS = 20
_TOPICS = 10  # at most: two connectors share one
_PARTITIONS = 2
_DELETED = 3  # connectors that are deleted and created again
_PACE = 0.1  # seconds between two handfuls of records for all topics
_HANDFUL = 4
_PATIENCE = 300.0  # seconds until everything is archived after the last outage

Tell = Callable[[str], None]


class HourFailed(AssertionError):
    """A connector needed a hand, or an archive is not what its topic is."""


@dataclass
class Happened:
    """What an hour was made of.

    Args:
        counts: how often what happened.
        log: lines of the server's log, all its lives together.
    """

    counts: Counter[str] = field(default_factory=Counter)
    log: list[dict[str, Any]] = field(default_factory=list)

    def shapes(self, *levels: str) -> Counter[tuple[str, str]]:
        """Log lines by level and by what they begin with, without the connectors' names."""
        return Counter(
            (line["level"], _shape(line["message"])) for line in self.log if line["level"] in levels
        )

    def without_cause(self) -> list[str]:
        """Errors that say that something failed and not why: a sentence of a few words."""
        errors = [line for line in self.log if line["level"] in {"ERROR", "CRITICAL"}]
        return [line["message"] for line in errors if ":" not in line["message"]]

    def repeated(self, most: int) -> list[str]:
        """Warnings and errors that one connector, or the server, has logged more often than ``most``."""
        times = Counter(
            (line.get("connector", "the server"), _shape(line["message"]))
            for line in self.log
            if line["level"] in {"WARNING", "ERROR", "CRITICAL"}
        )
        return [f"{who}: {words} ({n} times)" for (who, words), n in times.items() if n > most]


def _shape(message: str) -> str:
    words = message.splitlines()[0].split() if message else []
    return " ".join("…" if any(c.isdigit() for c in word) else word for word in words)[:120]


class Production:
    """Records for all topics, at an even pace, for as long as the block runs."""

    def __init__(self, bootstrap: str, topics: Sequence[str]) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2, "linger.ms": 5})
        self._topics = topics
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.sent = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        assert self._producer.flush(120) == 0, "records were not sent"

    def _work(self) -> None:
        while not self._ended.wait(_PACE):
            for topic in self._topics:
                for _ in range(_HANDFUL):
                    self._producer.produce(
                        topic, b"value %d" % self.sent, b"%d" % self.sent, partition=self.sent % _PARTITIONS
                    )
                    self.sent += 1
            self._producer.poll(0)


@dataclass
class Scene:
    """All that stands around the server, and the server that runs just now."""

    folder: Path
    broker: Broker
    s3: Gate
    database: Gate
    store: str
    bucket: str
    topics: Sequence[str]
    tell: Tell
    connectors: int = CONNECTORS
    happened: Happened = field(default_factory=Happened)
    server: Server | None = None
    began: float = field(default_factory=time.monotonic)

    @property
    def names(self) -> list[str]:
        """Names of the connectors."""
        return [f"archive-{number:02d}" for number in range(self.connectors)]

    def config(self, name: str) -> dict[str, str]:
        """A connector's configuration: half of them end files by the clock, too."""
        number = int(name[-2:])
        config = {
            "name": name,
            "connector.class": "s3-archiver",
            "topics": self.topics[number % len(self.topics)],
            "tasks.max": "1",
            "flush.size": "500",
            "offset.source": "group",
            "auto.offset.reset": "earliest",
            "s3.bucket.name": self.bucket,
            "s3.region": "us-east-1",
            "store.url": f"http://127.0.0.1:{self.s3.port}",
            "aws.access.key.id": "none",
            "aws.secret.access.key": "none",
            "topics.dir": name,
            "avro.codec": "zstandard",
        }
        return config | ({"rotate.schedule.interval.ms": "15000"} if number >= len(self.topics) else {})

    def say(self, what: str) -> None:
        """Tell it, with the second."""
        self.tell(f"{time.monotonic() - self.began:7.1f} s  {what}")

    def start(self, probe: str = "/health") -> None:
        """Start a server; whatever is away, it must come up by itself."""
        source = ["--bootstrap-servers", self.broker.bootstrap]
        self.server = Server(self.folder, source, self.store, probe=probe)
        self.happened.counts["servers started"] += 1
        self.say(f"server {self.happened.counts['servers started']} answers")

    def kill(self) -> None:
        """``kill -9`` of the server."""
        assert self.server is not None
        self.server.process.kill()
        self.server.process.wait()
        self.server.client.close()
        self.happened.counts["kills of the server"] += 1
        self.say("kill -9 of the server")

    @contextmanager
    def away(self, what: str, seconds: float) -> Iterator[None]:
        """S3, Kafka or the store is away while the block runs, and at least for so long."""
        leave, come_back = {
            "S3": (self.s3.shut, self.s3.open),
            "Kafka": (self.broker.kill, self.broker.start),
            "the store": (self.database.shut, self.database.open),
        }[what]
        leave()
        self.happened.counts[f"outages: {what}"] += 1
        self.say(f"{what} is away")
        back_at = time.monotonic() + seconds
        yield
        time.sleep(max(0.0, back_at - time.monotonic()))
        come_back()
        self.say(f"{what} is back")

    def create(self, names: Sequence[str]) -> None:
        """Create connectors over REST."""
        assert self.server is not None
        for name in names:
            self.server.ask("POST", "/connectors", 201, json={"name": name, "config": self.config(name)})
        self.say(f"{len(names)} connectors are created")

    def delete(self, names: Sequence[str]) -> None:
        """Delete connectors over REST, and wait until they are gone."""
        server = self.server
        assert server is not None
        for name in names:
            server.ask("DELETE", f"/connectors/{name}", 204)
        server.until(
            lambda: not set(names) & set(server.ask("GET", "/connectors", 200)), "they are deleted", _PATIENCE
        )
        self.happened.counts["connectors deleted"] += len(names)
        self.say(f"{len(names)} connectors are deleted")

    def recover(self, pause: float) -> None:
        """Wait until each connector has committed something since, by itself; at least so many seconds."""
        server = self.server
        assert server is not None
        began = time.monotonic()
        store = open_store(self.store)
        try:
            before = {name: committed_offsets(store, name) for name in self.names}

            def has_committed() -> bool:
                for name in list(before):
                    if committed_offsets(store, name) != before[name]:
                        del before[name]
                return not before

            server.until(has_committed, "all have committed something", _PATIENCE)
        finally:
            store.close()
        self.say(f"all have committed something, within {time.monotonic() - began:.1f} s")
        time.sleep(max(0.0, began + pause - time.monotonic()))

    def settle(self) -> None:
        """Wait until all are RUNNING by themselves and everything is archived, tails included."""
        server = self.server
        assert server is not None
        began = time.monotonic()
        store = open_store(self.store)
        try:
            herder = Herder(store)
            server.until(lambda: self._are_running(server), "all are RUNNING", _PATIENCE)
            self.say("all connectors are RUNNING")
            for name in self.names:
                herder.flush(name)
            try:
                server.until(lambda: not self._behind(herder), "all is archived", _PATIENCE)
            except AssertionError as error:
                raise HourFailed(f"{error}\nstill behind: {self._behind(herder)}") from None
        finally:
            store.close()
        self.happened.counts["seconds until all was archived"] = round(time.monotonic() - began)
        self.say("all is archived")

    def _are_running(self, server: Server) -> bool:
        found = server.ask("GET", "/connectors?expand=status", 200)
        states = Counter(one["status"]["connector"]["state"] for one in found.values())
        if failed := [name for name in found if server.state(name) == "FAILED"]:
            traces = [str(server.status(name)["connector"].get("trace", ""))[-500:] for name in failed[:3]]
            raise HourFailed(f"{len(failed)} connectors FAILED, as {failed[:3]}:\n" + "\n".join(traces))
        return states == {"RUNNING": self.connectors}

    def _behind(self, herder: Herder) -> dict[str, str]:
        """Connectors with records that are not committed, or files that are not visible."""
        ends = self._ends()
        behind = {}
        for name in self.names:
            committed = herder.offsets(name)
            topic = self.config(name)["topics"]
            left = sum(end - committed.get(p, 0) for p, end in ends.items() if p.topic == topic)
            if left:
                behind[name] = f"{left} records"
        return behind

    def _ends(self) -> dict[TopicPartition, int]:
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": "ends", "log_level": 2})
        try:
            return {
                TopicPartition(topic, number): consumer.get_watermark_offsets(
                    KafkaPartition(topic, number), timeout=30
                )[1]
                for topic in self.topics
                for number in range(_PARTITIONS)
            }
        finally:
            consumer.close()

    def stop(self) -> None:
        """SIGTERM; the server must end by itself and well."""
        assert self.server is not None
        if code := self.server.stop():
            raise HourFailed(f"the server ended with exit code {code}")

    def differences(self) -> Iterator[str]:
        """What ``verify`` finds, of each connector, against its commits and its topic."""
        for name in self.names:
            path = self.folder / f"{name}.json"
            path.write_text(json.dumps({"name": name, "config": self.config(name)}))
            command = [sys.executable, "-m", "sinksdk.connectors.s3_archiver", "verify", str(path)]
            command += ["--store", self.store, "--bootstrap-servers", self.broker.bootstrap]
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder)
            self.happened.counts["archives verified"] += 1
            if done.returncode:
                yield f"{name}: verify ended with exit code {done.returncode}:\n{done.stdout}{done.stderr}"


@contextmanager
def scene(folder: Path, tell: Tell, connectors: int) -> Iterator[Scene]:
    """Broker, S3, PostgreSQL, and the doors before them; all end with the block."""
    with ExitStack() as stack:
        broker = stack.enter_context(serving_kafka())
        endpoint, _, name = stack.enter_context(bucket())
        postgres = stack.enter_context(serving_postgres())
        s3 = stack.enter_context(Gate(int(endpoint.rpartition(":")[2])))
        database = stack.enter_context(Gate(postgres.port))
        several = min(_TOPICS, connectors // 2)
        topics = [create_topic(broker.bootstrap, f"hour-{n}", _PARTITIONS) for n in range(several)]
        url = postgres.url("hour", port=database.port)
        made = Scene(folder, broker, s3, database, url, name, topics, tell, connectors)
        try:
            yield made
        finally:
            if made.server is not None and made.server.process.poll() is None:
                made.server.process.kill()
                made.server.process.wait()


def run_hour(
    folder: Path, tell: Tell, *, outage: float = 30.0, pause: float = 15.0, connectors: int = CONNECTORS
) -> Happened:
    """The script: each of the three away at a start and in the middle, deletions, and the end.

    Args:
        folder: for the server's log, which is kept there.
        tell: gets the story, line by line.
        outage: seconds that each is away.
        pause: seconds of peace between two troubles, at least: each connector commits something meanwhile.
        connectors: how many.

    Returns:
        What happened, the server's log included.

    Raises:
        HourFailed: a connector needed a hand, or an archive is not what its topic is.
    """
    with scene(folder, tell, connectors) as at, Production(at.broker.bootstrap, at.topics) as production:
        with at.away("S3", outage):
            at.start()
            at.create(at.names)
        at.recover(pause)
        for what in ("Kafka", "the store"):
            at.kill()
            with at.away(what, outage):
                at.start("/live" if what == "the store" else "/health")
            at.recover(pause)
        for what in ("S3", "Kafka", "the store"):
            with at.away(what, outage):
                pass
            at.recover(pause)
        at.delete(at.names[:_DELETED])
        at.create(at.names[:_DELETED])
        at.recover(pause)
        production.__exit__()
        at.happened.counts["records"] = production.sent
        at.settle()
        at.stop()
        found = list(at.differences())
        assert at.server is not None
        at.happened.log = at.server.lines()
    if found:
        raise HourFailed("\n".join(found))
    if silent := at.happened.without_cause():
        raise HourFailed(f"{len(silent)} ERROR lines say no cause, as: {silent[:3]}")
    outages = sum(n for what, n in at.happened.counts.items() if what.startswith("outages"))
    if repeated := at.happened.repeated(outages):
        raise HourFailed(f"lines are repeated, with {outages} outages: {repeated[:5]}")
    return at.happened
