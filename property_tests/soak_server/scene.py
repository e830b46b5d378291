"""A server with many connectors under outages; then the archives are checked.

S3, Kafka and the store are unavailable at the start and later, the server is killed, connectors are deleted and
recreated. No connector is restarted: all must recover by themselves.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, KafkaException, Producer
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
_TOPICS = 10  # maximum number of topics: two connectors share one
_PARTITIONS = 2
_DELETED = 3  # number of connectors that are deleted and created again
_PACE = 0.1  # seconds between two groups of records for all topics
_HANDFUL = 4
_PATIENCE = 300.0  # seconds after the last outage within which everything must be archived

CATCH_UP = 60.0
"""Seconds within which each connector must commit all records that existed when the broker woke."""
LAG_AGE = 15.0
"""Seconds after which a reported lag must be correct or unknown."""

Tell = Callable[[str], None]


class HourFailed(AssertionError):
    """A connector did not recover by itself, or an archive differs from its topic."""


@dataclass
class Happened:
    """What happened in an hour.

    Args:
        counts: numbers of events.
        log: log lines of all runs of the server.
    """

    counts: Counter[str] = field(default_factory=Counter)
    log: list[dict[str, Any]] = field(default_factory=list)

    def shapes(self, *levels: str) -> Counter[tuple[str, str]]:
        """Return log lines by level and first words, without connectors' names."""
        return Counter(
            (line["level"], _shape(line["message"])) for line in self.log if line["level"] in levels
        )

    def without_cause(self) -> list[str]:
        """Return errors that do not name a cause, which are sentences of a few words."""
        errors = [line for line in self.log if line["level"] in {"ERROR", "CRITICAL"}]
        return [line["message"] for line in errors if ":" not in line["message"]]

    def repeated(self, most: int) -> list[str]:
        """Return warnings and errors that one connector, or the server, logged more often than ``most``."""
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
    def __init__(self, bootstrap: str, topics: Sequence[str]) -> None:
        self._bootstrap = bootstrap
        self._producer = self._made()
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

    def renew(self) -> None:
        """Replace the producer: one from before a freeze may never find a broker again."""
        before, self._producer = self._producer, self._made()
        before.purge()

    def _made(self) -> Producer:
        return Producer({"bootstrap.servers": self._bootstrap, "log_level": 2, "linger.ms": 5})

    def _work(self) -> None:
        while not self._ended.wait(_PACE):
            producer = self._producer
            for topic in self._topics:
                for _ in range(_HANDFUL):
                    producer.produce(
                        topic, b"value %d" % self.sent, b"%d" % self.sent, partition=self.sent % _PARTITIONS
                    )
                    self.sent += 1
            producer.poll(0)


