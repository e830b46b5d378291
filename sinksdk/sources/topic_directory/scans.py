"""Which files of a range Spark reads together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from sinksdk.records import OffsetRange
from sinksdk.sources.topic_directory.footers import DataFile

SCAN_BYTES: Final = 32 * 1024 * 1024
"""Files are read by one scan and sorted while they hold no more than this, uncompressed.

A scan costs the driver about 15 ms and Spark keeps no order among a scan's files, so that many small
files are cheapest to read together and sort, and large ones by a scan each, as they are.
"""


def scans(files: Sequence[DataFile], offsets: OffsetRange) -> Iterator[list[DataFile]]:
    """The files that hold something of a range, cut into what one scan reads."""
    wanted = [file for file in files if file.last >= offsets.start and file.first < offsets.end]
    for _, alike in groupby(wanted, key=lambda file: file.shape):
        batch: list[DataFile] = []
        size = 0
        for file in alike:
            if batch and size + file.size > SCAN_BYTES:
                yield batch
                batch, size = [], 0
            batch.append(file)
            size += file.size
        yield batch
