"""Compares the archive with the files, line by line."""

import gzip
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from itertools import takewhile
from pathlib import Path
from typing import Any

import boto3
import fastavro

Lines = Sequence[bytes]


class Archive:
    """Reads the archive with public tools only.

    Args:
        config: the archiver's configuration.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        self.s3 = boto3.client(
            "s3",
            endpoint_url=config["store.url"],
            region_name=config["s3.region"],
            aws_access_key_id=config.get("aws.access.key.id"),
            aws_secret_access_key=config.get("aws.secret.access.key"),
        )
        self.bucket, self.prefix = config["s3.bucket.name"], f"topics/{config['topics']}/"
        self.counted: dict[str, int] = {}

    def count(self) -> tuple[int, int]:
        """Return the numbers of files and records. Files never change, so each is read once."""
        for key in self.keys():
            if key not in self.counted:
                self.counted[key] = sum(block.num_records for block in fastavro.block_reader(self.open(key)))
        return len(self.counted), sum(self.counted.values())

    def contents(self) -> Mapping[bytes, Lines]:
        """Return lines in the order of their offsets, by the key that the source has given their file."""
        found: dict[bytes, list[bytes]] = defaultdict(list)
        for key in sorted(self.keys()):
            for record in fastavro.reader(self.open(key)):
                found[record["key"]].append(record["value"])
        return found

    def keys(self) -> Iterator[str]:
        for page in self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix):
            yield from (found["Key"] for found in page.get("Contents", ()))

    def open(self, key: str) -> Any:
        return BytesIO(self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read())


def lines_of(folder: Path, pattern: str) -> dict[str, Lines]:
    """Return the lines of each file, without older copies: files that are a beginning of another."""
    files = {path.name: lines_in(path) for path in folder.glob(pattern)}
    kept: dict[str, Lines] = {}
    for name, lines in sorted(files.items(), key=lambda item: -len(item[1])):
        if not any(other[: len(lines)] == lines for other in kept.values()):
            kept[name] = lines
    return dict(sorted(kept.items()))


def lines_in(path: Path) -> Lines:
    """Return complete lines only."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return data.split(b"\n")[:-1]


def differences(files: Mapping[str, Lines], contents: Mapping[bytes, Lines]) -> list[str]:
    """Return where the archive differs from the lines of each file, once and in order."""
    left, found = dict(contents), []
    for name, lines in files.items():
        key = max(left, key=lambda key: alike(lines, left[key]), default=b"")
        is_begun = key in left and alike(lines, left[key])
        archived = left.pop(key) if is_begun else []
        if archived != lines:
            found.append(difference(name, lines, archived))
    return found + [
        f"{len(lines):,} archived lines belong to no file: {lines[0]!r} …" for lines in left.values()
    ]


def difference(name: str, lines: Lines, archived: Lines) -> str:
    at = alike(lines, archived)
    wanted, there = ([*some, b"the end"][at] for some in (lines, archived))
    return f"{name}, line {at + 1:,} of {len(lines):,}: {wanted!r} is {there!r} in the archive"


def alike(lines: Lines, archived: Lines) -> int:
    """Return how many lines are equal at the beginning."""
    pairs = zip(lines, archived, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