@dataclass
class Scene:
    folder: Path
    broker: Broker
    s3: Gate
    database: Gate
    store: str
    bucket: str
    topics: Sequence[str]
    tell: Tell
    connectors: int = CONNECTORS
    every: int = 0
    """Milliseconds after which connectors end their files; 0: half of them do, after 15 s."""
    happened: Happened = field(default_factory=Happened)
    server: Server | None = None
    began: float = field(default_factory=time.monotonic)

    @property
    def names(self) -> list[str]:
        return [f"archive-{number:02d}" for number in range(self.connectors)]

    def config(self, name: str) -> dict[str, str]:
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
        if self.every:
            return config | {"rotate.schedule.interval.ms": str(self.every)}
        return config | ({"rotate.schedule.interval.ms": "15000"} if number >= len(self.topics) else {})

    def say(self, what: str) -> None:
        self.tell(f"{time.monotonic() - self.began:7.1f} s  {what}")

    def start(self, probe: str = "/health") -> None:
        source = ["--bootstrap-servers", self.broker.bootstrap]
        self.server = Server(self.folder, source, self.store, probe=probe)
        self.happened.counts["servers started"] += 1
        self.say(f"server {self.happened.counts['servers started']} answers")

    def kill(self) -> None:
        assert self.server is not None
        self.server.process.kill()
        self.server.process.wait()
        self.server.client.close()
        self.happened.counts["kills of the server"] += 1
        self.say("kill -9 of the server")

    @contextmanager
    def away(self, what: str, seconds: float) -> Iterator[None]:
        """Make S3, Kafka or the store unavailable for the duration of the block."""
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

    def freeze(self, seconds: float, production: Production) -> None:
        """Freeze the broker and wake it; all connectors must catch up with its records by themselves."""
        self.say(f"Kafka is frozen for {seconds:.0f} s")
        os.kill(self.broker.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self.broker.pid, signal.SIGCONT)
        woken = time.monotonic()
        production.renew()
        self.happened.counts["freezes"] += 1
        wanted = self._ends_after(woken)
        store = open_store(self.store)
        try:
            herder = Herder(store)
            while behind := self._behind(herder, wanted):
                if time.monotonic() - woken > CATCH_UP:
                    raise HourFailed(
                        f"{CATCH_UP:g} s after the wake, {len(behind)} are still behind: {behind}"
                    )
                time.sleep(0.5)
        finally:
            store.close()
        took = time.monotonic() - woken
        self.happened.counts["seconds until all had caught up, at most"] = max(
            round(took), self.happened.counts["seconds until all had caught up, at most"]
        )
        self.say(f"all have caught up {took:.1f} s after the wake")

    def _ends_after(self, woken: float) -> dict[TopicPartition, int]:
        """Return the end offsets once the woken broker leads its partitions again."""
        while True:
            try:
                return self.ends(timeout=2.0)
            except KafkaException as error:
                if time.monotonic() - woken > CATCH_UP:
                    raise HourFailed(
                        f"the broker leads no partition {CATCH_UP:g} s after its wake"
                    ) from error
                time.sleep(0.5)

    def create(self, names: Sequence[str]) -> None:
        assert self.server is not None
        for name in names:
            self.server.ask("POST", "/connectors", 201, json={"name": name, "config": self.config(name)})
        self.say(f"{len(names)} connectors are created")

    def delete(self, names: Sequence[str]) -> None:
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
        """Wait until each connector has committed since then, without a restart."""
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
        """Wait until all connectors are RUNNING and have archived everything, also records that fill no file."""
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

    def _behind(self, herder: Herder, wanted: Mapping[TopicPartition, int] | None = None) -> dict[str, str]:
        """Return connectors that have not committed up to these offsets, by default the topics' ends."""
        ends = self.ends() if wanted is None else wanted
        behind = {}
        for name in self.names:
            committed = herder.offsets(name)
            topic = self.config(name)["topics"]
            left = sum(max(end - committed.get(p, 0), 0) for p, end in ends.items() if p.topic == topic)
            if left:
                behind[name] = f"{left} records"
        return behind

    def wrong_lags(self, herder: Herder, waited: Mapping[TopicPartition, int]) -> list[str]:
        """Return RUNNING connectors that report lag 0 although records below these offsets are not committed."""
        found = []
        for info in herder.infos():
            left = sum(max(waited.get(p.partition, 0) - (p.committed or 0), 0) for p in info.partitions)
            if info.state == "RUNNING" and info.lag == 0 and left:
                found.append(f"{info.name}: {left} records")
        return found

    def ends(self, timeout: float = 30.0) -> dict[TopicPartition, int]:
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": "ends", "log_level": 2})
        try:
            return {
                TopicPartition(topic, number): consumer.get_watermark_offsets(
                    KafkaPartition(topic, number), timeout=timeout
                )[1]
                for topic in self.topics
                for number in range(_PARTITIONS)
            }
        finally:
            consumer.close()

    def stop(self) -> None:
        """Send SIGTERM; the server must exit with code 0."""
        assert self.server is not None
        if code := self.server.stop():
            raise HourFailed(f"the server ended with exit code {code}")

    def differences(self) -> Iterator[str]:
        for name in self.names:
            path = self.folder / f"{name}.json"
            path.write_text(json.dumps({"name": name, "config": self.config(name)}))
            command = [sys.executable, "-m", "sinksdk.connectors.s3_archiver", "verify", str(path)]
            command += ["--store", self.store, "--bootstrap-servers", self.broker.bootstrap]
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder)
            self.happened.counts["archives verified"] += 1
            if done.returncode:
                yield f"{name}: verify ended with exit code {done.returncode}:\n{done.stdout}{done.stderr}"


