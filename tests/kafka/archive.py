"""A connector that archives Kafka topics, and an independent reader of its archive."""

from __future__ import annotations

import datetime as dt
import io
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import fastavro

from tests.integration.archive_site import Site, bucket, client
from tests.kafka.topics import Read

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass
class KafkaSite(Site):
    bootstrap: str = ""

    @property
    def source(self) -> Sequence[str]:
        return ["--bootstrap-servers", self.bootstrap]

    def verify_alone(self) -> int:
        """Return the exit code of ``verify`` against the commits only."""
        command = [sys.executable, "-m", "sinksdk.connectors.s3_archiver", "verify", str(self.config)]
        return subprocess.run([*command, "--store", self.store], cwd=self.folder, check=False).returncode

    def verify_with_kafka(self, *options: str, env: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Return the exit code and output of ``verify`` against commits and topics."""
        command = [sys.executable, "-m", "sinksdk.connectors.s3_archiver", "verify", str(self.config)]
        command += ["--store", self.store, "--bootstrap-servers", self.bootstrap, *options]
        found = subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            check=False,
        )
        return found.returncode, found.stdout + found.stderr

    def archived(self, topic: str | None = None) -> list[Read]:
        s3, topic = client(self.endpoint), topic or self.topic
        found = []
        for page in s3.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=f"topics/{topic}/"
        ):
            for item in page.get("Contents", []):
                body = s3.get_object(Bucket=self.bucket, Key=item["Key"])["Body"].read()
                found += [_read(row) for row in fastavro.reader(io.BytesIO(body))]
        return sorted(found)


def _read(row: dict) -> Read:  # type: ignore[type-arg]  # fastavro's
    timestamp = row["timestamp"]
    return Read(
        row["topic"],
        row["partition"],
        row["offset"],
        -1 if timestamp is None else (timestamp - _EPOCH) // dt.timedelta(milliseconds=1),
        row["key"],
        row["value"],
        tuple((header["key"], header["value"]) for header in row["headers"]),
    )


@contextmanager
def kafka_site(folder: Path, bootstrap: str, topic: str) -> Iterator[KafkaSite]:
    with bucket() as (endpoint, s3, name):
        made = KafkaSite(folder, endpoint, s3, name, topic, bootstrap=bootstrap)
        made.configure()
        with closing(made):
            yield made
