"""A connector's surroundings: a topic directory, a store, and moto behind a layer that delays or refuses requests."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import boto3
import fastavro
import numpy as np
import pyarrow as pa
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from sinksdk import TopicPartition, committed_offsets
from sinksdk.topics.directory import write_records
from tests.helpers.warm_jvm import warm_jvm
from tests.s3_archiver.faulty_s3 import PROBES, operation_of

PATIENCE = 120.0  # seconds until a test gives up waiting


class Quiet(WSGIRequestHandler):
    def log(self, *_: Any) -> None:
        """Write no log line."""


def nothing(operation: str, path: str) -> bool:
    """Refuse no request."""
    return False


@dataclass
class SlowS3:
    app: Callable[..., Any]
    delays: dict[str, float] = field(default_factory=dict)
    refuses: Callable[[str, str], bool] = nothing
    operations: list[str] = field(default_factory=list)
    # Operations of the requests that have no response yet.
    pending: list[str] = field(default_factory=list)
    # Parts that were held back since hold_parts() was called.
    held_parts: int = 0
    _first_held: int | None = None
    _released: threading.Event = field(default_factory=threading.Event)

    def hold_parts(self, first: int = 1) -> None:
        # A busy machine may outlast a delay; a held part waits until heal().
        self.held_parts = 0
        self._released = threading.Event()
        self._first_held = first

    def heal(self) -> None:
        self.delays.clear()
        self.refuses = nothing
        self._first_held = None
        self._released.set()

    def settle(self) -> None:
        """Wait until requests of killed processes have taken effect."""
        deadline = time.monotonic() + PATIENCE
        while self.pending:
            assert time.monotonic() < deadline, self.pending
            time.sleep(0.05)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        if PROBES in environ["PATH_INFO"]:  # the start test's own uploads, which no test examines
            return self.app(environ, start_response)
        operation = operation_of(environ)
        self.operations.append(operation)
        self.pending.append(operation)
        try:
            return self._respond(operation, environ, start_response)
        finally:
            self.pending.remove(operation)

    def _respond(self, operation: str, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        time.sleep(self.delays.get(operation, 0.0))
        released, first = self._released, self._first_held
        if operation == "UploadPart" and first is not None and part_number(environ) >= first:
            self.held_parts += 1
            released.wait(PATIENCE)
        if self.refuses(operation, environ["PATH_INFO"]):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            return _error(start_response, "403 Forbidden", "AccessDenied")
        try:
            return self.app(environ, start_response)
        except KeyError:  # moto fails for parts of an aborted upload
            return _error(start_response, "404 Not Found", "NoSuchUpload")


def part_number(environ: Mapping[str, Any]) -> int:
    return int(parse_qs(environ["QUERY_STRING"])["partNumber"][0])


def _error(start_response: Callable[..., Any], status: str, code: str) -> list[bytes]:
    body = f"<Error><Code>{code}</Code><Message>says the test</Message></Error>".encode()
    start_response(status, [("Content-Length", str(len(body)))])
    return [body]


@dataclass
class Site:
    folder: Path
    endpoint: str
    s3: SlowS3
    bucket: str
    topic: str = "orders"
    processes: list[subprocess.Popen[str]] = field(default_factory=list, init=False, repr=False)

    @property
    def store_file(self) -> Path:
        return self.folder / "store.sqlite"

    @property
    def store(self) -> str:
        return f"sqlite:///{self.store_file}"

    @property
    def topics(self) -> Path:
        return self.folder / "topics"

    @property
    def source(self) -> Sequence[str]:
        """Return options that name the source."""
        return ["--topic-directory", str(self.topics)]

    @property
    def config(self) -> Path:
        return self.folder / "archive.json"

    def configure(self, **settings: object) -> None:
        """Write the connector's configuration. Keyword ``flush_size`` sets key ``flush.size``."""
        config = {
            "connector.class": "s3-archiver",
            "topics": self.topic,
            "tasks.max": 4,
            "s3.bucket.name": self.bucket,
            "store.url": self.endpoint,
            "aws.access.key.id": "key",
            "aws.secret.access.key": "secret",
            "flush.size": 10_000,
            "s3.part.size": 5 * 1024 * 1024,
            "closing.poll.ms": 100,
            "poll.interval.ms": 200,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self.config.write_text(json.dumps({"name": "archive", "config": config}))

    def produce(self, partitions: int, records: int, *, size: int = 200, first: int = 0) -> None:
        random = np.random.default_rng(first)
        for partition in range(partitions):
            offsets = np.arange(first, first + records)
            data = random.integers(0, 256, (records, size), dtype=np.uint8)
            table = pa.table(
                {
                    "key": pa.array([b"key-%d" % offset for offset in offsets], pa.binary()),
                    "value": pa.array([row.tobytes() for row in data], pa.binary()),
                    "offset": offsets,
                    "timestamp": pa.array(1_700_000_000_000 + offsets, pa.timestamp("ms", tz="UTC")),
                }
            )
            write_records(self.topics, TopicPartition(self.topic, partition), table)

    def start(
        self, *options: str, master: str = "local[2]", env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "sinksdk", "run", str(self.config)]
        command += [*self.source, "--store", self.store, "--master", master]
        return self.started([*command, *options], env)

    def started(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env={**os.environ, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()

    def run(
        self, *options: str, master: str = "local[2]", env: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        """Run to the end and return exit code and output.

        The JVM is shared with other runs unless an option or variable is given.
        """
        is_usual = env is None and master == "local[2]" and "--conf" not in options
        env = warm_jvm().environment() if is_usual else env
        return ended(self.start(*options, master=master, env=env))

    def verify(self) -> tuple[int, str]:
        command = [sys.executable, "-m", "sinksdk.connectors.s3_archiver", "verify", str(self.config)]
        found = subprocess.run(
            [*command, "--store", self.store, "--topic-directory", str(self.topics)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        return found.returncode, found.stdout + found.stderr

    def committed(self) -> dict[int, int]:
        if not self.store_file.exists():
            return {}
        try:
            return {
                p.partition: offset.offset for p, offset in committed_offsets(self.store, "archive").items()
            }
        except Exception:  # noqa: BLE001 - the driver is just making the store
            return {}

    def archived(self) -> dict[int, list[dict[str, Any]]]:
        s3, found = client(self.endpoint), dict[int, list[dict[str, Any]]]()
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket):
            for item in page.get("Contents", []):
                if item["Key"].endswith(".avro"):
                    body = s3.get_object(Bucket=self.bucket, Key=item["Key"])["Body"].read()
                    for record in fastavro.reader(io.BytesIO(body)):
                        found.setdefault(record["partition"], []).append(record)
        return found

    def uploads(self) -> list[str]:
        pending = client(self.endpoint).list_multipart_uploads(Bucket=self.bucket).get("Uploads", [])
        return [upload["UploadId"] for upload in pending]

    def uploads_with_data(self) -> list[str]:
        pending = client(self.endpoint).list_multipart_uploads(Bucket=self.bucket).get("Uploads", [])
        return [upload["Key"] for upload in pending if self._has_parts(upload)]

    def files_in_mid_upload(self) -> set[str]:
        """Return ids of unfinished uploads that have parts, without the start test's own."""
        pending = client(self.endpoint).list_multipart_uploads(Bucket=self.bucket).get("Uploads", [])
        return {
            upload["UploadId"]
            for upload in pending
            if PROBES not in f"/{upload['Key']}" and self._has_parts(upload)
        }

    def _has_parts(self, upload: Mapping[str, str]) -> bool:
        s3 = client(self.endpoint)
        try:
            found = s3.list_parts(Bucket=self.bucket, Key=upload["Key"], UploadId=upload["UploadId"])
        except s3.exceptions.NoSuchUpload:  # the upload was completed or aborted after it was listed
            return False
        return bool(found.get("Parts"))


def client(endpoint: str) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
    )


@contextmanager
def site(folder: Path) -> Iterator[Site]:
    with bucket() as (endpoint, s3, name):
        made = Site(folder, endpoint, s3, name)
        made.configure()
        with closing(made):
            yield made


@contextmanager
def bucket() -> Iterator[tuple[str, SlowS3, str]]:
    s3 = SlowS3(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, s3, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        name = f"bucket-{uuid.uuid4().hex}"  # moto keeps its buckets as long as the process lives
        client(endpoint).create_bucket(Bucket=name)
        yield endpoint, s3, name
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ended(process: subprocess.Popen[str], timeout: float = PATIENCE) -> tuple[int, str]:
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        message = f"the process did not end within {timeout:g} s and printed:\n{output}"
        raise TimeoutError(message) from None
    return process.returncode, output


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if condition():
            return
        if process.poll() is not None:
            message = f"it ended before {what}: {process.communicate()[0]}"
            raise AssertionError(message)
        time.sleep(0.05)
    message = f"never came: {what}"
    raise TimeoutError(message)


def descendants(pid: int) -> list[tuple[int, str]]:
    children: dict[int, list[int]] = {}
    commands = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text().rpartition(")")[2].split()
                commands[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # the process ended meanwhile
            children.setdefault(int(status[1]), []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        for child in children.get(todo.pop(), []):
            found.append((child, commands[child]))
            todo.append(child)
    return found