class LagWatch:
    """Checks every second for lags of 0 while records have waited for some time."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.wrong: list[str] = []
        self.looks = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(60)

    def _work(self) -> None:
        store = open_store(self._scene.store)
        herder, seen = Herder(store), deque[tuple[float, Mapping[TopicPartition, int]]]()
        try:
            while not self._ended.wait(1.0):
                with suppress(KafkaException):  # while the broker is frozen, there are no new records
                    seen.append((time.monotonic(), self._scene.ends(timeout=2.0)))
                while len(seen) > 1 and seen[1][0] <= time.monotonic() - LAG_AGE:
                    seen.popleft()
                if seen and seen[0][0] <= time.monotonic() - LAG_AGE:
                    self.looks += 1
                    self.wrong += self._scene.wrong_lags(herder, seen[0][1])
        finally:
            store.close()


@contextmanager
def scene(folder: Path, tell: Tell, connectors: int, every: int = 0) -> Iterator[Scene]:
    with ExitStack() as stack:
        broker = stack.enter_context(serving_kafka())
        endpoint, _, name = stack.enter_context(bucket())
        postgres = stack.enter_context(serving_postgres())
        s3 = stack.enter_context(Gate(int(endpoint.rpartition(":")[2])))
        database = stack.enter_context(Gate(postgres.port))
        several = min(_TOPICS, connectors // 2)
        topics = [create_topic(broker.bootstrap, f"hour-{n}", _PARTITIONS) for n in range(several)]
        url = postgres.url("hour", port=database.port)
        made = Scene(folder, broker, s3, database, url, name, topics, tell, connectors, every)
        try:
            yield made
        finally:
            if made.server is not None and made.server.process.poll() is None:
                made.server.process.kill()
                made.server.process.wait()


def run_hour(
    folder: Path, tell: Tell, *, outage: float = 30.0, pause: float = 15.0, connectors: int = CONNECTORS
) -> Happened:
    """Run the script: each outage at a start and later, deletions, and the end.

    Args:
        folder: for the server's log.
        tell: called with each line of the story.
        outage: seconds of each outage.
        pause: minimum seconds between two outages, in which each connector commits.
        connectors: their number.

    Raises:
        HourFailed: a connector did not recover by itself, or an archive differs from its topic.
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


def run_freezes(
    folder: Path,
    tell: Tell,
    *,
    connectors: int = 30,
    freezes: int = 10,
    seconds: tuple[float, float] = (20.0, 70.0),
    seed: int = 0,
) -> Happened:
    """Freeze the broker repeatedly while records flow, and wake it.

    Args:
        folder: for the server's log.
        tell: called with each line of the story.
        connectors: their number.
        freezes: their number.
        seconds: the shortest and the longest freeze.
        seed: of the lengths.

    Raises:
        HourFailed: a connector did not catch up in time or shows lag 0 while records wait, or an archive differs from its
            topic.
    """
    chance = random.Random(seed)  # noqa: S311 - no secret
    with (
        scene(folder, tell, connectors, every=10_000) as at,
        Production(at.broker.bootstrap, at.topics) as production,
    ):
        at.start()
        at.create(at.names)
        at.recover(10.0)
        with LagWatch(at) as watch:
            for _ in range(freezes):
                at.freeze(chance.uniform(*seconds), production)
                time.sleep(10.0)
        at.happened.counts["looks at lags"] = watch.looks
        production.__exit__()
        at.happened.counts["records"] = production.sent
        at.settle()
        at.stop()
        found = list(at.differences())
        assert at.server is not None
        at.happened.log = at.server.lines()
    if watch.wrong:
        raise HourFailed(f"{len(watch.wrong)} times lag 0 was shown while records waited: {watch.wrong[:5]}")
    if found:
        raise HourFailed("\n".join(found))
    return at.happened
