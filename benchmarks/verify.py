"""Measure CPU and memory of the S3 archiver's ``verify``: ``python -m benchmarks.verify 500000 1000000``.

The arguments are sizes of topics; S3 (moto) and Kafka run in other processes, which do not count.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import boto3
from botocore.config import Config

from benchmarks.kafka_connect.topics import BROKER, PARTITIONS, Cluster
from tests.helpers.ports import free_port
from tests.kafka.broker import serving

SHAPES: Final[Mapping[str, Mapping[str, str]]] = {
    "Avro zstandard": {"avro.codec": "zstandard"},
    "Parquet": {
        "format.class": "io.confluent.connect.s3.format.parquet.ParquetFormat",
        "archive.content": "record",
    },
}
_CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
}


@contextmanager
def _moto() -> Iterator[str]:
    # Not in this process: a child's peak memory begins with that of the process which forked it.
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        patient = Config(retries={"mode": "standard", "max_attempts": 10})  # while the server starts
        boto3.client("s3", endpoint_url=url, config=patient).create_bucket(Bucket="bucket")
        yield url
    finally:
        process.terminate()
        process.wait(20)


def _verify(config: Path, store: str, *topic: str) -> tuple[float, float]:
    command = [
        sys.executable,
        "-m",
        "sinksdk.connectors.s3_archiver",
        "verify",
        str(config),
        "--store",
        store,
    ]
    process = subprocess.Popen([*command, *topic], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3


def main(sizes: list[int]) -> None:
    os.environ.update(_CREDENTIALS)
    with serving(BROKER) as broker, _moto() as url, tempfile.TemporaryDirectory() as folder:
        for records in sizes:
            topic = f"random-{records}"
            Cluster(broker.bootstrap).fill(topic, 200, records // PARTITIONS)
            for shape, settings in SHAPES.items():
                name = f"{shape.split()[0].lower()}-{records}"
                config = Path(folder, f"{name}.json")
                configuration = {
                    "name": name,
                    "connector.class": "s3-archiver",
                    "topics": topic,
                    "tasks.max": "2",
                    "s3.bucket.name": "bucket",
                    "store.url": url,
                    "flush.size": "100000",
                    "topics.dir": name,
                    **settings,
                }
                config.write_text(json.dumps(configuration))
                store = f"sqlite:///{folder}/{name}.sqlite"
                kafka = ("--bootstrap-servers", broker.bootstrap)
                subprocess.run(
                    [
                        *(sys.executable, "-m", "sinksdk", "run", str(config), "--master", "local[2]"),
                        *(*kafka, "--store", store, "--until-caught-up"),
                    ],
                    check=True,
                    capture_output=True,
                )
                for which, arguments in (("alone", ()), ("with the topic", kafka)):
                    seconds, peak = _verify(config, store, *arguments)
                    print(
                        f"{shape:16s} {records:9,d} records, {which:15s} {seconds:5.1f} CPU s, "
                        f"{seconds * 1e6 / records:5.1f} per million, peak {peak:4.0f} MB",
                        flush=True,
                    )


if __name__ == "__main__":
    main([int(number) for number in sys.argv[1:]] or [1_000_000])
