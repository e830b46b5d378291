"""Kills broker, driver, executors and Python workers while a topic is written; then checks the archive.

The seed decides what is killed and how long to wait before; the state it meets depends on the machine, so a seed that
fails once may pass the next time.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, suppress
from itertools import cycle
from pathlib import Path
from typing import NoReturn

from property_tests.soak_kafka.driver import Driver
from property_tests.soak_kafka.producing import Production
from tests.kafka.archive import KafkaSite, kafka_site
from tests.kafka.broker import Broker, serving
from tests.kafka.topics import consume, create_topic

KINDS = ("broker", "driver", "worker", "executor")
_PARTITIONS = 4
# Seconds to wait for a commit, or for a process to kill, before the next kind of process is tried.
_PATIENCE = 40.0
_CATCHING_UP = 300.0  # seconds
_LAST_WORDS = 3_000  # characters of a driver's output
_BROKER_IS_AWAY = 2  # exit code of a driver that was started while there was no broker

Tell = Callable[[str], None]


class SoakFailed(AssertionError):
    """The archive differs from the topic, or the connector gave up. The message has the seed."""


def soak(
    seed: int, seconds: float, tell: Tell, masters: Sequence[str] = ("local[2]",), least: Sequence[str] = ()
) -> Counter[str]:
    """Kill processes for a while, let everything catch up, and compare.

    Args:
        seed: of kills and records.
        seconds: how long processes are killed.
        tell: called with each line of the story.
        masters: Spark masters, which drivers use in turn.
        least: kinds of processes that must be killed at least once, however long it takes.

    Raises:
        SoakFailed: records are lost, duplicated or changed, or something is left over.
    """
    with ExitStack() as stack:
        broker = stack.enter_context(serving())
        topic = create_topic(broker.bootstrap, "soak", _PARTITIONS)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        site = stack.enter_context(kafka_site(folder, broker.bootstrap, topic))
        site.configure(flush_size=500, tasks_max=2, restart_backoff_ms=500, restart_max_attempts=100)
        site.s3.delays["CompleteMultipartUpload"] = 0.05
        scene = Scene(seed, broker, site, tell, masters)
        stack.callback(scene.remove)
        with Production(broker.bootstrap, topic, _PARTITIONS, seed) as production:
            scene.kill_for(seconds, least)
        scene.catch_up()
        scene.happened += production.happened
        scene.happened["requests to publish a file"] = site.s3.operations.count("CompleteMultipartUpload")
        found = list(differences(site, production.acknowledged, scene.happened))
    if found:
        raise SoakFailed("\n".join([*found, f"seed {seed}"]))
    return scene.happened


class Scene:
    def __init__(
        self, seed: int, broker: Broker, site: KafkaSite, tell: Tell, masters: Sequence[str]
    ) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - no secret
        self._seed = seed
        self._broker = broker
        self._site = site
        self._tell = tell
        self._masters = cycle(masters)
        self._began = time.monotonic()
        self._drivers: list[Driver] = []
        self.happened: Counter[str] = Counter()

    def kill_for(self, seconds: float, least: Sequence[str]) -> None:
        """Kill processes, each kind equally often."""
        self._start()
        waiting: list[str] = []
        while self._elapsed < seconds or any(not self.happened[f"kills: {kind}"] for kind in least):
            waiting = waiting or self._chance.sample(KINDS, len(KINDS))
            kind = waiting.pop()
            if kind == "executor" and not self._driver.has_executors:
                continue
            # Without this wait, the next kill would come while processes are still starting.
            if self._chance.random() < 0.75:
                self._await_progress()
            time.sleep(self._chance.uniform(0.0, 2.0))
            self._restart_if_ended()
            self._kill(kind)

    def catch_up(self) -> None:
        self._kill_driver()
        driver = self._start("--until-caught-up")
        try:
            code = driver.process.wait(_CATCHING_UP)
        except subprocess.TimeoutExpired:
            self._fail(driver, f"did not catch up within {_CATCHING_UP:g} s")
        if code:
            self._fail(driver, f"ended with exit code {code}")
        self._say(f"driver {driver.number} has caught up")

    def remove(self) -> None:
        for driver in self._drivers:
            driver.remove()

    @property
    def _driver(self) -> Driver:
        return self._drivers[-1]

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _start(self, *options: str) -> Driver:
        number, master = len(self._drivers) + 1, next(self._masters)
        self._drivers.append(Driver.start(self._site, number, master, *options))
        self.happened["drivers started"] += 1
        self._say(f"driver {number} starts on {master}")
        return self._driver

    def _kill(self, kind: str) -> None:
        if kind == "broker":
            self._kill_broker()
        elif kind == "driver":
            self._kill_driver()
            self._start()
        else:
            self._kill_one(kind)

    def _kill_broker(self) -> None:
        self._killed("broker", self._broker.pid)
        self._broker.kill()
        time.sleep(self._chance.uniform(0.0, 4.0))
        self._broker.start()
        self._say("the broker answers again")

    def _kill_driver(self) -> None:
        self._killed("driver", self._driver.process.pid)
        self._driver.kill()

    def _kill_one(self, kind: str) -> None:
        driver, deadline = self._driver, time.monotonic() + _PATIENCE
        while time.monotonic() < deadline and driver.process.poll() is None:
            pids = driver.workers() if kind == "worker" else driver.executors()
            if pids:
                with suppress(ProcessLookupError):
                    os.kill(pids[-1], signal.SIGKILL)
                    self._killed(kind, pids[-1])
                return
            time.sleep(0.1)

    def _killed(self, kind: str, pid: int) -> None:
        self.happened[f"kills: {kind}"] += 1
        self._say(f"kill -9 of the {kind} ({pid})")

    def _await_progress(self) -> None:
        """Wait for a commit, so that the next kill meets work in progress."""
        before, deadline = self._site.committed(), time.monotonic() + _PATIENCE
        while time.monotonic() < deadline and self._driver.process.poll() is None:
            if self._site.committed() != before:
                return
            time.sleep(0.1)

    def _restart_if_ended(self) -> None:
        """Restart a driver that has ended; it may end by itself only if it was started without a broker."""
        code = self._driver.process.poll()
        if code is None:
            return
        if code != _BROKER_IS_AWAY:
            self._fail(self._driver, f"ended by itself with exit code {code}")
        self.happened["drivers started without a broker"] += 1
        self._say(f"driver {self._driver.number} found no broker")
        self._start()

    def _fail(self, driver: Driver, what: str) -> NoReturn:
        output = driver.log.read_text(errors="replace")[-_LAST_WORDS:]
        raise SoakFailed(f"driver {driver.number} {what}:\n{output}\nseed {self._seed}")

    def _say(self, what: str) -> None:
        self._tell(f"{self._elapsed:7.1f} s  {what}")


def differences(site: KafkaSite, confirmed: AbstractSet[bytes], happened: Counter[str]) -> Iterator[str]:
    """Return the differences that ``verify`` finds, and those of a plain consumer and Avro reader."""
    code, output = site.verify_with_kafka()
    if code:
        yield f"verify ended with exit code {code}:\n{output}"
    there, archived = consume(site.bootstrap, site.topic), site.archived()
    happened["records to archive"], happened["records archived"] = len(there), len(archived)
    if archived != there:
        counted = Counter(archived)
        counted.subtract(there)
        wrong = sorted((r, n) for r, n in counted.items() if n)
        yield f"{len(wrong)} records differ, the first of them (1: archived too often, -1: missing): {wrong[:3]}"
    if lost := confirmed - {r.key for r in there}:
        yield f"the broker has lost {len(lost)} records that it had confirmed, which is not the connector's fault"
    if left := site.uploads_with_data():
        yield f"uploads are left that hold data: {left}"
