"""Measure the upload client alone against boto3: ``python benchmarks/upload.py [MEGABYTES [ROUNDS]]``.

A ratio is the median of the rounds' own ratios: a slow minute of the machine slows both sides alike.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

import boto3

from benchmarks.null_s3 import NullS3, null_s3
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.s3.boto_client import BotoS3, connect
from sinksdk.connectors.s3_archiver.s3.client import Location
from sinksdk.connectors.s3_archiver.s3.part import PartPool
from sinksdk.connectors.s3_archiver.s3.publisher import complete
from sinksdk.connectors.s3_archiver.s3.settings import MIB
from sinksdk.connectors.s3_archiver.s3.upload import Upload

PART = 8 * MIB
BLOCK = os.urandom(64 * 1024)
WHERE = Location("bucket", "topics/orders/file.avro")


@dataclass(frozen=True)
class Row:
    """One way of uploading.

    Args:
        speed: median MB/s.
        cpu: median seconds of client CPU per GB.
        ratio: median speed against boto3's default multipart upload of the same round.
        sent: body bytes of one upload, as the endpoint counted them, against the file's.
    """

    name: str
    speed: float
    cpu: float
    ratio: float
    requests: int
    sent: float


def ours(s3: BotoS3, pool: PartPool, megabytes: int) -> None:
    upload = Upload(s3, WHERE, pool, "nonce", {})
    upload.create()
    upload.is_prepared = True
    for block in blocks(megabytes):
        upload.write(block)
        if upload.has_full_part:
            upload.send()
    upload.finish()
    complete(s3, upload.token)


def boto3_parts(client: Any, megabytes: int) -> None:
    # The parts are ours, everything else is as boto3 has it.
    where = {"Bucket": WHERE.bucket, "Key": WHERE.key}
    upload_id = client.create_multipart_upload(**where)["UploadId"]
    parts: list[dict[str, Any]] = []
    collected = bytearray()

    def send() -> None:
        number = len(parts) + 1
        answer = client.upload_part(**where, UploadId=upload_id, PartNumber=number, Body=collected)
        parts.append({"PartNumber": number, "ETag": answer["ETag"]})
        collected.clear()

    for block in blocks(megabytes):
        collected += block
        if len(collected) >= PART:
            send()
    if collected:
        send()
    client.complete_multipart_upload(**where, UploadId=upload_id, MultipartUpload={"Parts": parts})


def boto3_managed(client: Any, megabytes: int) -> None:
    client.upload_fileobj(io.BufferedReader(_Stream(megabytes), PART), WHERE.bucket, WHERE.key)


def boto3_single(client: Any, megabytes: int) -> None:
    client.put_object(Bucket=WHERE.bucket, Key=WHERE.key, Body=b"".join(blocks(megabytes)))


def blocks(megabytes: int) -> Iterator[bytes]:
    for _ in range(megabytes * MIB // len(BLOCK)):
        yield BLOCK


class _Stream(io.RawIOBase):
    def __init__(self, megabytes: int) -> None:
        super().__init__()
        self._blocks = blocks(megabytes)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = next(self._blocks, b"")[: len(buffer)]
        buffer[: len(block)] = block
        return len(block)


def run(megabytes: int = 256, rounds: int = 9, *, tls: bool = True) -> list[Row]:
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
    counted: dict[str, dict[str, int]] = {}
    with null_s3(tls=tls) as endpoint, contextlib.ExitStack() as processes:
        workers = {name: processes.enter_context(_process()) for name in WAYS}
        for name, worker in workers.items():
            worker.submit(_once, name, endpoint, megabytes).result()  # connections, imports
        endpoint.statistics()
        for _ in range(rounds):
            for name, worker in workers.items():
                measured[name].append(worker.submit(_once, name, endpoint, megabytes).result())
                counted[name] = endpoint.statistics()
    return _rows(measured, counted, megabytes)


def _process() -> ProcessPoolExecutor:
    # One way's effect on the memory allocator must not help or hinder another.
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def _once(name: str, endpoint: NullS3, megabytes: int) -> tuple[float, float]:
    way = _way(name, endpoint)
    cpu, wall = _cpu(), time.perf_counter()
    way(megabytes)
    return time.perf_counter() - wall, _cpu() - cpu


@cache
def _way(name: str, endpoint: NullS3) -> Callable[[int], None]:
    if endpoint.certificate:
        os.environ["AWS_CA_BUNDLE"] = str(endpoint.certificate)
    return WAYS[name](endpoint.url)


def _archiver(url: str) -> Callable[[int], None]:
    config = S3ArchiverConfig.parse(
        {
            "name": "bench",
            "topics": "orders",
            "s3.bucket.name": WHERE.bucket,
            "flush.size": "1",
            "store.url": url,
            "aws.access.key.id": "key",
            "aws.secret.access.key": "secret",
        }
    )
    return partial(ours, connect(config), PartPool(PART))


def _boto3(way: Callable[[Any, int], None]) -> Callable[[str], Callable[[int], None]]:
    def with_client(url: str) -> Callable[[int], None]:
        credentials = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
        session = boto3.session.Session(**credentials, region_name="us-west-2")  # type: ignore[arg-type] # texts
        return partial(way, session.client("s3", endpoint_url=url))

    return with_client


WAYS: Final[Mapping[str, Callable[[str], Callable[[int], None]]]] = {
    "boto3 upload_part, its defaults": _boto3(boto3_parts),
    "archiver": _archiver,
    "boto3 upload_fileobj, 10 threads": _boto3(boto3_managed),
    "boto3 put_object of the whole": _boto3(boto3_single),
}


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _rows(
    measured: dict[str, list[tuple[float, float]]], counted: dict[str, dict[str, int]], megabytes: int
) -> list[Row]:
    size = megabytes * MIB
    reference = [wall for wall, _ in next(iter(measured.values()))]
    return [
        Row(
            name,
            size / 1e6 / statistics.median(wall for wall, _ in rounds),
            statistics.median(cpu for _, cpu in rounds) / (size / 1e9),
            statistics.median(theirs / wall for theirs, (wall, _) in zip(reference, rounds, strict=True)),
            sum(count for what, count in counted[name].items() if what != "bytes"),
            counted[name]["bytes"] / size,
        )
        for name, rounds in measured.items()
    ]


def show(rows: list[Row]) -> None:
    print(f"{'upload client alone':34} {'MB/s':>7} {'CPU s/GB':>9} {'ratio':>6} {'requests':>9} {'sent':>7}")
    for row in rows:
        figures = f"{row.speed:7.0f} {row.cpu:9.2f} {row.ratio:6.2f} {row.requests:9d} {row.sent:7.4f}"
        print(f"{row.name:34} {figures}")


if __name__ == "__main__":
    show(run(*map(int, sys.argv[1:])))
