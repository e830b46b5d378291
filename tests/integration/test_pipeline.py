from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import polars as pl
import pytest

from examples.make_bucket import make_bucket
from tests.helpers.ports import free_port
from tests.integration.archive_site import client, descendants

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(1_200)]

ROOT = Path(__file__).parents[2]
PATIENCE = 240.0  # seconds: ten times as long as the slowest step takes on an idle machine
PAUSE = 0.2  # seconds between two writes

Pids = Callable[[], Sequence[int]]
T = TypeVar("T")


class Writer(threading.Thread):
    # One file is rotated meanwhile. Lines are written in pieces that may end within a line.
    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder = folder
        self.is_ending = threading.Event()
        self.contents: list[list[bytes]] = []  # several tasks write the first three files

    def lines(self) -> int:
        return sum(map(len, self.contents))

    def run(self) -> None:
        names = ["a.jsonl", "b.jsonl", "c.jsonl"]
        growing = {name: self.content(name) for name in names}
        rounds = 0
        while not self.is_ending.wait(PAUSE):
            rounds += 1
            if rounds == 100:
                growing["a.jsonl"].close()
                (self.folder / "a.jsonl").rename(self.folder / "a.jsonl.1")
                growing["a.jsonl"] = self.content("a.jsonl")
            for file in growing.values():
                next(file)
        for file in growing.values():
            file.close()

    def content(self, name: str) -> Generator[None]:
        lines: list[bytes] = []
        self.contents.append(lines)
        number, left = len(self.contents), b""
        with (self.folder / name).open("ab", buffering=0) as file:
            try:
                while True:
                    new = [
                        json.dumps({"content": number, "line": len(lines) + n}).encode() for n in range(20)
                    ]
                    lines += new
                    text = left + b"".join(line + b"\n" for line in new)
                    file.write(text[:-7])
                    left = text[-7:]
                    yield
            finally:
                file.write(left)


class Pipeline:
    def __init__(self, folder: Path, s3_port: int, port: int) -> None:
        self.input, self.work = folder / "input", folder / "work"
        self.s3_port, self.port = s3_port, port
        self.output = folder / "output"
        self.kills: Counter[str] = Counter()
        self.input.mkdir()
        self.writer = Writer(self.input)

    def start(self, *options: str) -> None:
        places = ["--input", str(self.input), "--work", str(self.work), "--s3-port", str(self.s3_port)]
        places += ["--port", str(self.port), "--master", "local-cluster[1,4,1024]"]
        with self.output.open("ab") as output:
            self.command = subprocess.Popen(
                [sys.executable, "-u", "-m", "examples.pipeline", *places, *options],
                cwd=ROOT,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self, kind: str, pids: Pids) -> None:
        found = self.until(pids, f"there is a {kind}")
        os.kill(found[0], signal.SIGKILL)
        before = self.writer.lines()
        self.tell(f"-- {kind} is killed, process {found[0]}")
        self.kills[kind] += 1
        self.until(lambda: self.archived() > before, f"it goes on without its {kind}")

    def tell(self, line: str) -> None:
        with self.output.open("a") as output:
            output.write(f"{time.strftime('%X')} {line}\n")

    def until(self, condition: Callable[[], T], what: str) -> T:
        give_up = time.monotonic() + PATIENCE
        while not (found := condition()):
            assert time.monotonic() < give_up, f"not within {PATIENCE:g} s: {what}\n{self.story()}"
            time.sleep(0.05)
        return found

    def archived(self) -> int:
        told = re.findall(r"([\d,]+) archived", self.output.read_text())
        return int(told[-1].replace(",", "")) if told else 0

    def story(self) -> str:
        logs = [self.output, *sorted(self.work.glob("*.log"))]
        return "\n".join(log.read_text()[-5_000:] for log in logs if log.exists())

    # -- its processes -------------------------------------------------------------------------------

    def service(self, name: str) -> list[int]:
        with contextlib.suppress(OSError, ValueError):
            return [int((self.work / f"{name}.pid").read_text())]
        return []

    def below(self, text: str) -> list[int]:
        return [pid for server in self.service("server") for pid, line in descendants(server) if text in line]

    def drivers(self) -> list[int]:
        return self.below("SparkSubmit")

    def executors(self) -> list[int]:
        return self.below("CoarseGrainedExecutorBackend")

    def daemons(self) -> list[int]:
        return [pid for pid in self.below("pyspark.worker") if descendants(pid)]

    def workers(self) -> list[int]:
        return [pid for daemon in self.daemons() for pid, _ in descendants(daemon)]

    def source_workers(self) -> list[int]:
        return [pid for pid in self.workers() if any(str(self.input) in name for name in open_files(pid))]

    def sink_workers(self) -> list[int]:
        of_source = self.source_workers()
        return [pid for pid in self.workers() if pid not in of_source] if len(of_source) == 2 else []

    def end(self) -> None:
        everything = [*self.service("s3"), *self.service("server"), *self.below("")]
        if self.command.poll() is None:
            everything.append(self.command.pid)
        for pid in everything:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.command.wait()


def open_files(pid: int) -> list[str]:
    found = []
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.append(str(descriptor.readlink()))
    return found


def read_back(state: Path, port: int) -> list[pl.DataFrame]:
    server = subprocess.Popen([sys.executable, "-m", "examples.pipeline.s3", str(port), str(state)], cwd=ROOT)
    try:
        # The step waits until S3 responds; the bucket exists already.
        make_bucket(f"http://127.0.0.1:{port}", "archive")
        s3 = client(f"http://127.0.0.1:{port}")
        found = s3.list_objects_v2(Bucket="archive", Prefix="topics/lines/")["Contents"]
        bodies = [s3.get_object(Bucket="archive", Key=entry["Key"])["Body"].read() for entry in found]
        return [pl.read_avro(io.BytesIO(body)) for body in bodies]
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    first = free_port(2)
    made = Pipeline(tmp_path, first, first + 1)
    made.start("--follow")
    try:
        yield made
    finally:
        made.end()


def test_the_archive_equals_the_input_after_each_process_is_killed(pipeline: Pipeline) -> None:
    writer = pipeline.writer
    writer.start()
    pipeline.kill("source's Python worker", pipeline.source_workers)
    pipeline.kill("sink's Python worker", pipeline.sink_workers)
    pipeline.kill("Python daemon", pipeline.daemons)
    pipeline.kill("executor", pipeline.executors)
    pipeline.kill("S3", lambda: pipeline.service("s3"))
    pipeline.kill("Spark driver", pipeline.drivers)
    pipeline.kill("server", lambda: pipeline.service("server"))
    assert writer.is_alive()
    pipeline.kills["command"] += 1
    pipeline.command.kill()
    pipeline.command.wait()
    writer.is_ending.set()
    writer.join()
    pipeline.start()
    assert pipeline.command.wait(PATIENCE) == 0, pipeline.story()

    total = writer.lines()
    assert f"The archive is the input: {total:,} lines of 4 files" in pipeline.output.read_text()
    archive = pl.concat(read_back(pipeline.work / "s3.state", pipeline.s3_port)).sort("offset")
    assert archive["offset"].to_list() == list(range(total))
    contents: dict[bytes, list[bytes]] = defaultdict(list)
    for key, value in archive.select("key", "value").iter_rows():
        contents[key].append(value)
    assert sorted(contents.values()) == sorted(writer.contents)
    assert set(pipeline.kills.values()) == {1}
    assert len(pipeline.kills) == 8
